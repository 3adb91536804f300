//! Rules that make requests fail, for tests of clients: only with `--enable-faults`, listed and changed under `/_quire/faults`.
//!
//! A rule names what it matches (everything, if nothing is named) and what happens: a status, a delay, a closed connection.
//! Rules are tried in the order in which they were created; the first that fires decides. Whether a rule with a `rate` fires
//! follows from its `seed` and how often it matched, so a run can be repeated.

use std::time::Duration;

use hyper::StatusCode;
use parking_lot::Mutex;
use quire_resource::PartitionKey;
use quire_value::{Number, Object, Value, random};

use crate::edge::request::Request;
use crate::operations::Action;
use crate::routes::{Route, RouteKind};
use crate::wire::status::RequestError;

const RULE_COUNT_MAX: usize = 1000;
const DELAY_MAX: Duration = Duration::from_secs(600);
const PARTITION_KEY: &str = "x-ms-documentdb-partitionkey";

#[derive(Default)]
pub(crate) struct Faults {
    rules: Mutex<Rules>,
}

#[derive(Default)]
struct Rules {
    next_id: u64,
    list: Vec<Rule>,
}

pub(crate) struct Rule {
    id: u64,
    /// As it was sent.
    text: Object,
    operations: Vec<String>,
    resource_type: Option<String>,
    database: Option<String>,
    container: Option<String>,
    item: Option<String>,
    partition_key: Option<PartitionKey>,
    rate: f64,
    seed: u64,
    skip: u64,
    count: Option<u64>,
    fault: Fault,
    matched: u64,
    fired: u64,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub delay: Duration,
    /// The request is served first, and its answer is dropped or replaced.
    pub after: bool,
    pub effect: FaultEffect,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FaultEffect {
    /// The request is served, only later.
    Serve,
    Status {
        status: StatusCode,
        substatus: Option<u32>,
        retry_after_ms: Option<u32>,
        message: String,
    },
    /// The connection is closed without an answer.
    Cut,
}

impl Faults {
    /// The fault of the first rule that fires for the request.
    pub fn fire(&self, request: &Request, route: &Route<'_>, action: Action) -> Option<Fault> {
        let mut rules = self.rules.lock();
        if rules.list.is_empty() {
            return None;
        }
        rules.list.iter_mut().find_map(|rule| rule.fire(action.name(), request, route))
    }

    pub fn list(&self) -> Vec<Value> {
        self.rules.lock().list.iter().map(Rule::to_json).collect()
    }

    /// The rule as it is listed from now on.
    pub fn add(&self, mut rule: Rule) -> Result<Value, RequestError> {
        let mut rules = self.rules.lock();
        if rules.list.len() >= RULE_COUNT_MAX {
            return Err(bad(format!("there are {RULE_COUNT_MAX} fault rules already")));
        }
        rules.next_id += 1;
        rule.id = rules.next_id;
        let json = rule.to_json();
        rules.list.push(rule);
        Ok(json)
    }

    /// Whether there was one.
    pub fn remove(&self, id: &str) -> bool {
        let mut rules = self.rules.lock();
        let at = rules.list.iter().position(|rule| rule.id.to_string() == id);
        at.map(|at| rules.list.remove(at)).is_some()
    }

    pub fn clear(&self) {
        self.rules.lock().list.clear();
    }
}

fn bad(message: impl Into<String>) -> RequestError {
    RequestError::BadRequest { message: message.into() }
}

impl Rule {
    fn fire(&mut self, operation: &str, request: &Request, route: &Route<'_>) -> Option<Fault> {
        if self.count.is_some_and(|count| self.fired >= count) || !self.matches(operation, request, route) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.skip || fraction(self.seed, self.matched) >= self.rate {
            return None;
        }
        self.fired += 1;
        Some(self.fault.clone())
    }

    fn matches(&self, operation: &str, request: &Request, route: &Route<'_>) -> bool {
        let named =
            |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        let (database, container) = route.kind.container().unzip();
        let item = if let RouteKind::Item { id, .. } = &route.kind { Some(&**id) } else { None };
        (self.operations.is_empty() || self.operations.iter().any(|name| name == operation))
            && named(&self.resource_type, Some(route.resource_type))
            && named(&self.database, database)
            && named(&self.container, container)
            && named(&self.item, item)
            && (self.partition_key.is_none() || self.partition_key == partition_key(request))
    }

    fn to_json(&self) -> Value {
        let mut rule = Object::new();
        rule.set("id", self.id.to_string());
        for (name, value) in self.text.iter() {
            rule.set(name, value.clone());
        }
        rule.set("matched", Value::Number(Number::from_u64(self.matched)));
        rule.set("fired", Value::Number(Number::from_u64(self.fired)));
        Value::from(rule)
    }

