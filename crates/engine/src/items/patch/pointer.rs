//! Paths of properties and elements: `/a/0/b`, where `~1` is `/` and `~0` is `~`.

use quire_resource::ContainerDefinition;
use quire_value::Segment;

use super::Refusal;
use crate::store::is_system_property;

#[derive(Debug)]
pub(super) struct Pointer {
    /// At least one; none is empty.
    pub tokens: Vec<String>,
}

/// Where a token points in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayPosition {
    Index(usize),
    /// `-`: behind the last element
    End,
}

impl Pointer {
    pub fn parse(text: &str) -> Result<Pointer, Refusal> {
        if text.is_empty() || text == "/" {
            return Err(Refusal::new("The root of an item cannot be patched"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(Refusal::new(format!("The path '{text}' must begin with '/'")));
        };
        let tokens = rest.split('/').map(|token| unescape(token, text)).collect::<Result<Vec<_>, _>>()?;
        Ok(Pointer { tokens })
    }

    /// Refuses what no patch may touch.
    pub fn check_patchable(&self, definition: &ContainerDefinition) -> Result<(), Refusal> {
        let first = &self.tokens[0];
        if is_system_property(first) {
            return Err(Refusal::new(format!("The system property '{first}' cannot be patched")));
        }
        if first == "id" {
            return Err(Refusal::new("The id of an item cannot be patched"));
        }
        if definition.computed_properties.iter().any(|(name, _)| name == first) {
            return Err(Refusal::new(format!("The computed property '{first}' cannot be patched")));
        }
        match definition.partition_key.paths.iter().find(|path| self.leads_to(&path.0)) {
            Some(path) => Err(Refusal::new(format!(
                "The partition key path '{path}' and what it lies in cannot be patched"
            ))),
            None => Ok(()),
        }
    }

    /// Whether this is the path or one above it.
    fn leads_to(&self, path: &[Segment]) -> bool {
        let same =
            |(token, segment): (&String, &Segment)| matches!(segment, Segment::Name(name) if name == token);
        self.tokens.len() <= path.len() && self.tokens.iter().zip(path).all(same)
    }

    /// Whether `other` lies strictly inside this.
    pub fn contains(&self, other: &Pointer) -> bool {
        self.tokens.len() < other.tokens.len() && other.tokens.starts_with(&self.tokens)
    }

    pub fn parent_and_last(&self) -> (&[String], &str) {
        let (last, parents) = self.tokens.split_last().expect("a pointer has at least one token");
        (parents, last)
    }
}

fn unescape(token: &str, path: &str) -> Result<String, Refusal> {
    if token.is_empty() {
        return Err(Refusal::new(format!("The path '{path}' has an empty name")));
    }
    let mut name = String::with_capacity(token.len());
    let mut parts = token.split('~');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let mut characters = part.chars();
        match characters.next() {
            Some('0') => name.push('~'),
            Some('1') => name.push('/'),
            _ => {
                let why = format!("The path '{path}' has a '~' that is neither '~0' nor '~1'");
                return Err(Refusal::new(why));
            }
        }
        name.push_str(characters.as_str());
    }
    Ok(name)
}

/// A decimal index without leading zeros, or `-`.
pub(super) fn position(token: &str) -> Result<ArrayPosition, Refusal> {
    if token == "-" {
        return Ok(ArrayPosition::End);
    }
    let is_number =
        token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    let index = is_number.then(|| token.parse().ok()).flatten();
    index
        .map(ArrayPosition::Index)
        .ok_or_else(|| Refusal::new(format!("'{token}' is not an index of an array")))
}
