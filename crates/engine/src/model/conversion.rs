//! What an open refactoring does to items that are written meanwhile.
//!
//! It is part of the model: every write that is made under the model is made under its conversions, and they are durable with
//! it. So there is no write that a refactoring does not see: what was stored before a conversion began is visited by the job,
//! and what is written then is converted in its own commit (`maintain::convert`).

use quire_model::{Pointer, Segment, TargetKey};
use quire_resource::{Component, PartitionKey};
use quire_value::{Object, Value};

/// Of one refactoring.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversion {
    /// Its number in the database.
    pub refactoring: u32,
    pub stage: ConversionStage,
    pub has_journal: bool,
    /// Names of its declarations: clients cannot change them while it is open.
    pub declarations: Vec<String>,
    pub rule: ConversionRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversionStage {
    /// The new form is added, the old one stays beside it.
    Adding,
    /// Declarations keep both forms: nothing is converted.
    BothMaintained,
    /// The old form goes.
    Removing,
    /// It was never finished, and the journal says what items had.
    Undoing,
    /// The old form is made from the new one as it is now.
    Reverting,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConversionRule {
    Extract(ExtractRule),
    Flip(FlipRule),
    Merge(MergeRule),
    Split(SplitRule),
    Embed(EmbedRule),
}

/// A part of items becomes an item of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtractRule {
    pub container: String,
    /// What the part and the reference are in.
    pub holder: Pointer,
    /// Names of their members.
    pub part: String,
    pub reference: String,
    /// In the part.
    pub key: Pointer,
    pub into: String,
    /// The item has the id and the partition key of the part's owner, and the part as a member.
    pub of_owner: bool,
    pub link: String,
    /// The declaration that owns the part.
    pub copy: String,
    pub old_writers: OldWriters,
    pub on_conflict: Option<OnConflict>,
    /// Members of the part that stay as copies when it is finished.
    pub keep_fields: Vec<String>,
    /// It is undone before all parts were removed: nothing has maintained those that are left.
    pub has_leftovers: bool,
}

/// An array of ids becomes the id of its owner in each item that it names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlipRule {
    pub container: String,
    pub path: Pointer,
    pub to: String,
    pub into: Pointer,
    /// From the items to their owner.
    pub link: String,
    /// The declaration that owns the array.
    pub mirror: String,
    /// The partition key of owners is their id.
    pub is_owner_by_id: bool,
    pub old_writers: OldWriters,
    pub on_conflict: Option<OnConflict>,
}

/// Items that join two others become an array of ids in the left one, mirrored in the right one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MergeRule {
    pub container: String,
    pub left: Pointer,
    pub right: Pointer,
    /// Containers of the ends.
    pub left_end: String,
    pub right_end: String,
    pub into_left: Pointer,
    pub into_right: Pointer,
    /// From the join items to their ends.
    pub left_link: String,
    pub right_link: String,
    /// From the array to the right ends.
    pub link: String,
}

/// An array becomes a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SplitRule {
    pub container: String,
    pub path: Pointer,
    /// Where the window is when it is finished.
    pub rename: Option<Pointer>,
    /// In the element.
    pub key: Option<Pointer>,
    /// The container of pages, and their paths.
    pub pages: String,
    pub page_path: Pointer,
    pub parent: Pointer,
    pub number: Pointer,
    pub window: String,
}

/// Items become parts of the items that refer to them, or that they refer to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmbedRule {
    /// The container whose items get parts.
    pub holder: String,
    /// The container whose items become parts.
    pub part: String,
    pub link: String,
    /// The copy or mirror that owns the parts until it is finished.
    pub declaration: String,
    /// Of the part in its holder, or of the array of parts.
    pub into: Pointer,
    pub side: EmbedSide,
    pub old_writers: OldWriters,
    pub on_conflict: Option<OnConflict>,
}

/// Which end of a link holds the items of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbedSide {
    /// The target is a part of its referrer, beside the reference.
    Referrer,
    /// Referrers are elements of an array of their target.
    Target,
}

/// What becomes of a write in the old form that contradicts the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OldWriters {
    #[default]
    Refuse,
    Correct,
    /// What it says is written to the new form.
    Through,
}

