//! Whole systems, with the noise that they have: sensors, fleets, games, quotes.
//! What is expected follows from the text of the rules, not from what they do.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = sensors();
    cases.extend(fleets());
    cases.extend(games());
    cases.extend(mixtures());
    cases
}

/// Readings of devices, with a time between each two of one device.
struct Readings {
    devices: usize,
    each: usize,
    gap: fn(usize) -> usize,
    point_reads: u32,
    changes: u32,
}

const READINGS: Readings = Readings { devices: 25, each: 120, gap: |_| 10, point_reads: 10, changes: 0 };

fn readings(db: &mut Db, made: &Readings) {
    db.container("readings", "/device");
    for device in 0..made.devices {
        let mut second = 1_760_000_000;
        for number in 0..made.each {
            second += (made.gap)(number + device);
            let battery = if number % 17 == 0 { r#","battery":71"# } else { "" };
            db.add(
                "readings",
                format!(
                    r#"{{"id":"r{device}-{number}","device":"d{device}","at":{second},"value":{}{battery}}}"#,
                    varied_number(number + device, 900)
                ),
            );
        }
    }
    for device in 0..made.devices {
        db.creates("readings", &format!("r{device}-1"), 100);
    }
    db.query_in_key(
        "readings",
        "SELECT * FROM c WHERE c.at >= 1760000000 AND c.at < 1760000900",
        80,
        80,
        300,
    );
    db.reads("readings", "r0-1", made.point_reads);
    if made.changes > 0 {
        db.change("readings", "r1-1", &["/value"], made.changes);
    }
}

fn signals(db: &mut Db, policy: &str, length: fn(usize) -> usize) {
    db.define(&format!(
        r#"{{"id":"signals","partitionKey":{{"paths":["/device"],"kind":"Hash","version":2}}{policy}}}"#
    ));
    for number in 0..240 {
        let spectrum = list(length(number), |band| format!("{}.5", varied_number(number + band, 900)));
        db.add(
            "signals",
            format!(r#"{{"id":"s{number}","device":"d{}","spectrum":[{spectrum}]}}"#, number % 60),
        );
    }
    db.creates("signals", "s1", 700);
    db.traffic("signals", 500);
}

fn sensors() -> Vec<Case> {
    vec![
        fires("sensors: a reading every ten seconds", &[("event-items", "readings", "/at")], |db| {
            readings(db, &READINGS)
        }),
        fires("sensors: a hundred thousand readings", &[("event-items", "readings", "/at")], |db| {
            readings(db, &Readings { devices: 50, each: 2_000, ..READINGS });
        }),
        clean("sensors: readings are fetched one by one", &["event-items"], |db| {
            readings(db, &Readings { point_reads: 2_000, ..READINGS });
        }),
        clean("sensors: readings when something happens", &["event-items"], |db| {
            readings(db, &Readings { gap: |number| if number % 3 == 0 { 4_000 } else { 20 }, ..READINGS });
        }),
        clean("sensors: readings are corrected", &["event-items"], |db| {
            readings(db, &Readings { changes: 300, ..READINGS });
        }),
        fires("signals: spectra are indexed", &[("index-on-vectors", "signals", "/spectrum")], |db| {
            signals(db, "", |_| 256)
        }),
        clean("signals: spectra are excluded", &["index-on-vectors"], |db| {
            signals(
                db,
                r#","indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/spectrum/*"}]}"#,
                |_| 256,
            );
        }),
        clean("signals: sixty-four bands", &["index-on-vectors"], |db| signals(db, "", |_| 64)),
        fires(
            "signals: two days, a composite index twice",
            &[("composite-redundant", "signals", "/device, /at")],
            |db| {
                signals(
                    db,
                    r#","indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/device/?"}],"excludedPaths":[{"path":"/*"}],
                "compositeIndexes":[[{"path":"/device","order":"ascending"},{"path":"/at","order":"descending"}],[{"path":"/device","order":"descending"},{"path":"/at","order":"ascending"}]]}"#,
                    |_| 40,
                );
            },
        ),
    ]
}

/// Devices with what they report and how they are set up.
fn twins(db: &mut Db, config_bytes: usize, changed: &[&str]) {
    db.container("devices", "/id");
    for number in 0..260 {
        db.add("devices", format!(r#"{{"id":"de{number}","telemetry":{{"temperature":{},"at":"2026-01-01T00:00:00Z"}},"config":"{}"}}"#, number % 50, words(number, config_bytes)));
    }
    for number in 0..260 {
        db.change("devices", &format!("de{number}"), changed, 3);
    }
    db.traffic("devices", 400);
}

/// Counters, one of which is written so often each second.
fn counters(db: &mut Db, each_second: u32, seconds: u32) {
    db.container("counters", "/id");
    for number in 0..40 {
        db.add("counters", format!(r#"{{"id":"co{number}","n":{number},"name":"{}"}}"#, words(number, 12)));
    }
    for _ in 0..seconds {
        db.write("counters", "co1", &["/n"], &[], each_second, |_| {});
        db.wait(1_000);
    }
}

/// Orders of warehouses, asked for by customer.
fn orders(db: &mut Db, partitions: u32, by_customer: u32, by_key: u32) {
    db.container("orders", "/warehouse").partitions = partitions;
    for number in 0..1_500 {
        let coupon = if number % 8 == 0 { r#","coupon":"spring""# } else { "" };
        db.add(
            "orders",
            format!(
                r#"{{"id":"o{number}","warehouse":"w{}","customerId":"cu{}"{coupon},"total":{}}}"#,
                number % 60,
                number % 400,
                varied_number(number, 800)
            ),
        );
    }
    db.query("orders", "SELECT * FROM c WHERE c.customerId = 'cu9'", 4, 4, by_customer);
    db.query_in_key("orders", "SELECT TOP 5 * FROM c WHERE c.warehouse = 'w1'", 5, 5, by_key);
    db.traffic("orders", 500);
}

fn fleets() -> Vec<Case> {
    vec![
        fires("fleet: settings beside what is reported", &[("hot-and-cold", "devices", "/config")], |db| {
            twins(db, 20_000, &["/telemetry/temperature"])
        }),
        clean("fleet: small settings beside what is reported", &["hot-and-cold"], |db| {
            twins(db, 3_000, &["/telemetry/temperature"])
        }),
        clean("fleet: settings change with what is reported", &["hot-and-cold", "extract-part"], |db| {
            twins(db, 20_000, &["/telemetry/temperature", "/config"])
        }),
        fires("fleet: one counter for all", &[("contended-item", "counters", "")], |db| counters(db, 16, 90)),
        clean("fleet: a counter, five times a second", &["contended-item"], |db| counters(db, 5, 300)),
        fires(
            "fleet: orders by customer, kept by warehouse",
            &[("key-unused", "orders", "/warehouse")],
            |db| orders(db, 4, 1_500, 150),
        ),
        clean("fleet: the same in two partitions", &["key-unused", "second-path"], |db| {
            orders(db, 2, 1_500, 150)
        }),
        clean("fleet: customers now and then", &["key-unused"], |db| orders(db, 4, 100, 4_000)),
        fires("fleet: another way in", &[("second-path", "orders", "/customerId")], |db| {
            orders(db, 4, 900, 1_500);
            db.containers.get_mut("orders").expect("it is there").unscanned = (120_000, 20_000_000);
        }),
        fires("fleet: keys of two types", &[("key-odd-values", "events", "/lane")], |db| lanes(db, 20)),
        clean("fleet: a key of another type in three hundred", &["key-odd-values"], |db| lanes(db, 300)),
    ]
}

fn lanes(db: &mut Db, odd: usize) {
    db.container("events", "/lane");
    for number in 0..900 {
        let lane = if number % odd == 0 { format!("{number}") } else { format!(r#""lane{}""#, number % 200) };
        db.add("events", format!(r#"{{"id":"e{number}","lane":{lane}}}"#));
    }
}

fn players(db: &mut Db, item: fn(usize) -> String) {
    db.container("players", "/id");
    for number in 0..500 {
        db.add("players", format!(r#"{{"id":"pl{number}",{}}}"#, item(number)));
    }
    db.traffic("players", 1_000);
}

fn scores(db: &mut Db, writes: u32) {
    db.container("scores", "/player");
    for number in 0..2_000 {
        db.add(
            "scores",
            format!(
                r#"{{"id":"sc{number}","player":"p{}","game":"g{}","points":{}}}"#,
                number % 300,
                number % 12,
                varied_number(number, 500)
            ),
        );
    }
    db.query("scores", "SELECT VALUE COUNT(1) FROM c WHERE c.game = 'g3'", 167, 1, 900);
    db.traffic("scores", 300);
    if writes > 0 {
        db.creates("scores", "sc1", writes);
    }
}

fn matches(db: &mut Db, played: fn(usize) -> String, sql: &str) {
    db.container("matches", "/league");
    for number in 0..600 {
        db.add(
            "matches",
            format!(r#"{{"id":"ma{number}","league":"le{}","played":"{}"}}"#, number % 120, played(number)),
        );
    }
    db.query("matches", sql, 5, 5, 40);
    db.traffic("matches", 1_000);
}

fn mixed_date(number: usize) -> String {
    match number % 25 {
        0 => format!("{:02}/11/2026", 1 + number % 28),
        _ => format!("2026-11-{:02}T12:00:00Z", 1 + number % 28),
    }
}

fn games() -> Vec<Case> {
    vec![
        fires("games: things are named by their ids", &[("data-as-names", "players", "/inventory")], |db| {
            players(db, |number| {
                let things: std::collections::BTreeSet<usize> =
                    (0..5).map(|place| number * 2 + varied_number(number + place, 40)).collect();
                let things: Vec<String> = things
                    .iter()
                    .map(|thing| format!(r#""thing{thing}":{{"count":{},"at":{number}}}"#, thing % 9))
                    .collect();
                format!(r#""name":"{}","inventory":{{{}}}"#, words(number, 8), things.join(","))
            });
        }),
        clean("games: thirty settings", &["data-as-names", "sparse-attributes"], |db| {
            players(db, |number| {
                let settings: Vec<String> = (0..30)
                    .map(|name| format!(r#""setting{name}":{}"#, varied_number(number + name, 3)))
                    .collect();
                format!(r#""settings":{{{}}}"#, settings.join(","))
            });
        }),
        fires("games: large ids as numbers", &[("number-fidelity", "players", "/platform")], |db| {
            players(db, |number| format!(r#""platform":{}"#, 76_561_198_000_000_001u64 + number as u64 * 7));
        }),
        clean("games: large ids as texts", &["number-fidelity"], |db| {
            players(db, |number| {
                format!(
                    r#""platform":"{}","seen":{}"#,
                    76_561_198_000_000_001u64 + number as u64,
                    1_760_000_000_000u64 + number as u64
                )
            });
        }),
        fires(
            "games: players of a game are counted again and again",
            &[("repeated-aggregate", "scores", "/game")],
            |db| scores(db, 20),
        ),
        clean("games: counted after each score", &["repeated-aggregate"], |db| scores(db, 900)),
        fires("games: dates of two kinds", &[("unsortable-dates", "matches", "/played")], |db| {
            matches(db, mixed_date, "SELECT * FROM c WHERE c.played > '2026-11-03'");
        }),
        clean("games: dates of two kinds that nobody sorts", &["unsortable-dates"], |db| {
            matches(db, mixed_date, "SELECT * FROM c WHERE c.league = 'le3'");
        }),
        fires("games: moves with moves", &[("join-blow-up", "plays", "")], |db| plays(db, 120)),
        clean("games: a few moves with a few moves", &["join-blow-up"], |db| plays(db, 30)),
    ]
}

fn plays(db: &mut Db, length: usize) {
    db.container("plays", "/id");
    for number in 0..220 {
        let (white, black) =
            (list(length, |own| format!("{own}")), list(length, |own| format!("{}", own + 1)));
        db.add("plays", format!(r#"{{"id":"pl{number}","white":[{white}],"black":[{black}]}}"#));
    }
    db.query(
        "plays",
        "SELECT w, b FROM c JOIN w IN c.white JOIN b IN c.black WHERE c.id = 'pl1'",
        1,
        900,
        20,
    );
    db.traffic("plays", 1_000);
}

/// Portfolios with the quote of each stock that they hold.
fn portfolios(db: &mut Db, quotes: u32, reads: u32) {
    db.container("portfolios", "/id");
    for number in 0..300 {
        let holdings = list(4 + varied_number(number, 8), |place| {
            let stock = (number * 3 + place * 11) % 60;
            format!(
                r#"{{"count":{},"stock":{{"symbol":"ST{stock}","quote":{},"exchange":"{}"}}}}"#,
                varied_number(number + place, 90),
                stock * 17 % 997,
                words(stock, 9)
            )
        });
        db.add(
            "portfolios",
            format!(r#"{{"id":"pf{number}","owner":"{}","holdings":[{holdings}]}}"#, words(number, 12)),
        );
    }
    for number in 0..quotes {
        db.change("portfolios", &format!("pf{}", number % 300), &["/holdings/*/stock/quote"], 1);
    }
    db.change("portfolios", "pf5", &["/owner"], 20);
    db.traffic("portfolios", reads);
}

fn mixtures() -> Vec<Case> {
    vec![
        fires(
            "quotes: written into every portfolio",
            &[("hot-copy", "portfolios", "/holdings/*/stock")],
            |db| portfolios(db, 3_000, 500),
        ),
        clean("quotes: of the day on which it was bought", &["hot-copy", "stale-copies"], |db| {
            portfolios(db, 0, 2_000)
        }),
        fires(
            "a young system: several things at once",
            &[
                ("contended-item", "counters", ""),
                ("hot-and-cold", "devices", "/config"),
                ("number-fidelity", "players", "/platform"),
                ("key-odd-values", "events", "/lane"),
            ],
            |db| {
                counters(db, 16, 90);
                twins(db, 20_000, &["/telemetry/temperature"]);
                players(db, |number| {
                    format!(r#""platform":{}"#, 76_561_198_000_000_001u64 + number as u64 * 7)
                });
                lanes(db, 20);
            },
        ),
        clean(
            "test data: forty of everything",
            &["type-drift", "number-fidelity", "key-odd-values", "unbounded-array", "risky-ids"],
            |db| {
                db.container("things", "/lane");
                for number in 0..40 {
                    let lane =
                        if number % 4 == 0 { format!("{number}") } else { format!(r#""lane{number}""#) };
                    let list = list(200, |own| own.to_string());
                    db.add(
                        "things",
                        format!(
                            r#"{{"id":"a/{number}","lane":{lane},"value":{},"list":[{list}]}}"#,
                            if number % 2 == 0 { "9007199254740999" } else { r#""x""# }
                        ),
                    );
                }
                db.query("things", "SELECT * FROM c WHERE c['value'] = 'x'", 20, 20, 40);
            },
        ),
        clean(
            "a hundred thousand users in good form",
            &["key-few-values", "type-drift", "missing-discriminator"],
            |db| {
                db.container("users", "/id").partitions = 2;
                for number in 0..100_000 {
                    let city = if number % 21 == 0 {
                        String::new()
                    } else {
                        format!(r#","city":"t{}""#, number % 300)
                    };
                    db.add(
                        "users",
                        format!(
                            r#"{{"id":"u{number}","name":"{}","born":"19{:02}-03-04"{city}}}"#,
                            words(number, 10),
                            50 + number % 50
                        ),
                    );
                }
                db.traffic("users", 3_000);
                db.query("users", "SELECT TOP 20 * FROM c WHERE c.city = 't7'", 20, 20, 200);
            },
        ),
        clean("seasons: lists grow in December and are cleared", &["unbounded-array"], |db| {
            db.container("gifts", "/id");
            for number in 0..300 {
                let wishes = list(60 + varied_number(number, 80), |wish| {
                    format!(r#"{{"title":"{}"}}"#, words(wish, 20))
                });
                db.add("gifts", format!(r#"{{"id":"gi{number}","wishes":[{wishes}]}}"#));
            }
            for number in 0..200 {
                let id = format!("gi{number}");
                for (before, after) in [(60, 70), (70, 85), (85, 0), (0, 60)] {
                    db.resize("gifts", &id, "/wishes", before, after);
                    db.wait(20_000);
                }
            }
            db.traffic("gifts", 1_000);
        }),
    ]
}
