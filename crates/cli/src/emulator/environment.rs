//! Environment variables of the service's emulators that mean something here.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, bail};

use crate::config::Settings;

/// What the emulators' names start with.
const PREFIX: &str = "AZURE_COSMOS_EMULATOR_";
/// Read by clients, not by emulators.
const OF_CLIENTS: [&str; 2] =
    ["AZURE_COSMOS_EMULATOR_HOST", "AZURE_COSMOS_EMULATOR_SERVER_CERT_VALIDATION_DISABLED"];
/// Known to the emulators, with the reason why they change nothing here.
const WITHOUT_EFFECT: [(&str, &str); 9] = [
    (
        "AZURE_COSMOS_EMULATOR_PARTITION_COUNT",
        "partitions follow the throughput of a container, see --partitions",
    ),
    ("CERT_PATH", "a certificate is given by --tls-cert and --tls-key, PEM"),
    ("CERT_SECRET", "a certificate is given by --tls-cert and --tls-key, PEM"),
    ("ENABLE_EXPLORER", "there is no explorer"),
    ("EXPLORER_PORT", "there is no explorer"),
    ("EXPLORER_PROTOCOL", "there is no explorer"),
    ("ENABLE_OTLP_EXPORTER", "metrics are at /_quire/metrics"),
    ("ENABLE_CONSOLE_EXPORTER", "metrics are at /_quire/metrics"),
    ("ENABLE_INIT_DATA", "data to begin with is given by --seed"),
];

/// What was found.
#[derive(Default)]
pub struct Variables {
    /// Settings that count where nothing else says anything.
    pub settings: Settings,
    /// Names of the certificate.
    pub names: Vec<String>,
    /// What has no effect, and why.
    pub notes: Vec<String>,
}

pub fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Variables> {
    let mut found = Variables::default();
    for (name, value) in variables {
        if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string())
            && !value.is_empty()
        {
            found.take(&name, &value)?;
        }
    }
    if found.settings.ephemeral == Some(true) {
        // Nothing is kept: not there either.
        found.settings.data = None;
    }
    found.notes.sort();
    Ok(found)
}

impl Variables {
    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        let settings = &mut self.settings;
        match name {
            "PORT" => {
                let Ok(port) = value.parse() else { bail!("PORT is {value:?}, which is no port") };
                settings.listen = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
            }
            "DATA_PATH" => settings.data = Some(value.into()),
            "KEY_FILE" => settings.key_file = Some(value.into()),
            "LOG_LEVEL" => settings.log = Some(log_filter(value)?.to_owned()),
            "PROTOCOL" => check_protocol(value)?,
            "AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE" => settings.ephemeral = Some(!flag(name, value)?),
            "AZURE_COSMOS_EMULATOR_IP_ADDRESS_OVERRIDE" | "GATEWAY_PUBLIC_ENDPOINT" => {
                self.names.push(host(value).to_owned());
            }
            _ => self.add_ignored(name),
        }
        Ok(())
    }

    fn add_ignored(&mut self, name: &str) {
        let reason = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason);
        let unknown = name.starts_with(PREFIX) && !OF_CLIENTS.contains(&name);
        let reason = reason.or(unknown.then_some("it is not known here"));
        if let Some(reason) = reason {
            self.notes.push(format!("the environment variable {name} has no effect: {reason}"));
        }
    }
}

/// Both are served, whichever is asked for.
fn check_protocol(value: &str) -> Result<()> {
    match value {
        "http" | "https" | "https-insecure" => Ok(()),
        _ => bail!("PROTOCOL is {value:?}; it can be http, https or https-insecure, and both are served"),
    }
}

fn log_filter(level: &str) -> Result<&'static str> {
    Ok(match level.to_ascii_lowercase().as_str() {
        "quiet" => "off",
        "error" => "error",
        "warn" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => bail!("LOG_LEVEL is {level:?}; it can be quiet, error, warn, info, debug or trace"),
    })
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => bail!("{name} is {value:?}; it can be true or false"),
    }
}

/// Of a URL, of `host:port` or of a bare host.
fn host(text: &str) -> &str {
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match authority.split_once(':') {
        // More than one colon: an address of IPv6.
        Some((host, port)) if !port.contains(':') => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Variables> {
        read(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn known_variables_become_settings() {
        let found = of(&[
            ("PORT", "9000"),
            ("DATA_PATH", "/data"),
            ("LOG_LEVEL", "Quiet"),
            ("PROTOCOL", "https"),
            ("GATEWAY_PUBLIC_ENDPOINT", "http://db.test:8081/"),
            ("AZURE_COSMOS_EMULATOR_IP_ADDRESS_OVERRIDE", "10.0.0.7"),
            ("KEY_FILE", ""),
            ("HOME", "/home/ada"),
        ])
        .unwrap();
        assert_eq!(
            found.settings.listen.map(|address| address.to_string()).as_deref(),
            Some("127.0.0.1:9000")
        );
        assert_eq!(found.settings.data.as_deref(), Some("/data".as_ref()));
        assert_eq!(found.settings.log.as_deref(), Some("off"));
        assert_eq!(found.settings.key_file, None);
        assert_eq!(found.names, ["db.test", "10.0.0.7"]);
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let kept = |value| of(&[("AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE", value)]);
        assert_eq!(kept("false").unwrap().settings.ephemeral, Some(true));
        assert_eq!(kept("True").unwrap().settings.ephemeral, Some(false));
        assert!(kept("maybe").is_err());
    }

    #[test]
    fn unknown_variables_are_named() {
        let found = of(&[
            ("AZURE_COSMOS_EMULATOR_PARTITION_COUNT", "10"),
            ("AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT", "4.0"),
            ("AZURE_COSMOS_EMULATOR_HOST", "localhost"),
            ("CERT_PATH", "/cert.pfx"),
        ])
        .unwrap();
        let named: Vec<&str> = found.notes.iter().filter_map(|note| note.split(' ').nth(3)).collect();
        assert_eq!(
            named,
            [
                "AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT",
                "AZURE_COSMOS_EMULATOR_PARTITION_COUNT",
                "CERT_PATH"
            ]
        );
        for bad in [("PORT", "eighty"), ("PROTOCOL", "gopher"), ("LOG_LEVEL", "loud")] {
            assert!(of(&[bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_are_taken_out_of_urls() {
        for (text, expected) in [
            ("db.test", "db.test"),
            ("db.test:8081", "db.test"),
            ("https://db.test:8081/x", "db.test"),
            ("[::1]:8081", "::1"),
            ("fe80::1", "fe80::1"),
            ("10.0.0.7", "10.0.0.7"),
        ] {
            assert_eq!(host(text), expected, "{text}");
        }
    }
}
