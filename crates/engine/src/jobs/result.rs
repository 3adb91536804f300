//! Results of jobs, which are kept with them: of a result that is too large the lists of examples are cut.

use quire_value::Value;

use super::row::{JobHold, JobOutcome};

/// Bytes of a result as JSON.
const BYTES_MAX: usize = 1 << 20;
/// Members with lists of examples, of which any number may be left out.
const LISTS: [&str; 3] = ["examples", "conflicts", "failed"];
/// Elements of each list that stay, as many as fit.
const KEPT: [usize; 5] = [300, 100, 10, 1, 0];
/// In a result of which something was left out.
const LEFT_OUT: &str = "examplesLeftOut";

impl JobOutcome {
    pub(super) fn bounded(self) -> JobOutcome {
        match self {
            JobOutcome::Done(result) => JobOutcome::Done(bounded(result)),
            JobOutcome::Failed { error, result } => JobOutcome::Failed { error, result: bounded(result) },
            JobOutcome::Cancelled => JobOutcome::Cancelled,
        }
    }
}

impl JobHold {
    pub(super) fn bounded(self) -> JobHold {
        match self {
            JobHold::Blocked { error, result } => JobHold::Blocked { error, result: bounded(result) },
            hold => hold,
        }
    }
}

/// A result that is too large although it has no examples stays as it is.
fn bounded(mut result: Value) -> Value {
    for kept in KEPT {
        if result.to_json().len() <= BYTES_MAX {
            break;
        }
        if let (true, Some(members)) = (cut_lists(&mut result, kept), result.as_object_mut()) {
            members.set(LEFT_OUT, true);
        }
    }
    result
}

/// Whether anything was left out.
fn cut_lists(value: &mut Value, kept: usize) -> bool {
    let mut is_cut = false;
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| is_cut |= cut_lists(element, kept)),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                if let (true, Value::Array(list)) = (LISTS.contains(&name), &mut *value) {
                    is_cut |= list.len() > kept;
                    list.truncate(kept);
                }
                is_cut |= cut_lists(value, kept);
            }
        }
        _ => {}
    }
    is_cut
}

#[cfg(test)]
mod tests {
    use quire_value::Object;

    use super::*;

    #[test]
    fn a_large_result_loses_examples() {
        let example = |n: usize| Value::from(n.to_string().repeat(10_000));
        let examples = || (0..60).map(example).collect::<Value>();
        let finding =
            Value::Object(Object::from_iter([("count", Value::from(60)), ("examples", examples())]));
        let result =
            Value::Object(Object::from_iter([("findings", Value::Array(vec![finding.clone(), finding]))]));
        assert!(result.to_json().len() > BYTES_MAX);
        let cut = bounded(result.clone());
        let finding = &cut.get("findings").and_then(Value::as_array).expect("there")[1];
        assert_eq!(finding.get("examples").and_then(Value::as_array).expect("there").len(), 10);
        assert_eq!(
            (finding.get("count"), cut.get(LEFT_OUT)),
            (Some(&Value::from(60)), Some(&Value::from(true)))
        );
        assert_eq!(bounded(cut.clone()), cut, "small enough");
        let other = Value::from("x".repeat(2 * BYTES_MAX));
        assert_eq!(bounded(other.clone()), other);
    }
}
