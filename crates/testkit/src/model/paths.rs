//! Pointers with `*`.

use crate::interpreter::Json;

/// The names of a pointer.
pub fn names(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
}

/// One place; without `*`.
pub fn find<'j>(root: &'j Json, pointer: &str) -> Option<&'j Json> {
    names(pointer).iter().try_fold(root, |value, name| step(value, name))
}

/// Every place, as concrete pointers.
pub fn places(root: &Json, pointer: &str) -> Vec<String> {
    let mut places = vec![String::new()];
    for name in pointer.split('/').skip(1) {
        let mut next = Vec::new();
        for place in places {
            match (name, find(root, &place)) {
                ("*", Some(Json::Array(elements))) => {
                    next.extend((0..elements.len()).map(|index| format!("{place}/{index}")));
                }
                ("*", _) => {}
                _ => next.push(format!("{place}/{name}")),
            }
        }
        places = next;
    }
    places.retain(|place| find(root, place).is_some());
    places
}

/// The pointer with the numbers of a concrete one in the place of its `*`; as far as both go alike.
pub fn beside(pointer: &str, concrete: &str) -> String {
    let mut numbers = concrete.split('/').skip(1);
    let mut text = String::new();
    for name in pointer.split('/').skip(1) {
        let other = numbers.next().unwrap_or("");
        text.push('/');
        text.push_str(if name == "*" { other } else { name });
    }
    text
}

pub fn parent(pointer: &str) -> &str {
    pointer.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Without what is there.
pub fn without(root: &Json, pointer: &str) -> Json {
    fn remove(value: &Json, names: &[String]) -> Json {
        let Some((first, rest)) = names.split_first() else { return value.clone() };
        match value {
            Json::Object(members) => {
                let kept = members.iter().filter(|(name, _)| name != first || !rest.is_empty());
                let inner = |(name, value): &(String, Json)| {
                    (name.clone(), if name == first { remove(value, rest) } else { value.clone() })
                };
                Json::Object(kept.map(inner).collect())
            }
            Json::Array(elements) if !rest.is_empty() => {
                let inner = |(index, value): (usize, &Json)| {
                    if index.to_string() == *first { remove(value, rest) } else { value.clone() }
                };
                Json::Array(elements.iter().enumerate().map(inner).collect())
            }
            other => other.clone(),
        }
    }
    remove(root, &names(pointer))
}

/// Without what is there, and without the objects around it that are then empty.
pub fn without_place(root: &Json, pointer: &str) -> Json {
    let mut rest = without(root, pointer);
    let mut place = parent(pointer);
    while find(&rest, place).is_none_or(|value| value.as_object().is_some_and(<[_]>::is_empty))
        && !place.is_empty()
    {
        let is_object = find(&rest, parent(place)).is_none_or(|value| value.as_object().is_some());
        if !is_object {
            break;
        }
        rest = without(&rest, place);
        place = parent(place);
    }
    rest
}

/// Whether the place cannot be made: a parent is there that has no such place and cannot get it.
pub fn is_blocked(root: &Json, pointer: &str) -> bool {
    let mut value = root;
    for name in names(pointer) {
        match (step(value, &name), value) {
            (Some(inner), _) => value = inner,
            (None, Json::Object(_)) => return false,
            (None, _) => return true,
        }
    }
    false
}

fn step<'j>(value: &'j Json, name: &str) -> Option<&'j Json> {
    match value {
        Json::Object(_) => value.get(name),
        Json::Array(elements) => {
            let index: usize = name.parse().ok()?;
            if index.to_string() == name { elements.get(index) } else { None }
        }
        _ => None,
    }
}
