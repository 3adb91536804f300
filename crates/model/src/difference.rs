//! What a new model changes, declaration by declaration.

use quire_sql::Expression;
use quire_value::{Object, Value};

use crate::declare::{Copy, Link, Mirror, Model, OnDelete, OnWrite, Rollup, Window};
use crate::validate::owned_paths;
use crate::{Integrity, Pointer};

/// Names of declarations, each in one list, in the order of the new model (of the old one where they go).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Rebuilt.
    pub rebuilt: Vec<String>,
    /// `onWrite`, `integrity` or `onDelete`: in force at once.
    pub changed: Vec<String>,
    pub unchanged: Vec<String>,
    /// Whether the model's own `onWrite`, `fanOutMax` or `ifMatch` differ; in force at once.
    pub settings_changed: bool,
}

/// What makes the values of a declaration, without what is in force at once.
#[derive(PartialEq)]
enum Core<'m> {
    Link(Link),
    Copy(Copy, WholeItemOwnedPaths<'m>),
    Mirror(Mirror, WholeItemOwnedPaths<'m>),
    Rollup(Rollup, WholeItemOwnedPaths<'m>),
    Window(Window),
}

/// The owned paths that are taken out of an item which an expression reads as a whole; nothing when none does.
type WholeItemOwnedPaths<'m> = Option<Vec<(&'m str, Pointer)>>;

/// What is in force at once.
type ImmediateSettings = (Option<OnWrite>, Integrity, Option<OnDelete>);

impl Difference {
    pub fn between(old: &Model, new: &Model) -> Difference {
        Difference::rebuilding(old, new, |_| false)
    }

    /// The same, where some declarations are rebuilt, with what is made of them, although they are the same.
    pub fn rebuilding(old: &Model, new: &Model, is_built_anew: impl Fn(&str) -> bool) -> Difference {
        let mut difference = Difference {
            settings_changed: (old.on_write, old.fan_out_max, old.if_match)
                != (new.on_write, new.fan_out_max, new.if_match),
            ..Difference::default()
        };
        let (before, after) = (declarations(old), declarations(new));
        for declaration in &after {
            let name = declaration.name.to_owned();
            let Some(earlier) = before.iter().find(|earlier| earlier.name == name) else {
                difference.added.push(name);
                continue;
            };
            let is_link_built_anew = declaration.link.is_some_and(|link| {
                difference.rebuilt.iter().chain(&difference.added).any(|built| built == link)
            });
            match () {
                () if is_link_built_anew || is_built_anew(&name) || earlier.core != declaration.core => {
                    difference.rebuilt.push(name);
                }
                () if earlier.at_once != declaration.at_once => difference.changed.push(name),
                () => difference.unchanged.push(name),
            }
        }
        let is_gone = |name: &&str| !after.iter().any(|declaration| declaration.name == *name);
        difference.removed = old.declarations().filter(is_gone).map(str::to_owned).collect();
        difference
    }

    /// An equal model: nothing is written, and the revision stays.
    pub fn is_unchanged(&self) -> bool {
        let lists = [&self.added, &self.removed, &self.rebuilt, &self.changed];
        lists.into_iter().all(Vec::is_empty) && !self.settings_changed
    }

    /// `_changes` of an answer.
    pub fn to_json(&self) -> Value {
        let lists = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("rebuilt", &self.rebuilt),
            ("changed", &self.changed),
            ("unchanged", &self.unchanged),
        ];
        let names = |names: &[String]| names.iter().map(|name| Value::from(name.as_str())).collect::<Value>();
        Value::Object(lists.into_iter().map(|(list, own)| (list, names(own))).collect::<Object>())
    }
}

struct DeclarationParts<'m> {
    name: &'m str,
    link: Option<&'m str>,
    core: Core<'m>,
    at_once: ImmediateSettings,
}

