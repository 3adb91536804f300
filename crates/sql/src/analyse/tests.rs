use expect_test::{Expect, expect};

use crate::bind::Parameters;
use crate::query::Query;

use super::*;

/// The analysis of a query, one line per non-empty part.
fn show(text: &str) -> String {
    let query = Query::compile(text, &Parameters::default(), &[]).expect(text);
    let analysis = query.analysis();
    let mut shown = format!("{}{}", if analysis.filter_is_exact { "" } else { "~ " }, analysis.filter);
    if let Some(order) = &analysis.order {
        let key = |key: &OrderPath| format!("{}{}", key.path, if key.descending { " desc" } else { "" });
        shown += &format!("; order {}", order.iter().map(key).collect::<Vec<_>>().join(", "));
    }
    match &analysis.reads {
        Reads::Whole => {}
        Reads::Paths(paths) => {
            shown += &format!("; reads {}", paths.iter().map(Path::to_string).collect::<Vec<_>>().join(" "));
        }
    }
    if let Some(aggregate) = &analysis.aggregate {
        let path = aggregate.path.as_ref().map_or(String::new(), |path| format!(" {path}"));
        let extremes = [(aggregate.min, " min"), (aggregate.max, " max")];
        let extremes: String = extremes.iter().filter(|(asked, _)| *asked).map(|(_, name)| *name).collect();
        shown += &format!("; aggregate{path}{extremes}");
    }
    shown
}

fn check(queries: &[&str], expect: Expect) {
    let lines: Vec<String> = queries.iter().map(|query| format!("{query}\n    {}\n", show(query))).collect();
    expect.assert_eq(&lines.concat());
}

/// Filters of `SELECT * FROM c`.
fn check_filters(filters: &[&str], expect: Expect) {
    let line = |filter: &&str| {
        let shown = show(&format!("SELECT * FROM c WHERE {filter}"));
        format!("{filter}\n    {shown}\n")
    };
    expect.assert_eq(&filters.iter().map(line).collect::<String>());
}

