//! Bringing items into an index, in slices: each is one commit that also says how far the index is then.
//!
//! A changed vector is a small row beside the row of its leaf. When a leaf has many of those they are joined into its row,
//! which is when it may become two; then every vector of it is asked once more whether another leaf is nearer, since
//! vectors that belong together came to lie apart while there were few leaves.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};

use quire_storage::{Direction, KeyRange, Op, Position, Removal, Scan, Snapshot};

use crate::api::{EngineError, corrupt};
use crate::catalog::Container;
use crate::indexes::vectors::block::{Block, BlockRef};
use crate::indexes::vectors::codes::Coded;
use crate::indexes::vectors::feed::changed_behind;
use crate::indexes::vectors::state::{Identity, Phase, State, indexes_in};
use crate::indexes::vectors::tree::{Tree, block_max};
use crate::indexes::vectors::{APART_NONE, APART_ODD};
use crate::partition::{Partition, PartitionLayout};
use crate::runtime::Shared;
use crate::store::item_row::Row;
use crate::store::keys::{self, CATALOG, Counts, ITEMS, LOOKUPS, VectorKeys};
use crate::store::{Sent, for_each_row, guarded_commit, scan, send};

/// Items of a slice.
const SLICE_ITEMS: usize = 1024;
/// Items read together.
const FETCH_ITEMS: usize = 128;
/// Changes of a leaf before they are joined into its row.
const CHANGES_MAX: usize = 16;
/// A commit that is larger only adds small rows.
const COMMIT_BYTES: usize = 8 << 20;
/// A leaf keeps so many of its vectors, however near others are.
const LEAF_MIN: usize = 8;
/// Rows of items that are gone are looked for when they are more than this, and more than this part.
const GONE_MIN: u64 = 1024;
const GONE_PART: u64 = 8;
/// Places looked at in one slice.
const SWEEP_ITEMS: usize = 8192;
/// An index with so many leaves and fewer items in each, on average, is made anew.
const SPARSE_LEAVES: u64 = 64;
const SPARSE_ITEMS: u64 = 6;

/// Where an item is that is not in a leaf. Leaves are numbered from 1 on.
const PLACE_NONE: u64 = 0;
const PLACE_ODD: u64 = u64::MAX;

/// An index as the thread that changes it knows it.
pub(crate) struct Following {
    state: State,
    tree: Tree,
    /// Changes that wait in leaves, as far as that is known.
    waiting: HashMap<u64, usize>,
    /// Up to which item places have been looked at for items that are gone.
    swept: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many items were brought in or taken out.
    Done(usize),
    /// The index has everything.
    Idle,
    /// It is to be made anew.
    Sparse,
}

pub(crate) struct Follower<'a> {
    pub shared: &'a Shared,
    pub container: &'a Container,
    pub number: u32,
}

/// The vector of an item.
enum Vector {
    Coded(Coded),
    Odd,
    None,
}

/// What a slice changes.
#[derive(Default)]
struct Writes {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    places: BTreeMap<u64, Option<u64>>,
    /// By leaf: items that come, or leave.
    pending: BTreeMap<u64, Vec<(u64, Option<Coded>)>>,
}

impl Writes {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.rows.insert(key, Some(value));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.rows.insert(key, None);
    }
}

impl Following {
    /// Memory, about.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + 32 * self.waiting.len()
    }

    fn load(snapshot: &dyn Snapshot, keys: VectorKeys, state: State) -> Result<Following, EngineError> {
        let dimensions = state.identity.dimensions as usize;
        let mut tree = Tree::new(state.identity.distance, dimensions);
        (tree.root, tree.height, tree.next_node, tree.leaves) =
            (state.root, state.height, state.next_node, state.leaves);
        for_each_row(snapshot, LOOKUPS, &keys.nodes(), |key, value| {
            let node = VectorKeys::node_of(key).ok_or_else(|| corrupt("key of a node"))?;
            tree.load(node, BlockRef::parse(value, dimensions)?.to_block());
            Ok(())
        })?;
        Ok(Following { state, tree, waiting: HashMap::new(), swept: None })
    }
}

