//! Compares items with a model: recomputes everything that it maintains, from the items alone.
//!
//! A [`Survey`] walks the containers of a model in one snapshot, a page of items at a time, and compares. It reads no row that
//! the model's own maintenance has written, so it works for a model that is not declared as well, and finds what maintenance
//! got wrong. Everything that a commit changes is in one snapshot or not at all: writers are never reported. What the sweep or a
//! job has still to do is counted as pending.
//!
//! The same figures are the estimates of a dry run.

mod findings; // what a survey found
mod links; // referrers, their references and copies
mod subject; // a model and its containers
mod survey; // walks over one snapshot
mod targets; // rollups and mirrors
mod windows; // windows and their pages

pub(crate) use findings::{item_example, key_json};
pub(crate) use subject::SurveySubject;
pub(crate) use survey::{Survey, SurveyOptions};
