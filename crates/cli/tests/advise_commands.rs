//! `quire profile` and `quire advise` against a live server.

use std::path::Path;
use std::process::{Command, Output};

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::Live;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

struct Shop {
    live: Live,
    _folder: tempfile::TempDir,
}

impl Shop {
    /// 220 orders of 60 customers; the customers of 11 orders are not there.
    fn new() -> Shop {
        let folder = tempfile::tempdir().expect("a directory");
        let live = Live::quire(Path::new(PROGRAM), &folder.path().join("data"), &[]).expect("starts");
        let shop = Shop { live, _folder: folder };
        let mut connection = Connection::open(shop.live.port).expect("connects");
        let mut post = |path: &str, signed: (&str, &str), body: &str| {
            let request = Signer::well_known().request("POST", path, signed, "", body.as_bytes());
            let answer = connection.exchange(&request).expect("an answer");
            assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        };
        post("/dbs", ("dbs", ""), r#"{"id":"shop"}"#);
        for id in ["orders", "customers"] {
            let body =
                format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}}}"#);
            post("/dbs/shop/colls", ("colls", "dbs/shop"), &body);
        }
        for n in 0..60 {
            let link = "dbs/shop/colls/customers";
            post(&format!("/{link}/docs"), ("docs", link), &format!(r#"{{"id":"c-{n}","name":"n {n}"}}"#));
        }
        for n in 0..220 {
            let customer = if n % 20 == 7 { format!("gone-{}", n % 3) } else { format!("c-{}", n % 60) };
            let link = "dbs/shop/colls/orders";
            let body = format!(r#"{{"id":"o-{n}","customerId":"{customer}","total":{n}}}"#);
            post(&format!("/{link}/docs"), ("docs", link), &body);
        }
        shop
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let endpoint = format!("http://127.0.0.1:{}/", self.live.port);
        let output: Output =
            Command::new(PROGRAM).args(arguments).env("QUIRE_ENDPOINT", endpoint).output().expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn a_database_is_profiled_and_advised_on() {
    let shop = Shop::new();
    let (code, said, error) = shop.run(&["profile", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(said.starts_with("container  items  bytes"), "{said}");
    assert!(
        said.contains("\norders     220 ") && said.contains("\norders /customerId  customers /id"),
        "{said}"
    );
    let (_, said, _) = shop.run(&["profile", "shop", "--container", "orders", "--json"]);
    assert!(
        said.starts_with(r#"{"database":"shop","containers":[{"database":"shop","container":"orders""#),
        "{said}"
    );
    assert_eq!(said.matches(r#""partitionKey":{"#).count(), 1);
    let (code, said, error) = shop.run(&["advise", "shop"]);
    assert_eq!(code, 0, "{error}");
    assert!(said.contains("1  warning   dangling-references  orders     /customerId"), "{said}");
    assert!(said.contains("rules had too little to go by"), "{said}");
    assert_eq!(shop.run(&["advise", "shop", "--fail-on", "warning"]).0, 3);
    let (code, said, _) = shop.run(&["advise", "shop", "--fail-on", "serious", "--format", "markdown"]);
    assert_eq!(code, 0);
    assert!(said.starts_with("# Advice for shop\n\n## "), "{said}");
    let (_, said, _) = shop.run(&["advise", "shop", "--json", "--rule", "unbounded-array"]);
    assert!(said.contains(r#""findings":[],"#), "{said}");
    let (_, said, _) = shop.run(&["advise", "shop", "--show", "1"]);
    assert!(said.contains(r#""customerId": "gone-"#), "{said}");
    let (code, said, error) = shop.run(&["advise", "shop", "--dismiss", "1", "--reason", "as it is"]);
    assert!(code == 0 && said.ends_with("is dismissed\n"), "{said}{error}");
    let (code, said, _) = shop.run(&["advise", "shop", "--fail-on", "note"]);
    assert!(code == 0 && said.contains("1  dismissed  dangling-references"), "{said}");
    let (code, said, _) = shop.run(&["advise", "shop", "--reopen", "1"]);
    assert!(code == 0 && said.ends_with("is open\n"), "{said}");
    let (code, _, error) = shop.run(&["advise", "shop", "--show", "9"]);
    assert!(code != 0 && error.contains("no finding '9'"), "{error}");
    let (code, _, error) = shop.run(&["advise", "missing"]);
    assert!(code != 0 && error.contains("no database 'missing'"), "{error}");
}
