//! What kinds that change several containers store in each form, and what a writer may write when.

use serde_json::{Value as Json, json};

use super::cycle::Items;
use super::kinds::{ExpectedItems, Form, Stage, THINGS, Verb, Write, things, write_number};
use crate::Random;

/// Things that others belong to.
pub const OWNERS: usize = 20;
/// What the window of a split array keeps.
const KEPT: usize = 3;

pub fn put(items: &mut Items, container: &str, item: Json) {
    let id = item["id"].as_str().unwrap_or_default().to_owned();
    items.insert((container.to_owned(), id), item);
}

/// Arrays in one order.
pub fn sorted(items: Items) -> Items {
    let sort = |mut item: Json| {
        for value in item.as_object_mut().into_iter().flat_map(|members| members.values_mut()) {
            if let Some(elements) = value.as_array_mut() {
                elements.sort_by_key(Json::to_string);
            }
        }
        item
    };
    items.into_iter().map(|(name, item)| (name, sort(item))).collect()
}

/// Every thing belongs to one of the owners, whose number is the second of the pair.
pub fn owned(random: &mut Random) -> ExpectedItems {
    let pairs = (0..THINGS).map(|thing| (thing, random.below(OWNERS))).collect();
    ExpectedItems { pairs, ..things(random) }
}

pub fn owner_of(expected_items: &ExpectedItems, thing: usize) -> usize {
    expected_items.pairs.range((thing, 0)..(thing + 1, 0)).next().map_or(0, |pair| pair.1)
}

fn of_owner(expected_items: &ExpectedItems, owner: usize) -> impl Iterator<Item = usize> {
    expected_items.pairs.iter().filter(move |pair| pair.1 == owner).map(|pair| pair.0)
}

// merge-join-items: things are joined with owners.

pub fn pairs(random: &mut Random) -> ExpectedItems {
    let pairs = (0..THINGS).map(|_| (random.below(OWNERS), random.below(OWNERS))).collect();
    ExpectedItems { pairs, ..things(random) }
}

pub fn joined(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    for (left, right) in expected_items.pairs.iter().filter(|_| form != Form::New) {
        put(&mut items, "joins", join(*left, *right));
    }
    for own in 0..OWNERS {
        let rights = expected_items
            .pairs
            .iter()
            .filter(|pair| pair.0 == own)
            .map(|pair| json!(format!("r{}", pair.1)));
        let lefts = expected_items
            .pairs
            .iter()
            .filter(|pair| pair.1 == own)
            .map(|pair| json!(format!("l{}", pair.0)));
        let mut left = json!({"id": format!("l{own}"), "n": expected_items.numbers[&own]});
        let mut right = json!({"id": format!("r{own}")});
        if form != Form::Old {
            (left["rights"], right["lefts"]) = (rights.collect(), lefts.collect());
        }
        put(&mut items, "lefts", left);
        put(&mut items, "rights", right);
    }
    items
}

fn join(left: usize, right: usize) -> Json {
    json!({"id": format!("l{left}-r{right}"), "left": format!("l{left}"), "right": format!("r{right}")})
}

pub fn write_join(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let (left, right) = (random.below(OWNERS), random.below(OWNERS));
    if random.one_in(3) {
        return write_number(expected_items, left, "lefts", format!("l{left}"));
    }
    let mut after = expected_items.clone();
    let is_added = !expected_items.pairs.contains(&(left, right));
    if is_added {
        after.pairs.insert((left, right));
    } else {
        after.pairs.remove(&(left, right));
    }
    match stage {
        Stage::Expanding | Stage::Expanded => {
            let id = format!("l{left}-r{right}");
            let shown = is_added.then(|| json!(format!("l{left}")));
            let shows = ("joins", id.clone(), id.clone(), "/left".to_owned(), shown);
            let verb = if is_added { Verb::Upsert(join(left, right)) } else { Verb::Delete };
            Some((
                Write { container: "joins", key: id.clone(), id, verb, may_be_refused: false, shows },
                after,
            ))
        }
        Stage::Finished => {
            let id = format!("l{left}");
            let rights: Json = after
                .pairs
                .iter()
                .filter(|pair| pair.0 == left)
                .map(|pair| json!(format!("r{}", pair.1)))
                .collect();
            // The number says whether it was done.
            let (mut after, number) = after.later();
            after.numbers.insert(left, number);
            let verb = Verb::Patch(json!([{"op": "set", "path": "/rights", "value": rights},
                {"op": "set", "path": "/n", "value": number}]));
            let shows = ("lefts", id.clone(), id.clone(), "/n".to_owned(), Some(json!(number)));
            Some((
                Write { container: "lefts", key: id.clone(), id, verb, may_be_refused: false, shows },
                after,
            ))
        }
        Stage::Finishing | Stage::Undoing => None,
    }
}

