//! Windows: their order and size, the number of all elements, and pages without an item.

use std::collections::HashMap;

use quire_model::window::Page;
use quire_model::{NewestAt, OwnedValue, WindowRules};
use quire_value::{Item, Value};

use super::findings::{FindingKind, PathCheck, compare, item_example, owned_example};
use super::survey::{SurveySnapshot, SurveyState, VisitedItem};
use crate::api::EngineError;
use crate::items::logical_partition::LogicalPartition;
use crate::store::keys::{self, ITEMS};

/// The pages that were met, by item.
#[derive(Default)]
pub(super) struct WindowState {
    pages: HashMap<PageParent, ItemPages>,
}

/// Whose pages: the id of the item, and the partition key that its pages have.
type PageParent = (String, Vec<u8>);

#[derive(Default)]
struct ItemPages {
    /// In all of them, and in those that clients see.
    elements: u64,
    visible_elements: u64,
    /// The greatest page.
    largest: usize,
    /// The last page, and those that are empty.
    last: u32,
    empty: Vec<u32>,
    /// One does not say what it is.
    is_odd: bool,
    /// Of those that clients see.
    rids: Vec<u64>,
}

pub(super) fn check_page(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    window: usize,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let rules = &base.subject.rules.windows[window];
    let Some((item_id, number)) = rules.parse_page_id(visited.row.id()?) else { return Ok(()) };
    let page = visited.row.node()?.to_value();
    let elements = rules.page_elements(&page);
    let parent = (item_id.to_owned(), visited.row.encoded_partition_key().to_vec());
    let pages = state.window.pages.entry(parent).or_default();
    pages.elements += elements.len() as u64;
    if visited.is_invisible {
        return Ok(());
    }
    pages.visible_elements += elements.len() as u64;
    pages.largest = pages.largest.max(elements.len());
    pages.last = pages.last.max(number);
    pages.empty.extend(elements.is_empty().then_some(number));
    pages.rids.push(visited.rid);
    let mut right = page.clone();
    rules.put_page(&mut right, item_id, &Page { number, elements });
    pages.is_odd |= right != page;
    Ok(())
}

pub(super) fn check_windowed_item(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    window: usize,
    visited: &VisitedItem<'_>,
) -> Result<(), EngineError> {
    let rules = &base.subject.rules.windows[window];
    let item = visited.row.node()?.to_value();
    let id = visited.row.id()?;
    // The pages of an invisible item are removed with it.
    let page_key = page_key(base, rules, &item, id)?;
    let pages = page_key.and_then(|key| state.window.pages.remove(&(id.to_owned(), key)));
    if visited.is_invisible {
        return Ok(());
    }
    let pages = pages.unwrap_or_default();
    let array = rules.array(&item).unwrap_or_default();
    let count = i64::try_from(array.len() as u64 + pages.elements).unwrap_or(i64::MAX);
    let is_misplaced = !is_array(rules, &item) || !fits(rules, &array, &pages) || !is_ordered(rules, &array);
    let counted: Vec<OwnedValue> = rules.owned(&array, count).into_iter().skip(1).collect();
    let compared: Vec<PathCheck> = counted.iter().map(|owned| compare(owned, &item)).collect();
    let is_blocked = rules.is_blocked(&item);
    let is_wrong = (is_misplaced && !is_blocked) || compared.contains(&PathCheck::Wrong);
    if let Some(figures) = state.report.figures(&rules.window.name) {
        figures.items += 1;
        figures.would_change += u64::from(is_wrong);
    }
    if is_misplaced {
        let kind = if is_blocked { FindingKind::Blocked } else { FindingKind::Window };
        report(base, state, rules, visited, kind)?;
    }
    for (owned, compared) in counted.iter().zip(compared) {
        let kind = match compared {
            PathCheck::Correct => continue,
            PathCheck::Wrong => FindingKind::Drift,
            PathCheck::Blocked => FindingKind::Blocked,
        };
        let name = &rules.window.name;
        let example = || owned_example(visited.container, &visited.row, owned, &item);
        state.report.add(name, kind, base.subject.is_building(name), example)?;
    }
    Ok(())
}

/// The remaining pages have no item.
pub(super) fn end(base: &SurveySnapshot, state: &mut SurveyState, window: usize) -> Result<(), EngineError> {
    let rules = &base.subject.rules.windows[window];
    let container = base.subject.container(&rules.window.pages.container)?;
    let orphans = std::mem::take(&mut state.window.pages);
    for rid in orphans.into_values().flat_map(|pages| pages.rids) {
        if let Some(bytes) = base.snapshot.get(ITEMS, &keys::item(container.number, rid))? {
            report(base, state, rules, &base.visit(container, rid, &bytes)?, FindingKind::Window)?;
        }
    }
    Ok(())
}

fn report(
    base: &SurveySnapshot,
    state: &mut SurveyState,
    rules: &WindowRules,
    visited: &VisitedItem<'_>,
    kind: FindingKind,
) -> Result<(), EngineError> {
    let name = &rules.window.name;
    let is_page = visited.container.definition.id == rules.window.pages.container;
    let path = if is_page { &rules.window.pages.path } else { &rules.window.path };
    let example = || item_example(visited.container, &visited.row, &path.to_string(), None, None);
    state.report.add(name, kind, base.subject.is_building(name), example)
}

/// Whether an array, or nothing, is at the path.
fn is_array(rules: &WindowRules, item: &Value) -> bool {
    rules.window.path.find(item, &[]).is_none_or(|found| found.as_array().is_some())
}

/// As many in the item as there may be, all that should be, and every page as it should be.
fn fits(rules: &WindowRules, array: &[Value], pages: &ItemPages) -> bool {
    let window = &rules.window;
    let is_full = array.len() <= (window.keep + window.slack) as usize;
    let is_filled = pages.visible_elements == 0 || array.len() >= window.keep as usize;
    let is_any_empty = pages.empty.iter().any(|number| *number != pages.last);
    let is_any_wrong = is_any_empty || pages.is_odd || pages.largest > window.pages.size as usize;
    is_full && is_filled && !is_any_wrong
}

/// With `by`, in the order of that path.
fn is_ordered(rules: &WindowRules, array: &[Value]) -> bool {
    let Some(by) = &rules.window.by else { return true };
    let values = array.iter().map(|element| by.find(element, &[]).unwrap_or(&Value::Undefined));
    let values: Vec<&Value> = match rules.window.newest {
        NewestAt::Last => values.collect(),
        NewestAt::First => values.rev().collect(),
    };
    values.is_sorted()
}

/// The partition key of the pages of an item; nothing where there can be none.
fn page_key(
    base: &SurveySnapshot,
    rules: &WindowRules,
    item: &Value,
    id: &str,
) -> Result<Option<Vec<u8>>, EngineError> {
    let container = base.subject.container(&rules.window.pages.container)?;
    let page = Item::from_value(&rules.page_item(item, id, &Page { number: 0, elements: Vec::new() }));
    let key = container.definition.partition_key.extract(page.root()).ok();
    Ok(key
        .and_then(|key| LogicalPartition::of(container, key).ok())
        .map(|logical_partition| logical_partition.encoded_key))
}
