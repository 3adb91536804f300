//! Cases of aggregates that are computed again, and of writes that belong together.

use crate::harness::{Db, json};
use crate::shape::words;
use crate::{Case, clean, fires};

struct Aggregate {
    sql: &'static str,
    executions: u32,
    rows: u64,
    creates: u32,
    references: bool,
}

const AGGREGATE: Aggregate = Aggregate {
    sql: "SELECT VALUE COUNT(1) FROM c WHERE c.postId = 'po1'",
    executions: 2_000,
    rows: 400,
    creates: 50,
    references: true,
};

fn likes(db: &mut Db, made: &Aggregate) {
    db.container("likes", "/postId");
    db.container("posts", "/id");
    for number in 0..60 {
        db.add("posts", format!(r#"{{"id":"po{number}","title":"{}"}}"#, words(number, 20)));
    }
    for number in 0..600 {
        let post = if made.references { format!("po{}", number % 60) } else { format!("x{}", number % 60) };
        db.add(
            "likes",
            format!(
                r#"{{"id":"l{number}","postId":"{post}","by":"u{}","weight":{}}}"#,
                number % 90,
                number % 5
            ),
        );
    }
    db.query_in_key("likes", made.sql, made.rows, 1, made.executions);
    db.creates("likes", "l1", made.creates);
    db.traffic("likes", 1_000);
    db.traffic("posts", 2_000);
}

pub fn cases() -> Vec<Case> {
    vec![
        fires("likes: counted with every page view", &[("repeated-aggregate", "likes", "/postId")], |db| {
            likes(db, &AGGREGATE)
        }),
        fires(
            "ratings: summed with every page view, for no item",
            &[("repeated-aggregate", "likes", "/by")],
            |db| {
                likes(
                    db,
                    &Aggregate {
                        sql: "SELECT VALUE SUM(c.weight) FROM c WHERE c[\"by\"] = 'u1'",
                        references: false,
                        ..AGGREGATE
                    },
                );
            },
        ),
        clean("likes: counted now and then", &["repeated-aggregate"], |db| {
            likes(db, &Aggregate { executions: 60, creates: 5, ..AGGREGATE })
        }),
        clean("likes: a handful each", &["repeated-aggregate"], |db| {
            likes(db, &Aggregate { rows: 12, ..AGGREGATE })
        }),
        clean("likes: they change as often as they are counted", &["repeated-aggregate"], |db| {
            likes(db, &Aggregate { creates: 900, ..AGGREGATE })
        }),
        clean("likes: a declared rollup", &["repeated-aggregate"], |db| {
            likes(db, &AGGREGATE);
            db.model = json(
                r#"{"version":1,"links":[{"name":"like-post","from":{"container":"likes","path":"/postId"},"to":{"container":"posts"}}],
                "rollups":[{"name":"like-count","link":"like-post","op":"count","into":"/likes"}]}"#,
            );
        }),
        fires(
            "bank: booking and balance by two requests",
            &[("not-atomic", "accounts", "/accountId")],
            |db| bookings(db, 150, 60, false),
        ),
        fires("orders: order and stock by two requests", &[("not-atomic", "accounts", "/accountId")], |db| {
            bookings(db, 400, 100, false)
        }),
        clean("bank: booking and balance in one batch", &["not-atomic"], |db| bookings(db, 150, 60, true)),
        clean("bank: seldom both", &["not-atomic"], |db| bookings(db, 120, 500, false)),
        clean("bank: both, sixty times", &["not-atomic"], |db| bookings(db, 60, 10, false)),
    ]
}

/// Actions that write a booking and its account, and actions that write one of them.
fn bookings(db: &mut Db, both: usize, single: usize, in_batch: bool) {
    db.container("accounts", "/accountId");
    for number in 0..250 {
        db.add("accounts", format!(r#"{{"id":"acc{number}","accountId":"a{number}","type":"account","owner":"{}","iban":"i{number}"}}"#, words(number, 9)));
        db.add("accounts", format!(r#"{{"id":"book{number}","accountId":"a{number}","type":"booking","amount":{number},"day":"d{}"}}"#, number % 30));
    }
    let write = |db: &mut Db, id: String, kind: u64, path: &str| {
        db.write("accounts", &id, &[path], &[], 1, |record| {
            if let Some(change) = &mut record.change {
                change.item_type = Some(kind);
                change.in_batch = in_batch;
            }
        });
    };
    db.actions(both, |db, number| {
        write(db, format!("book{}", number % 250), 1, "/amount");
        write(db, format!("acc{}", number % 250), 2, "/owner");
    });
    db.actions(single, |db, number| write(db, format!("acc{}", number % 250), 2, "/owner"));
    db.traffic("accounts", 1_000);
}
