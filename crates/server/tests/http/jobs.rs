//! Jobs over HTTP.

use crate::client::Client;

const JOBS: &str = "/_quire/jobs";

#[test]
fn a_missing_job_is_not_found() {
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

const DOCS: &str = "/dbs/d/colls/c/docs";

fn with_items(count: usize) -> Client {
    let client = Client::with_container(1);
    for n in 0..count {
        let key = format!(r#"["k{n}"]"#);
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        client.must(201, "POST", DOCS, &headers, &format!(r#"{{"id":"{n}","pk":"k{n}"}}"#));
    }
    client
}

#[test]
fn a_split_is_listed_and_waited_for() {
    let client = with_items(20);
    client.must(200, "POST", "/_quire/dbs/d/colls/c/partitions/0/split", &[], "");
    let job = client.must(200, "GET", "/_quire/jobs/j-1?waitMs=10000", &[], "").body;
    assert_eq!(
        job.replace(|c: char| c.is_ascii_digit(), "0"),
        concat!(
            r#"{"id":"j-0","kind":"split","database":"d","container":"c","state":"done","#,
            r#""created":"0000-00-00T00:00:00.000Z","started":"0000-00-00T00:00:00.000Z","finished":"0000-00-00T00:00:00.000Z","#,
            r#""about":{"partition":"0","by":"request"},"progress":{"done":0,"total":0,"unit":"partitions","rate":0},"#,
            r#""result":{"children":["0","0"]},"error":null}"#
        )
    );
    // A result is only in the job itself.
    let listed = job.replace(r#""result":{"children":["1","2"]},"#, "");
    assert_ne!(listed, job);
    assert_eq!(client.must(200, "GET", JOBS, &[], "").body, format!(r#"{{"jobs":[{listed}]}}"#));
    for control in ["pause", "resume", "cancel", "undo"] {
        let refused = client.must(409, "POST", &format!("{JOBS}/j-1/{control}"), &[], "").body;
        assert!(refused.starts_with(r#"{"code":"JobNotCancellable","message":"#), "{refused}");
    }
    let metrics = client.must(200, "GET", "/_quire/metrics", &[], "").body;
    let line = r#"quire_jobs_finished_total{kind="split",state="done"} 1"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[test]
fn builds_and_deletes_are_listed() {
    let client = with_items(3);
    let key = [("x-ms-documentdb-partitionkey", r#"["k1"]"#)];
    let body = r#"{"id":"x","pk":"k1"}"#;
    client.must(201, "POST", DOCS, &key, body);
    let without = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"indexingMode":"none","automatic":false}}"#;
    client.must(200, "PUT", "/dbs/d/colls/c", &[], without);
    let done = loop {
        let answer = client.send("GET", "/_quire/jobs/j-1?waitMs=10000", &[], "");
        if answer.status == 200 {
            break answer.body;
        }
    };
    assert!(done.contains(r#""kind":"index-build""#) && done.contains(r#""state":"done""#), "{done}");
    // The newest first.
    client.must(200, "POST", "/dbs/d/colls/c/operations/partitionkeydelete", &key, "");
    let deleted = loop {
        let answer = client.send("GET", "/_quire/jobs/j-2?waitMs=10000", &[], "");
        if answer.status == 200 {
            break answer.body;
        }
    };
    assert!(deleted.contains(r#""about":{"partitionKey":["k1"]}"#), "{deleted}");
    let list = client.must(200, "GET", JOBS, &[], "").body;
    assert!(list.find(r#""id":"j-2""#) < list.find(r#""id":"j-1""#), "{list}");
}
