//! Items of other containers: `FOLLOW`, `REFERRERS`, and the member of rows that says what follows from them.

use std::rc::Rc;

use quire_value::Value;

use crate::bind::bound::Follow;
use crate::data::{Datum, Item, LinkedArray, LinkedItem, ValueRef, approximate_size};
use crate::error::SqlError;
use crate::functions::{FOLLOWED_MEMBER, FollowCall};

use super::evaluate::value_at;
use super::{Execution, Flow, Scope};

/// What finding an item of another container counts as, in steps of evaluation.
const ITEM_STEPS: u64 = 16;

impl Execution<'_> {
    pub(super) fn follow<'d>(
        &self,
        follow: &Follow,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Datum<'d>, SqlError> {
        let mut items = self.followed(follow, scope)?;
        if !follow.is_array {
            return Ok(items.pop().map_or(Datum::UNDEFINED, Datum::Linked));
        }
        let array = LinkedArray::new(items);
        let bytes = array.approximate_size();
        self.meter().build(bytes)?;
        self.meter().spend_bytes(bytes)?;
        Ok(Datum::LinkedArray(Box::new(array)))
    }

    /// Visits the items of an array without a copy of it.
    pub(super) fn each_followed(
        &self,
        follow: &Follow,
        scope: Option<&Scope<'_, '_>>,
        visit: &mut dyn FnMut(ValueRef<'_>) -> Result<Flow, SqlError>,
    ) -> Result<Flow, SqlError> {
        for item in self.followed(follow, scope)? {
            let mark = self.meter().mark();
            if visit(ValueRef::of(&item.item()))?.is_break() {
                return Ok(Flow::Break(()));
            }
            self.meter().restore(mark);
        }
        Ok(Flow::Continue(()))
    }

    fn followed(
        &self,
        follow: &Follow,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Vec<Rc<dyn LinkedItem>>, SqlError> {
        let (Some(scope), Some(item)) = (scope, value_at(scope, follow.item).as_item()) else {
            return Ok(Vec::new());
        };
        let positions: Option<Vec<usize>> = follow
            .elements
            .as_ref()
            .map(|levels| levels.iter().map(|level| scope.position_at(*level)).collect());
        let call = FollowCall {
            link: follow.link,
            direction: follow.direction,
            item,
            element: positions.as_deref(),
        };
        let items = self.context.externals.links.follow(&call)?;
        self.meter().spend(ITEM_STEPS * (1 + items.len() as u64))?;
        Ok(items)
    }

    /// The item as a value with one more member.
    pub(super) fn with_followed<'d>(
        &self,
        level: usize,
        scope: Option<&Scope<'_, '_>>,
    ) -> Result<Datum<'d>, SqlError> {
        let Some(item) = value_at(scope, level).as_item() else { return Ok(Datum::UNDEFINED) };
        let followed = self.context.externals.links.followed_member(&item)?;
        let bytes = value_at(scope, level).approximate_size() + approximate_size(&followed);
        self.meter().build(bytes)?;
        self.meter().spend_bytes(bytes)?;
        Ok(Datum::Owned(with_member(&item, followed)))
    }
}

fn with_member(item: &Item<'_>, followed: Value) -> Value {
    let mut value = item.to_value();
    if let Value::Object(object) = &mut value {
        object.set(FOLLOWED_MEMBER, followed);
    }
    value
}
