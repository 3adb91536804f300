//! GROUP BY and aggregates. Groups are emitted in the order of their first rows.
//!
//! Groups that do not fit into memory are spilled: all groups go to a sorter, by key and sequence number, and later
//! rows start new groups. At the end the parts of each group are merged in order, and the groups are sorted by their
//! first part. So the result is identical to the last bit, however often groups were spilled.

use quire_value::{Value, key};

use crate::bind::bound::{Expr, Grouping, Query};
use crate::data::{Datum, Fields, KeyIndex, ValueRef, invalid_record, put_value};
use crate::error::SqlError;
use crate::functions::{Accumulator, Aggregate};
use crate::limits::RetainedMemory;

use super::scope::Group;
use super::spill::{Sorter, StepLimit};
use super::{Execution, Flow, Scope, Visit};

struct GroupState {
    keys: Vec<Value>,
    accumulators: Vec<Accumulator>,
}

/// The groups in memory.
struct Groups<'m> {
    groups: Vec<GroupState>,
    by_keys: KeyIndex,
    kept: RetainedMemory<'m>,
    /// Spilled parts of groups, and how many there are.
    spilled: Option<Sorter<'m>>,
    spilled_count: u64,
    steps: StepLimit,
}

impl Execution<'_> {
    pub(super) fn groups(
        &self,
        query: &Query,
        grouping: &Grouping,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let hidden = query.sources.len();
        if let Some(aggregates) = self.aggregates.take() {
            return visit_group(&Group { keys: Vec::new(), aggregates }, hidden, scope, visit);
        }
        let mut groups = self.accumulate(query, grouping, scope)?;
        if groups.spilled.is_some() {
            return self.spilled_groups(groups, grouping, hidden, scope, visit);
        }
        for group in std::mem::take(&mut groups.groups) {
            groups.steps.spend_bytes(self.meter(), 0)?;
            let mark = self.meter().mark();
            let aggregates = group.accumulators.into_iter().map(Accumulator::finish).collect();
            let group = Group { keys: group.keys, aggregates };
            if visit_group(&group, hidden, scope, visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
            self.meter().restore(mark);
        }
        Ok(Flow::Continue(()))
    }

    fn spilled_groups(
        &self,
        mut groups: Groups<'_>,
        grouping: &Grouping,
        hidden: usize,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        groups.spill()?;
        let Groups { spilled: Some(spilled), steps, .. } = groups else { return Ok(Flow::Continue(())) };
        let mut finished = merged(spilled, Sorter::new(self.meter(), steps), grouping)?.finish()?;
        while let Some((_, payload)) = finished.next_record()? {
            let mark = self.meter().mark();
            let mut fields = Fields(payload);
            self.meter().build(2 * payload.len())?;
            let keys =
                grouping.keys.iter().map(|_| fields.value()).collect::<Result<Vec<Value>, SqlError>>()?;
            let aggregates = grouping.aggregates.iter().map(|_| fields.value());
            let group = Group { keys, aggregates: aggregates.collect::<Result<_, SqlError>>()? };
            if visit_group(&group, hidden, scope, visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
            self.meter().restore(mark);
        }
        Ok(Flow::Continue(()))
    }

    /// Evaluates the group keys and arguments of a row, to collect calls.
    pub(super) fn collect_group_calls(
        &self,
        grouping: &Grouping,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<(), SqlError> {
        for key in &grouping.keys {
            drop(self.evaluate(key, scope)?);
        }
        let scope = Scope::value(ValueRef::UNDEFINED, scope);
        for call in &grouping.aggregates {
            drop(self.evaluate(&call.argument, Some(&scope))?);
        }
        Ok(())
    }

    fn accumulate(
        &self,
        query: &Query,
        grouping: &Grouping,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Groups<'_>, SqlError> {
        let (by_keys, kept) = (KeyIndex::default(), RetainedMemory::new(self.meter()));
        let mut groups = Groups {
            groups: Vec::new(),
            by_keys,
            kept,
            spilled: None,
            spilled_count: 0,
            steps: StepLimit::of(query),
        };
        if grouping.keys.is_empty() {
            // Aggregates over no rows still give one row.
            groups.groups.push(GroupState::new(Vec::new(), grouping, Accumulator::new));
        }
        // Rows of a subquery that does not read the container do not multiply with the item.
        let reads_container = query.reads_container();
        let _all = self.filtered(query, scope, &mut |scope| {
            // A single group that is too large cannot be spilled.
            if groups.kept.should_spill() && !grouping.keys.is_empty() {
                groups.spill()?;
            }
            let position = self.group_of(grouping, &mut groups, scope)?;
            let times = if reads_container { self.multiplicity.get() } else { 1 };
            self.push_row(&mut groups.groups[position], &groups.kept, grouping, times, scope)?;
            Ok(Flow::Continue(()))
        })?;
        Ok(groups)
    }

    /// Finds the group of a row without copying its keys.
    fn group_of(
        &self,
        grouping: &Grouping,
        groups: &mut Groups<'_>,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<usize, SqlError> {
        let key = |expr| self.group_key(expr, scope);
        match grouping.keys.as_slice() {
            [] => Ok(0),
            [only] => self.group_at(grouping, groups, [key(only)?]),
            [first, second] => self.group_at(grouping, groups, [key(first)?, key(second)?]),
            keys => {
                let keys = keys.iter().map(key).collect::<Result<Vec<Datum<'_>>, SqlError>>()?;
                self.group_at(grouping, groups, keys)
            }
        }
    }

    fn group_key<'d>(&'d self, expr: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Result<Datum<'d>, SqlError> {
        let key = self.evaluate(expr, scope)?;
        self.meter().spend_bytes(key.value_ref().approximate_size())?;
        Ok(key)
    }

    fn group_at<'d>(
        &self,
        grouping: &Grouping,
        groups: &mut Groups<'_>,
        keys: impl AsRef<[Datum<'d>]> + IntoIterator<Item = Datum<'d>>,
    ) -> Result<usize, SqlError> {
        let hash = groups.by_keys.hash(keys.as_ref());
        let has_keys = |position: usize| {
            let known = groups.groups.get(position).map_or(&[][..], |group| &group.keys);
            known.iter().zip(keys.as_ref()).all(|(known, key)| key.value_ref().equals(ValueRef::Value(known)))
        };
        if let Some(position) = groups.by_keys.find(hash, has_keys) {
            return Ok(position);
        }
        let bytes: usize = keys.as_ref().iter().map(|key| key.value_ref().approximate_size()).sum();
        let accumulators = grouping.aggregates.len() * std::mem::size_of::<Accumulator>();
        let bytes = 128 + KeyIndex::SLOT_BYTES + accumulators + bytes;
        if !groups.kept.try_retain_bytes(bytes)? {
            groups.spill()?;
            groups.kept.retain_bytes(bytes)?;
        }
        let keys: Vec<Value> = keys.into_iter().map(Datum::into_value).collect();
        let position = groups.groups.len();
        let accumulator = if groups.spilled.is_some() { Accumulator::later } else { Accumulator::new };
        groups.groups.push(GroupState::new(keys, grouping, accumulator));
        groups.by_keys.insert(hash, position);
        Ok(position)
    }

    fn push_row(
        &self,
        group: &mut GroupState,
        kept: &RetainedMemory<'_>,
        grouping: &Grouping,
        times: u64,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<(), SqlError> {
        // A placeholder at the group's level, so that levels inside the arguments are as they were bound.
        let scope = Scope::value(ValueRef::UNDEFINED, scope);
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            let datum = self.evaluate(&call.argument, Some(&scope))?;
            accumulator.push(datum, times, kept)?;
        }
        Ok(())
    }
}

impl GroupState {
    fn new(
        keys: Vec<Value>,
        grouping: &Grouping,
        accumulator: impl Fn(Aggregate) -> Accumulator,
    ) -> GroupState {
        let accumulators = grouping.aggregates.iter().map(|call| accumulator(call.aggregate)).collect();
        GroupState { keys, accumulators }
    }
}

impl Groups<'_> {
    /// Writes all groups to the sorter. Key of the record: group keys and part number. Payload: whether an earlier part of
    /// the group may exist, the keys, and the state of each aggregate.
    fn spill(&mut self) -> Result<(), SqlError> {
        let meter = self.kept.meter();
        let is_later = self.spilled.is_some();
        let sorter = self.spilled.get_or_insert_with(|| Sorter::new(meter, self.steps));
        let (mut record_key, mut payload) = (Vec::new(), Vec::new());
        for group in std::mem::take(&mut self.groups) {
            record_key.clear();
            group.keys.iter().for_each(|value| key::encode(value, &mut record_key));
            record_key.extend(self.spilled_count.to_be_bytes());
            self.spilled_count += 1;
            payload.clear();
            payload.push(u8::from(is_later));
            group.keys.iter().for_each(|value| put_value(value, &mut payload));
            group.accumulators.iter().for_each(|accumulator| accumulator.encode(&mut payload));
            sorter.push(&record_key, &payload)?;
        }
        self.by_keys.clear();
        self.kept.release_all();
        Ok(())
    }
}

