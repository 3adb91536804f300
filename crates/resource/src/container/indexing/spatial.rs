//! Spatial indexes.

use quire_value::{Object, Path, Value};

use crate::members::{self, wrong};
use crate::policy_path::{self, BadPath, PolicyPath};

use super::{ContainerError, bad_path};

#[derive(Clone, Debug, PartialEq)]
pub struct SpatialIndex {
    pub path: Path,
    pub types: Vec<SpatialType>,
    pub bounding_box: Option<BoundingBox>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialType {
    Point,
    LineString,
    Polygon,
    MultiPolygon,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundingBox {
    pub xmin: f64,
    pub ymin: f64,
    pub xmax: f64,
    pub ymax: f64,
}

pub(super) fn read(entry: &Object) -> Result<SpatialIndex, ContainerError> {
    const PARENT: &str = "indexingPolicy.spatialIndexes";
    let text = members::string(entry, PARENT, "path")?;
    let path = match policy_path::parse_any(text).map_err(|bad| bad_path(text, bad))? {
        PolicyPath::Plain(path) => path,
        PolicyPath::Tuple { .. } => return Err(bad_path(text, BadPath { position: 0 })),
    };
    let types = members::array(entry, PARENT, "types")?;
    let types = types.iter().map(read_type).collect::<Result<Vec<_>, _>>()?;
    Ok(SpatialIndex {
        path,
        types: if types.is_empty() { SpatialType::ALL.to_vec() } else { types },
        bounding_box: members::present(entry, "boundingBox").map(read_bounding_box).transpose()?,
    })
}

fn read_type(value: &Value) -> Result<SpatialType, ContainerError> {
    let found = SpatialType::ALL.into_iter().find(|one| value.as_str() == Some(one.name()));
    found.ok_or_else(|| {
        wrong(
            "indexingPolicy.spatialIndexes.types",
            "an array of 'Point', 'LineString', 'Polygon' or 'MultiPolygon'",
        )
    })
}

impl SpatialType {
    const ALL: [SpatialType; 4] =
        [SpatialType::Point, SpatialType::LineString, SpatialType::Polygon, SpatialType::MultiPolygon];

    fn name(self) -> &'static str {
        match self {
            SpatialType::Point => "Point",
            SpatialType::LineString => "LineString",
            SpatialType::Polygon => "Polygon",
            SpatialType::MultiPolygon => "MultiPolygon",
        }
    }
}

fn read_bounding_box(value: &Value) -> Result<BoundingBox, ContainerError> {
    const MEMBER: &str = "indexingPolicy.spatialIndexes.boundingBox";
    let given = members::as_object(value, MEMBER)?;
    let side = |name: &str| {
        let number = members::present(given, name).and_then(Value::as_number);
        number.map(quire_value::Number::as_f64).ok_or_else(|| wrong(&format!("{MEMBER}.{name}"), "a number"))
    };
    let sides =
        BoundingBox { xmin: side("xmin")?, ymin: side("ymin")?, xmax: side("xmax")?, ymax: side("ymax")? };
    if sides.xmin >= sides.xmax || sides.ymin >= sides.ymax {
        return Err(wrong(MEMBER, "a box whose minimum is below its maximum"));
    }
    Ok(sides)
}

/// The types are always written.
pub(super) fn write(given: &[Value], indexes: &[SpatialIndex]) -> Vec<Value> {
    let write = |(given, index): (&Value, &SpatialIndex)| {
        let mut entry = given.as_object().cloned().unwrap_or_default();
        let types = index.types.iter().map(|one| Value::from(one.name()));
        entry.set("types", types.collect::<Vec<_>>());
        Value::from(entry)
    };
    given.iter().zip(indexes).map(write).collect()
}
