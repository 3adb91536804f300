//! JSON to declarations, strictly: an unknown member is an error, so that a misspelt option never passes silently.
//!
//! Reading goes on behind an error. What is wrong gets a stand-in and its place is noted as broken, so that later checks
//! that need it are left out and all others are made.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use quire_value::{Object, Value};

use super::*;
use crate::pointer::escape;
use crate::problem::{ModelError, Problem};

/// A model as far as it could be read.
pub(crate) struct Draft {
    pub model: Model,
    pub errors: Vec<ModelError>,
    /// Places whose value in the model is a stand-in.
    pub broken: BTreeSet<String>,
}

/// Members of the body in the order in which they are written, and in which errors about them are reported. Every object of a
/// model has some of these.
pub(crate) const MEMBERS: &[&str] = &[
    "version",
    "onWrite",
    "fanOutMax",
    "ifMatch",
    "links",
    "copies",
    "mirrors",
    "rollups",
    "windows",
    "name",
    "link",
    "container",
    "from",
    "to",
    "op",
    "path",
    "into",
    "reference",
    "keep",
    "key",
    "by",
    "newest",
    "slack",
    "partitionKey",
    "convert",
    "integrity",
    "onDelete",
    "fields",
    "onMissing",
    "value",
    "max",
    "whenFull",
    "filter",
    "of",
    "pages",
    "parent",
    "number",
    "size",
    "count",
];

const MODEL: &[&str] =
    &["version", "onWrite", "fanOutMax", "ifMatch", "links", "copies", "mirrors", "rollups", "windows"];
/// Members whose entries are declarations.
const LISTS: &[&str] = &["links", "copies", "mirrors", "rollups", "windows"];
const LINK: &[&str] = &["name", "from", "to", "integrity", "onDelete"];
const FROM: &[&str] = &["container", "path"];
const TO: &[&str] = &["container", "key", "partitionKey", "convert"];
const COPY: &[&str] = &["name", "link", "fields", "onMissing", "onWrite"];
const MIRROR: &[&str] = &["name", "link", "into", "value", "max", "whenFull", "onWrite"];
const ROLLUP: &[&str] = &["name", "link", "op", "into", "value", "filter", "of", "onWrite"];
const WINDOW: &[&str] =
    &["name", "container", "path", "keep", "key", "by", "newest", "slack", "pages", "count", "onWrite"];
const PAGES: &[&str] = &["container", "path", "parent", "number", "size"];

const ON_WRITE: &[(&str, OnWrite)] = &[("correct", OnWrite::Correct), ("refuse", OnWrite::Refuse)];
const IF_MATCH: &[(&str, IfMatch)] = &[("exact", IfMatch::Exact), ("client", IfMatch::Client)];
const CONVERT: &[(&str, Convert)] = &[("none", Convert::None), ("string", Convert::String)];
const INTEGRITY: &[(&str, Integrity)] = &[("weak", Integrity::Weak), ("enforced", Integrity::Enforced)];
const ON_DELETE: &[(&str, OnDelete)] = &[
    ("allow", OnDelete::Allow),
    ("restrict", OnDelete::Restrict),
    ("cascade", OnDelete::Cascade),
    ("remove", OnDelete::Remove),
];
const ON_MISSING: &[(&str, OnMissing)] = &[("remove", OnMissing::Remove), ("keep", OnMissing::Keep)];
const WHEN_FULL: &[(&str, WhenFull)] = &[("refuse", WhenFull::Refuse), ("cut", WhenFull::Cut)];
const OPERATIONS: &[(&str, Operation)] = &[
    ("count", Operation::Count),
    ("sum", Operation::Sum),
    ("min", Operation::Min),
    ("max", Operation::Max),
    ("avg", Operation::Avg),
];
const OF: &[(&str, RollupOf)] = &[("items", RollupOf::Items), ("references", RollupOf::References)];
const NEWEST: &[(&str, NewestAt)] = &[("last", NewestAt::Last), ("first", NewestAt::First)];

const NAME_LENGTH_MAX: usize = 64;

