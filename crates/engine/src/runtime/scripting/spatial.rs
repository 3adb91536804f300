//! What `__.spatial` of a script calls: the same geometry as in queries.

use std::cell::Cell;

use quire_resource::GeospatialType;
use quire_script::SpatialFunction;
use quire_sql::geo::{Geometry, Spend};
use quire_value::{Object, Value};

/// Work of one call: a script cannot be interrupted in it.
const WORK_BYTES_MAX: usize = 256 << 20;

/// The value of a function, as queries compute it; `None` for undefined.
pub(crate) fn evaluate(function: SpatialFunction, arguments: &[Value], planar: bool) -> Option<Value> {
    let left = Cell::new(WORK_BYTES_MAX);
    let spend = |bytes: usize| left.get().checked_sub(bytes).map(|rest| left.set(rest));
    let kind = if planar { GeospatialType::Geometry } else { GeospatialType::Geography };
    let first = Geometry::parse(arguments.first()?, kind, &spend)?;
    match function {
        SpatialFunction::IsValid => return Some(Value::Bool(first.is_ok())),
        SpatialFunction::IsValidDetailed => {
            let mut answer = Object::new();
            answer.set("valid", first.is_ok());
            if let Err(invalid) = first {
                answer.set("reason", invalid.to_string());
            }
            return Some(Value::Object(answer));
        }
        _ => {}
    }
    let (one, other) = (first.ok()?, Geometry::parse(arguments.get(1)?, kind, &spend)?.ok()?);
    relate(function, &one, &other, &spend)
}

fn relate(function: SpatialFunction, one: &Geometry, other: &Geometry, spend: Spend<'_>) -> Option<Value> {
    Some(match function {
        SpatialFunction::Distance => Value::from(one.distance(other, spend)?),
        SpatialFunction::Within => Value::Bool(one.within(other, spend)?),
        _ => Value::Bool(one.intersects(other, spend)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Value {
        let mut point = Object::new();
        point.set("type", "Point");
        point.set("coordinates", Value::Array(vec![x.into(), y.into()]));
        Value::Object(point)
    }

    #[test]
    fn as_in_queries() {
        let (one, other) = (point(0.0, 0.0), point(3.0, 4.0));
        let call = |function, arguments: &[Value]| evaluate(function, arguments, true);
        assert_eq!(call(SpatialFunction::Distance, &[one.clone(), other.clone()]), Some(Value::from(5.0)));
        assert_eq!(call(SpatialFunction::Within, &[one.clone(), other.clone()]), Some(Value::Bool(false)));
        assert_eq!(call(SpatialFunction::Intersects, &[one.clone(), one.clone()]), Some(Value::Bool(true)));
        assert_eq!(call(SpatialFunction::IsValid, &[Value::Null]), Some(Value::Bool(false)));
        assert_eq!(call(SpatialFunction::Distance, &[Value::Null, other.clone()]), None);
        let metres = evaluate(SpatialFunction::Distance, &[one, other], false);
        assert!(
            matches!(&metres, Some(Value::Number(metres)) if metres.as_f64().round() == 554_059.0),
            "{metres:?}"
        );
        let detailed = call(SpatialFunction::IsValidDetailed, &[point(0.0, f64::NAN)]);
        assert!(
            detailed.is_some_and(|detailed| detailed.to_json().starts_with(r#"{"valid":false,"reason":"#))
        );
    }
}
