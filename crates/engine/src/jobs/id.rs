//! Ids of jobs, such as `j-17`.

use std::fmt;
use std::str::FromStr;

/// Names a job. Later jobs have greater numbers; a number is never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "j-{}", self.0)
    }
}

/// Not the name of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidJobId;

impl FromStr for JobId {
    type Err = InvalidJobId;

    fn from_str(text: &str) -> Result<JobId, InvalidJobId> {
        let number = text.strip_prefix("j-").and_then(|number| number.parse().ok()).map(JobId);
        // One name for one job: no sign, no leading zeros.
        number.filter(|id| id.to_string() == text).ok_or(InvalidJobId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_job() {
        assert_eq!(JobId(17).to_string(), "j-17");
        assert_eq!("j-17".parse(), Ok(JobId(17)));
        for text in ["", "17", "j-", "j-017", "j-+1", "J-1", "j-1 ", "j-99999999999999999999"] {
            assert_eq!(text.parse::<JobId>(), Err(InvalidJobId), "{text}");
        }
    }
}