impl Follower<'_> {
    fn keys(&self) -> VectorKeys {
        VectorKeys { container: self.container.number, index: self.number }
    }

    /// Does one slice. What is in `following` is used if it is as the storage has it, and is gone after a failure.
    pub fn step(&self, following: &mut Option<Following>) -> Result<Step, EngineError> {
        let snapshot = self.shared.storage.snapshot()?;
        self.container.partitions.check_current(&*snapshot)?;
        let key = keys::vector_index(self.container.number, self.number);
        let state = snapshot.get(CATALOG, &key)?.ok_or_else(|| corrupt("a vector index without its row"))?;
        let state = State::decode(&state)?;
        let known = following.take().filter(|known| known.state.commits == state.commits);
        let mut known = match known {
            Some(known) => known,
            None => Following::load(&*snapshot, self.keys(), state)?,
        };
        let step = self.slice(&*snapshot, &mut known)?;
        *following = Some(known);
        Ok(step)
    }

    fn slice(&self, snapshot: &dyn Snapshot, known: &mut Following) -> Result<Step, EngineError> {
        for partition in self.container.partitions.all() {
            let from = known.state.position(&partition.layout);
            let number = self.container.number;
            let (rows, more) = changed_behind(snapshot, number, partition, from, SLICE_ITEMS)?;
            let end = if more {
                rows.last().map_or(from, |(lsn, _)| *lsn)
            } else {
                counts(snapshot, number, partition)?.lsn.max(from)
            };
            if end > from {
                let rids: Vec<u64> = rows.iter().map(|(_, rid)| *rid).collect();
                return self.bring_in(snapshot, known, &rids, (partition, end));
            }
        }
        if known.state.phase == Phase::Building {
            return self.finish(known);
        }
        self.sweep(snapshot, known)
    }

    /// It has everything that there was when the snapshot was taken.
    fn finish(&self, known: &mut Following) -> Result<Step, EngineError> {
        known.state.phase = Phase::Following;
        self.commit(known, Writes::default())?;
        Ok(Step::Done(0))
    }

    fn bring_in(
        &self,
        snapshot: &dyn Snapshot,
        known: &mut Following,
        rids: &[u64],
        (partition, end): (&Partition, u64),
    ) -> Result<Step, EngineError> {
        let mut writes = Writes::default();
        for rids in rids.chunks(FETCH_ITEMS) {
            let places = self.places(snapshot, rids)?;
            let vectors = self.vectors(snapshot, &known.state.identity, rids)?;
            for ((rid, place), vector) in rids.iter().zip(places).zip(vectors) {
                self.move_item(known, &mut writes, *rid, place, vector);
            }
        }
        self.write_leaves(snapshot, known, &mut writes)?;
        let layouts: Vec<PartitionLayout> = self.container.partitions.layout();
        known.state.set_position(&layouts, partition.layout.id, end);
        self.commit(known, writes)?;
        Ok(Step::Done(rids.len()))
    }

    /// Where items are in the index.
    fn places(&self, snapshot: &dyn Snapshot, rids: &[u64]) -> Result<Vec<Option<u64>>, EngineError> {
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| self.keys().place(*rid)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let places = snapshot.multi_get(LOOKUPS, &keys)?.into_iter();
        let place = |value: Vec<u8>| keys::number(&value).ok_or_else(|| corrupt("where a vector is"));
        places.map(|value| value.map(place).transpose()).collect()
    }

    /// Items that are gone have none.
    fn vectors(
        &self,
        snapshot: &dyn Snapshot,
        identity: &Identity,
        rids: &[u64],
    ) -> Result<Vec<Vector>, EngineError> {
        let keys: Vec<Vec<u8>> = rids.iter().map(|rid| keys::item(self.container.number, *rid)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let vector = |value: Option<Vec<u8>>| {
            let Some(value) = value else { return Ok(Vector::None) };
            let vector = identity.read(Row::parse(&value)?.node()?);
            Ok(vector.map_or(Vector::None, |vector| Coded::new(&vector).map_or(Vector::Odd, Vector::Coded)))
        };
        snapshot.multi_get(ITEMS, &keys)?.into_iter().map(vector).collect()
    }

    fn move_item(
        &self,
        known: &mut Following,
        writes: &mut Writes,
        rid: u64,
        from: Option<u64>,
        vector: Vector,
    ) {
        let to = match vector {
            Vector::Coded(coded) => {
                let leaf = known.tree.nearest_leaf(&coded);
                writes.pending.entry(leaf).or_default().push((rid, Some(coded)));
                leaf
            }
            Vector::Odd => PLACE_ODD,
            Vector::None => PLACE_NONE,
        };
        if from.is_none() {
            known.state.items += 1;
        }
        if from != Some(to) {
            self.leave(writes, rid, from);
            if let Some(class) = class_of(to) {
                writes.put(self.keys().apart(class, rid), Vec::new());
            }
            writes.places.insert(rid, Some(to));
        }
    }

    fn leave(&self, writes: &mut Writes, rid: u64, from: Option<u64>) {
        match from.map(|place| (place, class_of(place))) {
            None => {}
            Some((_, Some(class))) => writes.delete(self.keys().apart(class, rid)),
            Some((leaf, None)) => writes.pending.entry(leaf).or_default().push((rid, None)),
        }
    }

    /// Takes out items that are not in the container any more, where they are many.
    fn sweep(&self, snapshot: &dyn Snapshot, known: &mut Following) -> Result<Step, EngineError> {
        let mut items = 0;
        for partition in self.container.partitions.all() {
            items += counts(snapshot, self.container.number, partition)?.items;
        }
        let gone = known.state.items.saturating_sub(items);
        if known.swept.is_none() && gone <= GONE_MIN.max(items / GONE_PART) {
            let is_sparse = known.state.leaves > SPARSE_LEAVES;
            let is_sparse = is_sparse && known.state.items < known.state.leaves * SPARSE_ITEMS;
            return Ok(if is_sparse { Step::Sparse } else { Step::Idle });
        }
        let mut range = KeyRange::prefix(&self.keys().places());
        if let Some(swept) = known.swept {
            range.start = Bound::Excluded(self.keys().place(swept));
        }
        let page = Scan { rows_max: SWEEP_ITEMS, ..scan(LOOKUPS, range) };
        let page = snapshot.scan(&page)?;
        let mut writes = Writes::default();
        let mut places = Vec::with_capacity(page.rows.len());
        for (key, value) in &page.rows {
            let place = VectorKeys::rid_of_place(key).zip(keys::number(value));
            places.push(place.ok_or_else(|| corrupt("where a vector is"))?);
        }
        let gone = self.gone(snapshot, &places)?;
        for (rid, place) in &gone {
            self.leave(&mut writes, *rid, Some(*place));
            writes.places.insert(*rid, None);
        }
        known.state.items = known.state.items.saturating_sub(gone.len() as u64);
        self.write_leaves(snapshot, known, &mut writes)?;
        self.commit(known, writes)?;
        known.swept = places.last().map(|(rid, _)| *rid).filter(|_| page.more);
        Ok(Step::Done(gone.len()))
    }

    /// Those whose item is not there.
    fn gone(&self, snapshot: &dyn Snapshot, places: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, EngineError> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let number = self.container.number;
        let range = KeyRange {
            start: Bound::Included(keys::item(number, first.0)),
            end: Bound::Included(keys::item(number, last.0)),
        };
        let (direction, keys_only) = (Direction::Forward, true);
        let (rows_max, bytes_max) = (usize::MAX, usize::MAX);
        let scan = Scan { space: ITEMS, range, direction, rows_max, bytes_max, keys_only };
        let mut gone = Vec::new();
        let mut left = places.iter().peekable();
        snapshot.visit(&scan, &mut |key, _| {
            let Some(rid) = keys::rid_of_item_key(key) else { return ControlFlow::Continue(()) };
            while let Some(place) = left.next_if(|place| place.0 < rid) {
                gone.push(*place);
            }
            left.next_if(|place| place.0 == rid);
            ControlFlow::Continue(())
        })?;
        gone.extend(left);
        Ok(gone)
    }

    fn write_leaves(
        &self,
        snapshot: &dyn Snapshot,
        known: &mut Following,
        writes: &mut Writes,
    ) -> Result<(), EngineError> {
        while let Some((leaf, changes)) = writes.pending.pop_first() {
            let waiting = match known.waiting.get(&leaf) {
                Some(waiting) => *waiting,
                None => self.count_changes(snapshot, leaf)?,
            };
            if waiting + changes.len() > CHANGES_MAX && writes.bytes < COMMIT_BYTES {
                self.join(snapshot, known, writes, leaf, changes)?;
                continue;
            }
            known.waiting.insert(leaf, waiting + changes.len());
            for (rid, coded) in changes {
                self.write_change(writes, leaf, rid, coded.as_ref());
            }
        }
        Ok(())
    }

    fn write_change(&self, writes: &mut Writes, leaf: u64, rid: u64, coded: Option<&Coded>) {
        let value = coded.map_or_else(Vec::new, |coded| Block::of(rid, coded).encode());
        writes.put(self.keys().leaf_change(leaf, rid), value);
    }

    fn count_changes(&self, snapshot: &dyn Snapshot, leaf: u64) -> Result<usize, EngineError> {
        let range = KeyRange::prefix(&self.keys().leaf_changes(leaf));
        Ok(snapshot.scan(&Scan { keys_only: true, ..scan(LOOKUPS, range) })?.rows.len())
    }

    /// Joins what has changed into the row of a leaf.
    fn join(
        &self,
        snapshot: &dyn Snapshot,
        known: &mut Following,
        writes: &mut Writes,
        leaf: u64,
        changes: Vec<(u64, Option<Coded>)>,
    ) -> Result<(), EngineError> {
        let dimensions = known.state.identity.dimensions as usize;
        let (mut block, joined) = read_leaf(snapshot, self.keys(), leaf, dimensions)?;
        joined.iter().for_each(|rid| writes.delete(self.keys().leaf_change(leaf, *rid)));
        changes.into_iter().for_each(|(rid, coded)| set(&mut block, rid, coded.as_ref()));
        known.waiting.insert(leaf, 0);
        if block.len() <= block_max(dimensions) {
            writes.put(self.keys().leaf_row(leaf), block.encode());
            return Ok(());
        }
        let parts = known.tree.split_leaf(leaf, block);
        for (part, _) in &parts {
            known.waiting.insert(*part, 0);
        }
        let parts = self.settle(known, writes, parts);
        for (part, block) in parts {
            if part != leaf {
                writes.places.extend(block.ids.iter().map(|rid| (*rid, Some(part))));
            }
            writes.put(self.keys().leaf_row(part), block.encode());
        }
        Ok(())
    }

    /// Moves vectors of new leaves to where they are nearer.
    fn settle(
        &self,
        known: &mut Following,
        writes: &mut Writes,
        parts: Vec<(u64, Block)>,
    ) -> BTreeMap<u64, Block> {
        let mut stays: BTreeMap<u64, Block> = BTreeMap::new();
        let mut leaves: Vec<(u64, u64, Coded)> = Vec::new();
        let ids: Vec<u64> = parts.iter().map(|(part, _)| *part).collect();
        for (part, block) in parts {
            let mut left = block.len();
            let mut stay = Block::new(block.dimensions);
            for at in 0..block.len() {
                let (rid, coded) = (block.ids[at], block.get(at));
                let nearest = known.tree.nearest_leaf(&coded);
                if nearest == part || left <= LEAF_MIN {
                    stay.push(rid, &coded);
                } else {
                    left -= 1;
                    leaves.push((rid, nearest, coded));
                }
            }
            stays.insert(part, stay);
        }
        for (rid, to, coded) in leaves {
            writes.places.insert(rid, Some(to));
            if let Some(block) = stays.get_mut(&to).filter(|_| ids.contains(&to)) {
                block.push(rid, &coded);
            } else if let Some(pending) = writes.pending.get_mut(&to) {
                pending.push((rid, Some(coded)));
            } else {
                self.write_change(writes, to, rid, Some(&coded));
                if let Some(waiting) = known.waiting.get_mut(&to) {
                    *waiting += 1;
                }
            }
        }
        stays
    }

    fn commit(&self, known: &mut Following, mut writes: Writes) -> Result<(), EngineError> {
        for (rid, place) in std::mem::take(&mut writes.places) {
            match place {
                Some(place) => writes.put(self.keys().place(rid), keys::number_value(place)),
                None => writes.delete(self.keys().place(rid)),
            }
        }
        for (node, block) in known.tree.take_changed() {
            writes.put(self.keys().node(node), block.encode());
        }
        let state = &mut known.state;
        (state.root, state.height, state.next_node, state.leaves) =
            (known.tree.root, known.tree.height, known.tree.next_node, known.tree.leaves);
        state.commits += 1;
        let mut ops: Vec<Op> = Vec::with_capacity(writes.rows.len() + 1);
        ops.extend(writes.rows.into_iter().map(|(key, value)| match value {
            Some(value) => Op::Put { space: LOOKUPS, key, value },
            None => Op::Delete { space: LOOKUPS, key },
        }));
        ops.push(put_state(self.container.number, self.number, state));
        commit(self.shared, self.container, ops)
    }
}

