//! What declarations answer: a declared window, copy, rollup, mirror or link silences the rules about its paths.

use quire_model::{Link, Model, Pointer};
use quire_profile::covers;

use crate::case::Conditions;

/// Whether a declaration answers what the rule found.
pub fn is_answered(
    model: &Model,
    conditions: &Conditions,
    rule: &str,
    container: &str,
    path: &str,
    with: Option<&str>,
) -> bool {
    let place = DeclaredPath { container, path, with };
    let answers = [
        ("declared/window", place.by_window(model, rule)),
        ("declared/copy", place.by_copy(model, rule)),
        ("declared/mirror", place.by_mirror(model, rule)),
        ("declared/rollup", place.by_rollup(model, rule)),
        ("declared/link", place.by_link(model, rule)),
    ];
    answers.into_iter().any(|(name, answered)| !conditions.holds(name, !answered))
}

struct DeclaredPath<'p> {
    container: &'p str,
    path: &'p str,
    with: Option<&'p str>,
}

impl DeclaredPath<'_> {
    fn is(&self, container: &str, path: &Pointer) -> bool {
        let path = path.to_string();
        self.container == container
            && (covers(&path, self.path) || covers(self.path, &path) && !self.path.is_empty())
    }

    fn by_window(&self, model: &Model, rule: &str) -> bool {
        const RULES: [&str; 5] =
            ["unbounded-array", "large-array", "history-in-item", "outliers", "growing-references"];
        RULES.contains(&rule)
            && model.windows.iter().any(|window| {
                self.is(&window.container, &window.path)
                    || self.is(&window.pages.container, &window.pages.path)
            })
    }

    fn by_copy(&self, model: &Model, rule: &str) -> bool {
        const RULES: [&str; 5] = ["stale-copies", "hot-copy", "copy-missing", "n-plus-one", "extract-part"];
        let of_link = |link: &Link| {
            self.is(&link.from.container, &link.holder()) || self.is(&link.from.container, &link.from.path)
        };
        RULES.contains(&rule) && model.copies.iter().filter_map(|copy| model.link(&copy.link)).any(of_link)
    }

    fn by_mirror(&self, model: &Model, rule: &str) -> bool {
        const RULES: [&str; 4] =
            ["mirror-broken", "growing-references", "unbounded-array", "dangling-references"];
        RULES.contains(&rule)
            && model.mirrors.iter().any(|mirror| {
                model.link(&mirror.link).is_some_and(|link| {
                    self.is(&link.to.container, &mirror.into)
                        || self.is(&link.from.container, &link.from.path)
                })
            })
    }

    fn by_rollup(&self, model: &Model, rule: &str) -> bool {
        let links = || model.rollups.iter().filter_map(|rollup| Some((rollup, model.link(&rollup.link)?)));
        match rule {
            "rollup-wrong" => links().any(|(rollup, link)| self.is(&link.to.container, &rollup.into)),
            "repeated-aggregate" => links().any(|(_, link)| self.is(&link.from.container, &link.from.path)),
            _ => false,
        }
    }

    fn by_link(&self, model: &Model, rule: &str) -> bool {
        rule == "dangling-references"
            && model.links.iter().any(|link| {
                self.is(&link.from.container, &link.from.path)
                    && self.with.is_none_or(|with| with == link.to.container)
            })
    }
}
