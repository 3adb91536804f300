//! Every refusal of the contract, with its message; nothing of a refused write remains.

use super::*;

fn refused_by(bench: &Bench, write: impl FnOnce() -> String) -> String {
    let before: Vec<String> =
        bench.items().iter().map(|(name, item)| format!("{name} {}", item.to_json())).collect();
    let text = write();
    let after: Vec<String> =
        bench.items().iter().map(|(name, item)| format!("{name} {}", item.to_json())).collect();
    assert_eq!(before, after, "nothing of a refused write remains");
    text
}

fn links(rest: &str) -> String {
    let link =
        r#"{"name":"l","from":{"container":"books","path":"/authors/*/id"},"to":{"container":"authors"}"#;
    format!(r#"{{"version":1,"links":[{link}{rest}"#)
}

#[test]
fn missing_targets_of_enforced_links() {
    let bench = Bench::new(5, LIBRARY, &links(r#","integrity":"enforced"}]}"#));
    let create = |item: &str| refusal(bench.create("books", item));
    let text = refused_by(&bench, || create(r#"{"id":"b","authors":[{},{"id":"a9"}]}"#));
    assert_eq!(
        text,
        "400/6101 LinkTargetMissing: 'l' at /authors/1/id names 'a9', which is not in 'authors'."
    );
    bench.create("books", r#"{"id":"b","authors":[{"id":1},{"id":""},{"id":null}]}"#).unwrap();
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    bench.upsert("books", r#"{"id":"b","authors":[{"id":"a1"},{"id":"a1"}]}"#).unwrap();
    let text = refused_by(&bench, || refusal(bench.delete("authors", "a1", "[\"a1\"]")));
    assert_eq!(text, "409/6102 LinkRestricted: 1 items of 'books' refer to this item by 'l'.");
    bench.delete("books", "b", "[\"b\"]").unwrap();
    bench.delete("authors", "a1", "[\"a1\"]").unwrap();
}

#[test]
fn a_target_that_gets_another_id_goes() {
    let model = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/pub"},"integrity":"enforced",
        "to":{"container":"publishers","partitionKey":[{"value":"eu"}]}}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    bench.create("publishers", r#"{"id":"p1","region":"eu"}"#).unwrap();
    bench.create("books", r#"{"id":"b1","pub":"p1"}"#).unwrap();
    let renamed = || refusal(bench.replace("publishers", "p1", r#"{"id":"p2","region":"eu"}"#));
    assert!(refused_by(&bench, renamed).starts_with("409/6102"));
    assert!(refusal(bench.create("books", r#"{"id":"b2","pub":"p2"}"#)).starts_with("400/6101"));
    bench.delete("books", "b1", "[\"b1\"]").unwrap();
    bench.replace("publishers", "p1", r#"{"id":"p2","region":"eu"}"#).unwrap();
    bench.create("books", r#"{"id":"b2","pub":"p2"}"#).unwrap();
}

#[test]
fn owned_paths_where_clients_are_refused() {
    let rest = r#"}],"onWrite":"refuse","rollups":[{"name":"r","link":"l","op":"count","into":"/n/books"}],
        "copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}]}"#;
    let bench = Bench::new(1, LIBRARY, &links(rest));
    let text = refused_by(&bench, || refusal(bench.create("authors", r#"{"id":"a1","n":{"books":1}}"#)));
    assert_eq!(text, "400/6103 PathOwned: /n/books is maintained by 'r'.");
    bench.create("authors", r#"{"id":"a1","name":"A","n":{"books":0}}"#).unwrap();
    let book = r#"{"id":"b","authors":[{"id":"a1","name":"B"}]}"#;
    let text = refused_by(&bench, || refusal(bench.create("books", book)));
    assert_eq!(text, "400/6103 PathOwned: /authors/0/name is maintained by 'c'.");
    bench.create("books", r#"{"id":"b","authors":[{"id":"a1","name":"A"}]}"#).unwrap();
    // What a patch does not touch it is not wrong about.
    bench
        .patch("authors", "a1", "[\"a1\"]", r#"{"operations":[{"op":"set","path":"/x","value":1}]}"#)
        .unwrap();
    let patch = r#"{"operations":[{"op":"incr","path":"/n/books","value":1}]}"#;
    assert!(refusal(bench.patch("authors", "a1", "[\"a1\"]", patch)).starts_with("400/6103"));
    bench.check("after all");
}

#[test]
fn mirrors_that_are_full_and_items_that_are_large() {
    let bench =
        Bench::new(5, LIBRARY, &links(r#"}],"mirrors":[{"name":"m","link":"l","into":"/books","max":2}]}"#));
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    for id in ["b1", "b2"] {
        bench.create("books", &format!(r#"{{"id":"{id}","authors":[{{"id":"a1"}}]}}"#)).unwrap();
    }
    let third = || refusal(bench.create("books", r#"{"id":"b3","authors":[{"id":"a1"}]}"#));
    let text = refused_by(&bench, third);
    assert_eq!(text, "413/6104 MaintainedTooLarge: 'm' would make the item 'a1' of 'authors' larger than 2.");
    bench.delete("books", "b1", "[\"b1\"]").unwrap();
    bench.create("books", r#"{"id":"b3","authors":[{"id":"a1"}]}"#).unwrap();
    bench.check("after all");

    let bench = Bench::new(
        1,
        LIBRARY,
        &links(r#"}],"mirrors":[{"name":"m","link":"l","into":"/books","value":"r.text"}]}"#),
    );
    bench.create("authors", r#"{"id":"a1"}"#).unwrap();
    let book =
        |id: &str| format!(r#"{{"id":"{id}","text":"{}","authors":[{{"id":"a1"}}]}}"#, "x".repeat(1 << 20));
    bench.create("books", &book("b1")).unwrap();
    let text = refused_by(&bench, || refusal(bench.create("books", &book("b2"))));
    assert_eq!(
        text,
        "413/6104 MaintainedTooLarge: 'm' would make the item 'a1' of 'authors' larger than 2 MB."
    );
    let bench = Bench::new(
        1,
        LIBRARY,
        &links(r#"}],"copies":[{"name":"c","link":"l","fields":{"text":"t.text"}}]}"#),
    );
    bench.create("authors", &book("a1").replace("authors", "x")).unwrap();
    let twice = r#"{"id":"b","authors":[{"id":"a1"},{"id":"a1"}]}"#;
    let text = refused_by(&bench, || refusal(bench.create("books", twice)));
    assert_eq!(text, "413/6104 MaintainedTooLarge: 'c' would make the item 'b' of 'books' larger than 2 MB.");
}

/// All of it would be gigabytes.
#[test]
fn what_is_too_large_is_not_made_first() {
    let model = links(
        r#"}],"fanOutMax":1000,"copies":[{"name":"c","link":"l","fields":{"text":"t.text","in/text":"t.text"}}]}"#,
    );
    let bench = Bench::new(1, LIBRARY, &model);
    let author = |text: usize| format!(r#"{{"id":"a1","text":"{}"}}"#, "x".repeat(text));
    bench.create("authors", &author(1_900_000)).unwrap();
    let book = |reference: &str| format!(r#"{{"id":"b","authors":[{}]}}"#, [reference; 1000].join(","));
    let text = refusal(bench.create("books", &book(r#"{"id":"a1"}"#)));
    assert_eq!(text, "413/6104 MaintainedTooLarge: 'c' would make the item 'b' of 'books' larger than 2 MB.");
    bench.upsert("authors", &author(1_100)).unwrap();
    // Where no object is, nothing is put: what could not be there takes no room.
    bench.create("books", &book(r#"{"id":"a1","in":1}"#)).unwrap();
    let text = refusal(bench.upsert("books", &book(r#"{"id":"a1","in":{}}"#)));
    assert_eq!(text, "413/6104 MaintainedTooLarge: 'c' would make the item 'b' of 'books' larger than 2 MB.");
    bench.delete("books", "b", "[\"b\"]").unwrap();
    for book in 0..500 {
        bench.create("books", &format!(r#"{{"id":"b{book}","authors":[{{"id":"a1","in":1}}]}}"#)).unwrap();
    }
    let text = refusal(bench.upsert("authors", &author(1_900_000)));
    assert_eq!(
        text,
        "413/6109 TooMuchAtOnce: this request would change 500 items; at most 10,000 and 16 MB in one commit."
    );
    bench.check("after all");
}

#[test]
fn more_than_one_commit_takes() {
    let bench =
        Bench::new(5, LIBRARY, &links(r#"}],"rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#));
    let text = "x".repeat(2_000_000);
    for author in 0..9 {
        bench.create("authors", &format!(r#"{{"id":"a{author}","text":"{text}"}}"#)).unwrap();
    }
    let book = |count: usize| {
        let references: Vec<String> = (0..count).map(|at| format!(r#"{{"id":"a{at}"}}"#)).collect();
        format!(r#"{{"id":"b{count}","authors":[{}]}}"#, references.join(","))
    };
    let refused = refusal(bench.create("books", &book(9)));
    let expected =
        "413/6109 TooMuchAtOnce: this request would change 9 items; at most 10,000 and 16 MB in one commit.";
    assert_eq!(refused, expected);
    bench.create("books", &book(7)).unwrap();
    assert_eq!(bench.get("authors", "a6").unwrap().get("n"), Some(&Value::from(1)));
    assert_eq!(bench.get("authors", "a8").unwrap().get("n"), Some(&Value::from(0)));
    // Few referrers that are large are left to a job.
    let model = links(r#"}],"copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}]}"#);
    let bench = Bench::new(5, LIBRARY, &model);
    bench.create("authors", r#"{"id":"a1","name":"A"}"#).unwrap();
    for book in 0..6 {
        bench
            .create("books", &format!(r#"{{"id":"b{book}","text":"{text}","authors":[{{"id":"a1"}}]}}"#))
            .unwrap();
    }
    bench.upsert("authors", r#"{"id":"a1","name":"B"}"#).unwrap();
    let jobs = bench.engine.jobs().unwrap();
    assert_eq!(jobs.iter().filter(|job| job.kind == "fan-out").count(), 1);
}

#[test]
fn too_many_references_and_keys_that_are_taken() {
    let bench = Bench::new(1, LIBRARY, &links("}]}"));
    let many = |count: usize| {
        let references: Vec<String> = (0..count).map(|at| format!(r#"{{"id":"a{at}"}}"#)).collect();
        format!(r#"{{"id":"b","authors":[{}]}}"#, references.join(","))
    };
    let text = refused_by(&bench, || refusal(bench.create("books", &many(1_001))));
    assert_eq!(text, "400/6105 TooManyReferences: 'l' takes at most 1,000 references of one item.");
    bench.create("books", &many(1_000)).unwrap();

    let model = r#"{"version":1,"links":[{"name":"k","from":{"container":"books","path":"/sequelOf"},
        "to":{"container":"books","key":"/isbn","partitionKey":"lookup"}}]}"#;
    let bench = Bench::new(5, LIBRARY, model);
    bench.create("books", r#"{"id":"b1","isbn":"i1"}"#).unwrap();
    let text = refused_by(&bench, || refusal(bench.create("books", r#"{"id":"b2","isbn":"i1"}"#)));
    assert_eq!(
        text,
        "409/6107 LinkKeyTaken: 'i1' at /isbn is taken in 'books', where 'k' finds items by it."
    );
    bench.upsert("books", r#"{"id":"b1","isbn":"i2"}"#).unwrap();
    bench.create("books", r#"{"id":"b2","isbn":"i1"}"#).unwrap();
    assert!(refusal(bench.upsert("books", r#"{"id":"b1","isbn":"i1"}"#)).starts_with("409/6107"));
    bench.delete("books", "b2", "[\"b2\"]").unwrap();
    bench.upsert("books", r#"{"id":"b1","isbn":"i1"}"#).unwrap();
}

/// Everyone who may read asks for the status, and it is no job: it does not read all items of a large container.
#[test]
fn a_status_counts_few_items_only() {
    let bench =
        Bench::new(1, LIBRARY, &links(r#"}],"rollups":[{"name":"n","link":"l","op":"count","into":"/n"}]}"#));
    for author in 0..500 {
        bench.create("authors", &format!(r#"{{"id":"a{author}"}}"#)).unwrap();
    }
    assert_eq!(bench.engine.model_status("d").unwrap().unswept, Some(0));
    bench.create("books", r#"{"id":"b"}"#).unwrap();
    assert_eq!(bench.engine.model_status("d").unwrap().unswept, None);
}
