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

    fn rids(&self, container: &str) -> Vec<u64> {
        let items = scan(ITEMS, keys::items_from(self.container(container, 0).number, 0));
        let items = self.storage.snapshot().unwrap().scan(&items).unwrap().rows;
        items.iter().map(|(key, _)| keys::rid_of_item_key(key).unwrap()).collect()
    }

    fn visit(&self, container: &str, rids: &[u64], work: VisitWork<'_>) -> Visited {
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
        assert!(matches!(visited, Visited::Done { .. }));
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
    bench.visit_all("books", VisitWork::Count);
    bench.set_built(&building(BuildPhase::Values));
    bench.visit_all("authors", VisitWork::Write);
    bench.set_built(&DeclarationState::Active);
    bench.check("built beside a visit");
    bench.create("authors", r#"{"id":"a2"}"#).unwrap();
    bench.check("another target");
}

/// Two items have one key from before the link: whoever is written meanwhile, the build finds the second one.
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
    assert!(matches!(bench.visit("books", &rids[..1], VisitWork::Count), Visited::Done { .. }));
    for id in ["b1", "b2"] {
        bench.upsert("books", &format!(r#"{{"id":"{id}","isbn":"i","year":1}}"#)).unwrap();
    }
    // No other job has to do with it.
    assert!(matches!(bench.visit("books", &rids, VisitWork::Write), Visited::Done { .. }));
    let visited = bench.visit("books", &rids[1..], VisitWork::Count);
    assert!(matches!(visited, Visited::DuplicateKey { rid, .. } if rid == rids[1]));
}
