//! Which verbs a path knows. Who may use them is tried over HTTP in `tests/rights.rs`.

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
