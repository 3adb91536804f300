//! Owned values, what answers show of them, and what they cost.

use super::*;
use crate::transactions::batch::{BatchOperation, BatchVerb};

const MODEL: &str = r#"{"version":1,"links":[
    {"name":"book-authors","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}},
    {"name":"book-publisher","from":{"container":"books","path":"/pub/id"},
     "to":{"container":"publishers","partitionKey":[{"path":"/pub/region"}]}},
    {"name":"sequel","from":{"container":"books","path":"/sequelOf"},"to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}],
  "copies":[{"name":"author-on-book","link":"book-authors","fields":{"name":"CONCAT(t.first, ' ', t.last)"}},
    {"name":"publisher-on-book","link":"book-publisher","fields":{"name":"t.name"},"onMissing":"keep"}],
  "mirrors":[{"name":"books-of-author","link":"book-authors","into":"/books"}],
  "rollups":[{"name":"count-of-books","link":"book-authors","op":"count","into":"/countOfBooks"},
    {"name":"pages","link":"book-authors","op":"sum","value":"r.pages","into":"/stats/pages"},
    {"name":"first","link":"book-authors","op":"min","value":"r.year","into":"/stats/first"},
    {"name":"sequels","link":"sequel","op":"count","into":"/sequels"}]}"#;

fn library(partitions: u32) -> Bench {
    Bench::new(partitions, LIBRARY, MODEL)
}

fn shows(found: Option<Value>, expected: &str) {
    assert_eq!(found.map(|found| found.to_json()).unwrap_or_default(), stripped(json(expected)).to_json());
}

#[test]
fn a_book_changes_its_author_and_has_copies() {
    for partitions in [1, 5] {
        let bench = library(partitions);
        let author =
            bench.create("authors", r#"{"id":"a1","first":"Ann","last":"Lee","countOfBooks":7}"#).unwrap();
        let expected =
            r#"{"books":[],"countOfBooks":0,"first":"Ann","id":"a1","last":"Lee","stats":{"pages":0}}"#;
        assert_eq!(author.to_json(), expected, "the answer is what was stored");
        let book = r#"{"id":"b1","pages":10,"year":1999,"isbn":"i1","authors":[{"id":"a1","name":"x"},{"id":"a9","name":"y"}]}"#;
        let book = bench.create("books", book).unwrap();
        let expected = r#"{"authors":[{"id":"a1","name":"Ann Lee"},{"id":"a9"}],"id":"b1","isbn":"i1","pages":10,"sequels":0,"year":1999}"#;
        assert_eq!(book.to_json(), expected);
        let expected = r#"{"id":"a1","first":"Ann","last":"Lee","countOfBooks":1,"books":["b1"],"stats":{"pages":10,"first":1999}}"#;
        shows(bench.get("authors", "a1"), expected);
        bench
            .create("books", r#"{"id":"b0","pages":0.5,"year":1980,"sequelOf":"i1","authors":[{"id":"a1"}]}"#)
            .unwrap();
        let expected = r#"{"id":"a1","first":"Ann","last":"Lee","countOfBooks":2,"books":["b0","b1"],"stats":{"pages":10.5,"first":1980}}"#;
        shows(bench.get("authors", "a1"), expected);
        assert_eq!(bench.get("books", "b1").unwrap().get("sequels"), Some(&Value::from(1)));
        // A target that comes later fills its copies; one that goes takes them away.
        bench.create("authors", r#"{"id":"a9","first":"Bo","last":"Ek"}"#).unwrap();
        let name = |id: &str, at: usize| {
            let book = bench.get("books", id).unwrap();
            book.get("authors").unwrap().at(at).unwrap().get("name").map(Value::to_json)
        };
        assert_eq!(name("b1", 1).as_deref(), Some("\"Bo Ek\""));
        bench
            .patch(
                "authors",
                "a1",
                "[\"a1\"]",
                r#"{"operations":[{"op":"set","path":"/last","value":"Zorn"}]}"#,
            )
            .unwrap();
        assert_eq!(name("b1", 0).as_deref(), Some("\"Ann Zorn\""));
        bench.delete("authors", "a9", "[\"a9\"]").unwrap();
        assert_eq!(name("b1", 1), None);
        bench.delete("books", "b0", "[\"b0\"]").unwrap();
        bench.check("after all");
        let expected = r#"{"id":"a1","first":"Ann","last":"Zorn","countOfBooks":1,"books":["b1"],"stats":{"pages":10,"first":1999}}"#;
        shows(bench.get("authors", "a1"), expected);
        // An author who goes and comes back has his books.
        bench.delete("authors", "a1", "[\"a1\"]").unwrap();
        bench.upsert("authors", r#"{"id":"a1","first":"New","last":"Name"}"#).unwrap();
        assert_eq!(name("b1", 0).as_deref(), Some("\"New Name\""));
        bench.check("an author came back");
    }
}

#[test]
fn a_rename_is_a_delete_and_a_create() {
    let bench = library(5);
    bench.create("publishers", r#"{"id":"p1","region":"eu","name":"One"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","pub":{"id":"p1","region":"eu"}}"#).unwrap();
    bench.create("books", r#"{"id":"b2","pub":{"id":"p2","region":"eu"}}"#).unwrap();
    let name = |id: &str| bench.get("books", id).unwrap().get("pub").unwrap().get("name").map(Value::to_json);
    assert_eq!((name("b1").as_deref(), name("b2")), (Some("\"One\""), None));
    bench.replace("publishers", "p1", r#"{"id":"p2","region":"eu","name":"Two"}"#).unwrap();
    assert_eq!(
        (name("b1").as_deref(), name("b2").as_deref()),
        (Some("\"One\""), Some("\"Two\"")),
        "kept, filled"
    );
    bench.check("after the rename");
}

#[test]
fn an_item_may_refer_to_itself() {
    let bench = library(1);
    let book = bench.create("books", r#"{"id":"b1","isbn":"i1","sequelOf":"i1"}"#).unwrap();
    assert_eq!(book.get("sequels"), Some(&Value::from(1)));
    let book = bench.replace("books", "b1", r#"{"id":"b1","isbn":"i2","sequelOf":"i1"}"#).unwrap();
    assert_eq!(book.get("sequels"), Some(&Value::from(0)));
    bench.check("after all");
}

#[test]
fn follow_is_dropped_and_versions_stay_when_nothing_changes() {
    let bench = library(1);
    bench.create("authors", r#"{"id":"a1","first":"A","last":"B","_follow":{"x":1}}"#).unwrap();
    assert_eq!(bench.get("authors", "a1").unwrap().get("_follow"), None);
    bench.create("books", r#"{"id":"b1","pages":1,"authors":[{"id":"a1"}]}"#).unwrap();
    let etag = || {
        let key = PartitionKey::from_header("[\"a1\"]").unwrap();
        let read = ReadItem { id: "a1", partition_key: &key, if_none_match: None, session: None };
        match bench.engine.read_item(&bench.container("authors", 0), &read).result.unwrap() {
            ItemRead::Found { etag, .. } => etag.to_string(),
            ItemRead::NotModified { .. } => panic!("nothing was asked for"),
        }
    };
    let before = etag();
    bench.upsert("books", r#"{"id":"b1","pages":1,"title":"t","authors":[{"id":"a1"}]}"#).unwrap();
    assert_eq!(etag(), before, "the author did not change");
    bench.upsert("books", r#"{"id":"b1","pages":2,"authors":[{"id":"a1"}]}"#).unwrap();
    assert_ne!(etag(), before);
}

#[test]
fn charges_name_every_part() {
    let bench = library(1);
    let plain =
        bench.write("shelves", request(WriteKind::Create, None, r#"{"id":"b1","authors":[{"id":"a1"}]}"#));
    let author = bench.write("authors", request(WriteKind::Create, None, r#"{"id":"a1"}"#));
    assert!(author.charge >= plain.charge);
    // Two rows of links; the author is read for the copy and written for its mirror and its count.
    let book = bench.write(
        "books",
        request(WriteKind::Create, None, r#"{"id":"b1","sequelOf":"x","authors":[{"id":"a1"}]}"#),
    );
    assert!(book.charge > plain.charge + 0.7 + 1.0 + 10.0, "{} {}", book.charge, plain.charge);
    assert!(book.result.is_ok());
}

impl Bench {
    fn etag(&self, container: &str, id: &str) -> String {
        let key = PartitionKey::from_header(&format!("[{id:?}]")).unwrap();
        let read = ReadItem { id, partition_key: &key, if_none_match: None, session: None };
        match self.engine.read_item(&self.container(container, 0), &read).result.unwrap() {
            ItemRead::Found { etag, .. } => etag.to_string(),
            ItemRead::NotModified { .. } => panic!("nothing was asked for"),
        }
    }

    fn upsert_if(&self, container: &str, item: &str, etag: &str) -> bool {
        let write = request(WriteKind::Upsert, None, item);
        match self.write(container, WriteItem { if_match: Some(etag.to_owned()), ..write }).result {
            Ok(_) => true,
            Err(EngineError::PreconditionFailed) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A count that moves does not fail a reader who comes back to write, where the model says so.
#[test]
fn if_match_of_clients() {
    for (mode, holds) in [("exact", false), ("client", true)] {
        let model = format!(
            r#"{{"version":1,"ifMatch":"{mode}","links":[{{"name":"l","from":{{"container":"books","path":"/author"}},
            "to":{{"container":"authors"}}}}],"rollups":[{{"name":"n","link":"l","op":"count","into":"/n"}}]}}"#
        );
        let bench = Bench::new(5, LIBRARY, &model);
        bench.create("authors", r#"{"id":"a1"}"#).unwrap();
        let first = bench.etag("authors", "a1");
        bench.create("books", r#"{"id":"b1","author":"a1"}"#).unwrap();
        let second = bench.etag("authors", "a1");
        bench.create("books", r#"{"id":"b2","author":"a1"}"#).unwrap();
        assert_ne!(first, second);
        for etag in [&first, &second] {
            let batch = [BatchOperation {
                if_match: Some(etag.clone()),
                ..super::paths::operation(BatchVerb::Replace { id: "a1".to_owned() }, r#"{"id":"a1","n":2}"#)
            }];
            let is_done = bench.batch("authors", "[\"a1\"]", &batch)[0].result.is_ok();
            assert_eq!(is_done, holds && etag == &first, "the batch is a client's write");
        }
        let other = bench.etag("books", "b1");
        assert!(!bench.upsert_if("authors", r#"{"id":"a1"}"#, &other), "of another item");
        let now = bench.etag("authors", "a1");
        bench.upsert("books", r#"{"id":"b2"}"#).unwrap();
        assert_eq!(bench.upsert_if("authors", r#"{"id":"a1"}"#, &now), holds);
        assert!(!bench.upsert_if("authors", r#"{"id":"a1"}"#, &now), "a client wrote since");
        bench.check("after all");
    }
}

/// The LSN of a version of another item of the partition lies between those of a client's and of the stored version.
#[test]
fn if_match_of_clients_is_of_one_item() {
    let model = r#"{"version":1,"ifMatch":"client","links":[{"name":"l","from":{"container":"books","path":"/author"},
        "to":{"container":"authors"}}],"rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#;
    let bench = Bench::new(1, LIBRARY, model);
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    bench.create("authors", r#"{"id":"a2"}"#).unwrap();
    let created = bench.etag("authors", "a2");
    bench.create("books", r#"{"id":"b2","author":"a2"}"#).unwrap();
    let counted = bench.etag("authors", "a2");
    bench.create("books", r#"{"id":"b1","author":"a1"}"#).unwrap();
    for other in [&created, &counted] {
        assert!(!bench.upsert_if("authors", r#"{"id":"a1"}"#, other), "{other}");
    }
    assert!(bench.upsert_if("authors", r#"{"id":"a2"}"#, &created));
    bench.check("after all");
}

#[test]
fn all_versions_say_who_maintained_them() {
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},"to":{"container":"authors"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},{"name":"s","link":"l","op":"sum","value":"r.pages","into":"/s"}]}"#;
    let bench = Bench::new(1, LIBRARY, model);
    let definition = r#"{"id":"authors","partitionKey":{"paths":["/id"],"kind":"Hash","version":2},
        "changeFeedPolicy":{"retentionDuration":60}}"#;
    bench
        .engine
        .catalog()
        .replace_container("d", "authors", &json(definition), &Precondition::default())
        .unwrap();
    let read = |start| {
        let page = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
        let mode = FeedMode::AllVersions;
        let request = ChangesRequest { mode, page, start, since: None, all_previous_images: false };
        bench.engine.read_changes(&bench.container("authors", 0), &request).result.unwrap()
    };
    let before = read(FeedStart::Now).etag;
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","author":"a1","pages":3}"#).unwrap();
    bench.upsert("authors", r#"{"id":"a1","x":1}"#).unwrap();
    let changes = read(FeedStart::After(before));
    let rows = text::parse(&changes.rows, Limits::default()).unwrap();
    let by =
        |row: &Value| row.get("metadata").unwrap().get("maintainedBy").map_or(String::new(), Value::to_json);
    let found: Vec<String> = rows.as_array().unwrap().iter().map(by).collect();
    assert_eq!(found, ["", r#"["n","s"]"#, ""]);
}

/// While a declaration is built, every item counts once and owned paths show a client's value or the right one.
#[test]
fn phases_of_a_build() {
    use crate::jobs::JobId;
    use crate::model::BuildPhase;
    let model = r#"{"version":1,"onWrite":"refuse","links":[{"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"},
        "onDelete":"restrict"}],"copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"}],"mirrors":[{"name":"m","link":"l","into":"/m"}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    let building = |phase| DeclarationState::Building { job: JobId(1), phase };
    bench.set_states(&DeclarationState::Failed { error: "no".to_owned(), examples: Vec::new() });
    bench.create("books", r#"{"id":"b0","author":{"id":"a1"}}"#).unwrap();
    bench.set_states(&building(BuildPhase::Index));
    bench.create("authors", r#"{"id":"a1","name":"A","n":"client"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","author":{"id":"a1","name":"client"}}"#).unwrap();
    let member = |container: &str, id: &str, name: &str| {
        bench.get(container, id).unwrap().get(name).map(Value::to_json)
    };
    assert_eq!(member("authors", "a1", "n").as_deref(), Some("\"client\""));
    // It was not counted yet, and is counted now; once more changes nothing.
    bench.upsert("books", r#"{"id":"b0","author":{"id":"a1","name":"client"}}"#).unwrap();
    bench.upsert("books", r#"{"id":"b0","author":{"id":"a1","name":"client"}}"#).unwrap();
    bench.create("books", r#"{"id":"b2","author":{"id":"a1"}}"#).unwrap();
    bench.delete("books", "b2", "[\"b2\"]").unwrap();
    bench.set_states(&building(BuildPhase::Values));
    bench.upsert("authors", r#"{"id":"a1","name":"A","n":"wrong"}"#).unwrap();
    assert_eq!(member("authors", "a1", "n").as_deref(), Some("2"), "corrected, not refused");
    assert_eq!(member("authors", "a1", "m").as_deref(), Some(r#"["b0","b1"]"#));
    for id in ["b0", "b1"] {
        bench.upsert("books", &format!(r#"{{"id":"{id}","author":{{"id":"a1","name":"client"}}}}"#)).unwrap();
    }
    bench.check("all values are written");
    bench.delete("authors", "a1", "[\"a1\"]").unwrap();
    bench.create("authors", r#"{"id":"a1","name":"A"}"#).unwrap();
    bench.set_states(&DeclarationState::Active);
    assert!(refusal(bench.delete("authors", "a1", "[\"a1\"]")).starts_with("409/6102"));
    assert!(refusal(bench.upsert("authors", r#"{"id":"a1","n":7}"#)).starts_with("400/6103"));
    bench.check("active");
}

/// A job of another declaration that finds nothing to write counts an item once, too.
#[test]
fn an_item_that_is_visited_but_not_written_counts_once() {
    use crate::jobs::JobId;
    use crate::maintain::visit::{VisitOrder, VisitOutcome, VisitWork, visit_items};
    use crate::model::BuildPhase;
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},"to":{"container":"authors"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    bench.set_states(&DeclarationState::Failed { error: "no".to_owned(), examples: Vec::new() });
    bench.create("books", r#"{"id":"b0","author":"a1"}"#).unwrap();
    bench.set_states(&DeclarationState::Building { job: JobId(1), phase: BuildPhase::Index });
    let books = bench.container("books", 0);
    let range = crate::store::keys::items_from(books.number, 0);
    let page = bench.storage.snapshot().unwrap().scan(&crate::store::scan(crate::store::keys::ITEMS, range));
    let rids: Vec<u64> =
        page.unwrap().rows.iter().filter_map(|(key, _)| crate::store::keys::rid_of_item_key(key)).collect();
    assert_eq!(rids.len(), 1);
    for work in [
        VisitWork::Write,
        VisitWork::Write,
        VisitWork::Count { job: JobId(1) },
        VisitWork::Count { job: JobId(1) },
    ] {
        let order = VisitOrder {
            container: &books,
            rids: &rids,
            rows: &[],
            work,
            also: &|_, _| Ok(Vec::new()),
            journal: None,
        };
        let visited = visit_items(&bench.engine.shared, &order).unwrap();
        assert!(matches!(visited, VisitOutcome::Done { .. }));
    }
    bench.set_states(&DeclarationState::Active);
    let author = bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    assert_eq!(author.get("n").map(Value::to_json).as_deref(), Some("1"));
    bench.verify("visited");
}

/// A build fails because of a mirror that has too many values; but none that it has found to fit grows behind it.
#[test]
fn mirrors_do_not_grow_behind_a_build() {
    use crate::jobs::JobId;
    use crate::model::BuildPhase;
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/author"},"to":{"container":"authors"}}],
        "mirrors":[{"name":"m","link":"l","into":"/m","max":1}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    let building = |phase| DeclarationState::Building { job: JobId(1), phase };
    let book = |id: &str, author: &str| {
        bench.create("books", &format!(r#"{{"id":"{id}","author":"{author}"}}"#)).map(drop)
    };
    bench.set_states(&building(BuildPhase::Index));
    for id in ["b1", "b2"] {
        book(id, "full").unwrap();
        book(&format!("{id}-none"), "none").unwrap();
    }
    bench.create("authors", r#"{"id":"full"}"#).unwrap();
    bench.create("authors", r#"{"id":"fits"}"#).unwrap();
    bench.set_states(&building(BuildPhase::Values));
    let mirror = |id: &str| bench.get("authors", id).unwrap().get("m").map(Value::to_json);
    // Too many before: the build is about to fail, and no write is refused.
    bench.upsert("authors", r#"{"id":"full","x":1}"#).unwrap();
    book("b3", "full").unwrap();
    assert_eq!(mirror("full"), None);
    // It fits: it may not have more.
    book("b4", "fits").unwrap();
    assert!(refusal(book("b5", "fits")).starts_with("413/6104"));
    assert_eq!(mirror("fits").as_deref(), Some(r#"["b4"]"#));
    // A new item might be one that the build does not see.
    assert!(refusal(bench.create("authors", r#"{"id":"none"}"#)).starts_with("413/6104"));
    for id in ["b1", "b2"] {
        bench.delete("books", id, &format!("[{id:?}]")).unwrap();
    }
    assert_eq!(mirror("full").as_deref(), Some(r#"["b3"]"#));
}
