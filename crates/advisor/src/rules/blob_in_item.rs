//! Binary data is stored as text inside items.

use quire_profile::{PathProfile, TypeProfile};

use crate::apply::Apply;
use crate::array::{figure, last_name, quantiles};
use crate::case::Case;
use crate::finding::Candidate;

const LENGTH_MIN: f64 = 20.0 * 1_024.0;
const PRESENT_MIN: f64 = 0.2;
const WRITE_PER_KB: f64 = 0.455;
const READ_PER_KB: f64 = 0.091;

pub fn evaluate(case: &Case<'_>) -> Vec<Candidate> {
    let paths = case.types().flat_map(|kind| kind.paths.iter().map(move |path| (kind, path)));
    paths.filter(|(kind, path)| fires(case, kind, path)).map(|(kind, path)| found(case, kind, path)).collect()
}

fn fires(case: &Case<'_>, kind: &TypeProfile, path: &PathProfile) -> bool {
    let filtered = case.shapes().any(|found| found.shape.used.contains(&path.path));
    path.blobs > 0
        && case.holds("blob-in-item/length", path.blob_length.p95 >= LENGTH_MIN)
        && case.holds("blob-in-item/present", path.blobs as f64 >= PRESENT_MIN * kind.count as f64)
        && case.holds("blob-in-item/filtered", !filtered)
}

fn found(case: &Case<'_>, kind: &TypeProfile, path: &PathProfile) -> Candidate {
    let kilobytes = path.blob_length.mean / 1_024.0;
    let share = path.blobs as f64 / kind.count.max(1) as f64;
    let saved = share
        * kilobytes
        * (case.changes_per_day() * 2.0 * WRITE_PER_KB + case.reads_per_day() * READ_PER_KB);
    let name = last_name(&path.path);
    Candidate {
        path: path.path.clone(),
        title: format!("{name} holds binary data inside {}", case.name()),
        text: "It is paid for with every read and write of the item, and no query can use it. Keep the data in object storage and \
               the address here."
            .to_owned(),
        evidence: vec![("length", quantiles(&path.blob_length, &["p50", "p95", "max"])), ("present", figure(share))],
        examples: case.examples(path.example.iter()),
        effect: case.effect(case.charge_per_day(), saved),
        apply: Apply::steps([
            format!("Store the content of {name} in object storage."),
            format!("Keep its address in {name}, and exclude the path from the index until then."),
        ]),
        items: Some(kind.count),
        ..Candidate::default()
    }
}