pub(crate) fn read(body: &Value) -> Draft {
    let mut reader = Reader::default();
    let model = reader.model(body);
    Draft { model, errors: reader.errors, broken: reader.broken }
}

/// On input ignored: what the server adds to its answers.
pub(crate) fn is_ignored(member: &str) -> bool {
    member.starts_with('_') || member == "revision"
}

/// An object of the body and where it is.
struct Members<'a> {
    at: String,
    object: &'a Object,
}

/// Where a path stands decides what it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Paths {
    /// `*` for elements, below an object.
    Elements,
    /// One place.
    One,
}

#[derive(Default)]
struct Reader {
    errors: Vec<ModelError>,
    broken: BTreeSet<String>,
}

impl Members<'_> {
    fn at(&self, name: &str) -> String {
        format!("{}/{}", self.at, escape(name))
    }
}

impl Reader {
    fn model(&mut self, body: &Value) -> Model {
        let Some(members) = self.object(body, String::new(), "model") else { return Model::empty() };
        let json = body.as_object().map(super::write::canonical).unwrap_or_default();
        if Value::Object(json.clone()).to_json().len() > MODEL_BYTES_MAX {
            self.report(
                String::new(),
                Problem::TooMany { what: "Size of the model", limit: "256 KB".into() },
            );
            return Model::empty();
        }
        if self.has_too_many(&members) {
            return Model::empty();
        }
        self.check_members(&members, MODEL, is_ignored);
        match self.required(&members, "version") {
            Some(version) if version.as_i64() != Some(1) => self.wrong_member(&members, "version", "1"),
            _ => {}
        }
        Model {
            on_write: self.choice(&members, "onWrite", ON_WRITE).unwrap_or_default(),
            fan_out_max: self.integer(&members, "fanOutMax", 0..=FAN_OUT_MAX).unwrap_or(FAN_OUT_DEFAULT),
            if_match: self.choice(&members, "ifMatch", IF_MATCH).unwrap_or_default(),
            links: self.list(&members, "links", Reader::link),
            copies: self.list(&members, "copies", Reader::copy),
            mirrors: self.list(&members, "mirrors", Reader::mirror),
            rollups: self.list(&members, "rollups", Reader::rollup),
            windows: self.list(&members, "windows", Reader::window),
            json,
        }
    }

    /// Before any of them is read: each could have several errors.
    fn has_too_many(&mut self, members: &Members<'_>) -> bool {
        let count = |member: &str| members.object.get(member).and_then(Value::as_array).map_or(0, <[_]>::len);
        let links = count("links");
        let all: usize = LISTS.iter().map(|list| count(list)).sum();
        if all > DECLARATIONS_MAX {
            let limit = DECLARATIONS_MAX.to_string();
            self.report(String::new(), Problem::TooMany { what: "Declarations", limit });
        }
        if links > LINKS_MAX {
            let limit = LINKS_MAX.to_string();
            self.report("/links".to_owned(), Problem::TooMany { what: "Links", limit });
        }
        all > DECLARATIONS_MAX || links > LINKS_MAX
    }

    fn link(&mut self, members: Members<'_>) -> Link {
        self.check_members(&members, LINK, |_| false);
        let name = self.name(&members);
        let from = self.inner(&members, "from").map(|from| {
            self.check_members(&from, FROM, |_| false);
            ContainerPath {
                container: self.string(&from, "container"),
                path: self.path(&from, "path", Paths::Elements),
            }
        });
        let to = self.inner(&members, "to").map(|to| self.target(&to));
        let integrity = self.choice(&members, "integrity", INTEGRITY).unwrap_or_default();
        let on_delete = self.choice(&members, "onDelete", ON_DELETE);
        Link {
            name,
            from: from
                .unwrap_or_else(|| ContainerPath { container: String::new(), path: Pointer::default() }),
            to: to.unwrap_or_else(|| Target {
                container: String::new(),
                key: Pointer::default(),
                partition_key: None,
                convert: Convert::None,
            }),
            integrity,
            on_delete: on_delete.unwrap_or(OnDelete::default_of(integrity)),
        }
    }

