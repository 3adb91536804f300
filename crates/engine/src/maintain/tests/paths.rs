//! Every other path by which items change: batches, bulk, transactions over containers, triggers, expiry, deletes by partition
//! key, splits.

use std::time::{Duration, Instant};

use super::*;
use crate::transactions::batch::{BatchOperation, BatchVerb, Bulk, OperationResult};
use crate::transactions::{TransactionOperation, TransactionVerb};

const MODEL: &str = r#"{"version":1,"links":[
    {"name":"l","from":{"container":"books","path":"/author"},"to":{"container":"authors"},"integrity":"enforced"},
    {"name":"s","from":{"container":"books","path":"/shelf"},"to":{"container":"shelves"},"onDelete":"cascade"},
    {"name":"p","from":{"container":"publishers","path":"/boss/id"},"to":{"container":"publishers","partitionKey":[{"path":"/region"}]}}],
    "copies":[{"name":"b","link":"p","fields":{"name":"t.name"}}],
    "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},{"name":"books","link":"s","op":"count","into":"/books"},
      {"name":"staff","link":"p","op":"count","into":"/staff"}],
    "mirrors":[{"name":"m","link":"l","into":"/mirror"}]}"#;

fn bench(partitions: u32) -> Bench {
    Bench::new(partitions, LIBRARY, MODEL)
}

pub fn operation(verb: BatchVerb, body: &str) -> BatchOperation {
    BatchOperation {
        verb,
        body: body.to_owned().into(),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        partition_key: None,
        want_body: true,
    }
}

impl Bench {
    pub fn batch(&self, container: &str, key: &str, operations: &[BatchOperation]) -> Vec<OperationResult> {
        self.try_batch(container, key, operations).unwrap()
    }

    pub fn try_batch(
        &self,
        container: &str,
        key: &str,
        operations: &[BatchOperation],
    ) -> Result<Vec<OperationResult>, EngineError> {
        let key = PartitionKey::from_header(key).unwrap();
        let container = self.container(container, 0);
        self.engine.write_batch(&container, &key, operations, None, &Cancel::default()).result
    }

    pub fn transact(
        &self,
        operations: &[(&str, TransactionVerb, &str, &str)],
    ) -> Vec<Result<Value, EngineError>> {
        self.try_transact(operations).unwrap()
    }

    pub fn try_transact(
        &self,
        operations: &[(&str, TransactionVerb, &str, &str)],
    ) -> Result<Vec<Result<Value, EngineError>>, EngineError> {
        let operation =
            |(container, verb, key, body): &(&str, TransactionVerb, &str, &str)| TransactionOperation {
                container: (*container).to_owned(),
                partition_key: Some(PartitionKey::from_header(key).unwrap()),
                verb: verb.clone(),
                body: (*body).to_owned().into(),
                if_match: None,
                if_none_match: None,
                indexing: IndexingDirective::Default,
                want_body: true,
            };
        let operations = operations.iter().map(operation).collect();
        let answer = self.engine.transact("d", operations, &Cancel::default())?;
        let shown = |body: &[u8]| match body.is_empty() {
            true => Value::Null,
            false => stripped(json(std::str::from_utf8(body).unwrap())),
        };
        Ok(answer.results.into_iter().map(|result| result.map(|done| shown(&done.body))).collect())
    }
}

fn member(item: &Value, name: &str) -> String {
    item.get(name).map_or(String::new(), Value::to_json)
}

