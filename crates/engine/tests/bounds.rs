//! Queries stay within their memory, give it back, and end when nobody waits for them.

mod support;

use std::sync::Arc;

use bytes::Bytes;
use quire_engine::{
    BatchOperation, BatchVerb, Bulk, Cancel, Engine, EngineError, IndexingDirective, Options, Page,
    PageRequest, Parameters, Precondition, QueryMemoryLimits, Scope, SqlError, WriteItem, WriteKind,
};
use quire_storage::memory::MemoryStorage;
use quire_value::Value;
use support::ends_at_every_check;
use support::fixture::{FakeClock, Fixture, json, options, pk, request};

const KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

fn with_memory(total_bytes: usize, query_bytes: usize) -> Fixture {
    with_memory_and(total_bytes, query_bytes, "")
}

fn with_memory_and(total_bytes: usize, query_bytes: usize, members: &str) -> Fixture {
    let clock = FakeClock::new();
    let options =
        Options { query_memory: QueryMemoryLimits { total_bytes, query_bytes }, ..options(&clock, 1) };
    let storage = Arc::new(MemoryStorage::new());
    let engine = Engine::open(storage.clone(), options).expect("opens");
    engine.catalog().create_database(&json(r#"{"id":"db"}"#), None).expect("database");
    let definition = json(&format!(r#"{{"id":"c","partitionKey":{KEY}{members}}}"#));
    let container = engine.catalog().create_container("db", &definition, None).expect("container");
    Fixture { engine, container, clock, storage }
}

fn figure(fixture: &Fixture, name: &str) -> u64 {
    let figures = fixture.engine.statistics();
    figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).expect(name)
}

fn query(fixture: &Fixture, text: &str, parameters: &Parameters) -> Result<Page, EngineError> {
    let request = request(Scope::default(), -1, None);
    fixture.engine.query_items(&fixture.container, text, parameters, &request).result
}

fn filled(fixture: &Fixture, items: usize, text_bytes: usize) {
    for n in 0..items {
        let text = "x".repeat(text_bytes);
        fixture
            .create(&format!(r#"{{"id":"{n}","pk":"{}","n":{n},"s":"{n} {text}"}}"#, n % 5))
            .expect("created");
    }
}

#[test]
fn a_query_beyond_its_share_is_refused_and_gives_all_back() {
    let fixture = with_memory(64 << 20, 16 << 20);
    filled(&fixture, 100, 200_000);
    let long = Value::from("a".repeat(1 << 20));
    let parameters = Parameters(vec![("@a".to_owned(), long.clone()), ("@b".to_owned(), long)]);
    for text in [
        "SELECT VALUE LENGTH(REPLACE(@a, 'a', @b))",
        "SELECT VALUE LENGTH(REPLACE(@a, 'a', c.s)) FROM c",
        "SELECT VALUE StringJoin(StringSplit(c.s, 'x'), @b) FROM c",
        "SELECT c.s, COUNT(1) AS n FROM c GROUP BY c.s",
        "SELECT VALUE MAKELIST([c.s, c.s, c.s]) FROM c",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.s FROM c) AS x",
        "SELECT c.n, MIN(CONCAT(c.s, @a)) AS m FROM c GROUP BY c.n",
        "SELECT VALUE c.s FROM c ORDER BY VectorDistance([c.n], [1])",
    ] {
        let refused = query(&fixture, text, &parameters);
        let is_memory = matches!(refused, Err(EngineError::Sql(SqlError::QueryMemory { .. })));
        assert!(is_memory, "{text}: {:?}", refused.err());
        assert_eq!(figure(&fixture, "query_memory_bytes"), 0, "{text}");
    }
    assert_eq!(figure(&fixture, "query_memory_refused_queries"), 8);
    let message =
        query(&fixture, "SELECT VALUE REPLACE(@a, 'a', @b)", &parameters).err().map(|e| e.to_string());
    assert!(message.expect("refused").contains("16 MiB"));
}

#[test]
fn ordinary_queries_fit_into_little() {
    let fixture = with_memory(64 << 20, 16 << 20);
    filled(&fixture, 60, 200_000);
    for text in [
        "SELECT * FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE CONTAINS(UPPER(c.s), 'X')",
        "SELECT VALUE LENGTH(CONCAT(c.s, c.s)) FROM c",
        "SELECT * FROM c ORDER BY c.n",
        "SELECT c.pk, MAX(c.n) AS n FROM c GROUP BY c.pk",
        "SELECT DISTINCT VALUE c.pk FROM c",
        "SELECT VALUE ARRAY_LENGTH(StringSplit(c.s, 'q')) FROM c WHERE c.n IN (1, 2, 3)",
    ] {
        let rows = fixture.all(Some(text), &Scope::default(), -1);
        assert!(!rows.is_empty(), "{text}");
        assert_eq!(figure(&fixture, "query_memory_bytes"), 0, "{text}");
    }
}

/// What one query holds, an answer that is still being sent included, is not there for the next.
#[test]
fn all_queries_together_have_one_memory() {
    let fixture = with_memory(10 << 20, 9 << 20);
    filled(&fixture, 30, 200_000);
    let text = "SELECT VALUE c.s FROM c";
    let first = query(&fixture, text, &Parameters::default()).expect("fits");
    assert!(figure(&fixture, "query_memory_bytes") >= first.rows.len() as u64);
    let refused = query(&fixture, text, &Parameters::default());
    assert!(matches!(refused, Err(EngineError::Sql(SqlError::ServerMemory { .. }))), "{:?}", refused.err());
    assert_eq!(figure(&fixture, "query_memory_full"), 1);
    drop(first);
    assert_eq!(figure(&fixture, "query_memory_bytes"), 0);
    query(&fixture, text, &Parameters::default()).expect("there is room again");
}

/// The child ids of rows whose values are longer than an index stores are counted before they are sorted.
#[test]
fn many_long_values_that_begin_alike_need_memory() {
    let text = "SELECT TOP 1 VALUE c.n FROM c ORDER BY c.s";
    for (items, fits) in [(1_000, true), (30_000, false)] {
        let fixture = with_memory(64 << 20, 200 << 10);
        for n in 0..items {
            let long = "x".repeat(300);
            fixture.create(&format!(r#"{{"id":"{n}","pk":"1","n":{n},"s":"{long}{n}"}}"#)).expect("created");
        }
        let answered = query(&fixture, text, &Parameters::default());
        let is_memory = matches!(answered, Err(EngineError::Sql(SqlError::QueryMemory { .. })));
        assert_eq!(
            (answered.is_ok(), is_memory),
            (fits, !fits),
            "{items} items: {:?}",
            answered.as_ref().err()
        );
        drop(answered);
        assert_eq!(figure(&fixture, "query_memory_bytes"), 0);
    }
}

/// Every way to find and to make rows checks again and again whether the client is still there, also those that read no item.
#[test]
fn queries_end_when_their_client_has_left() {
    let fixture = Fixture::with_key(KEY, "", 1);
    for n in 0..5_000 {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"1","n":{n},"k":{}}}"#, n % 7)).expect("created");
    }
    let many: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    // Compiling, planning and beginning a page are a few checks; what is asserted beyond comes from the loops over rows.
    for (least, text) in [
        (4, "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0"),
        (4, "SELECT VALUE SUM(c.n) FROM c WHERE c.n > 5"),
        (4, "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k"),
        (4, "SELECT DISTINCT VALUE c.k FROM c"),
        (4, "SELECT VALUE c.n FROM c ORDER BY c.n"),
        (4, "SELECT * FROM c ORDER BY c.n"),
        (4, "SELECT * FROM c WHERE c.k != 3"),
        (8, "SELECT VALUE c.n FROM c WHERE c.n * 2 = 9"),
        (4, "SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 4500 LIMIT 10"),
        (20, "SELECT VALUE RegexMatch('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '(a*)*b|a{1,90}x') FROM c"),
        (100, &format!("SELECT VALUE c.n FROM c WHERE c.n IN ({})", many.join(","))),
        (100, &format!("SELECT VALUE c.n FROM c WHERE c.n = {}", many.join(" OR c.k = "))),
    ] {
        ends_at_every_check(&text[..60.min(text.len())], least, |cancel| {
            let request = PageRequest { cancel, ..request(Scope::default(), -1, None) };
            fixture.engine.query_items(&fixture.container, text, &Parameters::default(), &request).result
        });
    }
    ends_at_every_check("a list of items", 8, |cancel| {
        let request = PageRequest { cancel, ..request(Scope::default(), -1, None) };
        fixture.engine.list_items(&fixture.container, &request).result
    });
}

/// A computed property that cannot be evaluated for an item leaves it without one: the write and the index stay whole.
#[test]
fn computed_properties_that_fail_leave_their_item() {
    let members = r#""computedProperties":[{"name":"f","query":"SELECT VALUE DateTimeFormat('2024-01-01', c.f) FROM c"},
        {"name":"r","query":"SELECT VALUE REPLACE(c.f, 'y', c.f) FROM c"}],
        "indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/f/?"},{"path":"/r/?"}]}"#;
    let fixture = Fixture::with_key(KEY, members, 1);
    fixture.create(&format!(r#"{{"id":"1","pk":"1","f":"{}"}}"#, "y".repeat(70_000))).expect("created");
    fixture.create(r#"{"id":"2","pk":"1","f":"yyyy"}"#).expect("created");
    let found = fixture.all(Some("SELECT VALUE c.id FROM c WHERE c.f = '2024'"), &Scope::default(), -1);
    assert_eq!(found, [Value::from("2")]);
    let long = fixture.all(
        Some("SELECT VALUE LENGTH(c.f) FROM c WHERE STARTSWITH(c.f, '0')"),
        &Scope::default(),
        -1,
    );
    assert_eq!(long, [Value::from(70_000)]);
}

/// Members of a container with twenty indexed computed properties.
fn twenty_computed(expression: &str) -> String {
    let each = |template: &dyn Fn(usize) -> String| (0..20).map(template).collect::<Vec<_>>().join(",");
    let computed = each(&|n| format!(r#"{{"name":"p{n}","query":"SELECT VALUE {expression} FROM c"}}"#));
    let paths = each(&|n| format!(r#"{{"path":"/p{n}/?"}}"#));
    format!(
        r#","computedProperties":[{computed}],"indexingPolicy":{{"includedPaths":[{{"path":"/*"}},{paths}]}}"#
    )
}

/// An item of 17 KB, of which an expression makes 30 MB.
fn growing(id: &str, letters: usize) -> String {
    format!(r#"{{"id":"{id}","pk":"1","a":"{}","b":"{}"}}"#, "a".repeat(2_000), "b".repeat(letters))
}

/// Each value takes as many steps as it may, and all of them together more than a write may.
#[test]
fn a_write_has_one_meter_for_all_that_it_evaluates() {
    let heavy = ["LENGTH(REPLACE(c.a, 'a', c.b))"; 8].join(" + ");
    let fixture = with_memory_and(1 << 30, 128 << 20, &twenty_computed(&heavy));
    let refused = fixture.create(&growing("1", 15_000));
    let Err(EngineError::BadRequest { message }) = refused else { panic!("{:?}", refused.err()) };
    assert!(message.contains("evaluation steps that one write may take"), "{message}");
    assert!(matches!(fixture.read("1", r#"["1"]"#), Err(EngineError::ItemNotFound { .. })));
    fixture.create(&growing("1", 100)).expect("less to evaluate");
    let found = "SELECT VALUE c.id FROM c WHERE c.p19 = 1600000";
    assert_eq!(fixture.all(Some(found), &Scope::default(), -1), [Value::from("1")]);
    let refused = fixture.replace("1", &growing("1", 15_000));
    assert!(matches!(refused, Err(EngineError::BadRequest { .. })));
    assert_eq!(fixture.all(Some(found), &Scope::default(), -1), [Value::from("1")], "it is as it was");
    assert_eq!(figure(&fixture, "query_memory_bytes"), 0);
}

/// Whatever the properties are that a container got later: an item can be deleted.
#[test]
fn an_item_that_is_too_much_for_a_write_can_be_deleted() {
    let mut fixture = with_memory(1 << 30, 128 << 20);
    fixture.create(&growing("1", 15_000)).expect("no computed properties yet");
    let heavy = ["LENGTH(REPLACE(c.a, 'a', c.b))"; 8].join(" + ");
    let definition = format!(r#"{{"id":"c","partitionKey":{KEY}{}}}"#, twenty_computed(&heavy));
    let catalog = fixture.engine.catalog();
    let replaced = catalog.replace_container("db", "c", &json(&definition), &Precondition::default());
    fixture.container = replaced.expect("replaced");
    let started = std::time::Instant::now();
    while fixture.container.index_progress() < 100 {
        assert!(started.elapsed() < std::time::Duration::from_secs(120), "the index is not built");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let refused = fixture.replace("1", &growing("1", 14_999));
    assert!(matches!(refused, Err(EngineError::BadRequest { .. })), "{:?}", refused.err());
    fixture.delete("1", r#"["1"]"#).expect("deleted");
    // Nothing but the names of the indexes.
    assert_eq!(fixture.rows(3, &[]), fixture.rows(3, &[0; 8]));
}

/// Patches of items with a list, on a condition that compares each number with each.
fn patches(items: usize) -> Vec<BatchOperation> {
    let condition = "FROM c WHERE EXISTS(SELECT VALUE 1 FROM a IN c.l JOIN b IN c.l WHERE a + b < 0)";
    let body =
        format!(r#"{{"condition":"{condition}","operations":[{{"op":"set","path":"/z","value":1}}]}}"#);
    let patch = |n: usize| BatchOperation {
        verb: BatchVerb::Patch { id: n.to_string() },
        partition_key: Some(pk(r#"["1"]"#)),
        body: Bytes::from(body.clone()),
        if_match: None,
        if_none_match: None,
        indexing: IndexingDirective::Default,
        want_body: false,
    };
    (0..items).map(patch).collect()
}

fn with_lists(items: usize, numbers: usize) -> Fixture {
    let fixture = with_memory(1 << 30, 128 << 20);
    let list = (0..numbers).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    for n in 0..items {
        fixture.create(&format!(r#"{{"id":"{n}","pk":"1","l":[{list}]}}"#)).expect("created");
    }
    fixture
}

fn bulk(fixture: &Fixture, operations: Vec<BatchOperation>, cancel: Cancel) -> Vec<Result<(), EngineError>> {
    let bulk = Bulk {
        operations,
        partition_id: None,
        partition_key: None,
        continue_on_error: true,
        session: None,
        cancel,
    };
    let results = fixture.engine.bulk(&fixture.container, bulk).result.expect("results");
    results.into_iter().map(|operation| operation.result.map(drop)).collect()
}

#[test]
fn conditions_of_patches_end_when_their_client_has_left() {
    const ITEMS: usize = 10;
    let fixture = with_lists(ITEMS, 300);
    ends_at_every_check("a bulk request", 30, |cancel| {
        for result in bulk(&fixture, patches(ITEMS), cancel) {
            match result {
                Err(EngineError::PatchConditionNotMet) => {}
                result => return result,
            }
        }
        Ok(())
    });
    ends_at_every_check("a batch", 3, |cancel| {
        let (key, operations) = (pk(r#"["1"]"#), patches(1));
        fixture.engine.write_batch(&fixture.container, &key, &operations, None, &cancel).result.map(drop)
    });
    ends_at_every_check("a patch", 3, |cancel| {
        let write = WriteItem {
            kind: WriteKind::Patch { id: "1".to_owned(), if_none_match: None },
            partition_key: Some(pk(r#"["1"]"#)),
            body: patches(1)[0].body.clone(),
            if_match: None,
            indexing: IndexingDirective::Default,
            want_body: false,
            pre_trigger: None,
            post_trigger: None,
            trigger_headers: Vec::new(),
            cancel,
        };
        match fixture.engine.write_item(&fixture.container, write).result {
            Err(EngineError::PatchConditionNotMet) => Ok(()),
            result => result.map(drop),
        }
    });
}

/// Not each condition by itself.
#[test]
fn conditions_of_one_request_have_one_limit_of_steps() {
    const ITEMS: usize = 40;
    let fixture = with_lists(ITEMS, 1_200);
    let results = bulk(&fixture, patches(ITEMS), Cancel::default());
    let evaluated = results.iter().filter(|result| matches!(result, Err(EngineError::PatchConditionNotMet)));
    let evaluated = evaluated.count();
    assert!((4..ITEMS).contains(&evaluated), "{evaluated}");
    let refused = |result: &&Result<(), EngineError>| match result {
        Err(error) => error.to_string().contains("evaluation steps that one write may take"),
        Ok(()) => false,
    };
    assert_eq!(results.iter().filter(refused).count(), ITEMS - evaluated);
    fixture.create(r#"{"id":"next","pk":"1"}"#).expect("another request");
}

#[test]
fn what_writers_evaluate_is_in_the_memory_of_the_server() {
    const TOTAL: usize = 200 << 20;
    // Twenty values of 6 MB.
    let fixture = with_memory_and(TOTAL, 150 << 20, &twenty_computed("REPLACE(c.a, 'a', c.b)"));
    let begun = std::sync::Barrier::new(6);
    let write = |number: usize| {
        begun.wait();
        match fixture.create(&growing(&number.to_string(), 3_000)) {
            Ok(_) => true,
            Err(EngineError::Sql(SqlError::ServerMemory { .. })) => false,
            Err(error) => panic!("{error}"),
        }
    };
    let created = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..6).map(|number| threads.spawn(move || write(number))).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).filter(|done| *done).count()
    });
    let peak = figure(&fixture, "query_memory_peak_bytes") as usize;
    assert!((120_000_000..=TOTAL).contains(&peak), "{peak}");
    assert_eq!(figure(&fixture, "query_memory_bytes"), 0);
    // Those that were refused may come again, and have their values then.
    (0..6).for_each(|number| drop(fixture.create(&growing(&number.to_string(), 3_000))));
    let all =
        fixture.all(Some("SELECT VALUE c.id FROM c WHERE STARTSWITH(c.p3, 'b')"), &Scope::default(), -1);
    assert_eq!(all.len(), 6, "{created} of them at first");
    let share = with_memory_and(TOTAL, 100 << 20, &twenty_computed("REPLACE(c.a, 'a', c.b)"));
    let refused = share.create(&growing("1", 3_000));
    assert!(matches!(refused, Err(EngineError::BadRequest { .. })), "{:?}", refused.err());
}

/// Also without any expression: an array of 1.4 MB has 200,000 index rows.
#[test]
fn index_rows_of_writers_are_in_the_memory_of_the_server() {
    let numbers: Vec<String> = (100_000..300_000).map(|number: u32| number.to_string()).collect();
    let item = |id: usize| format!(r#"{{"id":"{id}","pk":"1","list":[{}]}}"#, numbers.join(","));
    let fixture = with_memory(100 << 20, 60 << 20);
    fixture.create(&item(1)).expect("created");
    let peak = figure(&fixture, "query_memory_peak_bytes");
    assert!((20 << 20..60 << 20).contains(&(peak as usize)), "{peak}");
    assert_eq!(figure(&fixture, "query_memory_bytes"), 0);
    let refused = with_memory(100 << 20, 8 << 20).create(&item(1));
    assert!(matches!(refused, Err(EngineError::BadRequest { .. })), "{:?}", refused.err());
}
