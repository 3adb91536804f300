//! Spatial functions over GeoJSON, see [`crate::geo`]. An argument that is not a valid geometry gives undefined.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use quire_value::{Object, Value};

use crate::geo::{Geometry, Invalid, Spend};

use super::{Call, Function, IndexUse, exactly, f};

pub(super) const FUNCTIONS: &[Function] = &[
    f(&["ST_DISTANCE"], exactly(2), distance, IndexUse::Spatial),
    f(&["ST_WITHIN"], exactly(2), within, IndexUse::Spatial),
    f(&["ST_INTERSECTS"], exactly(2), intersects, IndexUse::Spatial),
    f(&["ST_AREA"], exactly(1), area, IndexUse::None),
    f(&["ST_ISVALID"], exactly(1), is_valid, IndexUse::None),
    f(&["ST_ISVALIDDETAILED"], exactly(1), is_valid_detailed, IndexUse::None),
];

fn distance(call: &Call<'_>) -> Option<Value> {
    two(call, Geometry::distance).map(Value::from)
}

fn within(call: &Call<'_>) -> Option<Value> {
    two(call, Geometry::within).map(Value::from)
}

fn intersects(call: &Call<'_>) -> Option<Value> {
    two(call, Geometry::intersects).map(Value::from)
}

fn area(call: &Call<'_>) -> Option<Value> {
    match &*parsed(call, 0)? {
        Ok(geometry) => geometry.area(&|bytes| call.spend_bytes(bytes)).map(Value::from),
        Err(_) => None,
    }
}

fn is_valid(call: &Call<'_>) -> Option<Value> {
    Some(Value::Bool(parsed(call, 0)?.is_ok()))
}

fn is_valid_detailed(call: &Call<'_>) -> Option<Value> {
    let mut answer = Object::with_capacity(2);
    match parsed(call, 0)?.as_ref() {
        Ok(_) => answer.set("valid", true),
        Err(invalid) => {
            answer.set("valid", false);
            answer.set("reason", invalid.to_string());
        }
    };
    Some(Value::Object(answer))
}

/// Two valid geometries.
fn two<T>(call: &Call<'_>, relate: impl Fn(&Geometry, &Geometry, Spend<'_>) -> Option<T>) -> Option<T> {
    let (left, right) = (parsed(call, 0)?, parsed(call, 1)?);
    let (Ok(left), Ok(right)) = (&*left, &*right) else { return None };
    relate(left, right, &|bytes| call.spend_bytes(bytes))
}

type Parsed = Rc<Result<Geometry, Invalid>>;

fn parsed(call: &Call<'_>, index: usize) -> Option<Parsed> {
    let value = call.value(index)?;
    let kind = call.context.geospatial;
    let parse = || Some(Rc::new(Geometry::parse(value, kind, &|bytes| call.spend_bytes(bytes))?));
    if is_small(value) {
        return parse();
    }
    let bytes = crate::data::approximate_size(value);
    call.copy_bytes(bytes)?;
    call.context.geometries.get(call, value, bytes, parse)
}

/// Whether parsing is cheaper than a lookup.
fn is_small(value: &Value) -> bool {
    let coordinates =
        value.as_object().and_then(|object| object.get("coordinates")).and_then(Value::as_array);
    coordinates.is_none_or(|positions| !positions.iter().any(|position| position.as_array().is_some()))
}

/// Geometries that are cached from one item to the next.
const GEOMETRIES_MAX: usize = 8;
/// Hashes of values that are remembered, to detect that a value comes again.
const HASHES_MAX: usize = 32;

/// A cache of large constants of a query, parsed once per run. A value is cached when it comes the second time:
/// values of items seldom repeat.
#[derive(Default)]
pub(crate) struct GeometryCache(RefCell<CachedGeometries>);

#[derive(Default)]
struct CachedGeometries {
    cached: VecDeque<CachedGeometry>,
    hashes: VecDeque<u64>,
}

struct CachedGeometry {
    hash: u64,
    value: Value,
    parsed: Parsed,
    /// Size of the value and of its parsed form.
    bytes: usize,
}

impl GeometryCache {
    fn get(
        &self,
        call: &Call<'_>,
        value: &Value,
        bytes: usize,
        parse: impl FnOnce() -> Option<Parsed>,
    ) -> Option<Parsed> {
        let hash = hash(value);
        if let Some(parsed) = self.0.borrow().find(hash, value) {
            return Some(parsed);
        }
        let parsed = parse()?;
        self.0.borrow_mut().cache_geometry(call, hash, value, 2 * bytes, &parsed)?;
        Some(parsed)
    }
}

impl CachedGeometries {
    fn find(&self, hash: u64, value: &Value) -> Option<Parsed> {
        let mut cached = self.cached.iter();
        cached
            .find(|cached| cached.hash == hash && cached.value == *value)
            .map(|cached| Rc::clone(&cached.parsed))
    }

    fn cache_geometry(
        &mut self,
        call: &Call<'_>,
        hash: u64,
        value: &Value,
        bytes: usize,
        parsed: &Parsed,
    ) -> Option<()> {
        if !self.hashes.contains(&hash) {
            self.hashes.truncate(HASHES_MAX - 1);
            self.hashes.push_front(hash);
            return Some(());
        }
        let meter = &call.context.meter;
        let last = if self.cached.len() == GEOMETRIES_MAX { self.cached.pop_back() } else { None };
        last.into_iter().for_each(|last| meter.release(last.bytes));
        call.record_failure(meter.retain_bytes(bytes))?;
        self.cached.push_front(CachedGeometry {
            hash,
            value: value.clone(),
            parsed: Rc::clone(parsed),
            bytes,
        });
        Some(())
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use quire_resource::GeospatialType;
    use quire_value::Value;

    use crate::bind::Parameters;
    use crate::error::SqlError;
    use crate::exec::Environment;
    use crate::limits::Allowance;
    use crate::query::Query;

    fn rows(text: &str, environment: Environment) -> Result<Vec<Value>, SqlError> {
        Query::compile(text, &Parameters::default(), &[])?.with_environment(environment).rows([])
    }

    /// Also for constants: they must not be computed before the container is known.
    #[test]
    fn a_container_of_geometry_is_flat() {
        let environment = Environment { geospatial: GeospatialType::Geometry, ..Environment::default() };
        let text = r#"SELECT VALUE [
            ST_DISTANCE({"type": "Point", "coordinates": [0, 0]}, {"type": "Point", "coordinates": [300, 400]}),
            ST_AREA({"type": "Polygon", "coordinates": [[[0, 0], [0, 10], [20, 10], [20, 0], [0, 0]]]}),
            ST_ISVALID({"type": "Point", "coordinates": [1e76, 0]})]"#;
        let expected: Value = [Value::from(500), Value::from(200), Value::Bool(false)].into_iter().collect();
        assert_eq!(rows(text, environment), Ok(vec![expected]));
    }

    #[test]
    fn a_large_line_costs() {
        let positions: Vec<String> =
            (0..20_000).map(|index| format!("[{},{}]", index % 180, index % 90)).collect();
        let text = format!(
            r#"SELECT VALUE ST_AREA({{"type": "LineString", "coordinates": [{}]}})"#,
            positions.join(",")
        );
        assert_eq!(rows(&text, Environment::default()), Ok(vec![Value::from(0)]));
        let allowance = Allowance::default().with_item_steps(50_000);
        let refused = rows(&text, Environment { allowance, ..Environment::default() });
        assert!(matches!(refused, Err(SqlError::Budget { .. })), "{refused:?}");
    }
}
