//! Clauses: FROM and JOIN, WHERE, GROUP BY, ORDER BY, the projection, DISTINCT, TOP and OFFSET LIMIT, in this order.

use std::cmp::Ordering;
use std::rc::Rc;

use quire_sql::ast::{
    Collection, Count, CountKind, Direction, Expr, ExprKind, OrderItem, Query, SelectItem, Selection, Source,
    Step,
};

use super::json::{Json, JsonOrUndefined, same, total_order};
use super::vectors::is_score;
use super::{Interpreter, QueryFailure, QueryResult, aggregates};

/// What names stand for; the last of a name is the one in sight.
#[derive(Clone, Debug, Default)]
pub struct NameScope {
    names: Vec<Rc<BoundName>>,
    /// The number of the container's item that it is about.
    item: usize,
}

#[derive(Clone, Debug)]
pub struct BoundName {
    /// `None`: a source that nothing can refer to.
    name: Option<String>,
    pub value: JsonOrUndefined,
    /// An item of the container, which has computed properties.
    pub is_item: bool,
}

impl NameScope {
    pub fn find(&self, name: &str) -> Option<&BoundName> {
        self.names.iter().rev().find(|own| own.name.as_deref() == Some(name)).map(|own| &**own)
    }

    pub fn with(&self, name: Option<String>, value: JsonOrUndefined, is_item: bool) -> NameScope {
        let mut scope = self.clone();
        scope.names.push(Rc::new(BoundName { name, value, is_item }));
        scope
    }

    /// The source that came last.
    fn last(&self) -> Option<&BoundName> {
        self.names.last().map(|last| &**last)
    }
}

impl Interpreter {
    pub(super) fn top_rows(&self, query: &Query) -> QueryResult<Vec<Json>> {
        self.query_rows(query, &NameScope::default())
    }

    /// The rows of a query where these names are in sight; undefined rows are left out.
    pub(super) fn query_rows(&self, query: &Query, scope: &NameScope) -> QueryResult<Vec<Json>> {
        Ok(self.numbered_rows(query, scope)?.into_iter().map(|(row, _)| row).collect())
    }

    /// The same, each with the number of its item.
    fn numbered_rows(&self, query: &Query, scope: &NameScope) -> QueryResult<Vec<(Json, usize)>> {
        let mut tuples = Vec::new();
        for tuple in self.tuples(query, scope)? {
            let keep = match &query.filter {
                Some(filter) => {
                    self.evaluate(filter, &tuple)?.is_some_and(|kept| kept.as_bool() == Some(true))
                }
                None => true,
            };
            if keep {
                tuples.push(tuple);
            }
        }
        let groups = self.groups(query, scope, tuples)?;
        let groups = self.ordered(query, groups)?;
        let mut rows: Vec<(JsonOrUndefined, usize)> = Vec::new();
        for group in &groups {
            let row = self.project(query, group)?;
            if !query.select.distinct || !rows.iter().any(|(known, _)| same(known, &row)) {
                rows.push((row, group.first.item));
            }
        }
        // A row that is undefined is no row, so it is not counted either.
        let rows = rows.into_iter().filter_map(|(row, item)| Some((row?, item)));
        let (skip, take) = self.window(query)?;
        Ok(rows.skip(skip).take(take).collect())
    }

    /// The combinations of the sources in FROM.
    fn tuples(&self, query: &Query, scope: &NameScope) -> QueryResult<Vec<NameScope>> {
        let mut tuples = vec![scope.clone()];
        for source in query.from.iter().flat_map(|from| &from.sources) {
            let mut next = Vec::new();
            for tuple in &tuples {
                for (value, is_item, item) in self.source(source, tuple)? {
                    let tuple = tuple.with(source_name(source), Some(value), is_item);
                    next.push(NameScope { item, ..tuple });
                }
            }
            tuples = next;
        }
        Ok(tuples)
    }

    /// Values, whether each is an item, and the number of the item that it is from.
    fn source(&self, source: &Source, scope: &NameScope) -> QueryResult<Vec<(Json, bool, usize)>> {
        let values: Vec<(Json, bool, usize)> = match &source.collection {
            Collection::Path { root, steps } => {
                let roots = match scope.find(&root.name) {
                    Some(found) => vec![found.clone()],
                    None if scope.names.is_empty() => self.container(),
                    None => return Err(QueryFailure::Unknown(format!("{} is no name here", root.name))),
                };
                let mut values = Vec::new();
                for (nth, root) in roots.into_iter().enumerate() {
                    let item = if scope.names.is_empty() { nth } else { scope.item };
                    let is_item = root.is_item && steps.is_empty();
                    if let Some(value) = self.walk_from(&root, steps, scope)? {
                        values.push((value, is_item, item));
                    }
                }
                values
            }
            Collection::Subquery(query) => {
                self.numbered_rows(query, scope)?.into_iter().map(|(row, item)| (row, false, item)).collect()
            }
            Collection::Call(call) => {
                self.evaluate(call, scope)?.into_iter().map(|row| (row, false, scope.item)).collect()
            }
        };
        if !source.iterate {
            return Ok(values);
        }
        let elements = values.into_iter().flat_map(|(value, _, item)| match value {
            Json::Array(elements) => elements.into_iter().map(|element| (element, false, item)).collect(),
            _ => Vec::new(),
        });
        Ok(elements.collect())
    }

