//! Session tokens: `{range}:{version}#{lsn}`, several joined by commas.

/// The minimum LSNs that a client requires, per partition key range id.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SessionToken {
    pub parts: Vec<(String, i64, u64)>, // range id, version, global LSN
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The session token provided '{text}' is invalid.")]
pub struct SessionTokenError {
    pub text: String,
}

impl SessionToken {
    /// Accepts `0:-1#5`, `0:1#5#3=4`, comma lists, and bare tokens without a range id (range id `""`).
    pub fn parse(text: &str) -> Result<SessionToken, SessionTokenError> {
        let parts = text.split(',').map(|part| parse_part(part.trim())).collect::<Option<Vec<_>>>();
        parts.map(|parts| SessionToken { parts }).ok_or_else(|| SessionTokenError { text: text.to_owned() })
    }

    pub fn format_one(range: &str, version: i64, lsn: u64) -> String {
        format!("{range}:{version}#{lsn}")
    }
}

fn parse_part(part: &str) -> Option<(String, i64, u64)> {
    let (range, token) = part.split_once(':').unwrap_or(("", part));
    let mut fields = token.split('#');
    let version = fields.next()?.parse().ok()?;
    let lsn = fields.next()?.parse().ok()?;
    fields.all(is_region_progress).then(|| (range.to_owned(), version, lsn))
}

/// `{region}={lsn}`: progress of other regions, which a single region ignores.
fn is_region_progress(field: &str) -> bool {
    field
        .split_once('=')
        .is_some_and(|(region, lsn)| region.parse::<u32>().is_ok() && lsn.parse::<i64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, parts: &[(&str, i64, u64)]) {
        let parts = parts.iter().map(|&(range, version, lsn)| (range.to_owned(), version, lsn)).collect();
        assert_eq!(SessionToken::parse(text), Ok(SessionToken { parts }));
    }

    #[test]
    fn tokens() {
        check("0:-1#5", &[("0", -1, 5)]);
        check("0:1#5#3=4", &[("0", 1, 5)]);
        check("0:1#5#3=4#7=-1", &[("0", 1, 5)]);
        check("-1#12", &[("", -1, 12)]);
        check("0:-1#5, 12:2#18446744073709551615", &[("0", -1, 5), ("12", 2, u64::MAX)]);
        let own = SessionToken::format_one("3", -1, 99);
        check(&own, &[("3", -1, 99)]);
    }

    #[test]
    fn refused() {
        for text in [
            "",
            ",",
            "0:",
            "0:-1",
            "0:5",
            "0:-1#",
            "0:-1#x",
            "0:-1#-5",
            "x#1",
            "0:1#5#3",
            "0:1#5#a=4",
            "0:-1#5,",
        ] {
            assert_eq!(SessionToken::parse(text), Err(SessionTokenError { text: text.to_owned() }), "{text}");
        }
    }
}
