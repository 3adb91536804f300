//! Which verbs a path knows, and that `tests/rights.rs`, which tries over HTTP who may use them, leaves none out.

use expect_test::{Expect, expect};

use super::*;
use crate::admin::AdminRoute;

const VERBS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// One line per path.
fn check<P: AsRef<str>>(paths: &[P], knows: impl Fn(&Method, &str) -> bool, expect: Expect) {
    let line = |path: &P| {
        let verbs = VERBS.iter().filter(|verb| knows(verb, path.as_ref())).map(Method::as_str);
        let verbs = verbs.collect::<Vec<_>>();
        let verbs = if verbs.is_empty() { "none".to_owned() } else { verbs.join(" ") };
        format!("{}: {verbs}\n", path.as_ref())
    };
    expect.assert_eq(&paths.iter().map(line).collect::<String>());
}

#[test]
fn verbs_of_the_protocol() {
    check(
        &[
            "/",
            "/dbs",
            "/dbs/d",
            "/dbs/d/colls/c",
            "/dbs/d/colls/c/docs/i",
            "/dbs/d/colls/c/operations/partitionkeydelete",
            "/dbs/d/colls/c/sprocs/s",
            "/dbs/d/colls/c/udfs/u",
            "/dbs/d/clientencryptionkeys/k",
            "/offers/x",
            "/addresses",
            "/media/x",
        ],
        |verb, path| route(verb, path).is_ok(),
        expect![[r#"
            /: GET HEAD
            /dbs: GET HEAD POST
            /dbs/d: GET HEAD DELETE
            /dbs/d/colls/c: GET HEAD PUT DELETE
            /dbs/d/colls/c/docs/i: GET HEAD PUT PATCH DELETE
            /dbs/d/colls/c/operations/partitionkeydelete: POST
            /dbs/d/colls/c/sprocs/s: GET HEAD POST PUT DELETE
            /dbs/d/colls/c/udfs/u: GET HEAD PUT DELETE
            /dbs/d/clientencryptionkeys/k: GET HEAD PUT
            /offers/x: GET HEAD PUT
            /addresses: GET HEAD
            /media/x: none
        "#]],
    );
}

#[test]
fn verbs_of_the_server() {
    let find = |verb: &Method, path: &str| {
        let segments: Vec<&str> = path.split('/').collect();
        find_admin(AdminRoute::Quire(&segments), verb)
    };
    check(
        &[
            "live",
            "metrics",
            "faults",
            "faults/1",
            "jobs",
            "jobs/j-1",
            "jobs/j-1/pause",
            "jobs/j-1/stop",
            "dbs/d/transaction",
            "dbs/d/model",
            "dbs/d/model/status",
            "dbs/d/model/check",
            "dbs/d/model/repair",
            "dbs/d/profile",
            "dbs/d/advice",
            "dbs/d/advice/a-1",
            "dbs/d/advice/a-1/dismiss",
            "dbs/d/refactorings",
            "dbs/d/refactorings/r-1",
            "dbs/d/refactorings/r-1/finish",
            "dbs/d/colls/c/profile",
            "dbs/d/colls/c/view",
            "dbs/d/colls/c",
        ],
        |verb, path| find(verb, path).is_ok(),
        expect![[r#"
            live: GET HEAD
            metrics: GET HEAD
            faults: GET HEAD POST DELETE
            faults/1: DELETE
            jobs: GET HEAD
            jobs/j-1: GET HEAD
            jobs/j-1/pause: POST
            jobs/j-1/stop: none
            dbs/d/transaction: POST
            dbs/d/model: GET HEAD PUT DELETE
            dbs/d/model/status: GET HEAD
            dbs/d/model/check: POST
            dbs/d/model/repair: POST
            dbs/d/profile: GET HEAD POST
            dbs/d/advice: GET HEAD POST
            dbs/d/advice/a-1: none
            dbs/d/advice/a-1/dismiss: POST
            dbs/d/refactorings: GET HEAD POST
            dbs/d/refactorings/r-1: GET HEAD
            dbs/d/refactorings/r-1/finish: POST
            dbs/d/colls/c/profile: GET HEAD
            dbs/d/colls/c/view: GET HEAD
            dbs/d/colls/c: none
        "#]],
    );
    assert_eq!(find(&Method::PUT, "live"), Err(RouteError::MethodNotAllowed));
    assert_eq!(find(&Method::GET, "lives"), Err(RouteError::InvalidUrl));
}

/// The table of `tests/rights.rs`.
fn rows_of_rights() -> Vec<Vec<&'static str>> {
    let text = include_str!("../../tests/rights.rs");
    let (_, table) = text.split_once("const OPERATIONS: &str = \"").expect("a table");
    let (table, _) = table.split_once("\";").expect("its end");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| !row.is_empty())
        .collect()
}

fn flags_named(set: &str) -> Flags {
    let flag = |name: &str| match name {
        "-" => Flags::NONE,
        "query" => Flags::QUERY,
        "plan" => Flags::PLAN,
        "batch" => Flags::BATCH,
        "upsert" => Flags::UPSERT,
        "feed" => Flags::FEED,
        "triggers" => Flags::TRIGGERS,
        other => panic!("{other} is no flag"),
    };
    Flags(set.split('+').map(flag).fold(0, |all, flag| all | flag.0))
}

#[test]
fn rights_are_tried_for_every_operation() {
    let (mut tried, mut tried_admin) = (Vec::new(), Vec::new());
    for row in rows_of_rights() {
        let [path, verb, sets @ .., _access] = &row[..] else { panic!("{row:?}") };
        if *verb == "NONE" {
            continue;
        }
        let verb = Method::from_bytes(verb.as_bytes()).expect("a verb");
        if path.starts_with("/_") {
            let segments: Vec<&str> = path.trim_start_matches("/_quire/").split('/').collect();
            let route = match *path {
                "/_explorer/" => AdminRoute::StartPage,
                "/_explorer/emulator.pem" => AdminRoute::Authority,
                "/_quire/echo" => AdminRoute::Endpoint("/_quire/echo"),
                _ => AdminRoute::Quire(&segments),
            };
            tried_admin.push(find_admin(route, &verb).expect(path).name);
            continue;
        }
        let path = path.replace('*', "c");
        let kind = route(&verb, &path).expect(&path).kind;
        let found = sets.iter().map(|set| find(&kind, &verb, flags_named(set)).expect(&path).name);
        tried.extend(found);
    }
    let left_out: Vec<_> = Name::ALL.iter().filter(|name| !tried.contains(name)).collect();
    assert!(left_out.is_empty(), "not in tests/rights.rs: {left_out:?}");
    let left_out: Vec<_> = AdminName::ALL.iter().filter(|name| !tried_admin.contains(name)).collect();
    assert!(left_out.is_empty(), "not in tests/rights.rs: {left_out:?}");
}