    fn container(&self) -> Vec<BoundName> {
        let name = |item: &Json| BoundName { name: None, value: Some(item.clone()), is_item: true };
        self.items.iter().map(name).collect()
    }

    /// From a name on; a computed property is what its query says.
    pub(super) fn walk_from(
        &self,
        from: &BoundName,
        steps: &[Step],
        scope: &NameScope,
    ) -> QueryResult<JsonOrUndefined> {
        let first = match steps.first() {
            Some(Step::Member(name) | Step::Quoted(name)) => Some(name),
            _ => None,
        };
        let computed = self.computed.iter().find(|(name, _)| from.is_item && first == Some(name));
        match computed {
            Some((_, query)) => {
                let alone =
                    Interpreter { items: from.value.iter().cloned().collect(), ..Interpreter::default() };
                let value = alone.top_rows(query)?.into_iter().next();
                self.walk(value.as_ref(), &steps[1..], scope)
            }
            None => self.walk(from.value.as_ref(), steps, scope),
        }
    }

    pub(super) fn walk(
        &self,
        value: Option<&Json>,
        steps: &[Step],
        scope: &NameScope,
    ) -> QueryResult<JsonOrUndefined> {
        let mut value = value;
        for step in steps {
            let index = match step {
                Step::Member(name) | Step::Quoted(name) => Some(Json::text(name)),
                Step::Index(expr) => self.evaluate(expr, scope)?,
            };
            value = match (value, index) {
                (Some(object @ Json::Object(_)), Some(Json::String(name))) => object.get(&name),
                (Some(Json::Array(elements)), Some(index)) => {
                    let index = index.as_integer().and_then(|index| usize::try_from(index).ok());
                    index.and_then(|index| elements.get(index))
                }
                _ => None,
            };
        }
        Ok(value.cloned())
    }

    /// Without GROUP BY and aggregates every tuple is by itself.
    fn groups(
        &self,
        query: &Query,
        scope: &NameScope,
        tuples: Vec<NameScope>,
    ) -> QueryResult<Vec<TupleGroup>> {
        if query.group_by.is_empty() && !selects_aggregate(query) {
            return Ok(tuples.into_iter().map(|tuple| TupleGroup { first: tuple, tuples: None }).collect());
        }
        if query.group_by.is_empty() {
            let first = tuples.first().unwrap_or(scope).clone();
            return Ok(vec![TupleGroup { first, tuples: Some(tuples) }]);
        }
        let mut groups: Vec<(Vec<JsonOrUndefined>, Vec<NameScope>)> = Vec::new();
        for tuple in tuples {
            let keys: Vec<JsonOrUndefined> =
                query.group_by.iter().map(|key| self.evaluate(key, &tuple)).collect::<QueryResult<_>>()?;
            let is_same =
                |known: &[JsonOrUndefined]| known.iter().zip(&keys).all(|(left, right)| same(left, right));
            match groups.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, tuples)) => tuples.push(tuple),
                None => groups.push((keys, vec![tuple])),
            }
        }
        Ok(groups
            .into_iter()
            .map(|(_, tuples)| TupleGroup { first: tuples[0].clone(), tuples: Some(tuples) })
            .collect())
    }

    fn ordered(&self, query: &Query, groups: Vec<TupleGroup>) -> QueryResult<Vec<TupleGroup>> {
        let Some(order_by) = &query.order_by else { return Ok(groups) };
        if order_by.rank {
            return self.ranked(&order_by.items[0].expr, groups);
        }
        if query.group_by.is_empty() && selects_aggregate(query) {
            return Ok(groups);
        }
        let mut keyed: Vec<(Vec<(JsonOrUndefined, bool)>, TupleGroup)> = Vec::new();
        for group in groups {
            let mut keys = Vec::new();
            for item in &order_by.items {
                keys.push(self.sort_key(item, &group.first)?);
            }
            keyed.push((keys, group));
        }
        // Equals come from the last item to the first; the rows of an item keep their order.
        let falls = |item: &OrderItem| item.direction == Some(Direction::Descending) && !is_score(&item.expr);
        if query.group_by.is_empty() && order_by.items.first().is_some_and(falls) {
            keyed.sort_by_key(|(_, group)| std::cmp::Reverse(group.first.item));
        }
        keyed.sort_by(|(left, _), (right, _)| {
            let orders = left.iter().zip(right).map(|((left, descending), (right, _))| {
                let order = total_order(left, right);
                if *descending { order.reverse() } else { order }
            });
            orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        Ok(keyed.into_iter().map(|(_, group)| group).collect())
    }

    fn project(&self, query: &Query, group: &TupleGroup) -> QueryResult<JsonOrUndefined> {
        match &query.select.selection {
            Selection::Star(_) => Ok(group.first.last().and_then(|source| source.value.clone())),
            Selection::Value(expr) => self.evaluate_group(expr, group),
            Selection::Items(items) => {
                let mut members: Vec<(String, Json)> = Vec::new();
                for (name, item) in select_names(items).into_iter().zip(items) {
                    let Some(value) = self.evaluate_group(&item.expr, group)? else { continue };
                    match members.iter_mut().find(|(own, _)| *own == name) {
                        Some((_, place)) => *place = value,
                        None => members.push((name, value)),
                    }
                }
                Ok(Some(Json::Object(members)))
            }
        }
    }

    /// Aggregates over all tuples of the group; the rest is the same for all of them.
    fn evaluate_group(&self, expr: &Expr, group: &TupleGroup) -> QueryResult<JsonOrUndefined> {
        match &group.tuples {
            None => self.evaluate(expr, &group.first),
            Some(tuples) => self.evaluate(&self.with_aggregates(expr, tuples)?, &group.first),
        }
    }

    /// The expression with every aggregate replaced by what it comes to.
    fn with_aggregates(&self, expr: &Expr, tuples: &[NameScope]) -> QueryResult<Expr> {
        if let Some((name, argument)) = aggregates::call(expr) {
            let mut values = Vec::new();
            for tuple in tuples {
                values.extend(self.evaluate(argument, tuple)?);
            }
            self.note(name);
            let value = aggregates::aggregate(name, values);
            return Ok(constant(value, expr));
        }
        super::expressions::map_children(expr, &mut |child| self.with_aggregates(child, tuples))
    }

    fn window(&self, query: &Query) -> QueryResult<(usize, usize)> {
        if let Some(top) = &query.select.top {
            return Ok((0, self.count(&top.count)?));
        }
        match &query.offset_limit {
            Some(window) => Ok((self.count(&window.offset)?, self.count(&window.limit)?)),
            None => Ok((0, usize::MAX)),
        }
    }

    fn count(&self, count: &Count) -> QueryResult<usize> {
        let number = match &count.kind {
            CountKind::Integer(number) => number.map(i128::from),
            CountKind::Fraction => None,
            CountKind::Parameter(name) => self.parameter(name).and_then(|value| value.as_integer()),
        };
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| QueryFailure::Unknown("a count that is no natural number".to_owned()))
    }
}

