//! What each kind of refactoring stores in each form, and what a writer may write when. Kinds of one container are here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::cycle::Items;
use super::{rekeyed, structures};
use crate::Random;

/// Things of a cycle: more than one commit of a refactoring visits.
pub const THINGS: usize = 130;

/// The items as the writer has written them.
#[derive(Clone, Debug, Default)]
pub struct ExpectedItems {
    /// By thing; no value is written twice.
    pub values: BTreeMap<usize, u64>,
    /// A member that no refactoring has to do with.
    pub numbers: BTreeMap<usize, u64>,
    /// What belongs to what.
    pub pairs: BTreeSet<(usize, usize)>,
    /// Things that were written in the new form: an undo may leave them so.
    pub changed: BTreeSet<usize>,
    pub next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Old,
    /// Expanded.
    Both,
    New,
}

/// Where the refactoring is, or a little further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Expanding,
    Expanded,
    Finishing,
    Finished,
    Undoing,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Upsert(Json),
    Patch(Json),
    Delete,
}

/// A write, and where one sees whether it was done.
#[derive(Clone, Debug)]
pub struct Write {
    pub container: &'static str,
    pub id: String,
    pub key: String,
    pub verb: Verb,
    pub may_be_refused: bool,
    /// Container, id, partition key, place, and what is there then; nothing: the item is gone.
    pub shows: (&'static str, String, String, String, Option<Json>),
}

pub struct Kind {
    pub name: &'static str,
    /// With their partition keys.
    pub containers: &'static [(&'static str, &'static str)],
    /// Containers that the refactoring makes.
    pub made: &'static [&'static str],
    pub model: Option<fn() -> Json>,
    pub order: fn() -> Json,
    pub fill: fn(&mut Random) -> ExpectedItems,
    pub stored: fn(&ExpectedItems, Form) -> Items,
    pub write: fn(&ExpectedItems, &mut Random, Stage) -> Option<(Write, ExpectedItems)>,
    /// What is the same becomes equal.
    pub normalized: fn(Items, Form, &ExpectedItems) -> Items,
    /// Items are converted a moment after they were written.
    pub is_followed: bool,
}

/// Where nothing is said, there is no model, nothing is made, and equal items are equal.
const PLAIN: Kind = Kind {
    name: "",
    containers: &[],
    made: &[],
    model: None,
    order: || Json::Null,
    fill: things,
    stored: |_, _| Items::new(),
    write: |_, _, _| None,
    normalized: |items, _, _| items,
    is_followed: false,
};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "rename",
        containers: &[("people", "/id")],
        order: || json!({"kind": "rename", "container": "people", "from": "/fname", "to": "/firstName"}),
        stored: |expected_items, form| people(expected_items, form, renamed),
        write: |expected_items, random, stage| write_person(expected_items, random, stage, renamed),
        normalized: |items, form, expected_items| normalized_people(items, form, expected_items, renamed),
        is_followed: true,
        ..PLAIN
    },
    Kind {
        name: "rename-in-arrays",
        containers: &[("people", "/id")],
        order: || json!({"kind": "rename", "container": "people", "from": "/lines/*/qty", "to": "/lines/*/quantity"}),
        stored: |expected_items, form| people(expected_items, form, renamed_in_lines),
        write: |expected_items, random, stage| write_person(expected_items, random, stage, renamed_in_lines),
        normalized: |items, form, expected_items| {
            normalized_people(items, form, expected_items, renamed_in_lines)
        },
        is_followed: true,
        ..PLAIN
    },
    Kind {
        name: "retype",
        containers: &[("people", "/id")],
        order: || json!({"kind": "retype", "container": "people", "path": "/price", "as": "number"}),
        stored: |expected_items, form| people(expected_items, form, retyped),
        write: |expected_items, random, stage| write_person(expected_items, random, stage, retyped),
        normalized: |items, form, expected_items| normalized_people(items, form, expected_items, retyped),
        is_followed: true,
        ..PLAIN
    },
    Kind {
        name: "merge-join-items",
        containers: &[("joins", "/id"), ("lefts", "/id"), ("rights", "/id")],
        order: || {
            json!({"kind": "merge-join-items", "container": "joins", "left": "/left", "right": "/right",
                "into": ["/rights", "/lefts"], "ends": ["lefts", "rights"]})
        },
        fill: structures::pairs,
        stored: structures::joined,
        write: structures::write_join,
        normalized: |items, _, _| structures::sorted(items),
        ..PLAIN
    },
    Kind {
        name: "flip",
        containers: &[("publishers", "/id"), ("titles", "/id")],
        order: || json!({"kind": "flip", "container": "publishers", "path": "/books", "to": "titles", "into": "/pubId"}),
        fill: structures::owned,
        stored: structures::published,
        write: structures::write_title,
        normalized: |items, _, _| structures::sorted(items),
        ..PLAIN
    },
    Kind {
        name: "embed",
        containers: &[("users", "/id"), ("profiles", "/id")],
        model: Some(|| {
            json!({"version": 1, "links": [{"name": "user-profile", "integrity": "enforced",
                "from": {"container": "users", "path": "/profileId"}, "to": {"container": "profiles"}}]})
        }),
        order: || json!({"kind": "embed", "link": "user-profile", "into": "/profile"}),
        stored: structures::profiles,
        write: structures::write_profile,
        ..PLAIN
    },
    Kind {
        name: "embed-in-target",
        containers: &[("orders", "/id"), ("lines", "/id")],
        model: Some(|| {
            json!({"version": 1, "links": [{"name": "line-order", "onDelete": "cascade",
                "from": {"container": "lines", "path": "/orderId"}, "to": {"container": "orders"}}]})
        }),
        order: || json!({"kind": "embed", "link": "line-order", "into": "/lines", "side": "target"}),
        fill: structures::owned,
        stored: structures::lines,
        write: structures::write_line,
        normalized: |items, _, _| structures::sorted(items),
        ..PLAIN
    },
    Kind {
        name: "extract",
        containers: &[("portfolios", "/id")],
        made: &["stocks"],
        order: || {
            json!({"kind": "extract", "container": "portfolios", "path": "/holdings/*/stock", "key": "/symbol",
                "into": "stocks", "reference": "stockId", "oldWriters": "through"})
        },
        fill: structures::owned,
        stored: structures::portfolios,
        write: structures::write_stock,
        normalized: structures::without_made_stocks,
        ..PLAIN
    },
    Kind {
        name: "split-array",
        containers: &[("posts", "/id")],
        made: &["pages"],
        order: || {
            json!({"kind": "split-array", "container": "posts", "path": "/comments", "keep": 3, "key": "/id",
                "pages": {"container": "pages", "path": "/comments", "parent": "/itemId", "number": "/page", "size": 10}})
        },
        fill: structures::commented,
        stored: structures::posts,
        write: structures::write_comment,
        normalized: |items, _, _| structures::with_pages(items),
        ..PLAIN
    },
    Kind {
        name: "rekey",
        containers: &[("orders", "/shop")],
        made: &["orders~new"],
        order: || json!({"kind": "rekey", "container": "orders", "partitionKey": {"paths": ["/customer"], "version": 2}}),
        fill: rekeyed::orders_with_keys,
        stored: rekeyed::orders,
        write: rekeyed::write_order,
        is_followed: true,
        ..PLAIN
    },
];