#[test]
fn batches_are_maintained_and_name_what_was_refused() {
    for partitions in [1, 5] {
        let bench = bench(partitions);
        let boss = operation(BatchVerb::Create, r#"{"id":"p1","region":"eu","name":"Ann","staff":9}"#);
        let one = operation(BatchVerb::Upsert, r#"{"id":"p2","region":"eu","boss":{"id":"p1"}}"#);
        let renamed =
            operation(BatchVerb::Replace { id: "p1".to_owned() }, r#"{"id":"p1","region":"eu","name":"Bo"}"#);
        let results = bench.batch("publishers", "[\"eu\"]", &[one, boss, renamed]);
        let bodies: Vec<Value> = results
            .into_iter()
            .map(|result| stripped(json(std::str::from_utf8(&result.result.unwrap().body).unwrap())))
            .collect();
        assert_eq!(bodies[0].get("boss").unwrap().to_json(), r#"{"id":"p1","name":"Bo"}"#, "what was stored");
        assert_eq!(member(&bodies[2], "staff"), "1");
        bench.check("a batch");
        // Enforced, in a logical partition with its own author.
        let book = |id: &str, author: &str| format!(r#"{{"id":"{id}","author":"{author}"}}"#);
        let results = bench.batch("books", "[\"b1\"]", &[operation(BatchVerb::Create, &book("b1", "a9"))]);
        let text = refusal(results.into_iter().next().unwrap().result);
        assert!(text.starts_with("400/6101"), "{text}");
        let fine = operation(BatchVerb::Create, r#"{"id":"p3","region":"eu"}"#);
        let bad = operation(BatchVerb::Create, r#"{"id":"p4","region":"eu"}"#);
        let results = bench.batch("publishers", "[\"eu\"]", &[fine, bad]);
        assert!(results.iter().all(|result| result.result.is_ok()));
        bench.check("after all");
        bench.verify("after all");
    }
}

#[test]
fn bulk_writes_are_maintained() {
    let bench = bench(5);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    let create = |at: usize| {
        let author = if at == 7 { "a9" } else { "a1" };
        operation(BatchVerb::Create, &format!(r#"{{"id":"b{at}","author":"{author}"}}"#))
    };
    let bulk = Bulk {
        operations: (0..20).map(create).collect(),
        partition_id: None,
        partition_key: None,
        continue_on_error: true,
        session: None,
        cancel: Cancel::default(),
    };
    let results = bench.engine.bulk(&bench.container("books", 0), bulk).result.unwrap();
    let failed: Vec<usize> = (0..20).filter(|at| results[*at].result.is_err()).collect();
    assert_eq!(failed, [7]);
    assert_eq!(member(&bench.get("authors", "a1").unwrap(), "n"), "19");
    bench.check("a bulk");
    bench.verify("a bulk");
}

#[test]
fn both_ends_come_and_go_in_one_transaction() {
    for partitions in [1, 5] {
        let bench = bench(partitions);
        let create = TransactionVerb::Create;
        let book = ("books", create.clone(), "[\"b1\"]", r#"{"id":"b1","author":"a1"}"#);
        let author = ("authors", create.clone(), "[\"a1\"]", r#"{"id":"a1"}"#);
        let results = bench.transact(&[book.clone(), author.clone()]);
        let author_stored = results.into_iter().map(Result::unwrap).nth(1).unwrap();
        assert_eq!(member(&author_stored, "mirror"), r#"["b1"]"#);
        bench.check("both ends came");
        bench.verify("both ends came");
        let delete = |container: &'static str, id: &str, key: &'static str| {
            (container, TransactionVerb::Delete { id: id.to_owned() }, key, "")
        };
        let results = bench.transact(&[delete("authors", "a1", "[\"a1\"]")]);
        assert!(refusal(results.into_iter().next().unwrap()).starts_with("409/6102"));
        let results =
            bench.transact(&[delete("authors", "a1", "[\"a1\"]"), delete("books", "b1", "[\"b1\"]")]);
        results.into_iter().for_each(|result| drop(result.unwrap()));
        assert_eq!(bench.items().len(), 0);
        // The one that is refused is named.
        let shelf = ("shelves", create.clone(), "[\"s1\"]", r#"{"id":"s1"}"#);
        let mut results = bench.transact(&[shelf, book.clone()]).into_iter();
        assert!(matches!(results.next(), Some(Err(EngineError::FailedDependency))));
        assert!(refusal(results.next().unwrap()).starts_with("400/6101"));
        assert_eq!(bench.items().len(), 0);
    }
}

/// An item that is written twice is shown as each operation left it; the last one as it was stored.
#[test]
fn a_transaction_shows_what_each_operation_left() {
    let bench = bench(5);
    bench.create("authors", r#"{"id":"a1","steps":[]}"#).unwrap();
    let patch = |value: u32| {
        let body = format!(r#"{{"operations":[{{"op":"add","path":"/steps/-","value":{value}}}]}}"#);
        (TransactionVerb::Patch { id: "a1".to_owned() }, body)
    };
    let (first, second) = (patch(1), patch(2));
    let read = TransactionVerb::Read { id: "a1".to_owned() };
    let author = |verb: &TransactionVerb, body: &'static str| ("authors", verb.clone(), "[\"a1\"]", body);
    let operations = [
        ("authors", first.0, "[\"a1\"]", first.1.as_str()),
        author(&read, ""),
        ("authors", second.0, "[\"a1\"]", second.1.as_str()),
        author(&read, ""),
        ("books", TransactionVerb::Create, "[\"b1\"]", r#"{"id":"b1","author":"a1"}"#),
    ];
    let results: Vec<Value> = bench.transact(&operations).into_iter().map(Result::unwrap).collect();
    let steps: Vec<String> = results[..4].iter().map(|item| member(item, "steps")).collect();
    assert_eq!(steps, ["[1]", "[1]", "[1,2]", "[1,2]"]);
    assert_eq!(member(&results[2], "n"), "1", "as it was stored");
    assert_eq!(member(&bench.get("authors", "a1").unwrap(), "n"), "1");
    bench.check("written twice");
}

/// Until no invisible item is left.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_expires_is_taken_away_by_the_sweep() {
    let bench = bench(5);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    bench.create("shelves", r#"{"id":"s1","ttl":50}"#).unwrap();
    bench.create("books", r#"{"id":"b1","author":"a1","ttl":10}"#).unwrap();
    bench.create("books", r#"{"id":"b2","author":"a1","shelf":"s1"}"#).unwrap();
    let count = || member(&bench.get("authors", "a1").unwrap(), "n");
    assert_eq!(count(), "2");
    bench.clock.advance(11);
    wait_until(|| count() == "1");
    // A shelf goes with its books; a maintained write has restarted its clock.
    bench.clock.advance(60);
    wait_until(|| bench.get("books", "b2").is_none());
    assert_eq!(count(), "0");
    bench.check("swept");
    bench.verify("swept");
    // An expired author is no target, and cannot be refused to go.
    bench.create("authors", r#"{"id":"a2","ttl":5}"#).unwrap();
    bench.create("books", r#"{"id":"b3","author":"a2"}"#).unwrap();
    bench.engine.pause_sweep(true);
    bench.clock.advance(6);
    assert!(refusal(bench.create("books", r#"{"id":"b4","author":"a2"}"#)).starts_with("400/6101"));
    // Written again before the sweep, references live on.
    let author = bench.create("authors", r#"{"id":"a2"}"#).unwrap();
    assert_eq!((member(&author, "n"), member(&author, "mirror")), ("1".to_owned(), "[\"b3\"]".to_owned()));
    bench.engine.pause_sweep(false);
    bench.check("written again");
    bench.verify("written again");
}

#[test]
fn deletes_by_partition_key_are_followed_by_the_sweep() {
    let bench = bench(5);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","author":"a1"}"#).unwrap();
    let key = |text: &str| PartitionKey::from_header(text).unwrap();
    let restricted = bench.engine.delete_partition_key(&bench.container("authors", 0), key("[\"a1\"]"));
    assert!(matches!(restricted.result, Err(EngineError::BadRequest { .. })));
    bench.engine.delete_partition_key(&bench.container("books", 0), key("[\"b1\"]")).result.unwrap();
    wait_until(|| member(&bench.get("authors", "a1").unwrap(), "n") == "0");
    bench.check("swept");
    bench.verify("swept");
}

#[test]
fn writes_meet_splits() {
    let bench = bench(1);
    for author in 1..9 {
        bench.create("authors", &format!(r#"{{"id":"a{author}"}}"#)).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for book in 0..60 {
                    let id = format!("b{thread}-{book}");
                    bench.create("books", &format!(r#"{{"id":"{id}","author":"a1"}}"#)).unwrap();
                }
            });
        }
        for name in ["authors", "books", "authors", "books"] {
            std::thread::sleep(Duration::from_millis(30));
            let container = bench.container(name, 0);
            let partition = container.partitions()[0].id.clone();
            // A partition may hold too little to be split.
            let split = bench.engine.split_partition(&container, &partition);
            assert!(matches!(split, Ok(_) | Err(EngineError::CannotSplit { .. })), "{split:?}");
        }
    });
    let partitions = ["authors", "books"].map(|name| bench.container(name, 0).partitions().len());
    assert!(partitions.iter().all(|count| *count > 1), "{partitions:?}");
    assert_eq!(member(&bench.get("authors", "a1").unwrap(), "n"), "240");
    bench.check("split");
    bench.verify("split");
}

#[test]
fn triggers_are_maintained() {
    let bench = bench(5);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    let trigger = r#"{"id":"t","triggerType":"Pre","triggerOperation":"All",
        "body":"function t() { var r = getContext().getRequest(); var b = r.getBody(); b.author = 'a1'; r.setBody(b); }"}"#;
    bench.engine.catalog().create_script("d", "books", ScriptKind::Trigger, &json(trigger)).unwrap();
    let create = |id: &str| {
        let write = request(WriteKind::Create, None, &format!(r#"{{"id":"{id}"}}"#));
        bench.write("books", WriteItem { pre_trigger: Some("t".to_owned()), ..write }).result.map(shown)
    };
    assert_eq!(member(&create("b1").unwrap(), "author"), "\"a1\"");
    assert_eq!(member(&bench.get("authors", "a1").unwrap(), "mirror"), r#"["b1"]"#);
    bench.check("a trigger");
    bench.delete("books", "b1", "[\"b1\"]").unwrap();
    bench.delete("authors", "a1", "[\"a1\"]").unwrap();
    assert!(refusal(create("b2")).starts_with("400/6101"));
    assert_eq!(bench.items().len(), 0);
}
