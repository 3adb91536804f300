//! Writes with triggers.

use quire_engine::{EngineError, WriteKind};

use crate::support::fixture::{json, number_of, text_of};
use crate::{Bench, failure, on_every_storage};

const STAMP: &str = "function () {
    var request = getContext().getRequest(), body = request.getBody();
    body.stamped = request.getOperationType();
    request.setBody(body);
}";
const COUNT: &str = "function () {
    var c = getContext().getCollection();
    c.readDocument(c.getAltLink() + '/docs/count', function (e, d) {
        if (e && e.number != 404) throw e;
        d = d || {id: 'count', pk: 'p', name: 'count', n: 0};
        d.n++;
        c.upsertDocument(c.getSelfLink(), d, function (e) { if (e) throw e; });
    });
}";

fn replace(id: &str) -> WriteKind {
    WriteKind::Replace { id: id.to_owned() }
}

fn delete(id: &str) -> WriteKind {
    WriteKind::Delete { id: id.to_owned() }
}

#[test]
fn they_run_before_and_after_every_kind_of_write() {
    on_every_storage(|bench| {
        bench.trigger("stamp", "Pre", "All", STAMP);
        bench.trigger("count", "Post", "all", COUNT);
        let first = bench.lsn();
        for (kind, n, stamped) in
            [(WriteKind::Create, 1, "Create"), (replace("a"), 2, "Replace"), (WriteKind::Upsert, 3, "Upsert")]
        {
            let written =
                bench.write(kind, r#"{"id":"a","pk":"p","name":1}"#, "stamp", "count").result.unwrap();
            assert_eq!(written.created, n == 1);
            let (answered, stored) = (crate::value(&written.body), bench.item("a").unwrap());
            assert_eq!(answered.to_json(), stored.to_json());
            assert_eq!(text_of(&stored, "_etag"), written.etag);
            assert_eq!(text_of(&stored, "stamped"), stamped);
            assert_eq!(number_of(&bench.item("count").unwrap(), "n"), n);
        }
        let gone = bench.write(delete("a"), "", "", "count").result.unwrap();
        assert!(gone.body.is_empty() && gone.etag.is_empty());
        assert!(bench.item("a").is_none());
        assert_eq!(number_of(&bench.item("count").unwrap(), "n"), 4);
        assert_eq!(bench.lsn(), first + 4, "each is one transaction");
    });
}

#[test]
fn operations_match_exactly() {
    let bench = Bench::new();
    bench.0.create(r#"{"id":"a","pk":"p","name":1}"#).unwrap();
    let operations = ["All", "Create", "Replace", "Update", "Upsert", "Delete"];
    type Case = (fn() -> WriteKind, &'static str, &'static [&'static str]);
    let kinds: [Case; 4] = [
        (|| WriteKind::Create, r#"{"id":"new","pk":"p","name":2}"#, &["All", "Create"]),
        (|| replace("a"), r#"{"id":"a","pk":"p","name":1}"#, &["All", "Replace", "Update"]),
        (|| WriteKind::Upsert, r#"{"id":"a","pk":"p","name":1}"#, &["All", "Upsert"]),
        (|| delete("new"), "", &["All", "Delete"]),
    ];
    for operation in operations {
        bench.trigger(operation, "pre", &operation.to_lowercase(), "function () {}");
        for (kind, body, fitting) in kinds {
            let result = bench.write(kind(), body, operation, "").result;
            let said = failure(result);
            if fitting.contains(&operation) {
                let expected = ["succeeded", "item \"new\" not found"];
                assert!(expected.contains(&said.as_str()), "{operation} {body}: {said}");
            } else {
                assert!(said.contains("was defined with operation type"), "{operation} {body}: {said}");
            }
        }
        bench.0.delete("new", crate::KEY).ok();
    }
    bench.trigger("update", "Pre", "Update", "function () {}");
    let said = failure(bench.write(WriteKind::Upsert, r#"{"id":"a","pk":"p"}"#, "update", "").result);
    assert_eq!(
        said,
        "Trigger 'update' was defined with operation type 'Update', and therefore is invalid for 'Upsert'."
    );
}

#[test]
fn the_type_must_be_that_of_the_header() {
    let bench = Bench::new();
    bench.trigger("pre", "Pre", "All", "function () {}");
    bench.trigger("post", "Post", "All", "function () {}");
    let body = r#"{"id":"a","pk":"p"}"#;
    assert!(failure(bench.create(body, "post", "")).contains("type 'Post'"));
    assert!(failure(bench.create(body, "", "pre")).contains("type 'Pre'"));
    assert!(failure(bench.create(body, "none", "")).contains("does not exist"));
    assert!(bench.ids().is_empty());
    bench.create(body, "pre", "post").unwrap();
}

#[test]
fn a_pre_trigger_may_change_all_but_the_partition_key() {
    let bench = Bench::new();
    let set = |member: &str| {
        format!(
            "function () {{ var r = getContext().getRequest(), b = r.getBody(); b.{member}; r.setBody(b); }}"
        )
    };
    bench.trigger("id", "Pre", "All", &set("id = 'other'"));
    bench.trigger("noid", "Pre", "All", &set("id = undefined"));
    bench.trigger("key", "Pre", "All", &set("pk = 'q'"));
    bench.trigger("ttl", "Pre", "All", &set("ttl = 'x'"));
    bench.trigger(
        "place",
        "Pre",
        "All",
        "function () { getContext().getRequest().getBody().silently = true; }",
    );
    bench.trigger("drop", "Pre", "All", "function () { getContext().getRequest().setBody(undefined); }");
    let body = r#"{"id":"a","pk":"p","name":1}"#;
    assert_eq!(text_of(&bench.create(body, "id", "").unwrap(), "id"), "other");
    assert_eq!(bench.ids(), ["other"]);
    for wrong in ["noid", "key", "ttl", "drop"] {
        assert_ne!(
            failure(bench.create(r#"{"id":"b","pk":"p","name":2}"#, wrong, "")),
            "succeeded",
            "{wrong}"
        );
    }
    // The id of a replace is that of its link.
    assert_ne!(
        failure(bench.write(replace("other"), r#"{"id":"other","pk":"p"}"#, "noid", "").result),
        "succeeded"
    );
    assert_eq!(bench.ids(), ["other"]);
    bench.create(r#"{"id":"c","pk":"p","name":3}"#, "place", "").unwrap();
    assert_eq!(bench.plain("c"), r#"{"id":"c","pk":"p","name":3,"silently":true}"#);
}

#[test]
fn a_pre_trigger_may_give_what_the_client_left_out() {
    let bench = Bench::new();
    bench.trigger(
        "id",
        "Pre",
        "Create",
        "function () { var b = getContext().getRequest().getBody(); b.id = 'made'; }",
    );
    assert_eq!(text_of(&bench.create(r#"{"pk":"p"}"#, "id", "").unwrap(), "id"), "made");
}

#[test]
fn preconditions_come_before_the_pre_trigger() {
    let bench = Bench::new();
    bench.0.create(r#"{"id":"a","pk":"p","name":1}"#).unwrap();
    bench.trigger("loud", "Pre", "All", "function () { throw new Error(777, 'it ran'); }");
    let body = r#"{"id":"a","pk":"p","name":1}"#;
    for kind in [replace("a"), WriteKind::Upsert, delete("a")] {
        let sent = if matches!(kind, WriteKind::Delete { .. }) { "" } else { body };
        let result = bench.write_if(kind, sent, "loud", "", Some("\"stale\"")).result;
        assert!(matches!(result, Err(EngineError::PreconditionFailed)), "{}", failure(result));
    }
    let missing = bench.write(replace("none"), r#"{"id":"none","pk":"p"}"#, "loud", "").result;
    assert!(matches!(missing, Err(EngineError::ItemNotFound { .. })));
    // Unique keys and the id of a create come after it.
    assert!(failure(bench.create(body, "loud", "")).starts_with("777 "));
}

#[test]
fn a_post_trigger_shapes_the_answer_and_not_the_item() {
    let bench = Bench::new();
    bench.trigger(
        "shape",
        "Post",
        "All",
        "function () {
            var response = getContext().getResponse(), stored = response.getBody();
            response.setBody({was: stored.id, etag: stored._etag, sent: getContext().getRequest().getBody()});
        }",
    );
    let body = r#"{"id":"a","pk":"p","name":1}"#;
    let answered = bench.create(body, "", "shape").unwrap();
    assert_eq!(text_of(&answered, "was"), "a");
    assert_eq!(text_of(&answered, "etag"), text_of(&bench.item("a").unwrap(), "_etag"));
    assert_eq!(answered.get("sent").unwrap().to_json(), json(body).to_json());
    assert_eq!(bench.plain("a"), body);
}

#[test]
fn a_post_trigger_sees_and_may_delete_what_was_written() {
    on_every_storage(|bench| {
        bench.trigger(
            "undo",
            "Post",
            "Create",
            "function () {
                var c = getContext().getCollection();
                c.readDocuments(c.getSelfLink(), function (e, all) {
                    if (e || all.length != 1) throw e || new Error('sees ' + all.length);
                    c.deleteDocument(all[0]._self, function (e) { if (e) throw e; });
                });
            }",
        );
        assert_eq!(text_of(&bench.create(r#"{"id":"a","pk":"p"}"#, "", "undo").unwrap(), "id"), "a");
        assert!(bench.ids().is_empty());
    });
}

#[test]
fn a_post_trigger_does_not_find_it_by_query() {
    let bench = Bench::new();
    bench.trigger(
        "count",
        "Post",
        "Create",
        "function () {
            var c = getContext().getCollection();
            c.queryDocuments(c.getSelfLink(), 'SELECT VALUE COUNT(1) FROM c', function (e, r) {
                getContext().getResponse().setBody(r);
            });
        }",
    );
    for (id, expected) in [("a", "[0]"), ("b", "[1]")] {
        let body = format!(r#"{{"id":"{id}","pk":"p","name":"{id}"}}"#);
        assert_eq!(bench.create(&body, "", "count").unwrap().to_json(), expected);
    }
}

#[test]
fn a_failing_trigger_undoes_the_write() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"old","pk":"p","name":0,"n":1}"#).unwrap();
        let fails = "function () {
            var c = getContext().getCollection();
            c.createDocument(c.getSelfLink(), {id: 'side', pk: 'p', name: 'side'}, function () { throw new Error(4444, 'no'); });
        }";
        bench.trigger("pre", "Pre", "All", fails);
        bench.trigger("post", "Post", "All", fails);
        bench.trigger("broken", "Post", "All", "serverScript() { var x = 10; }");
        let before = bench.lsn();
        for (pre, post) in [("pre", ""), ("", "post"), ("", "broken")] {
            for (kind, body) in [
                (WriteKind::Create, r#"{"id":"new","pk":"p","name":1}"#),
                (WriteKind::Upsert, r#"{"id":"old","pk":"p","name":0,"n":2}"#),
                (replace("old"), r#"{"id":"old","pk":"p","name":0,"n":2}"#),
                (delete("old"), ""),
            ] {
                let said = failure(bench.write(kind, body, pre, post).result);
                assert!(said.starts_with("4444 ") || said.contains("compiling"), "{said}");
                assert_eq!((bench.ids(), bench.lsn()), (vec!["old".to_owned()], before));
                assert_eq!(number_of(&bench.item("old").unwrap(), "n"), 1);
            }
        }
    });
}

#[test]
fn unique_keys_hold_over_triggers() {
    let bench = Bench::new();
    bench.0.create(r#"{"id":"a","pk":"p","name":"taken"}"#).unwrap();
    bench.trigger(
        "name",
        "Pre",
        "All",
        "function () { getContext().getRequest().getBody().name = 'taken'; }",
    );
    let result = bench.create(r#"{"id":"b","pk":"p","name":"free"}"#, "name", "");
    assert!(matches!(result, Err(EngineError::UniqueKeyTaken { .. })), "{}", failure(result));
    bench.trigger(
        "side",
        "Pre",
        "All",
        "function () { var c = getContext().getCollection(); c.createDocument(c.getSelfLink(), {id: 'side', pk: 'p', name: 'mine'}); }",
    );
    let result = bench.create(r#"{"id":"b","pk":"p","name":"mine"}"#, "side", "");
    assert!(matches!(result, Err(EngineError::UniqueKeyTaken { .. })), "{}", failure(result));
    assert_eq!(bench.ids(), ["a"]);
}

#[test]
fn they_read_headers_of_the_request() {
    let bench = Bench::new();
    bench.trigger(
        "read",
        "Pre",
        "All",
        "function () { var r = getContext().getRequest(); r.getBody().by = r.getValue('x-ms-activity-id'); }",
    );
    assert_eq!(text_of(&bench.create(r#"{"id":"a","pk":"p"}"#, "read", "").unwrap(), "by"), "a1");
}

#[test]
fn deletes_have_no_bodies() {
    let bench = Bench::new();
    bench.0.create(r#"{"id":"a","pk":"p"}"#).unwrap();
    bench.trigger(
        "look",
        "Pre",
        "Delete",
        "function () { var b = getContext().getRequest().getBody(); if (b) throw new Error('body ' + JSON.stringify(b)); }",
    );
    bench.trigger(
        "look2",
        "Post",
        "Delete",
        "function () { var b = getContext().getResponse().getBody(); if (b) throw new Error('body ' + JSON.stringify(b)); }",
    );
    bench.write(delete("a"), "", "look", "look2").result.unwrap();
    assert!(bench.ids().is_empty());
}

/// A patch counts as a replace, with the item that it makes.
#[test]
fn patches_run_triggers_for_replace() {
    on_every_storage(|bench| {
        bench.0.create(r#"{"id":"a","pk":"p","n":1}"#).unwrap();
        let patch = || WriteKind::Patch { id: "a".to_owned(), if_none_match: None };
        let body = r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
        for operation in ["Create", "Upsert", "Delete"] {
            bench.trigger(operation, "Pre", operation, "function () {}");
            let said = failure(bench.write(patch(), body, operation, "").result);
            assert!(said.contains("is invalid for 'Replace'"), "{said}");
        }
        bench.trigger(
            "more",
            "Pre",
            "Replace",
            "function () {
                var r = getContext().getRequest(), b = r.getBody();
                if (b.n !== 2) throw new Error('the item as it was: ' + JSON.stringify(b));
                b.by = r.getOperationType();
                r.setBody(b);
            }",
        );
        bench.trigger(
            "after",
            "Post",
            "All",
            "function () {
                var r = getContext().getResponse(), sent = getContext().getRequest().getBody();
                r.setBody({n: r.getBody().n, sent: sent.n});
            }",
        );
        let written = bench.write(patch(), body, "more", "after").result.unwrap();
        assert_eq!(crate::value(&written.body).to_json(), r#"{"n":2,"sent":2}"#);
        assert_eq!(bench.plain("a"), r#"{"id":"a","pk":"p","n":2,"by":"Replace"}"#);
        bench.trigger("fails", "Post", "Replace", "function () { throw new Error(9, 'no'); }");
        assert!(failure(bench.write(patch(), body, "", "fails").result).starts_with("9 "));
        assert_eq!(number_of(&bench.item("a").unwrap(), "n"), 2);
        let stale = bench.write_if(patch(), body, "more", "", Some("\"stale\"")).result;
        assert!(matches!(stale, Err(EngineError::PreconditionFailed)));
        let unmet =
            r#"{"condition":"from c where c.n = 7","operations":[{"op":"incr","path":"/n","value":1}]}"#;
        let said = failure(bench.write(patch(), unmet, "more", "").result);
        assert_eq!(said, "the condition of the patch is not met");
    });
}

#[test]
fn writes_of_triggers_fire_no_triggers() {
    let bench = Bench::new();
    bench.trigger("count", "Post", "All", COUNT);
    bench.create(r#"{"id":"a","pk":"p","name":1}"#, "", "count").unwrap();
    assert_eq!(number_of(&bench.item("count").unwrap(), "n"), 1);
}

#[test]
fn bad_bodies_fail_as_without_triggers() {
    let bench = Bench::new();
    bench.trigger("pre", "Pre", "All", "function () {}");
    for body in ["", "{", "[]", "1", r#"{"id":"a","id":"b","pk":"p"}"#, r#"{"id":"a","pk":"q"}"#, "\u{0}"] {
        let with = bench.create(body, "pre", "");
        let without = bench.create(body, "", "");
        assert!(with.is_err() && without.is_err(), "{body:?}");
    }
    assert!(bench.ids().is_empty());
}

#[test]
fn a_write_with_triggers_costs_its_parts() {
    let bench = Bench::new();
    bench.trigger("nothing", "Pre", "All", "function () {}");
    bench.trigger("nothing2", "Post", "All", "function () {}");
    let plain = bench.write(WriteKind::Create, r#"{"id":"a","pk":"p","name":1}"#, "", "");
    let with = bench.write(WriteKind::Create, r#"{"id":"b","pk":"p","name":2}"#, "nothing", "nothing2");
    assert_eq!(with.charge, plain.charge + 2.0);
    assert_eq!(with.position.unwrap().lsn, bench.lsn());
}

#[test]
fn concurrent_writes_with_triggers_lose_nothing() {
    on_every_storage(|bench| {
        bench.trigger("count", "Post", "Create", COUNT);
        std::thread::scope(|scope| {
            for thread in 0..6 {
                scope.spawn(move || {
                    for number in 0..10 {
                        let body =
                            format!(r#"{{"id":"{thread}-{number}","pk":"p","name":"{thread}-{number}"}}"#);
                        bench.create(&body, "", "count").unwrap();
                    }
                });
            }
        });
        assert_eq!(number_of(&bench.item("count").unwrap(), "n"), 60);
        assert_eq!(bench.ids().len(), 61);
    });
}
