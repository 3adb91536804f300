//! Copies: fields beside references, made of their targets.

use quire_value::{Node, Value};

use super::{CopyRules, ExpectedPathValue, ModelRules, OwnedValue, Reference};
use crate::declare::OnMissing;

/// JSON of the fields of one target. No item can hold more than 2 MB of them and is refused, so the fields beyond are not made.
const VALUES_BYTES_MAX: usize = 4 << 20;

impl ModelRules {
    /// What a copy makes of the targets of an item's references, in their order; without a target they are missing. Fields
    /// that clients may write are left out: those of elements without a reference, and with `keep` those without a target.
    /// One reference after the other: many may refer to something large.
    pub fn copied<'a, 't: 'a>(
        &'a self,
        copy: &'a CopyRules,
        references: &'a [Reference],
        target: &'a dyn Fn(&Reference) -> Option<Node<'t>>,
    ) -> impl Iterator<Item = OwnedValue> + 'a {
        references.iter().flat_map(move |reference| {
            let values = target(reference).map(|target| self.fields_of(copy, target));
            copy.fields_beside(reference, values.as_deref())
        })
    }

    /// The values of a copy's fields over one target. While they stay, its referrers need not be written.
    pub fn fields_of(&self, copy: &CopyRules, target: Node<'_>) -> Vec<Value> {
        let container = &self.links[copy.link].link.to.container;
        let whole = copy.fields.iter().any(|(_, expression)| expression.reads_whole(0));
        let whole = whole.then(|| self.without_owned(container, target));
        let mut bytes = 0;
        let field = |(_, expression): &(_, quire_sql::Expression)| {
            if bytes > VALUES_BYTES_MAX {
                return Value::Undefined;
            }
            let value = match &whole {
                Some(whole) => expression.evaluate_values(&[whole]),
                None => expression.evaluate(&[target]),
            };
            bytes += value.json_len_min();
            value
        };
        copy.fields.iter().map(field).collect()
    }
}

impl CopyRules {
    /// What it makes of one reference. `values` are those of its target's fields.
    pub fn fields_beside(&self, reference: &Reference, values: Option<&[Value]>) -> Vec<OwnedValue> {
        if values.is_none() && self.copy.on_missing == OnMissing::Keep {
            return Vec::new();
        }
        let owned = |(number, (path, _)): (usize, &(crate::Pointer, _))| OwnedValue {
            owner: self.copy.name.clone(),
            path: path.clone(),
            positions: reference.positions.clone(),
            right: match values.and_then(|values| values.get(number)) {
                None | Some(Value::Undefined) => ExpectedPathValue::Absent,
                Some(value) => ExpectedPathValue::Value(value.clone()),
            },
            on_write: self.on_write,
        };
        self.fields.iter().enumerate().map(owned).collect()
    }
}
