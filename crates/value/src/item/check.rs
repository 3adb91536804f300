//! Full validation: every byte is accounted for exactly once, so nothing overlaps and the work is linear.

use super::node::{IsObject, Table};
use super::*;
use crate::{Kind, Number};

type Checked<T> = Result<T, &'static str>;

pub(super) fn check(bytes: &[u8]) -> Checked<()> {
    let root = Node::of(bytes).map_err(|error| error.reason)?;
    let end = match (root.tag(), root.position()) {
        (Some(UNDEFINED), HEADER_LEN) => HEADER_LEN + 1,
        (_, at) => check_value(root, at, HEADER_LEN, DEPTH_MAX)?,
    };
    if end == bytes.len() { Ok(()) } else { Err("bytes after the root") }
}

/// Checks a value whose name, if it has one, starts at `lead`, and its contents, which start at `start`. Returns its
/// end.
fn check_value(node: Node<'_>, lead: usize, start: usize, depth_left: usize) -> Checked<usize> {
    if !matches!(node.kind(), Kind::Array | Kind::Object) && start != lead {
        return Err("bytes between values");
    }
    match node.kind() {
        Kind::Undefined => Err("unknown tag"),
        Kind::Null | Kind::Bool => Ok(node.position() + 1),
        Kind::Number => check_number(node),
        Kind::String => check_string(node),
        Kind::Array => check_array(node, lead, start, depth_left.checked_sub(1).ok_or(TOO_DEEP)?),
        Kind::Object => check_object(node, lead, start, depth_left.checked_sub(1).ok_or(TOO_DEEP)?),
    }
}

const TOO_DEEP: &str = "too many levels of nesting";
const TRUNCATED: &str = "ends inside a value";
const NOT_SHORTEST: &str = "a value that is not in its shortest form";

fn check_number(node: Node<'_>) -> Checked<usize> {
    let number = node.as_number().ok_or(TRUNCATED)?;
    let (tag, payload) = match number {
        Number::Int(0..=0x7f) => (None, 0),
        Number::Int(value) if i8::try_from(value).is_ok() => (Some(INT_8), 1),
        Number::Int(value) if i16::try_from(value).is_ok() => (Some(INT_16), 2),
        Number::Int(value) if i32::try_from(value).is_ok() => (Some(INT_32), 4),
        Number::Int(_) => (Some(INT_64), 8),
        Number::Unsigned(_) => (Some(UNSIGNED), 8),
        Number::Double(value) if value.is_finite() => (Some(DOUBLE), 8),
        Number::Double(_) => return Err("a double that is not finite"),
    };
    match (tag, node.tag()) {
        (None, Some(SMALL_INT..)) => Ok(node.position() + 1),
        (Some(tag), Some(own)) if tag == own => Ok(node.position() + 1 + payload),
        _ => Err(NOT_SHORTEST),
    }
}

fn check_string(node: Node<'_>) -> Checked<usize> {
    let bytes = node.string_bytes().ok_or(TRUNCATED)?;
    std::str::from_utf8(bytes).map_err(|_| "a string that is not UTF-8")?;
    let (shortest, prefix) = match bytes.len() {
        len @ 0..=SHORT_STRING_LEN_MAX => (SHORT_STRING | len as u8, 1),
        0..=0xff => (STRING_8, 2),
        _ => (STRING_32, 5),
    };
    if node.tag() == Some(shortest) { Ok(node.position() + prefix + bytes.len()) } else { Err(NOT_SHORTEST) }
}

fn check_array(node: Node<'_>, lead: usize, start: usize, depth_left: usize) -> Checked<usize> {
    let table = node.table().ok_or(TRUNCATED)?;
    let mut done = start;
    for index in 0..table.count {
        let element = table.element(index).ok_or("a distance that leads nowhere")?;
        if index == 0 {
            check_width(table, element.position())?;
        }
        done = check_value(element, element.position(), done, depth_left)?;
    }
    check_end(node, table, IsObject::No, done, lead)
}

fn check_object(node: Node<'_>, lead: usize, start: usize, depth_left: usize) -> Checked<usize> {
    let table = node.table().ok_or(TRUNCATED)?;
    let mut done = start;
    for index in 0..table.count {
        let row = table.row(index).ok_or("a row that is not in the table")?;
        let member = table.row_member(row).ok_or("a distance that leads nowhere")?;
        if index == 0 {
            check_width(table, member.at)?;
        }
        check_name(table, row, member.name, member.value_at - member.at)?;
        done = check_value(table.node_at(member.value_at), member.at, done, depth_left)?;
    }
    check_sorted(table)?;
    check_end(node, table, IsObject::Yes, done, lead)
}

fn check_name(table: Table<'_>, row: usize, name: &[u8], len: usize) -> Checked<()> {
    std::str::from_utf8(name).map_err(|_| "a name that is not UTF-8")?;
    if table.hash(row) != Some(table.width.cut(name_hash(name))) {
        return Err("a hash that is not its name's");
    }
    let prefix = if name.len() < usize::from(LONG_NAME) { 1 } else { 5 };
    if len == prefix + name.len() { Ok(()) } else { Err(NOT_SHORTEST) }
}

fn check_sorted(table: Table<'_>) -> Checked<()> {
    let key = |row| Some((table.hash(row)?, table.row_member(row)?.name));
    let sorted = (1..table.count).all(|row| key(row - 1) < key(row));
    if sorted { Ok(()) } else { Err("a table out of order") }
}

// The first part is the farthest.
fn check_width(table: Table<'_>, first: usize) -> Checked<()> {
    if Width::for_distance(table.position() - first) == table.width { Ok(()) } else { Err(NOT_SHORTEST) }
}

fn check_end(
    node: Node<'_>,
    table: Table<'_>,
    is_object: IsObject,
    done: usize,
    lead: usize,
) -> Checked<usize> {
    if table.count == 0 && table.width == Width::Wide {
        return Err(NOT_SHORTEST);
    }
    if done != lead {
        return Err("bytes between values");
    }
    let end = table.end(is_object);
    if end <= node.len_bytes() { Ok(end) } else { Err(TRUNCATED) }
}
