//! From a shape back to a query: its placeholders become parameters, each with where its value comes from.

use quire_sql::ast::{BinaryOperator, Collection, Expr, ExprKind, Query};
use quire_sql::parse;
use quire_value::Value;

use super::shape::{Aliases, aliases_of, path_of};

/// Words behind which a value comes; behind any other word a `?` asks for a condition.
const VALUE_FOLLOWS: [&str; 15] = [
    "SELECT", "VALUE", "WHERE", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "BY", "DISTINCT", "RANK",
    "LIMIT", "OFFSET", "TOP",
];

/// A query with a parameter in the place of every value.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterQuery {
    pub text: String,
    pub parameters: Vec<Placeholder>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placeholder {
    /// With its `@`. No name is the beginning of another one.
    pub name: String,
    /// Where an item has the value that it is compared with.
    pub path: String,
    pub role: Role,
}

/// What a value is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    Equal,
    /// One or more values: a list that was cut to one.
    In,
    /// Bounds; with `true` the bound itself is outside.
    Low(bool),
    High(bool),
    Prefix,
    /// A text that is part of the value, or a pattern that it matches.
    Part,
    /// An element of an array.
    Element,
    /// Of a function's value, by name: `LOWER(c.name) = ?`.
    Function(String),
    /// Not compared with anything: any value does.
    Any,
    /// No item says what it was.
    Unknown,
}

/// The query of a shape's text; `None` where it cannot be one any more.
pub fn parameter_query(text: &str) -> Option<ParameterQuery> {
    let (text, count) = named(text);
    let query = parse(&text).ok()?;
    let mut found = FoundPlaceholder { roles: vec![(String::new(), Role::Any); count] };
    found.query(&query, &Aliases::new());
    let named = |(number, (path, role))| Placeholder { name: name(number), path, role };
    let parameters = found.roles.into_iter().enumerate().map(named).collect();
    Some(ParameterQuery { text, parameters })
}

fn name(number: usize) -> String {
    format!("@p{number}v")
}

/// The text with names in the place of `?`, and how many there are.
fn named(text: &str) -> (String, usize) {
    let (mut out, mut count, mut rest) = (String::new(), 0, text);
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '"' | '\'' => quoted_length(rest, letter),
            '?' if rest.starts_with("??") => 2,
            '?' if is_value_expected(&out) => {
                out.push_str(&name(count));
                count += 1;
                rest = &rest[1..];
                continue;
            }
            _ => letter.len_utf8(),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    (out, count)
}

/// Of a text in quotes, with them.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            letter if letter == quote => return at + letter.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn is_value_expected(before: &str) -> bool {
    let before = before.trim_end();
    let word = before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next();
    let word = word.unwrap_or_default();
    let is_name = before[..before.len() - word.len()].ends_with(['.', '@']);
    match before.chars().next_back() {
        None => true,
        Some(')' | ']' | '}' | '"' | '\'') => false,
        Some(_) if !word.is_empty() => {
            !is_name && VALUE_FOLLOWS.contains(&word.to_ascii_uppercase().as_str())
        }
        Some(_) => true,
    }
}

struct FoundPlaceholder {
    roles: Vec<(String, Role)>,
}

impl FoundPlaceholder {
    fn query(&mut self, query: &Query, outer: &Aliases) {
        let aliases = aliases_of(query, outer);
        for source in query.from.iter().flat_map(|from| &from.sources) {
            if let Collection::Subquery(inner) = &source.collection {
                self.query(inner, &aliases);
            }
        }
        if let Some(filter) = &query.filter {
            self.condition(filter, &aliases);
        }
    }

    fn condition(&mut self, expr: &Expr, aliases: &Aliases) {
        match &*expr.kind {
            ExprKind::And(parts) | ExprKind::Or(parts) => {
                parts.iter().for_each(|part| self.condition(part, aliases));
            }
            ExprKind::Unary { operand, .. } => self.condition(operand, aliases),
            ExprKind::Chain { first, rest } => match rest.as_slice() {
                [(operator, second)] => self.comparison(first, *operator, second, aliases),
                _ => self.unknown(expr),
            },
            ExprKind::In { needle, items, negated } => {
                let role = if *negated { Role::Unknown } else { Role::In };
                items.iter().for_each(|item| self.compared(needle, item, role.clone(), aliases));
            }
            ExprKind::Between { value, low, high, .. } => {
                self.compared(value, low, Role::Low(false), aliases);
                self.compared(value, high, Role::High(false), aliases);
            }
            ExprKind::Like { text, pattern, .. } => self.compared(text, pattern, Role::Part, aliases),
            ExprKind::Call { name, arguments } => self.call(&name.name, arguments, aliases),
            ExprKind::Subquery { query, .. } => self.query(query, aliases),
            _ => self.unknown(expr),
        }
    }

    fn comparison(&mut self, first: &Expr, operator: BinaryOperator, second: &Expr, aliases: &Aliases) {
        let is_value = |expr: &Expr| matches!(&*expr.kind, ExprKind::Parameter(_));
        let (path, value, is_reversed) = match (is_value(first), is_value(second)) {
            (false, true) => (first, second, false),
            (true, false) => (second, first, true),
            _ => return self.unknown_both(first, second),
        };
        let role = match operator {
            BinaryOperator::Equal => Role::Equal,
            BinaryOperator::Greater if !is_reversed => Role::Low(true),
            BinaryOperator::GreaterEqual if !is_reversed => Role::Low(false),
            BinaryOperator::Less if !is_reversed => Role::High(true),
            BinaryOperator::LessEqual if !is_reversed => Role::High(false),
            BinaryOperator::Greater => Role::High(true),
            BinaryOperator::GreaterEqual => Role::High(false),
            BinaryOperator::Less => Role::Low(true),
            BinaryOperator::LessEqual => Role::Low(false),
            // Any other value is unequal.
            BinaryOperator::NotEqual => Role::Any,
            _ => Role::Unknown,
        };
        self.compared(path, value, role, aliases);
    }

