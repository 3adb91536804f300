//! Chains of links to follow from items: `book-authors, book-publisher.country, ~sequel`.

use super::EngineError;

const CHAINS_MAX: usize = 8;
const LINKS_MAX: usize = 3;

/// What to follow from the items of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowRequest {
    pub chains: Vec<Vec<FollowStep>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowStep {
    pub link: String,
    /// From targets to referrers.
    pub is_reversed: bool,
}

impl FollowRequest {
    /// Chains with commas between them, links with dots; `~` reverses one.
    pub fn parse(text: &str) -> Result<FollowRequest, EngineError> {
        let chains: Vec<Vec<FollowStep>> =
            text.split(',').map(|chain| chain.trim().split('.').map(step).collect()).collect();
        let is_named = |chain: &Vec<FollowStep>| chain.iter().all(|step| !step.link.is_empty());
        match () {
            () if !chains.iter().all(is_named) => Err(refused(format!("'{text}' names no links"))),
            () if chains.len() > CHAINS_MAX => {
                Err(refused(format!("at most {CHAINS_MAX} chains are followed")))
            }
            () if chains.iter().any(|chain| chain.len() > LINKS_MAX) => {
                Err(refused(format!("a chain has at most {LINKS_MAX} links")))
            }
            () => Ok(FollowRequest { chains }),
        }
    }
}

fn step(text: &str) -> FollowStep {
    let text = text.trim();
    match text.strip_prefix('~') {
        Some(link) => FollowStep { link: link.to_owned(), is_reversed: true },
        None => FollowStep { link: text.to_owned(), is_reversed: false },
    }
}

fn refused(why: String) -> EngineError {
    EngineError::BadRequest { message: format!("The value of x-quire-follow is not valid: {why}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_have_links_between_dots() {
        let step = |link: &str, is_reversed| FollowStep { link: link.to_owned(), is_reversed };
        let parsed = FollowRequest::parse("book-authors, book-publisher.country,~sequel").expect("is valid");
        let expected = vec![
            vec![step("book-authors", false)],
            vec![step("book-publisher", false), step("country", false)],
            vec![step("sequel", true)],
        ];
        assert_eq!(parsed.chains, expected);
    }

    #[test]
    fn invalid_chains_are_refused() {
        let nine = ["a"; 9].join(",");
        for text in ["", " ", ",", "a,,b", "a.", ".a", "~", "a..b", "a.b.c.d", nine.as_str()] {
            assert!(FollowRequest::parse(text).is_err(), "{text:?}");
        }
    }
}
