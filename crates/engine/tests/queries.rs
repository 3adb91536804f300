//! Queries in pages: joined pages are what the executor says about all items at once, whatever narrows the scan.

mod support;

use quire_engine::{EngineError, ItemRead, PageRequest, Parameters, Scope};
use quire_sql::Query;
use quire_value::Value;
use support::fixture::{Fixture, pk, request, text_of};

const QUERIES: &[&str] = &[
    "SELECT * FROM c",
    "SELECT c.id, c.n FROM c WHERE c.n > 20",
    "SELECT VALUE c.id FROM c WHERE c.pk = 'key3'",
    "SELECT VALUE c.id FROM c WHERE c.pk IN ('key3', 'key4', 'nobody')",
    "SELECT VALUE c.id FROM c WHERE (c.pk = 'key1' AND c.id = '1') OR (c.pk = 'key2' AND c.id = '15')",
    "SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.pk)",
    "SELECT VALUE c.id FROM c WHERE c.pk = null",
    "SELECT VALUE t FROM c JOIN t IN c.tags",
    "SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.pk = 'key3'",
    "SELECT TOP 7 VALUE t FROM c JOIN t IN c.tags",
    "SELECT VALUE t FROM c JOIN t IN c.tags OFFSET 5 LIMIT 11",
    "SELECT VALUE c.id FROM c OFFSET 1000 LIMIT 10",
    "SELECT TOP 0 * FROM c",
    "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'nobody'",
    "SELECT c.pk, SUM(c.n) AS total FROM c GROUP BY c.pk",
    "SELECT DISTINCT VALUE c.u FROM c",
    "SELECT VALUE [c._rid, c._self, c._etag, c._attachments, c._ts] FROM c WHERE c.id = '7'",
    "SELECT VALUE 1 + 1",
];

