//! `/addresses`: where clients in direct mode look for replicas. There are none.

use crate::handlers::{Call, HandlerResult};
use crate::wire::status::RequestError;

pub(crate) fn read(_call: &Call<'_>) -> HandlerResult {
    let message =
        "Direct mode is not supported by this version of Quire: use ConnectionMode.Gateway (.NET) or gatewayMode() (Java).".to_owned();
    Err(RequestError::BadRequest { message }.into())
}
