//! Declarations that are added to a model as it is, and taken out of it again. Pure functions.

use std::collections::HashMap;

use quire_value::{Object, Value};

/// Kinds of declarations, links first.
const KINDS: [&str; 5] = ["links", "copies", "mirrors", "rollups", "windows"];
const NAME_MAX: usize = 64;

/// What is added to a model, with the names that it has there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Additions {
    /// `{"links": [...], "copies": [...]}`
    pub declarations: Object,
    pub names: Vec<String>,
    /// What links of the finding are called in the model.
    pub links: HashMap<String, String>,
}

impl Additions {
    /// A link that the model has is used again, and what it has already is not added. A name that is taken gets a number.
    pub fn plan(model: &Object, wanted: &Value) -> Additions {
        let mut taken: Vec<String> = names(model).map(str::to_owned).collect();
        let mut planned = Additions::default();
        for kind in KINDS {
            let mut added = Vec::new();
            for declaration in wanted.get(kind).and_then(Value::as_array).unwrap_or_default() {
                let mut declaration = declaration.as_object().cloned().unwrap_or_default();
                let name = name_of(&declaration).to_owned();
                let link =
                    declaration.get("link").and_then(Value::as_str).and_then(|link| planned.links.get(link));
                if let Some(link) = link.cloned() {
                    declaration.set("link", link);
                }
                if let Some(known) = same(model, kind, &declaration) {
                    planned.links.insert(name, known.to_owned());
                    continue;
                }
                let own = unique(&name, &taken);
                declaration.set("name", own.as_str());
                taken.push(own.clone());
                planned.names.push(own.clone());
                planned.links.insert(name, own);
                added.push(Value::Object(declaration));
            }
            if !added.is_empty() {
                planned.declarations.set(kind, added);
            }
        }
        planned
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The body of a refactoring, with the name that its link has in the model.
    pub fn with_names(&self, body: &Value) -> Value {
        let mut body = body.clone();
        let link = body.get("link").and_then(Value::as_str).and_then(|link| self.links.get(link)).cloned();
        if let (Some(link), Some(object)) = (link, body.as_object_mut()) {
            object.set("link", link);
        }
        body
    }

    /// Whether the model has all of them.
    pub fn are_in(&self, model: &Object) -> bool {
        let own =
            KINDS.iter().flat_map(|kind| of_kind(&self.declarations, kind).map(move |own| (*kind, own)));
        own.into_iter().all(|(kind, own)| same(model, kind, own).is_some_and(|name| name == name_of(own)))
    }

    /// The model with them.
    pub fn apply_to(&self, mut model: Object) -> Object {
        for kind in KINDS {
            let mut all: Vec<Value> = of_kind(&model, kind).cloned().map(Value::Object).collect();
            all.extend(of_kind(&self.declarations, kind).cloned().map(Value::Object));
            if !all.is_empty() {
                model.set(kind, all);
            }
        }
        model
    }
}

/// The model without declarations. A link that others use stays.
pub(crate) fn without_declarations(mut model: Object, gone: &[String]) -> Object {
    let is_gone = |own: &Object| gone.iter().any(|name| name == name_of(own));
    for kind in KINDS.into_iter().rev() {
        let kept: Vec<Value> = of_kind(&model, kind)
            .filter(|own| !is_gone(own) || kind == "links" && is_used(&model, name_of(own)))
            .cloned()
            .map(Value::Object)
            .collect();
        if model.contains(kind) {
            model.set(kind, kept);
        }
    }
    model
}

fn is_used(model: &Object, link: &str) -> bool {
    let others = KINDS.iter().skip(1).flat_map(|kind| of_kind(model, kind));
    others.into_iter().any(|own| own.get("link").and_then(Value::as_str) == Some(link))
}

/// The name of a declaration of the model that says the same.
fn same<'m>(model: &'m Object, kind: &str, wanted: &Object) -> Option<&'m str> {
    of_kind(model, kind).find(|own| is_equivalent(kind, own, wanted)).map(name_of)
}

