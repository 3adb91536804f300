//! Random models and random writes of all kinds from several threads: what is kept equals a recomputation.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use quire_model::Database;
use quire_resource::ContainerDefinition;

use super::generate::{Chance, IDS, KEYS, random_item, random_model};
use super::*;

fn model_of(seed: u64) -> String {
    let definition = |(id, keys): &(&str, &[&str])| {
        let kind = if keys.len() > 1 { "MultiHash" } else { "Hash" };
        let body =
            format!(r#"{{"id":"{id}","partitionKey":{{"paths":{keys:?},"kind":"{kind}","version":2}}}}"#);
        ContainerDefinition::create(&json(&body)).unwrap()
    };
    let containers: Vec<ContainerDefinition> = KEYS.iter().map(definition).collect();
    random_model(&mut Chance(seed), &Database::new("random", &containers)).to_json()
}

/// What came of writes.
#[derive(Default)]
struct Tally {
    accepted: usize,
    refused: BTreeSet<u16>,
}

impl Tally {
    fn note<T>(&mut self, result: Result<T, EngineError>) {
        match result {
            Ok(_) => self.accepted += 1,
            Err(EngineError::RefusedByModel(error)) => _ = self.refused.insert(error.status().1),
            Err(EngineError::ItemNotFound { .. } | EngineError::ItemExists { .. }) => {}
            Err(EngineError::TransactionConflict | EngineError::Contended) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn step(bench: &Bench, chance: &mut Chance, tally: &mut Tally) {
    let container = *chance.pick(&["a", "a", "b", "b", "c"]);
    let body = random_item(chance, container);
    let key = bench.key_of(container, &body);
    let header = key.to_header();
    let id = body.get("id").and_then(Value::as_str).unwrap().to_owned();
    match chance.below(12) {
        0..2 => tally.note(bench.delete(container, &id, &header)),
        2 => tally.note(bench.create(container, &body.to_json())),
        3 => tally.note(bench.replace(container, &id, &body.to_json())),
        4 if container != "a" => {
            let id = *chance.pick(IDS);
            tally.note(bench.replace(container, id, &body.to_json()));
        }
        5 => {
            let patch =
                r#"{"operations":[{"op":"set","path":"/n","value":7},{"op":"set","path":"/r8","value":1}]}"#;
            tally.note(bench.patch(container, &id, &header, patch));
        }
        _ => tally.note(bench.upsert(container, &body.to_json())),
    }
}

#[test]
fn one_writer_after_the_other() {
    let tally = Mutex::new(Tally::default());
    for seed in 0..40 {
        let bench = Bench::new(if seed % 2 == 0 { 1 } else { 5 }, KEYS, &model_of(seed));
        let mut chance = Chance(seed ^ 0xABCD);
        for at in 0..50 {
            step(&bench, &mut chance, &mut tally.lock());
            bench.check(&format!("seed {seed}, step {at}"));
        }
    }
    let tally = tally.into_inner();
    assert!(tally.accepted > 600, "{} writes were accepted", tally.accepted);
    assert_eq!(tally.refused.into_iter().collect::<Vec<_>>(), [6101, 6102, 6103, 6104, 6107]);
}

#[test]
fn many_writers_at_once() {
    for seed in 100..116 {
        let bench = Bench::new(if seed % 2 == 0 { 1 } else { 5 }, KEYS, &model_of(seed));
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let bench = &bench;
                scope.spawn(move || {
                    let (mut chance, mut tally) = (Chance(seed ^ (thread << 32)), Tally::default());
                    for _ in 0..60 {
                        step(bench, &mut chance, &mut tally);
                    }
                });
            }
        });
        bench.check(&format!("seed {seed}"));
    }
}
