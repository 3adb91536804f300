//! A model and the containers that it names, whether it is declared or not.

use std::collections::HashMap;
use std::sync::Arc;

use quire_model::ModelRules;

use crate::api::EngineError;
use crate::catalog::Container;
use crate::model::{DatabaseModel, DeclarationState};

/// The model of a survey and its containers.
#[derive(Clone)]
pub(crate) struct SurveySubject {
    pub rules: Arc<ModelRules>,
    /// By name.
    pub containers: HashMap<String, Arc<Container>>,
    /// The states of its declarations; nothing of a model that is not declared.
    pub declared: Option<Arc<DatabaseModel>>,
}

impl SurveySubject {
    pub fn container(&self, name: &str) -> Result<&Arc<Container>, EngineError> {
        let found = self.containers.get(name);
        found.ok_or_else(|| EngineError::ResourceNotFound { kind: "container", id: name.to_owned() })
    }

    /// Whether the declaration is still being built.
    pub fn is_building(&self, declaration: &str) -> bool {
        let state = self.declared.as_ref().and_then(|model| model.declarations.named(declaration));
        state.is_some_and(|own| matches!(own.state, DeclarationState::Building { .. }))
    }

    /// The number that the rows of a link have.
    pub fn link_number(&self, link: usize) -> Option<u32> {
        Some(self.declared.as_ref()?.declarations.links.get(link)?.number)
    }

    /// Numbers of the copies, mirrors and rollups of a link.
    pub fn copies_of(&self, link: usize) -> Vec<usize> {
        numbered(&self.rules.copies, |own| own.link == link)
    }

    pub fn mirrors_of(&self, link: usize) -> Vec<usize> {
        numbered(&self.rules.mirrors, |own| own.link == link)
    }

    pub fn rollups_of(&self, link: usize) -> Vec<usize> {
        numbered(&self.rules.rollups, |own| own.link == link)
    }
}

fn numbered<T>(list: &[T], is: impl Fn(&T) -> bool) -> Vec<usize> {
    list.iter().enumerate().filter(|(_, own)| is(own)).map(|(number, _)| number).collect()
}
