//! Queries of a few parts that fit together: subqueries in subqueries, joins of subqueries, sorted groups, parameters,
//! computed properties, patterns with escapes, and values at the edges of their kinds.

use super::{ExpectedRows, QueryGenerator, RandomQuery, TYPE_TESTS, quoted, step};

/// What parameters stand for, as JSON. Queries that are judged with them get all of them.
pub const PARAMETERS: &[(&str, &str)] = &[
    ("@n", "1"),
    ("@s", "\"ab\""),
    ("@nothing", "null"),
    ("@yes", "true"),
    ("@list", "[1,\"a\",null,{\"k\":\"a\"},2.5]"),
    ("@object", "{\"x\":1,\"y\":\"a\"}"),
    ("@big", "9007199254740993"),
    ("@name", "\"n\""),
    ("@first", "0"),
    ("@count", "3"),
    ("@pattern", "\"a%\""),
    ("@region", r#"{"type":"Polygon","coordinates":[[[0.5,0.5],[2.5,0.5],[2.5,2.5],[0.5,2.5],[0.5,0.5]]]}"#),
];

/// Computed properties that containers may have. Each has an index of its own there.
pub const COMPUTED: &[(&str, &str)] = &[
    ("cp_upper", "SELECT VALUE UPPER(c.s) FROM c"),
    ("cp_double", "SELECT VALUE c.n * 2 FROM c"),
    ("cp_object", "SELECT VALUE {a: c.n, b: [c.s, c.m]} FROM c"),
    ("cp_list", "SELECT VALUE ARRAY_CONCAT(c.t, [c.n]) FROM c"),
    ("cp_kind", "SELECT VALUE IS_NUMBER(c.m) ? 'number' : (IS_STRING(c.m) ? 'text' : c.m) FROM c"),
];
const COMPUTED_PATHS: &[&str] =
    &["cp_upper", "cp_double", "cp_object", "cp_object.a", "cp_list", "cp_list[0]", "cp_kind"];

/// Expressions over `c`; `$` is a path of the item.
const VALUES: &[&str] = &[
    "-$",
    "+$",
    "~$",
    "NOT $",
    "($ >>> 1)",
    "($ << 33)",
    "($ / 0)",
    "(0 / $)",
    "($ * 1e308 * 10)",
    "($ - $)",
    "($ ?? c.gone ?? @nothing)",
    "(IS_DEFINED($) ? $ : 'none')",
    "{a: $, b: undefined, c: [undefined, $]}",
    "[$, c.gone, null]",
    "c[@name]",
    "c.t[@first]",
    "@list[1]",
    "@object.y",
    "@big",
    "{'x': $} = @object",
    "ARRAY_CONTAINS(@list, $)",
    "ARRAY_CONTAINS(@list, {k: c.s}, true)",
    "c['o']['x']",
    "c.l[0].k",
    "c.t[1]",
    "c.t[-1]",
    "c.t['0']",
    "LENGTH($ || @s)",
    "CONCAT(@s, c.s, 'é')",
    "ARRAY_LENGTH(@list) + $",
    "(SELECT VALUE $)",
    "(SELECT VALUE COUNT(1) FROM t IN c.t)",
    "(SELECT VALUE COUNT(t) FROM t IN c.t WHERE t > $)",
    "(SELECT VALUE SUM(l.v) FROM l IN c.l WHERE l.v > 0)",
    "(SELECT VALUE AVG(l.v) FROM l IN c.l)",
    "(SELECT MIN(t) AS low, MAX(t) AS high FROM t IN c.t)",
    "(SELECT VALUE MAX((SELECT VALUE COUNT(1) FROM t IN c.t WHERE t = l.v)) FROM l IN c.l)",
    "ARRAY(SELECT VALUE t FROM t IN c.t WHERE t != $)",
    "ARRAY(SELECT DISTINCT VALUE t FROM t IN c.t)",
    "ARRAY(SELECT VALUE l.k FROM l IN c.l WHERE l.v > 0)",
    "ARRAY(SELECT l.k, COUNT(1) AS n FROM l IN c.l GROUP BY l.k)",
    "ARRAY(SELECT VALUE {k: l.k, same: ARRAY(SELECT VALUE t FROM t IN c.t WHERE t = l.k OR t = l.v)} FROM l IN c.l)",
    "ARRAY(SELECT VALUE [a, b] FROM a IN c.t JOIN b IN c.t WHERE a < b)",
    "EXISTS(SELECT VALUE 1 FROM l IN c.l JOIN t IN c.t WHERE l.v = t)",
    "EXISTS(SELECT VALUE l FROM l IN c.l WHERE EXISTS(SELECT VALUE t FROM t IN c.t WHERE t = l.v OR t = $))",
    "EXISTS(SELECT VALUE x FROM x IN (SELECT VALUE @list) WHERE x = $)",
    "FIRST(SELECT VALUE t FROM t IN c.t WHERE IS_NUMBER(t))",
    "LAST(SELECT VALUE l.v FROM l IN c.l WHERE l.v != $)",
    "(LET x = $ IN (LET y = [x] IN [x, y]))",
    "StringToNumber(c.s) + 1",
    "ToString($)",
    "DateTimeToTimestamp(c.d)",
    "DateTimePart('hh', c.d)",
    "DateTimeDiff('mi', c.d, '2024-01-01T01:30:00+02:00')",
];

/// Conditions over `c`, most of which an index can help with.
const CONDITIONS: &[&str] = &[
    "$ = @n",
    "$ >= @n",
    "$ != @nothing",
    "$ IN (@n, @s, @nothing, @yes)",
    "$ NOT IN (@big, 1, 'a')",
    "$ BETWEEN @n AND @big",
    "$ NOT BETWEEN -1 AND 2",
    "$ BETWEEN 2 AND 1",
    "$ = @list",
    "$ = @object",
    "$ != {}",
    "$ = []",
    "$ IN ([], {}, null, 0)",
    "$ > (1 / 0)",
    "$ < (1 / 0)",
    "$ >= (-1 / 0)",
    "$ != (0 / 0)",
    "$ = (0 / 0)",
    "$ = undefined",
    "$ != undefined",
    "$ = -0.0",
    "$ < 9007199254740993",
    "$ >= 9007199254740992.0",
    "$ = 18446744073709551615",
    "$ = 1.8446744073709552e19",
    "$ <= -9223372036854775808",
    "c.big = $",
    "c.big > 9223372036854775807",
    "c.big BETWEEN -9007199254740993 AND 9007199254740993",
    "c.big IN (9223372036854775807, 9223372036854775808, 0.1)",
    "c.s LIKE @pattern",
    "c.s LIKE 'a!%b' ESCAPE '!'",
    "c.s LIKE 'a!_%' ESCAPE '!'",
    "c.s NOT LIKE '%!_%' ESCAPE '!'",
    "c.s LIKE 'a%%b' ESCAPE '%'",
    "c.s LIKE '[^a]%'",
    "c.s LIKE '[a-b]_'",
    "c.s LIKE '_'",
    "c.s LIKE '%' || @s || '%'",
    "$ LIKE c.s",
    "STARTSWITH($, @s)",
    "STARTSWITH(c.long, 'longlonglong')",
    "c.long > 'longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonga'",
    "ARRAY_CONTAINS(@list, $)",
    "ARRAY_CONTAINS([1, 2, 'a'], $)",
    "ARRAY_CONTAINS(c.t, @n)",
    "ARRAY_CONTAINS(c.t, c.n)",
    "ARRAY_CONTAINS_ANY(c.t, 1, 'a', @nothing)",
    "ARRAY_CONTAINS_ALL(c.t, @n, 'a')",
    "ABS($) = 1",
    "FLOOR($) = 2",
    "ABS($) IN (@n, 2)",
    "LOWER(c.s) = 'a'",
    "StringEquals(c.s, 'A', true)",
    "c[@name] > 0",
    "c.t[@first] = 1",
    "c.t[0] != 1",
    "c.l[0].v >= 2",
    "c.o.x = c.n",
    "IS_NUMBER($) AND $ > 0",
    "IS_NUMBER($) OR $ = 'a' OR $ = null",
    "NOT ($ > 1) AND NOT IS_NULL($)",
    "NOT (NOT ($ = 1 OR $ = 'a'))",
    "IS_DEFINED($) AND NOT IS_STRING($)",
    "NOT IS_DEFINED($) OR $ < 2",
    "($ > 1) = true",
    "($ > 1) != false",
    "($ = 1 ? true : $)",
    "($ ?? true)",
    "c.pk = 'key1' AND $ > 0",
    "c.pk IN ('key1', 'key2') AND $ != 1",
    "c.pk = 'key1' OR c.id = '7'",
    "c.id IN ('1', '2', '3', '40', 'none')",
    "c.id > '3' AND c.id <= '5'",
    "ST_WITHIN(c.g, @region)",
    "ST_INTERSECTS(@region, c.g)",
    "ST_DISTANCE(c.g, {'type': 'Point', 'coordinates': [2, 2]}) < 160000",
    "ST_DISTANCE(c.g, {'type': 'Point', 'coordinates': [2, 2]}) BETWEEN 1000 AND 160000",
    "FullTextContains(c.txt, 'fox') OR $ = 1",
    "FullTextContainsAll(c.txt, 'red', 'fox') AND $ != 1",
    "NOT FullTextContains(c.txt, 'fox')",
    "RegexMatch(c.s, '^a', 'i')",
    "EXISTS(SELECT VALUE t FROM t IN c.t WHERE t = @n OR t > $)",
    "EXISTS(SELECT VALUE l FROM l IN c.l WHERE l.k = @s AND l.v > 0)",
    "NOT EXISTS(SELECT VALUE l FROM l IN c.l WHERE l.v < 1)",
    "(SELECT VALUE COUNT(1) FROM t IN c.t WHERE t = 'a') >= @n",
    "ALL(SELECT VALUE t FROM t IN c.t WHERE IS_NUMBER(t) OR t = $)",
    "c.d < '2024'",
    "DateTimeAdd('hh', -2, c.d) < '2024-01-01T00:00:00.0000000Z'",
    "DateTimeToTicks(c.d) > 17000000000000000",
    "false",
    "true AND $ > 0",
    "false OR $ > 0",
    "1 = 1 AND c.n > 1",
    "undefined OR $ = 1",
];

/// Sources with the names that they declare; the last is what rows are made of.
const SOURCES: &[(&str, &str)] = &[
    ("FROM c JOIN a IN c.t JOIN b IN c.t WHERE a = b", "[c.id, a, b]"),
    ("FROM c JOIN a IN c.t JOIN l IN c.l WHERE a = l.v OR a = l.k", "[c.id, a, l]"),
    ("FROM c JOIN (SELECT VALUE COUNT(1) FROM t IN c.t) AS k WHERE k > 1", "[c.id, k]"),
    ("FROM c JOIN (SELECT l.k, SUM(l.v) AS s FROM l IN c.l GROUP BY l.k) AS g WHERE g.s > 1", "[c.id, g]"),
    ("FROM c JOIN (SELECT DISTINCT VALUE t FROM t IN c.t) AS d WHERE d > 0", "[c.id, d]"),
    (
        "FROM c JOIN (SELECT VALUE FIRST(SELECT VALUE l FROM l IN c.l)) AS one WHERE one.v > 0",
        "[c.id, one.k]",
    ),
    ("FROM c JOIN x IN (SELECT VALUE c.t)", "[c.id, x]"),
    ("FROM c JOIN x IN (SELECT VALUE ARRAY_CONCAT(c.t, @list)) WHERE x = @n", "[c.id, x]"),
    (
        "FROM c JOIN (SELECT VALUE t FROM t IN c.t WHERE t > 0) AS p JOIN (SELECT VALUE l FROM l IN c.l WHERE l.v = p) AS q",
        "[c.id, p, q]",
    ),
    ("FROM c JOIN o IN c.l JOIN t IN c.t WHERE o.v > 0 AND c.n > 0 AND t = 'a'", "[c.id, o.v, t]"),
    ("FROM l IN c.l WHERE l.v > 1", "l"),
    ("FROM t IN c.t WHERE t = @n OR t = 'a'", "t"),
    ("FROM c.o.x AS x WHERE x > 0", "x"),
    ("FROM c.l[0] AS f WHERE f.v > 0", "f"),
    ("FROM (SELECT VALUE c FROM c WHERE c.n > 0) AS s JOIN t IN s.t", "[s.id, t]"),
    ("FROM (SELECT c.id, c.t AS list FROM c) AS s JOIN t IN s.list WHERE t = 'a'", "[s.id, t]"),
    ("FROM c JOIN u IN c.cp_list WHERE u = 1", "[c.id, u]"),
    ("FROM c WHERE c.cp_double > 2", "[c.id, c.cp_kind]"),
];

/// As a member of an item: integers at the edges of 64 bits, and doubles beside them.
const BIG: &[&str] = &[
    "9007199254740992",
    "9007199254740993",
    "9007199254740994",
    "-9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e19",
    "0.1",
    "-0.0",
    "5e-324",
    "1.7976931348623157e308",
];

impl QueryGenerator {
    pub(super) fn shaped(&mut self) -> RandomQuery {
        match self.below(12) {
            0..=2 => self.valued(),
            3 => self.joined(),
            4 => self.sorted_groups(),
            5 => self.sorted_distinct(),
            6 => self.sorted_rows(),
            7 => self.grouped_by_expressions(),
            8 => self.counted(),
            9 => self.windowed(),
            10 => self.sorted_through_subqueries(),
            _ => self.nested_groups(),
        }
    }

    pub(super) fn big_member(&mut self) -> String {
        if self.one_in(8) { quoted("big") } else { self.pick(BIG).to_owned() }
    }

    fn any_path(&mut self) -> String {
        if self.one_in(6) {
            return step("c", self.pick(COMPUTED_PATHS));
        }
        if self.one_in(10) {
            return "c.big".to_owned();
        }
        self.path_of("c")
    }

    fn condition(&mut self) -> String {
        let one = |random: &mut QueryGenerator| {
            let path = random.any_path();
            if random.one_in(8) {
                return format!("{}({path})", random.pick(TYPE_TESTS));
            }
            random.pick(CONDITIONS).replace('$', &path)
        };
        match self.below(6) {
            0 => format!("({}) AND ({})", one(self), one(self)),
            1 => format!("({}) OR ({})", one(self), one(self)),
            2 => format!("NOT ({})", one(self)),
            _ => one(self),
        }
    }

    fn where_clause(&mut self) -> String {
        if self.one_in(3) { String::new() } else { format!(" WHERE {}", self.condition()) }
    }

    fn value(&mut self) -> String {
        let path = self.any_path();
        self.pick(VALUES).replace('$', &path)
    }

    fn valued(&mut self) -> RandomQuery {
        let filter = self.where_clause();
        rows(match self.below(4) {
            0 => format!("SELECT c.id, {} AS one FROM c{filter}", self.value()),
            1 => format!("SELECT VALUE [c.id, {}, {}] FROM c{filter}", self.value(), self.value()),
            2 => format!("SELECT VALUE {} FROM c{filter}", self.value()),
            _ => format!("SELECT VALUE c.id FROM c WHERE {}", self.condition()),
        })
    }

    fn joined(&mut self) -> RandomQuery {
        let (from, row) = self.pick(SOURCES);
        rows(match self.below(3) {
            0 => format!("SELECT VALUE COUNT(1) {from}"),
            1 => format!("SELECT DISTINCT VALUE {row} {from}"),
            _ => format!("SELECT VALUE {row} {from}"),
        })
    }

    fn sorted_groups(&mut self) -> RandomQuery {
        let (filter, aggregate) = (self.where_clause(), self.pick(AGGREGATES));
        let direction = self.pick(&["", " DESC"]);
        let window = self.pick(&["", "", " OFFSET 1 LIMIT 3", " OFFSET 0 LIMIT @count"]);
        if self.one_in(4) {
            let keys = self.pick(&[
                ("c.n, c.s", "c.n, c.s"),
                ("c.s, c.n", "c.s, c.n DESC"),
                ("c.n, c.s", "c.n DESC, c.s DESC"),
            ]);
            return ordered(format!(
                "SELECT [{}] AS both, {aggregate} AS agg FROM c{filter} GROUP BY {} ORDER BY {}{window}",
                keys.0, keys.0, keys.1
            ));
        }
        let path = step("c", self.pick(SORTED));
        ordered(format!(
            "SELECT {path} AS k, {aggregate} AS agg FROM c{filter} GROUP BY {path} ORDER BY {path}{direction}{window}"
        ))
    }

    fn sorted_distinct(&mut self) -> RandomQuery {
        let (filter, path) = (self.where_clause(), step("c", self.pick(SORTED)));
        let direction = self.pick(&["", " DESC"]);
        let top = self.pick(&["", "TOP 3 ", "TOP @count "]);
        ordered(format!("SELECT DISTINCT {top}VALUE {path} FROM c{filter} ORDER BY {path}{direction}"))
    }

    fn sorted_rows(&mut self) -> RandomQuery {
        let filter = self.where_clause();
        let order = match self.below(4) {
            0 => {
                self.pick(&["c.n, c.s", "c.n DESC, c.s DESC", "c.s, c.n DESC", "c.o.x DESC, c.id"]).to_owned()
            }
            _ => format!("{}{}", step("c", self.pick(SORTED)), self.pick(&["", " ASC", " DESC"])),
        };
        ordered(match self.below(4) {
            0 => {
                let join = self.pick(&["t IN c.t", "l IN c.l"]);
                let filter = self.where_clause();
                let name = &join[..1];
                format!("SELECT VALUE [c.id, {name}] FROM c JOIN {join}{filter} ORDER BY {order}")
            }
            1 => format!("SELECT VALUE {} FROM c{filter} ORDER BY {order}", self.value()),
            2 => format!("SELECT TOP @count c.id, {} AS one FROM c{filter} ORDER BY {order}", self.value()),
            _ => format!("SELECT VALUE c.id FROM c{filter} ORDER BY {order} OFFSET @first LIMIT @count"),
        })
    }

    fn grouped_by_expressions(&mut self) -> RandomQuery {
        let key = match self.below(3) {
            0 => self.pick(GROUP_KEYS).replace('$', &self.any_path()),
            _ => self.any_path(),
        };
        let (first, second) = (self.pick(AGGREGATES), self.pick(AGGREGATES));
        let filter = self.where_clause();
        rows(match self.below(3) {
            0 => format!("SELECT {key} AS k, {first} AS a, {second} AS b FROM c{filter} GROUP BY {key}"),
            1 => format!("SELECT VALUE {{k: {key}, a: {first}}} FROM c{filter} GROUP BY {key}"),
            _ => format!("SELECT {key} AS k, c.pk AS p, {first} AS a FROM c{filter} GROUP BY {key}, c.pk"),
        })
    }

    /// By kinds of values: an index counts them by its ends, and some kinds have no bound of their own.
    fn counted_by_kind(&mut self) -> RandomQuery {
        let path = step("c", self.pick(&["o", "m", "t", "g", "l", "big"]));
        let kind = |random: &mut QueryGenerator| random.pick(KINDS).replace('$', &path);
        let filter = match self.below(4) {
            0 => format!("{} OR {}", kind(self), kind(self)),
            1 => format!("NOT ({})", kind(self)),
            _ => kind(self),
        };
        let count =
            self.pick(&["COUNT(1)", "COUNT($)", "MAX($)", "MIN($)", "COUNTIF($ > 1)"]).replace('$', &path);
        rows(match self.below(4) {
            0 => format!("SELECT {count} AS a, COUNT(1) AS n FROM c WHERE {filter}"),
            1 => format!("SELECT VALUE COUNTIF({filter}) FROM c"),
            _ => format!("SELECT VALUE {count} FROM c WHERE {filter}"),
        })
    }

    fn counted(&mut self) -> RandomQuery {
        if self.one_in(2) {
            return self.counted_by_kind();
        }
        let filter = self.where_clause();
        let path = self.any_path();
        rows(match self.below(6) {
            0 => format!("SELECT VALUE COUNT(1) FROM c{filter}"),
            1 => format!("SELECT VALUE COUNT({path}) FROM c{filter}"),
            2 => format!(
                "SELECT VALUE {} FROM c{filter}",
                self.pick(&["MIN($)", "MAX($)"]).replace('$', &path)
            ),
            3 => format!("SELECT MIN({path}) AS a, MAX({path}) AS b, COUNT({path}) AS n FROM c{filter}"),
            4 => format!("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE {path} FROM c{filter})"),
            _ => format!("SELECT COUNT(1) AS n, COUNTIF({}) AS m FROM c{filter}", self.condition()),
        })
    }

    fn windowed(&mut self) -> RandomQuery {
        let (filter, value) = (self.where_clause(), self.value());
        let whole = format!("SELECT VALUE [c.id, {value}] FROM c{filter}");
        let text = match self.below(3) {
            0 => format!("SELECT TOP @count VALUE [c.id, {value}] FROM c{filter}"),
            1 => format!("{whole} OFFSET @first LIMIT @count"),
            _ => format!("{whole} OFFSET @count LIMIT 4"),
        };
        RandomQuery { text, whole, answer: ExpectedRows::Part }
    }

    fn sorted_through_subqueries(&mut self) -> RandomQuery {
        let filter = self.where_clause();
        let direction = self.pick(&["", " DESC"]);
        let outer = self.pick(&["", " WHERE s.n > 0", " WHERE IS_DEFINED(s.s)"]);
        ordered(match self.below(3) {
            0 => format!(
                "SELECT VALUE s FROM (SELECT * FROM c{filter}) AS s{outer} ORDER BY s.id{direction} OFFSET 1 LIMIT 9"
            ),
            1 => format!(
                "SELECT VALUE [s.id, s.n] FROM (SELECT VALUE c FROM c{filter}) AS s{outer} ORDER BY s.n{direction}"
            ),
            _ => format!(
                "SELECT VALUE s FROM (SELECT c.id, c.n, c.s, c.cp_kind AS kind FROM c{filter}) AS s{outer} ORDER BY s.n{direction}"
            ),
        })
    }

    /// Groups of groups, and conditions on groups.
    fn nested_groups(&mut self) -> RandomQuery {
        let (filter, path, aggregate) = (self.where_clause(), self.any_path(), self.pick(AGGREGATES));
        let inner =
            format!("SELECT {path} AS k, c.pk AS p, {aggregate} AS agg FROM c{filter} GROUP BY {path}, c.pk");
        rows(match self.below(4) {
            0 => format!("SELECT VALUE g FROM ({inner}) AS g WHERE g.agg > 1"),
            1 => format!("SELECT g.k, COUNT(1) AS n FROM ({inner}) AS g GROUP BY g.k"),
            2 => format!("SELECT VALUE COUNT(1) FROM ({inner}) AS g WHERE IS_DEFINED(g.k)"),
            _ => format!("SELECT DISTINCT VALUE g.k FROM ({inner}) AS g"),
        })
    }
}

const SORTED: &[&str] =
    &["n", "s", "m", "o.x", "id", "long", "gone", "big", "t", "o", "cp_upper", "cp_double", "cp_kind"];
const AGGREGATES: &[&str] = &[
    "COUNT(1)",
    "COUNT(c.n)",
    "SUM(c.n)",
    "AVG(c.n)",
    "MIN(c.m)",
    "MAX(c.m)",
    "MAX(c.big)",
    "MIN(c.s)",
    "COUNTIF(c.n > 1)",
    "COUNTIF(c.b)",
    "MAX(c.cp_double)",
    "COUNT(c.cp_upper)",
    "SUM(ARRAY_LENGTH(c.t))",
    "MAX((SELECT VALUE COUNT(1) FROM t IN c.t))",
];
const KINDS: &[&str] = &[
    "IS_OBJECT($)",
    "IS_ARRAY($)",
    "IS_STRING($)",
    "IS_NUMBER($)",
    "IS_NULL($)",
    "IS_BOOL($)",
    "IS_PRIMITIVE($)",
    "IS_DEFINED($)",
    "$ >= 1",
    "$ > 'a'",
    "$ != 1",
    "$ = {}",
    "$ >= []",
];
const GROUP_KEYS: &[&str] = &[
    "$ > 1",
    "UPPER($)",
    "IS_NUMBER($)",
    "[$, c.b]",
    "$ ?? 'none'",
    "{a: $}",
    "LENGTH($)",
    "$ || '!'",
    "ABS($)",
];

fn rows(text: String) -> RandomQuery {
    RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Rows }
}

fn ordered(text: String) -> RandomQuery {
    RandomQuery { whole: text.clone(), text, answer: ExpectedRows::Ordered }
}
