//! Changes that are tried on a copy.

use quire_value::Value;

use super::Engine;
use crate::api::EngineError;
use crate::jobs::JobStatus;
use crate::what_if::{Subject, WHAT_IF, WhatIfChange, WhatIfOrder, WhatIfRequest};

/// What a finding says of its change, and how long its figures stand for.
#[derive(Default)]
struct PredictedEffect {
    finding: Option<String>,
    declarations: Option<Value>,
    saved: Option<f64>,
    days: Option<f64>,
}

impl Engine {
    /// Starts the job that tries a change on a sample, with the last recorded operations. One at a time for each database.
    pub fn start_what_if(&self, database: &str, body: &Value) -> Result<JobStatus, EngineError> {
        let (owner, _) = self.database_owner(database)?;
        let request = WhatIfRequest::parse(body)?;
        let (change, predicted) = match request.subject {
            Subject::Finding(id) => self.change_of_finding(database, &id)?,
            Subject::Change(change) => {
                let predicted = self.price_of(database, &change)?;
                (change, predicted)
            }
        };
        self.check_change(database, &change, predicted.declarations.as_ref())?;
        let PredictedEffect { finding, declarations, saved: predicted, days } = predicted;
        let order = WhatIfOrder { change, finding, declarations, predicted, days, limits: request.limits };
        let _one = self.starting_what_if.lock();
        if self.shared.jobs.has_unfinished_of(WHAT_IF, owner.number) {
            return Err(EngineError::WhatIfRunning { database: owner.name });
        }
        let job = self.shared.jobs.order(order.job(owner))?;
        self.job(&job.to_string())
    }

    /// Whether a body can be one of a what-if.
    pub fn check_what_if(&self, body: &Value) -> Result<(), EngineError> {
        WhatIfRequest::parse(body).map(drop)
    }

    fn change_of_finding(
        &self,
        database: &str,
        id: &str,
    ) -> Result<(WhatIfChange, PredictedEffect), EngineError> {
        let finding = self.finding(database, id)?;
        let change = WhatIfChange::of_finding(&finding, &self.catalog.model(database)?.body)?;
        Ok((change, self.predicted(database, &finding)?))
    }

    fn predicted(&self, database: &str, finding: &Value) -> Result<PredictedEffect, EngineError> {
        let list = self.advice(database)?.unwrap_or(Value::Null);
        let figure = |value: Option<&Value>| value.and_then(Value::as_number).map(|figure| figure.as_f64());
        let effect = finding.get("effect").and_then(|effect| effect.get("chargePerDay"));
        Ok(PredictedEffect {
            finding: finding.get("id").and_then(Value::as_str).map(str::to_owned),
            declarations: finding.get("apply").and_then(|apply| apply.get("link").cloned()),
            saved: figure(effect.and_then(|charge| charge.get("saved"))),
            days: figure(list.get("standsForDays")),
        })
    }

    /// The price of a change that the last list of advice proposes; nothing is predicted of another one.
    fn price_of(&self, database: &str, change: &WhatIfChange) -> Result<PredictedEffect, EngineError> {
        let list = self.advice(database)?.unwrap_or(Value::Null);
        let model = self.catalog.model(database)?.body;
        let findings = list.get("findings").and_then(Value::as_array).unwrap_or_default();
        let is_same = |finding: &&Value| {
            WhatIfChange::of_finding(finding, &model).is_ok_and(|own| plain(&own) == plain(change))
        };
        match findings.iter().find(is_same) {
            Some(finding) => Ok(PredictedEffect { finding: None, ..self.predicted(database, finding)? }),
            None => Ok(PredictedEffect::default()),
        }
    }

    /// What would be refused is refused now.
    fn check_change(
        &self,
        database: &str,
        change: &WhatIfChange,
        declarations: Option<&Value>,
    ) -> Result<(), EngineError> {
        match change {
            WhatIfChange::Refactoring(body) => {
                let Some(declarations) = declarations.filter(|own| own.as_object().is_some()) else {
                    return self.refactorings.order(database, body).map(drop);
                };
                let model = self.with_additions(database, declarations)?;
                let model = self.catalog.parsed_model(database, &model)?;
                self.refactorings.order_under(database, body, Some(&model)).map(drop)
            }
            WhatIfChange::Model(body) => {
                let state = self.catalog.state();
                let not_found =
                    || EngineError::ResourceNotFound { kind: "database", id: database.to_owned() };
                let entry = state.databases.find(database).ok_or_else(not_found)?;
                self.catalog.parse_model(entry, body).map(drop)
            }
            WhatIfChange::Container(body) => {
                let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
                match self.catalog.container(database, id) {
                    Ok(existing) => Ok(existing.definition.replace(body).map(drop)?),
                    Err(_) if body.get("materializedViewDefinition").is_some() => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// A change without what does not matter here.
fn plain(change: &WhatIfChange) -> Value {
    let mut body = change.body().as_object().cloned().unwrap_or_default();
    let is_system = |name: &str| name.starts_with('_') || ["finish", "revision"].contains(&name);
    let names: Vec<String> = body.names().filter(|name| is_system(name)).map(str::to_owned).collect();
    names.iter().for_each(|name| drop(body.remove(name)));
    Value::Object(body)
}
