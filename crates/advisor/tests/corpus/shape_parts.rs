//! Cases of the rules about parts of items.

use crate::harness::Db;
use crate::shape::{varied_number, words};
use crate::{Case, clean, fires};

struct Parts {
    container: &'static str,
    cold: usize,
    hot: usize,
    cold_changes: u32,
    hot_changes: u32,
    both: u32,
    reads: u32,
}

const DEVICES: Parts = Parts {
    container: "devices",
    cold: 22_000,
    hot: 600,
    cold_changes: 3,
    hot_changes: 900,
    both: 5,
    reads: 1_000,
};

fn two_parts(db: &mut Db, made: &Parts) {
    let name = made.container;
    db.container(name, "/id");
    for number in 0..220 {
        db.add(
            name,
            format!(
                r#"{{"id":"{name}{number}","manual":{{"text":"{}","lang":"en"}},"state":{{"v":{number},"note":"{}"}}}}"#,
                words(number, made.cold + varied_number(number, 400)),
                words(number + 1, made.hot)
            ),
        );
    }
    let id = format!("{name}1");
    db.change(name, &id, &["/state/v"], made.hot_changes);
    db.change(name, &id, &["/manual/text"], made.cold_changes);
    db.change(name, &id, &["/manual/text", "/state/v"], made.both);
    db.traffic(name, made.reads);
}

pub fn cases() -> Vec<Case> {
    vec![
        fires("devices: a manual beside a changing state", &[("hot-and-cold", "devices", "/manual")], |db| {
            two_parts(db, &DEVICES)
        }),
        fires("machines: drawings beside counters", &[("hot-and-cold", "machines", "/manual")], |db| {
            two_parts(db, &Parts { container: "machines", cold: 30_000, ..DEVICES });
        }),
        clean("lamps: small items", &["hot-and-cold"], |db| {
            two_parts(db, &Parts { container: "lamps", cold: 3_000, hot: 200, ..DEVICES })
        }),
        clean("drafts: the large part changes, too", &["hot-and-cold", "extract-part"], |db| {
            two_parts(
                db,
                &Parts { container: "drafts", cold_changes: 0, hot_changes: 100, both: 900, ..DEVICES },
            );
        }),
        clean("books: half and half", &["hot-and-cold"], |db| {
            two_parts(db, &Parts { container: "books", cold: 13_000, hot: 13_000, ..DEVICES });
        }),
        clean("vehicles: changed sixty times", &["hot-and-cold"], |db| {
            two_parts(
                db,
                &Parts {
                    container: "vehicles",
                    hot_changes: 60,
                    cold_changes: 0,
                    both: 0,
                    reads: 10,
                    ..DEVICES
                },
            );
            db.query_in_key("vehicles", "SELECT TOP 1 c.id FROM c WHERE c.state.v > 1", 1, 1, 1_000);
        }),
        clean("exhibits: read far more than written", &["hot-and-cold"], |db| {
            two_parts(
                db,
                &Parts {
                    container: "exhibits",
                    hot_changes: 110,
                    cold_changes: 0,
                    both: 0,
                    reads: 90_000,
                    ..DEVICES
                },
            );
        }),
        // Parts that live their own lives.
        fires(
            "profiles: settings and statistics change apart",
            &[("extract-part", "profiles", "/manual")],
            |db| {
                two_parts(
                    db,
                    &Parts {
                        container: "profiles",
                        cold: 5_000,
                        hot: 3_000,
                        cold_changes: 400,
                        hot_changes: 400,
                        both: 20,
                        reads: 400,
                    },
                );
            },
        ),
        fires("hotels: rooms and texts change apart", &[("extract-part", "hotels", "/manual")], |db| {
            two_parts(
                db,
                &Parts {
                    container: "hotels",
                    cold: 9_000,
                    hot: 4_000,
                    cold_changes: 350,
                    hot_changes: 500,
                    both: 9,
                    reads: 300,
                },
            );
        }),
        fires(
            "catalogue: queries that ask for one part only",
            &[("extract-part", "catalogue", "/manual")],
            |db| {
                two_parts(
                    db,
                    &Parts {
                        container: "catalogue",
                        cold: 5_000,
                        hot: 3_000,
                        cold_changes: 120,
                        hot_changes: 20,
                        both: 20,
                        reads: 100,
                    },
                );
                db.query_in_key("catalogue", "SELECT c.id, c.manual FROM c WHERE c.state.v > 1", 1, 1, 900);
            },
        ),
        clean("notes: two parts of small items", &["extract-part"], |db| {
            two_parts(
                db,
                &Parts {
                    container: "notes",
                    cold: 500,
                    hot: 500,
                    cold_changes: 400,
                    hot_changes: 400,
                    both: 20,
                    reads: 400,
                },
            );
        }),
        clean("forms: parts change together", &["extract-part"], |db| {
            two_parts(
                db,
                &Parts {
                    container: "forms",
                    cold: 5_000,
                    hot: 3_000,
                    cold_changes: 60,
                    hot_changes: 400,
                    both: 800,
                    reads: 100,
                },
            );
        }),
        clean("forms: only one part ever changes", &["extract-part"], |db| {
            two_parts(
                db,
                &Parts {
                    container: "surveys",
                    cold: 5_000,
                    hot: 4_000,
                    cold_changes: 30,
                    hot_changes: 900,
                    both: 9,
                    reads: 100,
                },
            );
        }),
    ]
}
