//! GROUP BY and aggregates. Groups come out in the order in which their first row was seen.

use quire_value::Value;

use crate::SqlError;
use crate::bound::{Expr, Grouping, Query};
use crate::functions::Accumulator;
use crate::meter::Kept;

use super::datum::{Datum, View};
use super::scope::Group;
use super::seen::Places;
use super::{Flow, Run, Scope, Visit};

struct Accumulating {
    keys: Vec<Value>,
    accumulators: Vec<Accumulator>,
}

/// The groups so far.
struct Groups<'m> {
    groups: Vec<Accumulating>,
    by_keys: Places,
    kept: Kept<'m>,
}

impl Run<'_> {
    pub(super) fn groups(
        &self,
        query: &Query,
        grouping: &Grouping,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let hidden = query.sources.len();
        let Groups { groups, kept: _kept, .. } = self.accumulate(query, grouping, scope)?;
        for group in groups {
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

    /// Evaluates what a row adds to its group.
    pub(super) fn foresee_group(
        &self,
        grouping: &Grouping,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<(), SqlError> {
        for key in &grouping.keys {
            drop(self.evaluate(key, scope)?);
        }
        let scope = Scope::value(View::UNDEFINED, scope);
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
        let (by_keys, kept) = (Places::default(), Kept::new(self.meter()));
        let mut groups = Groups { groups: Vec::new(), by_keys, kept };
        if grouping.keys.is_empty() {
            // Aggregates of nothing are still one row.
            groups.groups.push(Accumulating::new(Vec::new(), grouping));
        }
        // The rows of a subquery beside the item are no more when the item stands for several.
        let reads_container = query.reads_container();
        let _all = self.filtered(query, scope, &mut |scope| {
            let place = self.place_of(grouping, &mut groups, scope)?;
            let times = if reads_container { self.multiplicity.get() } else { 1 };
            self.push_row(&mut groups.groups[place], &groups.kept, grouping, times, scope)?;
            Ok(Flow::Continue(()))
        })?;
        Ok(groups)
    }

    /// Known groups are found without owning their keys.
    fn place_of(
        &self,
        grouping: &Grouping,
        groups: &mut Groups<'_>,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<usize, SqlError> {
        let key = |expr| self.group_key(expr, scope);
        match grouping.keys.as_slice() {
            [] => Ok(0),
            [only] => self.place(grouping, groups, [key(only)?]),
            [first, second] => self.place(grouping, groups, [key(first)?, key(second)?]),
            keys => {
                let keys = keys.iter().map(key).collect::<Result<Vec<Datum<'_>>, SqlError>>()?;
                self.place(grouping, groups, keys)
            }
        }
    }

    fn group_key<'d>(&'d self, expr: &'d Expr, scope: Option<&Scope<'_, 'd>>) -> Result<Datum<'d>, SqlError> {
        let key = self.evaluate(expr, scope)?;
        self.meter().spend_bytes(key.view().approximate_size())?;
        Ok(key)
    }

    fn place<'d>(
        &self,
        grouping: &Grouping,
        groups: &mut Groups<'_>,
        keys: impl AsRef<[Datum<'d>]> + IntoIterator<Item = Datum<'d>>,
    ) -> Result<usize, SqlError> {
        let hash = groups.by_keys.hash(keys.as_ref());
        let has_keys = |place: usize| {
            let known = groups.groups.get(place).map_or(&[][..], |group| &group.keys);
            known.iter().zip(keys.as_ref()).all(|(known, key)| key.view().equals(View::Value(known)))
        };
        if let Some(place) = groups.by_keys.find(hash, has_keys) {
            return Ok(place);
        }
        let bytes: usize = keys.as_ref().iter().map(|key| key.view().approximate_size()).sum();
        let accumulators = grouping.aggregates.len() * std::mem::size_of::<Accumulator>();
        groups.kept.keep(128 + Places::SLOT_BYTES + accumulators + bytes)?;
        let keys: Vec<Value> = keys.into_iter().map(Datum::into_value).collect();
        let place = groups.groups.len();
        groups.groups.push(Accumulating::new(keys, grouping));
        groups.by_keys.insert(hash, place);
        Ok(place)
    }

    fn push_row(
        &self,
        group: &mut Accumulating,
        kept: &Kept<'_>,
        grouping: &Grouping,
        times: u64,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<(), SqlError> {
        // Stands where the group will be, so that levels inside the arguments are as they were bound.
        let scope = Scope::value(View::UNDEFINED, scope);
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            let datum = self.evaluate(&call.argument, Some(&scope))?;
            accumulator.push(datum, times, kept)?;
        }
        Ok(())
    }
}

impl Accumulating {
    fn new(keys: Vec<Value>, grouping: &Grouping) -> Accumulating {
        let accumulators = grouping.aggregates.iter().map(|call| Accumulator::new(call.aggregate)).collect();
        Accumulating { keys, accumulators }
    }
}

/// The sources are gone by now, but their levels are counted: undefined stands for each.
fn visit_group(
    group: &Group,
    hidden: usize,
    scope: Option<&Scope<'_, '_>>,
    visit: &mut Visit<'_>,
) -> Result<Flow, SqlError> {
    if hidden == 0 {
        return visit(Some(&Scope::group(group, scope)));
    }
    visit_group(group, hidden - 1, Some(&Scope::value(View::UNDEFINED, scope)), visit)
}