fn class_of(place: u64) -> Option<u8> {
    match place {
        PLACE_NONE => Some(APART_NONE),
        PLACE_ODD => Some(APART_ODD),
        _ => None,
    }
}

fn set(block: &mut Block, rid: u64, coded: Option<&Coded>) {
    if let Some(at) = block.position(rid) {
        block.swap_remove(at);
    }
    if let Some(coded) = coded {
        block.push(rid, coded);
    }
}

fn counts(snapshot: &dyn Snapshot, container: u32, partition: &Partition) -> Result<Counts, EngineError> {
    let value = snapshot.get(CATALOG, &keys::counts(container, partition.layout.id))?;
    let counts = |value: Vec<u8>| Counts::decode(&value).ok_or_else(|| corrupt("counts of a partition"));
    Ok(value.map(counts).transpose()?.unwrap_or_default())
}

/// The vectors of a leaf, and the items whose changes are not in its row.
fn read_leaf(
    snapshot: &dyn Snapshot,
    keys: VectorKeys,
    leaf: u64,
    dimensions: usize,
) -> Result<(Block, Vec<u64>), EngineError> {
    let mut changes: Vec<(u64, Option<Coded>)> = Vec::new();
    let mut block = Block::new(dimensions);
    for_each_row(snapshot, LOOKUPS, &keys.leaf(leaf), |key, value| {
        let (_, change) = VectorKeys::leaf_of(key).ok_or_else(|| corrupt("key of a leaf"))?;
        match change {
            Some(rid) if value.is_empty() => changes.push((rid, None)),
            Some(rid) => {
                let one = BlockRef::parse(value, dimensions)?.to_block();
                changes.push((rid, (one.len() == 1).then(|| one.get(0))));
            }
            None => block = BlockRef::parse(value, dimensions)?.to_block(),
        }
        Ok(())
    })?;
    changes.iter().for_each(|(rid, coded)| set(&mut block, *rid, coded.as_ref()));
    Ok((block, changes.into_iter().map(|(rid, _)| rid).collect()))
}

