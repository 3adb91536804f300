//! What a procedure can do and see, and what it answers.

use quire_engine::{EngineError, ScriptError};

use crate::support::fixture::{Fixture, json, text_of};
use crate::{Bench, KEY, failure, on_every_storage};

#[test]
fn all_that_a_collection_can_do() {
    on_every_storage(|bench| {
        for (text, expected) in [
            (
                "c.createDocument(link, {id: 'a', pk: 'p', n: 1}, (e, d, r) => done([d.id, d.n, r.statusCode, typeof d._etag]))",
                r#"["a",1,201,"string"]"#,
            ),
            ("c.readDocument(doc('a'), (e, d) => done(d.n))", "1"),
            ("c.readDocument(doc('a'), (e, d) => c.readDocument(d._self, (e, d) => done(d.id)))", r#""a""#),
            (
                "c.readDocument(doc('a'), (e, d) => c.readDocument(d._self, {ifNoneMatch: d._etag}, (e, d, r) => done([d === undefined, r.notModified])))",
                "[true,true]",
            ),
            (
                "c.upsertDocument(link, {id: 'a', pk: 'p', n: 2}, (e, d, r) => done([d.n, r.statusCode]))",
                "[2,200]",
            ),
            (
                "c.upsertDocument(link, {id: 'b', pk: 'p', name: 'b', n: 3}, (e, d, r) => done(r.statusCode))",
                "201",
            ),
            (
                "c.replaceDocument(doc('b'), {id: 'b', pk: 'p', name: 'b', n: 4}, (e, d, r) => done([d.n, r.statusCode]))",
                "[4,200]",
            ),
            (
                "c.readDocument(doc('b'), (e, d) => { d.n = 5; c.replaceDocument(d._self, d, {etag: d._etag}, (e, d) => done(d.n)) })",
                "5",
            ),
            (
                "c.readDocuments(link, (e, ds, r) => done([ds.map(d => d.id), r.continuation === undefined]))",
                r#"[["a","b"],true]"#,
            ),
            (
                "c.queryDocuments(link, 'SELECT VALUE c.n FROM c ORDER BY c.n DESC', (e, r) => done(r))",
                "[5,2]",
            ),
            (
                "c.queryDocuments(link, {query: 'SELECT VALUE c.id FROM c WHERE c.n = @n', parameters: [{name: '@n', value: 5}]}, (e, r) => done(r))",
                r#"["b"]"#,
            ),
            ("__.filter(d => d.n > 2, (e, r) => done(r.map(d => d.id)))", r#"["b"]"#),
            (
                "c.deleteDocument(doc('a'), {partitionKeyContent: '[\"p\"]'}, (e, r) => done(r.statusCode))",
                "204",
            ),
            (
                "c.readDocument(doc('b'), (e, d) => c.deleteDocument(d._self, {etag: d._etag}, (e) => done(e === undefined)))",
                "true",
            ),
            ("c.readDocuments(link, (e, ds) => done(ds.length))", "0"),
        ] {
            assert_eq!(bench.run(text).expect(text), expected, "{text}");
        }
        assert!(bench.ids().is_empty());
    });
}

#[test]
fn errors_go_to_the_callback() {
    let bench = Bench::new();
    bench.run("c.createDocument(link, {id: 'a', pk: 'p', name: 'x'})").unwrap();
    for (text, expected) in [
        ("c.readDocument(doc('z'), tell)", "404"),
        ("c.readDocument(link + 'docs/zzzzzzzzzzzzzzzzzzzzzz==/', tell)", "404"),
        ("c.createDocument(link, {id: 'a', pk: 'p'}, tell)", "409"),
        ("c.createDocument(link, {id: 'b', pk: 'p', name: 'x'}, tell)", "409"),
        ("c.replaceDocument(doc('z'), {id: 'z', pk: 'p'}, tell)", "404"),
        ("c.replaceDocument(doc('a'), {id: 'b', pk: 'other'}, tell)", "400"),
        ("c.replaceDocument(doc('a'), {id: 'a', pk: 'p'}, {etag: 'old'}, tell)", "412"),
        ("c.upsertDocument(link, {id: 'a', pk: 'p'}, {etag: 'old'}, tell)", "412"),
        ("c.deleteDocument(doc('a'), {etag: 'old'}, tell)", "412"),
        ("c.deleteDocument(doc('z'), tell)", "404"),
        ("c.deleteDocument(doc('a'), {partitionKeyContent: '[\"q\"]'}, tell)", "400"),
        ("c.deleteDocument(doc('a'), {partitionKeyContent: 'q'}, tell)", "400"),
        ("c.createDocument(link, {id: 'b', pk: 'q'}, tell)", "400"),
        ("c.createDocument(link, {id: 'b'}, tell)", "400"),
        ("c.createDocument(link, {pk: 'p'}, {disableAutomaticIdGeneration: true}, tell)", "400"),
        ("c.createDocument(link, {id: 'b', pk: 'p', ttl: 'x'}, tell)", "400"),
        ("c.createDocument(link, {id: 'b', pk: 'p', text: 'x'.repeat(3e6)}, tell)", "413"),
        ("c.queryDocuments(link, 'SELECT', tell)", "400"),
        ("c.queryDocuments(link, 'SELECT VALUE 1/0', tell)", "400"),
        ("c.queryDocuments(link, 'SELECT * FROM c', {continuation: 'nonsense'}, tell)", "400"),
        ("c.readDocuments(link, {continuation: 'nonsense'}, tell)", "400"),
    ] {
        let answer = bench.run(&format!("function tell(e) {{ done(e ? e.number : 'no error'); }} {text}"));
        assert_eq!(answer.expect(text), expected, "{text}");
    }
    assert_eq!(bench.plain("a"), r#"{"id":"a","pk":"p","name":"x"}"#, "nothing was changed");
    assert_eq!(bench.ids(), ["a"]);
}

#[test]
fn an_error_without_callback_undoes_everything() {
    let bench = Bench::new();
    let before = bench.lsn();
    let text = "c.createDocument(link, {id: 'a', pk: 'p'}); c.readDocument(doc('z'))";
    assert!(failure(bench.run(text)).starts_with("404 "));
    assert_eq!((bench.ids().len(), bench.lsn()), (0, before));
}

#[test]
fn the_wrong_partition_key_is_named() {
    let error = Bench::new().run("c.createDocument(link, {id: 'a', pk: 'other'})");
    assert!(failure(error).contains("cannot reference partition keys other than the one"));
}

#[test]
fn parameters_and_results() {
    let bench = Bench::new();
    bench.procedure("count", "function () { getContext().getResponse().setBody([].slice.call(arguments)); }");
    for (parameters, expected) in [
        (r#"["one", 2, {"x": [true]}]"#, r#"["one",2,{"x":[true]}]"#),
        ("[]", "[]"),
        ("", "[]"),
        ("null", "[]"),
        (r#"{"param": 4}"#, "[]"),
        (r#"{"0": "a", "2": "c", "length": "3"}"#, r#"["a",null,"c"]"#),
    ] {
        assert_eq!(bench.execute("count", parameters).expect(parameters), expected, "{parameters}");
    }
    for wrong in [r#""text""#, "0", "false", "[", "undefined", r#"{"length": 1e9}"#] {
        let refused = bench.execute("count", wrong);
        let is_refused = |error: &EngineError| matches!(error, EngineError::Script(failure) if matches!(failure.error, ScriptError::Parameters { .. }));
        assert!(refused.as_ref().is_err_and(is_refused), "{wrong}: {refused:?}");
    }
    assert_eq!(bench.run("").unwrap(), r#""""#);
    assert_eq!(bench.run("done('x')").unwrap(), r#""x""#);
    assert_eq!(bench.run("return 5").unwrap(), r#""""#);
    assert_eq!(bench.run("done(getContext().getRequest().getValue('x-ms-activity-id'))").unwrap(), r#""a1""#);
    assert_eq!(bench.execute("__.sys.echo", r#"[{"a": 1}]"#).unwrap(), r#"{"a":1}"#);
}

#[test]
fn a_procedure_that_is_not_there() {
    let bench = Bench::new();
    assert!(matches!(bench.execute("none", ""), Err(EngineError::ResourceNotFound { .. })));
    bench.procedure("gone", "function () {}");
    bench.execute("gone", "").unwrap();
    bench.delete_procedure("gone");
    assert!(matches!(bench.execute("gone", ""), Err(EngineError::ResourceNotFound { .. })));
}

#[test]
fn a_replaced_procedure_runs_as_it_is_now() {
    let bench = Bench::new();
    for expected in ["1", "2", "3"] {
        assert_eq!(bench.run(&format!("done({expected})")).unwrap(), expected);
    }
}

#[test]
fn every_partition_key_has_its_own_items() {
    let bench = Bench::new();
    for (number, key) in [r#"["p"]"#, "[null]", "[{}]", "[1.5]", "[true]", r#"[""]"#].iter().enumerate() {
        let member = match *key {
            "[{}]" => String::new(),
            key => format!("pk: {},", &key[1..key.len() - 1]),
        };
        let text = format!(
            "c.createDocument(link, {{id: 'same', {member} n: {number}}}, (e, d) => c.readDocuments(link, (e, ds) => done(ds.map(d => d.n))))"
        );
        let done = bench.run_in(key, &text).result.expect(key);
        assert_eq!(done.body, format!("[{number}]"), "{key}");
    }
    assert_eq!(bench.ids().len(), 6);
}

#[test]
fn a_prefix_of_a_hierarchical_key_is_no_partition() {
    let fixture = Fixture::with_key(r#"{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#, "", 3);
    let bench = Bench(fixture);
    let text = "c.createDocument(link, {id: 'x', a: 1, b: 2}, (e, d) => done(e ? e.number : d.id))";
    assert_eq!(bench.run_in("[1,2]", text).result.unwrap().body, r#""x""#);
    assert_eq!(bench.run_in("[1,3]", text).result.unwrap().body, "400");
    for short in ["[1]", "[]", "[1,2,3]"] {
        let answer = bench.run_in(short, text);
        assert!(
            matches!(answer.result, Err(EngineError::BadPartitionKey(_))),
            "{short}: {:?}",
            answer.result
        );
    }
}

#[test]
fn logs_are_kept_also_when_it_fails() {
    let bench = Bench::new();
    let answer = bench.run_in(KEY, "console.log('a %s b', 1); console.log('c')");
    assert_eq!(answer.result.unwrap().log.as_deref(), Some("a 1 bc"));
    match bench.run_in(KEY, "console.log('until here'); throw new Error(77, 'stop')").result {
        Err(EngineError::Script(failure)) => assert_eq!(failure.log.as_deref(), Some("until here")),
        other => panic!("{other:?}"),
    }
    let swallowed = bench.run_in(KEY, "Promise.reject(new Error('unseen')); done(1)").result.unwrap();
    assert_eq!(swallowed.body, "1");
    assert!(swallowed.log.unwrap().contains("1 promise(s) were rejected"));
}

#[test]
fn thrown_values_are_in_the_error() {
    let bench = Bench::new();
    assert!(failure(bench.run("throw new Error(4444, 'mine')")).starts_with("4444 "));
    assert!(failure(bench.run("throw 'text'")).contains("text"));
    assert!(failure(bench.run("getContext().abort(new Error(55, 'x'))")).starts_with("55 "));
    assert!(failure(bench.run("nonsense(")).contains("compiling"));
}

#[test]
fn the_answer_says_what_it_cost_and_where_the_partition_stands() {
    let bench = Bench::new();
    let nothing = bench.run_in(KEY, "");
    assert_eq!(nothing.charge, 1.0);
    assert_eq!(nothing.position.unwrap().lsn, bench.lsn());
    let text = "c.createDocument(link, {id: 'a', pk: 'p', name: 2})";
    let answer = bench.run_in(KEY, text);
    answer.result.unwrap();
    let single = bench.0.write(quire_engine::WriteKind::Create, None, r#"{"id":"b","pk":"p","name":1}"#);
    assert_eq!(answer.charge, 1.0 + single.charge);
    assert_eq!(answer.position.unwrap().lsn + 1, bench.lsn());
    let failed =
        bench.run_in(KEY, "c.createDocument(link, {id: 'c', pk: 'p', name: 3}, () => { throw 'x' })");
    assert!(failed.result.is_err());
    assert_eq!(failed.charge, 1.0 + single.charge);
}

#[test]
fn pages_go_on_in_a_later_execution() {
    on_every_storage(|bench| {
        for number in 0..7 {
            bench.0.create(&format!(r#"{{"id":"{number}","pk":"p","name":{number}}}"#)).unwrap();
        }
        bench.procedure(
            "pages",
            "function (query, continuation) {
                var c = getContext().getCollection(), link = c.getSelfLink();
                var options = {pageSize: 3, continuation: continuation};
                var answer = function (e, found, r) {
                    if (e) throw e;
                    getContext().getResponse().setBody({found: found.map(d => d.id), next: r.continuation});
                };
                if (query) c.queryDocuments(link, query, options, answer);
                else c.readDocuments(link, options, answer);
            }",
        );
        for query in ["null", r#""SELECT * FROM c""#, r#""SELECT * FROM c ORDER BY c.id DESC""#] {
            let mut found = Vec::new();
            let mut next = "null".to_owned();
            loop {
                let page = json(&bench.execute("pages", &format!("[{query}, {next}]")).unwrap());
                let ids = page.get("found").unwrap().as_array().unwrap().to_vec();
                assert!(ids.len() <= 3);
                found.extend(ids.iter().map(|id| id.as_str().unwrap().to_owned()));
                match page.get("next") {
                    Some(token) => next = token.to_json(),
                    None => break,
                }
                // In between others write.
                bench.0.upsert(r#"{"id":"3","pk":"p","name":3,"n":1}"#).unwrap();
            }
            if query.contains("DESC") {
                found.reverse();
            }
            assert_eq!(found, ["0", "1", "2", "3", "4", "5", "6"], "{query}");
        }
    });
}

#[test]
fn page_sizes() {
    let bench = Bench::new();
    for number in 0..5 {
        bench.0.create(&format!(r#"{{"id":"{number}","pk":"p","name":{number}}}"#)).unwrap();
    }
    for (size, expected) in
        [("2", "2"), ("-1", "5"), ("1000000", "5"), ("0", "refused"), ("'x'", "refused"), ("1.5", "refused")]
    {
        for call in ["readDocuments(link", "queryDocuments(link, 'SELECT * FROM c'"] {
            let text = format!("c.{call}, {{pageSize: {size}}}, (e, ds) => done(ds.length))");
            let found = bench.run(&text);
            let found = found.unwrap_or_else(|error| {
                assert!(failure::<()>(Err(error)).starts_with("400 "), "{text}");
                "refused".to_owned()
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn aggregates_over_nothing() {
    let bench = Bench::new();
    for (query, expected) in [
        ("SELECT VALUE COUNT(1) FROM c", "[0]"),
        ("SELECT VALUE MAX(c.n) FROM c", "[]"),
        ("SELECT VALUE SUM(c.n) FROM c", "[0]"),
    ] {
        let text = format!("c.queryDocuments(link, '{query}', (e, r) => done(r))");
        assert_eq!(bench.run(&text).unwrap(), expected, "{query}");
    }
}

#[test]
fn an_item_can_be_left_out_of_the_index() {
    let bench = Bench::new();
    bench
        .run("c.createDocument(link, {id: 'in', pk: 'p', name: 1, n: 1}); c.createDocument(link, {id: 'out', pk: 'p', name: 2, n: 1}, {indexAction: 'exclude'})")
        .unwrap();
    assert_eq!(bench.ids().len(), 2);
    // As for any write: it has no index rows, and queries know that there are such items.
    let found = bench.0.all(Some("SELECT VALUE c.id FROM c WHERE c.n = 1"), &Default::default(), 10);
    assert_eq!(quire_value::Value::Array(found).to_json(), r#"["in","out"]"#);
    assert!(
        failure(bench.run("c.createDocument(link, {id: 'x', pk: 'p'}, {indexAction: 'x'})"))
            .starts_with("400 ")
    );
}

#[test]
fn ids_are_made_where_they_are_missing() {
    let bench = Bench::new();
    let made = bench.run("c.createDocument(link, {pk: 'p'}, (e, d) => done(d.id))").unwrap();
    assert_eq!(bench.ids(), [json(&made).as_str().unwrap()]);
}

#[test]
fn system_properties_of_what_was_written_are_final() {
    on_every_storage(|bench| {
        let shown = bench.run("c.createDocument(link, {id: 'a', pk: 'p'}, (e, d) => done(d))").unwrap();
        let shown = json(&shown);
        let stored = bench.item("a").unwrap();
        for name in ["id", "_rid", "_self", "_etag"] {
            assert_eq!(text_of(&shown, name), text_of(&stored, name), "{name}");
        }
        assert_eq!(shown.get("_ts"), stored.get("_ts"));
        let replace = format!(
            "c.replaceDocument(doc('a'), {{id: 'a', pk: 'p'}}, {{etag: {}}}, e => done(e ? e.number : 0))",
            shown.get("_etag").unwrap().to_json()
        );
        assert_eq!(bench.run(&replace).unwrap(), "0");
        assert_eq!(bench.run(&replace).unwrap(), "412", "it has another one now");
    });
}

#[test]
fn a_deleted_container_runs_nothing() {
    let bench = Bench::new();
    bench.procedure("x", "function () {}");
    bench.0.engine.catalog().delete_container("db", "c", &Default::default()).unwrap();
    assert!(matches!(bench.execute("x", ""), Err(EngineError::ResourceNotFound { .. })));
}
