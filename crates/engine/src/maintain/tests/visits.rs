//! Items that jobs visit while something is being built.

use super::*;
use crate::jobs::JobId;
use crate::maintain::link_index::{LinkIndexOrder, index_links};
use crate::maintain::visit::{VisitOrder, VisitOutcome, VisitWork, visit_items};
use crate::model::BuildPhase;
use crate::store::keys::{self, DeclarationKeys, ITEMS};
use crate::store::scan;

const MODEL: &str = r#"{"version":1,"links":[
    {"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}],
  "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
  "rollups":[{"name":"n","link":"l","op":"count","into":"/n"},
    {"name":"first","link":"l","op":"min","value":"r.year","into":"/first"}],
  "mirrors":[{"name":"m","link":"l","into":"/books"}]}"#;

impl Bench {
    /// Of everything but the link and the copy.
    fn set_built(&self, state: &DeclarationState) {
        let changed = self.engine.catalog().change_declarations(self.database_number(), |declarations| {
            let built = declarations.rollups.iter_mut().chain(&mut declarations.mirrors);
            built.map(|declaration| declaration.state = state.clone()).count() > 0
        });
        assert!(changed.unwrap());
    }

    fn rids(&self, container: &str) -> Vec<u64> {
        let items = scan(ITEMS, keys::items_from(self.container(container, 0).number, 0));
        let items = self.storage.snapshot().unwrap().scan(&items).unwrap().rows;
        items.iter().map(|(key, _)| keys::rid_of_item_key(key).unwrap()).collect()
    }

    fn visit(&self, container: &str, rids: &[u64], work: VisitWork<'_>) -> VisitOutcome {
        let container = self.container(container, 0);
        let order = VisitOrder {
            container: &container,
            rids,
            rows: &[],
            work,
            also: &|_, _| Ok(Vec::new()),
            journal: None,
        };
        visit_items(&self.engine.shared, &order).unwrap()
    }

    fn visit_all(&self, container: &str, work: VisitWork<'_>) {
        let visited = self.visit(container, &self.rids(container), work);
        assert!(matches!(visited, VisitOutcome::Done { .. }));
    }
}

