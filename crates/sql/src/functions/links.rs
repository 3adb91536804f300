//! `FOLLOW` and `REFERRERS`: items of other containers, along declared links. The caller knows the links and reads the
//! items.

use std::rc::Rc;

use quire_value::Value;

use super::{Function, Implementation, IndexUse, exactly, row};
use crate::data::{Item, LinkedItem};
use crate::error::SqlError;

pub(super) const FUNCTIONS: &[Function] = &[
    row(&["FOLLOW"], exactly(2), Implementation::Link(LinkDirection::Follow), IndexUse::None),
    row(&["REFERRERS"], exactly(2), Implementation::Link(LinkDirection::Referrers), IndexUse::None),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    /// From an item to what it refers to.
    Follow,
    /// From an item to the items that refer to it.
    Referrers,
}

/// A link as a query sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkShape {
    /// Passed to [`Links::follow`].
    pub number: usize,
    /// The path of the reference in the referrer.
    pub path: Vec<LinkStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStep {
    Name(String),
    /// Every element of an array.
    Element,
}

/// What to follow from an item.
pub struct FollowCall<'a> {
    pub link: usize,
    pub direction: LinkDirection,
    pub item: Item<'a>,
    /// The positions of one reference, one for each [`LinkStep::Element`]; `None`: all references.
    pub element: Option<&'a [usize]>,
}

/// The links of a container. A compiled query refers to them by number, each run is given them.
///
/// Contract: all items of one run are of one moment. A caller that collects what it has to read (see
/// [`Evaluator::collect_calls`](crate::Evaluator::collect_calls)) returns [`SqlError::CallPending`] for what it does not
/// know yet.
pub trait Links {
    /// Called at compile time. `None`: there is no such link, or its items are not those of the query's container.
    fn find(&self, name: &str, direction: LinkDirection) -> Option<LinkShape>;

    /// The items at the other end that exist: targets in the order of the references, one for each; referrers by id.
    fn follow(&self, call: &FollowCall<'_>) -> Result<Vec<Rc<dyn LinkedItem>>, SqlError>;

    /// The member that [`FOLLOWED_MEMBER`] names, for a row that is this item.
    fn followed_member(&self, item: &Item<'_>) -> Result<Value, SqlError>;
}

/// Added to rows that are items, by queries compiled with [`Schema::adds_followed`](crate::Schema::adds_followed).
pub const FOLLOWED_MEMBER: &str = "_follow";

/// For runs without links.
pub(crate) struct NoLinks;

impl Links for NoLinks {
    fn find(&self, _: &str, _: LinkDirection) -> Option<LinkShape> {
        None
    }

    fn follow(&self, _: &FollowCall<'_>) -> Result<Vec<Rc<dyn LinkedItem>>, SqlError> {
        Err(SqlError::Refused("the query follows links, and none were given".to_owned()))
    }

    fn followed_member(&self, _: &Item<'_>) -> Result<Value, SqlError> {
        Err(SqlError::Refused("the query follows links, and none were given".to_owned()))
    }
}
