//! Several problems in one database, and the database of the demo.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    vec![
        fires(
            "shop: three problems in three containers",
            &[
                ("unbounded-array", "products", "/reviews"),
                ("type-drift", "customers", "/zip"),
                ("soft-deletes", "orders", "/deleted"),
            ],
            shop,
        ),
        fires(
            "one container with two problems",
            &[("unsortable-dates", "events", "/at"), ("risky-ids", "events", "/id")],
            |db| {
                db.container("events", "/id");
                for number in 0..300 {
                    db.add(
                        "events",
                        format!(
                            r#"{{"id":"e?{number}","at":"{:02}/{:02}/2026"}}"#,
                            1 + number % 12,
                            1 + number % 28
                        ),
                    );
                }
                db.query("events", "SELECT TOP 9 * FROM c ORDER BY c.at", 9, 9, 90);
                db.traffic("events", 1_500);
            },
        ),
        fires(
            "the demo: six problems, none about people",
            &[
                ("unbounded-array", "posts", "/comments"),
                ("hot-copy", "portfolios", "/holdings/*/stock"),
                ("growing-references", "publishers", "/books"),
                ("join-items", "bookWriters", ""),
                ("stale-copies", "books", "/authors/*/name"),
                ("rollup-wrong", "authors", "/countOfBooks"),
            ],
            demo,
        ),
        clean(
            "an empty container, and one with a single item",
            &["missing-discriminator", "large-items"],
            |db| {
                db.container("empty", "/id");
                db.container("one", "/id");
                db.add("one", r#"{"id":"a"}"#);
                db.reads("one", "a", 5);
            },
        ),
        clean("only writes, never a read", &["index-not-needed", "event-items"], |db| {
            db.container("log", "/id");
            for number in 0..300 {
                db.add("log", format!(r#"{{"id":"l{number}","text":"{}"}}"#, words(number, 30)));
            }
            db.creates("log", "l1", 3_000);
        }),
    ]
}

fn shop(db: &mut Db) {
    db.container("products", "/id");
    db.container("customers", "/id");
    db.container("orders", "/customerId");
    for number in 0..210 {
        let reviews = list(100 + varied_number(number, 50), |place| {
            format!(r#"{{"stars":{},"text":"{}"}}"#, place % 5, words(number + place, 40))
        });
        db.add(
            "products",
            format!(r#"{{"id":"p{number}","name":"{}","reviews":[{reviews}]}}"#, words(number, 14)),
        );
        let zip = if number % 6 == 0 { format!("{number}") } else { format!(r#""{number}""#) };
        db.add("customers", format!(r#"{{"id":"k{number}","name":"{}","zip":{zip}}}"#, words(number, 14)));
        for order in 0..3 {
            db.add(
                "orders",
                format!(
                    r#"{{"id":"o{number}-{order}","customerId":"k{number}","total":{},"deleted":{}}}"#,
                    varied_number(number, 900),
                    order == 0
                ),
            );
        }
    }
    for number in 0..40 {
        for version in 0..3 {
            db.resize("products", &format!("p{number}"), "/reviews", 100 + version, 101 + version);
        }
    }
    db.change("products", "p1", &["/reviews"], 400);
    db.query("customers", "SELECT TOP 9 * FROM c WHERE c.zip = '5'", 9, 9, 200);
    db.query_in_key("orders", "SELECT * FROM c WHERE c.customerId = 'k1' AND c.deleted = false", 3, 2, 900);
    for container in ["products", "customers", "orders"] {
        db.traffic(container, 1_200);
    }
}

/// The six examples in their bad form.
fn demo(db: &mut Db) {
    for (name, key) in [
        ("people", "/id"),
        ("posts", "/id"),
        ("portfolios", "/id"),
        ("publishers", "/id"),
        ("titles", "/id"),
        ("writers", "/id"),
        ("works", "/id"),
        ("bookWriters", "/writerId"),
        ("authors", "/id"),
        ("books", "/id"),
    ] {
        db.container(name, key);
    }
    people(db);
    posts(db);
    portfolios(db);
    publishers(db);
    join(db);
    hybrid(db);
}

fn people(db: &mut Db) {
    for number in 0..220 {
        let addresses =
            list(1 + number % 3, |place| format!(r#"{{"line":"{}","city":"c{place}"}}"#, words(number, 10)));
        let contacts = list(1 + number % 2, |place| match place {
            0 => format!(r#"{{"email":"e{number}"}}"#),
            _ => format!(r#"{{"phone":"{number}","extension":{place}}}"#),
        });
        db.add("people", format!(r#"{{"id":"n{number}","firstName":"{}","addresses":[{addresses}],"contactDetails":[{contacts}]}}"#, words(number, 9)));
    }
    db.traffic("people", 2_000);
    db.change("people", "n1", &["/addresses/*/city"], 40);
}

fn posts(db: &mut Db) {
    for number in 0..210 {
        let comments = list(104 + varied_number(number, 60), |place| {
            format!(r#"{{"id":"c{place}","text":"{}"}}"#, words(number + place, 60))
        });
        db.add(
            "posts",
            format!(r#"{{"id":"p{number}","title":"{}","comments":[{comments}]}}"#, words(number, 20)),
        );
    }
    for number in 0..50 {
        for version in 0..3 {
            db.resize("posts", &format!("p{number}"), "/comments", 104 + version, 105 + version);
        }
    }
    db.change("posts", "p1", &["/comments"], 500);
    db.traffic("posts", 1_200);
}

fn portfolios(db: &mut Db) {
    for number in 0..250 {
        let holdings = list(4, |place| {
            let stock = varied_number(number * 7 + place, 40);
            format!(
                r#"{{"numberHeld":{place},"stock":{{"symbol":"S{stock}","open":{},"high":{},"low":{}}}}}"#,
                stock,
                stock + 1,
                stock + 2
            )
        });
        db.add(
            "portfolios",
            format!(r#"{{"id":"f{number}","name":"{}","holdings":[{holdings}]}}"#, words(number, 12)),
        );
    }
    db.change("portfolios", "f1", &["/holdings/*/stock/open", "/holdings/*/stock/high"], 900);
    db.change("portfolios", "f2", &["/name"], 60);
    db.traffic("portfolios", 300);
}

fn publishers(db: &mut Db) {
    let mut next = 0;
    for number in 0..205 {
        let length = 20 + varied_number(number, 40) + if number % 20 == 0 { 90 } else { 0 };
        let first = next;
        next += length;
        let ids = list(length, |place| format!(r#""t{}""#, first + place));
        db.add(
            "publishers",
            format!(r#"{{"id":"u{number}","name":"{}","books":[{ids}]}}"#, words(number, 12)),
        );
    }
    for number in 0..next {
        db.add("titles", format!(r#"{{"id":"t{number}","name":"{}"}}"#, words(number, 18)));
    }
    for number in 0..60 {
        for version in 0..3 {
            db.resize("publishers", &format!("u{number}"), "/books", 20 + version, 21 + version);
        }
    }
    db.change("publishers", "u1", &["/books"], 700);
    db.traffic("publishers", 1_000);
    db.traffic("titles", 2_000);
}

fn join(db: &mut Db) {
    for number in 0..80 {
        db.add("writers", format!(r#"{{"id":"w{number}","name":"{}"}}"#, words(number, 12)));
    }
    for number in 0..140 {
        db.add("works", format!(r#"{{"id":"k{number}","title":"{}"}}"#, words(number, 16)));
    }
    for number in 0..80 {
        for place in 0..4 {
            db.add(
                "bookWriters",
                format!(
                    r#"{{"id":"j{number}-{place}","writerId":"w{number}","workId":"k{}"}}"#,
                    (number * 7 + place * 11) % 140
                ),
            );
        }
    }
    db.query_in_key("bookWriters", "SELECT * FROM c WHERE c.writerId = 'w1'", 4, 4, 1_500);
    db.reads("writers", "w1", 1_000);
    db.reads("works", "k1", 1_500);
}

fn hybrid(db: &mut Db) {
    let name = |author: usize| words(author * 3 + 5, 14);
    let mut counts = vec![0; 80];
    for number in 0..400 {
        let other = varied_number(number, 79);
        let two = [number % 80, if other == number % 80 { 79 } else { other }];
        two.iter().for_each(|author| counts[*author] += 1);
        let authors = list(2, |place| {
            let stale = number % 20 == 0 && place == 0;
            let shown = if stale { format!("old {}", words(number, 8)) } else { name(two[place]) };
            format!(
                r#"{{"id":"a{}","name":"{shown}","thumbnailUrl":"http://x/{}.png"}}"#,
                two[place], two[place]
            )
        });
        db.add(
            "books",
            format!(r#"{{"id":"b{number}","title":"{}","authors":[{authors}]}}"#, words(number, 18)),
        );
    }
    for author in 0..220 {
        let count = counts.get(author).copied().unwrap_or(0) + i32::from(author % 12 == 0 && author < 80);
        db.add("authors", format!(r#"{{"id":"a{author}","name":"{}","thumbnailUrl":"http://x/{author}.png","countOfBooks":{count}}}"#, name(author)));
    }
    db.change("books", "b1", &["/authors/*/name"], 60);
    db.change("books", "b2", &["/title"], 300);
    db.traffic("books", 1_200);
    db.traffic("authors", 1_200);
}
