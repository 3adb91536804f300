//! Items that jobs visit while something is being built.

use super::*;
use crate::jobs::JobId;
use crate::maintain::visit::{VisitOrder, VisitWork, Visited, visit_items};
use crate::model::BuildPhase;
use crate::store::keys::{self, ITEMS};
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

    fn visit(&self, container: &str, work: VisitWork<'_>) {
        let container = self.container(container, 0);
        let items = scan(ITEMS, keys::items_from(container.number, 0));
        let items = self.storage.snapshot().unwrap().scan(&items).unwrap().rows;
        let rids: Vec<u64> = items.iter().map(|(key, _)| keys::rid_of_item_key(key).unwrap()).collect();
        let order = VisitOrder { container: &container, rids: &rids, work, also: &|_, _| Ok(Vec::new()) };
        assert!(matches!(visit_items(&self.engine.shared, &order), Ok(Visited::Done { .. })));
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
    bench.visit("books", VisitWork::Write);
    bench.visit("books", VisitWork::Write);
    bench.replace("books", "b2", r#"{"id":"b2","year":1980,"author":{"id":"a2"}}"#).unwrap();
    bench.visit("books", VisitWork::Count);
    bench.set_built(&building(BuildPhase::Values));
    bench.visit("authors", VisitWork::Write);
    bench.set_built(&DeclarationState::Active);
    bench.check("built beside a visit");
    bench.create("authors", r#"{"id":"a2"}"#).unwrap();
    bench.check("another target");
}
