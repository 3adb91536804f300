//! Rows kept for scans, and the write clock: what a reader gets is what its snapshot has.

use std::sync::Arc;

use quire_storage::KeyRange;

use super::world::{World, container, write};
use super::{Program, together};
use crate::api::{Cancel, EngineError, Scope, WriteKind};
use crate::catalog::Container;
use crate::items::write::write_item;
use crate::query::meter::{PageMeter, ScanBudget};
use crate::query::partition_scope::partition_scopes;
use crate::query::read_snapshot::ReadSnapshot;
use crate::query::reader::{ScopeReader, VisitNext};
use crate::runtime::allowance;
use crate::store::{keys, scan};
use crate::sync::races::Race;

pub(super) const PROGRAM: Program = Program {
    name: "spans",
    races: &[Race::SpanKeptBesideWrite, Race::SpanKeptFromBefore, Race::ClockAfterSnapshot],
    run,
};

const READERS: usize = 3;
const READS: usize = 2;
const FAULT_ONE_IN: u32 = 6;

struct Spans {
    world: World,
    container: Arc<Container>,
}

/// Child id and row.
type Rows = Vec<(u64, Vec<u8>)>;

fn run() {
    let (world, catalog) = World::open();
    let spans = Arc::new(Spans { container: container(&catalog), world });
    spans.write("a", "x");
    spans.write("b", "y");
    spans.world.storage.set_faults(FAULT_ONE_IN);
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..READERS {
        let spans = Arc::clone(&spans);
        threads.push(Box::new(move || (0..READS).for_each(|_| spans.read())));
    }
    for (pk, id) in [("a", "x"), ("c", "z")] {
        let spans = Arc::clone(&spans);
        threads.push(Box::new(move || (0..2).for_each(|_| spans.write(pk, id))));
    }
    together(threads);
}

impl Spans {
    fn write(&self, pk: &str, id: &str) {
        let body = format!("{{\"id\":\"{id}\",\"pk\":\"{pk}\"}}");
        match write_item(&self.world.shared, &self.container, &write(WriteKind::Upsert, pk, &body)).result {
            Ok(_) | Err(EngineError::Overloaded | EngineError::Contended) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&self) {
        let view = ReadSnapshot::take(&self.world.shared, &self.container).expect("it is open");
        let expected = self.stored(&view);
        assert_eq!(self.scanned(&view), expected, "a scan shows what its snapshot has not");
        assert_eq!(self.fetched(&view, &expected), expected, "a fetched row is not that of the snapshot");
    }

    /// As the snapshot itself has them.
    fn stored(&self, view: &ReadSnapshot) -> Rows {
        let range = KeyRange::prefix(&keys::container_prefix(self.container.number));
        let page = view.snapshot.scan(&scan(keys::ITEMS, range)).expect("it is open");
        page.rows.into_iter().map(|(key, row)| (keys::rid_of_item_key(&key).expect("an item"), row)).collect()
    }

    fn scanned(&self, view: &ReadSnapshot) -> Rows {
        let (shared, container) = (&self.world.shared, &self.container);
        let windows = partition_scopes(container, &Scope::default()).expect("all of it");
        let meter = PageMeter::new(ScanBudget::WHOLE, &allowance::of_page(shared, &Cancel::default()));
        let mut rows = Rows::new();
        let mut reader = ScopeReader::new(shared, container, view, &windows, meter);
        let read = reader.scan(None, &mut |found| {
            rows.push((found.position.rid, found.row.bytes().to_vec()));
            Ok(VisitNext::More)
        });
        read.expect("it is open");
        rows
    }

    fn fetched(&self, view: &ReadSnapshot, expected: &Rows) -> Rows {
        let (shared, container) = (&self.world.shared, &self.container);
        let meter = PageMeter::new(ScanBudget::WHOLE, &allowance::of_page(shared, &Cancel::default()));
        let rids: Vec<u64> = expected.iter().map(|(rid, _)| *rid).collect();
        let rows = ScopeReader::new(shared, container, view, &[], meter).fetch(&rids).expect("it is open");
        rids.into_iter().zip(rows).filter_map(|(rid, row)| Some((rid, row?.to_vec()))).collect()
    }
}
