//! Compile errors: the one table of codes and texts.
//!
//! Codes marked "ours" are not documented by the service; their texts are our own.

use crate::syntax::lexer::Span;

/// One compile error of the service: code, byte span into the query text, text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: &'static str, // "SC1001"
    pub start: usize,
    pub end: usize,
    pub message: String,
}

impl Diagnostic {
    pub(crate) fn new(problem: Problem, span: Span) -> Diagnostic {
        let (code, message) = problem.describe();
        Diagnostic { code, start: span.start, end: span.end, message }
    }

    /// The service prints this error with a numeric code and no location.
    pub fn is_without_location(&self) -> bool {
        self.code == "2206"
    }

    /// The span as the wire counts it: UTF-16 code units of the query text.
    pub fn wire_span(&self, text: &str) -> (usize, usize) {
        let units = |end: usize| text.get(..end).unwrap_or(text).encode_utf16().count();
        (units(self.start), units(self.end))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Problem {
    UnexpectedToken(String),
    InvalidToken(String),
    UnexpectedEnd,
    UnresolvedIdentifier(String),
    UnknownFunction(String),
    MemberIndexer,
    UnknownUserFunction(String),
    DuplicateAlias(String),
    StarWithSeveralSources,
    StarWithGroupBy,
    StarWithoutFrom,
    Arity { name: &'static str, min: usize, max: Option<usize> },
    TopNotInteger,
    LimitTooLarge,
    OffsetTooLarge,
    CountNotInteger(&'static str),
    NestedAggregate,
    AggregateNotAllowed(&'static str),
    SubqueryInGroupBy,
    NotGroupedInSelect(String),
    NotGroupedInOrderBy(String),
    GroupByWithoutProperty,
    OrderByInSubquery,
    TopInSubquery,
    OffsetInSubquery,
    TopWithOffset,
    RankNeedsScore,
    RankDirection,
    DistanceDirection,
    ScoreTermsNotConstant,
    VectorOptionsNotLiteral,
    VectorOption(String),
    VectorOptionValue { option: String, value: String },
    SearchListSizeMultiplier(String),
    RankWithIn,
    RankWithJoin,
    RankWithSubquery,
    RankInSubquery,
    RankWeights,
    ScoreOutsideRank(&'static str),
    OrderByNotPath,
    EscapeNotOneCharacter,
    TextTooLong(usize),
    TooManyJoins(usize),
    TooManyUserDefinedFunctionCalls(usize),
    TooDeep(usize),
    TooManyGroupByExpressions(usize),
    TooManyAggregates(usize),
    UnknownLink { name: String, is_reversed: bool },
    LinkNotLiteral(&'static str),
    FollowArgument { name: &'static str, link: String, wants: &'static str },
    FollowNotAllowed { name: &'static str, clause: &'static str },
}

impl Problem {
    fn describe(self) -> (&'static str, String) {
        use Problem::*;
        match self {
            UnexpectedToken(token) => ("SC1001", format!("Syntax error, incorrect syntax near '{token}'.")),
            UnexpectedEnd => ("SC1002", "Syntax error, unexpected end-of-file.".into()),
            InvalidToken(token) => ("SC1010", format!("Syntax error, invalid token '{token}'.")),
            UnresolvedIdentifier(name) => ("SC2001", format!("Identifier '{name}' could not be resolved.")),
            MemberIndexer => (
                "SC2990",
                "The specified query includes 'member indexer' which is currently not supported.".into(),
            ),
            UnknownFunction(name) => {
                ("SC2005", format!("'{name}' is not a recognized built-in function name."))
            }
            // ours
            UnknownUserFunction(name) => (
                "SC2006",
                format!("'udf.{name}' is not a user-defined function of the container."),
            ),
            DuplicateAlias(name) => (
                "SC2021",
                format!(
                    "The input set name or alias '{name}' is specified more than once in the FROM clause."
                ),
            ),
            StarWithSeveralSources => {
                ("SC2040", "'SELECT *' is only valid with a single input set.".into())
            }
            StarWithGroupBy => ("SC2041", "'SELECT *' is not allowed with GROUP BY.".into()),
            // ours: the code
            StarWithoutFrom => ("SC2042", "'SELECT *' is not valid if FROM clause is omitted.".into()),
            Arity { name, min, max } => ("SC2050", arity(name, min, max)),
            TopNotInteger => {
                ("SC2060", "The count value provided for a TOP clause must be an integer.".into())
            }
            LimitTooLarge => ("SC2061", "The LIMIT count value exceeds the maximum allowed value.".into()),
            OffsetTooLarge => ("SC2062", "The OFFSET count value exceeds the maximum allowed value.".into()),
            // ours
            CountNotInteger(clause) => {
                ("SC2063", format!("The {clause} count value must be a non-negative integer."))
            }
            // ours
            EscapeNotOneCharacter => {
                ("SC2070", "The ESCAPE clause of LIKE must be a string of exactly one character.".into())
            }
            // ours
            AggregateNotAllowed(clause) => {
                ("SC2100", format!("Aggregate functions are not allowed in the {clause} clause."))
            }
            NestedAggregate => (
                "SC2101",
                "Cannot perform an aggregate function on an expression containing an aggregate or a subquery."
                    .into(),
            ),
            NotGroupedInSelect(path) => ("SC2102", not_grouped(&path, "select list")),
            NotGroupedInOrderBy(path) => ("SC2103", not_grouped(&path, "ORDER BY clause")),
            GroupByWithoutProperty => {
                ("SC2110", "Each GROUP BY expression must contain at least one property reference.".into())
            }
            // ours
            SubqueryInGroupBy => ("SC2111", "A GROUP BY expression cannot contain a subquery.".into()),
            OrderByInSubquery => ("SC2202", "'ORDER BY' is not supported in subqueries.".into()),
            TopInSubquery => ("SC2203", "'TOP' is not supported in subqueries.".into()),
            OffsetInSubquery => ("SC2204", "'OFFSET LIMIT' clause is not supported in subqueries.".into()),
            TopWithOffset => {
                ("SC2205", "A TOP cannot be used in the same query or subquery as an OFFSET.".into())
            }
            OrderByNotPath => (
                "2206",
                "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."
                    .into(),
            ),
            VectorOption(name) => (
                "SC2210",
                format!("'{name}' is not a valid option name for VectorDistance function options argument."),
            ),
            VectorOptionValue { option, value } => (
                "SC2210",
                format!(
                    "VectorDistance function options argument property value '{value}' is not a valid value for option '{option}'."
                ),
            ),
            // ours
            VectorOptionsNotLiteral => (
                "SC2211",
                "The options argument of the VectorDistance function must be an object literal.".into(),
            ),
            SearchListSizeMultiplier(value) => (
                "SC2213",
                format!(
                    "The 'searchListSizeMultiplier' value {value} specified in the VectorDistance function is outside the supported range. The value must be between 1 and 100."
                ),
            ),
            // ours
            DistanceDirection => (
                "SC2214",
                "Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.".into(),
            ),
            RankNeedsScore => (
                "SC2221",
                "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call."
                    .into(),
            ),
            // ours: the code
            RankDirection => (
                "SC2222",
                "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.".into(),
            ),
            RankWithIn => (
                "SC2223",
                "The FROM clause with the IN operator is not allowed with the ORDER BY RANK clause.".into(),
            ),
            RankWithJoin => {
                ("SC2224", "The JOIN operator is not allowed with the ORDER BY RANK clause.".into())
            }
            RankWithSubquery => (
                "SC2225",
                "Subqueries in the FROM clause are not allowed with the ORDER BY RANK clause.".into(),
            ),
            RankInSubquery => {
                ("SC2228", "The ORDER BY RANK clause is not supported in subqueries.".into())
            }
            RankWeights => ("SC2229", RANK_WEIGHTS.into()),
            ScoreOutsideRank(name) => {
                ("SC2240", format!("The {name} function is only allowed in the ORDER BY RANK clause."))
            }
            // ours
            ScoreTermsNotConstant => (
                "SC2241",
                "The terms of the FullTextScore function must be strings or fuzzy terms, as literals or parameters.".into(),
            ),
            // ours: the code
            TextTooLong(limit) => {
                ("SC3001", format!("The SQL query text exceeded the maximum limit of {limit} characters."))
            }
            // ours: the code
            TooManyJoins(limit) => (
                "SC3002",
                format!("The SQL query exceeded the maximum number of joins. The allowed limit is {limit}."),
            ),
            TooManyUserDefinedFunctionCalls(limit) => (
                "SC3005",
                format!(
                    "The SQL query exceeded the maximum number of user-defined function calls. The allowed limit is {limit}."
                ),
            ),
            // ours
            TooManyGroupByExpressions(limit) => (
                "SC3007",
                format!("The SQL query exceeded the maximum number of GROUP BY expressions. The allowed limit is {limit}."),
            ),
            // ours
            TooManyAggregates(limit) => (
                "SC3008",
                format!("The SQL query exceeded the maximum number of aggregates. The allowed limit is {limit}."),
            ),
            // ours
            UnknownLink { name, is_reversed } => {
                let way = if is_reversed { "to" } else { "from" };
                ("SC3101", format!("There is no link '{name}' {way} this container."))
            }
            // ours
            LinkNotLiteral(name) => {
                ("SC3101", format!("The second argument of the {name} function must be a string literal: the name of a link."))
            }
            // ours
            FollowArgument { name, link, wants } => {
                ("SC3102", format!("For the link '{link}' the first argument of the {name} function must be {wants}."))
            }
            // ours
            FollowNotAllowed { name, clause } => {
                ("SC3103", format!("The {name} function is not allowed in the {clause} clause."))
            }
            // ours
            TooDeep(limit) => {
                ("SC3006", format!("The SQL query exceeded the maximum nesting depth of {limit}."))
            }
        }
    }
}

const RANK_WEIGHTS: &str = "The last parameter of the RRF function is an optional array of weights. \
    When present, it must be a literal array of numbers, one for each of the component scores used for the \
    RRF function. The length of this array must be the same as the number of the component scores.";

fn arity(name: &str, min: usize, max: Option<usize>) -> String {
    match max {
        Some(max) if max == min => format!("The {name} function requires {min} argument(s)."),
        Some(max) => format!("The {name} function requires {min} to {max} argument(s)."),
        None => format!("The {name} function requires at least {min} argument(s)."),
    }
}

fn not_grouped(path: &str, place: &str) -> String {
    format!(
        "Property reference '{path}' is invalid in the {place} because it is not contained in either an \
         aggregate function or the GROUP BY clause."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_counts_utf16_units() {
        let diagnostic = Diagnostic::new(Problem::UnexpectedEnd, Span { start: 4, end: 6 });
        assert_eq!(diagnostic.wire_span("😀é"), (2, 3));
    }
}
