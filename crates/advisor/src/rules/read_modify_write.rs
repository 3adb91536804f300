//! A number is read, changed by the client and written back.

use crate::apply::Apply;
use crate::array::{figure, last_name};
use crate::case::Case;
use crate::finding::Candidate;
use crate::price;

const ACTIONS_MIN: u64 = 50;
const SHARE_MIN: f64 = 0.1;
const IF_MATCH_MAX: f64 = 0.9;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let writes = case.workload().changes() as f64;
    let found = case.workload().read_modify_write.iter().filter(|(_, (actions, if_match))| {
        case.holds("read-modify-write/actions", *actions >= ACTIONS_MIN)
            && case.holds("read-modify-write/share", *actions as f64 >= SHARE_MIN * writes)
            && case.holds("read-modify-write/if-match", (*if_match as f64) < IF_MATCH_MAX * *actions as f64)
    });
    found
        .map(|(path, (actions, if_match))| {
            let title = format!("{} of {} is counted by reading and writing it back", last_name(path), case.name());
            let text = "Two clients at once count one step instead of two. A patch with incr needs no read and loses nothing.";
            let saved = case.per_day(*actions as f64) * price::read(case.profile.mean_size());
            Candidate {
                path: path.clone(),
                evidence: vec![
                    ("actions", figure(*actions as f64)),
                    ("ifMatch", figure(*if_match as f64 / (*actions).max(1) as f64)),
                ],
                effect: case.effect(saved, saved),
                example_items: case.workload().examples[1].into_iter().collect(),
                apply: Apply::steps([format!("Send a patch with incr for {path} instead of read and replace.")]),
                ..case.about_container(title, text.to_owned())
            }
        })
        .collect()
}
