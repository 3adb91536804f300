//! The corpus: small databases with workloads and known truth.
//!
//! Every rule has at least two cases in which it fires and two in which it is tempted and must not. A case lists all findings that
//! are right; anything else is a false alarm. Precision and recall are printed. Every named condition of a rule is needed: without
//! it at least one case is wrong.

mod aggregates;
mod harness;
mod indexing;
mod integrity;
mod keys;
mod mixtures;
mod queries;
mod relationships;
mod samples;
mod shape;
mod shape_parts;
mod shape_values;
mod systems_devices;
mod systems_edges;
mod systems_people;
mod systems_trade;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use harness::{Db, Ready};
use quire_advisor::{Advice, ApplyKind, Finding, RULES, Thresholds, cut, preview};
use quire_model::Model;
use quire_resource::ContainerDefinition;
use quire_value::{Object, Value};

pub struct Case {
    pub name: &'static str,
    /// Rules that the case looks like.
    pub similar_to: &'static [&'static str],
    /// Rule, container, path.
    pub expect: &'static [(&'static str, &'static str, &'static str)],
    pub build: fn(&mut Db),
}

/// A case in which rules fire.
pub const fn fires(
    name: &'static str,
    expect: &'static [(&'static str, &'static str, &'static str)],
    build: fn(&mut Db),
) -> Case {
    Case { name, similar_to: &[], expect, build }
}

/// A case in good form.
pub const fn clean(name: &'static str, similar_to: &'static [&'static str], build: fn(&mut Db)) -> Case {
    Case { name, similar_to, expect: &[], build }
}

type FindingNames = BTreeSet<(String, String, String)>;

fn found(advice: &Advice) -> FindingNames {
    advice
        .findings
        .iter()
        .map(|finding| (finding.rule.to_owned(), finding.container.clone(), finding.candidate.path.clone()))
        .collect()
}

fn expected(case: &Case) -> FindingNames {
    case.expect
        .iter()
        .map(|(rule, container, path)| (rule.to_string(), container.to_string(), path.to_string()))
        .collect()
}

fn corpus() -> &'static [(Case, Ready)] {
    static CORPUS: OnceLock<Vec<(Case, Ready)>> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let groups = [
            shape::cases(),
            shape_parts::cases(),
            shape_values::cases(),
            relationships::cases(),
            aggregates::cases(),
            integrity::cases(),
            keys::cases(),
            indexing::cases(),
            queries::cases(),
            mixtures::cases(),
            samples::cases(),
            systems_trade::cases(),
            systems_people::cases(),
            systems_devices::cases(),
            systems_edges::cases(),
        ];
        // `CORPUS=text` looks only at cases with this in their name.
        let only = std::env::var("CORPUS").unwrap_or_default();
        built(groups.into_iter().flatten().filter(|case| case.name.contains(&only)).collect())
    })
}

/// On two threads: half of the time is spent making items.
fn built(cases: Vec<Case>) -> Vec<(Case, Ready)> {
    let build = |case: &Case| {
        let mut db = Db::new();
        (case.build)(&mut db);
        db.finish()
    };
    let (even, odd) = std::thread::scope(|scope| {
        let cases = &cases;
        let part = move |rest: usize| cases.iter().skip(rest).step_by(2).map(build).collect::<Vec<Ready>>();
        let odd = scope.spawn(move || part(1));
        (part(0), odd.join().expect("the cases are built"))
    });
    let (mut even, mut odd) = (even.into_iter(), odd.into_iter());
    let is_prepared: Vec<Ready> =
        (0..cases.len()).filter_map(|place| if place % 2 == 0 { even.next() } else { odd.next() }).collect();
    cases.into_iter().zip(is_prepared).collect()
}

