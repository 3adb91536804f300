//! Provisioned throughput: manual or autoscale.

use quire_value::{Object, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    Manual(u32),
    Autoscale { max: u32, increment_percent: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ThroughputError {
    pub message: String,
}

impl Throughput {
    /// From `x-ms-offer-throughput` and `x-ms-cosmos-offer-autopilot-settings` (both present is an error; neither is `None`).
    pub fn from_headers(_manual: Option<&str>, _autoscale: Option<&str>) -> Result<Option<Throughput>, ThroughputError> {
        todo!()
    }
    /// From the `content` of an offer that a client replaces.
    pub fn from_offer_content(_content: &Value) -> Result<Throughput, ThroughputError> {
        todo!()
    }
    /// The offer's `content` object.
    pub fn to_offer_content(&self, _highest_ever: u32, _replaced_at: i64) -> Object {
        todo!()
    }
    /// RU/s that the partition count follows (autoscale: its maximum).
    pub fn maximum(&self) -> u32 {
        match *self {
            Throughput::Manual(value) => value,
            Throughput::Autoscale { max, .. } => max,
        }
    }
    /// Smallest value the service accepts for this offer, as `x-ms-cosmos-min-throughput` reports it.
    pub fn minimum(&self, _highest_ever: u32) -> u32 {
        todo!()
    }
}
