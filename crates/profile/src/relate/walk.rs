//! Places of a path in an item.

use quire_value::{Kind, Node};

/// A value with the object that it is in; an element of an array has none.
pub(crate) struct ValueInItem<'a> {
    pub holder: Option<Node<'a>>,
    pub value: Node<'a>,
}

/// Every place of a path, in order. `names` are its segments, `*` for elements.
pub(crate) fn places<'a>(item: Node<'a>, names: &[String]) -> Vec<ValueInItem<'a>> {
    let mut found = Vec::new();
    walk(item, None, names, &mut found);
    found
}

fn walk<'a>(node: Node<'a>, holder: Option<Node<'a>>, names: &[String], found: &mut Vec<ValueInItem<'a>>) {
    match names.split_first() {
        None => found.push(ValueInItem { holder, value: node }),
        Some((name, rest)) if name == "*" && node.kind() == Kind::Array => {
            node.elements().for_each(|element| walk(element, None, rest, found));
        }
        Some((name, rest)) => {
            if let Some(child) = node.get(name) {
                walk(child, Some(node), rest, found);
            }
        }
    }
}