    fn target(&mut self, to: &Members<'_>) -> Target {
        self.check_members(to, TO, |_| false);
        Target {
            container: self.string(to, "container"),
            key: self.optional_path(to, "key").unwrap_or_else(|| Pointer::of_name("id")),
            partition_key: self.route(to),
            convert: self.choice(to, "convert", CONVERT).unwrap_or_default(),
        }
    }

    fn route(&mut self, to: &Members<'_>) -> Option<Route> {
        match to.object.get("partitionKey")? {
            Value::String(text) if text == "lookup" => Some(Route::Lookup),
            Value::Array(entries) => {
                let levels = entries.iter().enumerate();
                Some(Route::Levels(
                    levels
                        .map(|(index, entry)| self.level(entry, format!("{}/partitionKey/{index}", to.at)))
                        .collect(),
                ))
            }
            _ => {
                self.wrong_member(
                    to,
                    "partitionKey",
                    "a list with one entry for each level of the key, or \"lookup\"",
                );
                None
            }
        }
    }

    /// One of `path`, `value` and `reference`.
    fn level(&mut self, entry: &Value, at: String) -> Level {
        let Some(members) = self.object(entry, at, "partitionKey") else { return Level::Reference };
        let given = ["path", "value", "reference"].into_iter().find(|name| members.object.contains(name));
        let known: &[&str] = given.as_ref().map_or(&["path"], std::slice::from_ref);
        self.check_members(&members, known, |_| false);
        match given {
            Some("value") => match members.object.get("value") {
                Some(value) if value.as_array().is_none() && value.as_object().is_none() => {
                    Level::Value(value.clone())
                }
                _ => {
                    self.wrong_member(&members, "value", "a string, a number, a boolean or null");
                    Level::Reference
                }
            },
            Some("reference") => {
                if members.object.get("reference").and_then(Value::as_bool) != Some(true) {
                    self.wrong_member(&members, "reference", "true");
                }
                Level::Reference
            }
            _ => Level::Path(self.path(&members, "path", Paths::Elements)),
        }
    }

    fn copy(&mut self, members: Members<'_>) -> Copy {
        self.check_members(&members, COPY, |_| false);
        let name = self.name(&members);
        let link = self.string(&members, "link");
        let fields = self.inner(&members, "fields").map(|fields| self.fields(&members, &fields));
        Copy {
            name,
            link,
            fields: fields.unwrap_or_default(),
            on_missing: self.choice(&members, "onMissing", ON_MISSING).unwrap_or_default(),
            on_write: self.choice(&members, "onWrite", ON_WRITE),
        }
    }

    fn fields(&mut self, copy: &Members<'_>, fields: &Members<'_>) -> Vec<Field> {
        if fields.object.is_empty() {
            self.wrong_member(copy, "fields", "an object with at least one member");
        }
        let mut read: Vec<Field> = Vec::new();
        for (name, expression) in fields.object.iter() {
            let path = self.parse(Pointer::parse_relative(name), name, fields.at(name), Paths::One);
            let expression = match expression.as_str() {
                Some(text) => text.to_owned(),
                None => {
                    self.wrong_member(fields, name, "a string");
                    String::new()
                }
            };
            read.push(Field { name: name.to_owned(), path, expression });
        }
        read.sort_by(|one, other| one.name.cmp(&other.name));
        read
    }

    fn mirror(&mut self, members: Members<'_>) -> Mirror {
        self.check_members(&members, MIRROR, |_| false);
        Mirror {
            name: self.name(&members),
            link: self.string(&members, "link"),
            into: self.path(&members, "into", Paths::One),
            value: self.optional_string(&members, "value").unwrap_or_else(|| "r.id".to_owned()),
            max: self.integer(&members, "max", 1..=MIRROR_MAX).unwrap_or(MIRROR_MAX_DEFAULT),
            when_full: self.choice(&members, "whenFull", WHEN_FULL).unwrap_or_default(),
            on_write: self.choice(&members, "onWrite", ON_WRITE),
        }
    }

