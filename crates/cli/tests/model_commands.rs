//! `quire model` and `quire links` against a live server.

use std::path::Path;
use std::process::Command;

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
const MODEL: &str = r#"{"version":1,
    "links":[{"name":"book-author","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
    "copies":[{"name":"author-on-book","link":"book-author","fields":{"name":"t.name"}}]}"#;

struct Library {
    live: LiveServer,
    folder: tempfile::TempDir,
}

impl Library {
    fn new() -> Library {
        let folder = tempfile::tempdir().expect("a directory");
        let live = LiveServer::quire(Path::new(PROGRAM), &folder.path().join("data"), &[]).expect("starts");
        let library = Library { live, folder };
        library.post("/dbs", ("dbs", ""), r#"{"id":"library"}"#);
        for id in ["books", "authors"] {
            let body =
                format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
            library.post("/dbs/library/colls", ("colls", "dbs/library"), &body);
        }
        library.create("authors", r#"{"id":"a1","name":"Ann"}"#);
        library.create("books", r#"{"id":"b1","author":{"id":"a1","name":"?"}}"#);
        library
    }

    fn create(&self, container: &str, body: &str) {
        let link = format!("dbs/library/colls/{container}");
        self.post(&format!("/{link}/docs"), ("docs", &link), body);
    }

    fn post(&self, path: &str, signed: (&str, &str), body: &str) {
        let request = Signer::well_known().request("POST", path, signed, "", body.as_bytes());
        let answer =
            Connection::open(self.live.port).and_then(|mut own| own.exchange(&request)).expect("an answer");
        assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    fn file(&self, text: &str) -> String {
        let path = self.folder.path().join("model.json");
        std::fs::write(&path, text).expect("writes");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        self.live.run_command(PROGRAM, arguments)
    }
}

#[test]
fn a_model_is_compared_put_read_and_checked() {
    let library = Library::new();
    let file = library.file(MODEL);
    let (code, printed, _) = library.run(&["model", "diff", "library", &file]);
    assert_eq!(code, 0);
    assert!(printed.contains("added: book-author, author-on-book\n"), "{printed}");
    assert!(printed.contains("author-on-book: 1 of 1 items would change"), "{printed}");
    let (code, printed, _) = library.run(&["model", "check", "library", "--model", &file]);
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("author-on-book: 1 drift\n"), "{printed}");
    assert!(printed.contains(r#"books ["b1"] b1 /author/name: "?", expected "Ann""#), "{printed}");
    let (code, printed, error) = library.run(&["model", "put", "library", &file]);
    assert_eq!((code, printed.as_str()), (0, "added: book-author, author-on-book\n"), "{error}");
    let (code, printed, _) = library.run(&["model", "get", "library"]);
    assert_eq!(code, 0);
    assert!(
        printed.starts_with("{\n  \"version\": 1,\n") && printed.contains("\"revision\": 1"),
        "{printed}"
    );
    let (code, printed, _) = library.run(&["model", "check", "library"]);
    assert_eq!((code, printed.as_str()), (0, "clean: 1 items, 1 references\n"));
    let (code, printed, _) = library.run(&["links", "check", "library", "--json"]);
    assert_eq!(code, 0);
    assert!(printed.starts_with(r#"{"clean":true,"items":1,"references":1,"findings":[]"#), "{printed}");
}

#[test]
fn what_dangles_is_found_and_repaired() {
    let library = Library::new();
    library.create("books", r#"{"id":"b2","author":{"id":"gone"}}"#);
    library.run(&["model", "put", "library", &library.file(MODEL)]);
    let (code, printed, _) = library.run(&["links", "check", "library"]);
    assert_eq!(code, 3);
    assert!(printed.contains("book-author: 1 dangling\n"), "{printed}");
    let (code, printed, error) =
        library.run(&["model", "check", "library", "--repair", "--dangling", "remove"]);
    assert_eq!((code, printed.as_str()), (0, "clean: 2 items, 1 references\n"), "{error}");
    assert!(error.contains("1 items repaired"), "{error}");
}

#[test]
fn invalid_models_are_reported() {
    let library = Library::new();
    let (code, printed, error) = library.run(&["model", "put", "library", &library.file(r#"{"version":2}"#)]);
    assert_eq!((code, printed.as_str()), (1, ""));
    assert!(error.contains("BadValue at '/version': 'version' must be 1."), "{error}");
    let (code, _, error) = library.run(&["model", "get", "nowhere"]);
    assert_eq!(code, 1);
    assert!(error.contains("there is no database 'nowhere' on this server"), "{error}");
    let (code, _, error) = library.run(&["model", "put", "library", "missing.json"]);
    assert_eq!(code, 1);
    assert!(error.contains("reading missing.json"), "{error}");
    let (code, _, error) = library.run(&["model", "get", "library/books"]);
    assert_eq!(code, 1);
    assert!(error.contains("'library/books' is not the name of a database"), "{error}");
    let output = Command::new(PROGRAM)
        .args(["model", "get", "library", "--endpoint", "http://127.0.0.1:9/"])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(5));
}
