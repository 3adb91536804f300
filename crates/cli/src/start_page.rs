//! The page at `/_explorer/`: endpoint, connection string, certificate, and the first program of every language.
//!
//! Everybody who reaches the port can read it, so it shows a key only if everybody knows that key.

use std::sync::Arc;

use quire_server::StartPage;

use crate::banner::{Banner, connection_string};
use crate::connect;

const PAGE: &str = include_str!("start_page.html");
/// In programs, where the key is a secret.
const SECRET: &str = "<your key>";
/// The name under which programs have the downloaded certificate.
const CERTIFICATE: &str = "emulator.pem";

pub fn of(banner: Banner, has_certificate: bool) -> Arc<StartPage> {
    Arc::new(move |endpoint| page(endpoint, banner.public_key(), has_certificate))
}

fn page(endpoint: &str, key: Option<&str>, has_certificate: bool) -> String {
    let connection = match key {
        Some(key) => connection_string(endpoint, key),
        None => format!("quire connect --endpoint {endpoint} --key-file FILE"),
    };
    let is_https = endpoint.starts_with("https:");
    let ca = (has_certificate && is_https).then_some(CERTIFICATE);
    let programs = connect::programs(endpoint, key.unwrap_or(SECRET), ca);
    let programs = programs.iter().map(|(language, program)| {
        let program = escaped(program.trim_end());
        format!("<details><summary>{language}</summary><pre>{program}</pre></details>\n")
    });
    let certificate = if has_certificate { include_str!("start_page_certificate.html") } else { "" };
    let connection_label = if key.is_some() { "Connection string" } else { "Connection string, printed by" };
    PAGE.replace("{programs}", &programs.collect::<String>())
        .replace("{certificate}", certificate)
        .replace("{connection label}", connection_label)
        .replace("{connection}", &escaped(&connection))
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{endpoint}", &escaped(endpoint))
}

/// The endpoint has the host that the request named, which can be anything.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_cannot_add_to_the_page() {
        let html = page("http://\"><script>alert(1)</script>/", Some("KEY"), true);
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"));
    }

    #[test]
    fn a_secret_is_not_shown_and_every_place_is_filled() {
        for (key, certificate) in [(None, false), (None, true), (Some("KEY"), true)] {
            let html = page("https://localhost:1/", key, certificate);
            assert_eq!(html.contains("AccountKey=KEY;"), key.is_some());
            assert_eq!(html.contains("/_explorer/emulator.pem"), certificate);
            for place in ["{programs}", "{certificate}", "{connection", "{version}", "{endpoint}"] {
                assert!(!html.contains(place), "keeps {place}");
            }
        }
    }
}
