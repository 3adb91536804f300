//! ORDER BY VectorDistance, as a vector index can serve it.

use quire_resource::DistanceFunction;
use quire_value::{Path, Value};

use crate::bind::bound::Expr;
use crate::functions::Metric;
use crate::query::Query;

use super::{ConditionFinder, Constants};

/// The first rows by distance of a vector of the item to a given one. Items without a distance come last, but first
/// where distances ascend; ties are broken by the order of the items.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorOrder {
    /// Names only.
    pub path: Path,
    pub vector: Vec<f64>,
    pub distance: DistanceFunction,
    /// The query requires an exact result, with any index.
    pub brute_force: bool,
    pub search_list_size_multiplier: Option<f64>,
    pub quantized_vector_list_multiplier: Option<f64>,
    /// The number of rows needed, OFFSET included.
    pub rows: u64,
}

impl Query {
    /// `None` unless the query sorts by one distance alone, between a path and a constant, and has a limit.
    pub fn vector_order(&self) -> Option<VectorOrder> {
        let (offset, limit) = self.sorted()?;
        let [item] = self.compiled.bound.order_by.as_slice() else { return None };
        let Expr::Coalesce(scores) = &item.expr else { return None };
        let Some(Expr::Call { function, arguments }) = scores.first() else { return None };
        let [left, right, brute_force, metric, search, quantized] = arguments.as_slice() else { return None };
        if function.name() != "VectorDistance" {
            return None;
        }
        let constants = Constants::new(self);
        let constant = |expr: &Expr| constants.of(expr);
        let mut finder = ConditionFinder::new(self, &constant);
        finder.rows(&self.compiled.bound);
        let (item_path, vector) = match (finder.item_path(left), finder.item_path(right)) {
            (Some(item_path), None) => (item_path, constant(right)?),
            (None, Some(item_path)) => (item_path, constant(left)?),
            _ => return None,
        };
        let number = |expr: &Expr| Some(constant(expr)?.as_number()?.as_f64());
        let is_plain = item_path.is_names() && !item_path.segments.is_empty();
        is_plain.then_some(VectorOrder {
            path: Path(item_path.segments),
            vector: numbers(&vector)?,
            distance: distance_of(Metric::of_name(constant(metric)?.as_str()?)?),
            brute_force: constant(brute_force)?.as_bool()?,
            search_list_size_multiplier: number(search),
            quantized_vector_list_multiplier: number(quantized),
            rows: offset.saturating_add(limit?),
        })
    }
}

fn numbers(vector: &Value) -> Option<Vec<f64>> {
    let elements = vector.as_array()?;
    elements.iter().map(|element| Some(element.as_number()?.as_f64())).collect()
}

fn distance_of(metric: Metric) -> DistanceFunction {
    match metric {
        Metric::Cosine => DistanceFunction::Cosine,
        Metric::DotProduct => DistanceFunction::DotProduct,
        Metric::Euclidean => DistanceFunction::Euclidean,
    }
}