// flip: titles of publishers.

pub fn published(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    for owner in 0..OWNERS {
        let mut publisher = json!({"id": format!("p{owner}")});
        if form != Form::New {
            publisher["books"] =
                of_owner(expected_items, owner).map(|thing| json!(format!("t{thing}"))).collect();
        }
        put(&mut items, "publishers", publisher);
    }
    for (thing, number) in &expected_items.numbers {
        let mut title = json!({"id": format!("t{thing}"), "n": number});
        if form != Form::Old {
            title["pubId"] = json!(format!("p{}", owner_of(expected_items, *thing)));
        }
        put(&mut items, "titles", title);
    }
    items
}

pub fn write_title(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let (thing, owner) = (random.below(THINGS), random.below(OWNERS));
    let id = format!("t{thing}");
    if random.one_in(2) || matches!(stage, Stage::Expanding | Stage::Undoing) {
        return write_number(expected_items, thing, "titles", id);
    }
    let (mut after, number) = expected_items.later();
    after.pairs.remove(&(thing, owner_of(expected_items, thing)));
    after.pairs.insert((thing, owner));
    after.numbers.insert(thing, number);
    let verb = Verb::Patch(json!([{"op": "set", "path": "/pubId", "value": format!("p{owner}")},
        {"op": "set", "path": "/n", "value": number}]));
    let shows = ("titles", id.clone(), id.clone(), "/n".to_owned(), Some(json!(number)));
    Some((Write { container: "titles", key: id.clone(), id, verb, may_be_refused: false, shows }, after))
}

// embed: profiles of users.

fn profile(thing: usize, value: u64) -> Json {
    json!({"id": format!("p{thing}"), "bio": value})
}

pub fn profiles(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    for (thing, value) in &expected_items.values {
        if form != Form::New {
            put(&mut items, "profiles", profile(*thing, *value));
        }
        let mut user = json!({"id": format!("u{thing}"), "n": expected_items.numbers[thing], "profileId": format!("p{thing}")});
        if form != Form::Old {
            user["profile"] = profile(*thing, *value);
        }
        put(&mut items, "users", user);
    }
    items
}

pub fn write_profile(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let thing = random.below(THINGS);
    let user = format!("u{thing}");
    if random.one_in(3) || stage == Stage::Undoing {
        return write_number(expected_items, thing, "users", user);
    }
    let (mut after, value) = expected_items.later();
    after.values.insert(thing, value);
    if matches!(stage, Stage::Expanding | Stage::Expanded) {
        let id = format!("p{thing}");
        let shows = ("profiles", id.clone(), id.clone(), "/bio".to_owned(), Some(json!(value)));
        let verb = Verb::Upsert(profile(thing, value));
        let write = Write { container: "profiles", key: id.clone(), id, verb, may_be_refused: false, shows };
        return Some((write, after));
    }
    // Until its item has become a part the copy owns it.
    let verb = Verb::Patch(json!([{"op": "set", "path": "/profile/bio", "value": value}]));
    let shows = ("users", user.clone(), user.clone(), "/profile/bio".to_owned(), Some(json!(value)));
    let may_be_refused = stage == Stage::Finishing;
    Some((Write { container: "users", key: user.clone(), id: user, verb, may_be_refused, shows }, after))
}

