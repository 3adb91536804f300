//! Rollups: counts, sums and extremes over the referrers of a target, kept by differences.
//!
//! What a referrer adds to its targets is a [`RollupChange`]. A write is the change of the new version with that of the old
//! one taken away; changes of several writes merge in any order. Totals are a few numbers; extremes come from an index whose
//! keys order like the values.

use std::collections::{BTreeMap, HashMap};

use quire_value::{Kind, Node, Value, key};

use super::{
    ExpectedPathValue, ItemError, LinkRules, ModelRules, OwnedValue, Reference, RollupRules, TargetKey,
};
use crate::declare::{Operation, RollupOf};
use crate::sum::{CorruptSum, Sum};

/// What changes of one rollup of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupChange {
    /// How many items or references pass the filter.
    pub count: i64,
    /// How many of their values are numbers, and their sum.
    pub numbers: i64,
    pub sum: Sum,
    /// For `min` and `max`: keys of scalar values, and by how many each becomes more.
    pub keys: BTreeMap<Vec<u8>, i64>,
}

/// What is kept of a rollup of a target, beside the index of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupTotals {
    pub count: i64,
    pub numbers: i64,
    pub sum: Sum,
}

impl RollupChange {
    pub fn is_empty_change(&self) -> bool {
        *self == RollupChange::default()
    }

    pub fn merge(&mut self, other: &RollupChange) {
        self.count += other.count;
        self.numbers += other.numbers;
        self.sum.add_sum(&other.sum);
        for (key, count) in &other.keys {
            *self.keys.entry(key.clone()).or_default() += count;
        }
        self.keys.retain(|_, count| *count != 0);
    }

    /// What takes it away again.
    pub fn negate(&mut self) {
        self.count = -self.count;
        self.numbers = -self.numbers;
        self.sum.negate();
        self.keys.values_mut().for_each(|count| *count = -*count);
    }

    fn add(&mut self, op: Operation, value: &Value) {
        self.count += 1;
        match (op, value.kind()) {
            (Operation::Sum | Operation::Avg, Kind::Number) => {
                self.numbers += 1;
                value.as_number().into_iter().for_each(|number| self.sum.add(number));
            }
            (Operation::Min | Operation::Max, Kind::Null | Kind::Bool | Kind::Number | Kind::String) => {
                let mut key = Vec::new();
                key::encode(value, &mut key);
                *self.keys.entry(key).or_default() += 1;
            }
            _ => {}
        }
    }
}

impl RollupTotals {
    pub fn apply(&mut self, change: &RollupChange) {
        self.count += change.count;
        self.numbers += change.numbers;
        self.sum.add_sum(&change.sum);
    }

    pub fn merge(&mut self, other: &RollupTotals) {
        self.count += other.count;
        self.numbers += other.numbers;
        self.sum.add_sum(&other.sum);
    }

    /// Count and numbers (8 bytes each, little-endian), then the sum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.numbers.to_le_bytes());
        bytes.extend(self.sum.to_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<RollupTotals, CorruptSum> {
        let short = CorruptSum { reason: "too short" };
        let (count, rest) = bytes.split_first_chunk().ok_or(short.clone())?;
        let (numbers, rest) = rest.split_first_chunk().ok_or(short)?;
        Ok(RollupTotals {
            count: i64::from_le_bytes(*count),
            numbers: i64::from_le_bytes(*numbers),
            sum: Sum::from_bytes(rest)?,
        })
    }
}

impl ModelRules {
    /// What an item adds to the targets of its references, in their order, each target once. `references` are those of the
    /// rollup's link.
    pub fn contributions(
        &self,
        rollup: &RollupRules,
        item: Node<'_>,
        references: &[Reference],
    ) -> Vec<(TargetKey, RollupChange)> {
        let link = &self.links[rollup.link];
        let whole = self.whole_referrer(rollup, link, item);
        let is_held_by_item = link.link.holder().0.is_empty();
        let mut places: HashMap<&TargetKey, usize> = HashMap::new();
        let mut changes: Vec<(TargetKey, RollupChange)> = Vec::new();
        for reference in references {
            let place = *places.entry(&reference.target).or_insert(changes.len());
            if place == changes.len() {
                changes.push((reference.target.clone(), RollupChange::default()));
            } else if rollup.rollup.of == RollupOf::Items {
                continue;
            }
            let holder = link.holder(item, reference);
            let evaluated = Evaluated { item, whole: whole.as_ref(), holder, is_held_by_item };
            if rollup.filter.as_ref().is_some_and(|filter| evaluated.value(filter).as_bool() != Some(true)) {
                continue;
            }
            let value = rollup.value.as_ref().map_or(Value::Undefined, |value| evaluated.value(value));
            changes[place].1.add(rollup.rollup.op, &value);
        }
        changes
    }

