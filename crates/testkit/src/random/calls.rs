//! Calls of every built-in function with arguments of every kind.

use super::{FromClause, QueryGenerator, quoted};

/// Name and kinds of arguments, one letter each; see [`QueryGenerator::argument`]. A function may have several lines.
const CALLS: &[(&str, &str)] = &[
    ("IS_DEFINED", "x"),
    ("IS_NULL", "x"),
    ("IS_BOOL", "x"),
    ("IS_NUMBER", "x"),
    ("IS_FINITE_NUMBER", "x"),
    ("IS_INTEGER", "x"),
    ("IS_STRING", "x"),
    ("IS_ARRAY", "x"),
    ("IS_OBJECT", "x"),
    ("IS_PRIMITIVE", "x"),
    ("IS_DATETIME", "d"),
    ("ABS", "n"),
    ("CEILING", "n"),
    ("FLOOR", "n"),
    ("ROUND", "n"),
    ("TRUNC", "n"),
    ("SIGN", "n"),
    ("SQRT", "n"),
    ("SQUARE", "n"),
    ("POWER", "ni"),
    ("EXP", "n"),
    ("LOG", "n"),
    ("LOG", "nn"),
    ("LOG10", "n"),
    ("SIN", "n"),
    ("COS", "n"),
    ("TAN", "n"),
    ("COT", "n"),
    ("ASIN", "n"),
    ("ACOS", "n"),
    ("ATAN", "n"),
    ("ATN2", "nn"),
    ("DEGREES", "n"),
    ("RADIANS", "n"),
    ("PI", ""),
    ("NumberBin", "n"),
    ("NumberBin", "ni"),
    ("IntAdd", "ni"),
    ("IntSub", "ni"),
    ("IntMul", "ni"),
    ("IntDiv", "ni"),
    ("IntMod", "ni"),
    ("IntBitAnd", "ni"),
    ("IntBitOr", "ni"),
    ("IntBitXor", "ni"),
    ("IntBitNot", "n"),
    ("IntBitLeftShift", "ni"),
    ("IntBitRightShift", "ni"),
    ("CONCAT", "ss"),
    ("CONCAT", "ssx"),
    ("CONTAINS", "ss"),
    ("CONTAINS", "ssb"),
    ("STARTSWITH", "ssb"),
    ("ENDSWITH", "ssb"),
    ("StringEquals", "ssb"),
    ("CONTAINS_ANY_CS", "sss"),
    ("CONTAINS_ANY_CI", "ssx"),
    ("CONTAINS_ALL_CS", "ssx"),
    ("CONTAINS_ALL_CI", "sss"),
    ("INDEX_OF", "ss"),
    ("INDEX_OF", "ssi"),
    ("LastIndexOf", "ss"),
    ("LastIndexOf", "ssi"),
    ("LEFT", "si"),
    ("RIGHT", "si"),
    ("SUBSTRING", "sii"),
    ("SubstringBefore", "ss"),
    ("SubstringAfter", "ss"),
    ("LastSubstringBefore", "ss"),
    ("LastSubstringAfter", "ss"),
    ("LENGTH", "s"),
    ("LOWER", "s"),
    ("UPPER", "s"),
    ("TRIM", "s"),
    ("TRIM", "ss"),
    ("LTRIM", "ss"),
    ("RTRIM", "ss"),
    ("REPLACE", "sss"),
    ("REPLICATE", "si"),
    ("REVERSE", "s"),
    ("RegexMatch", "sr"),
    ("RegexMatch", "srm"),
    ("RegexExtract", "sr"),
    ("RegexExtractAll", "srm"),
    ("StringJoin", "as"),
    ("StringSplit", "ss"),
    ("ToString", "x"),
    ("StringToNumber", "s"),
    ("StringToBoolean", "s"),
    ("StringToNull", "s"),
    ("StringToArray", "s"),
    ("StringToObject", "s"),
    ("StringToNumber", "T"),
    ("StringToArray", "T"),
    ("StringToObject", "T"),
    ("ARRAY_LENGTH", "a"),
    ("ARRAY_CONCAT", "aa"),
    ("ARRAY_CONTAINS", "ax"),
    ("ARRAY_CONTAINS", "axb"),
    ("ARRAY_CONTAINS_ANY", "axx"),
    ("ARRAY_CONTAINS_ALL", "axx"),
    ("ARRAY_SLICE", "ai"),
    ("ARRAY_SLICE", "aii"),
    ("ARRAY_SUM", "a"),
    ("ARRAY_AVG", "a"),
    ("ARRAY_MEDIAN", "a"),
    ("ARRAY_MIN", "a"),
    ("ARRAY_MAX", "a"),
    ("SetUnion", "aa"),
    ("SetIntersect", "aa"),
    ("SetDifference", "aa"),
    ("SetEqual", "aa"),
    ("ObjectToArray", "o"),
    ("ObjectToArray", "os"),
    ("ObjectToArray", "oss"),
    ("ObjectWithout", "os"),
    ("ObjectWithout", "oss"),
    ("IIF", "xxx"),
    ("CHOOSE", "ixx"),
    ("DateTimeAdd", "pid"),
    ("DateTimeAdd", "pkd"),
    ("DateTimeDiff", "pdd"),
    ("DateTimePart", "pd"),
    ("DateTimeBin", "dp"),
    ("DateTimeBin", "dpi"),
    ("DateTimeBin", "dpid"),
    ("DateTimeBin", "dpkd"),
    ("DateTimeFromParts", "yii"),
    ("DateTimeFromParts", "yiiiii"),
    ("DateTimeFromParts", "yiikkkk"),
    ("DateTimeToTicks", "d"),
    ("DateTimeToTimestamp", "d"),
    ("TicksToDateTime", "n"),
    ("TicksToDateTime", "k"),
    ("TimestampToDateTime", "n"),
    ("TimestampToDateTime", "k"),
    ("DateTimeFormat", "df"),
    ("YEAR", "d"),
    ("MONTH", "d"),
    ("DAY", "d"),
    ("ST_DISTANCE", "gg"),
    ("ST_WITHIN", "gg"),
    ("ST_INTERSECTS", "gg"),
    ("ST_AREA", "g"),
    ("ST_ISVALID", "g"),
    ("ST_ISVALIDDETAILED", "g"),
    ("FullTextContains", "tw"),
    ("FullTextContainsAll", "tww"),
    ("FullTextContainsAny", "tww"),
    ("_FullTextWordCount", "t"),
    ("VectorDistance", "vv"),
    ("VectorDistance", "vvbO"),
    ("_VectorScore", "vvbO"),
];

