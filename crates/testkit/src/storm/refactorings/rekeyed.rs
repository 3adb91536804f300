//! rekey: orders by shop become orders by customer. While keys are exchanged a writer does not know which one counts, so every third
//! order has the same value at both paths.

use serde_json::{Value as Json, json};

use super::cycle::Items;
use super::kinds::{ExpectedItems, Form, Stage, THINGS, Verb, Write, things};
use super::structures::{OWNERS, owner_of, put};
use crate::Random;

/// The owner of an order is its customer. Owners of orders with one key never change.
pub fn orders_with_keys(random: &mut Random) -> ExpectedItems {
    let customer = |thing: usize, random: &mut Random| {
        if has_one_key(thing) { shop(thing) } else { random.below(OWNERS) }
    };
    let pairs = (0..THINGS).map(|thing| (thing, customer(thing, random))).collect();
    ExpectedItems { pairs, ..things(random) }
}

fn has_one_key(thing: usize) -> bool {
    thing.is_multiple_of(3)
}

fn shop(thing: usize) -> usize {
    thing % OWNERS
}

fn order(expected_items: &ExpectedItems, thing: usize) -> Json {
    let (shop, customer) = (format!("g{}", shop(thing)), format!("g{}", owner_of(expected_items, thing)));
    json!({"id": format!("o{thing}"), "shop": shop, "customer": customer, "v": expected_items.values[&thing]})
}

/// What is filled has the same items as what it is filled from.
pub fn orders(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    for thing in expected_items.values.keys() {
        put(&mut items, "orders", order(expected_items, *thing));
        if form == Form::Both {
            put(&mut items, "orders~new", order(expected_items, *thing));
        }
    }
    items
}

pub fn write_order(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let mut thing = random.below(THINGS);
    if matches!(stage, Stage::Finishing | Stage::Undoing) {
        thing -= thing % 3;
    }
    let (mut after, value) = expected_items.later();
    let customer = owner_of(expected_items, thing);
    let is_deleted = expected_items.values.contains_key(&thing) && random.one_in(4);
    // Its copy goes to another partition key.
    if !is_deleted && !has_one_key(thing) && matches!(stage, Stage::Expanding | Stage::Expanded) {
        after.pairs.remove(&(thing, customer));
        after.pairs.insert((thing, random.below(OWNERS)));
    }
    let key = if stage == Stage::Finished { customer } else { shop(thing) };
    let (id, key) = (format!("o{thing}"), format!("g{key}"));
    let (verb, pointer, shown) = if is_deleted {
        after.values.remove(&thing);
        (Verb::Delete, String::new(), None)
    } else {
        after.values.insert(thing, value);
        (Verb::Upsert(order(&after, thing)), "/v".to_owned(), Some(json!(value)))
    };
    let shows = ("orders", id.clone(), key.clone(), pointer, shown);
    Some((Write { container: "orders", id, key, verb, may_be_refused: false, shows }, after))
}
