//! What becomes of the referrers of a target that goes.

use super::*;
use crate::jobs::JobId;

fn model(on_delete: &str, fan_out_max: u32) -> String {
    format!(
        r#"{{"version":1,"fanOutMax":{fan_out_max},"links":[
        {{"name":"book-author","from":{{"container":"books","path":"/authors/*/id"}},"to":{{"container":"authors"}},"onDelete":"{on_delete}"}},
        {{"name":"book-shelf","from":{{"container":"books","path":"/shelf/id"}},"to":{{"container":"shelves"}}}},
        {{"name":"author-shelf","from":{{"container":"authors","path":"/shelf"}},"to":{{"container":"shelves"}},"onDelete":"cascade"}}],
        "copies":[{{"name":"shelf-on-book","link":"book-shelf","fields":{{"name":"t.name"}}}}],
        "rollups":[{{"name":"n","link":"book-author","op":"count","into":"/n"}},
          {{"name":"books","link":"book-shelf","op":"count","into":"/books"}},
          {{"name":"authors","link":"author-shelf","op":"count","into":"/authors"}}],
        "mirrors":[{{"name":"m","link":"book-shelf","into":"/mirror"}}]}}"#
    )
}

fn filled(on_delete: &str, fan_out_max: u32) -> Bench {
    let bench = Bench::new(5, LIBRARY, &model(on_delete, fan_out_max));
    for shelf in ["s1", "s2"] {
        bench.create("shelves", &format!(r#"{{"id":"{shelf}","name":"{shelf}"}}"#)).unwrap();
    }
    for author in 0..4 {
        bench.create("authors", &format!(r#"{{"id":"a{author}","shelf":"s{}"}}"#, 1 + author % 2)).unwrap();
    }
    for book in 0..12 {
        let (one, two) = (book % 4, (book / 4) % 4);
        let body = format!(
            r#"{{"id":"b{book}","authors":[{{"id":"a{one}"}},{{"id":"a{two}"}}],"shelf":{{"id":"s{}"}}}}"#,
            1 + book % 2
        );
        bench.create("books", &body).unwrap();
    }
    bench.check("filled");
    bench
}

fn fan_outs(bench: &Bench) -> Vec<crate::JobStatus> {
    bench.engine.jobs().unwrap().into_iter().filter(|job| job.kind == "fan-out").collect()
}

fn count(bench: &Bench, container: &str) -> usize {
    bench.items().iter().filter(|(name, _)| name == container).count()
}

#[test]
fn cascades_go_through_all_levels() {
    let bench = filled("cascade", 100);
    bench.delete("authors", "a3", "[\"a3\"]").unwrap();
    assert_eq!((count(&bench, "authors"), count(&bench, "books")), (3, 9));
    bench.check("one author");
    bench.delete("shelves", "s1", "[\"s1\"]").unwrap();
    let left = (count(&bench, "authors"), count(&bench, "books"), count(&bench, "shelves"));
    assert_eq!(left, (1, 1, 1), "its authors and their books");
    bench.check("a shelf");
    bench.verify("a shelf");
}

#[test]
fn references_are_removed() {
    let bench = filled("remove", 100);
    bench.delete("authors", "a1", "[\"a1\"]").unwrap();
    assert_eq!(count(&bench, "books"), 12);
    let book = bench.get("books", "b5").unwrap();
    assert_eq!(book.get("authors").unwrap().to_json(), "[]", "both were that author");
    bench.check("one author");
    bench.delete("shelves", "s1", "[\"s1\"]").unwrap();
    bench.check("a shelf, and by it authors");
    bench.verify("a shelf, and by it authors");
}

#[test]
fn beyond_the_bound_a_job_is_left_in_the_same_commit() {
    let bench = filled("remove", 2);
    bench.delete("authors", "a1", "[\"a1\"]").unwrap();
    let jobs = fan_outs(&bench);
    assert_eq!(jobs.len(), 1);
    let again = refusal(bench.create("authors", r#"{"id":"a1"}"#));
    let expected =
        format!("449/6106 DeletionPending: references to 'a1' are still being removed ({}).", jobs[0].id);
    assert_eq!(again, expected);
    // Copies: one job for a target, however often it changes; it says that it goes around once more.
    let row = |bench: &Bench| {
        let shared = &bench.engine.shared;
        let snapshot = shared.storage.snapshot().unwrap();
        let model = bench.container("shelves", 0).partitions.model().unwrap();
        let declaration = model.database.declarations.links[1].number;
        let rows = crate::store::keys::DeclarationKeys {
            container: bench.container("shelves", 0).number,
            declaration,
        };
        let key = PartitionKey::from_header("[\"s1\"]").unwrap();
        let target = quire_model::TargetKey { value: "s1".to_owned(), partition_key: Some(key) };
        let hash = crate::links::TargetHash::of(&target);
        let row = snapshot.get(crate::store::keys::LOOKUPS, &rows.fan_out(&hash.0)).unwrap();
        row.map(|row| super::super::fan_out::FanOutRow::decode(&row).unwrap())
    };
    assert_eq!(row(&bench), None);
    for round in 1..=3 {
        bench.upsert("shelves", &format!(r#"{{"id":"s1","name":"renamed {round}"}}"#)).unwrap();
        let row = row(&bench).unwrap();
        assert_eq!((row.rounds, row.is_deletion), (round, false));
        assert!(row.job > JobId(0));
    }
    assert_eq!(fan_outs(&bench).len(), 2);
    // Whoever is written meanwhile is right at once.
    let book = bench.upsert("books", r#"{"id":"b0","shelf":{"id":"s1"}}"#).unwrap();
    assert_eq!(book.get("shelf").unwrap().get("name"), Some(&Value::from("renamed 3")));
}
