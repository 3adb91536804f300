//! What a user who starts a server by hand wants to copy. Shown on a terminal only; the start page shows the same in a browser.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use quire_server::{Keys, WELL_KNOWN_KEY};

use crate::config::Config;

#[derive(Clone)]
pub struct Banner {
    https: bool,
    public_endpoint: Option<String>,
    key: ShownKey,
}

#[derive(Clone)]
enum ShownKey {
    /// Everybody knows it.
    WellKnown,
    /// Secrets are not shown: a user who may read the file can ask for the connection string.
    File(PathBuf),
    Secret,
}

impl Banner {
    pub fn new(config: &Config, keys: &Keys) -> Banner {
        let key = match &config.key_file {
            _ if keys.has_well_known() => ShownKey::WellKnown,
            Some(file) => ShownKey::File(file.clone()),
            None => ShownKey::Secret,
        };
        Banner {
            https: config.tls_only || config.emulator.is_some(),
            public_endpoint: config.public_endpoint.clone(),
            key,
        }
    }

    pub fn text(&self, address: SocketAddr) -> String {
        let endpoint = self.endpoint(address);
        let mut text = format!("  endpoint           {endpoint}\n");
        text += &match &self.key {
            ShownKey::WellKnown => {
                format!("  connection string  {}\n", connection_string(&endpoint, WELL_KNOWN_KEY))
            }
            ShownKey::File(file) => {
                let file = file.display();
                format!("  connection string  quire connect --endpoint {endpoint} --key-file {file}\n")
            }
            ShownKey::Secret => format!("  connection string  quire connect --endpoint {endpoint}\n"),
        };
        text += &format!("  in a browser       {endpoint}_explorer/\n");
        if self.https {
            text += &format!("  certificate        {endpoint}_explorer/emulator.pem\n");
        }
        text
    }

    /// The key, if everybody knows it.
    pub fn public_key(&self) -> Option<&'static str> {
        matches!(self.key, ShownKey::WellKnown).then_some(WELL_KNOWN_KEY)
    }

    fn endpoint(&self, address: SocketAddr) -> String {
        let host = match address.ip() {
            ip if ip.is_unspecified() || ip.is_loopback() => "localhost".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let scheme = if self.https { "https" } else { "http" };
        self.public_endpoint.clone().unwrap_or_else(|| format!("{scheme}://{host}:{}/", address.port()))
    }
}

/// As the SDKs take it.
pub fn connection_string(endpoint: &str, key: &str) -> String {
    format!("AccountEndpoint={endpoint};AccountKey={key};")
}
