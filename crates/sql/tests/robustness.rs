//! Random texts: random tokens, and valid queries with random changes.

mod checks;

use std::path::Path;

use checks::check_query;
use quire_testkit::{Random, qt};

const WORDS: &[&str] = &[
    "SELECT",
    "VALUE",
    "*",
    "FROM",
    "c",
    "x",
    "WHERE",
    "JOIN",
    "IN",
    "AS",
    "GROUP BY",
    "ORDER BY",
    "OFFSET 1 LIMIT 2",
    "TOP 1",
    "DISTINCT",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "?",
    "??",
    "||",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "<<",
    ">>>",
    "=",
    "!=",
    "<",
    ">=",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    "ESCAPE '!'",
    "EXISTS",
    "ARRAY",
    "ALL",
    "FIRST",
    "LET",
    "1",
    "0",
    "2.5",
    "1e9",
    "'a'",
    "\"b%\"",
    "@p",
    "@s",
    "@missing",
    "true",
    "null",
    "undefined",
    "c.id",
    "c.t",
    "c.o.l",
    "c.n",
    "c[\"s\"]",
    "COUNT(1)",
    "SUM(c.n)",
    "MAKELIST(c)",
    "ABS",
    "CONCAT",
    "REPLICATE('ab', 9)",
    "RegexMatch(c.s, '(a*)*b')",
    "udf.f(1)",
    "RAND()",
    "NOW()",
    "DateTimeBin",
    "(SELECT VALUE x FROM x IN c.t)",
    "ASC",
    "DESC",
    "RANK",
    "--",
    "'",
    "\\",
    ";",
    "é",
    "😀",
    "\n",
];

/// A failing run prints its seed, which repeats it.
fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::process::id().into());
    println!("SEED={seed}");
    seed
}

#[test]
fn random_tokens() {
    let mut random = Random(seed());
    for _ in 0..20_000 {
        let mut text = if random.below(4) == 0 { String::new() } else { "SELECT ".to_owned() };
        for _ in 0..random.below(24) {
            text.push_str(random.pick::<&str>(WORDS));
            text.push_str(if random.one_in(5) { "" } else { " " });
        }
        check_query(&text);
    }
}

#[test]
fn changed_queries() {
    let mut random = Random(seed());
    let queries = queries();
    assert!(queries.len() > 500);
    for _ in 0..20_000 {
        let mut text = queries[random.below(queries.len())].clone();
        for _ in 0..=random.below(3) {
            change(&mut text, &queries, &mut random);
        }
        check_query(&text);
    }
}

/// The body of every block of every file.
fn queries() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/queries");
    let files = qt::files(&folder).expect("the folder of queries is there");
    let texts = files.iter().map(|file| std::fs::read_to_string(file).expect("the file is readable"));
    let body = |block: &str| Some(block.split_once('\n')?.1.split_once("\n----")?.0.to_owned());
    texts.flat_map(|text| text.split("\n\n").filter_map(body).collect::<Vec<_>>()).collect()
}

fn change(text: &mut String, queries: &[String], random: &mut Random) {
    let (start, end) = (char_position(text, random), char_position(text, random));
    let (start, end) = (start.min(end), start.max(end));
    match random.below(5) {
        0 => text.replace_range(start..end, ""),
        1 => text.insert_str(start, random.pick::<&str>(WORDS)),
        2 => text.insert_str(start, &format!(" {} ", random.pick(WORDS))),
        3 => text.replace_range(start..end, random.pick::<&str>(WORDS)),
        _ => {
            let other = &queries[random.below(queries.len())];
            let from = char_position(other, random);
            text.replace_range(start.., &other[from..]);
        }
    }
}

fn char_position(text: &str, random: &mut Random) -> usize {
    let mut at = random.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
