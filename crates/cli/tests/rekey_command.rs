//! `quire rekey` against a live server, and what clients that know the old container are answered.

use std::path::Path;

use quire_testkit::http::{Connection, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");

fn exchange(
    live: &LiveServer,
    verb: &str,
    path: &str,
    signed: (&str, &str),
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let mut connection = Connection::open(live.port).expect("connects");
    let request = Signer::well_known().request(verb, path, signed, headers, body.as_bytes());
    let answer = connection.exchange(&request).expect("an answer");
    (answer.status, answer.head.clone(), String::from_utf8_lossy(&answer.body).into_owned())
}

fn rid_of(live: &LiveServer, name: &str) -> String {
    let link = format!("dbs/shop/colls/{name}");
    let (status, _, body) = exchange(live, "GET", &format!("/{link}"), ("colls", &link), "", "");
    assert_eq!(status, 200, "{body}");
    let (_, rest) = body.split_once(r#""_rid":""#).expect("a rid");
    rest.split('"').next().expect("a rid").to_owned()
}

#[test]
fn a_container_is_rekeyed_from_the_command_line() {
    let folder = tempfile::tempdir().expect("a directory");
    let live = LiveServer::quire(Path::new(PROGRAM), &folder.path().join("data"), &[]).expect("starts");
    let create = |path: &str, signed: (&str, &str), body: &str| {
        let (status, _, answer) = exchange(&live, "POST", path, signed, "", body);
        assert_eq!(status, 201, "{path}: {answer}");
    };
    create("/dbs", ("dbs", ""), r#"{"id":"shop"}"#);
    let body = r#"{"id":"orders","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    create("/dbs/shop/colls", ("colls", "dbs/shop"), body);
    let (link, docs) = ("dbs/shop/colls/orders", "/dbs/shop/colls/orders/docs");
    for n in 0..40 {
        create(
            docs,
            ("docs", link),
            &format!(r#"{{"id":"o-{n}","customer":"c-{}","year":{}}}"#, n % 3, n % 2),
        );
    }
    let (code, printed, error) =
        live.run_command(PROGRAM, &["rekey", "shop/orders", "--partition-key", "/customer", "--dry-run"]);
    assert_eq!(code, 0, "{printed}{error}");
    assert!(
        printed.starts_with("40 items under 3 partition keys\nthe largest is [\"c-0\"]: 14 items, 35.0 %\n"),
        "{printed}"
    );
    let old = rid_of(&live, "orders");
    let (code, printed, error) =
        live.run_command(PROGRAM, &["rekey", "shop/orders", "--partition-key", "/customer,/year", "--yes"]);
    assert_eq!(code, 0, "{printed}{error}");
    assert!(printed.contains("orders has the partition key /customer,/year\n"), "{printed}");
    let new = rid_of(&live, "orders");
    assert_ne!(old, new);
    // By name it is the new one, under its key.
    let key = "x-ms-documentdb-partitionkey: [\"c-1\",1]\r\n";
    let (status, _, body) =
        exchange(&live, "GET", &format!("{docs}/o-1"), ("docs", &format!("{link}/docs/o-1")), key, "");
    assert_eq!(status, 200, "{body}");
    // Whoever means the old one by its rid looks the name up again: .NET and Java send the first, all that write by rid get the second.
    let intended = format!("x-ms-cosmos-intended-collection-rid: {old}\r\n{key}");
    let (status, head, _) =
        exchange(&live, "GET", &format!("{docs}/o-1"), ("docs", &format!("{link}/docs/o-1")), &intended, "");
    assert!(status == 400 && head.contains("x-ms-substatus: 1024"), "{status} {head}");
    let database = {
        let (_, _, body) = exchange(&live, "GET", "/dbs/shop", ("dbs", "dbs/shop"), "", "");
        let (_, rest) = body.split_once(r#""_rid":""#).expect("a rid");
        rest.split('"').next().expect("a rid").to_owned()
    };
    let by_rid = format!("/dbs/{database}/colls/{old}/docs");
    let (status, head, _) =
        exchange(&live, "POST", &by_rid, ("docs", &old.to_lowercase()), "", r#"{"id":"late"}"#);
    assert!(status == 410 && head.contains("x-ms-substatus: 1000"), "{status} {head}");
    let (code, printed, error) = live.run_command(PROGRAM, &["refactor", "list", "shop"]);
    assert!(
        code == 0 && printed.contains("r-1  rekey  orders  finished  40 converted, 0 left"),
        "{printed}{error}"
    );
    let (code, printed, error) = live.run_command(PROGRAM, &["rekey", "shop/orders", "--undo"]);
    assert!(code == 0 && printed == "r-1 is undone\n", "{printed}{error}");
    let (status, _, body) = exchange(
        &live,
        "GET",
        &format!("{docs}/o-1"),
        ("docs", &format!("{link}/docs/o-1")),
        "x-ms-documentdb-partitionkey: [\"o-1\"]\r\n",
        "",
    );
    assert_eq!(status, 200, "{body}");
    let (code, printed, _) =
        live.run_command(PROGRAM, &["rekey", "shop/orders", "--partition-key", "/customer", "--yes"]);
    assert_eq!(code, 0, "{printed}");
    let (code, printed, error) = live.run_command(PROGRAM, &["rekey", "shop/orders", "--finish", "--yes"]);
    assert!(code == 0 && printed == "orders~old is deleted\n", "{printed}{error}");
    let (code, _, error) = live.run_command(PROGRAM, &["rekey", "shop/orders", "--undo"]);
    assert!(code == 1 && error.contains("its old container is deleted"), "{error}");
    let (code, _, error) = live.run_command(PROGRAM, &["rekey", "orders", "--partition-key", "/x", "--yes"]);
    assert!(code == 1 && error.contains("DATABASE/CONTAINER"), "{error}");
}