/// What has one answer whatever comes out: predicates over time, chance and hashes.
const FIXED: &[&str] = &[
    "RAND() < 1 AND RAND() >= 0",
    "HASH($) = HASH($)",
    "HASH($, 10) < 10",
    "GetCurrentDateTime() > \"2020\"",
    "GetCurrentTimestamp() > 1600000000000",
    "GetCurrentTicks() > 16000000000000000",
    "GetCurrentDateTimeStatic() > \"2020\"",
    "GetCurrentTimestampStatic() > 1600000000000",
    "GetCurrentTicksStatic() > 16000000000000000",
    "NOW() >= AGO(\"hh\", 1)",
    "NOW(\"dd\", 1) > NOW()",
    "$ > GetCurrentTimestampStatic()",
    "YEAR(c.d) = 2023",
    "YEAR(c.d) = 2024",
    "DocumentId(c) >= 0",
    "_FullTextScore(c.txt, [\"fox\", \"red hen\"], 40, 160, [10, 5]) > 0.1",
];

pub(super) const DATES: &[&str] = &[
    "2024-02-29",
    "2024-02-29T13:14:15.1234567Z",
    "2024-01-31T00:00:00Z",
    "2023-12-31T23:59:59",
    "1999-01-01 00:00:00.5",
    "1900-02-28T12:00:00.0000001Z",
    "1601-01-01",
    "1601-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59.9999999Z",
    "9999-12-31T23:59:59-01:00",
    "2024-01-01T01:30:00+02:00",
    "2023-12-31T22:30:00-02:00",
    "2024-02-30",
    "1600-12-31",
    "no date",
];
const PARTS: &[&str] = &[
    "yyyy",
    "month",
    "dd",
    "hh",
    "mi",
    "ss",
    "ms",
    "mcs",
    "ns",
    "year",
    "second",
    "D",
    "Millisecond",
    "nothing",
];
/// Counts of parts, ticks and times.
const COUNTS: &[&str] = &[
    "-1",
    "12",
    "25",
    "60",
    "-13",
    "400",
    "99",
    "-150",
    "9999999",
    "-86400001",
    "63072000000",
    "-62135596800000",
    "253402300800000",
    "17092121551234567",
    "9223372036854775807",
    "-9223372036854775808",
];
const FORMATS: &[&str] = &[
    "yyyy-MM-dd",
    "H:m:s.fff",
    "yy M d hh FFF",
    "\\\\yyy",
    "yyyyMMddTHHmmss.fffffff",
    "y h:mm \\\\h ss é .FFFFFFF",
];
const REGEXES: &[&str] = &["^a", "b$", "[ab]+", "a.b", "(", "^ab*", "A|z", "\\\\d"];
const JSON_TEXTS: &[&str] =
    &["10", " 1e3 ", "-0", "01", "[1, 2.50, null]", "[1", "{\\\"a\\\": [1]}", "true", "null", "\\\"a\\\""];
