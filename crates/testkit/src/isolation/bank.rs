//! Money moves between the accounts of one logical partition; every read of all accounts finds the same sum, at any time.

/// What one look at all accounts of a bank found.
#[derive(Clone, Debug)]
pub struct BankRead {
    pub how: &'static str,
    pub bank: u32,
    pub sum: i64,
    /// The lowest balance, where single accounts were seen. No transfer takes more than there is.
    pub lowest: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BankAnomaly {
    Sum { how: &'static str, bank: u32, found: i64 },
    Overdrawn { how: &'static str, bank: u32, lowest: i64 },
}

impl std::fmt::Display for BankAnomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BankAnomaly::Sum { how, bank, found } => write!(f, "bank {bank}: a {how} found the sum {found}"),
            BankAnomaly::Overdrawn { how, bank, lowest } => {
                write!(f, "bank {bank}: a {how} found an account with {lowest}")
            }
        }
    }
}

/// Everything that differs from the sum each bank began with.
pub fn check(sum: i64, reads: &[BankRead]) -> Vec<BankAnomaly> {
    reads.iter().flat_map(|read| losses(sum, read)).collect()
}

fn losses(sum: i64, read: &BankRead) -> impl Iterator<Item = BankAnomaly> {
    let BankRead { how, bank, sum: found, lowest } = *read;
    let wrong = (found != sum).then_some(BankAnomaly::Sum { how, bank, found });
    let overdrawn =
        lowest.filter(|lowest| *lowest < 0).map(|lowest| BankAnomaly::Overdrawn { how, bank, lowest });
    wrong.into_iter().chain(overdrawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_that_is_missing_or_owed_is_found() {
        let read = |sum, lowest| BankRead { how: "query", bank: 3, sum, lowest };
        assert_eq!(check(100, &[read(100, None), read(100, Some(0))]), []);
        assert_eq!(check(100, &[read(90, None)]), [BankAnomaly::Sum { how: "query", bank: 3, found: 90 }]);
        let found = check(100, &[read(100, Some(-1)), read(101, Some(1))]);
        let overdrawn = BankAnomaly::Overdrawn { how: "query", bank: 3, lowest: -1 };
        assert_eq!(found, [overdrawn, BankAnomaly::Sum { how: "query", bank: 3, found: 101 }]);
    }
}
