//! GROUP BY and aggregates. Groups come out in the order in which their first row was seen.

use std::collections::HashMap;

use quire_value::Value;

use crate::SqlError;
use crate::bound::{Grouping, Query};
use crate::functions::Accumulator;

use super::scope::Group;
use super::{Flow, Run, Scope, Visit, approximate_size};

struct Accumulating {
    keys: Vec<Value>,
    accumulators: Vec<Accumulator>,
}

impl Run<'_> {
    pub(super) fn groups(
        &self,
        query: &Query,
        grouping: &Grouping,
        scope: Option<&Scope<'_>>,
        visit: &mut Visit<'_>,
    ) -> Result<Flow, SqlError> {
        let hidden = query.sources.len();
        for group in self.accumulate(query, grouping, scope)? {
            let aggregates = group.accumulators.into_iter().map(Accumulator::finish).collect();
            let group = Group { keys: group.keys, aggregates };
            if visit_group(&group, hidden, scope, visit)?.is_break() {
                return Ok(Flow::Break(()));
            }
        }
        Ok(Flow::Continue(()))
    }

    fn accumulate(
        &self,
        query: &Query,
        grouping: &Grouping,
        scope: Option<&Scope<'_>>,
    ) -> Result<Vec<Accumulating>, SqlError> {
        let mut groups: Vec<Accumulating> = Vec::new();
        let mut by_keys: HashMap<Vec<Value>, usize> = HashMap::new();
        if grouping.keys.is_empty() {
            // Aggregates of nothing are still one row.
            groups.push(Accumulating::new(Vec::new(), grouping));
            by_keys.insert(Vec::new(), 0);
        }
        let _all = self.filtered(query, scope, &mut |scope| {
            let keys = grouping.keys.iter().map(|key| self.own(self.evaluate(key, scope)?));
            let keys = keys.collect::<Result<Vec<Value>, SqlError>>()?;
            let index = match by_keys.get(&keys) {
                Some(index) => *index,
                None => {
                    self.budget().hold(256 + 2 * keys.iter().map(approximate_size).sum::<usize>())?;
                    groups.push(Accumulating::new(keys.clone(), grouping));
                    by_keys.insert(keys, groups.len() - 1);
                    groups.len() - 1
                }
            };
            self.push_row(&mut groups[index], grouping, scope)?;
            Ok(Flow::Continue(()))
        })?;
        Ok(groups)
    }

    fn push_row(
        &self,
        group: &mut Accumulating,
        grouping: &Grouping,
        scope: Option<&Scope<'_>>,
    ) -> Result<(), SqlError> {
        // Stands where the group will be, so that levels inside the arguments are as they were bound.
        let scope = Scope::value(&Value::Undefined, scope);
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            let value = self.evaluate(&call.argument, Some(&scope))?;
            let size = approximate_size(&value);
            if accumulator.push(value) {
                self.budget().hold(size)?;
            }
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
    scope: Option<&Scope<'_>>,
    visit: &mut Visit<'_>,
) -> Result<Flow, SqlError> {
    if hidden == 0 {
        return visit(Some(&Scope::group(group, scope)));
    }
    visit_group(group, hidden - 1, Some(&Scope::value(&Value::Undefined, scope)), visit)
}