    fn rollup(&mut self, members: Members<'_>) -> Rollup {
        self.check_members(&members, ROLLUP, |_| false);
        let (name, link) = (self.name(&members), self.string(&members, "link"));
        let op = self.required(&members, "op").and_then(|_| self.choice(&members, "op", OPERATIONS));
        let value = self.optional_string(&members, "value");
        if op.is_some_and(|op| op != Operation::Count) && !members.object.contains("value") {
            self.report(members.at.clone(), Problem::Missing { member: "value".to_owned() });
        }
        if op == Some(Operation::Count) && members.object.contains("value") {
            self.report(members.at("value"), Problem::UnknownMember { member: "value".to_owned() });
        }
        Rollup {
            name,
            link,
            op: op.unwrap_or(Operation::Count),
            into: self.path(&members, "into", Paths::One),
            value,
            filter: self.optional_string(&members, "filter"),
            of: self.choice(&members, "of", OF).unwrap_or_default(),
            on_write: self.choice(&members, "onWrite", ON_WRITE),
        }
    }

    fn window(&mut self, members: Members<'_>) -> Window {
        self.check_members(&members, WINDOW, |_| false);
        let pages = self.inner(&members, "pages").map(|pages| self.pages(&pages));
        // Without a size that can be read, any slack may fit.
        let size = pages.as_ref().map_or(PAGE_SIZE_MAX, |pages| pages.size);
        Window {
            name: self.name(&members),
            container: self.string(&members, "container"),
            path: self.path(&members, "path", Paths::One),
            keep: self.required_integer(&members, "keep", 1..=WINDOW_KEEP_MAX),
            key: self.optional_path(&members, "key"),
            by: self.optional_path(&members, "by"),
            newest: self.choice(&members, "newest", NEWEST).unwrap_or_default(),
            slack: self.integer(&members, "slack", 0..=size).unwrap_or(0),
            pages: pages.unwrap_or_else(|| Pages {
                container: String::new(),
                path: Pointer::default(),
                parent: Pointer::default(),
                number: Pointer::default(),
                size: PAGE_SIZE_MAX,
            }),
            count: self.optional_path(&members, "count"),
            on_write: self.choice(&members, "onWrite", ON_WRITE),
        }
    }

    fn pages(&mut self, members: &Members<'_>) -> Pages {
        self.check_members(members, PAGES, |_| false);
        Pages {
            container: self.string(members, "container"),
            path: self.path(members, "path", Paths::One),
            parent: self.path(members, "parent", Paths::One),
            number: self.path(members, "number", Paths::One),
            size: self.required_integer(members, "size", PAGE_SIZE_MIN..=PAGE_SIZE_MAX),
        }
    }

    fn report(&mut self, at: String, problem: Problem) {
        self.errors.push(ModelError { at, problem });
    }

    fn wrong_member(&mut self, members: &Members<'_>, member: &str, what: &str) {
        self.broken.insert(members.at(member));
        let problem = Problem::WrongValue { member: member.to_owned(), what: what.to_owned() };
        self.report(members.at(member), problem);
    }

    fn check_members(&mut self, members: &Members<'_>, known: &[&str], is_ignored: impl Fn(&str) -> bool) {
        let unknown = members.object.names().filter(|name| !known.contains(name) && !is_ignored(name));
        for name in unknown.collect::<Vec<_>>() {
            self.report(members.at(name), Problem::UnknownMember { member: name.to_owned() });
        }
    }