/// Which of several items counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnConflict {
    First,
    Newest,
    Skip,
}

impl ConversionStage {
    const ALL: [(&'static str, ConversionStage); 5] = [
        ("adding", ConversionStage::Adding),
        ("kept", ConversionStage::BothMaintained),
        ("removing", ConversionStage::Removing),
        ("undoing", ConversionStage::Undoing),
        ("reverting", ConversionStage::Reverting),
    ];
}

impl EmbedSide {
    pub const ALL: [(&'static str, EmbedSide); 2] =
        [("referrer", EmbedSide::Referrer), ("target", EmbedSide::Target)];
}

impl OldWriters {
    pub const ALL: [(&'static str, OldWriters); 3] =
        [("refuse", OldWriters::Refuse), ("correct", OldWriters::Correct), ("through", OldWriters::Through)];
}

impl OnConflict {
    pub const ALL: [(&'static str, OnConflict); 3] =
        [("first", OnConflict::First), ("newest", OnConflict::Newest), ("skip", OnConflict::Skip)];
}

fn named<T: Copy>(all: &[(&'static str, T)], name: Option<&str>) -> Option<T> {
    all.iter().find(|(own, _)| Some(*own) == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, own)| own == value).map_or("", |(name, _)| name)
}

impl Conversion {
    pub fn to_json(&self) -> Value {
        let mut json = Object::new();
        json.set("refactoring", u64::from(self.refactoring));
        json.set("stage", name_of(&ConversionStage::ALL, &self.stage));
        json.set("journal", self.has_journal);
        json.set("declarations", texts(&self.declarations));
        json.set("rule", self.rule.to_json());
        Value::Object(json)
    }

    pub fn from_json(json: &Value) -> Option<Conversion> {
        Some(Conversion {
            refactoring: u32::try_from(json.get("refactoring")?.as_u64()?).ok()?,
            stage: named(&ConversionStage::ALL, json.get("stage")?.as_str())?,
            has_journal: json.get("journal")?.as_bool()?,
            declarations: read_texts(json.get("declarations")?)?,
            rule: ConversionRule::from_json(json.get("rule")?)?,
        })
    }
}

impl ConversionRule {
    /// Names of the containers whose items change; the first is the one that the refactoring is about.
    pub fn containers(&self) -> Vec<&str> {
        match self {
            ConversionRule::Extract(rule) => vec![&rule.container, &rule.into],
            ConversionRule::Flip(rule) => vec![&rule.container, &rule.to],
            ConversionRule::Merge(rule) => vec![&rule.container, &rule.left_end, &rule.right_end],
            ConversionRule::Split(rule) => vec![&rule.container, &rule.pages],
            ConversionRule::Embed(rule) => vec![&rule.holder, &rule.part],
        }
    }

    /// The link whose targets are examined.
    pub fn link(&self) -> Option<&str> {
        match self {
            ConversionRule::Extract(rule) => Some(&rule.link),
            ConversionRule::Flip(rule) => Some(&rule.link),
            ConversionRule::Embed(rule) => Some(&rule.link),
            ConversionRule::Merge(_) | ConversionRule::Split(_) => None,
        }
    }

    fn to_json(&self) -> Value {
        match self {
            ConversionRule::Extract(rule) => rule.to_json(),
            ConversionRule::Flip(rule) => rule.to_json(),
            ConversionRule::Merge(rule) => rule.to_json(),
            ConversionRule::Split(rule) => rule.to_json(),
            ConversionRule::Embed(rule) => rule.to_json(),
        }
    }

    fn from_json(json: &Value) -> Option<ConversionRule> {
        match json.get("kind")?.as_str()? {
            "extract" => ExtractRule::from_json(json).map(ConversionRule::Extract),
            "flip" => FlipRule::from_json(json).map(ConversionRule::Flip),
            "merge-join-items" => MergeRule::from_json(json).map(ConversionRule::Merge),
            "split-array" => SplitRule::from_json(json).map(ConversionRule::Split),
            "embed" => EmbedRule::from_json(json).map(ConversionRule::Embed),
            _ => None,
        }
    }
}

impl ExtractRule {
    /// Of the reference, as links name it.
    pub fn reference_path(&self) -> Pointer {
        self.holder.join(&Pointer::of_name(&self.reference))
    }

    pub fn part_path(&self) -> Pointer {
        self.holder.join(&Pointer::of_name(&self.part))
    }

    /// The key is the id of the item that is made: it is the part.
    pub fn is_by_id(&self) -> bool {
        self.key == Pointer::of_name("id")
    }

    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("kind", "extract")]);
        json.set("container", self.container.as_str());
        json.set("path", self.part_path().to_string());
        json.set("reference", self.reference.as_str());
        json.set("key", self.key.to_string());
        json.set("into", self.into.as_str());
        json.set("ofOwner", self.of_owner);
        json.set("link", self.link.as_str());
        json.set("copy", self.copy.as_str());
        json.set("oldWriters", name_of(&OldWriters::ALL, &self.old_writers));
        let on_conflict = self.on_conflict.map(|own| name_of(&OnConflict::ALL, &own));
        json.set("onConflict", on_conflict.map_or(Value::Null, Value::from));
        json.set("keepFields", texts(&self.keep_fields));
        json.set("hasLeftovers", self.has_leftovers);
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<ExtractRule> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        let path = Pointer::parse(&text("path")?).ok()?;
        let Some(Segment::Name(part)) = path.0.last().cloned() else { return None };
        Some(ExtractRule {
            container: text("container")?,
            holder: path.parent(),
            part,
            reference: text("reference")?,
            key: Pointer::parse(&text("key")?).ok()?,
            into: text("into")?,
            of_owner: json.get("ofOwner")?.as_bool()?,
            link: text("link")?,
            copy: text("copy")?,
            old_writers: named(&OldWriters::ALL, json.get("oldWriters")?.as_str())?,
            on_conflict: named(&OnConflict::ALL, json.get("onConflict")?.as_str()),
            keep_fields: read_texts(json.get("keepFields")?)?,
            has_leftovers: json.get("hasLeftovers").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

impl FlipRule {
    /// By what an owner is found.
    pub fn owner_key(&self, id: &str) -> TargetKey {
        let key = || PartitionKey(vec![Component::String(id.to_owned())]);
        TargetKey { value: id.to_owned(), partition_key: self.is_owner_by_id.then(key) }
    }

    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("kind", "flip")]);
        json.set("container", self.container.as_str());
        json.set("path", self.path.to_string());
        json.set("to", self.to.as_str());
        json.set("into", self.into.to_string());
        json.set("link", self.link.as_str());
        json.set("mirror", self.mirror.as_str());
        json.set("isOwnerById", self.is_owner_by_id);
        json.set("oldWriters", name_of(&OldWriters::ALL, &self.old_writers));
        let on_conflict = self.on_conflict.map(|own| name_of(&OnConflict::ALL, &own));
        json.set("onConflict", on_conflict.map_or(Value::Null, Value::from));
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<FlipRule> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        Some(FlipRule {
            container: text("container")?,
            path: Pointer::parse(&text("path")?).ok()?,
            to: text("to")?,
            into: Pointer::parse(&text("into")?).ok()?,
            link: text("link")?,
            mirror: text("mirror")?,
            is_owner_by_id: json.get("isOwnerById")?.as_bool()?,
            old_writers: named(&OldWriters::ALL, json.get("oldWriters")?.as_str())?,
            on_conflict: named(&OnConflict::ALL, json.get("onConflict")?.as_str()),
        })
    }
}

impl MergeRule {
    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("kind", "merge-join-items")]);
        for (name, path) in [
            ("left", &self.left),
            ("right", &self.right),
            ("intoLeft", &self.into_left),
            ("intoRight", &self.into_right),
        ] {
            json.set(name, path.to_string());
        }
        for (name, text) in [
            ("container", &self.container),
            ("leftEnd", &self.left_end),
            ("rightEnd", &self.right_end),
            ("leftLink", &self.left_link),
            ("rightLink", &self.right_link),
            ("link", &self.link),
        ] {
            json.set(name, text.as_str());
        }
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<MergeRule> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        let path = |name: &str| Pointer::parse(json.get(name)?.as_str()?).ok();
        Some(MergeRule {
            container: text("container")?,
            left: path("left")?,
            right: path("right")?,
            left_end: text("leftEnd")?,
            right_end: text("rightEnd")?,
            into_left: path("intoLeft")?,
            into_right: path("intoRight")?,
            left_link: text("leftLink")?,
            right_link: text("rightLink")?,
            link: text("link")?,
        })
    }
}

impl SplitRule {
    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("kind", "split-array")]);
        let paths = [
            ("path", Some(&self.path)),
            ("rename", self.rename.as_ref()),
            ("key", self.key.as_ref()),
            ("pagePath", Some(&self.page_path)),
            ("parent", Some(&self.parent)),
            ("number", Some(&self.number)),
        ];
        for (name, path) in paths {
            path.into_iter().for_each(|path| json.set(name, path.to_string()));
        }
        for (name, text) in [("container", &self.container), ("pages", &self.pages), ("window", &self.window)]
        {
            json.set(name, text.as_str());
        }
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<SplitRule> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        let path = |name: &str| Pointer::parse(json.get(name)?.as_str()?).ok();
        Some(SplitRule {
            container: text("container")?,
            path: path("path")?,
            rename: path("rename"),
            key: path("key"),
            pages: text("pages")?,
            page_path: path("pagePath")?,
            parent: path("parent")?,
            number: path("number")?,
            window: text("window")?,
        })
    }
}

