//! Query bodies.

use quire_engine::{EngineError, Parameters, ResumeFilter, ResumeValue};
use quire_resource::ResourceId;
use quire_value::hash::ValueHash;
use quire_value::{Item, Kind, Limits, Node, Value};

use crate::wire::status::{HandlerError, RequestError};

#[derive(Debug)]
pub(crate) struct QueryBody {
    pub text: String,
    pub parameters: Parameters,
    pub resume: Option<ResumeFilter>,
}

/// `{"query": text, "parameters": [{"name": "@x", "value": 1}], "resumeFilter": {...}}`. A parameter without a value is
/// undefined.
pub(crate) fn parse_query(body: &[u8]) -> Result<QueryBody, HandlerError> {
    let json = Item::from_json(body, Limits::default()).map_err(EngineError::from)?;
    let member = |name| json.root().get(name);
    let text = match member("query").map(Node::as_str) {
        Some(Some(text)) => text.to_owned(),
        Some(None) => return Err(bad("The 'query' of the request body must be a string.".to_owned())),
        None => return Err(EngineError::MissingProperties { names: "query".to_owned() }.into()),
    };
    let parameters = match member("parameters").map(|list| (list.kind(), list)) {
        None | Some((Kind::Null, _)) => Parameters::default(),
        Some((Kind::Array, list)) => parse_parameters(list)?,
        Some(_) => return Err(bad("The 'parameters' of the request body must be an array.".to_owned())),
    };
    let resume = match member("resumeFilter").map(Node::to_value) {
        None | Some(Value::Null) => None,
        Some(filter) => Some(parse_resume_filter(&filter)?),
    };
    Ok(QueryBody { text, parameters, resume })
}

/// `{"value": [17.5, [], {"type": "array", "low": 1, "high": 2}], "rid": "...", "exclude": false}`: `undefined` is `[]`, an
/// array or object is its hash.
fn parse_resume_filter(filter: &Value) -> Result<ResumeFilter, HandlerError> {
    let Some(Value::Array(values)) = filter.get("value") else {
        return Err(bad("The 'value' of the resumeFilter must be an array.".to_owned()));
    };
    let values = values.iter().map(resume_value).collect::<Option<Vec<_>>>().ok_or_else(|| {
        bad("A value of the resumeFilter must be a scalar, [] or the hash of an array or object.".to_owned())
    })?;
    let rid = match filter.get("rid") {
        None | Some(Value::Null) => None,
        Some(Value::String(rid)) => Some(
            ResourceId::parse(rid)
                .map_err(|_| bad(format!("The 'rid' of the resumeFilter is not a resource id: '{rid}'.")))?,
        ),
        Some(_) => return Err(bad("The 'rid' of the resumeFilter must be a string.".to_owned())),
    };
    let exclude = match filter.get("exclude") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(exclude)) => *exclude,
        Some(_) => return Err(bad("'exclude' of the resumeFilter must be true or false.".to_owned())),
    };
    Ok(ResumeFilter { values, rid, exclude })
}

fn resume_value(value: &Value) -> Option<ResumeValue> {
    match value {
        Value::Array(elements) => elements.is_empty().then_some(ResumeValue::Scalar(Value::Undefined)),
        Value::Object(object) => {
            let half = |name| object.get(name).and_then(Value::as_i64).map(i64::cast_unsigned);
            let hash = ValueHash { low: half("low")?, high: half("high")? };
            match object.get("type")?.as_str()? {
                "array" => Some(ResumeValue::Array(hash)),
                "object" => Some(ResumeValue::Object(hash)),
                _ => None,
            }
        }
        scalar => Some(ResumeValue::Scalar(scalar.clone())),
    }
}

fn parse_parameters(list: Node<'_>) -> Result<Parameters, HandlerError> {
    let mut parameters: Vec<(String, Value)> = Vec::with_capacity(list.len());
    for parameter in list.elements() {
        let Some(name) = parameter.get("name").and_then(Node::as_str) else {
            return Err(bad("Every query parameter must have a 'name' that is a string.".to_owned()));
        };
        if !name.starts_with('@') || name.len() == 1 {
            return Err(bad(format!(
                "Specified parameter name '{name}' is invalid: it must begin with '@'."
            )));
        }
        let value = parameter.get("value").map_or(Value::Undefined, Node::to_value);
        parameters.push((name.to_owned(), value));
    }
    match first_repeated(&parameters) {
        Some(name) => Err(bad(format!("Specified duplicate parameter name '{name}'."))),
        None => Ok(Parameters(parameters)),
    }
}

fn first_repeated(parameters: &[(String, Value)]) -> Option<&str> {
    /// More are looked up in a set.
    const COMPARED_MAX: usize = 16;
    let names = || parameters.iter().map(|(name, _)| name.as_str());
    if parameters.len() <= COMPARED_MAX {
        return names()
            .enumerate()
            .find(|(at, name)| names().take(*at).any(|other| other == *name))
            .map(|(_, name)| name);
    }
    let mut known = std::collections::HashSet::with_capacity(parameters.len());
    names().find(|name| !known.insert(*name))
}

fn bad(message: String) -> HandlerError {
    RequestError::BadRequest { message }.into()
}
