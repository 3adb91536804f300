//! What is maintained: expressions, ownership, windows, warnings.

use super::*;

#[test]
fn expressions() {
    let field = |text: &str, expected: &str| {
        let body = linked(&format!(
            r#""copies":[{{"name":"c","link":"ba","fields":{{"x":{}}}}}]"#,
            Value::from(text).to_json()
        ));
        match expected {
            "" => check(&body, &[]),
            _ => check(&body, &[expected]),
        }
    };
    field("t", "");
    field("{all: t, up: UPPER(t.a.b)}", "");
    field("t.id", "");
    field(
        "'é' + + )",
        "BadExpression /copies/0/fields/x: SC1001 at 8: Syntax error, incorrect syntax near ')'.",
    );
    field("r.a", "BadExpression /copies/0/fields/x: SC2001 at 0: Identifier 'r' could not be resolved.");
    field(
        "NOPE(t.a)",
        "BadExpression /copies/0/fields/x: SC2005 at 0: 'NOPE' is not a recognized built-in function name.",
    );
    field(
        "(SELECT VALUE 1)",
        "ExpressionNotAllowed /copies/0/fields/x: A subquery cannot be used in a model.",
    );
    field(
        "SUM(t.a)",
        "ExpressionNotAllowed /copies/0/fields/x: The aggregate SUM cannot be used in a model.",
    );
    field(
        "udf.f(t.a)",
        "ExpressionNotAllowed /copies/0/fields/x: A user-defined function cannot be used in a model.",
    );
    field("RAND()", "ExpressionNotAllowed /copies/0/fields/x: The function RAND cannot be used in a model.");
    field(
        "FOLLOW(t, 'ba')",
        "ExpressionNotAllowed /copies/0/fields/x: The function FOLLOW cannot be used in a model.",
    );
    field(
        "t._ts",
        "ExpressionNotAllowed /copies/0/fields/x: The system property '_ts' cannot be used in a model.",
    );
    field(
        "t['_etag']",
        "ExpressionNotAllowed /copies/0/fields/x: The system property '_etag' cannot be used in a model.",
    );
    let computed = r#""links":[{"name":"l","from":{"container":"books","path":"/p/id"},"to":{"container":"publishers","partitionKey":"lookup"}}],
        "copies":[{"name":"c","link":"l","fields":{"x":"t.upper"}}]"#;
    check(
        &model(computed),
        &[
            "ExpressionNotAllowed /copies/0/fields/x: The computed property 'upper' cannot be used in a model.",
        ],
    );
    // `e` is known only where every reference counts.
    check(
        &linked(
            r#""mirrors":[{"name":"m","link":"ba","into":"/m","value":"e.x"}],"rollups":[
            {"name":"a","link":"ba","op":"sum","value":"e.x","into":"/a"},
            {"name":"b","link":"ba","op":"sum","value":"e.x","into":"/b","of":"references","filter":"e.y = r.y"},
            {"name":"c","link":"ba","op":"count","into":"/c","filter":"t.x"}]"#,
        ),
        &[
            "BadExpression /mirrors/0/value: SC2001 at 0: Identifier 'e' could not be resolved.",
            "BadExpression /rollups/0/value: SC2001 at 0: Identifier 'e' could not be resolved.",
            "BadExpression /rollups/2/filter: SC2001 at 0: Identifier 't' could not be resolved.",
        ],
    );
}

