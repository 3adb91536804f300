//! Jobs over HTTP.

use crate::client::Client;

const JOBS: &str = "/_quire/jobs";

#[test]
fn what_is_not_there_is_not_found() {
    let client = Client::start(1);
    for id in ["j-1", "1", "j-01", "J-1", "j-99999999999999999999"] {
        for (verb, end) in [
            ("GET", ""),
            ("GET", "?waitMs=60000"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/cancel"),
            ("POST", "/undo"),
        ] {
            let answer = client.must(404, verb, &format!("{JOBS}/{id}{end}"), &[], "");
            assert!(answer.body.starts_with(r#"{"code":"NotFound","message":"#), "{}", answer.body);
        }
    }
    assert_eq!(client.must(200, "GET", JOBS, &[], "").body, r#"{"jobs":[]}"#);
}

#[test]
fn parameters_are_checked() {
    let client = Client::start(1);
    for path in [
        "/_quire/jobs?waitMs=1",
        "/_quire/jobs/j-1?waitMs=60001",
        "/_quire/jobs/j-1?waitMs=-1",
        "/_quire/jobs/j-1?wait=1",
    ] {
        client.must(400, "GET", path, &[], "");
    }
    client.must(400, "POST", "/_quire/jobs/j-1/pause?force=true", &[], "");
    client.must(405, "DELETE", "/_quire/jobs/j-1", &[], "");
}