// embed in the target: lines of orders.

fn line(expected_items: &ExpectedItems, thing: usize) -> Json {
    json!({"id": format!("l{thing}"), "orderId": format!("o{}", owner_of(expected_items, thing)), "count": expected_items.values[&thing]})
}

pub fn lines(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    for thing in expected_items.values.keys().filter(|_| form != Form::New) {
        put(&mut items, "lines", line(expected_items, *thing));
    }
    for owner in 0..OWNERS {
        let mut order = json!({"id": format!("o{owner}"), "n": expected_items.numbers[&owner]});
        if form != Form::Old {
            order["lines"] =
                of_owner(expected_items, owner).map(|thing| line(expected_items, thing)).collect();
        }
        put(&mut items, "orders", order);
    }
    items
}

pub fn write_line(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let (thing, owner) = (random.below(THINGS), random.below(OWNERS));
    if random.one_in(3) || matches!(stage, Stage::Finishing | Stage::Undoing) {
        return write_number(expected_items, owner, "orders", format!("o{owner}"));
    }
    let (mut after, value) = expected_items.later();
    if stage != Stage::Finished {
        let id = format!("l{thing}");
        if expected_items.values.contains_key(&thing) && random.one_in(4) {
            after.values.remove(&thing);
            after.pairs.remove(&(thing, owner_of(expected_items, thing)));
            let shows = ("lines", id.clone(), id.clone(), String::new(), None);
            let write = Write {
                container: "lines",
                key: id.clone(),
                id,
                verb: Verb::Delete,
                may_be_refused: false,
                shows,
            };
            return Some((write, after));
        }
        // A line may go to another order.
        after.pairs.remove(&(thing, owner_of(expected_items, thing)));
        after.pairs.insert((thing, owner));
        after.values.insert(thing, value);
        let shows = ("lines", id.clone(), id.clone(), "/count".to_owned(), Some(json!(value)));
        let verb = Verb::Upsert(line(&after, thing));
        return Some((
            Write { container: "lines", key: id.clone(), id, verb, may_be_refused: false, shows },
            after,
        ));
    }
    let first = of_owner(expected_items, owner).next()?;
    after.values.insert(first, value);
    after.numbers.insert(owner, value);
    let all: Json = of_owner(&after, owner).map(|thing| line(&after, thing)).collect();
    let id = format!("o{owner}");
    let verb = Verb::Patch(
        json!([{"op": "set", "path": "/lines", "value": all}, {"op": "set", "path": "/n", "value": value}]),
    );
    let shows = ("orders", id.clone(), id.clone(), "/n".to_owned(), Some(json!(value)));
    Some((Write { container: "orders", key: id.clone(), id, verb, may_be_refused: false, shows }, after))
}

// extract: stocks of portfolios. Owners are the stocks, with the values of the first things.

fn portfolio(expected_items: &ExpectedItems, thing: usize, form: Form) -> Json {
    let stock = owner_of(expected_items, thing);
    let mut holding = json!({"k": thing});
    if form != Form::New {
        holding["stock"] = json!({"symbol": format!("s{stock}"), "open": expected_items.values[&stock]});
    }
    if form != Form::Old {
        holding["stockId"] = json!(format!("s{stock}"));
    }
    json!({"id": format!("f{thing}"), "n": expected_items.numbers[&thing], "holdings": [holding]})
}

pub fn portfolios(expected_items: &ExpectedItems, form: Form) -> Items {
    let mut items = Items::new();
    (0..THINGS).for_each(|thing| put(&mut items, "portfolios", portfolio(expected_items, thing, form)));
    let stocks =
        (0..OWNERS).filter(|stock| form != Form::Old && of_owner(expected_items, *stock).next().is_some());
    for stock in stocks {
        let id = format!("s{stock}");
        put(&mut items, "stocks", json!({"id": id, "symbol": id, "open": expected_items.values[&stock]}));
    }
    items
}