fn filled(key: &str, partitions: u32) -> Fixture {
    let fixture = Fixture::with_key(key, "", partitions);
    for n in 0..60 {
        let pk = match n {
            0 => String::new(),
            1 => r#","pk":null"#.to_owned(),
            n => format!(r#","pk":"key{}""#, n % 7),
        };
        let body = format!(r#"{{"id":"{n}","u":"u{}","n":{n},"tags":["a{n}","b{n}","c{n}"]{pk}}}"#, n % 3);
        fixture.create(&body).expect("created");
    }
    fixture
}

/// All rows of a query over all items, without partitions or pages.
fn oracle(text: &str, items: &[Value]) -> Vec<Value> {
    let query = Query::compile(text, &Parameters::default(), &[]).expect("compiles");
    query.rows(items).expect("rows")
}

#[test]
fn pages_are_the_whole() {
    let keys = [
        (r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 1),
        (r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 5),
        (r#"{"paths":["/pk"],"kind":"Hash"}"#, 3),
        (r#"{"paths":["/pk","/u"],"kind":"MultiHash","version":2}"#, 4),
    ];
    for (key, partitions) in keys {
        let fixture = filled(key, partitions);
        let items = fixture.all(None, &Scope::default(), -1);
        assert_eq!(items.len(), 60);
        for text in QUERIES {
            let expected = oracle(text, &items);
            for size in [-1, 1, 4] {
                assert_eq!(
                    fixture.all(Some(text), &Scope::default(), size),
                    expected,
                    "{text} in pages of {size}"
                );
            }
        }
    }
}

#[test]
fn a_scope_narrows_a_query() {
    let fixture = filled(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 5);
    let key = Scope { partition_key: Some(pk(r#"["key3"]"#)), ..Scope::default() };
    let items = fixture.all(None, &key, -1);
    for text in QUERIES {
        assert_eq!(fixture.all(Some(text), &key, 2), oracle(text, &items), "{text}");
    }
    let mut total = 0;
    for partition in fixture.container.partitions() {
        let scope = Scope { partition_id: Some(partition.id), ..Scope::default() };
        total += support::fixture::number_of(
            &fixture.all(Some("SELECT COUNT(1) AS n FROM c"), &scope, -1)[0],
            "n",
        );
    }
    assert_eq!(total, 60);
}

#[test]
fn a_filter_on_the_partition_key_reads_that_key_alone() {
    let fixture = filled(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 5);
    let page = |text: &str| {
        let answer = fixture.engine.query_items(&fixture.container, text, &Parameters::default(), &whole());
        (answer.charge, answer.result.expect("page"))
    };
    let (charge, narrow) = page("SELECT VALUE c.id FROM c WHERE c.pk = 'key3'");
    assert_eq!((narrow.metrics.loaded_count, narrow.metrics.output_count), (9, 9));
    let (full_charge, full) = page("SELECT VALUE c.id FROM c WHERE c.n >= 0");
    assert_eq!(full.metrics.loaded_count, 60);
    assert!(charge < full_charge);
    let (_, none) = page("SELECT VALUE c.id FROM c WHERE c.pk = 'a' AND c.pk = 'b'");
    assert_eq!((none.metrics.loaded_count, none.count), (0, 0));
}

fn whole() -> PageRequest {
    request(Scope::default(), -1, None)
}

#[test]
fn tokens_belong_to_one_order() {
    let fixture = filled(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 1);
    let first = |text: &str| {
        let page = fixture.page(Some(text), &request(Scope::default(), 2, None)).expect("page");
        page.continuation.expect("more")
    };
    let resume =
        |query: Option<&str>, token: String| fixture.page(query, &request(Scope::default(), 2, Some(token)));
    let (text, sorted) = ("SELECT * FROM c", "SELECT * FROM c ORDER BY c.n");
    assert!(resume(Some(text), first(text)).is_ok());
    assert!(resume(Some(sorted), first(sorted)).is_ok());
    assert!(resume(Some("SELECT VALUE c FROM c"), first(text)).is_ok());
    assert!(resume(Some("SELECT c.id FROM c WHERE c.n > 0 ORDER BY c.n"), first(sorted)).is_ok());
    let grouped = "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n";
    for (query, token) in [
        (Some(text), first(sorted)),
        (Some(sorted), first(text)),
        (Some("SELECT * FROM c ORDER BY c.n DESC"), first(sorted)),
        (Some("SELECT * FROM c ORDER BY c.id"), first(sorted)),
        (Some("SELECT c.id, COUNT(1) AS k FROM c GROUP BY c.id"), first(grouped)),
        (None, first(text)),
    ] {
        assert!(matches!(resume(query, token), Err(EngineError::BadContinuation)), "{query:?}");
    }
    // a filter may change between two pages
    let text = "SELECT * FROM c WHERE c.n >= @n";
    let with = |n: i64, token: Option<String>| {
        let parameters = Parameters(vec![("@n".to_owned(), Value::from(n))]);
        fixture
            .engine
            .query_items(&fixture.container, text, &parameters, &request(Scope::default(), 2, token))
            .result
    };
    let token = with(1, None).expect("page").continuation;
    assert!(with(1, token.clone()).is_ok());
    assert!(with(2, token).is_ok());
}

#[test]
fn queries_see_neither_expired_items_nor_anything_twice() {
    let fixture =
        Fixture::with_key(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, r#""defaultTtl":10"#, 2);
    for n in 0..20 {
        let ttl = if n % 2 == 0 { -1 } else { 5 };
        fixture.create(&format!(r#"{{"id":"{n}","pk":"{n}","ttl":{ttl}}}"#)).expect("created");
    }
    assert_eq!(fixture.all(Some("SELECT VALUE COUNT(1) FROM c"), &Scope::default(), 1), [Value::from(20)]);
    fixture.clock.advance(5);
    assert_eq!(fixture.all(Some("SELECT VALUE COUNT(1) FROM c"), &Scope::default(), 1), [Value::from(10)]);
    let left = fixture.all(Some("SELECT * FROM c"), &Scope::default(), 1);
    assert!(
        left.len() == 10
            && left.iter().all(|item| text_of(item, "id").parse::<u32>().is_ok_and(|n| n % 2 == 0))
    );
}

#[test]
fn computed_properties_and_the_clock_are_in_scope() {
    let members = r#""computedProperties":[{"name":"upper","query":"SELECT VALUE UPPER(c.name) FROM c"}]"#;
    let fixture = Fixture::new(members);
    fixture.create(r#"{"id":"a","pk":"p","name":"ada"}"#).expect("created");
    assert_eq!(fixture.all(Some("SELECT VALUE c.upper FROM c"), &Scope::default(), -1), [Value::from("ADA")]);
    let now = fixture.all(Some("SELECT VALUE GetCurrentTimestamp() FROM c"), &Scope::default(), -1);
    assert_eq!(now, [Value::from(fixture.clock.now() * 1000)]);
}

/// Byte for byte: a list, a query and a point read show one item alike.
#[test]
fn reads_queries_and_feeds_return_the_same_item() {
    let fixture = Fixture::new("");
    let written =
        fixture.create(r#"{"z":1e3,"id":"a","pk":"p","a":[{}, null, "\u00e9"]}"#).expect("created").body;
    let Ok(ItemRead::Found { body, .. }) = fixture.read_answer("a", r#"["p"]"#).result else {
        panic!("it is there")
    };
    let expected = [b"[", &body[..], b"]"].concat();
    assert_eq!(written, body);
    for query in
        [None, Some("SELECT * FROM c"), Some("SELECT VALUE c FROM c"), Some("SELECT * FROM c ORDER BY c.id")]
    {
        assert_eq!(fixture.page(query, &whole()).expect("page").rows, expected, "{query:?}");
    }
}

#[test]
fn errors_of_a_query() {
    let fixture = filled(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#, 1);
    assert!(matches!(fixture.page(Some("SELECT FROM c"), &whole()), Err(EngineError::Sql(_))));
    let answer = fixture.engine.query_items(&fixture.container, "SELEC", &Parameters::default(), &whole());
    assert!(answer.result.is_err() && answer.charge == 1.0 && answer.position.is_some());
}
