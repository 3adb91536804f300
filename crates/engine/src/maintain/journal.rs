//! What the items of a build had before it wrote them: rows of journals, in the commits of the build.
//!
//! A change is a place in the item and what was there before and after. Rows are sealed JSON,
//! `[{"at": ["authors", 0, "name"], "before": "A", "after": "B"}]`; a member that is not there is left out.

use quire_storage::{Op, Snapshot};
use quire_value::{Limits, Object, Value, text};

use super::Unit;
use crate::api::{EngineError, corrupt};
use crate::store::keys::{self, CATALOG};
use crate::store::sealed;

const LIMITS: Limits = Limits { depth_max: 256 };

/// What was changed at one place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlaceChange {
    /// Names of members and positions in arrays.
    pub at: Vec<Value>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreOutcome {
    Done,
    /// It is as it was before.
    Already,
    /// It was changed since.
    Conflict,
}

/// The journal that has what an apply job has changed. Refactorings count from 1.
pub(crate) fn journal_of_job(job: u64) -> u32 {
    1 << 31 | (job & 0x7fff_ffff) as u32
}

impl Unit<'_> {
    /// Rows of a journal for the items that the unit writes. What is there already is older, and stays.
    pub(super) fn journal_ops(&self, snapshot: &dyn Snapshot, journal: u32) -> Result<Vec<Op>, EngineError> {
        let mut ops = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.is_written()) {
            let (Some(before), Some(after)) = (&slot.before, &slot.after) else { continue };
            let key = keys::journal(slot.logical_partition.container.number, journal, slot.rid);
            if snapshot.get(CATALOG, &key)?.is_some() {
                continue;
            }
            let changes = differences(&before.node()?.to_value(), &after.body.item.root().to_value());
            ops.extend((!changes.is_empty()).then(|| put(key, &changes)));
        }
        Ok(ops)
    }
}

/// The smallest places at which two items differ.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<PlaceChange> {
    let mut found = Vec::new();
    compare(Some(before), Some(after), &mut Vec::new(), &mut found);
    found
}

fn compare(before: Option<&Value>, after: Option<&Value>, at: &mut Vec<Value>, found: &mut Vec<PlaceChange>) {
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.names().filter(|name| !old.contains(name));
            for name in old.names().chain(added) {
                at.push(Value::from(name));
                compare(old.get(name), new.get(name), at, found);
                at.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (position, (old, new)) in old.iter().zip(new).enumerate() {
                at.push(Value::from(position as u64));
                compare(Some(old), Some(new), at, found);
                at.pop();
            }
        }
        _ if before == after => {}
        _ => found.push(PlaceChange { at: at.clone(), before: before.cloned(), after: after.cloned() }),
    }
}

impl PlaceChange {
    /// Puts the place back as it was, if it is as the change left it.
    pub fn restore(&self, item: &mut Value) -> RestoreOutcome {
        let Some((last, above)) = self.at.split_last() else { return RestoreOutcome::Conflict };
        let Some(parent) = above.iter().try_fold(item, |value, step| member(value, step)) else {
            return RestoreOutcome::Conflict;
        };
        let found = member(parent, last).cloned();
        if found == self.before {
            return RestoreOutcome::Already;
        }
        if found != self.after {
            return RestoreOutcome::Conflict;
        }
        match (parent, &self.before, last) {
            (Value::Object(object), Some(before), Value::String(name)) => {
                object.set(name.as_str(), before.clone())
            }
            (Value::Object(object), None, Value::String(name)) => drop(object.remove(name)),
            (parent, Some(before), last) => match member(parent, last) {
                Some(place) => *place = before.clone(),
                None => return RestoreOutcome::Conflict,
            },
            _ => return RestoreOutcome::Conflict,
        }
        RestoreOutcome::Done
    }

    /// As clients write it.
    pub fn path(&self) -> String {
        let step = |step: &Value| match step {
            Value::String(name) => name.replace('~', "~0").replace('/', "~1"),
            position => position.to_json(),
        };
        self.at.iter().map(|own| format!("/{}", step(own))).collect()
    }