impl EmbedRule {
    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("kind", "embed")]);
        for (name, text) in [
            ("holder", &self.holder),
            ("part", &self.part),
            ("link", &self.link),
            ("declaration", &self.declaration),
        ] {
            json.set(name, text.as_str());
        }
        json.set("into", self.into.to_string());
        json.set("side", name_of(&EmbedSide::ALL, &self.side));
        json.set("oldWriters", name_of(&OldWriters::ALL, &self.old_writers));
        let on_conflict = self.on_conflict.map(|own| name_of(&OnConflict::ALL, &own));
        json.set("onConflict", on_conflict.map_or(Value::Null, Value::from));
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<EmbedRule> {
        let text = |name: &str| Some(json.get(name)?.as_str()?.to_owned());
        Some(EmbedRule {
            holder: text("holder")?,
            part: text("part")?,
            link: text("link")?,
            declaration: text("declaration")?,
            into: Pointer::parse(&text("into")?).ok()?,
            side: named(&EmbedSide::ALL, json.get("side")?.as_str())?,
            old_writers: named(&OldWriters::ALL, json.get("oldWriters")?.as_str())?,
            on_conflict: named(&OnConflict::ALL, json.get("onConflict")?.as_str()),
        })
    }
}

fn texts(all: &[String]) -> Value {
    all.iter().map(|text| Value::from(text.as_str())).collect()
}

