//! Built-in functions by name. A wrong type, or an undefined argument where nothing else is said, gives undefined.

use quire_sql::ast::{Expr, ExprKind};

use super::json::{Json, JsonOrUndefined};
use super::queries::NameScope;
use super::{
    Interpreter, QueryFailure, QueryResult, arrays, dates, full_text, geometry, numbers, patterns, strings,
    vectors,
};

/// Functions that see undefined arguments.
const SEE_UNDEFINED: &[&str] = &[
    "ISDEFINED",
    "ISNULL",
    "ISBOOL",
    "ISBOOLEAN",
    "ISNUMBER",
    "ISFINITENUMBER",
    "ISINTEGER",
    "ISSTRING",
    "ISARRAY",
    "ISOBJECT",
    "ISPRIMITIVE",
    "ISDATETIME",
    "CONTAINSANYCS",
    "CONTAINSANYCI",
    "CONTAINSALLCS",
    "CONTAINSALLCI",
    "ARRAYCONTAINS",
    "ARRAYCONTAINSANY",
    "ARRAYCONTAINSALL",
];

/// Case and underscores do not matter, but for the one in front.
pub fn plain_name(name: &str) -> String {
    let internal = if name.starts_with('_') { "_" } else { "" };
    format!("{internal}{}", name.to_ascii_uppercase().replace('_', ""))
}

impl Interpreter {
    pub(super) fn note(&self, name: &str) {
        self.called.borrow_mut().insert(name.to_owned());
    }

    pub(super) fn call(
        &self,
        name: &str,
        arguments: &[Expr],
        scope: &NameScope,
    ) -> QueryResult<JsonOrUndefined> {
        let name = plain_name(name);
        self.note(&name);
        if name == "IIF" {
            let chosen = self.evaluate(&arguments[0], scope)?.and_then(|condition| condition.as_bool());
            return self.evaluate(&arguments[if chosen == Some(true) { 1 } else { 2 }], scope);
        }
        if name == "FOLLOW" || name == "REFERRERS" {
            return self.follow(&name, arguments, scope);
        }
        if name == "DOCUMENTID" {
            return self.document_id(&arguments[0], scope);
        }
        let values: Vec<JsonOrUndefined> =
            arguments.iter().map(|argument| self.evaluate(argument, scope)).collect::<QueryResult<_>>()?;
        if SEE_UNDEFINED.contains(&name.as_str()) {
            return Ok(self.seeing_undefined(&name, &values));
        }
        let values: Option<Vec<Json>> = values.into_iter().collect();
        let Some(values) = values else { return Ok(None) };
        self.plain_call(&name, &values)
    }

    fn seeing_undefined(&self, name: &str, values: &[JsonOrUndefined]) -> JsonOrUndefined {
        let first = values.first().and_then(|value| value.as_ref());
        let is = |test: &dyn Fn(&Json) -> bool| Some(Json::Bool(first.is_some_and(test)));
        match name {
            "ISDEFINED" => is(&|_| true),
            "ISNULL" => is(&|value| matches!(value, Json::Null)),
            "ISBOOL" | "ISBOOLEAN" => is(&|value| matches!(value, Json::Bool(_))),
            "ISNUMBER" => is(&Json::is_number),
            "ISFINITENUMBER" => is(&|value| value.as_f64().is_some_and(f64::is_finite)),
            "ISINTEGER" => is(&|value| value.as_i64().is_some()),
            "ISSTRING" => is(&|value| value.as_str().is_some()),
            "ISARRAY" => is(&|value| value.as_array().is_some()),
            "ISOBJECT" => is(&|value| value.as_object().is_some()),
            "ISPRIMITIVE" => is(&Json::is_primitive),
            "ISDATETIME" => is(&|value| value.as_str().and_then(dates::parse).is_some()),
            "ARRAYCONTAINS" => arrays::contains(values),
            "ARRAYCONTAINSANY" | "ARRAYCONTAINSALL" => arrays::contains_several(name, values),
            _ => strings::contains_several(name, values),
        }
    }

    fn plain_call(&self, name: &str, values: &[Json]) -> QueryResult<JsonOrUndefined> {
        if let Some(found) = numbers::call(name, values) {
            return Ok(found);
        }
        if let Some(found) = strings::call(name, values) {
            return Ok(found);
        }
        if let Some(found) = arrays::call(name, values) {
            return Ok(found);
        }
        if let Some(found) = dates::call(name, values, self.now_ticks) {
            return Ok(found);
        }
        if let Some(found) = geometry::call(name, values) {
            return Ok(found);
        }
        if let Some(found) = full_text::call(name, values) {
            return Ok(found);
        }
        match name {
            "REGEXMATCH" | "REGEXEXTRACT" | "REGEXEXTRACTALL" => Ok(patterns::regex(name, values)),
            "VECTORDISTANCE" => Ok(vectors::distance(values).map(|(_, distance)| Json::number(distance))),
            "_VECTORSCORE" => Ok(vectors::score(values).map(Json::number)),
            "RAND" => {
                self.draws.set(self.draws.get() + 1);
                Ok(Some(Json::number(1.0 / f64::from(self.draws.get() + 1))))
            }
            "HASH" => Ok(hash(values)),
            _ => Err(QueryFailure::Unknown(format!("function {name}"))),
        }
    }

    /// The low half of the item's resource id.
    fn document_id(&self, argument: &Expr, scope: &NameScope) -> QueryResult<JsonOrUndefined> {
        use base64::Engine as _;
        let ExprKind::Identifier(name) = &*argument.kind else { return Ok(None) };
        let rid = scope.find(name).and_then(|found| found.value.as_ref()?.get("_rid")?.as_str());
        let Some(rid) = rid.map(|rid| rid.replace('-', "/")) else { return Ok(None) };
        let bytes = base64::engine::general_purpose::STANDARD.decode(rid).unwrap_or_default();
        let low: Option<[u8; 8]> = bytes.get(8..16).and_then(|low| low.try_into().ok());
        Ok(low.map(|low| Json::Integer(i128::from(u64::from_le_bytes(low)))))
    }
}

/// Equal for equal values; the numbers are our own.
fn hash(values: &[Json]) -> JsonOrUndefined {
    let mut number: i128 = 0;
    for byte in super::hash::order_key(&values[0]).into_iter().take(6) {
        number = number * 256 + i128::from(byte);
    }
    match values.get(1) {
        None => Some(Json::Integer(number)),
        Some(modulo) => match modulo.as_i64() {
            Some(modulo) if modulo > 0 => Some(Json::Integer(number % i128::from(modulo))),
            _ => None,
        },
    }
}
