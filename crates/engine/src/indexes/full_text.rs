//! Full-text indexes: the terms of a text, one row for each that occurs.

use std::sync::Arc;

use quire_resource::ContainerDefinition;
use quire_sql::text::{Language, indexed_tokens};
use quire_value::{Node, Path, key};

use super::change::RowSet;
use super::{IndexKind, IndexName};

pub(super) struct FullText {
    /// Names only.
    pub path: Path,
    pub language: Language,
    pub name: Arc<IndexName>,
}

impl FullText {
    /// `None`: the path names no single place.
    pub fn new(path: &Path, definition: &ContainerDefinition) -> Option<FullText> {
        if path.0.is_empty() || !path.is_names() {
            return None;
        }
        let policy = definition.full_text.paths.iter().find(|policy| policy.path == *path);
        let language = policy.and_then(|policy| Language::of_code(&policy.language)).unwrap_or_default();
        let text = format!("{path} in {}", language.code());
        let name = Arc::new(IndexName::of_path(IndexKind::FullText, &text));
        Some(FullText { path: path.clone(), language, name })
    }

    pub fn rows(&self, item: Node<'_>, rows: &mut RowSet) {
        let Some(text) = self.path.find_in(item).and_then(Node::as_str) else { return };
        rows.name(&self.name);
        let mut term = Vec::new();
        for token in indexed_tokens(self.language, text) {
            term.clear();
            encode_term(&token.term, &mut term);
            rows.push_encoded(self.name.id, [&[], &term]);
        }
    }
}

/// A term as rows have it. Terms are never cut here: what is too long for a term was cut when the text was analysed.
pub(crate) fn encode_term(term: &str, out: &mut Vec<u8>) {
    key::encode_string(term, out);
}
