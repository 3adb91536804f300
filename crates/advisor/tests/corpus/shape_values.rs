//! Cases of the rules about values and names.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = blobs();
    cases.extend(types());
    cases.extend(names());
    cases.extend(values());
    cases
}

/// Items with one more member each, and plain traffic.
fn items(db: &mut Db, name: &str, count: usize, member: impl Fn(usize) -> String) {
    db.container(name, "/id");
    for number in 0..count {
        let member = member(number);
        let comma = if member.is_empty() { "" } else { "," };
        db.add(name, format!(r#"{{"id":"{name}-{number}","title":"{}"{comma}{member}}}"#, words(number, 24)));
    }
    db.traffic(name, 2_000);
    db.change(name, &format!("{name}-0"), &["/title"], 100);
}

fn base64(seed: usize, bytes: usize) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let part: String = (0..200).map(|place| char::from(LETTERS[varied_number(seed + place, 64)])).collect();
    part.repeat(bytes / 200)
}

fn blobs() -> Vec<Case> {
    vec![
        fires("people: photos as base64", &[("blob-in-item", "people", "/photo")], |db| {
            items(db, "people", 210, |number| format!(r#""photo":"{}""#, base64(number, 26_000)));
        }),
        fires(
            "forms: signatures as data URLs in half of the items",
            &[("blob-in-item", "forms", "/signature")],
            |db| {
                items(db, "forms", 210, |number| match number % 2 {
                    0 => format!(r#""signature":"data:image/png;base64,{}""#, base64(number, 30_000)),
                    _ => String::new(),
                });
            },
        ),
        clean("articles: long texts of words", &["blob-in-item"], |db| {
            items(db, "articles", 210, |number| format!(r#""body":"{}""#, words(number, 26_000)));
        }),
        clean("sessions: short tokens", &["blob-in-item"], |db| {
            items(db, "sessions", 300, |number| format!(r#""token":"data:{}""#, base64(number, 900)));
        }),
        clean("avatars: pictures of 12 KB", &["blob-in-item"], |db| {
            items(db, "avatars", 300, |number| format!(r#""picture":"data:{}""#, base64(number, 12_000)));
        }),
        clean("mail: a few attachments", &["blob-in-item"], |db| {
            items(db, "mail", 300, |number| match number % 6 {
                0 => format!(r#""file":"{}""#, base64(number, 26_000)),
                _ => String::new(),
            });
        }),
        clean("sequences: long codes that queries compare", &["blob-in-item"], |db| {
            items(db, "genes", 210, |number| format!(r#""code":"{}""#, base64(number, 24_000)));
            db.query("genes", "SELECT c.id FROM c WHERE STARTSWITH(c.code, 'ACGT')", 5, 5, 300);
        }),
        clean("backups: blobs that are written once and hardly read", &["blob-in-item"], |db| {
            db.container("backups", "/id");
            for number in 0..205 {
                db.add(
                    "backups",
                    format!(
                        r#"{{"id":"b{number}","kind":"k{}","data":"{}"}}"#,
                        number % 9,
                        base64(number, 22_000)
                    ),
                );
            }
            db.reads("backups", "b0", 10);
            db.query("backups", "SELECT TOP 100 c.id FROM c WHERE c.kind = 'a'", 100, 100, 9_000);
        }),
    ]
}

fn shop(db: &mut Db, customers: usize, orders: usize, typed: bool, queries: u32) {
    db.container("shop", "/pk");
    let kind = |name: &str| if typed { format!(r#","type":"{name}""#) } else { String::new() };
    for number in 0..customers {
        db.add(
            "shop",
            format!(
                r#"{{"id":"k{number}","pk":"p{}","email":"e{number}","phone":"{}","street":"{}"{}}}"#,
                number % 60,
                number * 7,
                words(number, 9),
                kind("customer")
            ),
        );
    }
    for number in 0..orders {
        db.add(
            "shop",
            format!(
                r#"{{"id":"o{number}","pk":"p{}","total":{},"placed":{number},"paid":true{}}}"#,
                number % 60,
                number % 90,
                kind("order")
            ),
        );
    }
    db.traffic("shop", 2_000);
    db.query_in_key("shop", "SELECT * FROM c WHERE c.pk = 'p1' AND IS_DEFINED(c.total)", 9, 9, queries);
}

fn types() -> Vec<Case> {
    vec![
        fires("shop: customers and orders without a type", &[("missing-discriminator", "shop", "")], |db| {
            shop(db, 150, 200, false, 50)
        }),
        fires(
            "school: pupils, rooms and lessons without a type",
            &[("missing-discriminator", "school", "")],
            |db| {
                db.container("school", "/pk");
                for number in 0..120 {
                    db.add(
                        "school",
                        format!(
                            r#"{{"id":"a{number}","pk":"p{}","first":"x{number}","born":{number}}}"#,
                            number % 50
                        ),
                    );
                    db.add(
                        "school",
                        format!(
                            r#"{{"id":"b{number}","pk":"p{}","floor":{},"seats":{number}}}"#,
                            number % 50,
                            number % 4
                        ),
                    );
                    db.add(
                        "school",
                        format!(
                            r#"{{"id":"c{number}","pk":"p{}","subject":"s{number}","hour":{number}}}"#,
                            number % 50
                        ),
                    );
                }
                db.traffic("school", 2_000);
                db.query_in_key("school", "SELECT * FROM c WHERE c.pk = 'p1' AND c.floor = 1", 9, 9, 50);
            },
        ),
        clean("shop: customers and orders with a type", &["missing-discriminator"], |db| {
            shop(db, 150, 200, true, 50)
        }),
        clean("shop: one kind, and a dozen test items", &["missing-discriminator"], |db| {
            shop(db, 12, 300, false, 50)
        }),
        clean("shop: a few foreign items of a tenth", &["missing-discriminator"], |db| {
            shop(db, 40, 260, false, 50)
        }),
        clean("shop: two kinds that nobody queries", &["missing-discriminator"], |db| {
            shop(db, 150, 200, false, 3)
        }),
        clean("people: many optional properties, one kind", &["missing-discriminator"], |db| {
            db.container("people", "/id");
            for number in 0..400 {
                let optional = (0..6)
                    .filter(|place| varied_number(number * 7 + place, 3) == 0)
                    .map(|place| format!(r#","o{place}":{number}"#));
                db.add(
                    "people",
                    format!(r#"{{"id":"n{number}","first":"a","last":"b","born":{number},"city":"c","mail":"m"{}}}"#, optional.collect::<String>()),
                );
            }
            db.traffic("people", 2_000);
            db.query("people", "SELECT TOP 5 * FROM c WHERE c.city = 'c'", 5, 5, 50);
        }),
        clean("big shop: a tiny second kind of sixty in 2,000", &["missing-discriminator"], |db| {
            shop(db, 60, 1_500, false, 50)
        }),
    ]
}

fn attributes(db: &mut Db, count: usize, one_in: usize, filtered: usize, executions: u32) {
    db.container("products", "/id");
    for number in 0..400 {
        let own = (0..count).filter(|place| varied_number(number * 41 + place * 3, one_in) == 0);
        let own = own.map(|place| format!(r#""a{place}":"v{}""#, number % 7)).collect::<Vec<_>>().join(",");
        db.add(
            "products",
            format!(r#"{{"id":"p{number}","name":"{}","specs":{{{own}}}}}"#, words(number, 20)),
        );
    }
    db.traffic("products", 2_000);
    for place in 0..filtered {
        db.query(
            "products",
            &format!("SELECT TOP 9 * FROM c WHERE c.specs.a{place} = 'v1'"),
            9,
            9,
            executions / filtered.max(1) as u32,
        );
    }
}

fn names() -> Vec<Case> {
    vec![
        fires(
            "products: thirty optional attributes, filtered",
            &[("sparse-attributes", "products", "/specs")],
            |db| attributes(db, 30, 5, 6, 300),
        ),
        fires(
            "parts: forty optional attributes, filtered",
            &[("sparse-attributes", "products", "/specs")],
            |db| attributes(db, 40, 8, 4, 200),
        ),
        clean("products: thirty attributes that most have", &["sparse-attributes"], |db| {
            attributes(db, 30, 2, 6, 300)
        }),
        clean("products: a dozen optional attributes", &["sparse-attributes"], |db| {
            attributes(db, 12, 5, 6, 300)
        }),
        clean("products: only two of them are filtered", &["sparse-attributes"], |db| {
            attributes(db, 30, 5, 2, 300)
        }),
        clean("products: filtered now and then", &["sparse-attributes"], |db| attributes(db, 30, 5, 6, 60)),
        // Names that are data.
        fires("votes: one name for each voter", &[("data-as-names", "polls", "/votes")], |db| {
            named(db, "polls", "votes", |number, place| format!(r#""u{}":{place}"#, number * 5 + place));
        }),
        fires("calendar: one name for each day and guest", &[("data-as-names", "rooms", "/nights")], |db| {
            named(db, "rooms", "nights", |number, place| {
                format!(r#""n{}":{{"guest":"g{place}","paid":true}}"#, number * 5 + place)
            });
        }),
        clean("texts: the same forty languages everywhere", &["data-as-names"], |db| {
            named(db, "texts", "names", |number, place| format!(r#""l{}":"x""#, (number + place) % 40));
        }),
        clean("settings: 240 different switches, all known early", &["data-as-names"], |db| {
            named(db, "settings", "flags", |number, place| {
                format!(r#""f{}":true"#, (number * 5 + place) % 240)
            });
        }),
        clean("imports: many columns of all kinds", &["data-as-names"], |db| {
            named(db, "imports", "columns", |number, place| {
                let value = ["1", "\"x\"", "true", "[1]", "{\"q\":1}"][(number + place) % 5];
                format!(r#""c{}":{value}"#, number * 5 + place)
            });
        }),
        // Depth.
        fires("trees: seventy levels", &[("deep-nesting", "trees", "")], |db| nested(db, "trees", 70)),
        fires("formulas: a hundred levels", &[("deep-nesting", "formulas", "")], |db| {
            nested(db, "formulas", 100)
        }),
        clean("menus: five levels", &["deep-nesting"], |db| nested(db, "menus", 5)),
        clean("outlines: sixty levels", &["deep-nesting"], |db| nested(db, "outlines", 58)),
    ]
}

fn named(db: &mut Db, container: &str, member: &str, child: fn(usize, usize) -> String) {
    items(db, container, 300, |number| {
        format!(r#""{member}":{{{}}}"#, list(5, |place| child(number, place)))
    });
}

fn nested(db: &mut Db, container: &str, depth: usize) {
    items(db, container, 210, |number| {
        format!(r#""root":{}{number}{}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth))
    });
}

fn filtered(db: &mut Db, container: &str, sql: &str, executions: u32) {
    db.query(container, sql, 9, 9, executions);
}

fn values() -> Vec<Case> {
    vec![
        fires("tweets: ids as numbers beyond 2^53", &[("number-fidelity", "tweets", "/tweetId")], |db| {
            items(db, "tweets", 300, |number| {
                format!(r#""tweetId":{}"#, 9_100_000_000_000_001_001u64 + number as u64 * 17)
            });
        }),
        fires("ledger: amounts in tiny units", &[("number-fidelity", "ledger", "/amount")], |db| {
            items(db, "ledger", 300, |number| {
                format!(
                    r#""amount":{}"#,
                    if number % 10 == 0 { 12_345_678_901_234_567u64 } else { number as u64 }
                )
            });
        }),
        clean("sensors: times in milliseconds", &["number-fidelity"], |db| {
            items(db, "sensors", 300, |number| {
                format!(
                    r#""at":{}"#,
                    1_790_000_000_000u64 + number as u64 * varied_number(number, 99_999) as u64
                )
            });
        }),
        clean("physics: large measurements as doubles", &["number-fidelity"], |db| {
            items(db, "physics", 300, |number| format!(r#""energy":{}.5e20"#, number + 1));
        }),
        clean("numbers: a single huge one", &["number-fidelity"], |db| {
            items(db, "numbers", 300, |number| {
                format!(r#""n":{}"#, if number == 7 { 9_900_000_000_000_000_000u64 } else { 5 })
            });
        }),
        // Types.
        fires("prices: numbers and texts", &[("type-drift", "prices", "/price")], |db| {
            items(db, "prices", 300, |number| {
                if number % 4 == 0 {
                    format!(r#""price":"{number}""#)
                } else {
                    format!(r#""price":{number}"#)
                }
            });
            filtered(db, "prices", "SELECT TOP 9 * FROM c WHERE c.price > 5", 50);
        }),
        fires("zip codes: texts and numbers, sorted", &[("type-drift", "places", "/zip")], |db| {
            items(db, "places", 300, |number| {
                if number % 20 == 0 { format!(r#""zip":{number}"#) } else { format!(r#""zip":"{number}""#) }
            });
            filtered(db, "places", "SELECT TOP 9 * FROM c ORDER BY c.zip", 20);
        }),
        clean("prices: numbers and nulls", &["type-drift"], |db| {
            items(db, "prices", 300, |number| {
                if number % 4 == 0 { r#""price":null"#.to_owned() } else { format!(r#""price":{number}"#) }
            });
            filtered(db, "prices", "SELECT TOP 9 * FROM c WHERE c.price > 5", 50);
        }),
        clean("settings: a kind beside decides the type", &["type-drift"], |db| {
            items(db, "settings", 300, |number| match number % 3 {
                0 => format!(r#""kind":"number","value":{number}"#),
                1 => format!(r#""kind":"text","value":"{number}""#),
                _ => r#""kind":"switch","value":true"#.to_owned(),
            });
            filtered(db, "settings", "SELECT TOP 9 * FROM c WHERE c[\"value\"] = 5", 50);
        }),
        clean("notes: mixed, and nobody filters", &["type-drift"], |db| {
            items(db, "notes", 300, |number| {
                if number % 4 == 0 {
                    format!(r#""extra":"{number}""#)
                } else {
                    format!(r#""extra":{number}"#)
                }
            });
            filtered(db, "notes", "SELECT TOP 9 * FROM c WHERE c.title = 'x'", 50);
        }),
        clean("prices: one slip in three hundred", &["type-drift"], |db| {
            items(db, "prices", 300, |number| {
                if number == 4 { r#""price":"4""#.to_owned() } else { format!(r#""price":{number}"#) }
            });
            filtered(db, "prices", "SELECT TOP 9 * FROM c WHERE c.price > 5", 50);
        }),
        // Dates.
        fires("orders: local dates, sorted", &[("unsortable-dates", "orders", "/placed")], |db| {
            items(db, "orders", 300, |number| {
                format!(r#""placed":"{:02}/{:02}/2026""#, 1 + number % 12, 1 + number % 28)
            });
            filtered(db, "orders", "SELECT TOP 9 * FROM c ORDER BY c.placed DESC", 50);
        }),
        fires("events: with and without milliseconds", &[("unsortable-dates", "events", "/at")], |db| {
            items(db, "events", 300, |number| {
                let fraction = if number % 3 == 0 { ".250" } else { "" };
                format!(
                    r#""at":"2026-03-{:02}T10:00:{:02}{fraction}Z""#,
                    1 + varied_number(number, 28),
                    varied_number(number + 3, 60)
                )
            });
            filtered(db, "events", "SELECT TOP 9 * FROM c WHERE c.at > '2026'", 50);
        }),
        clean("orders: ISO dates, sorted", &["unsortable-dates"], |db| {
            items(db, "orders", 300, |number| {
                format!(
                    r#""placed":"2026-{:02}-{:02}""#,
                    1 + varied_number(number, 12),
                    1 + varied_number(number + 1, 28)
                )
            });
            filtered(db, "orders", "SELECT TOP 9 * FROM c ORDER BY c.placed DESC", 50);
        }),
        clean("people: local birthdays, only shown", &["unsortable-dates"], |db| {
            items(db, "people", 300, |number| {
                format!(
                    r#""born":"{:02}.{:02}.1980""#,
                    1 + varied_number(number, 28),
                    1 + varied_number(number + 1, 12)
                )
            });
            filtered(db, "people", "SELECT TOP 9 * FROM c WHERE c.title > 'a'", 50);
        }),
        clean("notes: texts of which some are dates", &["unsortable-dates"], |db| {
            items(db, "notes", 300, |number| {
                if number % 3 == 0 {
                    r#""due":"11/17/2026""#.to_owned()
                } else {
                    format!(r#""due":"soon {number}""#)
                }
            });
            filtered(db, "notes", "SELECT TOP 9 * FROM c ORDER BY c.due", 50);
        }),
        clean("events: one odd date in three hundred", &["unsortable-dates"], |db| {
            items(db, "events", 300, |number| match number {
                9 => r#""at":"2026-03-01 10:00:00""#.to_owned(),
                _ => format!(r#""at":"2026-03-{:02}T10:00:00Z""#, 1 + varied_number(number, 28)),
            });
            filtered(db, "events", "SELECT TOP 9 * FROM c WHERE c.at > '2026'", 50);
        }),
        // Ids.
        fires("files: ids are paths", &[("risky-ids", "files", "/id")], |db| {
            ids(db, "files", |number| format!("home/user{number}/notes"))
        }),
        fires("links: some ids are addresses", &[("risky-ids", "links", "/id")], |db| {
            ids(db, "links", |number| {
                if number % 20 == 0 { format!("https://a.example/?q={number}") } else { format!("l{number}") }
            });
        }),
        clean("keys: ids with dots, dashes and colons", &["risky-ids"], |db| {
            ids(db, "keys", |number| format!("a.b-c:{number}_x"))
        }),
        clean("keys: one odd id", &["risky-ids"], |db| {
            ids(db, "keys", |number| if number == 3 { "a?b".to_owned() } else { format!("k{number}") })
        }),
    ]
}

fn ids(db: &mut Db, container: &str, id: fn(usize) -> String) {
    db.container(container, "/id");
    for number in 0..300 {
        db.add(container, format!(r#"{{"id":"{}","title":"{}"}}"#, id(number), words(number, 20)));
    }
    db.traffic(container, 2_000);
}