    /// Members that no rule has are refused.
    pub fn parse(value: &Value) -> Result<Rule, RequestError> {
        let Value::Object(members) = value else { return Err(bad("a fault is a JSON object")) };
        let mut reader = Members { members, names: Vec::new() };
        let operations = match reader.take("operations") {
            None => Vec::new(),
            Some(Value::Array(names)) => names.iter().map(operation_name).collect::<Result<_, _>>()?,
            Some(_) => return Err(bad("\"operations\" is an array of names")),
        };
        let partition_key = match reader.take("partitionKey") {
            None => None,
            Some(value) => {
                let key = PartitionKey::from_header(&value.to_json());
                Some(key.map_err(|error| bad(format!("\"partitionKey\": {error}")))?)
            }
        };
        let rule = Rule {
            id: 0,
            operations,
            resource_type: reader.text("resourceType")?,
            database: reader.text("database")?,
            container: reader.text("container")?,
            item: reader.text("item")?,
            partition_key,
            rate: reader.number("rate")?.unwrap_or(1.0),
            seed: reader.integer("seed")?.unwrap_or(0),
            skip: reader.integer("skip")?.unwrap_or(0),
            count: reader.integer("count")?,
            fault: reader.fault()?,
            matched: 0,
            fired: 0,
            text: members.clone(),
        };
        if !(0.0..=1.0).contains(&rule.rate) {
            return Err(bad("\"rate\" lies between 0 and 1"));
        }
        match members.iter().find(|(name, _)| !reader.names.contains(name)) {
            Some((name, _)) => Err(bad(format!("{name:?} is not a member of a fault"))),
            None => Ok(rule),
        }
    }
}

fn operation_name(value: &Value) -> Result<String, RequestError> {
    let names = Action::ALL.map(Action::name);
    match value.as_str().filter(|name| names.contains(name)) {
        Some(name) => Ok(name.to_owned()),
        None => Err(bad(format!("{} is not one of the operations {}", value.to_json(), names.join(", ")))),
    }
}

/// The members of a rule, and the names that were read.
struct Members<'a> {
    members: &'a Object,
    names: Vec<&'a str>,
}

impl<'a> Members<'a> {
    fn take(&mut self, name: &'a str) -> Option<&'a Value> {
        self.names.push(name);
        self.members.get(name)
    }

    fn text(&mut self, name: &'a str) -> Result<Option<String>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(bad(format!("{name:?} is text"))),
        }
    }

    fn number(&mut self, name: &'a str) -> Result<Option<f64>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.as_f64())),
            Some(_) => Err(bad(format!("{name:?} is a number"))),
        }
    }

    fn integer(&mut self, name: &'a str) -> Result<Option<u64>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number >= 0) => {
                Ok(number.as_i64().map(i64::unsigned_abs))
            }
            Some(_) => Err(bad(format!("{name:?} is a whole number, not negative"))),
        }
    }

    fn bounded<T: TryFrom<u64>>(&mut self, name: &'a str) -> Result<Option<T>, RequestError> {
        let Some(number) = self.integer(name)? else { return Ok(None) };
        T::try_from(number).map(Some).map_err(|_| bad(format!("{name:?} is too large")))
    }

    fn flag(&mut self, name: &'a str) -> Result<bool, RequestError> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(bad(format!("{name:?} is true or false"))),
        }
    }

    fn fault(&mut self) -> Result<Fault, RequestError> {
        let delay = Duration::from_millis(self.integer("delayMs")?.unwrap_or(0));
        let (after, cut, status) = (self.flag("after")?, self.flag("cut")?, self.bounded::<u16>("status")?);
        let (substatus, retry_after_ms) = (self.bounded("subStatus")?, self.bounded("retryAfterMs")?);
        let message = self.text("message")?.unwrap_or_else(|| "A fault rule fired.".to_owned());
        let effect = match (status, cut) {
            (Some(_), true) => {
                return Err(bad("a fault answers a status or cuts the connection, not both"));
            }
            (None, true) => FaultEffect::Cut,
            (None, false) if delay.is_zero() => {
                return Err(bad("a fault needs a \"status\", a \"delayMs\" or \"cut\""));
            }
            (None, false) => FaultEffect::Serve,
            (Some(status), false) => {
                let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 400);
                let status = status.ok_or_else(|| bad("\"status\" is that of an error, 400 or more"))?;
                FaultEffect::Status { status, substatus, retry_after_ms, message }
            }
        };
        if delay > DELAY_MAX {
            return Err(bad(format!("\"delayMs\" is at most {}", DELAY_MAX.as_millis())));
        }
        Ok(Fault { delay, after, effect })
    }
}

fn partition_key(request: &Request) -> Option<PartitionKey> {
    PartitionKey::from_header(request.headers.get(PARTITION_KEY)?.to_str().ok()?).ok()
}

/// Evenly distributed over [0, 1), the same for the same seed and number.
fn fraction(seed: u64, number: u64) -> f64 {
    random::fraction(random::split_mix(seed.wrapping_add(number.wrapping_mul(random::STEP))))
}

#[cfg(test)]
mod tests {
    use quire_value::{Limits, text};

    use super::*;

    #[test]
    fn bad_rules_say_what_is_wrong() {
        for (rule, expected) in [
            ("[]", "a fault is a JSON object"),
            ("{}", "needs a \"status\""),
            (r#"{"status":200}"#, "400 or more"),
            (r#"{"status":503,"cut":true}"#, "not both"),
            (r#"{"status":503,"rate":1.5}"#, "between 0 and 1"),
            (r#"{"status":503,"opration":"read"}"#, "\"opration\" is not a member"),
            (r#"{"status":503,"operations":["reed"]}"#, "is not one of the operations"),
            (r#"{"delayMs":-1}"#, "whole number"),
            (r#"{"delayMs":9000000}"#, "at most 600000"),
        ] {
            let rule = text::parse(rule.as_bytes(), Limits::default()).unwrap();
            let error = Rule::parse(&rule).err().expect("refused").to_string();
            assert!(error.contains(expected), "{rule:?}: {error}");
        }
    }

    #[test]
    fn a_rate_is_kept_and_can_be_repeated() {
        let fired = |seed| (1..=10_000).filter(|&number| fraction(seed, number) < 0.25).collect::<Vec<u64>>();
        assert!((2300..2700).contains(&fired(1).len()), "{}", fired(1).len());
        assert_eq!(fired(7), fired(7));
        assert_ne!(fired(7), fired(8));
    }
}
