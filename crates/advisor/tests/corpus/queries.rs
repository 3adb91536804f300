//! Cases of the rules about queries and hot items.

use quire_profile::Operation;

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = shapes();
    cases.extend(scans());
    cases.extend(events());
    cases.extend(items());
    cases
}

fn things(db: &mut Db, partitions: u32, unscanned: u64) {
    let container = db.container("things", "/owner");
    container.partitions = partitions;
    container.unscanned = (unscanned, unscanned * 150);
    for number in 0..300 {
        db.add(
            "things",
            format!(
                r#"{{"id":"th{number}","owner":"o{}","name":"{}","made":"2026-01-{:02}","size":{}}}"#,
                number % 120,
                words(number, 14),
                1 + varied_number(number, 28),
                number % 9
            ),
        );
    }
    db.traffic("things", 1_000);
}

fn recorded_query(db: &mut Db, query: &str, rows: u64, returned: u64, times: u32, in_key: bool) {
    things(db, 1, 0);
    match in_key {
        true => db.query_in_key("things", query, rows, returned, times),
        false => db.query("things", query, rows, returned, times),
    }
}

fn shapes() -> Vec<Case> {
    const BY_ID: &str = "SELECT * FROM c WHERE c.id = 'th1'";
    vec![
        fires("things: one item by its id", &[("query-for-point-read", "things", "/id")], |db| {
            recorded_query(db, BY_ID, 1, 1, 900, true)
        }),
        fires("things: a projection of one item", &[("query-for-point-read", "things", "/id")], |db| {
            recorded_query(
                db,
                "SELECT c.name FROM c WHERE c.id = 'th1' AND c.owner = 'o1'",
                1,
                1,
                900,
                false,
            );
        }),
        clean("things: by id without the key", &["query-for-point-read"], |db| {
            recorded_query(db, BY_ID, 1, 1, 900, false)
        }),
        clean("things: several ids at once", &["query-for-point-read"], |db| {
            recorded_query(db, "SELECT * FROM c WHERE c.id IN ('th1', 'th2', 'th3')", 3, 3, 900, true);
        }),
        clean("things: by id, ninety times", &["query-for-point-read"], |db| {
            recorded_query(db, BY_ID, 1, 1, 90, true)
        }),
        fires("lists: page fifty by OFFSET", &[("deep-offset", "things", "")], |db| {
            recorded_query(
                db,
                "SELECT * FROM c ORDER BY c.made OFFSET 5000 LIMIT 100",
                5_100,
                100,
                30,
                false,
            );
        }),
        fires("lists: deep pages of one owner", &[("deep-offset", "things", "")], |db| {
            recorded_query(db, "SELECT * FROM c ORDER BY c.name OFFSET 1200 LIMIT 20", 1_220, 20, 200, true);
        }),
        clean("lists: the first pages by OFFSET", &["deep-offset"], |db| {
            recorded_query(db, "SELECT * FROM c ORDER BY c.made OFFSET 200 LIMIT 100", 300, 100, 300, false);
        }),
        clean("lists: one curious reader", &["deep-offset"], |db| {
            recorded_query(db, "SELECT * FROM c ORDER BY c.made OFFSET 5000 LIMIT 100", 5_100, 100, 4, false);
        }),
        fires("exports: everything, every hour", &[("unbounded-result", "things", "")], |db| {
            recorded_query(db, "SELECT * FROM c WHERE c.size >= 0", 8_000, 8_000, 24, false);
        }),
        fires("screens: all things of an owner", &[("unbounded-result", "things", "")], |db| {
            recorded_query(db, "SELECT c.name FROM c WHERE c.owner = 'o1'", 1_800, 1_800, 300, true);
        }),
        clean("screens: a page of an owner's things", &["unbounded-result"], |db| {
            recorded_query(db, "SELECT TOP 2000 * FROM c WHERE c.owner = 'o1'", 1_500, 1_500, 300, true);
        }),
        clean("screens: two hundred things", &["unbounded-result"], |db| {
            recorded_query(db, "SELECT * FROM c WHERE c.owner = 'o1'", 200, 200, 900, true)
        }),
        clean("exports: everything, once", &["unbounded-result"], |db| {
            recorded_query(db, "SELECT * FROM c WHERE c.size >= 0", 8_000, 8_000, 3, false)
        }),
        fires("planning: two long arrays joined", &[("join-blow-up", "plans", "")], |db| {
            joined(db, 160, 120, 50)
        }),
        fires("matching: tags against tags", &[("join-blow-up", "plans", "")], |db| joined(db, 120, 120, 20)),
        clean("planning: two short arrays joined", &["join-blow-up"], |db| joined(db, 12, 9, 50)),
        clean("planning: two long arrays, joined by hand", &["join-blow-up"], |db| joined(db, 160, 120, 3)),
    ]
}

