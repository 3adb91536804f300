//! What all requests share.

use std::sync::Arc;

use quire_engine::Engine;

use crate::config::ServerConfig;
use crate::pool::Pool;

pub(crate) struct State {
    pub engine: Arc<Engine>,
    pub config: ServerConfig,
    pub pool: Pool,
}
