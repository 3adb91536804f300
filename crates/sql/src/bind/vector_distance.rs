//! VectorDistance: its options, and the distance function of the container's policy.

use quire_resource::DistanceFunction;
use quire_value::{Object, Value};

use crate::functions::{Function, Metric};
use crate::syntax::ast;
use crate::syntax::diagnostic::Problem;
use crate::syntax::lexer::Span;

use super::Binder;
use super::bound::Expr;

const DATA_TYPES: [&str; 4] = ["float32", "float16", "int8", "uint8"];
/// More than there are. Further members are refused as unknown options.
const OPTIONS_MAX: usize = 64;
const SEARCH_LIST_SIZE_MULTIPLIER: std::ops::RangeInclusive<f64> = 1.0..=100.0;

impl Binder<'_> {
    /// Bound as `(vector, vector, brute force, distance function, search list size multiplier, quantized vector list
    /// multiplier)`, with defaults for omitted arguments; the last two may be null (an undefined argument would give
    /// no distance).
    pub(super) fn vector_call(&mut self, function: &'static Function, arguments: &[ast::Expr]) -> Expr {
        self.volatilities.push(function.volatility());
        let options = arguments.get(3).map(|options| self.vector_options(options)).unwrap_or_default();
        let mut bound = self.exprs(&arguments[..arguments.len().min(3)]);
        bound.resize_with(bound.len().max(2), Expr::undefined);
        bound.resize_with(3, || Expr::constant(false));
        let policy = bound[..2].iter().find_map(|vector| self.schema.distance(&self.item_path(vector)?));
        let named = option(&options, "distanceFunction").and_then(|name| Metric::of_name(name.as_str()?));
        let metric = named.or(policy.map(metric_of)).unwrap_or(Metric::Cosine);
        bound.push(Expr::constant(metric.name()));
        for name in ["searchListSizeMultiplier", "quantizedVectorListMultiplier"] {
            bound.push(Expr::constant(option(&options, name).cloned().unwrap_or(Value::Null)));
        }
        Expr::Call { function, arguments: bound }
    }

    /// Checks all of them.
    fn vector_options(&mut self, argument: &ast::Expr) -> Object {
        let options = match self.expr(argument).as_constant() {
            Some(Value::Object(options)) if options.len() <= OPTIONS_MAX => options.clone(),
            Some(Value::Undefined) => Object::new(),
            _ => {
                self.report(Problem::VectorOptionsNotLiteral, argument.span);
                Object::new()
            }
        };
        for (name, value) in options.iter() {
            self.check_vector_option(name, value, argument.span);
        }
        options
    }

    fn check_vector_option(&mut self, name: &str, value: &Value, span: Span) {
        let number = value.as_number().map(|number| number.as_f64());
        let is_valid = match name.to_ascii_lowercase().as_str() {
            "distancefunction" => value.as_str().is_some_and(|name| Metric::of_name(name).is_some()),
            "datatype" => value
                .as_str()
                .is_some_and(|name| DATA_TYPES.iter().any(|data_type| data_type.eq_ignore_ascii_case(name))),
            "searchlistsizemultiplier" => match number {
                Some(number) if !SEARCH_LIST_SIZE_MULTIPLIER.contains(&number) => {
                    return self.report(Problem::SearchListSizeMultiplier(value.to_json()), span);
                }
                number => number.is_some(),
            },
            "quantizedvectorlistmultiplier" => number.is_some_and(|number| number > 0.0),
            "filterpriority" => number.is_some_and(|number| (0.0..=1.0).contains(&number)),
            _ => return self.report(Problem::VectorOption(name.to_owned()), span),
        };
        if !is_valid {
            let value = value.as_str().map_or_else(|| value.to_json(), str::to_owned);
            self.report(Problem::VectorOptionValue { option: name.to_owned(), value }, span);
        }
    }
}

fn option<'o>(options: &'o Object, name: &str) -> Option<&'o Value> {
    options.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn metric_of(distance: DistanceFunction) -> Metric {
    match distance {
        DistanceFunction::Cosine => Metric::Cosine,
        DistanceFunction::DotProduct => Metric::DotProduct,
        DistanceFunction::Euclidean => Metric::Euclidean,
    }
}