/// Links come first, so that what is made of one is examined behind it.
fn declarations(model: &Model) -> Vec<DeclarationParts<'_>> {
    let at_once = |own: Option<OnWrite>| (Some(own.unwrap_or(model.on_write)), Integrity::Weak, None);
    let links = model.links.iter().map(|link| DeclarationParts {
        name: &link.name,
        link: None,
        core: Core::Link(Link { integrity: Integrity::Weak, on_delete: OnDelete::Allow, ..link.clone() }),
        at_once: (None, link.integrity, Some(link.on_delete)),
    });
    let copies = model.copies.iter().map(|copy| DeclarationParts {
        name: &copy.name,
        link: Some(&copy.link),
        core: Core::Copy(
            Copy { on_write: None, ..copy.clone() },
            whole_item_owned_paths(
                model,
                &copy.link,
                true,
                copy.fields.iter().map(|field| field.expression.as_str()),
            ),
        ),
        at_once: at_once(copy.on_write),
    });
    let mirrors = model.mirrors.iter().map(|mirror| DeclarationParts {
        name: &mirror.name,
        link: Some(&mirror.link),
        core: Core::Mirror(
            Mirror { on_write: None, ..mirror.clone() },
            whole_item_owned_paths(model, &mirror.link, false, [mirror.value.as_str()]),
        ),
        at_once: at_once(mirror.on_write),
    });
    let rollups = model.rollups.iter().map(|rollup| DeclarationParts {
        name: &rollup.name,
        link: Some(&rollup.link),
        core: Core::Rollup(
            Rollup { on_write: None, ..rollup.clone() },
            whole_item_owned_paths(
                model,
                &rollup.link,
                false,
                rollup.value.iter().chain(&rollup.filter).map(String::as_str),
            ),
        ),
        at_once: at_once(rollup.on_write),
    });
    let windows = model.windows.iter().map(|window| DeclarationParts {
        name: &window.name,
        link: None,
        core: Core::Window(Window { on_write: None, ..window.clone() }),
        at_once: at_once(window.on_write),
    });
    links.chain(copies).chain(mirrors).chain(rollups).chain(windows).collect()
}