const WORDS: &[&str] = &["fox", "foxes", "red hen", "the", "goose", "grey goose runs", "running"];
const TEXTS: &[&str] =
    &["", "fox", "the red foxes", "red hen and a fox", "grey goose, grey goose", "run", "7"];
const GEOMETRIES: &[&str] = &[
    r#"{"type":"Point","coordinates":[1,1]}"#,
    r#"{"type":"Point","coordinates":[2,1]}"#,
    r#"{"type":"Point","coordinates":[3,3]}"#,
    r#"{"type":"Point","coordinates":[0,91]}"#,
    r#"{"type":"LineString","coordinates":[[0,0],[0,3]]}"#,
    r#"{"type":"Polygon","coordinates":[[[0.5,0.5],[2.5,0.5],[2.5,2.5],[0.5,2.5],[0.5,0.5]]]}"#,
    r#"{"type":"Polygon","coordinates":[[[1.7,1.7],[4.5,1.7],[4.5,4.5],[1.7,4.5],[1.7,1.7]]]}"#,
    r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}"#,
    r#"{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,4],[0,0]],[[1.5,1.5],[1.5,3.5],[3.5,3.5],[3.5,1.5],[1.5,1.5]]]}"#,
    r#"{"type":"MultiPolygon","coordinates":[[[[0.5,0.5],[1.5,0.5],[1.5,1.5],[0.5,1.5],[0.5,0.5]]],[[[2.5,2.5],[3.5,2.5],[3.5,3.5],[2.5,3.5],[2.5,2.5]]]]}"#,
    r#"{"type":"Point","coordinates":[180,0]}"#,
    r#"{"type":"Point","coordinates":[-179.5,0.5]}"#,
    r#"{"type":"Point","coordinates":[12,90]}"#,
    r#"{"type":"Polygon","coordinates":[[[179,-1],[-179,-1],[-179,1],[179,1],[179,-1]]]}"#,
    r#"{"type":"LineString","coordinates":[[179,0.5],[-179,0.5]]}"#,
];
const VECTORS: &[&str] = &["[1,0]", "[0,1]", "[0.6,0.8]", "[-1,2]", "[0,0]", "[1,2,3]", "[1,\"2\"]"];
const OPTIONS: &[&str] = &[
    "{\"distanceFunction\":\"cosine\"}",
    "{\"distanceFunction\":\"dotproduct\"}",
    "{\"distanceFunction\":\"euclidean\"}",
];

impl QueryGenerator {
    /// A call of any function.
    pub(super) fn call(&mut self, from: &FromClause) -> String {
        let (name, kinds) = self.pick(CALLS);
        let arguments: Vec<String> = kinds.chars().map(|kind| self.argument(kind, from)).collect();
        // The words of a reason are free.
        let part = if name == "ST_ISVALIDDETAILED" { ".valid" } else { "" };
        format!("{name}({}){part}", arguments.join(", "))
    }

    /// True or false, or undefined, whatever the function gives.
    pub(super) fn call_predicate(&mut self, name: &'static str) -> String {
        let from = FromClause { text: String::new(), names: vec![name] };
        if self.one_in(3) {
            let fixed = self.pick(FIXED);
            let fixed = if name == "c" { fixed } else { FIXED[0] };
            return fixed.replace('$', &self.operand_path(&from));
        }
        let call = self.call(&from);
        match self.below(4) {
            0 => format!("{call} {} {}", self.pick(&["<", ">="]), self.pick(&["0.3137", "2.7713", "\"m\""])),
            1 => format!("IS_DEFINED({call})"),
            2 if call.starts_with("ST_D") => {
                format!("{call} < {}", self.pick(&["50000", "135000", "190000"]))
            }
            _ => call,
        }
    }

