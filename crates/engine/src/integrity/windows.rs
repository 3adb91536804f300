//! Windows: their order and size, the number of all elements, and pages without an item.

use std::collections::HashMap;

use quire_model::{Newest, OwnedValue, WindowRules};
use quire_value::{Value, key};

use super::findings::{Compared, FindingKind, compare, item_example, owned_example};
use super::survey::{SurveyState, View, Visited};
use crate::api::EngineError;
use crate::store::keys::{self, ITEMS};

/// The pages that were met, by item.
#[derive(Default)]
pub(super) struct WindowState {
    pages: HashMap<Parent, Pages>,
}

/// Whose pages: the id of the item, and its values at the key paths that pages share with it.
type Parent = (String, Vec<u8>);

#[derive(Default)]
struct Pages {
    elements: u64,
    /// The greatest page.
    largest: usize,
    rids: Vec<u64>,
}

pub(super) fn look_at_page(
    view: &View,
    state: &mut SurveyState,
    window: usize,
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    if visited.is_gone {
        return Ok(());
    }
    let rules = &view.subject.rules.windows[window];
    let page = visited.row.node()?.to_value();
    let parent = rules.parse_page_id(visited.row.id()?).map(|(id, _)| id);
    let named = rules.window.pages.parent.find(&page, &[]).and_then(Value::as_str);
    let Some(parent) = parent.filter(|parent| named == Some(parent)) else {
        return report(view, state, rules, visited);
    };
    let elements = rules.page_elements(&page).len();
    let pages = state.window.pages.entry((parent.to_owned(), shared_keys(rules, &page))).or_default();
    pages.elements += elements as u64;
    pages.largest = pages.largest.max(elements);
    pages.rids.push(visited.rid);
    Ok(())
}

pub(super) fn look_at_item(
    view: &View,
    state: &mut SurveyState,
    window: usize,
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    let rules = &view.subject.rules.windows[window];
    let item = visited.row.node()?.to_value();
    let parent = (visited.row.id()?.to_owned(), shared_keys(rules, &item));
    // The pages of an item that nobody sees go with it.
    let pages = state.window.pages.remove(&parent).unwrap_or_default();
    if visited.is_gone {
        return Ok(());
    }
    let array = rules.array(&item).unwrap_or_default();
    let count = i64::try_from(array.len() as u64 + pages.elements).unwrap_or(i64::MAX);
    let is_misplaced = !fits(rules, &array, &pages) || !is_ordered(rules, &array);
    let counted: Vec<OwnedValue> = rules.owned(&array, count).into_iter().skip(1).collect();
    let compared: Vec<Compared> = counted.iter().map(|owned| compare(owned, &item)).collect();
    let is_wrong = is_misplaced || compared.contains(&Compared::Wrong);
    if let Some(figures) = state.report.figures(&rules.window.name) {
        figures.items += 1;
        figures.would_change += u64::from(is_wrong);
    }
    if is_misplaced {
        report(view, state, rules, visited)?;
    }
    for (owned, compared) in counted.iter().zip(compared) {
        let kind = match compared {
            Compared::Right => continue,
            Compared::Wrong => FindingKind::Drift,
            Compared::Blocked => FindingKind::Blocked,
        };
        let name = &rules.window.name;
        let example = || owned_example(visited.container, &visited.row, owned, &item);
        state.report.add(name, kind, view.subject.is_building(name), example)?;
    }
    Ok(())
}

/// Pages that are left have no item.
pub(super) fn end(view: &View, state: &mut SurveyState, window: usize) -> Result<(), EngineError> {
    let rules = &view.subject.rules.windows[window];
    let container = view.subject.container(&rules.window.pages.container)?;
    let orphans = std::mem::take(&mut state.window.pages);
    for rid in orphans.into_values().flat_map(|pages| pages.rids) {
        if let Some(bytes) = view.snapshot.get(ITEMS, &keys::item(container.number, rid))? {
            report(view, state, rules, &view.visit(container, rid, &bytes)?)?;
        }
    }
    Ok(())
}

fn report(
    view: &View,
    state: &mut SurveyState,
    rules: &WindowRules,
    visited: &Visited<'_>,
) -> Result<(), EngineError> {
    let name = &rules.window.name;
    let is_page = visited.container.definition.id == rules.window.pages.container;
    let path = if is_page { &rules.window.pages.path } else { &rules.window.path };
    let example = || item_example(visited.container, &visited.row, &path.to_string(), None, None);
    state.report.add(name, FindingKind::Window, view.subject.is_building(name), example)
}

/// As many in the item as there may be, all that should be, and no page that is too large.
fn fits(rules: &WindowRules, array: &[Value], pages: &Pages) -> bool {
    let window = &rules.window;
    let is_full = array.len() <= (window.keep + window.slack) as usize;
    let is_filled = pages.elements == 0 || array.len() >= window.keep as usize;
    is_full && is_filled && pages.largest <= window.pages.size as usize
}

/// With `by`, in the order of that path.
fn is_ordered(rules: &WindowRules, array: &[Value]) -> bool {
    let Some(by) = &rules.window.by else { return true };
    let values = array.iter().map(|element| by.find(element, &[]).unwrap_or(&Value::Undefined));
    let values: Vec<&Value> = match rules.window.newest {
        Newest::Last => values.collect(),
        Newest::First => values.rev().collect(),
    };
    values.is_sorted()
}

fn shared_keys(rules: &WindowRules, item: &Value) -> Vec<u8> {
    let mut encoded = Vec::new();
    for path in &rules.shared_keys {
        key::encode(path.find(item, &[]).unwrap_or(&Value::Undefined), &mut encoded);
    }
    encoded
}
