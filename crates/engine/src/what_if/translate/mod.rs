//! Recorded operations in the new form: one file for what each kind of change makes of them.
//!
//! | change                  | read of S                                | change below the part   | other write of S | query                                |
//! |-------------------------|------------------------------------------|-------------------------|------------------|--------------------------------------|
//! | extract                 | read S, and the T's that it refers to    | replace T, each once    | replace S        | `FOLLOW` where the part was          |
//! | embed                   | read S; reads of T vanish                | replace S               | replace S        | those of T vanish behind a read of S |
//! | flip                    | read S                                   | replace of the child    | replace S        | filter by the new reference          |
//! | merge-join-items        | reads of join items vanish, or read an end | patch of an end       | same             | as reads                             |
//! | split-array             | read S                                   | patch `add`             | replace S        | same, by the name of the window      |
//! | rename, retype, rekey   | read S                                   | the same                | the same         | by the new name                      |
//! | model: copy             | projections of T vanish behind a read of S | same                  | same             | same                                 |
//! | model: rollup           | same                                     | same                    | same             | the aggregate becomes a read of T    |
//! | other models, container | same                                     | same                    | same             | same, by a computed property or view |

mod containers; // definitions of containers
mod models; // copies and rollups
mod moved; // extract, split-array, rename
mod relations; // embed, flip, merge-join-items

use quire_model::Model;
use quire_profile::{ItemChange as RecordedChange, Operation, covers};
use quire_value::Value;

use self::containers::ContainerChange;
use self::models::NewDeclarations;
use self::moved::{Extract, Rename, SplitArray};
use self::relations::{Embed, Flip, JoinItems};
use super::actions::ActionRequest;
use super::order::WhatIfChange;
use super::plain;
use super::replay::{RecordedOperation, Skip};
use super::requests::{ReplayContext, Request};
use super::scratch::Side;

/// What a change makes of requests.
pub(crate) enum Translation {
    Same,
    Container(ContainerChange),
    Model(NewDeclarations),
    Rename(Rename),
    Extract(Extract),
    SplitArray(SplitArray),
    Embed(Embed),
    Flip(Flip),
    JoinItems(JoinItems),
}

impl Translation {
    /// `before` and `after` are the models of the two forms.
    pub fn of(change: &WhatIfChange, before: &Model, after: &Model) -> Translation {
        match change {
            WhatIfChange::Container(body) => Translation::Container(ContainerChange::of(body)),
            WhatIfChange::Model(_) => Translation::Model(NewDeclarations::between(before, after)),
            WhatIfChange::Refactoring(body) => match text(body, "kind") {
                "rename" => Translation::Rename(Rename::of(body)),
                "extract" => Translation::Extract(Extract::of(body, after)),
                "split-array" => Translation::SplitArray(SplitArray::of(body)),
                "embed" => Embed::of(body, before, after).map_or(Translation::Same, Translation::Embed),
                "flip" => Translation::Flip(Flip::of(body)),
                "merge-join-items" => Translation::JoinItems(JoinItems::of(body)),
                _ => Translation::Same,
            },
        }
    }

    /// The requests that do the same in the new form. `now` is the one of the old form, `earlier` what its action did before.
    pub fn requests(
        &mut self,
        context: &ReplayContext<'_>,
        recorded: &RecordedOperation<'_>,
        now: &Request,
        earlier: &[ActionRequest],
    ) -> Result<Vec<Request>, Skip> {
        let translated = match self {
            Translation::Same => None,
            Translation::Container(change) => change.requests(context, recorded, now)?,
            Translation::Model(new) => new.requests(context, recorded, now, earlier)?,
            Translation::Rename(rename) => rename.requests(context, recorded, now)?,
            Translation::Extract(extract) => extract.requests(context, recorded, now)?,
            Translation::SplitArray(split) => split.requests(context, recorded, now)?,
            Translation::Embed(embed) => embed.requests(context, recorded, earlier)?,
            Translation::Flip(flip) => flip.requests(context, recorded, now, earlier)?,
            Translation::JoinItems(join) => join.requests(context, recorded, earlier)?,
        };
        translated.map_or_else(|| Ok(vec![same(context, recorded, now)?]), Ok)
    }
}

/// What a kind of change makes of an operation; `None`: the same.
type Translated = Result<Option<Vec<Request>>, Skip>;

/// The same operation on the item as it is in the new form.
fn same(
    context: &ReplayContext<'_>,
    recorded: &RecordedOperation<'_>,
    now: &Request,
) -> Result<Request, Skip> {
    match now {
        Request::Query { container, query, scope } => {
            let keys = [Side::Now, Side::Then].map(|side| context.container(side, container));
            let is_same_key = match keys {
                [Ok(now), Ok(then)] => {
                    now.definition.partition_key.paths == then.definition.partition_key.paths
                }
                _ => true,
            };
            let scope = if is_same_key { scope.clone() } else { Default::default() };
            Ok(Request::Query { container: container.clone(), query: query.clone(), scope })
        }
        Request::Priced { .. } | Request::AsNow { .. } => Ok(now.clone()),
        Request::Read { .. } | Request::Write { .. } => plain::request(context, Side::Then, recorded),
    }
}

/// The same query with another text.
fn with_text(now: &Request, text: String) -> Request {
    let mut request = now.clone();
    if let Request::Query { query, .. } = &mut request {
        query.text = text;
    }
    request
}

fn text<'v>(body: &'v Value, name: &str) -> &'v str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A recorded change as two: what it did at or below a path, and the rest.
fn divided(change: &RecordedChange, path: &str) -> (RecordedChange, RecordedChange) {
    let part = |is_below: bool| {
        let is_part = |own: &str| covers(path, own) == is_below;
        RecordedChange {
            paths: change.paths.iter().filter(|own| is_part(own)).cloned().collect(),
            lengths: change.lengths.iter().filter(|own| is_part(&own.path)).cloned().collect(),
            ..change.clone()
        }
    };
    (part(true), part(false))
}

/// The change of an item that was there before; `None` for other operations.
fn change_of<'r>(recorded: &RecordedOperation<'r>) -> Option<&'r RecordedChange> {
    let record = recorded.record;
    let is_change = matches!(record.operation, Operation::Replace | Operation::Upsert | Operation::Patch);
    record.change.as_ref().filter(|change| is_change && change.size_before.is_some())
}

/// Whether the query names a path, or something below or above it.
fn touches(recorded: &RecordedOperation<'_>, path: &str) -> bool {
    let Some(shape) = recorded.shape.map(|own| &own.shape) else { return false };
    let projected = match &shape.projection {
        quire_profile::Projection::All => &[][..],
        quire_profile::Projection::Paths(paths) => paths,
    };
    shape.used.iter().chain(projected).any(|own| covers(path, own) || (!own.is_empty() && covers(own, path)))
}
