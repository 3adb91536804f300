//! Cases of the rules about partition keys.

use quire_profile::Operation;

use crate::harness::Db;
use crate::shape::{varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = values();
    cases.extend(load());
    cases.extend(queries());
    cases
}

const MB: u64 = 1 << 20;

struct Keys {
    partitions: u32,
    count: usize,
    key: fn(usize) -> String,
    bytes: fn(usize) -> Option<u64>,
}

const EVEN: Keys =
    Keys { partitions: 1, count: 400, key: |number| format!(r#""k{}""#, number % 200), bytes: |_| None };

fn keyed(db: &mut Db, made: &Keys) {
    db.container("events", "/key").partitions = made.partitions;
    for number in 0..made.count {
        let key = (made.key)(number);
        let key = if key.is_empty() { String::new() } else { format!(r#","key":{key}"#) };
        db.add_sized(
            "events",
            format!(r#"{{"id":"e{number}","text":"{}"{key}}}"#, words(number, 20)),
            (made.bytes)(number),
        );
    }
    db.query_in_key("events", "SELECT TOP 5 * FROM c WHERE c.text > 'a'", 5, 5, 2_000);
}

fn values() -> Vec<Case> {
    vec![
        fires("countries: twelve keys over four partitions", &[("key-few-values", "events", "/key")], |db| {
            keyed(db, &Keys { partitions: 4, key: |number| format!(r#""c{}""#, number % 12), ..EVEN });
        }),
        fires("states: eight keys and three gigabytes", &[("key-few-values", "events", "/key")], |db| {
            keyed(
                db,
                &Keys { key: |number| format!(r#""s{}""#, number % 8), bytes: |_| Some(8 * MB), ..EVEN },
            );
        }),
        clean("small: five keys, a few kilobytes", &["key-few-values"], |db| {
            keyed(db, &Keys { key: |number| format!(r#""c{}""#, number % 5), ..EVEN });
        }),
        clean("tenants: 150 keys over four partitions", &["key-few-values"], |db| {
            keyed(db, &Keys { partitions: 4, key: |number| format!(r#""t{}""#, number % 150), ..EVEN });
        }),
        clean("tenants: 200 keys and three gigabytes", &["key-few-values"], |db| {
            keyed(db, &Keys { bytes: |_| Some(8 * MB), ..EVEN })
        }),
        // Skew.
        fires("tenants: one holds half of the data", &[("key-skewed", "events", "/key")], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| {
                        if number % 2 == 0 { r#""big""#.to_owned() } else { format!(r#""t{number}""#) }
                    },
                    bytes: |_| Some(9 * MB),
                    ..EVEN
                },
            );
        }),
        fires("devices: a few hold nearly everything", &[("key-skewed", "events", "/key")], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| format!(r#""d{number}""#),
                    bytes: |number| Some(if number % 30 == 0 { 1_100 * MB } else { MB }),
                    ..EVEN
                },
            );
        }),
        clean("tenants: one holds half of a few megabytes", &["key-skewed"], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| {
                        if number % 2 == 0 { r#""big""#.to_owned() } else { format!(r#""t{number}""#) }
                    },
                    ..EVEN
                },
            );
        }),
        clean("tenants: large, and even", &["key-skewed"], |db| {
            keyed(db, &Keys { bytes: |_| Some(600 * MB), ..EVEN })
        }),
        Case {
            name: "regions: sixty keys, one with a quarter",
            similar_to: &["key-skewed"],
            expect: &[("key-few-values", "events", "/key")],
            build: |db| {
                keyed(
                    db,
                    &Keys {
                        key: |number| {
                            if number % 4 == 0 {
                                r#""k0""#.to_owned()
                            } else {
                                format!(r#""k{}""#, number % 60)
                            }
                        },
                        bytes: |_| Some(12 * MB),
                        ..EVEN
                    },
                );
            },
        },
        // The limit.
        fires("logs: one key at 12 GB", &[("key-near-limit", "events", "/key")], |db| near(db, 12_000)),
        fires("logs: one key at 19 GB", &[("key-near-limit", "events", "/key")], |db| near(db, 19_000)),
        clean("logs: keys of 8 GB", &["key-near-limit"], |db| near(db, 8_000)),
        clean("logs: keys of 3 GB", &["key-near-limit"], |db| near(db, 3_000)),
        // Odd values.
        fires("orders: items without a key", &[("key-odd-values", "events", "/key")], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| {
                        if number % 25 == 0 { String::new() } else { format!(r#""k{}""#, number % 200) }
                    },
                    ..EVEN
                },
            );
        }),
        fires("orders: numbers among texts", &[("key-odd-values", "events", "/key")], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| {
                        if number % 10 == 0 { number.to_string() } else { format!(r#""k{}""#, number % 200) }
                    },
                    ..EVEN
                },
            );
        }),
        clean("orders: three without a key", &["key-odd-values"], |db| {
            keyed(
                db,
                &Keys {
                    key: |number| {
                        if number % 190 == 7 { String::new() } else { format!(r#""k{}""#, number % 200) }
                    },
                    ..EVEN
                },
            );
        }),
        clean("orders: keys are numbers", &["key-odd-values"], |db| {
            keyed(db, &Keys { key: |number| (number % 210).to_string(), ..EVEN })
        }),
    ]
}

/// Even keys of which each has as many megabytes.
fn near(db: &mut Db, megabytes: u64) {
    db.container("events", "/key");
    for number in 0..400u64 {
        db.add_sized(
            "events",
            format!(r#"{{"id":"e{number}","key":"k{}"}}"#, number % 200),
            Some(megabytes * 1_000_000 / 2),
        );
    }
    db.query_in_key("events", "SELECT TOP 5 * FROM c WHERE c.key = 'k1'", 5, 5, 2_000);
}

/// Minutes of load on keys: the share of one, and how much is charged for it.
pub fn minutes(db: &mut Db, keys: usize, minutes: usize, hot: usize, share: u32, charge: f64) {
    db.container("rooms", "/key");
    for number in 0..300 {
        db.add(
            "rooms",
            format!(r#"{{"id":"r{number}","key":"k{}","text":"{}"}}"#, number % keys, words(number, 20)),
        );
    }
    db.step_ms = 1;
    for minute in 0..minutes {
        let of_hot = if minute < hot { share } else { 1 };
        db.record("rooms", "r0", Operation::Read, of_hot, |record| record.charge = charge);
        for number in 1..40 {
            db.record("rooms", &format!("r{number}"), Operation::Read, 3, |record| record.charge = charge);
        }
        db.wait(60_000);
    }
}

struct Created {
    key: fn(usize) -> String,
    /// Keys that creates of one hour go to.
    spread: usize,
    hours: usize,
    narrow: usize,
}

const DAILY: Created = Created {
    key: |number| format!("2026-{:02}-{:02}", 1 + number / 28 % 12, 1 + number % 28),
    spread: 1,
    hours: 10,
    narrow: 10,
};

fn created(db: &mut Db, made: &Created) {
    db.container("readings", "/day");
    for number in 0..300 {
        db.add(
            "readings",
            format!(
                r#"{{"id":"r{number}","day":"{}","value":{}}}"#,
                (made.key)(number),
                varied_number(number, 900)
            ),
        );
    }
    for hour in 0..made.hours {
        let spread = if hour < made.narrow { made.spread } else { 40 };
        for place in 0..spread {
            db.creates("readings", &format!("r{}", (hour * 7 + place * 5) % 300), (300 / spread) as u32);
        }
        db.wait(3_600_000);
    }
    db.traffic("readings", 1_000);
}

fn load() -> Vec<Case> {
    vec![
        fires("chat: one room has most of the load", &[("key-hot", "rooms", "/key")], |db| {
            minutes(db, 100, 20, 10, 60, 1_500.0)
        }),
        fires("games: one match has half of the load", &[("key-hot", "rooms", "/key")], |db| {
            minutes(db, 150, 30, 6, 50, 2_000.0)
        }),
        fires("shop: requests for one article are refused", &[("key-hot", "rooms", "/key")], |db| {
            minutes(db, 100, 20, 0, 40, 20.0);
            db.record("rooms", "r5", Operation::Read, 130, |record| record.status = 429);
            db.record("rooms", "r6", Operation::Read, 20, |record| record.status = 429);
        }),
        clean("chat: one busy minute in a day", &["key-hot"], |db| minutes(db, 100, 60, 2, 60, 1_500.0)),
        clean("chat: one room leads, with little load", &["key-hot"], |db| {
            minutes(db, 100, 20, 10, 60, 30.0)
        }),
        clean("chat: even load", &["key-hot"], |db| minutes(db, 100, 20, 10, 4, 1_500.0)),
        clean("chat: busy everywhere", &["key-hot"], |db| minutes(db, 100, 20, 10, 25, 3_000.0)),
        clean("chat: thirty rooms altogether", &["key-hot"], |db| minutes(db, 30, 20, 10, 60, 1_500.0)),
        clean("shop: refused all over", &["key-hot"], |db| {
            minutes(db, 100, 20, 0, 40, 20.0);
            for number in 0..60 {
                db.record("rooms", &format!("r{number}"), Operation::Read, 5, |record| record.status = 429);
            }
        }),
        clean("shop: forty refused", &["key-hot"], |db| {
            minutes(db, 100, 20, 0, 40, 20.0);
            db.record("rooms", "r5", Operation::Read, 40, |record| record.status = 429);
        }),
        fires("readings: the day is the key", &[("key-monotone", "readings", "/day")], |db| {
            created(db, &DAILY)
        }),
        fires("invoices: a rising number is the key", &[("key-monotone", "readings", "/day")], |db| {
            created(db, &Created { key: |number| format!("n{:06}", number / 3), ..DAILY });
        }),
        clean("readings: the device is the key", &["key-monotone"], |db| {
            created(db, &Created { key: |number| format!("dev{}", varied_number(number, 90)), ..DAILY });
        }),
        clean("bookings: the day of travel is the key", &["key-monotone"], |db| {
            created(db, &Created { spread: 30, ..DAILY })
        }),
        clean("readings: the month is the key, of one year", &["key-monotone"], |db| {
            created(db, &Created { key: |number| format!("2026-{:02}", 1 + number / 30), ..DAILY });
        }),
        clean("readings: narrow in two hours of ten", &["key-monotone"], |db| {
            created(db, &Created { narrow: 2, ..DAILY })
        }),
        // Items that move.
        fires("tickets: the state is the key", &[("key-mutable", "tickets", "/state")], |db| {
            moves(db, 15, 0)
        }),
        fires("parcels: replaces are refused for their key", &[("key-mutable", "tickets", "/state")], |db| {
            moves(db, 0, 30)
        }),
        clean("tickets: four moves", &["key-mutable"], |db| moves(db, 4, 2)),
        clean("tickets: deleted and made again, same key", &["key-mutable"], |db| {
            moves(db, 0, 0);
            for number in 0..40 {
                let id = format!("t{number}");
                db.record("tickets", &id, Operation::Delete, 1, |record| record.status = 204);
                db.record("tickets", &id, Operation::Create, 1, |record| record.status = 201);
            }
        }),
    ]
}

fn moves(db: &mut Db, moved: usize, refused: u32) {
    db.container("tickets", "/state");
    for number in 0..300 {
        db.add(
            "tickets",
            format!(r#"{{"id":"t{number}","state":"s{}","title":"{}"}}"#, number % 40, words(number, 20)),
        );
    }
    for number in 0..moved {
        let id = format!("t{number}");
        db.record("tickets", &id, Operation::Delete, 1, |record| record.status = 204);
        db.record("tickets", &id, Operation::Create, 1, |record| {
            record.status = 201;
            record.partition_key = record.partition_key.map(|key| key ^ 0xff00);
        });
        db.wait(10_000);
    }
    if refused > 0 {
        db.record("tickets", "t9", Operation::Replace, refused, |record| {
            (record.status, record.sub_status) = (400, 1001)
        });
    }
    db.traffic("tickets", 2_000);
}

struct Lookups {
    partitions: u32,
    /// Executions with the key, by the other property, and by neither.
    scoped: u32,
    other: u32,
    neither: u32,
    values: usize,
    present: usize,
    large: u64,
    writes: u32,
}

const LOOKUPS: Lookups = Lookups {
    partitions: 5,
    scoped: 100,
    other: 2_000,
    neither: 100,
    values: 150,
    present: 1,
    large: 0,
    writes: 10,
};

fn lookups(db: &mut Db, made: &Lookups) {
    let container = db.container("orders", "/region");
    container.partitions = made.partitions;
    container.unscanned = (made.large, made.large * 200);
    for number in 0..400 {
        let customer = if number % made.present == 0 {
            format!(r#","customer":"k{}""#, number % made.values)
        } else {
            String::new()
        };
        db.add(
            "orders",
            format!(
                r#"{{"id":"o{number}","region":"r{}","note":"{}"{customer}}}"#,
                number % 120,
                words(number, 20)
            ),
        );
    }
    db.query("orders", "SELECT TOP 9 * FROM c WHERE c.region = 'r1'", 3, 3, made.scoped);
    db.query("orders", "SELECT TOP 9 * FROM c WHERE c.customer = 'k1'", 3, 3, made.other);
    db.query("orders", "SELECT TOP 9 * FROM c WHERE c.note > 'x'", 3, 3, made.neither);
    db.creates("orders", "o1", made.writes);
    db.traffic("orders", 500);
}

fn queries() -> Vec<Case> {
    vec![
        fires(
            "orders: looked up by customer, keyed by region",
            &[("key-unused", "orders", "/region")],
            |db| lookups(db, &LOOKUPS),
        ),
        fires("mail: looked up by owner, keyed by folder", &[("key-unused", "orders", "/region")], |db| {
            lookups(db, &Lookups { partitions: 12, other: 5_000, ..LOOKUPS });
        }),
        clean("orders: one partition", &["key-unused"], |db| {
            lookups(db, &Lookups { partitions: 1, ..LOOKUPS })
        }),
        clean("orders: mostly by region", &["key-unused"], |db| {
            lookups(db, &Lookups { scoped: 9_000, other: 400, neither: 0, ..LOOKUPS })
        }),
        clean("orders: by region half of the time", &["key-unused"], |db| {
            lookups(db, &Lookups { scoped: 1_000, other: 1_600, neither: 0, ..LOOKUPS });
        }),
        clean("orders: by customer, within a key that the request names", &["key-unused"], |db| {
            lookups(db, &Lookups { scoped: 0, other: 100, neither: 0, ..LOOKUPS });
            db.query_in_key("orders", "SELECT TOP 5 * FROM c WHERE c.customer = 'k1'", 3, 3, 4_000);
        }),
        clean("orders: by thirty customers", &["key-unused"], |db| {
            lookups(db, &Lookups { values: 30, ..LOOKUPS })
        }),
        clean("orders: half have no customer", &["key-unused"], |db| {
            lookups(db, &Lookups { present: 2, values: 300, ..LOOKUPS })
        }),
        clean("orders: by all kinds of things", &["key-unused"], |db| {
            lookups(db, &Lookups { other: 900, neither: 1_500, ..LOOKUPS })
        }),
        clean("orders: one customer has a third", &["key-unused"], |db| {
            db.container("orders", "/region").partitions = 5;
            for number in 0..400 {
                let customer = if number % 3 == 0 { 0 } else { number };
                db.add(
                    "orders",
                    format!(r#"{{"id":"o{number}","region":"r{}","customer":"k{customer}"}}"#, number % 120),
                );
            }
            db.query("orders", "SELECT TOP 9 * FROM c WHERE c.customer = 'k1'", 3, 3, 2_000);
        }),
        // A second way.
        fires("users: by mail, too", &[("second-path", "orders", "/customer")], |db| {
            lookups(db, &Lookups { scoped: 2_000, other: 1_500, neither: 0, large: 150_000, ..LOOKUPS });
        }),
        fires("parcels: by number, too", &[("second-path", "orders", "/customer")], |db| {
            lookups(
                db,
                &Lookups {
                    partitions: 9,
                    scoped: 9_000,
                    other: 2_000,
                    neither: 0,
                    large: 300_000,
                    ..LOOKUPS
                },
            );
        }),
        clean("users: by mail, of 400", &["second-path"], |db| {
            lookups(db, &Lookups { scoped: 2_000, other: 1_500, neither: 0, ..LOOKUPS })
        }),
        clean("users: by mail, one partition", &["second-path"], |db| {
            lookups(
                db,
                &Lookups {
                    partitions: 1,
                    scoped: 2_000,
                    other: 1_500,
                    neither: 0,
                    large: 150_000,
                    ..LOOKUPS
                },
            );
        }),
        clean("users: by mail, two partitions", &["second-path"], |db| {
            lookups(
                db,
                &Lookups {
                    partitions: 2,
                    scoped: 2_000,
                    other: 1_500,
                    neither: 0,
                    large: 150_000,
                    ..LOOKUPS
                },
            );
        }),
        clean("users: by mail, seldom", &["second-path"], |db| {
            lookups(db, &Lookups { scoped: 9_000, other: 150, neither: 0, large: 150_000, ..LOOKUPS });
        }),
        clean("users: by mail, but written all day", &["second-path"], |db| {
            lookups(
                db,
                &Lookups {
                    scoped: 2_000,
                    other: 1_500,
                    neither: 0,
                    large: 150_000,
                    writes: 9_000,
                    ..LOOKUPS
                },
            );
        }),
    ]
}
