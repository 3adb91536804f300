//! The grammar: what each path names and what is signed for it.

use expect_test::{Expect, expect};

use super::*;

/// One line per path: what it names, then what is signed.
fn check(paths: &[&str], expect: Expect) {
    let mut out = String::new();
    for path in paths {
        out.push_str(path);
        out.push_str("\n    ");
        match parse(path) {
            Err(error) => out.push_str(&format!("{error:?}")),
            Ok(route) => {
                let (kind, link) = (route.kind, route.resource_link);
                out.push_str(&format!("{kind:?}\n    signs {:?} {link:?}", route.resource_type));
                if let Some(rid) = route.resource_link_rid {
                    out.push_str(&format!(" or {rid:?}"));
                }
            }
        }
        out.push('\n');
    }
    expect.assert_eq(&out);
}

#[test]
fn every_path_of_the_grammar() {
    check(
        &[
            "/",
            "/dbs",
            "/dbs/d",
            "/dbs/d/colls",
            "/dbs/d/colls/c",
            "/dbs/d/colls/c/docs",
            "/dbs/d/colls/c/docs/i",
            "/dbs/d/colls/c/sprocs",
            "/dbs/d/colls/c/sprocs/s",
            "/dbs/d/colls/c/triggers/t",
            "/dbs/d/colls/c/udfs/u",
            "/dbs/d/colls/c/conflicts",
            "/dbs/d/colls/c/conflicts/x",
            "/dbs/d/colls/c/pkranges",
            "/dbs/d/users",
            "/dbs/d/users/u",
            "/dbs/d/users/u/permissions",
            "/dbs/d/users/u/permissions/p",
            "/dbs/d/clientencryptionkeys",
            "/dbs/d/clientencryptionkeys/k",
            "/offers",
            "/offers/x7Yd",
            "/addresses",
        ],
        expect![[r#"
            /
                Account
                signs "" ""
            /dbs
                Databases
                signs "dbs" ""
            /dbs/d
                Database { database: "d" }
                signs "dbs" "dbs/d"
            /dbs/d/colls
                Containers { database: "d" }
                signs "colls" "dbs/d"
            /dbs/d/colls/c
                Container { database: "d", container: "c" }
                signs "colls" "dbs/d/colls/c"
            /dbs/d/colls/c/docs
                Items { database: "d", container: "c" }
                signs "docs" "dbs/d/colls/c"
            /dbs/d/colls/c/docs/i
                Item { database: "d", container: "c", id: "i" }
                signs "docs" "dbs/d/colls/c/docs/i"
            /dbs/d/colls/c/sprocs
                Scripts { script: StoredProcedure, database: "d", container: "c" }
                signs "sprocs" "dbs/d/colls/c"
            /dbs/d/colls/c/sprocs/s
                Script { script: StoredProcedure, database: "d", container: "c", id: "s" }
                signs "sprocs" "dbs/d/colls/c/sprocs/s"
            /dbs/d/colls/c/triggers/t
                Script { script: Trigger, database: "d", container: "c", id: "t" }
                signs "triggers" "dbs/d/colls/c/triggers/t"
            /dbs/d/colls/c/udfs/u
                Script { script: UserDefinedFunction, database: "d", container: "c", id: "u" }
                signs "udfs" "dbs/d/colls/c/udfs/u"
            /dbs/d/colls/c/conflicts
                Conflicts { database: "d", container: "c" }
                signs "conflicts" "dbs/d/colls/c"
            /dbs/d/colls/c/conflicts/x
                Conflict { database: "d", container: "c", id: "x" }
                signs "conflicts" "dbs/d/colls/c/conflicts/x"
            /dbs/d/colls/c/pkranges
                PartitionKeyRanges { database: "d", container: "c" }
                signs "pkranges" "dbs/d/colls/c"
            /dbs/d/users
                Users { database: "d" }
                signs "users" "dbs/d"
            /dbs/d/users/u
                User { database: "d", user: "u" }
                signs "users" "dbs/d/users/u"
            /dbs/d/users/u/permissions
                Permissions { database: "d", user: "u" }
                signs "permissions" "dbs/d/users/u"
            /dbs/d/users/u/permissions/p
                Permission { database: "d", user: "u", permission: "p" }
                signs "permissions" "dbs/d/users/u/permissions/p"
            /dbs/d/clientencryptionkeys
                ClientEncryptionKeys { database: "d" }
                signs "clientencryptionkeys" "dbs/d"
            /dbs/d/clientencryptionkeys/k
                ClientEncryptionKey { database: "d", key: "k" }
                signs "clientencryptionkeys" "dbs/d/clientencryptionkeys/k"
            /offers
                Offers
                signs "offers" ""
            /offers/x7Yd
                Offer { offer: "x7Yd" }
                signs "offers" "x7yd"
            /addresses
                Addresses
                signs "" ""
        "#]],
    );
    check(
        &["/dbs/d/colls/c/operations/partitionkeydelete"],
        expect![[r#"
        /dbs/d/colls/c/operations/partitionkeydelete
            PartitionKeyDelete { database: "d", container: "c" }
            signs "colls" "dbs/d/colls/c"
    "#]],
    );
}

#[test]
fn slashes_and_encodings() {
    check(
        &[
            "//",
            "/dbs/",
            "//dbs/d/colls/c/",
            "//addresses/?$resolveFor=dbs%2fDPZtAA==%2fcolls%2fDPZtAKyOj5g=%2fdocs&$filter=protocol eq rntbd",
            "/addresses/?%24resolveFor=dbs%2Fd%2Fcolls%2Fc%2Fdocs",
            "/dbs/d/colls/c/docs/a%20b%25",
            "/dbs/d/colls/c/docs/a+b",
            "/dbs/d/colls/c/docs/a%2Fb%5Cc%3Fd%23e",
            "/dbs/d/colls/c/docs/%C3%BC%E6%97%A5",
            "/dbs/d/colls/c/docs/%2520",
            "/dbs/d/colls/c/docs/100%",
            "/dbs/d/colls/c/docs/%FF",
            "/dbs/d/colls/c/docs/i?x=1",
            "/dbs//colls",
            "///dbs",
            "/dbs/d//",
            "dbs",
            "",
        ],
        expect![[r#"
            //
                Account
                signs "" ""
            /dbs/
                Databases
                signs "dbs" ""
            //dbs/d/colls/c/
                Container { database: "d", container: "c" }
                signs "colls" "dbs/d/colls/c"
            //addresses/?$resolveFor=dbs%2fDPZtAA==%2fcolls%2fDPZtAKyOj5g=%2fdocs&$filter=protocol eq rntbd
                Addresses
                signs "docs" "dbs/DPZtAA==/colls/DPZtAKyOj5g=" or "dpztakyoj5g="
            /addresses/?%24resolveFor=dbs%2Fd%2Fcolls%2Fc%2Fdocs
                Addresses
                signs "docs" "dbs/d/colls/c"
            /dbs/d/colls/c/docs/a%20b%25
                Item { database: "d", container: "c", id: "a b%" }
                signs "docs" "dbs/d/colls/c/docs/a b%"
            /dbs/d/colls/c/docs/a+b
                Item { database: "d", container: "c", id: "a+b" }
                signs "docs" "dbs/d/colls/c/docs/a+b"
            /dbs/d/colls/c/docs/a%2Fb%5Cc%3Fd%23e
                Item { database: "d", container: "c", id: "a/b\\c?d#e" }
                signs "docs" "dbs/d/colls/c/docs/a/b\\c?d#e"
            /dbs/d/colls/c/docs/%C3%BC%E6%97%A5
                Item { database: "d", container: "c", id: "ü日" }
                signs "docs" "dbs/d/colls/c/docs/ü日"
            /dbs/d/colls/c/docs/%2520
                Item { database: "d", container: "c", id: "%20" }
                signs "docs" "dbs/d/colls/c/docs/%20"
            /dbs/d/colls/c/docs/100%
                Item { database: "d", container: "c", id: "100%" }
                signs "docs" "dbs/d/colls/c/docs/100%"
            /dbs/d/colls/c/docs/%FF
                InvalidUrl
            /dbs/d/colls/c/docs/i?x=1
                Item { database: "d", container: "c", id: "i?x=1" }
                signs "docs" "dbs/d/colls/c/docs/i?x=1"
            /dbs//colls
                InvalidUrl
            ///dbs
                InvalidUrl
            /dbs/d//
                InvalidUrl
            dbs
                InvalidUrl

                InvalidUrl
        "#]],
    );
}

#[test]
fn rids_are_signed_alone_and_in_lower_case() {
    check(
        &[
            "/dbs/DPZtAA==",
            "/dbs/DPZtAA==/colls",
            "/dbs/DPZtAA==/colls/DPZtAKyOj5g=/pkranges",
            "/dbs/DPZtAA%3D%3D/colls/DPZtAKyOj5g%3D/docs/DPZtAKyOj5gBAAAAAAAAAA%3D%3D/",
            "/dbs/a-ZtAA==/users/a-ZtAKyOj5g=/permissions",
            "/dbs/DPZtAAAA", // eight characters, six bytes
            "/dbs/+++!AA==",
        ],
        expect![[r#"
            /dbs/DPZtAA==
                Database { database: "DPZtAA==" }
                signs "dbs" "dbs/DPZtAA==" or "dpztaa=="
            /dbs/DPZtAA==/colls
                Containers { database: "DPZtAA==" }
                signs "colls" "dbs/DPZtAA==" or "dpztaa=="
            /dbs/DPZtAA==/colls/DPZtAKyOj5g=/pkranges
                PartitionKeyRanges { database: "DPZtAA==", container: "DPZtAKyOj5g=" }
                signs "pkranges" "dbs/DPZtAA==/colls/DPZtAKyOj5g=" or "dpztakyoj5g="
            /dbs/DPZtAA%3D%3D/colls/DPZtAKyOj5g%3D/docs/DPZtAKyOj5gBAAAAAAAAAA%3D%3D/
                Item { database: "DPZtAA==", container: "DPZtAKyOj5g=", id: "DPZtAKyOj5gBAAAAAAAAAA==" }
                signs "docs" "dbs/DPZtAA==/colls/DPZtAKyOj5g=/docs/DPZtAKyOj5gBAAAAAAAAAA==" or "dpztakyoj5gbaaaaaaaaaa=="
            /dbs/a-ZtAA==/users/a-ZtAKyOj5g=/permissions
                Permissions { database: "a-ZtAA==", user: "a-ZtAKyOj5g=" }
                signs "permissions" "dbs/a-ZtAA==/users/a-ZtAKyOj5g=" or "a-ztakyoj5g="
            /dbs/DPZtAAAA
                Database { database: "DPZtAAAA" }
                signs "dbs" "dbs/DPZtAAAA"
            /dbs/+++!AA==
                Database { database: "+++!AA==" }
                signs "dbs" "dbs/+++!AA=="
        "#]],
    );
}

#[test]
fn unknown_paths() {
    check(
        &[
            "/database",
            "/DBS",
            "/dbs/d/collections",
            "/dbs/d/colls/c/items",
            "/dbs/d/colls/c/pkranges/0",
            "/dbs/d/colls/c/docs/i/more",
            "/dbs/d/users/u/permissions/p/q",
            "/dbs/d/colls/c/docs/i/attachments/a/b/c",
            "/dbs/d/colls/c/docs/i/attachments",
            "/dbs/d/colls/c/docs/i/attachments/a",
            "/dbs/d/colls/c/schemas",
            "/dbs/d/udts",
            "/media/x",
            "/topology",
        ],
        expect![[r#"
            /database
                InvalidUrl
            /DBS
                InvalidUrl
            /dbs/d/collections
                InvalidUrl
            /dbs/d/colls/c/items
                InvalidUrl
            /dbs/d/colls/c/pkranges/0
                InvalidUrl
            /dbs/d/colls/c/docs/i/more
                InvalidUrl
            /dbs/d/users/u/permissions/p/q
                InvalidUrl
            /dbs/d/colls/c/docs/i/attachments/a/b/c
                InvalidUrl
            /dbs/d/colls/c/docs/i/attachments
                MethodNotAllowed
            /dbs/d/colls/c/docs/i/attachments/a
                MethodNotAllowed
            /dbs/d/colls/c/schemas
                MethodNotAllowed
            /dbs/d/udts
                MethodNotAllowed
            /media/x
                MethodNotAllowed
            /topology
                MethodNotAllowed
        "#]],
    );
}

/// A path that is sent as it is signed is not copied, whatever stands around it.
#[test]
fn names_are_borrowed_where_they_are_sent_plain() {
    for path in [
        "/dbs/d/colls/c/docs/i",
        "//dbs/d/colls/c/docs/i/",
        "/dbs/dbs/colls/colls/docs/docs",
        "/dbs/d/colls/c/docs/a?b",
    ] {
        let route = parse(path).unwrap();
        let RouteKind::Item { database, container, id } = &route.kind else { panic!("{path}") };
        for text in [database, container, id, &route.resource_link] {
            assert!(matches!(text, Cow::Borrowed(_)), "{path}: {text}");
        }
    }
    let route = parse("/dbs/d/colls/c/docs/a%20b").unwrap();
    assert_eq!(route.resource_link, "dbs/d/colls/c/docs/a b");
    let RouteKind::Item { database, id, .. } = &route.kind else { panic!("{route:?}") };
    assert!(matches!(database, Cow::Borrowed("d")) && id == "a b");
    // The owner of a feed; a plain id behind an encoded name; a slash inside of an id.
    assert!(matches!(parse("/dbs/d/colls/c/docs").unwrap().resource_link, Cow::Borrowed("dbs/d/colls/c")));
    assert_eq!(parse("/dbs/d%2Fd/colls/c/docs/i").unwrap().resource_link, "dbs/d/d/colls/c/docs/i");
    assert_eq!(parse("/dbs/d/colls/c/docs/a?b/c").unwrap().resource_link, "dbs/d/colls/c/docs/a?b/c");
}