fn put_state(container: u32, number: u32, state: &State) -> Op {
    Op::Put { space: CATALOG, key: keys::vector_index(container, number), value: state.encode() }
}

/// In a sequence of its own, so that no writer waits; not once the container is being deleted.
fn commit(shared: &Shared, container: &Container, ops: Vec<Op>) -> Result<(), EngineError> {
    let storage = &*shared.storage;
    let sequence = keys::vector_sequence(container.number);
    let sent = container.partitions.unless_retired(|| {
        let position = storage.position(sequence)?.unwrap_or(Position { epoch: 0, lsn: 0 });
        let commit = guarded_commit(sequence, position, position.lsn + 1, ops)?;
        Ok::<Sent, EngineError>(send(storage, &commit))
    });
    match sent.ok_or_else(|| container.not_found())?? {
        Sent::Done => Ok(()),
        Sent::Failed(error) => Err(error),
        // The next try reads what there is. The guard keeps the commit from happening after a later one.
        Sent::Unknown => Err(EngineError::Unresolved),
    }
}

/// Begins an index of a container; its number.
pub(crate) fn start_index(
    shared: &Shared,
    container: &Container,
    identity: Identity,
) -> Result<u32, EngineError> {
    let indexes = indexes_in(&*shared.storage.snapshot()?, container.number)?;
    let number = indexes.last().map_or(1, |(number, _)| number + 1);
    commit(shared, container, vec![put_state(container.number, number, &State::new(identity))])?;
    Ok(number)
}

