//! `quire connect`: the connection string of a server, or the first program of a client in some language.

use anyhow::Result;
use clap::ValueEnum;
use quire_value::{Object, Value};

use crate::banner::connection_string;
use crate::client::ServerArguments;
use crate::output;

/// Prints the connection string of a server, or the first program of a client.
#[derive(clap::Args)]
pub struct ConnectArguments {
    /// Print a first program in this language instead
    language: Option<Language>,
    #[command(flatten)]
    server: ServerArguments,
    /// Print one JSON object: endpoint, key, connectionString
    #[arg(long, conflicts_with = "language")]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Python,
    #[value(alias = "js", alias = "node", alias = "typescript")]
    Javascript,
    #[value(alias = "csharp")]
    Dotnet,
    Java,
    Spring,
    Go,
    Rust,
}

/// A program with places for `{endpoint}` and `{key}`, and what it needs besides to trust the authority `{ca}`.
struct Snippet {
    program: &'static str,
    /// In the place of `{trust}`.
    trust: &'static str,
    /// In the place of `{imports}`.
    trust_imports: &'static str,
    /// In the place of `{over_http}` where the endpoint is http.
    over_http: &'static str,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Language::Python => "Python",
            Language::Javascript => "JavaScript",
            Language::Dotnet => ".NET",
            Language::Java => "Java",
            Language::Spring => "Spring",
            Language::Go => "Go",
            Language::Rust => "Rust",
        }
    }

    fn snippet(self) -> Snippet {
        let (program, trust, trust_imports) = match self {
            Language::Python => (include_str!("snippets/python.txt"), ", connection_verify=\"{ca}\"", ""),
            Language::Javascript => (
                include_str!("snippets/javascript.txt"),
                ", agent: new Agent({ ca: readFileSync(\"{ca}\") })",
                "import { readFileSync } from \"node:fs\";\nimport { Agent } from \"node:https\";\n",
            ),
            Language::Dotnet => {
                (include_str!("snippets/dotnet.txt"), "// On Linux, run with SSL_CERT_FILE={ca}\n", "")
            }
            Language::Java => (
                include_str!("snippets/java.txt"),
                "// keytool -importcert -noprompt -alias quire -file {ca} -keystore trust.jks -storepass changeit\n\
                 // run with -Djavax.net.ssl.trustStore=trust.jks -Djavax.net.ssl.trustStorePassword=changeit\n",
                "",
            ),
            Language::Spring => (
                include_str!("snippets/spring.txt"),
                "# keytool -importcert -noprompt -alias quire -file {ca} -keystore trust.jks -storepass changeit\n\
                 # run with -Djavax.net.ssl.trustStore=trust.jks -Djavax.net.ssl.trustStorePassword=changeit\n",
                "",
            ),
            Language::Go => {
                (include_str!("snippets/go.txt"), "// On Linux, run with SSL_CERT_FILE={ca}\n", "")
            }
            Language::Rust => {
                (include_str!("snippets/rust.txt"), "// On Linux, run with SSL_CERT_FILE={ca}\n", "")
            }
        };
        Snippet { program, trust, trust_imports, over_http: self.over_http() }
    }

    /// The SDK of Java makes https of http unless it is allowed not to.
    fn over_http(self) -> &'static str {
        match self {
            Language::Java => {
                "        System.setProperty(\"COSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED\", \"true\"); // http only\n"
            }
            Language::Spring => "# http only: run with -DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true\n",
            _ => "",
        }
    }
}

impl Snippet {
    fn filled(&self, endpoint: &str, key: &str, ca: Option<&str>) -> String {
        let (trust, imports) = if ca.is_some() { (self.trust, self.trust_imports) } else { ("", "") };
        let over_http = if endpoint.starts_with("http:") { self.over_http } else { "" };
        self.program
            .replace("{imports}", imports)
            .replace("{over_http}", over_http)
            .replace("{trust}", trust)
            .replace("{endpoint}", endpoint)
            .replace("{key}", key)
            .replace("{ca}", ca.unwrap_or_default())
    }
}

/// The first program of every language, with the language's name.
pub fn programs(endpoint: &str, key: &str, ca: Option<&str>) -> Vec<(&'static str, String)> {
    let program = |language: &Language| (language.name(), language.snippet().filled(endpoint, key, ca));
    Language::value_variants().iter().map(program).collect()
}

pub fn run(arguments: &ConnectArguments) -> Result<()> {
    let endpoint = arguments.server.endpoint()?;
    let (url, (key, _)) = (endpoint.url(), arguments.server.key()?);
    let text = match arguments.language {
        Some(language) => {
            let ca = arguments.server.ca.as_ref().filter(|_| endpoint.https);
            let ca = ca.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
            let ca = ca.map(|path| path.display().to_string());
            language.snippet().filled(&url, &key, ca.as_deref())
        }
        None if arguments.json => json(&url, &key) + "\n",
        None => connection_string(&url, &key) + "\n",
    };
    output::print(&text)
}

fn json(endpoint: &str, key: &str) -> String {
    let mut object = Object::new();
    object.set("endpoint", endpoint);
    object.set("key", key);
    object.set("connectionString", connection_string(endpoint, key));
    Value::from(object).to_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_is_allowed_to_use_http() {
        for language in [Language::Java, Language::Spring] {
            let program = |endpoint: &str| language.snippet().filled(endpoint, "KEY", None);
            assert!(program("http://localhost:1/").contains("WITHOUT_TLS_ALLOWED"));
            assert!(!program("https://localhost:1/").contains("WITHOUT_TLS_ALLOWED"));
        }
    }

    #[test]
    fn every_program_is_filled() {
        for language in Language::value_variants() {
            for ca in [None, Some("/ca.pem")] {
                let text = language.snippet().filled("https://localhost:1/", "KEY", ca);
                assert!(text.contains("https://localhost:1/") && text.contains("KEY"), "{language:?}");
                assert_eq!(text.contains("/ca.pem"), ca.is_some(), "{language:?}");
                for place in ["{endpoint}", "{key}", "{ca}", "{trust}", "{imports}", "{over_http}"] {
                    assert!(!text.contains(place), "{language:?} keeps {place}");
                }
            }
        }
    }
}
