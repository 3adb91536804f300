//! Query parameters of admin endpoints, such as `?waitMs=500`.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::wire::status::{HandlerError, RequestError};

/// How long a request may wait for what it asks for.
const WAIT_MS_MAX: u64 = 60_000;

/// The parameters that a request has, all of them known to its endpoint.
#[derive(Debug)]
pub(crate) struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    /// `path` with its query string. A parameter that is not one of `known`, or that comes twice, is an error.
    pub fn parse(path: &'a str, known: &[&str]) -> Result<Parameters<'a>, HandlerError> {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.contains(&&*name) {
                return Err(bad(format!("The query parameter '{name}' is not known.")));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(bad(format!("The query parameter '{name}' must be sent only once.")));
            }
            pairs.push((name, value));
        }
        Ok(Parameters(pairs))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, HandlerError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let (min, max) = range.into_inner();
                let message = format!("The query parameter '{name}' must be a number from {min} to {max}.");
                Err(bad(message))
            }
        }
    }

    /// `waitMs`: how long to wait until the answer is final, not at all by default.
    pub fn wait(&self) -> Result<Duration, HandlerError> {
        Ok(Duration::from_millis(self.number("waitMs", 0..=WAIT_MS_MAX)?.unwrap_or(0)))
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>, HandlerError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_err(|_| bad("The query string is not UTF-8.".to_owned()))
}

fn bad(message: String) -> HandlerError {
    RequestError::BadRequest { message }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &str) -> String {
        let parsed = Parameters::parse(path, &["waitMs", "name"]);
        parsed.and_then(|parameters| parameters.wait().map(|_| ())).expect_err("refused").to_string()
    }

    #[test]
    fn names_and_values_are_decoded() {
        let parameters =
            Parameters::parse("/_quire/jobs?name=a%26b+c&wait%4Ds=7&", &["waitMs", "name"]).unwrap();
        assert_eq!(parameters.text("name"), Some("a&b+c"));
        assert_eq!(parameters.wait().unwrap(), Duration::from_millis(7));
        let none = Parameters::parse("/_quire/jobs", &[]).unwrap();
        assert_eq!(none.wait().unwrap(), Duration::ZERO);
    }

    #[test]
    fn invalid_parameters_are_named() {
        assert_eq!(error("/p?waitms=1"), "The query parameter 'waitms' is not known.");
        assert_eq!(error("/p?name=1&name=1"), "The query parameter 'name' must be sent only once.");
        assert_eq!(error("/p?name=%FF"), "The query string is not UTF-8.");
        for value in ["", "-1", "60001", "soon"] {
            let expected = "The query parameter 'waitMs' must be a number from 0 to 60000.";
            assert_eq!(error(&format!("/p?waitMs={value}")), expected);
        }
    }
}
