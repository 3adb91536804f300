//! The properties of a container that a query depends on at compile time.

use quire_resource::{ContainerDefinition, DistanceFunction, FullTextPath, VectorEmbedding};
use quire_value::Path;

use crate::functions::{Links, UserFunctions};
use crate::text::Language;

/// Passed to [`Query::compile_for`](crate::query::Query::compile_for). The default is for queries without a
/// container.
#[derive(Clone, Copy, Default)]
pub struct Schema<'c> {
    /// Computed properties: name and query text.
    pub computed: &'c [(String, String)],
    /// They define how vectors at a path are compared.
    pub vectors: &'c [VectorEmbedding],
    /// They define the language of the text at a path.
    pub full_text: &'c [FullTextPath],
    /// `None`: no user-defined function can be called.
    pub functions: Option<&'c dyn UserFunctions>,
    /// `None`: no link can be followed.
    pub links: Option<&'c dyn Links>,
    /// Rows are items and get a member [`FOLLOWED_MEMBER`](crate::FOLLOWED_MEMBER); other queries are refused.
    pub adds_followed: bool,
}

impl<'c> Schema<'c> {
    /// All but user-defined functions and links.
    pub fn of(definition: &'c ContainerDefinition) -> Schema<'c> {
        Schema {
            computed: &definition.computed_properties,
            vectors: &definition.vector_embeddings,
            full_text: &definition.full_text.paths,
            functions: None,
            links: None,
            adds_followed: false,
        }
    }

    pub fn with_functions(self, functions: &'c dyn UserFunctions) -> Schema<'c> {
        Schema { functions: Some(functions), ..self }
    }

    pub fn with_links(self, links: &'c dyn Links) -> Schema<'c> {
        Schema { links: Some(links), ..self }
    }

    pub(crate) fn distance(&self, path: &Path) -> Option<DistanceFunction> {
        self.vectors.iter().find(|vector| vector.path == *path).map(|vector| vector.distance)
    }

    pub(crate) fn language(&self, path: &Path) -> Language {
        let policy = self.full_text.iter().find(|text| text.path == *path);
        policy.and_then(|text| Language::of_code(&text.language)).unwrap_or_default()
    }
}