#[test]
fn a_path_has_one_owner() {
    check(
        &linked(
            r#""copies":[{"name":"c","link":"bm","fields":{"x":"t.x"}},{"name":"d","link":"bm","fields":{"x/y":"t.x","z":"t.z"}}],
            "mirrors":[{"name":"m","link":"ba","into":"/s/books"}],
            "rollups":[{"name":"r","link":"bm","op":"count","into":"/s"},{"name":"q","link":"bm","op":"count","into":"/s/count"}]"#,
        ),
        &[
            "OwnedTwice /copies/1/fields/x~1y: '/main/x/y' of 'books' is owned by 'c' and by 'd'.",
            "OwnedTwice /rollups/0/into: '/s' of 'authors' is owned by 'm' and by 'r'.",
            "OwnedTwice /rollups/1/into: '/s/count' of 'authors' is owned by 'r' and by 'q'.",
        ],
    );
    // The same path in another container is another path.
    check(
        &linked(
            r#""copies":[{"name":"c","link":"bm","fields":{"x":"t.x"}}],"mirrors":[{"name":"m","link":"ba","into":"/main/x"}]"#,
        ),
        &[],
    );
    let window = r#""windows":[{"name":"w","container":"authors","path":"/m","keep":1,"pages":
        {"container":"commentPages","path":"/c","parent":"/postId","number":"/n","size":10}}]"#;
    check(
        &linked(&format!(r#""mirrors":[{{"name":"m","link":"ba","into":"/m"}}],{window}"#)),
        &["OwnedTwice /windows/0/path: '/m' of 'authors' is owned by 'm' and by 'w'."],
    );
}

#[test]
fn what_cannot_be_owned() {
    let rollup = |to: &str, more: &str, into: &str| {
        model(&format!(
            r#""links":[{{"name":"l","from":{{"container":"portfolios","path":"/x"}},"to":{{"container":"{to}"{more}}}}}],
            "rollups":[{{"name":"r","link":"l","op":"count","into":"{into}"}}]"#
        ))
    };
    for (to, more, into, what) in [
        ("authors", "", "/id", "the id"),
        ("publishers", r#","partitionKey":"lookup""#, "/region", "a partition key"),
        ("publishers", r#","partitionKey":"lookup""#, "/region/x", "a partition key"),
        ("books", "", "/isbn", "a unique key"),
        ("authors", "", "/ttl", "ttl"),
        ("stamped", "", "/made", "ttl"),
        ("authors", "", "/_ts", "a system property"),
        ("authors", "", "/_follow", "a system property"),
        ("portfolios", "", "/x", "a link's own path"),
        ("portfolios", "", "/x/y", "a link's own path"),
    ] {
        let expected =
            format!("OwnedNotAllowed /rollups/0/into: '{into}' of '{to}' cannot be owned: it is {what}.");
        check(&rollup(to, more, into), &[&expected]);
    }
    check(
        &linked(r#""copies":[{"name":"c","link":"ba","fields":{"id":"t.x"}}]"#),
        &[
            "OwnedNotAllowed /copies/0/fields/id: '/authors/*/id' of 'books' cannot be owned: it is a link's own path.",
        ],
    );
}

#[test]
fn nothing_reads_what_is_maintained() {
    // A copy reads a rollup of its target, also through what contains it.
    check(
        &linked(
            r#""copies":[{"name":"c","link":"bm","fields":{"n":"t.stats"}}],"rollups":[{"name":"r","link":"ba","op":"count","into":"/stats/books"}]"#,
        ),
        &["OwnedIsRead /copies/0/fields/n: 'c' reads '/stats/books' of 'authors', which 'r' maintains."],
    );
    // The whole item is read without it.
    check(
        &linked(
            r#""copies":[{"name":"c","link":"bm","fields":{"n":"t"}}],"rollups":[{"name":"r","link":"ba","op":"count","into":"/stats/books"}]"#,
        ),
        &[],
    );
    // Values, filters and mirrors read copies of the referrer; `e` is what holds the reference.
    check(
        &linked(
            r#""copies":[{"name":"c","link":"ba","fields":{"name":"t.name"}}],
            "mirrors":[{"name":"m","link":"bm","into":"/m","value":"r.authors[0].name"},{"name":"n","link":"bm","into":"/n","value":"r.authors[0].id"}],
            "rollups":[{"name":"r","link":"bm","op":"sum","value":"r.authors","filter":"r.ok","into":"/r"},
            {"name":"q","link":"ba","op":"count","of":"references","filter":"e.name = 'x'","into":"/q"},
            {"name":"p","link":"ba","op":"max","of":"references","value":"e","into":"/p"},
            {"name":"o","link":"ba","op":"max","of":"references","value":"e.other","into":"/o"}]"#,
        ),
        &[
            "OwnedIsRead /mirrors/0/value: 'm' reads '/authors/*/name' of 'books', which 'c' maintains.",
            "OwnedIsRead /rollups/0/value: 'r' reads '/authors/*/name' of 'books', which 'c' maintains.",
            "OwnedIsRead /rollups/1/filter: 'q' reads '/authors/*/name' of 'books', which 'c' maintains.",
            "OwnedIsRead /rollups/2/value: 'p' reads '/authors/*/name' of 'books', which 'c' maintains.",
        ],
    );
    // Paths, routes and keys of links.
    check(
        &model(
            r#""links":[
            {"name":"l","from":{"container":"books","path":"/main/id"},"to":{"container":"publishers","key":"/code","partitionKey":[{"path":"/main/name"}]}},
            {"name":"k","from":{"container":"books","path":"/main/name"},"to":{"container":"authors"}},
            {"name":"j","from":{"container":"books","path":"/main/id"},"to":{"container":"authors"}}],
            "copies":[{"name":"c","link":"j","fields":{"name":"t.name"}}],
            "rollups":[{"name":"r","link":"l","op":"count","into":"/code"}]"#,
        ),
        &[
            "OwnedIsRead /links/0/to/key: 'l' reads '/code' of 'publishers', which 'r' maintains.",
            "OwnedIsRead /links/0/to/partitionKey/0/path: 'l' reads '/main/name' of 'books', which 'c' maintains.",
            "OwnedIsRead /links/1/from/path: 'k' reads '/main/name' of 'books', which 'c' maintains.",
        ],
    );
    // A declaration reads what it maintains itself.
    check(
        &model(
            r#""links":[{"name":"l","from":{"container":"books","path":"/up"},"to":{"container":"books"}}],
            "rollups":[{"name":"r","link":"l","op":"sum","value":"r.total","into":"/total"}]"#,
        ),
        &["OwnedIsRead /rollups/0/value: 'r' reads '/total' of 'books', which 'r' maintains."],
    );
    // Elements of a window move to pages, so no link can be in them.
    check(
        &model(
            r#""links":[{"name":"l","from":{"container":"posts","path":"/w/*/by"},"to":{"container":"authors"}},
            {"name":"k","from":{"container":"commentPages","path":"/c/*/by"},"to":{"container":"authors"}}],
            "windows":[{"name":"w","container":"posts","path":"/w","keep":1,"pages":
            {"container":"commentPages","path":"/c","parent":"/postId","number":"/n","size":10}}]"#,
        ),
        &[
            "OwnedIsRead /links/0/from/path: 'l' reads '/w' of 'posts', which 'w' maintains.",
            "OwnedIsRead /links/1/from/path: 'k' reads '/c' of 'commentPages', which 'w' maintains.",
        ],
    );
}

#[test]
fn windows() {
    let window = |container: &str, more: &str, pages: &str| {
        model(&format!(
            r#""windows":[{{"name":"w","container":"{container}","path":"/w","keep":2{more},"pages":{{{pages},"size":10}}}}]"#
        ))
    };
    let bad = |body: &str, at: &str, why: &str| {
        check(body, &[&format!("BadWindow /windows/0/{at}: The window 'w': {why}.")])
    };
    let pages = r#""container":"commentPages","path":"/c","parent":"/postId","number":"/n""#;
    check(&window("posts", r#","count":"/n","by":"/at","key":"/id","slack":10"#, pages), &[]);
    check(
        &window("tenants", "", r#""container":"tenantPages","path":"/c","parent":"/parent","number":"/n""#),
        &[],
    );
    bad(
        &window("posts", "", r#""container":"posts","path":"/c","parent":"/postId","number":"/n""#),
        "pages/container",
        "its pages need a container of their own",
    );
    bad(
        &window("posts", "", r#""container":"stocks","path":"/c","parent":"/postId","number":"/n""#),
        "pages/container",
        "the key path '/id' of 'stocks' is neither '/postId' nor a key path of 'posts'",
    );
    bad(
        &window("posts", "", r#""container":"publishers","path":"/c","parent":"/postId","number":"/n""#),
        "pages/container",
        "the key path '/region' of 'publishers' is neither '/postId' nor a key path of 'posts'",
    );
    bad(
        &window("tenants", "", pages),
        "pages/container",
        "the key of 'commentPages' lacks '/tenant', a key path of 'tenants'",
    );
    bad(
        &window("publishers", "", r#""container":"tenants","path":"/c","parent":"/region","number":"/n""#),
        "pages/parent",
        "'/region' is a key path of 'publishers', and its pages hold that value there",
    );
    bad(
        &window("posts", "", r#""container":"uniquePages","path":"/c","parent":"/postId","number":"/n""#),
        "pages/container",
        "'uniquePages' has unique keys, which pages of one item would not keep",
    );
    bad(&window("posts", r#","count":"/w/n""#, pages), "count", "'/w/n' and '/w' overlap");
    bad(
        &window("posts", "", r#""container":"commentPages","path":"/c","parent":"/postId","number":"/c/n""#),
        "pages/number",
        "'/c/n' and '/c' overlap",
    );
    check(
        &window(
            "posts",
            r#","count":"/id","key":"/a/*","by":"by""#,
            r#""container":"commentPages","path":"/id","parent":"/postId","number":"/ttl""#,
        ),
        &[
            "BadPath /windows/0/key: '/a/*' is not a path: '*' cannot be used here.",
            "BadPath /windows/0/by: 'by' is not a path: it does not begin with '/'.",
            "OwnedNotAllowed /windows/0/pages/path: '/id' of 'commentPages' cannot be owned: it is the id.",
            "OwnedNotAllowed /windows/0/pages/number: '/ttl' of 'commentPages' cannot be owned: it is ttl.",
            "OwnedNotAllowed /windows/0/count: '/id' of 'posts' cannot be owned: it is the id.",
        ],
    );
    // Ids of pages begin with the window's name, so that two windows can share a container.
    let two = |one: &str, two: &str| {
        model(&format!(
            r#""windows":[
        {{"name":"w","container":"posts","path":"/w","keep":2,"pages":{{{pages},"size":10}}{one}}},
        {{"name":"v","container":"posts","path":"/v","keep":2,"pages":{{{pages},"size":10}}{two}}}]"#
        ))
    };
    check(&two("", ""), &[]);
    check(
        &two(r#","count":"/n""#, r#","count":"/n""#),
        &["OwnedTwice /windows/1/count: '/n' of 'posts' is owned by 'w' and by 'v'."],
    );
}

#[test]
fn what_expires_is_warned_about() {
    let body = model(
        r#""links":[{"name":"l","from":{"container":"sessions","path":"/user/id"},"to":{"container":"stamped"}}],
        "copies":[{"name":"c","link":"l","fields":{"x":"t.x","y":"t.y"}}],"rollups":[{"name":"r","link":"l","op":"count","into":"/n"}]"#,
    );
    let containers = containers();
    let (_, warnings) = Model::parse(&parse(&body), &Database::new("library", &containers)).expect("valid");
    let shown: Vec<String> = warnings.iter().map(|warning| warning.to_json().to_json()).collect();
    assert_eq!(
        shown,
        [
            r#"{"code":"MaintainedExpires","at":"/copies/0/fields/x","message":"The items of 'sessions' have a time to live: every change that 'c' makes to one starts it again."}"#,
            r#"{"code":"MaintainedExpires","at":"/rollups/0/into","message":"The items of 'stamped' have a time to live: every change that 'r' makes to one starts it again."}"#,
        ]
    );
    let (_, none) = Model::parse(&parse(EXAMPLE), &Database::new("library", &containers)).unwrap();
    assert_eq!(none, []);
}

/// As many fields as fit a model: comparing each with each would take minutes.
#[test]
fn many_owned_paths() {
    let fields = |count: usize| {
        let fields: Vec<String> = (0..count).map(|number| format!(r#""f{number}":"1""#)).collect();
        linked(&format!(r#""copies":[{{"name":"c","link":"ba","fields":{{{}}}}}]"#, fields.join(",")))
    };
    check(&fields(19_000), &[]);
    let twice = fields(19_000).replacen("\"f18999\"", "\"f7/x\"", 1);
    check(
        &twice,
        &["OwnedTwice /copies/0/fields/f7~1x: '/authors/*/f7/x' of 'books' is owned by 'c' and by 'c'."],
    );
}