/// Things with a value each.
pub fn things(_: &mut Random) -> ExpectedItems {
    let values = (0..THINGS).map(|thing| (thing, thing as u64)).collect();
    let numbers = (0..THINGS).map(|thing| (thing, 0)).collect();
    ExpectedItems { values, numbers, next: 1_000, ..ExpectedItems::default() }
}

impl ExpectedItems {
    /// The same with a value that nobody has written.
    pub fn later(&self) -> (ExpectedItems, u64) {
        let mut after = self.clone();
        after.next += 1;
        (after, self.next)
    }
}

/// A write of the member that no refactoring has to do with: always fine.
pub fn write_number(
    expected_items: &ExpectedItems,
    thing: usize,
    container: &'static str,
    id: String,
) -> Option<(Write, ExpectedItems)> {
    let (mut after, number) = expected_items.later();
    after.numbers.insert(thing, number);
    let verb = Verb::Patch(json!([{"op": "set", "path": "/n", "value": number}]));
    let shows = (container, id.clone(), id.clone(), "/n".to_owned(), Some(json!(number)));
    Some((Write { container, key: id.clone(), id, verb, may_be_refused: false, shows }, after))
}

/// A member of an item in the old form, or in the new one.
type Member = fn(&mut Json, u64, bool);

fn renamed(item: &mut Json, value: u64, is_new: bool) {
    item[if is_new { "firstName" } else { "fname" }] = json!(value);
}

fn renamed_in_lines(item: &mut Json, value: u64, is_new: bool) {
    let name = if is_new { "quantity" } else { "qty" };
    item["lines"] = json!([{"id": "a", name: value}, {name: value, "x": 1}]);
}

fn retyped(item: &mut Json, value: u64, is_new: bool) {
    item["price"] = if is_new { json!(value) } else { json!(value.to_string()) };
}

fn person(expected_items: &ExpectedItems, thing: usize, value: u64, member: Member, is_new: bool) -> Json {
    let mut item = json!({"id": format!("p{thing}"), "n": expected_items.numbers[&thing]});
    member(&mut item, value, is_new);
    item
}

fn people(expected_items: &ExpectedItems, form: Form, member: Member) -> Items {
    let item = |(thing, value): (&usize, &u64)| {
        let name = ("people".to_owned(), format!("p{thing}"));
        (name, person(expected_items, *thing, *value, member, form != Form::Old))
    };
    expected_items.values.iter().map(item).collect()
}

/// In either form while it is followed; then in the one that it has.
fn write_person(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
    member: Member,
) -> Option<(Write, ExpectedItems)> {
    let thing = random.below(THINGS);
    let id = format!("p{thing}");
    let is_new = match stage {
        Stage::Expanding | Stage::Expanded => random.one_in(2),
        Stage::Finishing | Stage::Finished => true,
        Stage::Undoing => false,
    };
    if random.one_in(3) {
        return write_number(expected_items, thing, "people", id);
    }
    let (mut after, value) = expected_items.later();
    after.values.insert(thing, value);
    if is_new {
        after.changed.insert(thing);
    }
    // Whatever form it has by then, no other write has this number.
    after.numbers.insert(thing, value);
    let body = person(&after, thing, value, member, is_new);
    let shows = ("people", id.clone(), id.clone(), "/n".to_owned(), Some(json!(value)));
    let write = Write {
        container: "people",
        key: id.clone(),
        id,
        verb: Verb::Upsert(body),
        may_be_refused: false,
        shows,
    };
    Some((write, after))
}

/// An undo leaves what was written in the new form; all else has the old one.
fn normalized_people(mut items: Items, form: Form, expected_items: &ExpectedItems, member: Member) -> Items {
    if form != Form::Old {
        return items;
    }
    for thing in &expected_items.changed {
        let name = ("people".to_owned(), format!("p{thing}"));
        let new = person(expected_items, *thing, expected_items.values[thing], member, true);
        if items.get(&name) == Some(&new) {
            items.insert(name, person(expected_items, *thing, expected_items.values[thing], member, false));
        }
    }
    items
}