/// An item that a job finds as it must be is not written: what it adds to what is being built is there once nevertheless.
#[test]
fn an_item_that_stays_as_it_is_counts_once() {
    let bench = Bench::new(3, LIBRARY, MODEL);
    bench.set_built(&DeclarationState::Failed { error: String::new(), examples: Vec::new() });
    bench.create("authors", r#"{"id":"a1","name":"Ann"}"#).unwrap();
    for id in ["b1", "b2"] {
        bench.create("books", &format!(r#"{{"id":"{id}","year":1999,"author":{{"id":"a1"}}}}"#)).unwrap();
    }
    let building = |phase| DeclarationState::Building { job: JobId(u64::MAX), phase };
    bench.set_built(&building(BuildPhase::Index));
    bench.visit_all("books", VisitWork::Write);
    bench.visit_all("books", VisitWork::Write);
    bench.replace("books", "b2", r#"{"id":"b2","year":1980,"author":{"id":"a2"}}"#).unwrap();
    bench.visit_all("books", VisitWork::Count { job: JobId(u64::MAX) });
    bench.set_built(&building(BuildPhase::Values));
    bench.visit_all("authors", VisitWork::Write);
    bench.set_built(&DeclarationState::Active);
    bench.check("built beside a visit");
    bench.create("authors", r#"{"id":"a2"}"#).unwrap();
    bench.check("another target");
}

/// Rows of a link are made of the items as they are when they are locked, whatever was seen of them before. What was indexed
/// counts without a mark, so a write takes its old row away.
#[test]
fn a_link_is_indexed_by_what_items_are() {
    const LINK: &str = r#"{"version":1,"links":[
        {"name":"l","from":{"container":"books","path":"/author/id"},"to":{"container":"authors"}}]}"#;
    let bench = Bench::new(3, LIBRARY, LINK);
    bench.set_states(&DeclarationState::Failed { error: String::new(), examples: Vec::new() });
    let book = |id: &str, author: &str| format!(r#"{{"id":"{id}","author":{{"id":"{author}"}}}}"#);
    for id in ["b1", "b2", "b3", "b4", "b5"] {
        bench.create("books", &book(id, "a1")).unwrap();
    }
    bench.set_states(&DeclarationState::Building { job: JobId(u64::MAX), phase: BuildPhase::Index });
    let books = bench.container("books", 0);
    let page = scan(ITEMS, keys::items_from(books.number, 0));
    let page = bench.storage.snapshot().unwrap().scan(&page).unwrap().rows;
    let rids: Vec<u64> = page.iter().map(|(key, _)| keys::rid_of_item_key(key).unwrap()).collect();
    let ids: Vec<String> = page
        .iter()
        .map(|(_, row)| crate::store::item_row::ItemRow::parse(row).unwrap().id().unwrap().to_owned())
        .collect();
    let rows: Vec<Vec<u8>> = page.into_iter().map(|(_, row)| row).collect();
    // One is written and one deleted after they were seen.
    bench.replace("books", &ids[0], &book(&ids[0], "a2")).unwrap();
    bench.delete("books", &ids[1], &format!("[{:?}]", ids[1])).unwrap();
    let index = |from: usize, to: usize| {
        let order = LinkIndexOrder {
            container: &books,
            job: JobId(u64::MAX),
            rids: &rids[from..to],
            rows: &rows[from..to],
            also: &|_, _| Ok(Vec::new()),
        };
        let visited = index_links(&bench.engine.shared, &order).unwrap();
        assert!(matches!(visited, VisitOutcome::Done { is_committed: true }));
    };
    index(0, 3);
    let marks = DeclarationKeys { container: books.number, declaration: 1 };
    let marks = scan(keys::LOOKUPS, quire_storage::KeyRange::prefix(&marks.counted_marks()));
    let marks = bench.storage.snapshot().unwrap().scan(&marks).unwrap().rows;
    assert_eq!(marks.len(), 2, "how far it is, and what was written before: {marks:?}");
    // One that is indexed already, and one that is not yet.
    bench.replace("books", &ids[2], &book(&ids[2], "a3")).unwrap();
    bench.replace("books", &ids[3], &book(&ids[3], "a3")).unwrap();
    index(3, 5);
    bench.set_states(&DeclarationState::Active);
    bench.verify("indexed beside writers");
}

/// Two items have one key from before the link: whichever is written meanwhile, the build finds the second one.
#[test]
fn a_key_of_two_items_is_found_beside_writers() {
    const KEYED: &str = r#"{"version":1,"links":[{"name":"s","from":{"container":"books","path":"/cites"},
        "to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}]}"#;
    let bench = Bench::new(1, LIBRARY, KEYED);
    bench.set_states(&DeclarationState::Failed { error: String::new(), examples: Vec::new() });
    for id in ["b1", "b2"] {
        bench.create("books", &format!(r#"{{"id":"{id}","isbn":"i"}}"#)).unwrap();
    }
    bench.set_states(&DeclarationState::Building { job: JobId(u64::MAX), phase: BuildPhase::Index });
    let rids = bench.rids("books");
    assert!(matches!(
        bench.visit("books", &rids[..1], VisitWork::Count { job: JobId(u64::MAX) }),
        VisitOutcome::Done { .. }
    ));
    for id in ["b1", "b2"] {
        bench.upsert("books", &format!(r#"{{"id":"{id}","isbn":"i","year":1}}"#)).unwrap();
    }
    // No other job has to do with it.
    assert!(matches!(bench.visit("books", &rids, VisitWork::Write), VisitOutcome::Done { .. }));
    let visited = bench.visit("books", &rids[1..], VisitWork::Count { job: JobId(u64::MAX) });
    assert!(matches!(visited, VisitOutcome::DuplicateKey { rid, .. } if rid == rids[1]));
}
