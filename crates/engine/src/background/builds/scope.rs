//! Which declarations a build makes, and which containers it goes over for that.

use std::collections::BTreeSet;

use crate::jobs::JobId;
use crate::model::{DatabaseModel, DeclarationKind};

/// Names of the declarations that a job builds.
pub(super) fn own_names(model: &DatabaseModel, job: JobId) -> Vec<String> {
    let own = model.declarations.iter().filter(|(_, own)| own.state.job() == Some(job));
    own.map(|(_, own)| own.name.clone()).collect()
}

/// Whose items are counted: referrers, and targets that a link finds by a key of their own.
pub(super) fn containers_to_count(model: &DatabaseModel, own: &[String]) -> BTreeSet<u32> {
    let rules = &model.rules;
    let mut names: Vec<&str> = Vec::new();
    for link in
        links_of(model, own, &[DeclarationKind::Link, DeclarationKind::Mirror, DeclarationKind::Rollup])
    {
        names.push(&rules.links[link].link.from.container);
    }
    for link in links_of(model, own, &[DeclarationKind::Link]) {
        let link = &rules.links[link].link;
        names.extend(link.has_key_index().then_some(link.to.container.as_str()));
    }
    numbers(model, names)
}

/// Whose items are written: those that own paths. Referrers are examined to count what dangles, pages to find those without
/// an item.
pub(in crate::background) fn containers_to_write(model: &DatabaseModel, own: &[String]) -> BTreeSet<u32> {
    let rules = &model.rules;
    let mut names: Vec<&str> = Vec::new();
    for link in links_of(model, own, &[DeclarationKind::Link, DeclarationKind::Copy]) {
        names.push(&rules.links[link].link.from.container);
    }
    for link in links_of(model, own, &[DeclarationKind::Mirror, DeclarationKind::Rollup]) {
        names.push(&rules.links[link].link.to.container);
    }
    let windows = rules.windows.iter().filter(|window| own.contains(&window.window.name));
    for window in windows.map(|own| &own.window) {
        names.extend([window.container.as_str(), window.pages.container.as_str()]);
    }
    numbers(model, names)
}

/// The same for a build, which counts what dangles together with the rows of a link.
pub(super) fn containers_to_fill(model: &DatabaseModel, own: &[String]) -> BTreeSet<u32> {
    let counted = links_counted_at_once(model, own);
    let rest: Vec<String> = own.iter().filter(|name| !counted.contains(name)).cloned().collect();
    containers_to_write(model, &rest)
}

/// Links that find their targets without an index of their own: it is known from the first pass what dangles.
pub(super) fn links_counted_at_once(model: &DatabaseModel, own: &[String]) -> Vec<String> {
    let links = model.rules.links.iter().map(|rules| &rules.link);
    let own = links.filter(|link| own.contains(&link.name) && !link.has_key_index());
    own.map(|link| link.name.clone()).collect()
}

/// Whose items refer by some links.
pub(in crate::background) fn referrer_containers(model: &DatabaseModel, links: &[&str]) -> BTreeSet<u32> {
    let own = model.model().links.iter().filter(|link| links.contains(&link.name.as_str()));
    numbers(model, own.map(|link| link.from.container.as_str()).collect())
}

/// A declaration, and those that cannot be without it.
pub(super) fn dependents(model: &DatabaseModel, name: &str) -> Vec<String> {
    let own = &model.rules.model;
    let copies = own.copies.iter().map(|own| (&own.link, &own.name));
    let mirrors = own.mirrors.iter().map(|own| (&own.link, &own.name));
    let rollups = own.rollups.iter().map(|own| (&own.link, &own.name));
    let all = copies.chain(mirrors).chain(rollups).filter(|(link, _)| *link == name);
    std::iter::once(name.to_owned()).chain(all.map(|(_, name)| name.clone())).collect()
}

/// The links of those of the declarations that are of some kinds.
fn links_of(model: &DatabaseModel, own: &[String], kinds: &[DeclarationKind]) -> BTreeSet<usize> {
    let rules = &model.rules;
    let mut links = BTreeSet::new();
    for kind in kinds {
        match kind {
            DeclarationKind::Link => {
                let all = rules.links.iter().enumerate();
                links.extend(all.filter(|(_, link)| own.contains(&link.link.name)).map(|(number, _)| number));
            }
            DeclarationKind::Copy => {
                links.extend(
                    rules.copies.iter().filter(|copy| own.contains(&copy.copy.name)).map(|own| own.link),
                );
            }
            DeclarationKind::Mirror => {
                let all = rules.mirrors.iter().filter(|mirror| own.contains(&mirror.mirror.name));
                links.extend(all.map(|own| own.link));
            }
            DeclarationKind::Rollup => {
                let all = rules.rollups.iter().filter(|rollup| own.contains(&rollup.rollup.name));
                links.extend(all.map(|own| own.link));
            }
            DeclarationKind::Window => {}
        }
    }
    links
}

fn numbers(model: &DatabaseModel, names: Vec<&str>) -> BTreeSet<u32> {
    names.into_iter().filter_map(|name| model.containers.get(name).copied()).collect()
}