/// Tuples that make one row.
pub struct TupleGroup {
    /// The row's own tuple, or any of the group.
    pub first: NameScope,
    /// `None`: not grouped.
    tuples: Option<Vec<NameScope>>,
}

/// A value in place of an expression.
pub fn constant(value: JsonOrUndefined, at: &Expr) -> Expr {
    let value = value.map_or(quire_value::Value::Undefined, |value| value_of(&value));
    Expr::new(ExprKind::Literal(value), at.span)
}

fn value_of(json: &Json) -> quire_value::Value {
    use quire_value::{Number, Value};
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Integer(value) => Value::Number(match i64::try_from(*value) {
            Ok(value) => Number::Int(value),
            Err(_) => Number::Unsigned(*value as u64),
        }),
        Json::Double(value) => Value::Number(Number::Double(*value)),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(elements) => Value::Array(elements.iter().map(value_of).collect()),
        Json::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), value_of(value))).collect())
        }
    }
}

fn selects_aggregate(query: &Query) -> bool {
    let has = |expr: &Expr| expr.any(&|expr| aggregates::call(expr).is_some());
    match &query.select.selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => has(expr),
        Selection::Items(items) => items.iter().any(|item| has(&item.expr)),
    }
}

/// Given, or the last name of the path.
fn source_name(source: &Source) -> Option<String> {
    if let Some(alias) = &source.alias {
        return Some(alias.name.clone());
    }
    match &source.collection {
        Collection::Path { root, steps } => match steps.last() {
            None => Some(root.name.clone()),
            Some(Step::Member(name) | Step::Quoted(name)) => Some(name.clone()),
            Some(Step::Index(_)) => None,
        },
        Collection::Subquery(_) | Collection::Call(_) => None,
    }
}

/// The last name of a path, a bare name, or `$1`, `$2` and so on.
fn select_names(items: &[SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    let mut name = |item: &SelectItem| {
        let own = match (&item.alias, &*item.expr.kind) {
            (Some(alias), _) => Some(alias.clone()),
            (None, ExprKind::Identifier(name)) => Some(name.clone()),
            (None, ExprKind::Path { steps, .. }) => match steps.last() {
                Some(Step::Member(name) | Step::Quoted(name)) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        own.unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        })
    };
    items.iter().map(&mut name).collect()
}
