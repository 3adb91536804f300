//! Where procedures and triggers run. User-defined functions always run in this process, with small limits.

use std::path::PathBuf;

use quire_value::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// On the caller's thread. A few built-ins of the engine exceed the deadline, and a crash of the engine ends this
    /// process.
    #[default]
    InProcess,
    /// In worker processes that can be killed: this program with these arguments must call [`serve`](crate::serve).
    Process { program: PathBuf, arguments: Vec<String> },
}

/// The functions of `__.spatial`; they are implemented elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialFunction {
    Distance,
    Intersects,
    Within,
    IsValid,
    IsValidDetailed,
}

/// The value of a function for one or two GeoJSON objects, as in the query language; `None` for undefined. The flag
/// selects planar geometry.
pub type Spatial = fn(SpatialFunction, &[Value], bool) -> Option<Value>;

impl SpatialFunction {
    pub(crate) fn named(name: &str) -> Option<SpatialFunction> {
        Some(match name {
            "distance" => SpatialFunction::Distance,
            "intersects" => SpatialFunction::Intersects,
            "within" => SpatialFunction::Within,
            "isValid" => SpatialFunction::IsValid,
            "isValidDetailed" => SpatialFunction::IsValidDetailed,
            _ => return None,
        })
    }
}