fn read_texts(json: &Value) -> Option<Vec<String>> {
    json.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let rule = ExtractRule {
            container: "portfolios".to_owned(),
            holder: Pointer::parse("/holdings/*").expect("a path"),
            part: "stock".to_owned(),
            reference: "stockId".to_owned(),
            key: Pointer::of_name("symbol"),
            into: "stocks".to_owned(),
            of_owner: false,
            link: "l".to_owned(),
            copy: "c".to_owned(),
            old_writers: OldWriters::Through,
            on_conflict: Some(OnConflict::Newest),
            keep_fields: vec!["name".to_owned()],
            has_leftovers: true,
        };
        let own = Conversion {
            refactoring: 3,
            stage: ConversionStage::Removing,
            has_journal: true,
            declarations: vec!["l".to_owned()],
            rule: ConversionRule::Extract(rule),
        };
        assert_eq!(Conversion::from_json(&own.to_json()), Some(own.clone()));
        let rule = EmbedRule {
            holder: "users".to_owned(),
            part: "profiles".to_owned(),
            link: "l".to_owned(),
            declaration: "c".to_owned(),
            into: Pointer::of_name("profile"),
            side: EmbedSide::Target,
            old_writers: OldWriters::Correct,
            on_conflict: None,
        };
        let own = Conversion { rule: ConversionRule::Embed(rule), ..own };
        assert_eq!(Conversion::from_json(&own.to_json()), Some(own));
    }
}
