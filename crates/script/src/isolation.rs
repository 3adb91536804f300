//! Where procedures and triggers run. User-defined functions always run in this process, with small limits.

use std::path::PathBuf;

use quire_value::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// On the caller's thread. A few built-ins of the engine outlast the deadline, and a fault of it ends this process.
    #[default]
    InProcess,
    /// In worker processes that can be killed: this program with these arguments must call [`serve`](crate::serve).
    Process { program: PathBuf, arguments: Vec<String> },
}

/// What `__.spatial` calls; geometry itself is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialFunction {
    Distance,
    Intersects,
    Within,
    IsValid,
    IsValidDetailed,
}

/// Gives the value of a function for one or two GeoJSON objects, as the query language would; `None` for undefined. The
/// flag asks for plane geometry.
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
