//! Members, names, paths and limits of the body.

use super::*;

#[test]
fn members_are_what_they_must_be() {
    check("[]", &["BadValue : 'model' must be an object."]);
    check("{}", &["BadValue : 'version' is missing."]);
    check(r#"{"version":2}"#, &["BadValue /version: 'version' must be 1."]);
    check(
        r#"{"version":1,"onwrite":"correct","links":{},"mirrors":[7]}"#,
        &[
            "BadValue /links: 'links' must be a list of objects.",
            "BadValue /mirrors/0: 'mirrors' must be a list of objects.",
            "BadValue /onwrite: 'onwrite' is not known here.",
        ],
    );
    check(
        r#"{"version":1,"onWrite":"fix","fanOutMax":1001,"ifMatch":null}"#,
        &[
            r#"BadValue /onWrite: 'onWrite' must be "correct" or "refuse"."#,
            "BadValue /fanOutMax: 'fanOutMax' must be an integer from 0 to 1,000.",
            r#"BadValue /ifMatch: 'ifMatch' must be "exact" or "client"."#,
        ],
    );
    check(
        r#"{"version":1,"links":[{}]}"#,
        &[
            "BadValue /links/0: 'name' is missing.",
            "BadValue /links/0: 'from' is missing.",
            "BadValue /links/0: 'to' is missing.",
        ],
    );
    check(
        r#"{"version":1,"links":[{"name":"l","from":{},"to":{"key":1,"convert":"text","x":1},"integrity":"strong","onDelete":1}]}"#,
        &[
            "BadValue /links/0/from: 'container' is missing.",
            "BadValue /links/0/from: 'path' is missing.",
            "BadValue /links/0/to: 'container' is missing.",
            "BadValue /links/0/to/key: 'key' must be a string.",
            r#"BadValue /links/0/to/convert: 'convert' must be "none" or "string"."#,
            "BadValue /links/0/to/x: 'x' is not known here.",
            r#"BadValue /links/0/integrity: 'integrity' must be "weak" or "enforced"."#,
            r#"BadValue /links/0/onDelete: 'onDelete' must be "allow", "restrict", "cascade" or "remove"."#,
        ],
    );
}

#[test]
fn members_of_what_is_maintained() {
    check(
        &linked(
            r#""copies":[{},{"name":"c","link":"ba","fields":{},"onMissing":"drop"},{"name":"d","link":"ba","fields":{"x":1},"into":"/y"}]"#,
        ),
        &[
            "BadValue /copies/0: 'name' is missing.",
            "BadValue /copies/0: 'link' is missing.",
            "BadValue /copies/0: 'fields' is missing.",
            "BadValue /copies/1/fields: 'fields' must be an object with at least one member.",
            r#"BadValue /copies/1/onMissing: 'onMissing' must be "remove" or "keep"."#,
            "BadValue /copies/2/into: 'into' is not known here.",
            "BadValue /copies/2/fields/x: 'x' must be a string.",
        ],
    );
    check(
        &linked(
            r#""mirrors":[{"name":"m","link":"ba","into":"/m","max":0,"whenFull":"stop"},{"name":"n","link":"ba","into":"/n","max":10001,"value":7}]"#,
        ),
        &[
            "BadValue /mirrors/0/max: 'max' must be an integer from 1 to 10,000.",
            r#"BadValue /mirrors/0/whenFull: 'whenFull' must be "refuse" or "cut"."#,
            "BadValue /mirrors/1/value: 'value' must be a string.",
            "BadValue /mirrors/1/max: 'max' must be an integer from 1 to 10,000.",
        ],
    );
    check(
        &linked(
            r#""rollups":[{"name":"a","link":"ba","into":"/a"},{"name":"b","link":"ba","into":"/b","op":"median"},
            {"name":"c","link":"ba","into":"/c","op":"sum"},{"name":"d","link":"ba","into":"/d","op":"count","value":"r.x","of":"rows"}]"#,
        ),
        &[
            "BadValue /rollups/0: 'op' is missing.",
            r#"BadValue /rollups/1/op: 'op' must be "count", "sum", "min", "max" or "avg"."#,
            "BadValue /rollups/2: 'value' is missing.",
            "BadValue /rollups/3/value: 'value' is not known here.",
            r#"BadValue /rollups/3/of: 'of' must be "items" or "references"."#,
        ],
    );
    check(
        &model(
            r#""windows":[{"name":"w","container":"posts","path":"/w","keep":0,"newest":"top","slack":11,
            "pages":{"container":"commentPages","path":"/comments","parent":"/postId","number":"/page","size":10}},
            {"name":"v","container":"posts","path":"/v","keep":1001,"pages":{"container":"commentPages","size":9}},
            {"name":"u","container":"posts","path":"/u"}]"#,
        ),
        &[
            "BadValue /windows/0/keep: 'keep' must be an integer from 1 to 1,000.",
            r#"BadValue /windows/0/newest: 'newest' must be "last" or "first"."#,
            "BadValue /windows/0/slack: 'slack' must be an integer from 0 to 10.",
            "BadValue /windows/1/keep: 'keep' must be an integer from 1 to 1,000.",
            "BadValue /windows/1/pages: 'path' is missing.",
            "BadValue /windows/1/pages: 'parent' is missing.",
            "BadValue /windows/1/pages: 'number' is missing.",
            "BadValue /windows/1/pages/size: 'size' must be an integer from 10 to 1,000.",
            "BadValue /windows/2: 'pages' is missing.",
            "BadValue /windows/2: 'keep' is missing.",
        ],
    );
    check(
        &linked(
            r#""copies":[{"name":"c","link":"bm","fields":{"x":"t.x"},"onWrite":"refuse"}],
            "mirrors":[{"name":"m","link":"ba","into":"/m","onWrite":"no"}]"#,
        ),
        &[r#"BadValue /mirrors/0/onWrite: 'onWrite' must be "correct" or "refuse"."#],
    );
}