/// Links by where they begin and end: whether one is enforced is its owner's choice.
fn is_equivalent(kind: &str, own: &Object, wanted: &Object) -> bool {
    let at =
        |value: &Object, end: &str, member: &str| value.get(end).and_then(|end| end.get(member)).cloned();
    if kind == "links" {
        let key = |value: &Object| at(value, "to", "key").unwrap_or_else(|| Value::from("/id"));
        return [("from", "container"), ("from", "path"), ("to", "container")]
            .into_iter()
            .all(|(end, member)| at(own, end, member) == at(wanted, end, member))
            && key(own) == key(wanted);
    }
    wanted.iter().all(|(member, value)| member == "name" || own.get(member) == Some(value))
}

fn of_kind<'m>(model: &'m Object, kind: &str) -> impl Iterator<Item = &'m Object> {
    let all = model.get(kind).and_then(Value::as_array).unwrap_or_default();
    all.iter().filter_map(Value::as_object)
}

fn names(model: &Object) -> impl Iterator<Item = &str> {
    KINDS.iter().flat_map(|kind| of_kind(model, kind).map(name_of))
}

fn name_of(declaration: &Object) -> &str {
    declaration.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn unique(name: &str, taken: &[String]) -> String {
    let numbered = |number: usize| match number {
        1 => name.to_owned(),
        number => {
            let end = format!("-{number}");
            let start: String = name.chars().take(NAME_MAX - end.len()).collect();
            format!("{start}{end}")
        }
    };
    (1..).map(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    fn json(text: &str) -> Object {
        text::parse(text.as_bytes(), Limits::default()).ok().and_then(Value::into_object).expect("an object")
    }

    const WANTED: &str = r#"{"version":1,"links":[{"name":"l","from":{"container":"b","path":"/a"},"to":{"container":"a"},"integrity":"weak"}],
        "copies":[{"name":"c","link":"l","fields":{"n":"t.n"}}]}"#;

    fn plan(model: &str) -> (Additions, Object) {
        let model = json(model);
        let planned = Additions::plan(&model, &Value::Object(json(WANTED)));
        let whole = planned.apply_to(model);
        (planned, whole)
    }

    #[test]
    fn an_empty_model_gets_all() {
        let (planned, whole) = plan(r#"{"version":1}"#);
        assert_eq!(planned.names, ["l", "c"]);
        assert!(planned.are_in(&whole));
        assert!(!planned.are_in(&json(r#"{"version":1}"#)));
        assert_eq!(
            without_declarations(whole, &planned.names),
            json(r#"{"version":1,"links":[],"copies":[]}"#)
        );
    }

    #[test]
    fn a_declared_link_is_used_and_names_are_unique() {
        let model = r#"{"links":[{"name":"own","from":{"container":"b","path":"/a"},"to":{"container":"a"},"integrity":"enforced"}],
            "copies":[{"name":"c","link":"own","fields":{"m":"t.m"}}]}"#;
        let (planned, whole) = plan(model);
        assert_eq!(planned.names, ["c-2"]);
        assert_eq!(whole.get("copies").and_then(|all| all.at(1)?.get("link")?.as_str()), Some("own"));
        let again = Additions::plan(&whole, &Value::Object(json(WANTED)));
        assert!(again.is_empty(), "what is there is not added twice: {again:?}");
        assert_eq!(without_declarations(whole, &planned.names), json(model));
    }

    #[test]
    fn a_link_to_another_place_is_another_link() {
        let model =
            r#"{"links":[{"name":"l","from":{"container":"b","path":"/a"},"to":{"container":"other"}}]}"#;
        let (planned, _) = plan(model);
        assert_eq!(planned.names, ["l-2", "c"]);
    }

    #[test]
    fn a_link_that_others_use_stays() {
        let (planned, mut whole) = plan(r#"{"version":1}"#);
        whole.set("rollups", vec![Value::Object(json(r#"{"name":"r","link":"l"}"#))]);
        let left = without_declarations(whole, &planned.names);
        assert_eq!(of_kind(&left, "links").count(), 1);
        assert_eq!(of_kind(&left, "copies").count(), 0);
    }

    #[test]
    fn long_names_stay_names() {
        let name = "n".repeat(64);
        let found = unique(&name, std::slice::from_ref(&name));
        assert!(found.len() == 64 && found.ends_with("-2"), "{found}");
    }
}
