//! Whole systems once more: forms of the same problem that are written differently, and near misses.
//! What is expected follows from the text of the rules, not from what they do.

use crate::harness::{Db, json};
use crate::shape::{list, varied_number, words};
use crate::systems_trade::grow;
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = questions();
    cases.extend(values());
    cases.extend(keys());
    cases.extend(parts());
    cases.extend(links());
    cases
}

/// Tasks with a date, a state and a number, and a question that is asked often.
fn tasks(db: &mut Db, partitions: u32, asked: &[(&str, u64, u64, u32)]) {
    db.container("tasks", "/team").partitions = partitions;
    for number in 0..1_500 {
        let (due, gone) =
            (1 + number % 28, if number % 3 == 0 { r#","deletedAt":"2026-06-01T00:00:00Z""# } else { "" });
        db.add("tasks", format!(r#"{{"id":"t{number}","team":"te{}","due":"2026-07-{due:02}","effort":{}{gone},"title":"{}"}}"#, number % 250, varied_number(number, 90), words(number, 24)));
    }
    for (sql, rows, returned, times) in asked {
        db.query("tasks", sql, *rows, *returned, *times);
    }
    db.traffic("tasks", 1_000);
}

fn questions() -> Vec<Case> {
    vec![
        fires("tasks: deleted ones have a date", &[("soft-deletes", "tasks", "/deletedAt")], |db| {
            tasks(
                db,
                1,
                &[(
                    "SELECT * FROM c WHERE c.due = '2026-07-03' AND NOT IS_DEFINED(c.deletedAt)",
                    30,
                    30,
                    300,
                )],
            );
        }),
        clean("tasks: the bin is looked into", &["soft-deletes"], |db| {
            tasks(
                db,
                1,
                &[
                    ("SELECT * FROM c WHERE c.due = '2026-07-03'", 30, 30, 300),
                    ("SELECT * FROM c WHERE IS_DEFINED(c.deletedAt)", 500, 500, 8),
                ],
            );
        }),
        fires("tasks: the last one by LIMIT", &[("latest-by-scan", "tasks", "/due")], |db| {
            tasks(db, 4, &[("SELECT * FROM c ORDER BY c.due DESC OFFSET 0 LIMIT 1", 1, 1, 500)]);
        }),
        fires(
            "tasks: effort is computed before it is compared",
            &[("function-hides-index", "tasks", "/effort")],
            |db| {
                tasks(db, 1, &[("SELECT * FROM c WHERE c.effort * 2 > 170", 1_500, 60, 80)]);
            },
        ),
        clean("tasks: effort is computed after it was found", &["function-hides-index"], |db| {
            tasks(db, 1, &[("SELECT c.effort * 2 AS twice FROM c WHERE c.effort > 80", 160, 160, 80)]);
        }),
        fires(
            "tasks: point reads with the key in the text",
            &[("query-for-point-read", "tasks", "/id")],
            |db| {
                tasks(db, 1, &[("SELECT * FROM c WHERE c.id = 't9' AND c.team = 'te9'", 1, 1, 1_500)]);
            },
        ),
        clean("tasks: several ids at once", &["query-for-point-read"], |db| {
            tasks(
                db,
                1,
                &[("SELECT * FROM c WHERE c.team = 'te9' AND c.id IN ('t9', 't259', 't509')", 3, 3, 1_500)],
            );
        }),
        clean("tasks: words are looked for in titles", &["index-missing", "function-hides-index"], |db| {
            tasks(db, 1, &[("SELECT * FROM c WHERE c.title LIKE 'riv%'", 90, 90, 60)]);
        }),
        fires(
            "tasks: counted again and again, over everything",
            &[("repeated-aggregate", "tasks", "/due")],
            |db| {
                tasks(
                    db,
                    1,
                    &[("SELECT VALUE SUM(c.effort) FROM c WHERE c.due = '2026-07-04'", 160, 1, 600)],
                );
                db.containers.get_mut("tasks").expect("it is there").unscanned = (30_000, 4_000_000);
            },
        ),
        clean("tasks: a report each morning", &["scan-for-analytics", "repeated-aggregate"], |db| {
            tasks(db, 1, &[("SELECT c.team, COUNT(1) FROM c GROUP BY c.team", 1_500, 250, 6)]);
            db.containers.get_mut("tasks").expect("it is there").unscanned = (30_000, 4_000_000);
        }),
        clean("tasks: far behind, once a week", &["deep-offset"], |db| {
            tasks(db, 1, &[("SELECT * FROM c ORDER BY c.due OFFSET 1200 LIMIT 20", 1_220, 20, 4)]);
        }),
        clean("tasks: thousands of rows, twice", &["unbounded-result"], |db| {
            tasks(db, 1, &[("SELECT * FROM c WHERE c.effort >= 0", 1_500, 1_500, 2)]);
        }),
    ]
}

fn people(db: &mut Db, count: usize, item: fn(usize) -> String, sql: &str) {
    db.container("people", "/town");
    for number in 0..count {
        db.add("people", format!(r#"{{"id":"p{number}","town":"to{}",{}}}"#, number % 150, item(number)));
    }
    db.query("people", sql, 6, 6, 40);
    db.traffic("people", 1_000);
}

fn values() -> Vec<Case> {
    vec![
        clean("people: a field that is null or a text", &["type-drift"], |db| {
            people(
                db,
                600,
                |number| {
                    if number % 4 == 0 {
                        r#""nick":null"#.to_owned()
                    } else {
                        format!(r#""nick":"n{number}""#)
                    }
                },
                "SELECT * FROM c WHERE c.nick = 'n5'",
            );
        }),
        fires("people: numbers that became texts, sorted by", &[("type-drift", "people", "/age")], |db| {
            people(
                db,
                600,
                |number| {
                    if number % 30 == 0 {
                        format!(r#""age":"{}""#, number % 90)
                    } else {
                        format!(r#""age":{}"#, number % 90)
                    }
                },
                "SELECT TOP 6 * FROM c ORDER BY c.age",
            );
        }),
        clean("people: one text among a thousand numbers", &["type-drift"], |db| {
            people(
                db,
                1_000,
                |number| {
                    if number == 500 {
                        r#""age":"old""#.to_owned()
                    } else {
                        format!(r#""age":{}"#, number % 90)
                    }
                },
                "SELECT TOP 6 * FROM c ORDER BY c.age",
            );
        }),
        fires(
            "people: birthdays with and without a time, sorted by",
            &[("unsortable-dates", "people", "/born")],
            |db| {
                people(
                    db,
                    600,
                    |number| match number % 15 {
                        0 => format!(r#""born":"1990-05-{:02}T00:00:00+02:00""#, 1 + number % 28),
                        _ => format!(r#""born":"1990-05-{:02}T00:00:00Z""#, 1 + number % 28),
                    },
                    "SELECT TOP 6 * FROM c ORDER BY c.born",
                );
            },
        ),
        clean("people: birthdays of one form, sorted by", &["unsortable-dates"], |db| {
            people(
                db,
                600,
                |number| format!(r#""born":"1990-05-{:02}""#, 1 + number % 28),
                "SELECT TOP 6 * FROM c ORDER BY c.born",
            );
        }),
        clean("people: one in three hundred has a large number", &["number-fidelity"], |db| {
            people(
                db,
                900,
                |number| {
                    format!(
                        r#""badge":{}"#,
                        if number % 300 == 0 { 9_007_199_254_740_999u64 } else { number as u64 }
                    )
                },
                "SELECT * FROM c WHERE c.badge = 7",
            );
        }),
        clean("translations: 250 languages, all known from the start", &["data-as-names"], |db| {
            db.container("labels", "/id");
            for number in 0..400 {
                let names: Vec<String> = (0..250)
                    .map(|language| format!(r#""l{language}":"{}""#, words(number + language, 6)))
                    .collect();
                db.add("labels", format!(r#"{{"id":"la{number}","names":{{{}}}}}"#, names.join(",")));
            }
            db.traffic("labels", 1_000);
        }),
        clean("vectors: embeddings with a vector index", &["index-on-vectors"], |db| {
            db.define(r#"{"id":"texts","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
                "vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/embedding","dataType":"float32","dimensions":200,"distanceFunction":"cosine"}]},
                "indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/embedding/*"}],"vectorIndexes":[{"path":"/embedding","type":"quantizedFlat"}]}}"#);
            for number in 0..220 {
                let embedding = list(200, |place| format!("0.{}", varied_number(number + place, 900)));
                db.add("texts", format!(r#"{{"id":"tx{number}","embedding":[{embedding}]}}"#));
            }
            db.creates("texts", "tx1", 700);
            db.traffic("texts", 500);
        }),
        clean("measurements: thirty numbers that grow", &["unbounded-array"], |db| {
            db.container("series", "/id");
            for number in 0..300 {
                let points = list(100 + varied_number(number, 300), |point| {
                    varied_number(point + number, 90).to_string()
                });
                db.add("series", format!(r#"{{"id":"se{number}","points":[{points}]}}"#));
            }
            grow(db, "series", "/points", (0..200).map(|number| format!("se{number}")), 1);
            db.traffic("series", 1_000);
        }),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        fires("moves: an item under another key", &[("key-mutable", "cases", "/stage")], |db| {
            db.container("cases", "/stage");
            for number in 0..300 {
                db.add(
                    "cases",
                    format!(
                        r#"{{"id":"ca{number}","stage":"st{}","text":"{}"}}"#,
                        number % 70,
                        words(number, 20)
                    ),
                );
            }
            for number in 0..15 {
                let id = format!("ca{number}");
                db.delete("cases", &id);
                db.wait(400);
                db.record("cases", &id, quire_profile::Operation::Create, 1, |record| {
                    (record.status, record.partition_key) = (201, Some(1_000 + number));
                });
                db.wait(70_000);
            }
            db.traffic("cases", 1_200);
        }),
        clean("moves: an item is made again under its key", &["key-mutable"], |db| {
            db.container("cases", "/stage");
            for number in 0..300 {
                db.add(
                    "cases",
                    format!(
                        r#"{{"id":"ca{number}","stage":"st{}","text":"{}"}}"#,
                        number % 70,
                        words(number, 20)
                    ),
                );
            }
            for number in 0..15 {
                let id = format!("ca{number}");
                db.delete("cases", &id);
                db.wait(400);
                db.create("cases", &id);
                db.wait(70_000);
            }
            db.traffic("cases", 1_200);
        }),
        fires("stock: every second write meets another", &[("contended-item", "stock", "")], |db| {
            db.container("stock", "/id");
            for number in 0..45 {
                db.add("stock", format!(r#"{{"id":"sk{number}","left":{number}}}"#));
            }
            for minute in 0..60 {
                db.write("stock", "sk3", &["/left"], &[], 20, |_| {});
                db.record("stock", "sk3", quire_profile::Operation::Replace, 6, |record| record.status = 412);
                db.wait(60_000 + minute);
            }
        }),
        clean(
            "log: only writes, and never a read",
            &["event-items", "index-not-needed", "hot-and-cold"],
            |db| {
                db.container("log", "/source");
                for number in 0..400 {
                    db.add(
                        "log",
                        format!(
                            r#"{{"id":"lo{number}","source":"so{}","text":"{}"}}"#,
                            number % 120,
                            words(number, 80)
                        ),
                    );
                }
                for number in 0..400 {
                    db.creates("log", &format!("lo{number}"), 5);
                }
                db.change("log", "lo1", &["/text"], 200);
            },
        ),
        clean("countries: nine keys of a small container", &["key-few-values"], |db| {
            db.container("towns", "/country");
            for number in 0..900 {
                db.add(
                    "towns",
                    format!(
                        r#"{{"id":"to{number}","country":"c{}","name":"{}"}}"#,
                        number % 9,
                        words(number, 14)
                    ),
                );
            }
            db.traffic("towns", 1_000);
        }),
        clean("composites: one is the beginning of the other", &["composite-redundant"], |db| {
            db.define(r#"{"id":"things","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
                "indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[],
                "compositeIndexes":[[{"path":"/a","order":"ascending"},{"path":"/b","order":"ascending"}],
                [{"path":"/a","order":"ascending"},{"path":"/b","order":"ascending"},{"path":"/c","order":"ascending"}]]}}"#);
            for number in 0..300 {
                db.add(
                    "things",
                    format!(r#"{{"id":"th{number}","a":{},"b":{},"c":{number}}}"#, number % 5, number % 7),
                );
            }
            db.traffic("things", 1_000);
        }),
    ]
}

/// Articles with a text and a stock, each of which changes by itself.
fn articles(db: &mut Db, bytes: usize, stock: u32, text: u32, both: u32) {
    db.container("articles", "/id");
    for number in 0..260 {
        db.add(
            "articles",
            format!(
                r#"{{"id":"ar{number}","stock":{{"left":{},"shelf":"sh{}"}},"description":"{}"}}"#,
                number % 80,
                number % 9,
                words(number, bytes)
            ),
        );
    }
    for (paths, times) in [
        (&["/stock/left"][..], stock),
        (&["/description"][..], text),
        (&["/stock/left", "/description"][..], both),
    ] {
        for number in 0..times {
            db.change("articles", &format!("ar{}", number % 260), paths, 1);
        }
    }
    db.traffic("articles", 1_000);
}

fn parts() -> Vec<Case> {
    vec![
        fires("articles: stock and text change apart", &[("extract-part", "articles", "/stock")], |db| {
            articles(db, 6_000, 600, 600, 40)
        }),
        clean("articles: stock and text change together", &["extract-part"], |db| {
            articles(db, 6_000, 60, 60, 1_000)
        }),
        clean("articles: small ones", &["extract-part"], |db| articles(db, 1_500, 600, 600, 40)),
        fires("manuals: a hundred kilobytes and more", &[("large-items", "manuals", "")], |db| {
            db.container("manuals", "/id");
            for number in 0..220 {
                let chapters: Vec<String> = (0..40)
                    .map(|chapter| format!(r#""chapter{chapter}":"{}""#, words(number + chapter, 3_200)))
                    .collect();
                db.add("manuals", format!(r#"{{"id":"mn{number}",{}}}"#, chapters.join(",")));
            }
            db.traffic("manuals", 1_500);
        }),
        clean("types: a rare type with fields of two types", &["type-drift"], |db| {
            db.container("mixed", "/id");
            for number in 0..900 {
                let own = match number % 10 {
                    0 => format!(
                        r#""type":"refund","reason":{},"ticket":"ti{number}","amount":4"#,
                        if number % 20 == 0 { r#""late""#.to_owned() } else { "7".to_owned() }
                    ),
                    _ => format!(
                        r#""type":"sale","article":"{}","count":{},"price":{}"#,
                        words(number, 9),
                        number % 9,
                        number % 50
                    ),
                };
                db.add("mixed", format!(r#"{{"id":"mx{number}",{own}}}"#));
            }
            db.query("mixed", "SELECT * FROM c WHERE c.reason = 'late'", 4, 4, 30);
            db.traffic("mixed", 1_000);
        }),
    ]
}

/// Courses and students with lists of each other.
fn courses(db: &mut Db, broken: fn(usize) -> bool) {
    db.container("courses", "/id");
    db.container("students", "/id");
    let mut of_course: Vec<Vec<String>> = vec![Vec::new(); 240];
    for number in 0..400 {
        let own: std::collections::BTreeSet<usize> =
            (0..3).map(|place| (number * 7 + place * 17) % 240).collect();
        own.iter().for_each(|course| of_course[*course].push(format!(r#""sd{number}""#)));
        let own: Vec<String> = own.iter().map(|course| format!(r#""cs{course}""#)).collect();
        db.add(
            "students",
            format!(r#"{{"id":"sd{number}","name":"{}","courses":[{}]}}"#, words(number, 12), own.join(",")),
        );
    }
    for (number, students) in of_course.iter().enumerate() {
        let kept = if broken(number) { &students[..students.len().saturating_sub(1)] } else { &students[..] };
        db.add(
            "courses",
            format!(
                r#"{{"id":"cs{number}","title":"{}","students":[{}]}}"#,
                words(number, 12),
                kept.join(",")
            ),
        );
    }
    db.traffic("courses", 1_000);
    db.traffic("students", 1_000);
}

fn books(db: &mut Db, model: &str) {
    db.container("authors", "/id");
    db.container("books", "/id");
    for number in 0..100 {
        db.add("authors", format!(r#"{{"id":"au{number}","name":"{} {number}"}}"#, words(number, 12)));
    }
    for number in 0..800 {
        let name = if number % 25 == 0 {
            "somebody".to_owned()
        } else {
            format!("{} {}", words(number % 100, 12), number % 100)
        };
        db.add(
            "books",
            format!(r#"{{"id":"bo{number}","authorId":"au{}","authorName":"{name}"}}"#, number % 100),
        );
    }
    (0..20).for_each(|number| db.change("books", &format!("bo{number}"), &["/authorName"], 1));
    db.traffic("books", 1_000);
    db.model = json(model);
}

fn links() -> Vec<Case> {
    vec![
        fires(
            "courses: lists of students that are not complete",
            &[("mirror-broken", "courses", "/students")],
            |db| courses(db, |number| number % 12 == 0),
        ),
        clean("courses: lists of each other", &["mirror-broken"], |db| courses(db, |_| false)),
        fires("books: names of authors, not declared", &[("stale-copies", "books", "/authorName")], |db| {
            books(db, r#"{"version":1}"#)
        }),
        clean("books: names of authors, declared", &["stale-copies"], |db| {
            books(
                db,
                r#"{"version":1,"links":[{"name":"book-authors","from":{"container":"books","path":"/authorId"},"to":{"container":"authors"}}],"copies":[{"name":"author-on-book","link":"book-authors","fields":{"authorName":"t.name"}}]}"#,
            );
        }),
        fires(
            "invoices: lines are read after their invoice",
            &[("embed-together", "lines", "/invoiceId")],
            |db| invoices(db, 6),
        ),
        clean("invoices: a hundred lines are read after their invoice", &["embed-together"], |db| {
            invoices(db, 60)
        }),
        fires("searches: every hit is read by itself", &[("n-plus-one", "albums", "/tracks/*")], |db| {
            albums(db, 8)
        }),
        clean("searches: one hit is read", &["n-plus-one"], |db| albums(db, 1)),
    ]
}

fn invoices(db: &mut Db, each: usize) {
    db.container("invoices", "/id");
    db.container("lines", "/invoiceId");
    for number in 0..220 {
        db.add("invoices", format!(r#"{{"id":"in{number}","customer":"{}"}}"#, words(number, 14)));
        for line in 0..each {
            db.add(
                "lines",
                format!(
                    r#"{{"id":"li{number}-{line}","invoiceId":"in{number}","article":"{}","count":{line}}}"#,
                    words(line, 9)
                ),
            );
        }
    }
    db.actions(440, |db, number| {
        let number = number % 220;
        db.read("invoices", &format!("in{number}"));
        let ids: Vec<String> = (0..each).map(|line| format!("li{number}-{line}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        db.query_with(
            "lines",
            &format!("SELECT * FROM c WHERE c.invoiceId = 'in{number}'"),
            each as u64,
            each as u64,
            1,
            true,
            &ids,
        );
    });
    db.creates("lines", "li1-0", 700);
    db.creates("invoices", "in2", 700);
}

/// Albums with the ids of their tracks, some of which are read after the album was found by a query.
fn albums(db: &mut Db, width: usize) {
    db.container("albums", "/artist");
    db.container("tracks", "/id");
    for number in 0..800 {
        db.add(
            "tracks",
            format!(
                r#"{{"id":"tr{number}","title":"{}","seconds":{}}}"#,
                words(number, 200),
                100 + number % 200
            ),
        );
    }
    for number in 0..300 {
        let tracks = list(10, |place| format!(r#""tr{}""#, (number * 3 + place * 29) % 800));
        db.add("albums", format!(r#"{{"id":"al{number}","artist":"a{}","tracks":[{tracks}]}}"#, number % 80));
    }
    db.actions(250, |db, number| {
        let id = format!("al{number}");
        db.query_with("albums", "SELECT * FROM c WHERE c.artist = 'a1'", 1, 1, 1, true, &[&id]);
        (0..width).for_each(|place| db.read("tracks", &format!("tr{}", (number * 3 + place * 29) % 800)));
    });
    db.traffic("albums", 1_000);
    db.traffic("tracks", 1_000);
}
