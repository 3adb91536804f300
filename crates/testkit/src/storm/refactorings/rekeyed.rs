//! rekey: orders by shop become orders by customer. While keys are exchanged a writer does not know which one counts, so every third
//! order has the same value at both paths.

use serde_json::{Value as Json, json};

use super::cycle::Items;
use super::kinds::{Form, Stage, THINGS, Truth, Verb, Write, things};
use super::structures::{OWNERS, owner_of, put};
use crate::model::random::Chance;

/// The owner of an order is its customer. Owners of orders with one key never change.
pub fn orders_with_keys(chance: &mut Chance) -> Truth {
    let customer = |thing: usize, chance: &mut Chance| {
        if has_one_key(thing) { shop(thing) } else { chance.below(OWNERS) }
    };
    let pairs = (0..THINGS).map(|thing| (thing, customer(thing, chance))).collect();
    Truth { pairs, ..things(chance) }
}

fn has_one_key(thing: usize) -> bool {
    thing.is_multiple_of(3)
}

fn shop(thing: usize) -> usize {
    thing % OWNERS
}

fn order(truth: &Truth, thing: usize) -> Json {
    let (shop, customer) = (format!("g{}", shop(thing)), format!("g{}", owner_of(truth, thing)));
    json!({"id": format!("o{thing}"), "shop": shop, "customer": customer, "v": truth.values[&thing]})
}

/// What is filled has the same items as what it is filled from.
pub fn orders(truth: &Truth, form: Form) -> Items {
    let mut items = Items::new();
    for thing in truth.values.keys() {
        put(&mut items, "orders", order(truth, *thing));
        if form == Form::Both {
            put(&mut items, "orders~new", order(truth, *thing));
        }
    }
    items
}

pub fn write_order(truth: &Truth, chance: &mut Chance, stage: Stage) -> Option<(Write, Truth)> {
    let mut thing = chance.below(THINGS);
    if matches!(stage, Stage::Finishing | Stage::Undoing) {
        thing -= thing % 3;
    }
    let (mut after, value) = truth.later();
    let customer = owner_of(truth, thing);
    let is_deleted = truth.values.contains_key(&thing) && chance.one_in(4);
    // Its copy goes to another partition key.
    if !is_deleted && !has_one_key(thing) && matches!(stage, Stage::Expanding | Stage::Expanded) {
        after.pairs.remove(&(thing, customer));
        after.pairs.insert((thing, chance.below(OWNERS)));
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
