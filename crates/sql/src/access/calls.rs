//! Functions as predicates.

use quire_value::{Kind, Value};

use crate::bound::Expr;
use crate::functions::Function;

use super::predicate::{Finder, Found, Test, is_defined, strings_but};
use super::range::{ValueRange, without};

/// Answers `true`, `false` or undefined, whatever its arguments.
pub(super) fn is_predicate(function: &Function) -> bool {
    let name = function.name();
    name.starts_with("IS_")
        || matches!(
            name,
            "STARTSWITH" | "ENDSWITH" | "CONTAINS" | "StringEquals" | "RegexMatch" | "ARRAY_CONTAINS"
        )
}

impl Finder<'_> {
    pub(super) fn call(&mut self, function: &Function, arguments: &[Expr], wanted: bool) -> Found {
        match (self.typed(function, arguments), arguments.first().and_then(|first| self.place(first))) {
            (Some(test), Some(place)) => self.test(&place, test, wanted),
            _ => Found::UNKNOWN,
        }
    }

    /// Tests of the value that is the first argument.
    fn typed(&self, function: &Function, arguments: &[Expr]) -> Option<Test> {
        let strings = || ValueRange::of_kind(Kind::String);
        Some(match function.name() {
            "IS_DEFINED" => is_defined(),
            "IS_NULL" => is_kind(Kind::Null),
            "IS_BOOL" => is_kind(Kind::Bool),
            "IS_NUMBER" => is_kind(Kind::Number),
            "IS_STRING" => is_kind(Kind::String),
            "IS_ARRAY" => is_kind(Kind::Array),
            "IS_OBJECT" => is_kind(Kind::Object),
            "IS_PRIMITIVE" => everything_else(ValueRange::scalars()),
            "IS_INTEGER" | "IS_FINITE_NUMBER" => {
                Test::inexact(ValueRange::of_kind(Kind::Number), ValueRange::everything())
            }
            "IS_DATETIME" => Test::inexact(strings(), ValueRange::everything()),
            "STARTSWITH" => self.string_test(arguments, ValueRange::prefix),
            "StringEquals" => self.string_test(arguments, |text| ValueRange::point(Value::from(text))),
            "CONTAINS" | "ENDSWITH" | "RegexMatch" => Test::inexact(strings(), strings()),
            _ => return None,
        })
    }

    /// A test with a second string, and possibly regardless of case.
    fn string_test(&self, arguments: &[Expr], range: impl Fn(&str) -> ValueRange) -> Test {
        let strings = || ValueRange::of_kind(Kind::String);
        let any_string = || Test::inexact(strings(), strings());
        let ignore_case = match arguments.get(2).map(|argument| (self.constant)(argument)) {
            None => false,
            Some(Some(Value::Bool(ignore_case))) => ignore_case,
            Some(Some(_)) => return Test::never(),
            Some(None) => return any_string(),
        };
        match arguments.get(1).and_then(|argument| (self.constant)(argument)) {
            Some(Value::String(text)) if !ignore_case => strings_but(vec![range(&text)]),
            Some(Value::String(_)) | None => any_string(),
            Some(_) => Test::never(),
        }
    }
}

/// Never undefined: what is not of the kind is not.
fn is_kind(kind: Kind) -> Test {
    everything_else(ValueRange::of_kind(kind))
}

fn everything_else(yes: ValueRange) -> Test {
    let no = without(ValueRange::everything(), std::slice::from_ref(&yes));
    Test::exact(vec![yes], no)
}