    fn to_json(&self) -> Value {
        let mut json = Object::from_iter([("at", Value::Array(self.at.clone()))]);
        let members = [("before", &self.before), ("after", &self.after)];
        members
            .into_iter()
            .for_each(|(name, value)| value.iter().for_each(|value| json.set(name, value.clone())));
        Value::Object(json)
    }

    fn from_json(json: &Value) -> Option<PlaceChange> {
        let (before, after) = (json.get("before").cloned(), json.get("after").cloned());
        Some(PlaceChange { at: json.get("at")?.as_array()?.to_vec(), before, after })
    }
}

fn member<'v>(value: &'v mut Value, step: &Value) -> Option<&'v mut Value> {
    match (value, step) {
        (Value::Object(object), Value::String(name)) => object.get_mut(name),
        (Value::Array(elements), position) => elements.get_mut(usize::try_from(position.as_u64()?).ok()?),
        _ => None,
    }
}

fn put(key: Vec<u8>, changes: &[PlaceChange]) -> Op {
    let json = changes.iter().map(PlaceChange::to_json).collect::<Value>();
    let mut rest = Vec::new();
    sealed::write_text(json.to_json().as_bytes(), &mut rest);
    let value = sealed::seal(&key, &rest);
    Op::Put { space: CATALOG, key, value }
}

pub(crate) fn read(key: &[u8], row: &[u8]) -> Result<Vec<PlaceChange>, EngineError> {
    let text = sealed::open(key, row)?.string()?;
    let json = text::parse(text.as_bytes(), LIMITS).map_err(|_| corrupt("JSON of a journal"))?;
    let changes = json.as_array().unwrap_or_default().iter().map(PlaceChange::from_json);
    changes.collect::<Option<_>>().ok_or_else(|| corrupt("journal of an item"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        text::parse(text.as_bytes(), Limits::default()).expect("JSON")
    }

    #[test]
    fn what_changed_is_put_back() {
        for (before, after, places) in [
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":3}"#, &["/b"][..]),
            (r#"{"l":[{"n":"x"},{"n":"y"}]}"#, r#"{"l":[{"n":"x"},{"n":"z","m":1}]}"#, &["/l/1/n", "/l/1/m"]),
            (r#"{"a":{"b/c":1},"d":2}"#, r#"{"a":{}}"#, &["/a/b~1c", "/d"]),
            (r#"{"l":[1,2]}"#, r#"{"l":[1,2,3]}"#, &["/l"]),
            (r#"{"a":1}"#, r#"{"a":1}"#, &[]),
        ] {
            let changes = differences(&json(before), &json(after));
            let found: Vec<String> = changes.iter().map(PlaceChange::path).collect();
            assert_eq!(found, places, "{before} {after}");
            let key = keys::journal(1, journal_of_job(7), 3);
            let Op::Put { value, .. } = put(key.clone(), &changes) else { panic!("a row") };
            assert_eq!(read(&key, &value).expect("a journal"), changes);
            let mut item = json(after);
            for change in &changes {
                assert_eq!(change.restore(&mut item), RestoreOutcome::Done, "{after}");
                assert_eq!(change.restore(&mut item), RestoreOutcome::Already, "{after}");
            }
            assert_eq!(item, json(before));
        }
    }

    #[test]
    fn what_a_client_changed_since_is_a_conflict() {
        let changes = differences(&json(r#"{"l":[{"n":"x"}]}"#), &json(r#"{"l":[{"n":"y"}]}"#));
        for since in [r#"{"l":[{"n":"z"}]}"#, r#"{"l":[{}]}"#, r#"{"l":[]}"#, "{}", r#"{"l":7}"#] {
            let mut item = json(since);
            assert_eq!(changes[0].restore(&mut item), RestoreOutcome::Conflict, "{since}");
            assert_eq!(item, json(since));
        }
    }
}
