//! The checksummed chain of commit records, and detection of a torn or cut journal.

pub mod acknowledged; // the last acknowledged commit
pub mod chain; // the chain of commit records
pub mod journal; // checks fjall's journal, and cuts its damaged end
pub mod record; // the format of a commit record
