//! Whole systems, with the noise that they have: shops, ledgers, bookings, logistics, customers.
//! What is expected follows from the text of the rules, not from what they do.

use quire_profile::Operation;

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

const GB: u64 = 1 << 30;

pub fn cases() -> Vec<Case> {
    let mut cases = shops();
    cases.extend(ledgers());
    cases.extend(bookings());
    cases.extend(customers());
    cases.extend(tenants());
    cases
}

/// Writes that make the arrays of some items longer, three times each.
pub fn grow(db: &mut Db, container: &str, path: &str, ids: impl Iterator<Item = String>, step: u64) {
    for id in ids {
        for version in 0..4 {
            db.resize(container, &id, path, 40 + version * step, 40 + (version + 1) * step);
            db.wait(30_000);
        }
    }
}

/// Lists with an entry of two values for each thing that was put into them.
fn lists(db: &mut Db, container: &str, array: &str, length: fn(usize) -> usize) {
    db.container(container, "/id");
    for number in 0..400 {
        let entries = list(length(number), |entry| {
            format!(r#"{{"title":"{}","price":{}}}"#, words(number + entry, 30), entry % 90)
        });
        // One in thirty was never filled.
        let entries = if number % 30 == 29 { String::new() } else { entries };
        db.add(
            container,
            format!(r#"{{"id":"l{number}","owner":"o{}","{array}":[{entries}]}}"#, number % 50),
        );
    }
    grow(db, container, &format!("/{array}"), (0..200).map(|number| format!("l{number}")), 1);
    db.traffic(container, 1_200);
}

/// Products, and reviews that copy the name of the product.
struct Reviews {
    stale: fn(usize) -> bool,
    dangling: fn(usize) -> bool,
    /// So many products are gone.
    gone: usize,
    corrections: u32,
    ttl: &'static str,
}

const REVIEWS: Reviews = Reviews { stale: |_| false, dangling: |_| false, gone: 5, corrections: 0, ttl: "" };

fn reviews(db: &mut Db, made: &Reviews) {
    db.define(&format!(
        r#"{{"id":"products","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}{}}}"#,
        made.ttl
    ));
    db.container("reviews", "/productId");
    let name = |number: usize| format!("{} {number}", words(number * 7, 14));
    for number in 0..120 {
        db.add(
            "products",
            format!(r#"{{"id":"pr{number}","name":"{}","weight":{}}}"#, name(number), number % 9),
        );
    }
    for number in 0..1_500 {
        let product = varied_number(number, 120);
        let copy = if (made.stale)(number) { format!("old {number}") } else { name(product) };
        let target = if (made.dangling)(number) { 5_000 + number % made.gone } else { product };
        let stars = if number % 40 == 3 { String::new() } else { format!(r#","stars":{}"#, number % 5) };
        db.add(
            "reviews",
            format!(
                r#"{{"id":"rv{number}","productId":"pr{target}","productName":"{copy}"{stars},"text":"{}"}}"#,
                words(number, 60)
            ),
        );
    }
    for number in 0..made.corrections {
        db.change("reviews", &format!("rv{number}"), &["/productName"], 1);
    }
    db.traffic("reviews", 1_500);
    db.traffic("products", 1_500);
}

fn shops() -> Vec<Case> {
    vec![
        fires("wishlists: never emptied", &[("unbounded-array", "wishlists", "/entries")], |db| {
            lists(db, "wishlists", "entries", |number| 40 + varied_number(number, 90));
        }),
        clean("carts: forty entries at most", &["unbounded-array", "history-in-item"], |db| {
            lists(
                db,
                "carts",
                "entries",
                |number| if number % 12 == 0 { 130 } else { varied_number(number, 120) },
            );
        }),
        clean("baskets: a dozen entries, however long they live", &["unbounded-array"], |db| {
            lists(db, "baskets", "entries", |number| varied_number(number, 12));
        }),
        fires(
            "reviews: names of products that were not brought up to date",
            &[("stale-copies", "reviews", "/productName")],
            |db| {
                reviews(db, &Reviews { stale: |number| number % 33 == 1, corrections: 14, ..REVIEWS });
            },
        ),
        clean("reviews: the name that the product had", &["stale-copies"], |db| {
            reviews(db, &Reviews { stale: |number| number % 5 == 1, corrections: 4, ..REVIEWS });
        }),
        clean("reviews: a headline of their own", &["stale-copies"], |db| {
            reviews(db, &Reviews { stale: |number| number % 9 != 1, corrections: 40, ..REVIEWS });
        }),
        fires(
            "reviews: of products that are gone",
            &[("dangling-references", "reviews", "/productId")],
            |db| {
                reviews(db, &Reviews { dangling: |number| number % 50 == 1, ..REVIEWS });
            },
        ),
        clean("reviews: one product in five was never there", &["dangling-references"], |db| {
            reviews(db, &Reviews { dangling: |number| number % 40 == 1, gone: 1_500, ..REVIEWS });
        }),
        clean("reviews: of offers that expire", &["dangling-references"], |db| {
            reviews(
                db,
                &Reviews { dangling: |number| number % 50 == 1, ttl: r#","defaultTtl":86400"#, ..REVIEWS },
            );
        }),
        fires(
            "reviews: gone products and stale names",
            &[("dangling-references", "reviews", "/productId"), ("stale-copies", "reviews", "/productName")],
            |db| {
                let made = Reviews {
                    stale: |number| number % 20 == 1,
                    dangling: |number| number % 40 == 2,
                    corrections: 25,
                    ..REVIEWS
                };
                reviews(db, &made);
            },
        ),
        fires("wholesale: a status beside a frozen list", &[("hot-and-cold", "orders", "/lines")], |db| {
            wholesale(db, 400)
        }),
        clean("wholesale: orders that hardly change", &["hot-and-cold", "large-items"], |db| {
            wholesale(db, 60)
        }),
        clean("shop: quantities that are ids of users by chance", &["dangling-references"], |db| {
            db.container("users", "/id");
            db.container("orders", "/id");
            for number in 0..400 {
                db.add("users", format!(r#"{{"id":"{number}","name":"{}"}}"#, words(number, 12)));
            }
            for number in 0..900 {
                let quantity = if number % 30 == 0 { 1_000 + number } else { varied_number(number, 60) };
                db.add("orders", format!(r#"{{"id":"o{number}","quantity":"{quantity}"}}"#));
            }
            db.traffic("orders", 1_200);
        }),
    ]
}

/// Orders of 300 lines, of which only the status changes.
fn wholesale(db: &mut Db, changes: u32) {
    db.container("orders", "/customer");
    for number in 0..220 {
        let lines = list(300, |line| format!(r#"{{"article":"{}","count":{line}}}"#, words(line, 50)));
        db.add(
            "orders",
            format!(
                r#"{{"id":"o{number}","customer":"c{}","status":"open","lines":[{lines}]}}"#,
                number % 90
            ),
        );
    }
    for number in 0..changes {
        db.change("orders", &format!("o{}", number % 220), &["/status"], 1);
    }
    db.traffic("orders", 1_200);
}

/// Accounts with the sum of their entries.
fn accounts(db: &mut Db, off: fn(usize) -> i64) {
    db.container("accounts", "/id");
    db.container("entries", "/accountId");
    let mut number = 0;
    for account in 0..250 {
        let mut balance = 0;
        for _ in 0..2 + varied_number(account, 10) {
            let amount = varied_number(number, 500) as i64 - 200;
            balance += amount;
            db.add(
                "entries",
                format!(
                    r#"{{"id":"e{number}","accountId":"ac{account}","amount":{amount},"text":"{}"}}"#,
                    words(number, 20)
                ),
            );
            number += 1;
        }
        db.add("accounts", format!(r#"{{"id":"ac{account}","balance":{}}}"#, balance + off(account)));
    }
    db.traffic("accounts", 1_500);
    db.creates("entries", "e7", 1_200);
}

fn ledgers() -> Vec<Case> {
    vec![
        clean("ledger: balances that are right", &["rollup-wrong", "repeated-aggregate"], |db| {
            accounts(db, |_| 0)
        }),
        fires("ledger: one account in twenty is off", &[("rollup-wrong", "accounts", "/balance")], |db| {
            accounts(db, |account| if account % 20 == 3 { 17 } else { 0 });
        }),
        clean("ledger: balances with an opening amount", &["rollup-wrong"], |db| {
            accounts(db, |account| if account % 3 == 0 { 0 } else { varied_number(account, 900) as i64 });
        }),
        fires("ledger: a key for each day", &[("key-monotone", "journal", "/day")], |db| days(db, true)),
        clean("ledger: days of the past, loaded at once", &["key-monotone"], |db| days(db, false)),
        fires("ledger: debit and credit by two requests", &[("not-atomic", "postings", "/account")], |db| {
            postings(db, false)
        }),
        clean("ledger: debit and credit in one batch", &["not-atomic"], |db| postings(db, true)),
    ]
}

/// Entries of 40 days; as they come, or all days at the same time.
fn days(db: &mut Db, as_they_come: bool) {
    db.container("journal", "/day");
    for number in 0..800 {
        let day = number / 20;
        db.add(
            "journal",
            format!(
                r#"{{"id":"j{number}","day":"2026-{:02}-{:02}","amount":{}}}"#,
                1 + day / 28,
                1 + day % 28,
                number % 77
            ),
        );
    }
    for hour in 0..12 {
        for part in 0..30 {
            let number = if as_they_come { hour * 20 } else { (part * 27 + hour * 13) % 800 };
            db.creates("journal", &format!("j{number}"), 5);
        }
        db.wait(3_600_000);
    }
}

fn postings(db: &mut Db, in_batch: bool) {
    db.container("postings", "/account");
    for number in 0..400 {
        let kind = if number % 2 == 0 { "debit" } else { "credit" };
        db.add(
            "postings",
            format!(r#"{{"id":"p{number}","account":"a{}","kind":"{kind}","amount":{number}}}"#, number / 2),
        );
    }
    db.actions(150, |db, number| {
        for (id, kind) in [(number * 2, 1), (number * 2 + 1, 2)] {
            db.record("postings", &format!("p{id}"), Operation::Create, 1, |record| {
                record.status = 201;
                record.charge = 6.0;
                let change = quire_profile::ItemChange {
                    size_after: Some(80),
                    item_type: Some(kind),
                    in_batch,
                    ..Default::default()
                };
                record.change = Some(change);
            });
        }
    });
    db.traffic("postings", 1_000);
}

/// Bookings of rooms, read together with them.
fn rooms(db: &mut Db, rooms: usize, projected: bool) {
    db.container("rooms", "/id");
    db.container("bookings", "/guest");
    for number in 0..rooms {
        let (name, text) = (words(number, 12), words(number + 9, 400));
        db.add("rooms", format!(r#"{{"id":"room{number}","name":"{name}","text":"{text}"}}"#));
    }
    for number in 0..700 {
        let room = varied_number(number, rooms);
        db.add(
            "bookings",
            format!(
                r#"{{"id":"b{number}","guest":"g{}","roomId":"room{room}","nights":{}}}"#,
                number % 90,
                number % 9
            ),
        );
    }
    db.actions(600, |db, number| {
        let room = format!("room{}", varied_number(number, rooms));
        db.read("bookings", &format!("b{number}"));
        match projected {
            true => db.query_with(
                "rooms",
                &format!("SELECT c.name FROM c WHERE c.id = '{room}'"),
                1,
                1,
                1,
                true,
                &[&room],
            ),
            false => db.read("rooms", &room),
        }
    });
    db.creates("bookings", "b3", 300);
    db.traffic("bookings", 500);
    db.traffic("rooms", 500);
}

fn bookings() -> Vec<Case> {
    vec![
        clean(
            "bookings: the whole room is read after the booking",
            &["copy-missing", "embed-together", "n-plus-one"],
            |db| rooms(db, 150, false),
        ),
        fires(
            "bookings: the name of the room is looked up by a query",
            &[("copy-missing", "bookings", "/roomId"), ("query-for-point-read", "rooms", "/id")],
            |db| rooms(db, 150, true),
        ),
        fires("tickets: the status is the key", &[("key-mutable", "tickets", "/status")], |db| {
            tickets(db, 14)
        }),
        clean("tickets: moved by hand, now and then", &["key-mutable"], |db| tickets(db, 5)),
        fires(
            "parcels: every scan is kept in the parcel",
            &[("history-in-item", "parcels", "/history")],
            |db| parcels(db, 200),
        ),
        clean("parcels: a dozen scans until they arrive", &["history-in-item"], |db| parcels(db, 9)),
        clean(
            "parcels: fifty scans, which a page of its own would not make cheaper",
            &["history-in-item"],
            |db| parcels(db, 60),
        ),
    ]
}

fn tickets(db: &mut Db, moves: u32) {
    db.container("tickets", "/status");
    for number in 0..300 {
        db.add(
            "tickets",
            format!(r#"{{"id":"t{number}","status":"s{}","title":"{}"}}"#, number % 6, words(number, 30)),
        );
    }
    for number in 0..moves {
        let id = format!("t{number}");
        db.record("tickets", &id, Operation::Replace, 1, |record| {
            (record.status, record.sub_status) = (400, 1001)
        });
        db.wait(90_000);
    }
    db.traffic("tickets", 1_400);
}

fn parcels(db: &mut Db, scans: usize) {
    db.container("parcels", "/id");
    for number in 0..300 {
        let history = list(scans / 2 + varied_number(number, scans / 2 + 1), |scan| {
            format!(r#"{{"at":"2026-03-{:02}T08:00:00Z","place":"{}"}}"#, 1 + scan % 28, words(scan, 12))
        });
        let note = if number % 25 == 0 { r#","note":"fragile""# } else { "" };
        db.add(
            "parcels",
            format!(r#"{{"id":"p{number}","to":"{}"{note},"history":[{history}]}}"#, words(number, 30)),
        );
    }
    grow(db, "parcels", "/history", (0..150).map(|number| format!("p{number}")), 1);
    db.traffic("parcels", 1_000);
}

fn contacts(db: &mut Db, item: fn(usize) -> String) {
    db.container("contacts", "/company");
    for number in 0..600 {
        db.add(
            "contacts",
            format!(r#"{{"id":"c{number}","company":"co{}",{}}}"#, number % 120, item(number)),
        );
    }
    db.traffic("contacts", 1_200);
}

fn attributes(number: usize) -> String {
    let some = (0..4).map(|place| (number * 3 + place * 7) % 25).collect::<std::collections::BTreeSet<_>>();
    let members: Vec<String> = some
        .into_iter()
        .map(|name| format!(r#""field{name}":{}"#, varied_number(number + name, 40)))
        .collect();
    format!(r#""name":"{}","custom":{{{}}}"#, words(number, 14), members.join(","))
}

fn customers() -> Vec<Case> {
    vec![
        fires("contacts: telephone numbers of two types", &[("type-drift", "contacts", "/phone")], |db| {
            contacts(db, |number| match number % 20 {
                0 => format!(r#""phone":{}"#, 100_000 + number),
                7 => r#""phone":null"#.to_owned(),
                _ => format!(r#""phone":"0{number}""#),
            });
            db.query("contacts", "SELECT * FROM c WHERE c.phone = '0123'", 1, 1, 30);
        }),
        clean("contacts: fields that say of which type they are", &["type-drift"], |db| {
            contacts(db, |number| match number % 2 {
                0 => format!(r#""field":{{"kind":"number","value":{number}}}"#),
                _ => format!(r#""field":{{"kind":"text","value":"{}"}}"#, words(number, 9)),
            });
            db.query("contacts", "SELECT * FROM c WHERE c.field['value'] = 7", 1, 1, 30);
        }),
        clean("contacts: two types that nobody filters by", &["type-drift"], |db| {
            contacts(db, |number| {
                if number % 10 == 0 { format!(r#""fax":{number}"#) } else { format!(r#""fax":"0{number}""#) }
            });
        }),
        fires(
            "contacts: a third is deleted and still there",
            &[("soft-deletes", "contacts", "/isDeleted")],
            |db| {
                contacts(db, |number| {
                    format!(r#""isDeleted":{},"city":"t{}""#, number % 3 == 0, number % 40)
                });
                db.query(
                    "contacts",
                    "SELECT * FROM c WHERE c.city = 't1' AND c.isDeleted = false",
                    10,
                    10,
                    400,
                );
            },
        ),
        clean("contacts: one in twenty is deleted", &["soft-deletes"], |db| {
            contacts(db, |number| format!(r#""isDeleted":{},"city":"t{}""#, number % 20 == 0, number % 40));
            db.query("contacts", "SELECT * FROM c WHERE c.city = 't1' AND c.isDeleted = false", 14, 14, 400);
        }),
        fires(
            "contacts: fields that each customer invents",
            &[("sparse-attributes", "contacts", "/custom")],
            |db| {
                contacts(db, attributes);
                for field in 0..5 {
                    db.query(
                        "contacts",
                        &format!("SELECT * FROM c WHERE c.custom.field{field} = 3"),
                        4,
                        4,
                        40,
                    );
                }
            },
        ),
        clean("contacts: invented fields, one of which is asked for", &["sparse-attributes"], |db| {
            contacts(db, attributes);
            db.query("contacts", "SELECT * FROM c WHERE c.custom.field1 = 3", 4, 4, 200);
        }),
        fires(
            "contacts: names are compared in lower case",
            &[("function-hides-index", "contacts", "/name")],
            |db| {
                contacts(db, |number| format!(r#""name":"{}""#, words(number, 14)));
                db.query("contacts", "SELECT * FROM c WHERE LOWER(c.name) = 'river'", 600, 2, 100);
            },
        ),
        clean("contacts: lower case within a small result", &["function-hides-index"], |db| {
            contacts(db, |number| format!(r#""name":"{}","city":"t{}""#, words(number, 14), number % 40));
            db.query(
                "contacts",
                "SELECT * FROM c WHERE c.city = 't4' AND LOWER(c.name) = 'river'",
                15,
                2,
                100,
            );
        }),
    ]
}

/// Items of gigabytes, by tenant.
fn tenanted(db: &mut Db, count: usize, tenant: fn(usize) -> usize, bytes: fn(usize) -> u64) {
    db.container("documents", "/tenant").partitions = 3;
    for number in 0..count {
        db.add_sized(
            "documents",
            format!(r#"{{"id":"d{number}","tenant":"t{}"}}"#, tenant(number)),
            Some(bytes(number)),
        );
    }
}

fn tenants() -> Vec<Case> {
    vec![
        fires(
            "tenants: one is at 15 of 20 GB, among many",
            &[("key-near-limit", "documents", "/tenant")],
            |db| {
                tenanted(db, 315, |number| if number < 15 { 0 } else { 1 + number % 150 }, |_| GB);
            },
        ),
        clean("tenants: gigabytes, evenly", &["key-near-limit", "key-skewed", "key-few-values"], |db| {
            tenanted(db, 400, |number| number % 200, |_| GB);
        }),
        fires("tenants: one has half of the bytes", &[("key-skewed", "documents", "/tenant")], |db| {
            tenanted(
                db,
                500,
                |number| if number < 40 { 0 } else { number % 160 },
                |number| if number < 40 { GB / 10 } else { GB / 200 },
            );
        }),
        clean("tenants: one has half of a few megabytes", &["key-skewed"], |db| {
            tenanted(
                db,
                500,
                |number| if number < 40 { 0 } else { number % 160 },
                |number| if number < 40 { 40_000 } else { 2_000 },
            );
        }),
    ]
}