/// Removes an index: one step. True when nothing is left of it.
pub(crate) fn drop_index(
    shared: &Shared,
    container: &Container,
    number: u32,
    state: &State,
) -> Result<bool, EngineError> {
    if state.phase != Phase::Dropping {
        let mut state = state.clone();
        state.phase = Phase::Dropping;
        commit(shared, container, vec![put_state(container.number, number, &state)])?;
        return Ok(false);
    }
    let range = KeyRange::prefix(&VectorKeys { container: container.number, index: number }.prefix());
    if shared.storage.remove_range(LOOKUPS, &range)? == Removal::More {
        return Ok(false);
    }
    let key = keys::vector_index(container.number, number);
    commit(shared, container, vec![Op::Delete { space: CATALOG, key }])?;
    Ok(true)
}

/// Checks the rows of a container's vector indexes; how many there are. Where items and their vectors are is checked
/// against the index itself: it may be behind its items.
pub(crate) fn check_rows(
    snapshot: &dyn Snapshot,
    container: u32,
    problem: &mut dyn FnMut(String),
) -> Result<u64, EngineError> {
    let mut count = 0;
    for_each_row(snapshot, LOOKUPS, &keys::vectors_prefix(container), |_, _| {
        count += 1;
        Ok(())
    })?;
    let mut known = 0;
    for (number, state) in indexes_in(snapshot, container)? {
        let keys = VectorKeys { container, index: number };
        if state.phase == Phase::Dropping {
            for_each_row(snapshot, LOOKUPS, &keys.prefix(), |_, _| {
                known += 1;
                Ok(())
            })?;
            continue;
        }
        let checked = IndexCheck { snapshot, keys, state: &state, rows: 0, places: 0 };
        match checked.check()? {
            Ok(rows) => known += rows,
            Err(what) => {
                problem(format!("container {container}, vector index {number}: {what}"));
                return Ok(count);
            }
        }
    }
    if known != count {
        problem(format!("container {container} has {count} rows of vector indexes and {known} are known"));
    }
    Ok(count)
}