/// Merges the parts of each group, and sorts the groups by the number of their first part: values of keys and
/// aggregates.
fn merged<'m>(
    parts: Sorter<'m>,
    mut finished: Sorter<'m>,
    grouping: &Grouping,
) -> Result<Sorter<'m>, SqlError> {
    let mut parts = parts.finish()?;
    let kept = RetainedMemory::new(finished.meter());
    // Encoded keys, number of the first part, and the group merged so far.
    let mut open: Option<(Vec<u8>, [u8; 8], GroupState)> = None;
    while let Some((record_key, payload)) = parts.next_record()? {
        let (keys, number) = record_key.split_last_chunk::<8>().ok_or_else(invalid_record)?;
        let mut fields = Fields(payload);
        let is_later = fields.flag()?;
        let values =
            grouping.keys.iter().map(|_| fields.value()).collect::<Result<Vec<Value>, SqlError>>()?;
        if open.as_ref().is_none_or(|(open_keys, ..)| open_keys != keys) {
            if let Some((_, number, group)) = open.take() {
                finish_group(&mut finished, number, group)?;
            }
            kept.release_all();
            open = Some((keys.to_vec(), *number, GroupState::new(values, grouping, Accumulator::new)));
        }
        let Some((.., group)) = &mut open else { return Err(invalid_record()) };
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            let part = Accumulator::decode(call.aggregate, is_later, &mut fields, &kept)?;
            if is_later {
                accumulator.merge(part, &kept)?;
            } else {
                *accumulator = part;
            }
        }
    }
    if let Some((_, number, group)) = open {
        finish_group(&mut finished, number, group)?;
    }
    Ok(finished)
}

fn finish_group(finished: &mut Sorter<'_>, number: [u8; 8], group: GroupState) -> Result<(), SqlError> {
    let mut payload = Vec::new();
    group.keys.iter().for_each(|value| put_value(value, &mut payload));
    for accumulator in group.accumulators {
        put_value(&accumulator.finish(), &mut payload);
    }
    finished.push(&number, &payload)
}

/// The sources are out of scope here, but their levels still count: each is undefined.
fn visit_group(
    group: &Group,
    hidden: usize,
    scope: Option<&Scope<'_, '_>>,
    visit: &mut Visit<'_>,
) -> Result<Flow, SqlError> {
    if hidden == 0 {
        return visit(Some(&Scope::group(group, scope)));
    }
    visit_group(group, hidden - 1, Some(&Scope::value(ValueRef::UNDEFINED, scope)), visit)
}