    fn unknown_both(&mut self, first: &Expr, second: &Expr) {
        self.unknown(first);
        self.unknown(second);
    }

    fn call(&mut self, name: &str, arguments: &[Expr], aliases: &Aliases) {
        let [subject, value, flags @ ..] = arguments else { return };
        let role = match name.to_ascii_uppercase().as_str() {
            "STARTSWITH" => Role::Prefix,
            "STRINGEQUALS" => Role::Equal,
            "CONTAINS" | "ENDSWITH" | "REGEXMATCH" => Role::Part,
            "ARRAY_CONTAINS" => Role::Element,
            _ => Role::Unknown,
        };
        self.compared(subject, value, role, aliases);
        // Whether case counts, or part of an element does: not known, and of no weight.
        flags.iter().filter_map(number_of).for_each(|number| self.set(number, String::new(), Role::Any));
    }

    /// A value that is compared with a path, or with a function of one.
    fn compared(&mut self, subject: &Expr, value: &Expr, role: Role, aliases: &Aliases) {
        let Some(number) = number_of(value) else { return self.unknown(value) };
        if let Some(path) = path_of(subject, aliases) {
            return self.set(number, path, role);
        }
        match &*subject.kind {
            ExprKind::Call { name, arguments } if role == Role::Equal => {
                let path = arguments.first().and_then(|argument| path_of(argument, aliases));
                let role = Role::Function(name.name.to_ascii_uppercase());
                match path {
                    Some(path) if arguments.len() == 1 => self.set(number, path, role),
                    _ => self.set(number, String::new(), Role::Unknown),
                }
            }
            _ => self.set(number, String::new(), Role::Unknown),
        }
        self.unknown(subject);
    }

    fn set(&mut self, number: usize, path: String, role: Role) {
        if let Some(own) = self.roles.get_mut(number) {
            *own = (path, role);
        }
    }

    fn unknown(&mut self, expr: &Expr) {
        if let Some(number) = number_of(expr) {
            self.set(number, String::new(), Role::Unknown);
        }
        expr.for_each_child(&mut |child| self.unknown(child));
    }
}

/// Of the placeholder that an expression is.
fn number_of(expr: &Expr) -> Option<usize> {
    match &*expr.kind {
        ExprKind::Parameter(name) => name.strip_prefix("@p")?.strip_suffix('v')?.parse().ok(),
        _ => None,
    }
}

/// The value that stands for one that nobody compares anything with.
pub fn any_value() -> Value {
    Value::from(true)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use quire_sql::Parameters;

    use super::*;
    use crate::shape_of;

    fn check(text: &str, expected: Expect) {
        let shape = shape_of("c", text, &Parameters(Vec::new()), &[], false).expect("a query");
        let query = parameter_query(&shape.text).expect("the same query");
        let parameters =
            query.parameters.iter().map(|own| format!("{} {} {:?}\n", own.name, own.path, own.role));
        expected.assert_eq(&format!("{}\n{}", query.text, parameters.collect::<String>()));
        let again = shape_of("c", &query.text, &Parameters(Vec::new()), &[], false).expect("a query");
        assert_eq!(again.text, shape.text, "it has the same shape");
    }

    #[test]
    fn placeholders_become_parameters() {
        check(
            "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags WHERE LOWER(c.name) = 'x' AND t.k IN ('a', 'b') AND 5 < c.n",
            expect![[r#"
                SELECT VALUE COUNT(@p0v) FROM c JOIN t IN c.tags WHERE ((LOWER(c.name) = @p1v) AND (t.k IN (@p2v)) AND (@p3v < c.n))
                @p0v  Any
                @p1v /name Function("LOWER")
                @p2v /tags/*/k In
                @p3v /n Low(true)
            "#]],
        );
        check(
            r#"SELECT c["a?"] ?? 'x' AS v FROM c WHERE (c.b ? c.d : 'z') = 1 OR STARTSWITH(c.s, 'q', true) OR c.z BETWEEN 1 AND 2"#,
            expect![[r#"
                SELECT (c["a?"] ?? @p0v) AS v FROM c WHERE (((c.b ? c.d : @p1v) = @p2v) OR STARTSWITH(c.s, @p3v, @p4v) OR (c.z BETWEEN @p5v AND @p6v))
                @p0v  Any
                @p1v  Unknown
                @p2v  Unknown
                @p3v /s Prefix
                @p4v  Any
                @p5v /z Low(false)
                @p6v /z High(false)
            "#]],
        );
        check(
            "SELECT TOP 3 * FROM c WHERE c.a + 1 = 2 AND c.b = (c.d ? 1 : 2) AND c.e != 3 ORDER BY c.t",
            expect![[r#"
                SELECT TOP 3 * FROM c WHERE (((c.a + @p0v) = @p1v) AND (c.b = (c.d ? @p2v : @p3v)) AND (c.e != @p4v)) ORDER BY c.t
                @p0v  Unknown
                @p1v  Unknown
                @p2v  Unknown
                @p3v  Unknown
                @p4v /e Any
            "#]],
        );
    }
}