#[test]
fn comparisons() {
    check_filters(
        &[
            "c.a = 1",
            "1 = c.a",
            "c.a != null",
            "NOT (c.a = 'x')",
            "c.a > 1",
            "3 > c.a",
            "c.a >= 'x'",
            "c.a <= true",
            "c.a < null",
            "NOT (c.a < 'x')",
            "c.a > -1 - 1",
            "c.a > 1 AND c.a <= 5",
            "c.a > 5 AND c.a < 1",
            "c.a > 1 AND c.a > 'x'",
            "c.a = 1 OR c.a > 5 OR c.a = 'x'",
            "c.a = 1 OR c.b = 1",
            "c.a = 1 AND (c.b = 1 OR c.c = 2)",
            "c.a BETWEEN 1 AND 5",
            "c.a NOT BETWEEN 1 AND 5",
            "c.a IN (3, 1, 'x', null, 1.0)",
            "c.a NOT IN (1, 2)",
            "c.a IN (1, undefined)",
            "c.a NOT IN (1, undefined)",
            "5 IN (c.a, c.b)",
            "c.a = [1]",
            "c.a != {'x': 1}",
            "c.a < [1]",
            "c.a = undefined",
            "c.a",
            "NOT c.a",
            "c['odd name'].b['c'] = 9007199254740993",
            "c.a = c.b",
            "c.a + 1 = 2",
            "true",
            "false",
            "1 = 1 AND c.a = 2",
            "c.a = 1 = true",
            "IS_DEFINED(c.a) = false",
            "(c.a = 1 OR c.b = 1) = false",
            "(c.a > 1) != true",
        ],
        expect![[r#"
            c.a = 1
                /a = 1
            1 = c.a
                /a = 1
            c.a != null
                /a (null, ∞)
            NOT (c.a = 'x')
                /a [null, "x") | ("x", ∞)
            c.a > 1
                /a > 1
            3 > c.a
                /a < 3
            c.a >= 'x'
                /a >= "x"
            c.a <= true
                /a boolean
            c.a < null
                nothing
            NOT (c.a < 'x')
                /a >= "x"
            c.a > -1 - 1
                /a > -2
            c.a > 1 AND c.a <= 5
                /a (1, 5]
            c.a > 5 AND c.a < 1
                nothing
            c.a > 1 AND c.a > 'x'
                nothing
            c.a = 1 OR c.a > 5 OR c.a = 'x'
                /a = 1 | > 5 | = "x"
            c.a = 1 OR c.b = 1
                /a = 1 OR /b = 1
            c.a = 1 AND (c.b = 1 OR c.c = 2)
                /a = 1 AND (/b = 1 OR /c = 2)
            c.a BETWEEN 1 AND 5
                /a [1, 5]
            c.a NOT BETWEEN 1 AND 5
                /a < 1 | > 5
            c.a IN (3, 1, 'x', null, 1.0)
                /a null | = 1 | = 3 | = "x"
            c.a NOT IN (1, 2)
                /a [null, 1) | (1, 2) | (2, ∞)
            c.a IN (1, undefined)
                /a = 1
            c.a NOT IN (1, undefined)
                nothing
            5 IN (c.a, c.b)
                /a = 5 OR /b = 5
            c.a = [1]
                ~ ~/a array
            c.a != {'x': 1}
                ~ ~/a defined
            c.a < [1]
                nothing
            c.a = undefined
                nothing
            c.a
                /a = true
            NOT c.a
                /a = false
            c['odd name'].b['c'] = 9007199254740993
                /"odd name"/b/c = 9007199254740993
            c.a = c.b
                ~ all
            c.a + 1 = 2
                ~ all
            true
                all
            false
                nothing
            1 = 1 AND c.a = 2
                /a = 2
            c.a = 1 = true
                ~ all
            IS_DEFINED(c.a) = false
                /a undefined
            (c.a = 1 OR c.b = 1) = false
                /a [null, 1) | (1, ∞) AND /b [null, 1) | (1, ∞)
            (c.a > 1) != true
                /a <= 1
        "#]],
    );
}

#[test]
fn functions() {
    check_filters(
        &[
            "IS_DEFINED(c.a)",
            "NOT IS_DEFINED(c.a)",
            "IS_NULL(c.a) OR IS_BOOL(c.a)",
            "NOT IS_NULL(c.a)",
            "IS_NUMBER(c.a)",
            "IS_STRING(c.a) OR IS_ARRAY(c.a) OR c.a > 5 OR IS_OBJECT(c.a)",
            "IS_PRIMITIVE(c.a)",
            "NOT IS_PRIMITIVE(c.a)",
            "IS_INTEGER(c.a)",
            "STARTSWITH(c.a, 'ab')",
            "NOT STARTSWITH(c.a, 'ab')",
            "STARTSWITH(c.a, 'ab', true)",
            "STARTSWITH(c.a, 5)",
            "STARTSWITH(c.a, '')",
            "StringEquals(c.a, 'x')",
            "CONTAINS(c.a, 'x') AND c.a > 'k'",
            "NOT ENDSWITH(c.a, 'x')",
            "c.a LIKE 'ab%'",
            "c.a NOT LIKE 'ab%'",
            "c.a LIKE 'ab'",
            "c.a LIKE 'ab_d%'",
            "c.a LIKE '%x'",
            "LOWER(c.a) = 'x'",
            "RegexMatch(c.a, '^ab.*x')",
            "RegexMatch(c.a, '^abc*')",
            "RegexMatch(c.a, '^a|b')",
            "ARRAY_CONTAINS(c.tags, 'x')",
            "NOT ARRAY_CONTAINS(c.tags, 'x')",
            "ARRAY_CONTAINS(c.orders, {'sku': 1, 'at': {'city': 'x'}}, true)",
            "ARRAY_CONTAINS(c.orders, {})",
            "ARRAY_CONTAINS(['a', 'b', 1], c.a)",
            "NOT ARRAY_CONTAINS(['a'], c.a)",
            "ARRAY_CONTAINS_ANY(c.tags, 'x', 'y')",
            "ARRAY_CONTAINS_ALL(c.tags, 'x', 'y')",
            "FLOOR(c.a) = 5",
            "ABS(c.a) <= 3",
            "ABS(c.a) = 3",
            "LEFT(c.a, 2) = 'ab'",
            "SUBSTRING(c.a, 1, 2) = 'ab'",
            "YEAR(c.a) = 2024",
            "(c.a ?? 0) > 5",
            "(c.a ?? 0) < 5",
            "NOT (c.deleted ?? false)",
            "c.deleted ?? false",
            "(SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = 'x') > 0",
            "(SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = 'x') = 0",
            "IIF(c.a = 1, c.b = 2, false)",
        ],
        expect![[r#"
            IS_DEFINED(c.a)
                /a defined
            NOT IS_DEFINED(c.a)
                /a undefined
            IS_NULL(c.a) OR IS_BOOL(c.a)
                /a [null, true]
            NOT IS_NULL(c.a)
                /a [undefined, null) | (null, ∞)
            IS_NUMBER(c.a)
                /a number
            IS_STRING(c.a) OR IS_ARRAY(c.a) OR c.a > 5 OR IS_OBJECT(c.a)
                /a (5, ∞)
            IS_PRIMITIVE(c.a)
                /a scalar
            NOT IS_PRIMITIVE(c.a)
                /a [undefined, null) | [[], ∞)
            IS_INTEGER(c.a)
                ~ ~/a number
            STARTSWITH(c.a, 'ab')
                /a ["ab", "ac")
            NOT STARTSWITH(c.a, 'ab')
                /a < "ab" | >= "ac"
            STARTSWITH(c.a, 'ab', true)
                ~ ~/a string
            STARTSWITH(c.a, 5)
                nothing
            STARTSWITH(c.a, '')
                /a string
            StringEquals(c.a, 'x')
                /a = "x"
            CONTAINS(c.a, 'x') AND c.a > 'k'
                ~ ~/a > "k"
            NOT ENDSWITH(c.a, 'x')
                ~ ~/a string
            c.a LIKE 'ab%'
                /a ["ab", "ac")
            c.a NOT LIKE 'ab%'
                /a < "ab" | >= "ac"
            c.a LIKE 'ab'
                /a = "ab"
            c.a LIKE 'ab_d%'
                ~ ~/a ["ab", "ac")
            c.a LIKE '%x'
                ~ ~/a string
            LOWER(c.a) = 'x'
                ~ all
            RegexMatch(c.a, '^ab.*x')
                ~ ~/a ["ab", "ac")
            RegexMatch(c.a, '^abc*')
                ~ ~/a ["ab", "ac")
            RegexMatch(c.a, '^a|b')
                ~ ~/a string
            ARRAY_CONTAINS(c.tags, 'x')
                ~ /tags/[] = "x"
            NOT ARRAY_CONTAINS(c.tags, 'x')
                ~ ~/tags array
            ARRAY_CONTAINS(c.orders, {'sku': 1, 'at': {'city': 'x'}}, true)
                ~ ~/orders/[]/sku = 1 AND ~/orders/[]/at/city = "x"
            ARRAY_CONTAINS(c.orders, {})
                ~ ~/orders array
            ARRAY_CONTAINS(['a', 'b', 1], c.a)
                /a = 1 | = "a" | = "b"
            NOT ARRAY_CONTAINS(['a'], c.a)
                /a [null, "a") | ("a", ∞)
            ARRAY_CONTAINS_ANY(c.tags, 'x', 'y')
                ~ /tags/[] = "x" | = "y"
            ARRAY_CONTAINS_ALL(c.tags, 'x', 'y')
                ~ /tags/[] = "x" AND /tags/[] = "y"
            FLOOR(c.a) = 5
                ~ ~/a [4, 6]
            ABS(c.a) <= 3
                ~ ~/a [-3, 3]
            ABS(c.a) = 3
                ~ ~/a = -3 | = 3
            LEFT(c.a, 2) = 'ab'
                ~ ~/a ["ab", "ac")
            SUBSTRING(c.a, 1, 2) = 'ab'
                ~ ~/a string
            YEAR(c.a) = 2024
                ~ ~/a ["2023-12-31", "2023-12-32") | ["2024-", "2024.") | ["2025-01-01", "2025-01-02")
            (c.a ?? 0) > 5
                /a > 5
            (c.a ?? 0) < 5
                /a undefined | < 5
            NOT (c.deleted ?? false)
                /deleted undefined | = false
            c.deleted ?? false
                /deleted = true
            (SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = 'x') > 0
                ~ ~/tags array AND ~/tags/[] = "x"
            (SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = 'x') = 0
                ~ all
            IIF(c.a = 1, c.b = 2, false)
                ~ ~/a = 1 AND ~/b = 2
        "#]],
    );
}

#[test]
fn elements() {
    check(
        &[
            "SELECT * FROM c WHERE c.a[0] = 1 AND c.a[0] = 2",
            "SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x' OR t = 'y')",
            "SELECT * FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')",
            "SELECT c.id, o.sku FROM c JOIN o IN c.orders JOIN l IN o.lines WHERE o.sku = 1 AND l.n > 5 AND c.b = 2",
            "SELECT VALUE x.y FROM x IN c.items WHERE x.z = 1",
            "SELECT VALUE s.y FROM c.sub s WHERE s.z = 1 ORDER BY s.w",
            "SELECT t.x FROM (SELECT c.a AS x, c.b FROM c WHERE c.d = 1) t WHERE t.x = 1",
        ],
        expect![[r#"
            SELECT * FROM c WHERE c.a[0] = 1 AND c.a[0] = 2
                ~ ~/a/[] = 1 AND ~/a/[] = 2
            SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x' OR t = 'y')
                ~ ~/tags array AND ~/tags/[] = "x" | = "y"
            SELECT * FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')
                ~ all
            SELECT c.id, o.sku FROM c JOIN o IN c.orders JOIN l IN o.lines WHERE o.sku = 1 AND l.n > 5 AND c.b = 2
                ~ ~/orders array AND ~/orders/[]/sku = 1 AND ~/orders/[]/lines/[]/n > 5 AND /b = 2; reads /b /id /orders
            SELECT VALUE x.y FROM x IN c.items WHERE x.z = 1
                ~ ~/items array AND ~/items/[]/z = 1; reads /items
            SELECT VALUE s.y FROM c.sub s WHERE s.z = 1 ORDER BY s.w
                ~ /sub defined AND /sub/z = 1 AND /sub/y defined; order /sub/w; reads /sub
            SELECT t.x FROM (SELECT c.a AS x, c.b FROM c WHERE c.d = 1) t WHERE t.x = 1
                ~ /d = 1 AND /a = 1; reads /a /b /d
        "#]],
    );
}

#[test]
fn order_reads_and_aggregates() {
    check(
        &[
            "SELECT * FROM c ORDER BY c.a",
            "SELECT c.x FROM c WHERE c.y = 1 ORDER BY c.a.b DESC, c._ts",
            "SELECT c._rid, [{'item': c.k}] AS orderByItems, {'id': c.id} AS payload FROM c WHERE (c.a > 1) AND (true) ORDER BY c.k",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT VALUE COUNT(1) FROM c WHERE c.a > 5",
            "SELECT VALUE COUNT(c.a) FROM c WHERE c.b > 5",
            "SELECT VALUE [{'item': MIN(c.a), 'item2': {'min': MIN(c.a), 'count': COUNT(c.a)}}] FROM c WHERE c.a > 1",
            "SELECT VALUE SUM(c.a) FROM c",
            "SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k",
            "SELECT c.a.b, c.a.b.d, c.a FROM c",
        ],
        expect![[r#"
            SELECT * FROM c ORDER BY c.a
                all; order /a
            SELECT c.x FROM c WHERE c.y = 1 ORDER BY c.a.b DESC, c._ts
                /y = 1; order /a/b desc, /_ts; reads /_ts /a/b /x /y
            SELECT c._rid, [{'item': c.k}] AS orderByItems, {'id': c.id} AS payload FROM c WHERE (c.a > 1) AND (true) ORDER BY c.k
                /a > 1; order /k; reads /_rid /a /id /k
            SELECT VALUE COUNT(1) FROM c
                all; reads ; aggregate
            SELECT VALUE COUNT(1) FROM c WHERE c.a > 5
                /a > 5; reads /a; aggregate /a
            SELECT VALUE COUNT(c.a) FROM c WHERE c.b > 5
                /b > 5; reads /a /b
            SELECT VALUE [{'item': MIN(c.a), 'item2': {'min': MIN(c.a), 'count': COUNT(c.a)}}] FROM c WHERE c.a > 1
                /a > 1; reads /a; aggregate /a min
            SELECT VALUE SUM(c.a) FROM c
                all; reads /a
            SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k
                all; reads /k
            SELECT c.a.b, c.a.b.d, c.a FROM c
                all; reads /a
        "#]],
    );
}

#[test]
fn regions() {
    let point = "{'type': 'Point', 'coordinates': [1, 2]}";
    let filters = [
        format!("ST_DISTANCE(c.loc, {point}) < 500"),
        format!("10 >= ST_DISTANCE({point}, c.loc)"),
        format!("NOT (ST_DISTANCE(c.loc, {point}) > 5)"),
        format!("ST_DISTANCE(c.loc, {point}) > 5"),
        format!("ST_WITHIN(c.loc, {point}) AND c.a = 1"),
        format!("ST_WITHIN({point}, c.loc)"),
        format!("ST_INTERSECTS(c.loc, {point}) OR c.a = 1"),
        format!("NOT ST_INTERSECTS(c.loc, {point})"),
        "ST_WITHIN(c.loc, c.area)".to_owned(),
    ];
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    check_filters(
        &filters,
        expect![[r#"
        ST_DISTANCE(c.loc, {'type': 'Point', 'coordinates': [1, 2]}) < 500
            ~ ~/loc Near(500.0) {"type":"Point","coordinates":[1,2]}
        10 >= ST_DISTANCE({'type': 'Point', 'coordinates': [1, 2]}, c.loc)
            ~ ~/loc Near(10.0) {"type":"Point","coordinates":[1,2]}
        NOT (ST_DISTANCE(c.loc, {'type': 'Point', 'coordinates': [1, 2]}) > 5)
            ~ ~/loc Near(5.0) {"type":"Point","coordinates":[1,2]}
        ST_DISTANCE(c.loc, {'type': 'Point', 'coordinates': [1, 2]}) > 5
            ~ all
        ST_WITHIN(c.loc, {'type': 'Point', 'coordinates': [1, 2]}) AND c.a = 1
            ~ ~/loc Within {"type":"Point","coordinates":[1,2]} AND /a = 1
        ST_WITHIN({'type': 'Point', 'coordinates': [1, 2]}, c.loc)
            ~ ~/loc Contains {"type":"Point","coordinates":[1,2]}
        ST_INTERSECTS(c.loc, {'type': 'Point', 'coordinates': [1, 2]}) OR c.a = 1
            ~ ~/loc Intersects {"type":"Point","coordinates":[1,2]} OR /a = 1
        NOT ST_INTERSECTS(c.loc, {'type': 'Point', 'coordinates': [1, 2]})
            ~ all
        ST_WITHIN(c.loc, c.area)
            ~ all
    "#]],
    );
}

#[test]
fn texts() {
    check_filters(
        &[
            "FullTextContains(c.text, 'red fox')",
            "FullTextContainsAll(c.text, 'red', {'term': 'fox', 'distance': 1})",
            "FullTextContainsAny(c.text, 'red', 'fox') AND c.a = 1",
            "NOT FullTextContains(c.text, 'red')",
            "FullTextContains(c.text, c.term)",
        ],
        expect![[r#"
            FullTextContains(c.text, 'red fox')
                ~ ~/text has all "red fox"
            FullTextContainsAll(c.text, 'red', {'term': 'fox', 'distance': 1})
                ~ ~/text has all "red" "fox"~1
            FullTextContainsAny(c.text, 'red', 'fox') AND c.a = 1
                ~ ~/text has any "red" "fox" AND /a = 1
            NOT FullTextContains(c.text, 'red')
                ~ ~/text string
            FullTextContains(c.text, c.term)
                ~ ~/text string
        "#]],
    );
}

/// The declared index use of predicates is implemented.
#[test]
fn index_use_is_kept() {
    use crate::functions::{IndexUse, all};
    for function in all() {
        let text = format!("SELECT * FROM c WHERE {}(c.a, 'x')", function.name());
        let Ok(query) = Query::compile(&text, &Parameters::default(), &[]) else { continue };
        let narrows = !matches!(query.analysis().filter, Condition::All);
        match function.index_use() {
            IndexUse::Scan | IndexUse::Prefix | IndexUse::Seek => assert!(narrows, "{text}"),
            IndexUse::None => assert!(!narrows, "{text}"),
            IndexUse::Range | IndexUse::Spatial | IndexUse::FullText | IndexUse::Vector => {}
        }
    }
}

#[test]
fn many_conditions_take_no_time() {
    let joined = |word: &str, operator: &str| {
        let parts: Vec<String> = (0..5_000).map(|n| format!("c.a {operator} {n}")).collect();
        show(&format!("SELECT * FROM c WHERE {}", parts.join(word)))
    };
    assert_eq!(joined(" OR ", "=").matches('|').count(), 4_999);
    assert_eq!(joined(" AND ", "!=").matches('|').count(), 5_000);
    let parts: Vec<String> = (0..2_000).map(|n| format!("(c.a = {n} AND c.b = {n})")).collect();
    show(&format!("SELECT * FROM c WHERE {}", parts.join(" OR ")));
}
