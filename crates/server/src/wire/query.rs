//! Query bodies.

use quire_engine::{EngineError, Parameters};
use quire_value::{Limits, Value, text};

use crate::status::{HandlerError, RequestError};

#[derive(Debug)]
pub(crate) struct QueryBody {
    pub text: String,
    pub parameters: Parameters,
}

/// `{"query": text, "parameters": [{"name": "@x", "value": 1}]}`. A parameter without a value is undefined.
pub(crate) fn parse_query(body: &[u8]) -> Result<QueryBody, HandlerError> {
    let json = text::parse(body, Limits::default()).map_err(EngineError::from)?;
    let text = match json.get("query") {
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(bad("The 'query' of the request body must be a string.".to_owned())),
        None => return Err(EngineError::MissingProperties { names: "query".to_owned() }.into()),
    };
    let parameters = match json.get("parameters") {
        None | Some(Value::Null) => Parameters::default(),
        Some(Value::Array(list)) => parse_parameters(list)?,
        Some(_) => return Err(bad("The 'parameters' of the request body must be an array.".to_owned())),
    };
    Ok(QueryBody { text, parameters })
}

fn parse_parameters(list: &[Value]) -> Result<Parameters, HandlerError> {
    let mut parameters: Vec<(String, Value)> = Vec::with_capacity(list.len());
    let mut names = std::collections::HashSet::with_capacity(list.len());
    for parameter in list {
        let Some(Value::String(name)) = parameter.get("name") else {
            return Err(bad("Every query parameter must have a 'name' that is a string.".to_owned()));
        };
        if !name.starts_with('@') || name.len() == 1 {
            return Err(bad(format!(
                "Specified parameter name '{name}' is invalid: it must begin with '@'."
            )));
        }
        if !names.insert(name.as_str()) {
            return Err(bad(format!("Specified duplicate parameter name '{name}'.")));
        }
        let value = parameter.get("value").cloned().unwrap_or(Value::Undefined);
        parameters.push((name.clone(), value));
    }
    Ok(Parameters(parameters))
}

fn bad(message: String) -> HandlerError {
    RequestError::BadRequest { message }.into()
}