    fn object<'a>(&mut self, value: &'a Value, at: String, member: &str) -> Option<Members<'a>> {
        match value.as_object() {
            Some(object) => Some(Members { at, object }),
            None => {
                self.broken.insert(at.clone());
                let what = if at.ends_with(|last: char| last.is_ascii_digit()) {
                    "a list of objects"
                } else {
                    "an object"
                };
                self.report(at, Problem::WrongValue { member: member.to_owned(), what: what.to_owned() });
                None
            }
        }
    }

    fn required<'a>(&mut self, members: &Members<'a>, name: &str) -> Option<&'a Value> {
        let value = members.object.get(name);
        if value.is_none() {
            self.broken.insert(members.at(name));
            self.report(members.at.clone(), Problem::Missing { member: name.to_owned() });
        }
        value
    }

    fn inner<'a>(&mut self, members: &Members<'a>, name: &str) -> Option<Members<'a>> {
        let value = self.required(members, name)?;
        self.object(value, members.at(name), name)
    }

    fn list<T>(
        &mut self,
        members: &Members<'_>,
        name: &str,
        entry: impl Fn(&mut Reader, Members<'_>) -> T,
    ) -> Vec<T> {
        let entries = match members.object.get(name) {
            None => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.wrong_member(members, name, "a list of objects");
                return Vec::new();
            }
        };
        let read = |(index, value): (usize, &Value)| {
            let at = format!("{}/{index}", members.at(name));
            match self.object(value, at.clone(), name) {
                Some(inner) => entry(self, inner),
                // Read as if it were empty: the places in the list stay, and its errors are dropped.
                None => {
                    let mut scratch = Reader::default();
                    let read = entry(&mut scratch, Members { at, object: &Object::new() });
                    self.broken.extend(scratch.broken);
                    read
                }
            }
        };
        entries.iter().enumerate().map(read).collect()
    }

    fn string(&mut self, members: &Members<'_>, name: &str) -> String {
        self.required(members, name);
        self.optional_string(members, name).unwrap_or_default()
    }

    fn optional_string(&mut self, members: &Members<'_>, name: &str) -> Option<String> {
        let value = members.object.get(name)?;
        if value.as_str().is_none() {
            self.wrong_member(members, name, "a string");
        }
        value.as_str().map(str::to_owned)
    }

    fn name(&mut self, members: &Members<'_>) -> String {
        let name = self.string(members, "name");
        if !self.broken.contains(&members.at("name")) && !is_name(&name) {
            self.report(members.at("name"), Problem::BadName { name: name.clone() });
        }
        name
    }

    fn choice<T: std::marker::Copy>(
        &mut self,
        members: &Members<'_>,
        name: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let value = members.object.get(name)?;
        let chosen = choices.iter().find(|(text, _)| value.as_str() == Some(text));
        if chosen.is_none() {
            self.wrong_member(members, name, &one_of(choices));
        }
        chosen.map(|(_, chosen)| *chosen)
    }

    fn integer(&mut self, members: &Members<'_>, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = members.object.get(name)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (min, max) = (grouped(u64::from(*range.start())), grouped(u64::from(*range.end())));
            self.wrong_member(members, name, &format!("an integer from {min} to {max}"));
        }
        number
    }

    fn required_integer(&mut self, members: &Members<'_>, name: &str, range: RangeInclusive<u32>) -> u32 {
        self.required(members, name);
        let stand_in = *range.end();
        self.integer(members, name, range).unwrap_or(stand_in)
    }

    fn path(&mut self, members: &Members<'_>, name: &str, paths: Paths) -> Pointer {
        let text = self.string(members, name);
        if self.broken.contains(&members.at(name)) {
            return Pointer::default();
        }
        self.parse(Pointer::parse(&text), &text, members.at(name), paths)
    }

    fn optional_path(&mut self, members: &Members<'_>, name: &str) -> Option<Pointer> {
        let text = self.optional_string(members, name)?;
        Some(self.parse(Pointer::parse(&text), &text, members.at(name), Paths::One))
    }

    fn parse(
        &mut self,
        parsed: Result<Pointer, &'static str>,
        text: &str,
        at: String,
        paths: Paths,
    ) -> Pointer {
        let checked = parsed.and_then(|pointer| match (pointer.each_count(), paths) {
            (1.., Paths::One) => Err("'*' cannot be used here"),
            _ if pointer.top().is_none() => Err("an item is not an array"),
            _ => Ok(pointer),
        });
        checked.unwrap_or_else(|why| {
            self.broken.insert(at.clone());
            self.report(at, Problem::BadPath { path: text.to_owned(), why: why.to_owned() });
            Pointer::default()
        })
    }
}

fn is_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME_LENGTH_MAX
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(is_inner)
}

/// `"a", "b" or "c"`
fn one_of<T>(choices: &[(&str, T)]) -> String {
    let quoted: Vec<String> = choices.iter().map(|(text, _)| format!("\"{text}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// `1,000`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