fn whole_item_owned_paths<'m>(
    model: &'m Model,
    link: &str,
    is_target: bool,
    expressions: impl IntoIterator<Item = &'m str>,
) -> WholeItemOwnedPaths<'m> {
    let reads_whole = |text: &str| {
        let names: &[&str] = if is_target { &["t"] } else { &["r", "e"] };
        Expression::compile(text, names)
            .is_ok_and(|expression| (0..names.len()).any(|name| expression.reads_whole(name)))
    };
    if !expressions.into_iter().any(reads_whole) {
        return None;
    }
    let link = model.link(link)?;
    let container = if is_target { &link.to.container } else { &link.from.container };
    let mut paths: Vec<(&str, Pointer)> = owned_paths(model)
        .into_iter()
        .filter(|owned| owned.container == container)
        .map(|owned| (owned.link.map_or("", |link| link.name.as_str()), owned.path))
        .collect();
    paths.sort();
    Some(paths)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use quire_value::{Limits, text};

    use super::*;
    use crate::declare;

    const BASE: &str = r#"{"version":1,
        "links":[{"name":"l","from":{"container":"a","path":"/b/id"},"to":{"container":"b"}}],
        "copies":[{"name":"c","link":"l","fields":{"x":"t.x"}},{"name":"w","link":"l","fields":{"all":"t"}}],
        "mirrors":[{"name":"m","link":"l","into":"/m"}],
        "rollups":[{"name":"r","link":"l","op":"count","into":"/n"}]}"#;

    fn model(json: &str) -> Model {
        let body = text::parse(json.as_bytes(), Limits::default()).unwrap();
        let draft = declare::read(&body);
        assert_eq!(draft.errors, [], "{json}");
        draft.model
    }

    fn check(edits: &[(&str, &str)], expect: Expect) {
        let new = edits.iter().fold(BASE.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let difference = Difference::between(&model(BASE), &model(&new));
        let lists = difference.to_json();
        let lists = lists.as_object().unwrap().iter().filter(|(_, names)| names.as_array() != Some(&[]));
        let mut shown: Vec<String> =
            lists.map(|(list, names)| format!("{list} {}", names.to_json())).collect();
        shown.extend(difference.settings_changed.then(|| "settings".to_owned()));
        expect.assert_eq(&shown.join(", "));
        assert_eq!(difference.is_unchanged(), shown.len() == 1 && shown[0].starts_with("unchanged"));
    }

    #[test]
    fn changes() {
        check(&[], expect![[r#"unchanged ["l","c","w","m","r"]"#]]);
        check(
            &[("\"into\":\"/m\"", "\"into\":\"/m\",\"max\":1000,\"onWrite\":\"correct\"")],
            expect![[r#"unchanged ["l","c","w","m","r"]"#]],
        );
        check(
            &[("\"version\":1", "\"version\":1,\"onWrite\":\"refuse\"")],
            expect![[r#"changed ["c","w","m","r"], unchanged ["l"], settings"#]],
        );
        check(
            &[("\"version\":1", "\"version\":1,\"fanOutMax\":5,\"ifMatch\":\"client\"")],
            expect![[r#"unchanged ["l","c","w","m","r"], settings"#]],
        );
        check(
            &[("\"container\":\"b\"}", "\"container\":\"b\"},\"integrity\":\"enforced\"")],
            expect![[r#"changed ["l"], unchanged ["c","w","m","r"]"#]],
        );
        check(
            &[("\"container\":\"b\"}", "\"container\":\"b\"},\"onDelete\":\"remove\"")],
            expect![[r#"changed ["l"], unchanged ["c","w","m","r"]"#]],
        );
        check(
            &[("\"into\":\"/m\"", "\"into\":\"/m\",\"onWrite\":\"refuse\"")],
            expect![[r#"changed ["m"], unchanged ["l","c","w","r"]"#]],
        );
        check(&[("t.x", "t.y")], expect![[r#"rebuilt ["c"], unchanged ["l","w","m","r"]"#]]);
        check(
            &[("\"into\":\"/m\"", "\"into\":\"/m\",\"max\":5")],
            expect![[r#"rebuilt ["m"], unchanged ["l","c","w","r"]"#]],
        );
    }

    #[test]
    fn what_is_made_of_a_link_is_built_with_it() {
        check(&[("/b/id", "/c/id")], expect![[r#"rebuilt ["l","c","w","m","r"]"#]]);
    }

    #[test]
    fn what_failed_is_built_with_what_is_made_of_it() {
        let model = model(BASE);
        let of = |name: &'static str| Difference::rebuilding(&model, &model, move |other| other == name);
        assert_eq!(of("l").rebuilt, ["l", "c", "w", "m", "r"]);
        assert_eq!((of("m").rebuilt, of("m").unchanged.len()), (vec!["m".to_owned()], 4));
    }

    /// `t` alone is the item without owned paths, so that it changes with them.
    #[test]
    fn whole_items_change_with_the_owned_paths() {
        check(
            &[("\"into\":\"/n\"", "\"into\":\"/k\"")],
            expect![[r#"rebuilt ["w","r"], unchanged ["l","c","m"]"#]],
        );
        check(
            &[("{\"name\":\"r\",\"link\":\"l\",\"op\":\"count\",\"into\":\"/n\"}", "")],
            expect![[r#"removed ["r"], rebuilt ["w"], unchanged ["l","c","m"]"#]],
        );
    }

    #[test]
    fn added_removed_and_renamed() {
        check(
            &[("{\"name\":\"m\",", "{\"name\":\"m2\",")],
            expect![[r#"added ["m2"], removed ["m"], unchanged ["l","c","w","r"]"#]],
        );
        // The same name for something else.
        check(
            &[
                ("\"name\":\"m\"", "\"name\":\"r\""),
                ("\"name\":\"r\",\"link\":\"l\",\"op\"", "\"name\":\"m\",\"link\":\"l\",\"op\""),
            ],
            expect![[r#"rebuilt ["r","m"], unchanged ["l","c","w"]"#]],
        );
    }

    #[test]
    fn an_empty_model_removes_all() {
        let difference = Difference::between(&model(BASE), &Model::empty());
        assert_eq!(difference.removed, ["l", "c", "w", "m", "r"]);
        assert!(Difference::between(&Model::empty(), &Model::empty()).is_unchanged());
    }
}