    fn argument(&mut self, kind: char, from: &FromClause) -> String {
        // Now and then of another kind, and now and then missing; options are literals.
        if self.one_in(12) && kind != 'O' {
            return self.operand_path(from);
        }
        let path =
            |name: &str| if from.names[0] == "c" { format!("c.{name}") } else { from.names[0].to_owned() };
        let constant = self.one_in(3);
        match kind {
            'n' if constant => self.number(),
            'n' => path("n"),
            'i' => self.pick(&["-1", "0", "1", "2", "3", "1.5"]).to_owned(),
            'k' => self.pick(COUNTS).to_owned(),
            'y' => self.pick(&["1599", "1969", "2024", "9999"]).to_owned(),
            's' if constant => self.text(),
            's' => path("s"),
            'b' => self.pick(&["true", "false"]).to_owned(),
            'a' if constant => format!("[{}, {}]", self.constant(), self.constant()),
            'a' => path(self.pick(&["t", "l", "v", "t"])),
            'o' if constant => format!("{{a: {}, b: {}}}", self.constant(), self.constant()),
            'o' => path("o"),
            'd' if constant => quoted(self.pick(DATES)),
            'd' => path("d"),
            'p' => quoted(self.pick(PARTS)),
            'f' => quoted(self.pick(FORMATS)),
            'r' => quoted(self.pick(REGEXES)),
            'm' => quoted(self.pick(&["", "i", "ms", "x", "q"])),
            'T' => quoted(self.pick(JSON_TEXTS)),
            't' => path("txt"),
            'w' if constant => format!("{{term: {}, distance: {}}}", quoted(self.pick(WORDS)), self.below(3)),
            'w' => quoted(self.pick(WORDS)),
            'g' if constant => self.pick(GEOMETRIES).to_owned(),
            'g' => path("g"),
            'v' if constant => self.pick(VECTORS).to_owned(),
            'v' => path("v"),
            'O' => self.pick(OPTIONS).to_owned(),
            _ => self.operand_path(from),
        }
    }

    /// Members that the functions of a kind look at.
    pub(super) fn special_members(&mut self) -> Vec<(&'static str, String)> {
        vec![
            ("d", quoted(self.pick(DATES))),
            ("g", self.pick(GEOMETRIES).to_owned()),
            ("v", self.pick(VECTORS).to_owned()),
            ("txt", quoted(self.pick(TEXTS))),
        ]
    }

    /// What clients ask for before they rank texts.
    pub(super) fn text_statistics(&mut self) -> String {
        let hit = |random: &mut QueryGenerator| {
            format!("COUNTIF(FullTextContains(c.txt, {}))", quoted(random.pick(WORDS)))
        };
        let hits: Vec<String> = (0..=self.below(2)).map(|_| hit(self)).collect();
        let text =
            format!("{{totalWordCount: SUM(_FullTextWordCount(c.txt)), hitCounts: [{}]}}", hits.join(", "));
        format!("SELECT COUNT(1) AS documentCount, [{text}] AS fullTextStatistics FROM c")
    }

    /// ORDER BY RANK and ORDER BY VectorDistance, and the scores by which clients merge.
    pub(super) fn ranking(&mut self) -> String {
        let text = format!("FullTextScore(c.txt, {})", quoted(self.pick(WORDS)));
        let several =
            format!("FullTextScore(c.txt, {}, {})", quoted(self.pick(WORDS)), quoted(self.pick(WORDS)));
        let vector = format!("VectorDistance(c.v, {})", self.pick(&["[1,0]", "[0.6,0.8]"]));
        let near = format!("VectorDistance(c.v, [1,0], false, {})", self.pick(OPTIONS));
        let words = format!("[{}, {}]", quoted(self.pick(WORDS)), quoted(self.pick(WORDS)));
        match self.below(9) {
            7 => format!("_FullTextScore(c.txt, {words}, 40, 160, [10, 5]) DESC"),
            8 => format!("_VectorScore(c.v, {})", self.pick(&["[1,0]", "[0.6,0.8]"])),
            0 => format!("RANK {text}"),
            1 => format!("RANK {several}"),
            2 => format!("RANK {vector}"),
            3 => format!("RANK RRF({text}, {vector})"),
            4 => format!("RANK RRF({several}, {vector}, [2, {}])", self.pick(&["1", "-1", "0.5"])),
            5 => vector,
            _ => near,
        }
    }
}
