//! Proof of isolation: random concurrent transactions against a live server that is killed in between, and a check that
//! a serial order exists which explains everything that was answered.
//!
//! [`history`] is what clients saw. [`lists`] checks histories of lists that are only ever appended to: since every value is
//! appended once, a list that was read names all the transactions before it, and the order in which they came.
//! From that follow the dependencies between transactions, and a cycle among them ([`graph`]) means that no serial order
//! exists. [`bank`] moves money and adds it up. [`run`] drives both against a server process.
//!
//! The checks are pure and their tests feed them every anomaly they name. That they also bite on a real server is shown
//! by a client that reads and writes without a condition: its lost updates must be found.

pub mod bank; // money moves, its sum stays
mod bank_actions; // every way to move money and to add it up
mod client; // requests, and what became of them
mod declared; // a model on the containers
pub mod graph; // dependencies and their cycles
pub mod history; // what clients saw
mod list_actions; // every way to append to lists and to read them
pub mod lists; // lists that are only appended to
pub mod run; // rounds of clients, kills and checks
pub mod scripts; // what runs inside the server
