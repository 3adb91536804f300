//! User-defined functions answer the same wherever they run: in the server's process one call after the other, in worker
//! processes many in one message.

use std::path::Path;

use quire_testkit::http::{Connection, Response, Signer};
use quire_testkit::live::LiveServer;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quire");
const ITEM_COUNT: usize = 400;

const FUNCTIONS: &[(&str, &str)] = &[
    ("double", "x => 2 * x"),
    ("kind", "x => typeof x"),
    ("size", "x => JSON.stringify(x === undefined ? null : x).length"),
    ("odd", "x => x % 2 === 1"),
    ("pair", "(a, b) => ({a, b})"),
    ("late", "x => { if (x > 390) throw new Error(77, 'late'); return x }"),
];

const QUERIES: &[&str] = &[
    "SELECT VALUE udf.double(c.n) FROM c",
    "SELECT c.id, udf.double(c.n) AS d, udf.kind(c.gone) AS k FROM c WHERE udf.odd(c.n)",
    "SELECT VALUE udf.double(udf.double(udf.double(c.n))) FROM c WHERE c.n < 50",
    "SELECT TOP 5 VALUE udf.pair(c.n, c.text) FROM c",
    "SELECT VALUE udf.double(x) FROM c JOIN x IN c.list",
    "SELECT c.id, ARRAY(SELECT VALUE udf.double(x) FROM x IN c.list WHERE udf.odd(x)) AS list FROM c",
    "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.list WHERE udf.double(x) = 8)",
    "SELECT VALUE IIF(udf.odd(c.n), udf.size(c.text), udf.kind(c.text)) FROM c",
    "SELECT VALUE udf.double(c.n) FROM c ORDER BY c.n DESC",
    "SELECT VALUE c.id FROM c WHERE udf.odd(c.n) ORDER BY c.text OFFSET 3 LIMIT 11",
    "SELECT VALUE SUM(udf.double(c.n)) FROM c",
    "SELECT udf.odd(c.n) AS odd, COUNT(1) AS count FROM c GROUP BY udf.odd(c.n)",
    "SELECT VALUE udf.double(COUNT(1)) FROM c",
    "SELECT DISTINCT VALUE udf.kind(c.some) FROM c",
    "SELECT VALUE udf.double(21)",
    "SELECT VALUE udf.late(c.n) FROM c WHERE c.n < 300",
    "SELECT VALUE udf.late(c.n) FROM c",
    "SELECT VALUE c.n FROM c WHERE IIF(c.n < 395, true, udf.late(c.n) > 0) AND c.n < 390",
];

#[test]
fn answers_are_the_same_in_worker_processes() {
    let [mut here, mut elsewhere] = ["in-process", "process"].map(Client::start);
    for query in QUERIES {
        for page_size in [1000, 7] {
            let (one, other) = (here.pages(query, page_size), elsewhere.pages(query, page_size));
            assert_eq!(one, other, "{query} in pages of {page_size}");
        }
    }
    // What a function does of itself is done for every row.
    let ids = elsewhere.pages("SELECT DISTINCT VALUE udf.fresh() FROM c", 1000);
    assert_eq!(ids.matches("0.").count(), ITEM_COUNT, "{ids}");
}

struct Client {
    connection: Connection,
    signer: Signer,
    live: LiveServer,
}

impl Client {
    fn start(isolation: &str) -> Client {
        let arguments = ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--log", "error"];
        let live = LiveServer::start(
            Path::new(PROGRAM),
            &[&arguments[..], &["--script-isolation", isolation]].concat(),
        );
        let live = live.expect("starts");
        let connection = Connection::open(live.port).expect("connects");
        let mut client = Client { connection, signer: Signer::well_known(), live };
        client.fill();
        client
    }

    fn fill(&mut self) {
        self.post("dbs", "/dbs", "", "", r#"{"id": "d"}"#);
        let container = r#"{"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}"#;
        self.post("colls", "/dbs/d/colls", "dbs/d", "", container);
        for (name, body) in FUNCTIONS.iter().chain(&[("fresh", "() => 0.1 + Math.random() / 2")]) {
            let body = format!(r#"{{"id": "{name}", "body": "{}"}}"#, body.replace('"', "\\\""));
            self.post("udfs", "/dbs/d/colls/c/udfs", "dbs/d/colls/c", "", &body);
        }
        for number in 0..ITEM_COUNT {
            let some = if number % 3 == 0 { ", \"some\": 1" } else { "" };
            let item = format!(
                r#"{{"id": "i{number}", "pk": "p", "n": {number}, "text": "{}", "list": [{}, {number}, 4]{some}}}"#,
                "x".repeat(number % 13),
                number % 7,
            );
            self.post(
                "docs",
                "/dbs/d/colls/c/docs",
                "dbs/d/colls/c",
                "x-ms-documentdb-partitionkey: [\"p\"]\r\n",
                &item,
            );
        }
    }

    fn post(&mut self, kind: &str, path: &str, link: &str, headers: &str, body: &str) -> Response {
        let request = self.signer.request("POST", path, (kind, link), headers, body.as_bytes());
        let answer = self.connection.exchange(&request).expect("answers");
        assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer
    }

    /// The rows of all pages, or the error of one.
    fn pages(&mut self, query: &str, page_size: u32) -> String {
        let (mut rows, mut continuation) = (String::new(), None::<String>);
        loop {
            let mut headers = format!(
                "x-ms-documentdb-isquery: True\r\ncontent-type: application/query+json\r\n\
                 x-ms-documentdb-partitionkey: [\"p\"]\r\nx-ms-max-item-count: {page_size}\r\n"
            );
            if let Some(continuation) = &continuation {
                headers += &format!("x-ms-continuation: {continuation}\r\n");
            }
            let body = format!(r#"{{"query": "{query}"}}"#);
            let path = ("docs", "dbs/d/colls/c");
            let request = self.signer.request("POST", "/dbs/d/colls/c/docs", path, &headers, body.as_bytes());
            let answer = self.connection.exchange(&request).expect("answers");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if answer.status != 200 {
                let sub_status = answer.header("x-ms-substatus").unwrap_or_default();
                let error = text.split("ActivityId").next().unwrap_or_default();
                return format!("{rows} {} {sub_status} {error}", answer.status);
            }
            let (_, page) = text.split_once("\"Documents\":").expect("rows");
            rows += page.rsplit_once(",\"_count\"").expect("a count").0;
            continuation = answer.header("x-ms-continuation").map(str::to_owned);
            if continuation.is_none() {
                return rows;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.live.child.kill().ok();
    }
}
