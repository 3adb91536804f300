//! A profile without what was recorded: as JSON, in the form in which profiles are stored.

use quire_value::{Object, Value};

/// Takes out all that was made of recorded requests. What is left is what the same items give without any.
pub fn remove_recorded_part(profile: &mut Value) {
    let Some(profile) = profile.as_object_mut() else { return };
    let nothing = || Value::Array(Vec::new());
    for (member, without) in [
        ("recorded", recorded()),
        ("change", change()),
        ("operations", Value::Object(Object::new())),
        ("shapes", nothing()),
        ("sequences", nothing()),
        ("hotKeys", nothing()),
        ("hotItems", nothing()),
    ] {
        profile.set(member, without);
    }
    change_each(profile, "paths", |path| path.set("used", nothing()));
    change_each(profile, "arrays", |array| drop(array.remove("growth")));
}

fn recorded() -> Value {
    let mut recorded = Object::new();
    recorded.set("from", Value::Null);
    recorded.set("to", Value::Null);
    recorded.set("days", 0);
    recorded.set("operations", 0);
    Value::Object(recorded)
}

fn change() -> Value {
    let mut change = Object::new();
    change.set("writes", 0);
    change.set("paths", Value::Array(Vec::new()));
    Value::Object(change)
}

fn change_each(profile: &mut Object, member: &str, change: impl Fn(&mut Object)) {
    let Some(Value::Array(mut all)) = profile.get(member).cloned() else { return };
    all.iter_mut().filter_map(Value::as_object_mut).for_each(change);
    profile.set(member, Value::Array(all));
}
