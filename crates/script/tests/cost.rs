//! The cost of a run. The bound is far above the real cost, so that only a change of kind fails; run in release with
//! `--nocapture` for the figure.

mod support;

use std::time::{Duration, Instant};

use quire_script::*;
use support::*;

/// Creates a book and updates its author: the example in the documentation.
const TWO_ITEMS: &str = "function addBook(book, authorId) {
    var context = getContext(), books = context.getCollection();
    books.createDocument(books.getSelfLink(), book, function (error, created) {
        if (error) throw error;
        books.readDocument(books.getAltLink() + '/docs/' + authorId, function (error, author) {
            if (error) throw error;
            author.countOfBooks++;
            books.replaceDocument(author._self, author, { etag: author._etag }, function (error, replaced) {
                if (error) throw error;
                context.getResponse().setBody({ book: created.id, countOfBooks: replaced.countOfBooks });
            });
        });
    });
}";

/// Gives the same answers to three operations, at no cost.
struct FixedAnswers;

impl Host for FixedAnswers {
    fn call(&mut self, request: Request) -> Answer {
        let body = match &request {
            Request::Create { .. } => {
                r#"{"id":"b1","author":"a1","title":"Dunes","pages":612,"_rid":"ridb1","_self":"dbs/dbRid==/colls/collRid=/docs/ridb1/","_etag":"e1","_ts":1700000000}"#
            }
            _ => {
                r#"{"id":"a1","name":"Ada","countOfBooks":4,"_rid":"rida1","_self":"dbs/dbRid==/colls/collRid=/docs/rida1/","_etag":"e2","_ts":1700000000}"#
            }
        };
        Reply::Item { status: 200, body: body.to_owned() }.into()
    }
}

#[test]
fn a_short_procedure_is_cheap() {
    const RUN_COUNT: u32 = 2_000;
    let scripts = Scripts::new(Limits::default());
    let parameters = r#"[{"id": "b1", "author": "a1", "title": "Dunes", "pages": 612}, "a1"]"#;
    let run = ScriptRun { logging: false, ..procedure(TWO_ITEMS, parameters) };
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        for _ in 0..RUN_COUNT / 5 {
            let outcome = scripts.run(&run, &mut FixedAnswers).unwrap();
            assert_eq!(outcome.body.as_deref(), Some(r#"{"book":"b1","countOfBooks":4}"#));
        }
        best = best.min(started.elapsed() / (RUN_COUNT / 5));
    }
    println!("one run: {best:?}");
    assert!(best < Duration::from_millis(20), "{best:?}");
}
