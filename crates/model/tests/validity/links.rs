//! Links: containers, routes, deletes.

use super::*;

#[test]
fn containers_and_links_exist() {
    check(
        &one_link("bookz", "/a", "authorz", ""),
        &[
            "UnknownContainer /links/0/from/container: There is no container 'bookz' in the database 'library'.",
            "UnknownContainer /links/0/to/container: There is no container 'authorz' in the database 'library'.",
        ],
    );
    check(
        &one_link("titles", "/a", "authors", ""),
        &["ViewInModel /links/0/from/container: 'titles' is a view; its items cannot take part in a model."],
    );
    let window = |container: &str, pages: &str| {
        model(&format!(
            r#""windows":[{{"name":"w","container":"{container}","path":"/w","keep":1,"pages":
            {{"container":"{pages}","path":"/c","parent":"/postId","number":"/n","size":10}}}}]"#
        ))
    };
    check(
        &window("titles", "none"),
        &[
            "ViewInModel /windows/0/container: 'titles' is a view; its items cannot take part in a model.",
            "UnknownContainer /windows/0/pages/container: There is no container 'none' in the database 'library'.",
        ],
    );
    check(
        &linked(
            r#""copies":[{"name":"c","link":"x","fields":{"x":"t.x"}}],"mirrors":[{"name":"m","link":"y","into":"/m"}],
            "rollups":[{"name":"r","link":"z","op":"count","into":"/r"}]"#,
        ),
        &[
            "UnknownLink /copies/0/link: There is no link 'x'.",
            "UnknownLink /mirrors/0/link: There is no link 'y'.",
            "UnknownLink /rollups/0/link: There is no link 'z'.",
        ],
    );
}

#[test]
fn partition_key_routes() {
    let route = |links: &str, expected: &[&str]| check(&model(&format!(r#""links":[{links}]"#)), expected);
    let needs = "The link 'l' does not say where the partition key of 'publishers' comes from: 'to.partitionKey' needs 1 entries, or \"lookup\".";
    route(&link("books", "/p", "publishers", ""), &[&format!("PartitionKeyRoute /links/0/to: {needs}")]);
    route(
        &link("books", "/p", "publishers", r#"to:,"partitionKey":[]"#),
        &[&format!("PartitionKeyRoute /links/0/to/partitionKey: {needs}")],
    );
    route(
        &link("books", "/p", "tenants", r#"to:,"partitionKey":[{"value":1}]"#),
        &[
            "PartitionKeyRoute /links/0/to/partitionKey: The link 'l' does not say where the partition key of 'tenants' comes from: 'to.partitionKey' needs 2 entries, or \"lookup\".",
        ],
    );
    // The only key path is the key of the link: then it is the reference.
    route(&link("books", "/p", "publishers", r#"to:,"key":"/region""#), &[]);
    route(&link("books", "/p", "publishers", r#"to:,"partitionKey":"lookup""#), &[]);
    route(
        &link(
            "books",
            "/a/*/b",
            "tenants",
            r#"to:,"partitionKey":[{"path":"/a/*/tenant"},{"reference":true}]"#,
        ),
        &[],
    );
    route(
        &link("books", "/a/*/b", "tenants", r#"to:,"partitionKey":[{"path":"/tenant"},{"value":null}]"#),
        &[],
    );
    route(
        &link(
            "books",
            "/a/*/b",
            "tenants",
            r#"to:,"partitionKey":[{"path":"/c/*/tenant"},{"path":"/a/*/b/*/c"}]"#,
        ),
        &[
            "RouteNotBeside /links/0/to/partitionKey/0/path: '/c/*/tenant' is not beside '/a/*/b': up to its last '*' it must be the same.",
            "RouteNotBeside /links/0/to/partitionKey/1/path: '/a/*/b/*/c' is not beside '/a/*/b': up to its last '*' it must be the same.",
        ],
    );
    route(
        &link("books", "/p", "tenants", r#"to:,"partitionKey":[{"value":{}},{"reference":false}]"#),
        &[
            "BadValue /links/0/to/partitionKey/0/value: 'value' must be a string, a number, a boolean or null.",
            "BadValue /links/0/to/partitionKey/1/reference: 'reference' must be true.",
        ],
    );
    route(
        &link("books", "/p", "tenants", r#"to:,"partitionKey":[{},{"path":"/x","value":1}]"#),
        &[
            "BadValue /links/0/to/partitionKey/0: 'path' is missing.",
            "BadValue /links/0/to/partitionKey/1/value: 'value' is not known here.",
        ],
    );
    route(
        &link("books", "/p", "tenants", r#"to:,"partitionKey":["x",{"path":"/_ts"}]"#),
        &[
            "BadValue /links/0/to/partitionKey/0: 'partitionKey' must be a list of objects.",
            "BadPath /links/0/to/partitionKey/1/path: '/_ts' is not a path: it is a system property.",
        ],
    );
    route(
        &link("books", "/p", "tenants", r#"to:,"partitionKey":"find""#),
        &[
            "BadValue /links/0/to/partitionKey: 'partitionKey' must be a list with one entry for each level of the key, or \"lookup\".",
        ],
    );
}

#[test]
fn copies_and_deletes() {
    check(
        &model(
            r#""links":[{"name":"l","from":{"container":"books","path":"/tags/*"},"to":{"container":"authors"}}],
            "copies":[{"name":"c","link":"l","fields":{"x":"t.x"}}],"rollups":[{"name":"r","link":"l","op":"count","into":"/n"}]"#,
        ),
        &[
            "CopyNeedsObject /copies/0: The link 'l' ends in array elements; a copy needs an object beside the reference.",
        ],
    );
    check(
        &one_link("books", "/a", "authors", r#","integrity":"enforced","onDelete":"allow""#),
        &["EnforcedAllows /links/0/onDelete: An enforced link cannot have onDelete \"allow\"."],
    );
    for (from, path, what) in [
        ("books", "/id", "the id"),
        ("publishers", "/region", "a partition key"),
        ("books", "/isbn", "a unique key"),
    ] {
        let expected = format!(
            "RemoveNotAllowed /links/0/onDelete: '{path}' of '{from}' cannot be removed: it is {what}."
        );
        check(&one_link(from, path, "authors", r#","onDelete":"remove""#), &[&expected]);
        check(&one_link(from, path, "authors", r#","onDelete":"cascade""#), &[]);
    }
    let chain = |first: &str, second: &str| {
        model(&format!(
            r#""links":[{{"name":"l","from":{{"container":"books","path":"/a"}},"to":{{"container":"authors"}},{first}}},
            {{"name":"k","from":{{"container":"portfolios","path":"/b"}},"to":{{"container":"books"}},{second}}}]"#
        ))
    };
    let expected =
        "CascadeRestricted /links/0/onDelete: 'l' cannot cascade: items of 'books' are restricted by 'k'.";
    check(&chain(r#""onDelete":"cascade""#, r#""onDelete":"restrict""#), &[expected]);
    check(&chain(r#""onDelete":"cascade""#, r#""integrity":"enforced""#), &[expected]);
    check(&chain(r#""onDelete":"cascade""#, r#""onDelete":"cascade""#), &[]);
    check(&chain(r#""onDelete":"remove""#, r#""onDelete":"restrict""#), &[]);
}
