//! What a change concerns: the containers that it names, and those that refer to them or that they refer to.

use std::collections::BTreeSet;
use std::sync::Arc;

use quire_model::Model;
use quire_value::Value;

use super::order::WhatIfChange;
use super::sample::Reference;
use crate::catalog::Container;

/// Names of containers that are sampled, of those that there are. Views are left out: what they hold is their source's.
pub(super) fn containers(
    change: &WhatIfChange,
    models: [&Model; 2],
    references: &[Reference],
    existing: &[Arc<Container>],
) -> BTreeSet<String> {
    let mut named = named(change, models);
    let links = models.into_iter().flat_map(|model| &model.links);
    let links = links.map(|link| (link.from.container.as_str(), link.to.container.as_str()));
    let pairs: Vec<(&str, &str)> =
        references.iter().map(|own| (own.container.as_str(), own.to.as_str())).chain(links).collect();
    let beside: Vec<String> = pairs
        .iter()
        .flat_map(|(from, to)| [(from, to), (to, from)])
        .filter(|(one, _)| named.contains(**one))
        .map(|(_, other)| (*other).to_owned())
        .collect();
    named.extend(beside);
    // The model is declared in both databases: all that it names is there, or it is not.
    for model in models {
        let of_model: Vec<String> = model.containers().into_iter().map(str::to_owned).collect();
        if of_model.iter().any(|name| named.contains(name)) {
            named.extend(of_model);
        }
    }
    let is_there = |name: &String| {
        existing.iter().any(|own| own.definition.id == *name && own.definition.view.is_none())
    };
    named.into_iter().filter(is_there).collect()
}

/// Names that are in the change itself.
fn named(change: &WhatIfChange, [before, after]: [&Model; 2]) -> BTreeSet<String> {
    let body = change.body();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let names: Vec<Option<String>> = match change {
        WhatIfChange::Model(_) => after.containers().into_iter().map(|name| Some(name.to_owned())).collect(),
        WhatIfChange::Container(_) => {
            let view = body.get("materializedViewDefinition");
            vec![text(body, "id"), view.and_then(|view| text(view, "sourceCollectionId"))]
        }
        WhatIfChange::Refactoring(_) => {
            let pages = body.get("pages").and_then(|pages| text(pages, "container"));
            let into = text(body, "into").filter(|into| !into.starts_with('/'));
            let link = text(body, "link").and_then(|name| before.link(&name).or_else(|| after.link(&name)));
            let ends = link.map(|link| [link.from.container.clone(), link.to.container.clone()]);
            let ends = ends.into_iter().flatten().map(Some);
            [text(body, "container"), text(body, "to"), into, pages].into_iter().chain(ends).collect()
        }
    };
    names.into_iter().flatten().collect()
}

/// The references that are known: declared ones, and those that a profile has found.
pub(super) fn references(models: [&Model; 2], profiled: Vec<Reference>) -> Vec<Reference> {
    let mut all: Vec<Reference> = Vec::new();
    let declared = models.into_iter().flat_map(|model| &model.links).map(|link| Reference {
        container: link.from.container.clone(),
        path: link.from.path.to_string(),
        to: link.to.container.clone(),
        key: link.to.key.to_string(),
    });
    for reference in declared.chain(profiled) {
        if !all.contains(&reference) {
            all.push(reference);
        }
    }
    all
}