    /// The differences that a write makes, by target: what the new version adds, without what the old one added.
    pub fn rollup_changes(
        &self,
        rollup: &RollupRules,
        old: Option<Node<'_>>,
        new: Option<Node<'_>>,
    ) -> Result<Vec<(TargetKey, RollupChange)>, ItemError> {
        let link = &self.links[rollup.link];
        let mut places: HashMap<TargetKey, usize> = HashMap::new();
        let mut changes: Vec<(TargetKey, RollupChange)> = Vec::new();
        for (item, is_gone) in [(old, true), (new, false)] {
            let Some(item) = item else { continue };
            for (target, mut change) in self.contributions(rollup, item, &link.references(item)?) {
                if is_gone {
                    change.negate();
                }
                let place = *places.entry(target.clone()).or_insert(changes.len());
                match changes.get_mut(place) {
                    Some((_, own)) => own.merge(&change),
                    None => changes.push((target, change)),
                }
            }
        }
        changes.retain(|(_, change)| !change.is_empty_change());
        Ok(changes)
    }

    /// The value at `into`. For `min` and `max`, `extreme` is the first or last key of the index of values.
    pub fn rolled_up(
        &self,
        rollup: &RollupRules,
        totals: &RollupTotals,
        extreme: Option<&[u8]>,
    ) -> OwnedValue {
        let numbers = u64::try_from(totals.numbers).unwrap_or(0);
        let value = match rollup.rollup.op {
            Operation::Count => Some(Value::from(totals.count)),
            Operation::Sum => Some(Value::Number(totals.sum.to_number())),
            Operation::Avg => totals.sum.divided_by(numbers).map(Value::Number),
            Operation::Min | Operation::Max => extreme.and_then(|key| Some(key::decode(key).ok()?.0)),
        };
        OwnedValue {
            owner: rollup.rollup.name.clone(),
            path: rollup.rollup.into.clone(),
            positions: Vec::new(),
            right: value.map_or(ExpectedPathValue::Absent, ExpectedPathValue::Value),
            on_write: rollup.on_write,
        }
    }

    /// The referrer without owned paths, where an expression asks for all of it; also as what holds a reference that is a
    /// property of the item.
    fn whole_referrer(&self, rollup: &RollupRules, link: &LinkRules, item: Node<'_>) -> Option<Value> {
        let is_item = link.link.holder().0.is_empty();
        let reads_referrer = |expression: &quire_sql::Expression| {
            expression.reads_whole(0) || (is_item && expression.reads_whole(1))
        };
        let is_read = rollup.value.iter().chain(&rollup.filter).any(reads_referrer);
        is_read.then(|| self.without_owned(&link.link.from.container, item))
    }
}

/// What `r` and `e` stand for.
struct Evaluated<'a> {
    item: Node<'a>,
    whole: Option<&'a Value>,
    holder: Option<Node<'a>>,
    is_held_by_item: bool,
}

impl Evaluated<'_> {
    fn value(&self, expression: &quire_sql::Expression) -> Value {
        let Some(whole) = self.whole else {
            return match self.holder {
                Some(holder) => expression.evaluate(&[self.item, holder]),
                None => expression.evaluate(&[self.item]),
            };
        };
        let holder = match self.holder {
            Some(_) if self.is_held_by_item => whole.clone(),
            Some(holder) => holder.to_value(),
            None => Value::Undefined,
        };
        expression.evaluate_values(&[whole, &holder])
    }
}
