//! The environment of a run: the time, a seed for RAND, and the allowance.

use quire_resource::GeospatialType;

use crate::limits::Allowance;

/// Given with [`Query::with_environment`](crate::query::Query::with_environment).
#[derive(Clone, Debug)]
pub struct Environment {
    /// 100-nanosecond ticks since 1970. Without it, a query that reads the time is refused.
    pub now_ticks: Option<i64>,
    pub random_seed: u64,
    /// How spatial functions read coordinates: `geospatialConfig` of the container.
    pub geospatial: GeospatialType,
    /// Step and memory limits of the runs.
    pub allowance: Allowance,
}

impl Environment {
    /// The default, but for the allowance.
    pub fn within(allowance: Allowance) -> Environment {
        Environment {
            now_ticks: None,
            random_seed: 0x9E37_79B9_7F4A_7C15,
            geospatial: GeospatialType::default(),
            allowance,
        }
    }
}

impl Default for Environment {
    fn default() -> Environment {
        Environment::within(Allowance::default())
    }
}
