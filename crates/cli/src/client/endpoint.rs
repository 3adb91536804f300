//! The address of a server, taken apart.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use hyper::Uri;

/// Where a server listens when nothing else is said.
const DEFAULT: &str = "http://127.0.0.1:8081/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub https: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// `host` or `host:port`, as it was written.
    pub authority: String,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint> {
        let uri: Uri = text.parse().with_context(|| format!("{text:?} is no URL"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => bail!("{text:?} must start with http:// or https://"),
        };
        let host = uri.host().with_context(|| format!("{text:?} has no host"))?;
        let authority = uri.authority().map_or(host, |authority| authority.as_str()).to_owned();
        if authority.contains('@') {
            bail!("{text:?} must not name a user: keys come from --key-file or QUIRE_KEYS");
        }
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        Ok(Endpoint { https, host: host.trim_matches(['[', ']']).to_owned(), port, authority })
    }

    /// The one that was named, else the address that a server on this machine is told to listen on.
    pub fn named_or_local(named: Option<&str>) -> Result<Endpoint> {
        match named {
            Some(text) => Endpoint::parse(text),
            None => Ok(Endpoint::local(std::env::var("QUIRE_LISTEN").ok().as_deref())),
        }
    }

    /// A server that listens on all addresses answers on loopback.
    fn local(listen: Option<&str>) -> Endpoint {
        let listen = listen.and_then(|text| text.parse::<SocketAddr>().ok()).filter(|it| it.port() != 0);
        let url = listen.map(|mut address| {
            match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip([127, 0, 0, 1].into()),
                IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V6(1.into())),
                _ => {}
            }
            format!("http://{address}/")
        });
        Endpoint::parse(url.as_deref().unwrap_or(DEFAULT)).expect("an address makes a URL")
    }

    pub fn url(&self) -> String {
        format!("{}://{}/", if self.https { "https" } else { "http" }, self.authority)
    }

    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parse = |text: &str| {
            let found = Endpoint::parse(text).expect(text);
            (found.https, found.host.clone(), found.port, found.url(), found.is_loopback())
        };
        let expected = |https, host: &str, port, url: &str, loopback| {
            (https, host.to_owned(), port, url.to_owned(), loopback)
        };
        assert_eq!(parse("http://localhost"), expected(false, "localhost", 80, "http://localhost/", true));
        assert_eq!(parse("https://[::1]:8081/"), expected(true, "::1", 8081, "https://[::1]:8081/", true));
        assert_eq!(
            parse("https://db.example/x"),
            expected(true, "db.example", 443, "https://db.example/", false)
        );
        for bad in ["", "localhost:8081", "ftp://db", "http://", "http://ada@db/", "not a url"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn without_a_name_it_is_the_server_of_this_machine() {
        let local = |listen| Endpoint::local(listen).url();
        assert_eq!(local(None), "http://127.0.0.1:8081/");
        assert_eq!(local(Some("0.0.0.0:9000")), "http://127.0.0.1:9000/");
        assert_eq!(local(Some("[::]:9000")), "http://[::1]:9000/");
        assert_eq!(local(Some("10.0.0.7:9000")), "http://10.0.0.7:9000/");
        // A free port is not known here, and what is no address is refused by the server.
        assert_eq!(local(Some("127.0.0.1:0")), "http://127.0.0.1:8081/");
        assert_eq!(local(Some("nonsense")), "http://127.0.0.1:8081/");
    }
}
