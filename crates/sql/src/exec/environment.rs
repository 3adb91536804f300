//! What a run of a query needs from outside: the time, a seed for RAND, and what it may use.

use quire_resource::GeospatialType;

use crate::limits::Allowance;

/// Given with [`Query::with_environment`](crate::query::Query::with_environment).
#[derive(Clone, Debug)]
pub struct Environment {
    /// 100-nanosecond ticks since 1970; a query that asks for the time is refused without.
    pub now_ticks: Option<i64>,
    pub random_seed: u64,
    /// How spatial functions read coordinates: `geospatialConfig` of the container.
    pub geospatial: GeospatialType,
    /// Steps and memory of the runs.
    pub allowance: Allowance,
}

impl Default for Environment {
    fn default() -> Environment {
        Environment {
            now_ticks: None,
            random_seed: 0x9E37_79B9_7F4A_7C15,
            geospatial: GeospatialType::default(),
            allowance: Allowance::default(),
        }
    }
}