struct IndexCheck<'a> {
    snapshot: &'a dyn Snapshot,
    keys: VectorKeys,
    state: &'a State,
    rows: u64,
    places: u64,
}

impl IndexCheck<'_> {
    /// How many rows the index has, or what is wrong with it.
    fn check(mut self) -> Result<Result<u64, String>, EngineError> {
        let dimensions = self.state.identity.dimensions as usize;
        let (snapshot, keys) = (self.snapshot, self.keys);
        let mut children: Vec<u64> = vec![self.state.root];
        let mut nodes = 0;
        for_each_row(snapshot, LOOKUPS, &keys.nodes(), |_, value| {
            nodes += 1;
            let block = BlockRef::parse(value, dimensions)?;
            children.extend((0..block.len()).map(|at| block.id(at)));
            Ok(())
        })?;
        children.sort_unstable();
        let is_tree = children.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_tree || children.len() as u64 != nodes + self.state.leaves {
            return Ok(Err("its nodes are not a tree".to_owned()));
        }
        self.rows += nodes;
        let mut leaf_rows: BTreeMap<u64, u64> = BTreeMap::new();
        for_each_row(snapshot, LOOKUPS, &keys.leaves(), |key, value| {
            let (leaf, _) = VectorKeys::leaf_of(key).ok_or_else(|| corrupt("key of a leaf"))?;
            if !value.is_empty() {
                BlockRef::parse(value, dimensions)?;
            }
            *leaf_rows.entry(leaf).or_default() += 1;
            Ok(())
        })?;
        let mut wrong = None;
        for (leaf, rows) in leaf_rows {
            self.rows += rows;
            if children.binary_search(&leaf).is_err() {
                wrong = Some(format!("leaf {leaf} is not in its tree"));
            }
            for rid in read_leaf(snapshot, keys, leaf, dimensions)?.0.ids {
                wrong = self.check_place(rid, leaf)?.or(wrong);
            }
        }
        for (class, place) in [(APART_NONE, PLACE_NONE), (APART_ODD, PLACE_ODD)] {
            let mut apart = Vec::new();
            for_each_row(snapshot, LOOKUPS, &keys.apart_of(class), |key, _| {
                apart.extend(VectorKeys::rid_of_apart(key));
                Ok(())
            })?;
            for rid in apart {
                self.rows += 1;
                wrong = self.check_place(rid, place)?.or(wrong);
            }
        }
        if wrong.is_none() && self.places != self.state.items {
            wrong = Some(format!("it has {} items and says {}", self.places, self.state.items));
        }
        Ok(wrong.map_or(Ok(self.rows + self.places), Err))
    }

    /// Every entry is where the item's own row says.
    fn check_place(&mut self, rid: u64, place: u64) -> Result<Option<String>, EngineError> {
        self.places += 1;
        let found = self.snapshot.get(LOOKUPS, &self.keys.place(rid))?;
        let is_right = found.as_deref().and_then(keys::number) == Some(place);
        Ok((!is_right).then(|| format!("item {rid:x} is not where its row says")))
    }
}
