//! Copies: fields beside references, made of their targets.

use quire_value::{Node, Value};

use super::{CopyRules, ModelRules, OwnedValue, Reference, Right};
use crate::declare::OnMissing;

impl ModelRules {
    /// What a copy makes of the targets of an item's references, in their order; without a target they are missing. Fields
    /// that clients may write are left out: those of elements without a reference, and with `keep` those without a target.
    pub fn copied<'t>(
        &self,
        copy: &CopyRules,
        references: &[Reference],
        target: &dyn Fn(&Reference) -> Option<Node<'t>>,
    ) -> Vec<OwnedValue> {
        references
            .iter()
            .flat_map(|reference| self.copied_beside(copy, reference, target(reference)))
            .collect()
    }

    fn copied_beside(
        &self,
        copy: &CopyRules,
        reference: &Reference,
        target: Option<Node<'_>>,
    ) -> Vec<OwnedValue> {
        if target.is_none() && copy.copy.on_missing == OnMissing::Keep {
            return Vec::new();
        }
        let values = target.map(|target| self.fields_of(copy, target));
        let owned = |(number, (path, _)): (usize, &(crate::Pointer, _))| OwnedValue {
            owner: copy.copy.name.clone(),
            path: path.clone(),
            positions: reference.positions.clone(),
            right: match values.as_ref().and_then(|values| values.get(number)) {
                None | Some(Value::Undefined) => Right::Absent,
                Some(value) => Right::Value(value.clone()),
            },
            on_write: copy.on_write,
        };
        copy.fields.iter().enumerate().map(owned).collect()
    }

    /// The values of a copy's fields over one target. While they stay, its referrers need not be written.
    pub fn fields_of(&self, copy: &CopyRules, target: Node<'_>) -> Vec<Value> {
        let container = &self.links[copy.link].link.to.container;
        let whole = copy.fields.iter().any(|(_, expression)| expression.reads_whole(0));
        let whole = whole.then(|| self.without_owned(container, target));
        let field = |(_, expression): &(_, quire_sql::Expression)| match &whole {
            Some(whole) => expression.evaluate_values(&[whole]),
            None => expression.evaluate(&[target]),
        };
        copy.fields.iter().map(field).collect()
    }
}