fn joined(db: &mut Db, rooms: usize, slots: usize, executions: u32) {
    db.container("plans", "/id");
    for number in 0..210 {
        let room = list(rooms + number % 5, |place| format!(r#"{{"r":{place}}}"#));
        let slot = list(slots + number % 3, |place| format!(r#"{{"s":{place}}}"#));
        db.add("plans", format!(r#"{{"id":"pl{number}","rooms":[{room}],"slots":[{slot}]}}"#));
    }
    db.query_in_key(
        "plans",
        "SELECT r, s FROM c JOIN r IN c.rooms JOIN s IN c.slots WHERE r.r = s.s",
        1,
        90,
        executions,
    );
    db.traffic("plans", 2_000);
}

fn counted(db: &mut Db, query: &str, items: u64, rows: u64, times: u32, creates: u32) {
    things(db, 3, items);
    db.query("things", query, rows, 9, times);
    db.query("things", "SELECT TOP 9 * FROM c WHERE c.owner = 'o1'", 3, 3, 2_000);
    db.creates("things", "th1", creates);
}

fn scans() -> Vec<Case> {
    const GROUPS: &str = "SELECT c.size, COUNT(1) AS n FROM c GROUP BY c.size";
    const LATEST: &str = "SELECT TOP 1 * FROM c ORDER BY c.made DESC";
    vec![
        fires("reports: groups over everything", &[("scan-for-analytics", "things", "")], |db| {
            counted(db, GROUPS, 30_000, 30_300, 20, 300)
        }),
        fires("reports: sums over a third", &[("scan-for-analytics", "things", "")], |db| {
            counted(
                db,
                "SELECT VALUE SUM(c.size) FROM c WHERE c.made > '2026-01-15'",
                30_000,
                10_000,
                40,
                300,
            );
        }),
        clean("reports: groups over a small container", &["scan-for-analytics"], |db| {
            counted(db, GROUPS, 0, 300, 90, 300)
        }),
        clean("reports: three times a month", &["scan-for-analytics"], |db| {
            counted(db, GROUPS, 30_000, 30_300, 3, 300)
        }),
        clean("reports: sums over a few", &["scan-for-analytics"], |db| {
            counted(db, "SELECT VALUE SUM(c.size) FROM c WHERE c.name = 'x'", 30_000, 90, 90, 300);
        }),
        clean("reports: groups of one owner", &["scan-for-analytics"], |db| {
            things(db, 3, 30_000);
            db.query_in_key("things", GROUPS, 4_000, 9, 90);
            db.creates("things", "th1", 300);
        }),
        fires("dashboard: the newest of all", &[("latest-by-scan", "things", "/made")], |db| {
            latest(db, LATEST, 5, 900)
        }),
        fires("dashboard: the highest of all", &[("latest-by-scan", "things", "/size")], |db| {
            latest(db, "SELECT * FROM c ORDER BY c.size DESC OFFSET 0 LIMIT 1", 4, 400);
        }),
        clean("dashboard: the newest, one partition", &["latest-by-scan"], |db| latest(db, LATEST, 1, 900)),
        clean("dashboard: the newest, two partitions", &["latest-by-scan"], |db| latest(db, LATEST, 2, 900)),
        clean("dashboard: the newest ten", &["latest-by-scan"], |db| {
            latest(db, "SELECT TOP 10 * FROM c ORDER BY c.made DESC", 5, 900)
        }),
        clean("dashboard: the newest of an owner", &["latest-by-scan"], |db| {
            things(db, 5, 0);
            db.query_in_key("things", LATEST, 1, 1, 900);
        }),
        clean("dashboard: the newest, seldom", &["latest-by-scan"], |db| latest(db, LATEST, 5, 40)),
    ]
}

fn latest(db: &mut Db, query: &str, partitions: u32, times: u32) {
    things(db, partitions, 0);
    db.query("things", query, 1, 1, times);
}

struct Readings {
    gap: fn(usize) -> u64,
    text: usize,
    changes: u32,
    returned: u64,
    reads: u32,
    expires: bool,
    members: usize,
    creates: u32,
}

const READINGS: Readings = Readings {
    gap: |_| 10,
    text: 8,
    changes: 0,
    returned: 300,
    reads: 5,
    expires: false,
    members: 3,
    creates: 3_000,
};

fn readings(db: &mut Db, made: &Readings) {
    let ttl = if made.expires { r#","defaultTtl":604800"# } else { "" };
    db.define(&format!(
        r#"{{"id":"readings","partitionKey":{{"paths":["/device"],"kind":"Hash","version":2}}{ttl}}}"#
    ));
    let mut times = [1_790_000_000u64; 5];
    for number in 0..500 {
        let device = number % 5;
        times[device] += (made.gap)(number);
        let values =
            list(made.members, |place| format!(r#""v{place}":{}"#, varied_number(number + place, 999)));
        db.add(
            "readings",
            format!(
                r#"{{"id":"r{number}","device":"d{device}","at":{},"unit":"{}",{values}}}"#,
                times[device],
                words(number, made.text)
            ),
        );
    }
    db.creates("readings", "r1", made.creates);
    db.query_in_key(
        "readings",
        "SELECT * FROM c WHERE c.device = 'd1' AND c.at > 5 AND c.at < 9",
        made.returned,
        made.returned,
        100,
    );
    db.change("readings", "r2", &["/v0"], made.changes);
    if made.reads > 0 {
        db.reads("readings", "r1", made.reads);
    }
}

fn events() -> Vec<Case> {
    vec![
        fires("sensors: a reading every ten seconds", &[("event-items", "readings", "/at")], |db| {
            readings(db, &READINGS)
        }),
        fires("meters: a reading every half minute", &[("event-items", "readings", "/at")], |db| {
            readings(db, &Readings { gap: |number| 28 + varied_number(number, 4) as u64, ..READINGS });
        }),
        clean("visits: now and then", &["event-items"], |db| {
            readings(db, &Readings { gap: |number| 600 + varied_number(number, 9_000) as u64, ..READINGS })
        }),
        clean("chat: bursts and pauses", &["event-items"], |db| {
            readings(
                db,
                &Readings {
                    gap: |number| {
                        if varied_number(number, 4) == 0 { 900 } else { 5 + varied_number(number, 9) as u64 }
                    },
                    ..READINGS
                },
            );
        }),
        clean("messages: with texts", &["event-items"], |db| {
            readings(db, &Readings { text: 70, ..READINGS })
        }),
        clean("tasks: changed after they were made", &["event-items"], |db| {
            readings(db, &Readings { changes: 400, ..READINGS })
        }),
        clean("sensors: read one by one", &["event-items"], |db| {
            readings(db, &Readings { reads: 900, ..READINGS })
        }),
        clean("sensors: kept for a week", &["event-items"], |db| {
            readings(db, &Readings { expires: true, ..READINGS })
        }),
        clean("sensors: a few at a time", &["event-items"], |db| {
            readings(db, &Readings { returned: 12, ..READINGS })
        }),
        clean("machines: large readings", &["event-items"], |db| {
            readings(db, &Readings { members: 120, creates: 1_500, ..READINGS })
        }),
        clean("imports: times that jump back", &["event-items"], |db| {
            db.container("readings", "/device");
            for number in 0..500u64 {
                let place = number / 5;
                let at = 1_790_000_000 + place * 10 - if place % 3 == 0 { 15 } else { 0 };
                db.add(
                    "readings",
                    format!(r#"{{"id":"r{number}","device":"d{}","at":{at},"v":{number}}}"#, number % 5),
                );
            }
            db.creates("readings", "r1", 3_000);
            db.query_in_key("readings", "SELECT * FROM c WHERE c.device = 'd1' AND c.at > 5", 300, 300, 100);
        }),
    ]
}

/// Writes of one item, so many in ten seconds, and conflicts among them.
fn counters(db: &mut Db, windows: usize, writes: u32, conflicts: u32, charge: f64) {
    db.container("counters", "/id");
    for number in 0..250 {
        db.add(
            "counters",
            format!(r#"{{"id":"n{number}","count":{number},"label":"{}"}}"#, words(number, 9)),
        );
    }
    for _ in 0..windows {
        db.wait(10_000 - db.now_ms % 10_000);
        db.record("counters", "n7", Operation::Patch, writes, |record| record.charge = charge);
        if conflicts > 0 {
            db.record("counters", "n7", Operation::Replace, conflicts, |record| record.status = 412);
        }
    }
    db.traffic("counters", 2_000);
}

fn deleted(db: &mut Db, one_in: usize, filter: &str, times: u32, others: u32) {
    db.container("files", "/id");
    for number in 0..300 {
        let flag = if varied_number(number, one_in) == 0 { "true" } else { "false" };
        db.add("files", format!(r#"{{"id":"f{number}","name":"{}","isDeleted":{flag}}}"#, words(number, 14)));
    }
    db.query("files", &format!("SELECT TOP 9 * FROM c WHERE c.name > 'a' AND {filter}"), 9, 9, times);
    db.query("files", "SELECT TOP 9 * FROM c WHERE c.name = 'x'", 9, 9, others);
    db.traffic("files", 1_000);
}

fn items() -> Vec<Case> {
    vec![
        fires("likes: one counter for a star", &[("contended-item", "counters", "")], |db| {
            counters(db, 6, 250, 0, 11.0)
        }),
        fires("stock: one article that all want", &[("contended-item", "counters", "")], |db| {
            counters(db, 40, 40, 20, 11.0)
        }),
        fires("likes: one counter has all of its key's load", &[("contended-item", "counters", "")], |db| {
            counters(db, 12, 250, 0, 300.0)
        }),
        fires(
            "chat: a hot room, and a contended item in it",
            &[("contended-item", "rooms", ""), ("key-hot", "rooms", "/key")],
            |db| {
                crate::keys::minutes(db, 100, 20, 10, 60, 1_500.0);
                db.record("rooms", "r100", Operation::Patch, 150, |record| record.charge = 11.0);
            },
        ),
        clean("likes: five a second", &["contended-item"], |db| counters(db, 30, 50, 0, 11.0)),
        clean("stock: some conflicts", &["contended-item"], |db| counters(db, 40, 60, 3, 11.0)),
        clean("stock: a bad minute", &["contended-item"], |db| counters(db, 6, 30, 20, 11.0)),
        fires("files: a third is deleted", &[("soft-deletes", "files", "/isDeleted")], |db| {
            deleted(db, 3, "c.isDeleted = false", 900, 20)
        }),
        fires("files: half is deleted, left out by NOT", &[("soft-deletes", "files", "/isDeleted")], |db| {
            deleted(db, 2, "NOT c.isDeleted", 500, 10)
        }),
        clean("files: one in twenty is deleted", &["soft-deletes"], |db| {
            deleted(db, 20, "c.isDeleted = false", 900, 20)
        }),
        clean("files: deleted ones are shown, too", &["soft-deletes"], |db| {
            deleted(db, 3, "c.isDeleted = false", 300, 900)
        }),
        clean("files: a screen for the deleted ones", &["soft-deletes"], |db| {
            deleted(db, 3, "c.isDeleted = true", 900, 20)
        }),
    ]
}