#[test]
fn precision_and_recall() {
    let (mut right, mut wrong, mut missed) = (0, 0, 0);
    let mut report = Vec::new();
    for (case, ready) in corpus() {
        let (found, expected) = (found(&ready.advice()), expected(case));
        right += found.intersection(&expected).count();
        wrong += found.difference(&expected).count();
        missed += expected.difference(&found).count();
        if found != expected {
            let extra: Vec<_> = found.difference(&expected).collect();
            let lost: Vec<_> = expected.difference(&found).collect();
            report.push(format!("{}: false {extra:?}, missed {lost:?}", case.name));
        }
    }
    let share = |part: usize, other: usize| part as f64 / (part + other).max(1) as f64;
    println!(
        "corpus: {} cases, {right} findings, precision {:.3}, recall {:.3}",
        corpus().len(),
        share(right, wrong),
        share(right, missed)
    );
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn every_rule_has_two_of_each() {
    let mut fires: BTreeMap<&str, usize> = BTreeMap::new();
    let mut similar_to: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, _) in corpus() {
        let rules: BTreeSet<&str> = case.expect.iter().map(|(rule, _, _)| *rule).collect();
        rules.into_iter().for_each(|rule| *fires.entry(rule).or_default() += 1);
        case.similar_to.iter().for_each(|rule| *similar_to.entry(rule).or_default() += 1);
    }
    let counts =
        |rule: &str| (fires.get(rule).copied().unwrap_or(0), similar_to.get(rule).copied().unwrap_or(0));
    let lacking: Vec<_> = RULES
        .iter()
        .map(|rule| (rule.name, counts(rule.name)))
        .filter(|(_, (fires, similar_to))| *fires < 2 || *similar_to < 2)
        .collect();
    for rule in RULES {
        let (fires, similar_to) = counts(rule.name);
        println!("{:<24} fires in {fires}, tempted in {similar_to}", rule.name);
    }
    assert!(lacking.is_empty(), "{lacking:?}");
    let known: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    let named = fires.keys().chain(similar_to.keys());
    assert_eq!(named.filter(|name| !known.contains(*name)).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// Without any one condition, some case is wrong.
#[test]
fn every_condition_is_needed() {
    let corpus = corpus();
    let names: BTreeSet<&str> = corpus.iter().flat_map(|(_, ready)| ready.conditions()).collect();
    let needed = |name: &str| {
        // Cases that meet the condition's own rule come first.
        corpus.iter().any(|(case, ready)| found(&ready.advice_without(name)) != expected(case))
    };
    let not_needed: Vec<&str> = names.iter().filter(|name| !needed(name)).copied().collect();
    println!("corpus: {} conditions, each needed", names.len() - not_needed.len());
    assert!(not_needed.is_empty(), "no case needs {not_needed:?}");
}

/// Twice the same list, with ids that stay.
#[test]
fn evaluating_twice_gives_the_same() {
    for (case, ready) in corpus() {
        let ids =
            |advice: &Advice| advice.findings.iter().map(|finding| finding.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&ready.advice()), ids(&ready.advice()), "{}", case.name);
    }
}

/// Every finding has a title, a text with its section, and a real example.
#[test]
fn findings_are_complete() {
    for (case, ready) in corpus() {
        for finding in ready.advice().findings {
            let candidate = &finding.candidate;
            let place = format!("{}: {}", case.name, finding.rule);
            assert!(
                !candidate.title.is_empty() && candidate.title.len() <= 100,
                "{place}: {}",
                candidate.title
            );
            assert!(candidate.text.ends_with(&format!("See docs/advice.md#{}.", finding.rule)), "{place}");
            assert!(!candidate.examples.is_empty(), "{place}: no example");
            assert!(
                candidate.apply.request.is_some() || !candidate.apply.steps.is_empty(),
                "{place}: nothing to do"
            );
            assert!(!candidate.evidence.is_empty(), "{place}: no evidence");
        }
    }
}

/// Members in the order of the contract; the item before and after is made for the answer.
#[test]
fn json_of_a_finding() {
    let (_, ready) =
        corpus().iter().find(|(case, _)| case.name == "blog: comments inside posts").expect("the case");
    let advice = ready.advice();
    let before =
        harness::json(r#"{"id":"p17","comments":[{"id":"1"},{"id":"2"},{"id":"3"},{"id":"4"},{"id":"5"}]}"#);
    let shown = |finding: &Finding| {
        let after = preview(finding, &before).into_iter().map(|shown| {
            let item = [("container", Value::from(shown.container)), ("item", shown.item)];
            Value::from(Object::from_iter(item))
        });
        (cut(&before), Value::from(after.collect::<Vec<_>>()))
    };
    let json = advice.to_json("2026-11-17T00:00:00Z", 4, &shown);
    let names = |value: &Value| {
        value.as_object().map(|object| object.names().map(str::to_owned).collect::<Vec<_>>().join(" "))
    };
    let member = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
    let finding = member(&json, "findings").at(0).cloned().expect("a finding");
    assert_eq!(
        names(&json).as_deref(),
        Some("database generated standsForDays revision findings notEnough looked")
    );
    assert_eq!(
        names(&finding).as_deref(),
        Some(
            "id rule group severity container path with title text state reason evidence before after effect apply"
        )
    );
    assert_eq!(
        names(&member(&finding, "evidence")).as_deref(),
        Some("items operations days length growing perDay elementBytes daysToLimit examples")
    );
    assert_eq!(
        names(&member(&finding, "effect")).as_deref(),
        Some("chargePerDay bytesPerDay roundTripsPerDay storageBytes onCosmos")
    );
    let apply = member(&finding, "apply");
    assert_eq!(
        apply.get("request").and_then(|request| request.get("path")),
        Some(&Value::from("/_quire/dbs/db/refactorings"))
    );
    assert_eq!(
        member(&finding, "after").to_json(),
        concat!(
            r#"[{"container":"posts","item":{"id":"p17","recentComments":[{"id":"3"},{"id":"4"},{"id":"5"}]}},"#,
            r#"{"container":"posts-pages","item":{"itemId":"p17","page":0,"comments":[{"id":"1"},{"id":"2"}]}}]"#
        )
    );
}

/// Texts of items are made of a dozen words: none is in a profile or in advice.
#[test]
fn no_value_of_an_item() {
    for (case, ready) in corpus() {
        let advice = ready.advice().to_json("", 1, &|_| (Value::Null, Value::Null)).to_json();
        let profiles = ready
            .profile
            .containers
            .iter()
            .map(|profile| profile.to_json("db", &|_| String::new(), &|_| None).to_json());
        for text in std::iter::once(advice).chain(profiles) {
            for word in ["harbour", "garden", "silver", "morning"] {
                assert!(!text.contains(word) || case.name.starts_with("families"), "{}: {word}", case.name);
            }
        }
    }
}

/// docs/advice.md has one section for each rule, in the order of the table.
#[test]
fn documents_name_every_rule() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/advice.md"))
        .expect("the page");
    let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let rules: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(sections, rules);
}

#[test]
fn thresholds_are_checked() {
    let mut thresholds = Thresholds::default();
    assert!(thresholds.set("minItems", &Value::from(50)).is_ok());
    assert_eq!(thresholds.min_items, 50.0);
    for (name, value, is_known) in
        [("minItmes", 1.0, false), ("minItems", -1.0, true), ("minItems", f64::NAN, true)]
    {
        let error = thresholds.set(name, &Value::from(value)).expect_err("refused");
        assert_eq!((error.name.as_str(), error.is_known), (name, is_known));
    }
}

/// What a finding would send is valid: models by their own rules, definitions by the service's.
#[test]
fn requests_are_valid() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, ready) in corpus() {
        for finding in ready.advice().findings {
            let apply = &finding.candidate.apply;
            *kinds.entry(apply.kind.name()).or_default() += 1;
            let place = format!("{}: {}", case.name, finding.rule);
            let Some((_, _, body)) = &apply.request else { continue };
            match apply.kind {
                ApplyKind::Model => {
                    let parsed = Model::parse(body, &harness::database(&ready.definitions));
                    assert!(parsed.is_ok(), "{place}: {parsed:?} {}", body.to_json());
                }
                ApplyKind::IndexingPolicy | ApplyKind::Container => {
                    let created = ContainerDefinition::create(body);
                    assert!(created.is_ok(), "{place}: {created:?} {}", body.to_json());
                }
                ApplyKind::Refactoring => {
                    assert!(body.get("kind").is_some(), "{place}");
                }
                ApplyKind::Steps => panic!("{place}: steps with a request"),
            }
        }
    }
    println!("corpus: {kinds:?}");
}
