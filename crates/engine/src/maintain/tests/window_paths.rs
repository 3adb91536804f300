//! Windows by every path that changes items: batches, bulk, transactions, scripts, expiry, key deletes, links, renames, splits.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::hot::Slow;
use super::paths::{operation, wait_until};
use super::windows::{BLOG, KEY, blog, elements, model, post};
use super::*;
use crate::transactions::TransactionVerb;
use crate::transactions::batch::{BatchVerb, Bulk};

#[test]
fn windows_in_batches_and_bulk() {
    let bench = blog(5, KEY);
    let create = operation(BatchVerb::Create, &post("p", 0..5));
    let add = r#"{"operations":[{"op":"add","path":"/c/-","value":{"id":5}}]}"#;
    let add = operation(BatchVerb::Patch { id: "p".to_owned() }, add);
    let results = bench.batch("posts", r#"["p"]"#, &[create, add]);
    let bodies: Vec<String> = results
        .into_iter()
        .map(|result| stripped(json(std::str::from_utf8(&result.result.unwrap().body).unwrap())).to_json())
        .collect();
    assert_eq!(bodies[1], r#"{"c":[{"id":3},{"id":4},{"id":5}],"id":"p","n":6}"#, "what was stored");
    assert_eq!(bench.shown("p"), "3 4 5 | 0: 0 1 2 = 6");
    let refused = operation(BatchVerb::Delete { id: "w:p:00000000".to_owned() }, "");
    let results = bench.batch("pages", r#"["p"]"#, &[refused]);
    assert!(refusal(results.into_iter().next().unwrap().result).starts_with("403/6108"));
    let keyed = |mut own: crate::transactions::batch::BatchOperation, key: &str| {
        own.partition_key = Some(PartitionKey::from_header(key).unwrap());
        own
    };
    let mut operations: Vec<_> = (0..20)
        .map(|id| {
            let (body, key) = (post(&format!("b{id}"), 0..id), format!(r#"["b{id}"]"#));
            keyed(operation(BatchVerb::Upsert, &body), &key)
        })
        .collect();
    operations.push(keyed(operation(BatchVerb::Delete { id: "p".to_owned() }, ""), r#"["p"]"#));
    let bulk = Bulk {
        operations,
        partition_key: None,
        partition_id: None,
        continue_on_error: true,
        session: None,
        cancel: Cancel::default(),
    };
    let results = bench.engine.bulk(&bench.container("posts", 0), bulk).result.unwrap();
    assert!(results.iter().all(|result| result.result.is_ok()));
    assert_eq!((bench.shown("p").as_str(), bench.shown("b4").as_str()), ("none | ", "1 2 3 | 0: 0 = 4"));
    bench.check("after all");
    bench.verify("after all");
}

#[test]
fn an_item_and_its_pages_in_one_transaction() {
    let bench = blog(5, KEY);
    bench.create("posts", &post("p", 0..14)).unwrap();
    let page = bench.read_page("p", 0).unwrap().to_json().replace(r#"{"id":4},"#, "");
    let body = post("p", [13]);
    let replace = |id: &str| TransactionVerb::Replace { id: id.to_owned() };
    let results = bench.transact(&[
        ("posts", replace("p"), r#"["p"]"#, &body),
        ("pages", replace("w:p:00000000"), r#"["p"]"#, &page),
    ]);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(bench.shown("p"), "9 10 13 | 0: 0 1 2 3 5 6 7 8 | 1:  = 11");
    bench.check("both");
    let delete = |id: &str| TransactionVerb::Delete { id: id.to_owned() };
    let results = bench.transact(&[
        ("posts", delete("p"), r#"["p"]"#, ""),
        ("pages", delete("w:p:00000000"), r#"["p"]"#, ""),
    ]);
    assert!(results.iter().any(|result| matches!(result, Err(EngineError::RefusedByModel(_)))));
    let results = bench.transact(&[
        ("posts", delete("p"), r#"["p"]"#, ""),
        ("posts", TransactionVerb::Create, r#"["p"]"#, &post("p", 0..4)),
    ]);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(bench.shown("p"), "1 2 3 | 0: 0 = 4");
    bench.check("deleted and created");
    bench.verify("deleted and created");
}

#[test]
fn windows_of_what_scripts_write() {
    let bench = blog(5, KEY);
    let script = r#"{"id":"s","body":"function s(ids) { var c = getContext().getCollection();
        c.createDocument(c.getSelfLink(), {id: 'p', c: ids.map(function (id) { return {id: id}; })}); }"}"#;
    bench.engine.catalog().create_script("d", "posts", ScriptKind::StoredProcedure, &json(script)).unwrap();
    let trigger = r#"{"id":"t","triggerType":"Pre","triggerOperation":"All",
        "body":"function t() { var r = getContext().getRequest(); var b = r.getBody(); b.c.push({id: 99}); r.setBody(b); }"}"#;
    bench.engine.catalog().create_script("d", "posts", ScriptKind::Trigger, &json(trigger)).unwrap();
    let write = request(WriteKind::Upsert, None, &post("q", 0..4));
    bench.write("posts", WriteItem { pre_trigger: Some("t".to_owned()), ..write }).result.unwrap();
    assert_eq!(bench.shown("q"), "2 3 99 | 0: 0 1 = 5");
    let call = ExecuteProcedure {
        id: "s".to_owned(),
        partition_key: PartitionKey::from_header(r#"["p"]"#).unwrap(),
        parameters: "[[1,2,3,4,5]]".into(),
        logging: false,
        headers: Vec::new(),
        charge_max: None,
        cancel: Cancel::default(),
    };
    bench.engine.execute_procedure(&bench.container("posts", 0), call).result.unwrap();
    assert_eq!(bench.shown("p"), "3 4 5 | 0: 1 2 = 5");
    bench.check("scripts");
}

#[test]
fn pages_of_what_expires_or_is_deleted_by_key_go_with_it() {
    let bench = blog(5, KEY);
    let expiring =
        |ids: std::ops::Range<usize>| post("p", ids).replace(r#""id":"p""#, r#""id":"p","ttl":10"#);
    bench.create("posts", &expiring(0..30)).unwrap();
    bench.clock.advance(11);
    wait_until(|| bench.shown("p") == "none | ");
    bench.check("swept");
    // Written again before the sweep, it starts again.
    bench.create("posts", &expiring(0..30)).unwrap();
    bench.engine.pause_sweep(true);
    bench.clock.advance(11);
    bench.create("posts", &post("p", 50..55)).unwrap();
    assert_eq!(bench.shown("p"), "52 53 54 | 0: 50 51 = 5");
    bench.check("written again");
    bench.engine.pause_sweep(false);
    let key = PartitionKey::from_header(r#"["p"]"#).unwrap();
    bench.engine.delete_partition_key(&bench.container("posts", 0), key).result.unwrap();
    wait_until(|| bench.shown("p") == "none | ");
    bench.check("deleted by key");
    bench.verify("deleted by key");
}

#[test]
fn the_count_follows_pages_that_expire() {
    let bench = blog(5, KEY);
    bench.create("posts", &post("p", 0..30)).unwrap();
    let definition =
        r#"{"id":"pages","defaultTtl":10,"partitionKey":{"paths":["/postId"],"kind":"Hash","version":2}}"#;
    bench.engine.pause_sweep(true);
    bench
        .engine
        .catalog()
        .replace_container("d", "pages", &json(definition), &Precondition::default())
        .unwrap();
    bench.clock.advance(11);
    assert_eq!(bench.shown("p"), "27 28 29 |  = 30");
    bench.add_element("p", 30);
    assert_eq!(bench.shown("p"), "28 29 30 | 0: 27 = 21", "the page of that number is there no more");
    bench.engine.pause_sweep(false);
    wait_until(|| bench.shown("p") == "28 29 30 | 0: 27 = 4");
    bench.check("swept");
    bench.verify("swept");
}

const TENANTS: &[(&str, &[&str])] =
    &[("tenants", &["/id"]), ("posts", &["/tenant"]), ("pages", &["/tenant", "/postId"])];

fn tenants() -> Bench {
    let links = r#"{"version":1,"links":[
        {"name":"l","from":{"container":"posts","path":"/tenant"},"to":{"container":"tenants"},"onDelete":"cascade"},
        {"name":"q","from":{"container":"pages","path":"/tenant"},"to":{"container":"tenants"}}],
        "rollups":[{"name":"pages","link":"q","op":"count","into":"/pages"}],"#;
    Bench::new(5, TENANTS, &model(KEY).replacen(r#"{"version":1,"#, links, 1))
}

#[test]
fn pages_are_items_of_the_model_and_go_by_links() {
    let bench = tenants();
    bench.create("tenants", r#"{"id":"t"}"#).unwrap();
    let pages = || bench.get("tenants", "t").unwrap().get("pages").unwrap().to_json();
    let post = |id: &str, count: usize| format!(r#"{{"id":"{id}","tenant":"t","c":{}}}"#, elements(0..count));
    bench.create("posts", &post("p", 25)).unwrap();
    bench.create("posts", &post("q", 5)).unwrap();
    assert_eq!(pages(), "4");
    bench.check("pages are counted");
    bench.delete("posts", "q", r#"["t"]"#).unwrap();
    assert_eq!(pages(), "3");
    bench.delete("tenants", "t", r#"["t"]"#).unwrap();
    assert_eq!(bench.items().len(), 0);
    bench.verify("cascaded");
}

#[test]
fn pages_move_with_an_item_that_gets_another_id() {
    let bench = tenants();
    let post = |id: &str, ids: std::ops::Range<usize>| {
        format!(r#"{{"id":"{id}","tenant":"t","c":{}}}"#, elements(ids))
    };
    bench.create("posts", &post("p", 0..25)).unwrap();
    let renamed = bench.replace("posts", "p", &post("r", 22..26)).unwrap();
    assert_eq!(renamed.get("n"), Some(&26.into()));
    let pages = "0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 22";
    assert_eq!(bench.shown("r"), format!("23 24 25 | {pages} = 26"));
    assert_eq!(bench.shown("p"), "none | ");
    bench.check("renamed");
    bench.verify("renamed");
}

#[test]
fn clients_who_add_at_once_lose_nothing() {
    let bench = blog(1, KEY);
    bench.create("posts", r#"{"id":"p","c":[]}"#).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for element in 0..60 {
                    bench.add_element("p", thread * 1_000 + element);
                }
            });
        }
        for name in ["pages", "posts", "pages"] {
            std::thread::sleep(Duration::from_millis(40));
            let container = bench.container(name, 0);
            let partition = container.partitions()[0].id.clone();
            let split = bench.engine.split_partition(&container, &partition);
            assert!(matches!(split, Ok(_) | Err(EngineError::CannotSplit { .. })), "{split:?}");
        }
    });
    assert_eq!(bench.get("posts", "p").unwrap().get("n"), Some(&240.into()));
    let mut all: Vec<i64> = Vec::new();
    for page in 0..24 {
        let page = bench.read_page("p", page);
        let elements = page.as_ref().and_then(|page| page.get("all")).and_then(Value::as_array);
        let ids =
            elements.unwrap_or_default().iter().map(|element| element.get("id").unwrap().as_i64().unwrap());
        all.extend(ids);
    }
    let post = bench.get("posts", "p").unwrap();
    let window = post.get("c").and_then(Value::as_array).unwrap();
    all.extend(window.iter().map(|element| element.get("id").unwrap().as_i64().unwrap()));
    assert_eq!(all.len(), 240, "every element once");
    for thread in 0..4 {
        let own: Vec<i64> = all.iter().copied().filter(|id| id / 1_000 == thread).collect();
        let expected: Vec<i64> = (0..60).map(|element| thread * 1_000 + element).collect();
        assert_eq!(own, expected, "in order of arrival");
    }
    bench.check("after all");
    bench.verify("after all");
}

#[test]
fn an_item_with_very_many_pages_is_not_deleted_at_once_but_expires() {
    let bench = blog(1, "");
    let numbers = |count: usize| vec!["1"; count].join(",");
    bench.create("posts", r#"{"id":"p","ttl":1000}"#).unwrap();
    for round in 0..11 {
        let body = format!(r#"{{"id":"p","ttl":1000,"c":[{}]}}"#, numbers(10_000));
        bench.upsert("posts", &body).unwrap();
        if round == 8 {
            // As many as one commit has.
            bench.delete("posts", "p", r#"["p"]"#).unwrap();
            assert_eq!(bench.items().len(), 0);
            (0..9).for_each(|_| _ = bench.upsert("posts", &body).unwrap());
        }
    }
    let post = bench.get("posts", "p").unwrap();
    assert!(post.get("n").unwrap().as_i64().unwrap() > 100_000);
    let refused = refusal(bench.delete("posts", "p", r#"["p"]"#));
    assert!(refused.starts_with("413/6109 TooMuchAtOnce: this request would change 10,9"), "{refused}");
    bench.clock.advance(1001);
    wait_until(|| bench.container("pages", 0).usage().0 == 0 && bench.items().is_empty());
    bench.verify("swept");
}

/// Some add elements to an item, others remove them from its pages: a write of a page locks its item.
#[test]
fn an_item_and_its_pages_are_changed_at_once() {
    let storage = Slow { inner: MemoryStorage::new(), commits: AtomicU64::new(0) };
    let bench = Bench::on(Arc::new(storage), 5, BLOG, &model(KEY));
    bench.create("posts", &post("p", 0..30)).unwrap();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (bench, taken) = (&bench, &taken);
            scope.spawn(move || (0..30).for_each(|at| _ = bench.add_element("p", 1_000 * thread + 100 + at)));
            scope.spawn(move || {
                for at in 0..30 {
                    let id = format!("w:p:{:08}", at % 4);
                    let take = r#"{"operations":[{"op":"remove","path":"/all/0"}]}"#;
                    taken.fetch_add(
                        u64::from(bench.patch("pages", &id, r#"["p"]"#, take).is_ok()),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    let count = bench.get("posts", "p").unwrap().get("n").and_then(Value::as_i64).unwrap();
    let taken = taken.into_inner() as i64;
    assert_eq!(count, 30 + 90 - taken);
    assert!(taken > 20, "{taken} elements were taken");
    bench.check("after all");
    bench.verify("after all");
}
