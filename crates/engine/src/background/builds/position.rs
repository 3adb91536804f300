//! Where a build is, as its checkpoint has it.
//!
//! JSON: `stage`, the number of the container and the next rid there, figures by declaration (items, changed, references,
//! dangling), and what failed.

use std::collections::BTreeMap;

use quire_value::{Limits, Object, Value, text};

use crate::api::{EngineError, corrupt};
use crate::jobs::JobStep;
use crate::maintain::visit::{DeclarationVisit, VisitFigures};

const LIMITS: Limits = Limits { depth_max: 256 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BuildStage {
    #[default]
    Count,
    Marks,
    Write,
    Ended,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BuildPosition {
    pub stage: BuildStage,
    /// Number of the container; 0 before the first.
    pub container: u32,
    /// The next item.
    pub rid: u64,
    /// Items, changed, references, dangling.
    figures: BTreeMap<String, [u64; 4]>,
    /// Declarations that could not be built: `{"declaration", "error", "examples"}`.
    pub failed: Vec<Value>,
}

impl BuildStage {
    fn name(self) -> &'static str {
        match self {
            BuildStage::Count => "count",
            BuildStage::Marks => "marks",
            BuildStage::Write => "write",
            BuildStage::Ended => "ended",
        }
    }
}

impl BuildPosition {
    /// At the beginning of a stage.
    pub fn at(self, stage: BuildStage) -> BuildPosition {
        BuildPosition { stage, container: 0, rid: 0, ..self }
    }

    /// Behind all items of the container.
    pub fn after_container(self) -> BuildPosition {
        BuildPosition { rid: u64::MAX, ..self }
    }

    /// Behind some items, with what was seen of them.
    pub fn after_items(
        &self,
        container: u32,
        rid: u64,
        figures: Option<&VisitFigures>,
        own: &[String],
    ) -> BuildPosition {
        let mut next = BuildPosition { container, rid, ..self.clone() };
        for (name, visit) in figures.into_iter().flat_map(|figures| &figures.by_declaration) {
            if own.contains(name) {
                let DeclarationVisit { items, changed, references, dangling } = *visit;
                let entry = next.figures.entry(name.clone()).or_default();
                let more = [items, changed, references, dangling];
                entry.iter_mut().zip(more).for_each(|(own, more)| *own += more);
            }
        }
        next
    }

    /// A declaration that fails has no figures: not all of its items were seen.
    pub fn remove_figures(&mut self, declaration: &str) {
        self.figures.remove(declaration);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut json = Object::new();
        json.set("stage", self.stage.name());
        json.set("container", i64::from(self.container));
        // Not a number of JSON: rids have 60 bits, and the end has more.
        json.set("rid", self.rid.to_string());
        json.set("failed", Value::Array(self.failed.clone()));
        let figures = self.figures.iter().map(|(name, own)| {
            (name.as_str(), own.iter().map(|count| Value::from(*count as i64)).collect::<Value>())
        });
        json.set("figures", Value::Object(figures.collect::<Object>()));
        Value::Object(json).to_json().into_bytes()
    }

    pub fn decode(position: &[u8]) -> Result<BuildPosition, EngineError> {
        if position.is_empty() {
            return Ok(BuildPosition::default());
        }
        read(position).ok_or_else(|| corrupt("position of a build"))
    }

    /// The result of a build that made everything.
    pub fn result(&self) -> Value {
        let declarations = self.figures.iter().map(|(name, [items, changed, references, dangling])| {
            let mut json = Object::new();
            json.set("declaration", name.as_str());
            let counts =
                [("items", items), ("changed", changed), ("references", references), ("dangling", dangling)];
            counts.into_iter().for_each(|(member, count)| json.set(member, *count as i64));
            Value::Object(json)
        });
        let mut json = Object::new();
        json.set("declarations", declarations.collect::<Value>());
        json.set("failed", Value::Array(self.failed.clone()));
        Value::Object(json)
    }

    /// How a build ends that could not make everything.
    pub fn failure(&self) -> JobStep {
        let error = |own: &Value| own.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
        let error = self.failed.first().map_or(String::new(), error);
        JobStep::Failed { error, result: self.result() }
    }
}

fn read(position: &[u8]) -> Option<BuildPosition> {
    let json = text::parse(position, LIMITS).ok()?;
    let stages = [BuildStage::Count, BuildStage::Marks, BuildStage::Write, BuildStage::Ended];
    let stage = json.get("stage")?.as_str()?;
    let mut figures = BTreeMap::new();
    for (name, own) in json.get("figures")?.as_object()?.iter() {
        let counts: Option<Vec<u64>> = own.as_array()?.iter().map(Value::as_u64).collect();
        figures.insert(name.to_owned(), counts?.try_into().ok()?);
    }
    Some(BuildPosition {
        stage: stages.into_iter().find(|own| own.name() == stage)?,
        container: u32::try_from(json.get("container")?.as_u64()?).ok()?,
        rid: json.get("rid")?.as_str()?.parse().ok()?,
        figures,
        failed: json.get("failed")?.as_array()?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let figures = BTreeMap::from([("l".to_owned(), [1, 2, 3, 4])]);
        let failed = vec![Value::from("x")];
        for stage in [BuildStage::Count, BuildStage::Marks, BuildStage::Write, BuildStage::Ended] {
            let position = BuildPosition {
                stage,
                container: 7,
                rid: u64::MAX,
                figures: figures.clone(),
                failed: failed.clone(),
            };
            assert_eq!(BuildPosition::decode(&position.encode()).unwrap(), position);
        }
        assert_eq!(BuildPosition::decode(&[]).unwrap(), BuildPosition::default());
        assert!(BuildPosition::decode(b"{}").is_err() && BuildPosition::decode(b"[").is_err());
    }
}
