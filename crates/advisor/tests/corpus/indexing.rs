//! Cases of the rules about indexes.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = unused();
    cases.extend(missing());
    cases.extend(composite());
    cases.extend(vectors());
    cases
}

fn defined(db: &mut Db, policy: &str) {
    db.define(&format!(
        r#"{{"id":"things","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}},"indexingPolicy":{policy}}}"#
    ));
}

const ALL: &str = r#"{"includedPaths":[{"path":"/*"}]}"#;

fn things(db: &mut Db, policy: &str) {
    defined(db, policy);
    for number in 0..300 {
        let tags = list(8, |tag| format!(r#""t{}""#, varied_number(number + tag, 40)));
        db.add(
            "things",
            format!(
                r#"{{"id":"th{number}","city":"c{}","name":"{}","age":{},"tags":[{tags}],"more":{{"a":{number},"b":"{}"}}}}"#,
                number % 30,
                words(number, 14),
                number % 80,
                words(number, 9)
            ),
        );
    }
}

struct Use {
    days: u64,
    writes: u32,
    reads: u32,
    queries: &'static [&'static str],
}

const USE: Use = Use {
    days: 15,
    writes: 6_000,
    reads: 6_000,
    queries: &["SELECT TOP 9 * FROM c WHERE c.city = 'c1' ORDER BY c.age"],
};

fn used(db: &mut Db, policy: &str, made: &Use) {
    things(db, policy);
    db.days = made.days as f64;
    for query in made.queries {
        db.query("things", query, 9, 9, 400);
    }
    db.creates("things", "th1", made.writes);
    db.traffic("things", made.reads);
}

fn unused() -> Vec<Case> {
    const FEW: &str =
        r#"{"includedPaths":[{"path":"/city/?"},{"path":"/age/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    const EVERYTHING: &[&str] = &[
        "SELECT TOP 9 * FROM c WHERE c.city = 'c1' ORDER BY c.age",
        "SELECT TOP 9 * FROM c WHERE c.name > 'a' AND ARRAY_CONTAINS(c.tags, 't1')",
        "SELECT TOP 9 * FROM c WHERE c.more.a = 1 AND c.more.b > 'x'",
    ];
    vec![
        fires("things: two of many indexed paths are used", &[("index-unused", "things", "")], |db| {
            used(db, ALL, &USE)
        }),
        fires("things: one filter in a month", &[("index-unused", "things", "")], |db| {
            used(
                db,
                ALL,
                &Use {
                    days: 30,
                    writes: 20_000,
                    queries: &["SELECT TOP 9 * FROM c WHERE c.name = 'x'"],
                    ..USE
                },
            );
        }),
        clean("things: only what is used is indexed", &["index-unused"], |db| used(db, FEW, &USE)),
        clean("things: everything is used", &["index-unused"], |db| {
            used(db, ALL, &Use { queries: EVERYTHING, ..USE })
        }),
        clean("things: three days are too few", &["index-unused", "index-not-needed"], |db| {
            used(db, ALL, &Use { days: 3, ..USE })
        }),
        clean("things: 4,000 operations are too few", &["index-unused"], |db| {
            used(db, ALL, &Use { writes: 2_000, reads: 1_500, ..USE });
        }),
        fires("cache: by id only", &[("index-not-needed", "things", "")], |db| {
            used(db, ALL, &Use { queries: &[], ..USE })
        }),
        fires("sessions: by id only, for a month", &[("index-not-needed", "things", "")], |db| {
            used(db, ALL, &Use { queries: &[], days: 30, writes: 9_000, reads: 900 });
        }),
        clean("cache: without an index", &["index-not-needed"], |db| {
            used(db, r#"{"indexingMode":"none","automatic":false}"#, &Use { queries: &[], ..USE });
        }),
        clean("cache: by id only, since yesterday", &["index-not-needed"], |db| {
            used(db, ALL, &Use { queries: &[], days: 2, ..USE })
        }),
        Case {
            name: "cache: a change feed reads it",
            similar_to: &["index-not-needed"],
            expect: &[("index-unused", "things", "")],
            build: |db| {
                used(db, ALL, &Use { queries: &[], ..USE });
                db.record("things", "th1", quire_profile::Operation::Feed, 9_000, |record| {
                    record.charge = 3.0
                });
            },
        },
        Case {
            name: "cache: a query now and then",
            similar_to: &["index-not-needed"],
            expect: &[("index-unused", "things", "")],
            build: |db| {
                used(db, ALL, &Use { queries: &[], ..USE });
                db.query("things", "SELECT TOP 9 * FROM c WHERE c.city = 'c1'", 9, 9, 20);
            },
        },
    ]
}

fn queried(db: &mut Db, policy: &str, query: &str, rows: u64, returned: u64, times: u32) {
    things(db, policy);
    db.query("things", query, rows, returned, times);
    db.traffic("things", 2_000);
    db.change("things", "th1", &["/name"], 100);
}

fn missing() -> Vec<Case> {
    const WITHOUT_CITY: &str = r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/city/?"}]}"#;
    const WITHOUT_MORE: &str = r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/more/*"}]}"#;
    const BY_CITY: &str = "SELECT * FROM c WHERE c.city = 'c1'";
    vec![
        fires("things: filtered by an excluded path", &[("index-missing", "things", "/city")], |db| {
            queried(db, WITHOUT_CITY, BY_CITY, 300, 10, 500)
        }),
        fires("things: a range on an excluded path", &[("index-missing", "things", "/more/a")], |db| {
            queried(db, WITHOUT_MORE, "SELECT * FROM c WHERE c.more.a > 290", 300, 9, 500);
        }),
        clean("things: filtered by an indexed path", &["index-missing"], |db| {
            queried(db, ALL, BY_CITY, 10, 10, 500)
        }),
        clean("things: scanned with an index, for text inside", &["index-missing"], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE CONTAINS(c.name, 'zz')", 300, 3, 500);
        }),
        clean("things: an excluded path, but nearly all match", &["index-missing"], |db| {
            queried(db, WITHOUT_CITY, BY_CITY, 300, 200, 500)
        }),
        clean("things: an excluded path within a small key", &["index-missing"], |db| {
            things(db, WITHOUT_CITY);
            db.query_in_key("things", BY_CITY, 30, 1, 500);
            db.traffic("things", 2_000);
        }),
        clean("things: an excluded path, twice a day", &["index-missing"], |db| {
            queried(db, WITHOUT_CITY, BY_CITY, 300, 10, 2)
        }),
        fires("things: lower case of a name", &[("function-hides-index", "things", "/name")], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE LOWER(c.name) = 'x'", 300, 2, 500);
        }),
        fires("things: arithmetic on an age", &[("function-hides-index", "things", "/age")], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE c.age * 12 > 900", 300, 9, 500);
        }),
        clean("things: lower case within a small key", &["function-hides-index"], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE LOWER(c.name) = 'x'", 20, 2, 3_000);
        }),
        clean("things: lower case of most names", &["function-hides-index"], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE LOWER(c.name) > 'a'", 300, 250, 500);
        }),
        clean("things: lower case, three times", &["function-hides-index"], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE LOWER(c.name) = 'x'", 300, 2, 3);
        }),
    ]
}

fn composite() -> Vec<Case> {
    const BOTH: &str = r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/city","order":"ascending"},{"path":"/age","order":"ascending"}]]}"#;
    const SLOW: &str = "SELECT TOP 10 * FROM c WHERE c.city = 'c1' ORDER BY c.age";
    vec![
        fires(
            "things: an order of two paths is refused",
            &[("composite-missing", "things", "/city, /age")],
            |db| {
                things(db, ALL);
                db.refused("things", "SELECT * FROM c ORDER BY c.city, c.age", 40);
                db.traffic("things", 2_000);
            },
        ),
        fires(
            "things: a filter and an order sort many items",
            &[("composite-missing", "things", "/city, /age")],
            |db| {
                queried(db, ALL, SLOW, 200, 10, 300);
            },
        ),
        clean("things: a filter and an order with a composite index", &["composite-missing"], |db| {
            queried(db, BOTH, SLOW, 200, 10, 300)
        }),
        clean("things: a filter and an order of a few items", &["composite-missing"], |db| {
            queried(db, ALL, SLOW, 30, 10, 300)
        }),
        clean("things: a filter and an order, all returned", &["composite-missing"], |db| {
            queried(db, ALL, "SELECT * FROM c WHERE c.city = 'c1' ORDER BY c.age", 90, 90, 300);
        }),
        clean("things: refused four times by a curious user", &["composite-missing"], |db| {
            things(db, ALL);
            db.refused("things", "SELECT * FROM c ORDER BY c.city, c.age", 4);
            db.traffic("things", 2_000);
        }),
        fires("things: a composite index twice", &[("composite-redundant", "things", "/city, /age")], |db| {
            redundant(db, r#"[{"path":"/city","order":"ascending"},{"path":"/age","order":"descending"}]"#);
        }),
        fires(
            "things: a composite index and its reverse",
            &[("composite-redundant", "things", "/city, /age")],
            |db| {
                redundant(
                    db,
                    r#"[{"path":"/city","order":"descending"},{"path":"/age","order":"ascending"}]"#,
                );
            },
        ),
        clean("things: a composite index and a longer one", &["composite-redundant"], |db| {
            redundant(
                db,
                r#"[{"path":"/city","order":"ascending"},{"path":"/age","order":"descending"},{"path":"/name","order":"ascending"}]"#,
            );
        }),
        clean("things: two orders of two paths", &["composite-redundant"], |db| {
            redundant(db, r#"[{"path":"/city","order":"ascending"},{"path":"/age","order":"ascending"}]"#);
        }),
    ]
}

fn redundant(db: &mut Db, other: &str) {
    let first = r#"[{"path":"/city","order":"ascending"},{"path":"/age","order":"descending"}]"#;
    things(db, &format!(r#"{{"includedPaths":[{{"path":"/*"}}],"compositeIndexes":[{first},{other}]}}"#));
    db.traffic("things", 2_000);
}

struct Vectors {
    length: fn(usize) -> usize,
    policy: &'static str,
    query: Option<&'static str>,
    writes: u32,
}

const VECTORS: Vectors = Vectors { length: |_| 256, policy: ALL, query: None, writes: 800 };

fn embedded(db: &mut Db, made: &Vectors) {
    defined(db, made.policy);
    for number in 0..210 {
        let vector =
            list((made.length)(number), |place| format!("0.{:03}", varied_number(number + place, 999)));
        db.add(
            "things",
            format!(r#"{{"id":"th{number}","text":"{}","vector":[{vector}]}}"#, words(number, 40)),
        );
    }
    db.query("things", "SELECT TOP 9 c.id FROM c WHERE c.text > 'a'", 9, 9, 300);
    if let Some(query) = made.query {
        db.query("things", query, 9, 9, 300);
    }
    db.creates("things", "th1", made.writes);
    db.traffic("things", 1_000);
}

fn vectors() -> Vec<Case> {
    const EXCLUDED: &str = r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/vector/*"}]}"#;
    vec![
        fires("search: vectors in the range index", &[("index-on-vectors", "things", "/vector")], |db| {
            embedded(db, &VECTORS)
        }),
        fires(
            "images: long vectors in the range index",
            &[("index-on-vectors", "things", "/vector")],
            |db| {
                embedded(db, &Vectors { length: |_| 512, writes: 300, ..VECTORS });
            },
        ),
        clean("search: vectors are excluded", &["index-on-vectors"], |db| {
            embedded(db, &Vectors { policy: EXCLUDED, ..VECTORS })
        }),
        clean("samples: short vectors", &["index-on-vectors"], |db| {
            embedded(db, &Vectors { length: |_| 24, ..VECTORS })
        }),
        clean("scores: lists of all lengths", &["index-on-vectors"], |db| {
            embedded(db, &Vectors { length: |number| 120 + number % 80, writes: 100, ..VECTORS });
        }),
        clean("signals: numbers that queries look for", &["index-on-vectors"], |db| {
            embedded(
                db,
                &Vectors {
                    query: Some("SELECT TOP 9 c.id FROM c WHERE ARRAY_CONTAINS(c.vector, 1)"),
                    ..VECTORS
                },
            );
        }),
        clean("search: vectors that are never written", &["index-on-vectors"], |db| {
            embedded(db, &Vectors { writes: 0, ..VECTORS })
        }),
    ]
}