#[test]
fn names() {
    let long = "a".repeat(65);
    for bad in ["", "A", "1a", "-a", "a_b", "a.b", "é", &long] {
        check(
            &linked(&format!(r#""mirrors":[{{"name":"{bad}","link":"ba","into":"/m"}}]"#)),
            &[&format!("BadName /mirrors/0/name: '{bad}' is not a name: [a-z][a-z0-9-]{{0,63}}.")],
        );
    }
    for good in ["a", "a-", "a1-b", &"a".repeat(64)] {
        check(&linked(&format!(r#""mirrors":[{{"name":"{good}","link":"ba","into":"/m"}}]"#)), &[]);
    }
    check(
        &linked(
            r#""copies":[{"name":"bm","link":"bm","fields":{"x":"t.x"}}],"rollups":[{"name":"r","link":"bm","op":"count","into":"/r"},
            {"name":"r","link":"bm","op":"count","into":"/s"}]"#,
        ),
        &[
            "DuplicateName /copies/0/name: The name 'bm' is used twice.",
            "DuplicateName /rollups/1/name: The name 'r' is used twice.",
        ],
    );
}

#[test]
fn paths() {
    for (path, why) in [
        ("a", "it does not begin with '/'"),
        ("", "it is empty"),
        ("/a/", "a name is empty"),
        ("/a~x", "'~' is not followed by 0 or 1"),
        ("/a/*/b/*/c/*/d", "it has more than two '*'"),
        ("/*/a", "an item is not an array"),
        ("/_etag", "it is a system property"),
        ("/_follow/x", "it is a system property"),
    ] {
        check(
            &one_link("books", path, "authors", ""),
            &[&format!("BadPath /links/0/from/path: '{path}' is not a path: {why}.")],
        );
    }
    check(&one_link("books", "/a/*/b/*/c", "authors", ""), &[]);
    check(
        &one_link("books", "/a", "authors", r#"to:,"key":"/a/*","partitionKey":"lookup""#),
        &["BadPath /links/0/to/key: '/a/*' is not a path: '*' cannot be used here."],
    );
    check(
        &linked(
            r#""copies":[{"name":"c","link":"ba","fields":{"/x":"t.x","a/*":"t.x","~1/~0y":"t.y"}}],
            "rollups":[{"name":"r","link":"ba","op":"count","into":"/a/*/b"}]"#,
        ),
        &[
            "BadPath /copies/0/fields/~1x: '/x' is not a path: a name is empty.",
            "BadPath /copies/0/fields/a~1*: 'a/*' is not a path: '*' cannot be used here.",
            "BadPath /rollups/0/into: '/a/*/b' is not a path: '*' cannot be used here.",
        ],
    );
}

#[test]
fn limits() {
    let links = |count: usize| {
        (0..count)
            .map(|index| BOOK_AUTHORS.replace("\"ba\"", &format!("\"l{index}\"")))
            .collect::<Vec<_>>()
            .join(",")
    };
    let rollups = |count: usize| {
        let rollup = |index| format!(r#"{{"name":"r{index}","link":"l0","op":"count","into":"/r{index}"}}"#);
        (0..count).map(rollup).collect::<Vec<_>>().join(",")
    };
    check(&model(&format!(r#""links":[{}],"rollups":[{}]"#, links(100), rollups(100))), &[]);
    check(&model(&format!(r#""links":[{}]"#, links(101))), &["TooMany /links: Links: at most 100."]);
    check(
        &model(&format!(r#""links":[{}],"rollups":[{}]"#, links(100), rollups(101))),
        &["TooMany : Declarations: at most 200."],
    );
    // Errors of each of very many declarations are not reported.
    let wrong = vec!["{}"; 60_000].join(",");
    check(
        &model(&format!(r#""links":[{wrong}]"#)),
        &["TooMany : Declarations: at most 200.", "TooMany /links: Links: at most 100."],
    );
    let members: Vec<String> = (0..5_000).map(|number| format!(r#""m{number}":1"#)).collect();
    let body = model(&format!(r#""links":[{{{}}}]"#, members.join(",")));
    assert_eq!(put(&parse(&body)).expect_err("refused").0.len(), 1_000);
    let large = format!("CONCAT('{}')", "x".repeat(256 << 10));
    check(
        &linked(&format!(r#""copies":[{{"name":"c","link":"bm","fields":{{"x":"{large}"}}}}]"#)),
        &["TooMany : Size of the model: at most 256 KB."],
    );
    let containers = containers();
    let mut database = Database::new("library", &containers);
    database.commits_across_partitions = false;
    let ModelInvalid(errors) = Model::parse(&parse(EXAMPLE), &database).expect_err("refused");
    assert_eq!(errors[0].problem.to_string(), "This storage cannot commit over several partitions.");
    assert_eq!(errors[0].problem.code(), "StorageCannot");
    Model::parse(&parse(r#"{"version":1}"#), &database).expect("an empty model needs nothing");
}

#[test]
fn all_errors_are_reported_together() {
    let body = linked(
        r#""rollups":[{"name":"R","link":"nope","op":"sum","into":"x"}],"copies":[{"name":"c","link":"ba","fields":{"x":"q.x","id":"t.a"}}]"#,
    );
    let invalid = put(&parse(&body)).expect_err("invalid");
    assert_eq!(
        errors(&body),
        [
            "BadExpression /copies/0/fields/x: SC2001 at 0: Identifier 'q' could not be resolved.",
            "OwnedNotAllowed /copies/0/fields/id: '/authors/*/id' of 'books' cannot be owned: it is a link's own path.",
            "BadValue /rollups/0: 'value' is missing.",
            "BadName /rollups/0/name: 'R' is not a name: [a-z][a-z0-9-]{0,63}.",
            "UnknownLink /rollups/0/link: There is no link 'nope'.",
            "BadPath /rollups/0/into: 'x' is not a path: it does not begin with '/'.",
        ]
    );
    assert_eq!(
        invalid.to_string(),
        "The model has 6 errors. The first: SC2001 at 0: Identifier 'q' could not be resolved."
    );
    assert_eq!(
        invalid.0[2].to_json().to_json(),
        r#"{"code":"BadValue","at":"/rollups/0","message":"'value' is missing."}"#
    );
}

#[test]
fn one_error_is_counted_in_the_singular() {
    let invalid = put(&parse("{}")).expect_err("invalid");
    assert_eq!(invalid.to_string(), "The model has 1 error. The first: 'version' is missing.");
}

#[test]
fn no_body_makes_it_panic() {
    let example = parse(EXAMPLE);
    let strange = [
        Value::Null,
        true.into(),
        (-1).into(),
        1e300.into(),
        "".into(),
        "/".into(),
        Vec::new().into(),
        Object::new().into(),
    ];
    let mut count = 0;
    for_each_place(&example, &mut |path| {
        for value in &strange {
            let mut body = example.clone();
            replace(&mut body, path, value.clone());
            if put(&body).is_err() {
                count += 1;
            }
        }
    });
    assert!(count > 500, "{count} bodies were refused");
}

fn for_each_place(value: &Value, visit: &mut dyn FnMut(&[usize])) {
    fn walk(value: &Value, path: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize])) {
        visit(path);
        let children: Vec<&Value> = match value {
            Value::Array(elements) => elements.iter().collect(),
            Value::Object(object) => object.iter().map(|(_, value)| value).collect(),
            _ => Vec::new(),
        };
        for (index, child) in children.into_iter().enumerate() {
            path.push(index);
            walk(child, path, visit);
            path.pop();
        }
    }
    walk(value, &mut Vec::new(), visit);
}

fn replace(value: &mut Value, path: &[usize], with: Value) {
    let Some((index, rest)) = path.split_first() else {
        *value = with;
        return;
    };
    match value {
        Value::Array(elements) => replace(&mut elements[*index], rest, with),
        Value::Object(object) => replace(object.iter_mut().nth(*index).expect("a member").1, rest, with),
        _ => unreachable!("a path leads to a place"),
    }
}
