//! Commands of an operator: backup, restore, verification.

mod aggregates; // rows that follow from all items, within a bounded memory
pub(crate) mod backup; // the whole account copied to files while it is written to
pub(crate) mod derived; // rows that follow from an item
pub(crate) mod model_rows; // rows that follow from all items by a model
pub(crate) mod restore; // from a backup to a store
pub(crate) mod verify; // reads everything again
