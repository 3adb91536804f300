//! The checksummed chain of commit records, and how a torn or cut journal is noticed.

pub mod acknowledged; // a note of the last acknowledged commit
pub mod chain; // the records that are kept, read at opening
pub mod journal; // what fjall wrote, cut where it is damaged
pub mod record; // the format of a commit record