/// Items that clients have changed stay after an undo.
pub fn without_made_stocks(mut items: Items, form: Form, _: &ExpectedItems) -> Items {
    items.retain(|(container, _), _| form != Form::Old || container != "stocks");
    items
}

pub fn write_stock(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let thing = random.below(THINGS);
    if random.one_in(2) || matches!(stage, Stage::Expanding | Stage::Undoing) {
        return write_number(expected_items, thing, "portfolios", format!("f{thing}"));
    }
    let stock = owner_of(expected_items, thing);
    let (mut after, value) = expected_items.later();
    after.values.insert(stock, value);
    let id = format!("s{stock}");
    let shows = ("stocks", id.clone(), id.clone(), "/open".to_owned(), Some(json!(value)));
    // A writer of the old form changes the part of one portfolio: all that have the stock follow.
    if stage == Stage::Expanded && random.one_in(2) {
        let (verb, id) = (Verb::Upsert(portfolio(&after, thing, Form::Old)), format!("f{thing}"));
        let write =
            Write { container: "portfolios", key: id.clone(), id, verb, may_be_refused: false, shows };
        return Some((write, after));
    }
    let verb = Verb::Patch(json!([{"op": "set", "path": "/open", "value": value}]));
    Some((Write { container: "stocks", key: id.clone(), id, verb, may_be_refused: false, shows }, after))
}

// split-array: comments of posts.

pub fn commented(random: &mut Random) -> ExpectedItems {
    let pairs = (0..THINGS).map(|thing| (thing % OWNERS, thing + 1)).collect();
    ExpectedItems { pairs, ..things(random) }
}

/// Things are comments here, and the first of a pair is the post.
pub fn posts(expected_items: &ExpectedItems, _: Form) -> Items {
    let mut items = Items::new();
    for post in 0..OWNERS {
        let comments: Json = expected_items
            .pairs
            .iter()
            .filter(|pair| pair.0 == post)
            .map(|pair| json!({"id": format!("c{}", pair.1)}))
            .collect();
        put(
            &mut items,
            "posts",
            json!({"id": format!("p{post}"), "n": expected_items.numbers[&post], "comments": comments}),
        );
    }
    items
}

/// Pages in order, then the window.
pub fn with_pages(mut items: Items) -> Items {
    let pages: Vec<Json> = items
        .iter()
        .filter(|((container, _), _)| container == "pages")
        .map(|(_, page)| page.clone())
        .collect();
    items.retain(|(container, _), _| container != "pages");
    for ((_, id), post) in &mut items {
        let mut own: Vec<&Json> = pages.iter().filter(|page| page["itemId"] == json!(id)).collect();
        own.sort_by_key(|page| page["page"].as_u64());
        let older = own.iter().flat_map(|page| page["comments"].as_array().into_iter().flatten());
        let newest = post["comments"].as_array().cloned().unwrap_or_default();
        post["comments"] = older.cloned().chain(newest).collect();
    }
    items
}

pub fn write_comment(
    expected_items: &ExpectedItems,
    random: &mut Random,
    stage: Stage,
) -> Option<(Write, ExpectedItems)> {
    let post = random.below(OWNERS);
    let id = format!("p{post}");
    if random.one_in(3) || !matches!(stage, Stage::Expanded | Stage::Finished) {
        return write_number(expected_items, post, "posts", id);
    }
    let (mut after, comment) = expected_items.later();
    after.pairs.insert((post, comment as usize));
    let comment = json!({"id": format!("c{comment}")});
    let verb = Verb::Patch(json!([{"op": "add", "path": "/comments/-", "value": comment}]));
    let place = format!("/comments/{}", KEPT - 1);
    let shows = ("posts", id.clone(), id.clone(), place, Some(comment));
    Some((Write { container: "posts", key: id.clone(), id, verb, may_be_refused: false, shows }, after))
}
