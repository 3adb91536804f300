//! Container definitions: validated, normalised, written back with everything the client sent.

mod full_text; // full-text policy and indexes
mod indexing; // indexing policy: paths, precedence, composite, spatial, vector, full text
mod sections; // the smaller sections of a container
mod vector_policy; // vector embeddings and indexes
mod view; // materialised views

use quire_value::{Object, Path, Value};

use crate::members::{self, invalid, wrong};
use crate::name::check_name;
use crate::partition_key::{PartitionKeyDefinition, PartitionKeyError};

pub use self::full_text::{FULL_TEXT_LANGUAGES, FullTextPath, FullTextPolicy};
pub use self::indexing::{
    BoundingBox, COMPOSITE_PATHS_MAX, CompositePath, IndexingMode, IndexingPolicy, PathOrder, RuleNode,
    SortOrder, SpatialIndex, SpatialType, TupleIndex,
};
pub use self::sections::{ConflictResolution, GeospatialType, UniqueKey};
pub use self::vector_policy::{
    DistanceFunction, Quantizer, VectorDataType, VectorEmbedding, VectorIndex, VectorIndexKind,
};
pub use self::view::{VIEW_MEMBERS, ViewDefinition};

/// A container as the client defined it. `json` is the user part of the resource (no system properties): defaults
/// added, unknown members preserved, absent options absent. Creating from it gives the same definition.
#[derive(Clone, Debug)]
pub struct ContainerDefinition {
    pub id: String,
    pub partition_key: PartitionKeyDefinition,
    pub indexing: IndexingPolicy,
    /// `None`: TTL off; `-1`: on without default; n: seconds
    pub default_ttl: Option<i32>,
    /// The path of the time, in seconds since the epoch, from which the time to live counts
    pub ttl_path: Option<Path>,
    pub unique_keys: Vec<UniqueKey>,
    pub conflict_resolution: ConflictResolution,
    pub geospatial: GeospatialType,
    /// `None`: versions and deletes are not recorded
    pub change_feed_retention_minutes: Option<u32>,
    /// Names and query texts. The texts are not checked yet.
    pub computed_properties: Vec<(String, String)>,
    pub vector_embeddings: Vec<VectorEmbedding>,
    pub full_text: FullTextPolicy,
    /// Ids of the client encryption keys that the policy names.
    pub encryption_keys: Vec<String>,
    /// Set for a materialised view.
    pub view: Option<ViewDefinition>,
    /// The normalised JSON as it is returned.
    pub json: Object,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// 400 with the service's text
    #[error("{message}")]
    Invalid { message: String },
    /// 403: unique keys cannot change
    #[error(
        "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one."
    )]
    UniqueKeysChanged,
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
}

/// Members of a container in the order in which they are returned; unknown ones follow.
pub const CONTAINER_MEMBERS: [&str; 16] = [
    "id",
    "indexingPolicy",
    "partitionKey",
    "defaultTtl",
    "ttlPropertyPath",
    "analyticalStorageTtl",
    "uniqueKeyPolicy",
    "conflictResolutionPolicy",
    "geospatialConfig",
    "changeFeedPolicy",
    "computedProperties",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "clientEncryptionPolicy",
    "materializedViewDefinition",
    "globalSecondaryIndexDefinition",
];

/// Members that the server adds when a container is read. Clients send them back; they are not part of the
/// definition.
const SYSTEM_MEMBERS: [&str; 11] = [
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "statistics",
    "materializedViews",
];

impl ContainerDefinition {
    pub fn create(json: &Value) -> Result<ContainerDefinition, ContainerError> {
        let given = json.as_object().ok_or_else(|| wrong("the container", "an object"))?;
        let id = read_id(given)?;
        let partition_key = match members::present(given, "partitionKey") {
            Some(definition) => PartitionKeyDefinition::from_json(definition)?,
            None => return Err(invalid("A Partition key definition is not specified in the request.")),
        };
        let mut definition = ContainerDefinition {
            id,
            indexing: IndexingPolicy::from_json(given.get("indexingPolicy"))?,
            default_ttl: read(given, "defaultTtl", sections::read_default_ttl)?,
            ttl_path: read(given, "ttlPropertyPath", sections::read_ttl_path)?,
            unique_keys: read(given, "uniqueKeyPolicy", sections::read_unique_keys)?.unwrap_or_default(),
            conflict_resolution: sections::read_conflict_resolution(members::present(
                given,
                "conflictResolutionPolicy",
            ))?,
            geospatial: read(given, "geospatialConfig", sections::read_geospatial)?.unwrap_or_default(),
            change_feed_retention_minutes: read(
                given,
                "changeFeedPolicy",
                sections::read_change_feed_retention,
            )?
            .flatten(),
            computed_properties: read(given, "computedProperties", sections::read_computed_properties)?
                .unwrap_or_default(),
            vector_embeddings: read(given, "vectorEmbeddingPolicy", vector_policy::read_embeddings)?
                .unwrap_or_default(),
            full_text: read(given, "fullTextPolicy", full_text::read_policy)?.unwrap_or_default(),
            encryption_keys: read(given, "clientEncryptionPolicy", sections::read_client_encryption)?
                .unwrap_or_default(),
            view: ViewDefinition::read(given)?,
            json: Object::new(),
            partition_key,
        };
        read(given, "analyticalStorageTtl", sections::check_analytical_ttl)?;
        definition.check_sections_agree()?;
        definition.json = definition.write_json(given);
        Ok(definition)
    }

    /// Validates a replacement against the existing definition (immutable parts; omitted sections are reset).
    pub fn replace(&self, json: &Value) -> Result<ContainerDefinition, ContainerError> {
        let mut given = json.as_object().ok_or_else(|| wrong("the container", "an object"))?.clone();
        // Fixed at creation, so omitting it cannot mean the default.
        if members::present(&given, "conflictResolutionPolicy").is_none() {
            given.set("conflictResolutionPolicy", self.member("conflictResolutionPolicy"));
        }
        ViewDefinition::keep_view_definition(&self.json, &mut given);
        if read_id(&given)? != self.id {
            return Err(invalid(format!("The id of the container '{}' cannot be changed.", self.id)));
        }
        let mut replacement = ContainerDefinition::create(&given.into())?;
        self.check_unchanged(&replacement)?;
        if let Some(ViewDefinition { source_id: Some(id), source_rid: Some(rid), .. }) = &self.view {
            replacement.set_source(id, rid);
        }
        Ok(replacement)
    }

    /// Rules that older containers need not satisfy.
    pub fn check_new(&self) -> Result<(), ContainerError> {
        let mut spatial = self.indexing.spatial.iter();
        match (self.geospatial, spatial.find(|index| index.bounding_box.is_some())) {
            (GeospatialType::Geography, Some(index)) => Err(invalid(format!(
                "The spatial index of '{}' cannot have a 'boundingBox', since 'geospatialConfig.type' is 'Geography'.",
                index.path
            ))),
            _ => Ok(()),
        }
    }

    fn check_unchanged(&self, replacement: &ContainerDefinition) -> Result<(), ContainerError> {
        if !self.partition_key.same_as(&replacement.partition_key) {
            return Err(invalid("Document collection partition key cannot be changed."));
        }
        if self.unique_keys != replacement.unique_keys {
            return Err(ContainerError::UniqueKeysChanged);
        }
        if self.conflict_resolution != replacement.conflict_resolution {
            return Err(invalid("The conflict resolution policy of a container cannot be changed."));
        }
        if self.member("clientEncryptionPolicy") != replacement.member("clientEncryptionPolicy") {
            return Err(invalid("The client encryption policy of a container cannot be changed."));
        }
        match (&self.view, &replacement.view) {
            (None, None) => {}
            (Some(view), Some(other)) if view.is_same(other) => {}
            (None, Some(_)) => return Err(invalid("A container cannot become a view.")),
            (Some(_), _) => return Err(invalid("The definition of a view cannot be changed.")),
        }
        vector_policy::check_replacement(
            (&self.vector_embeddings, &self.indexing.vector),
            (&replacement.vector_embeddings, &replacement.indexing.vector),
        )
    }

    /// Adds the name and rid of a view's source to the definition, when the source is resolved.
    pub fn set_source(&mut self, id: &str, rid: &str) {
        let Some(view) = &mut self.view else { return };
        (view.source_id, view.source_rid) = (Some(id.to_owned()), Some(rid.to_owned()));
        for name in VIEW_MEMBERS {
            if let Some(written) = self.json.get(name).map(|given| view.write_over(given)) {
                self.json.set(name, written);
            }
        }
    }

    /// Rules across sections.
    fn check_sections_agree(&self) -> Result<(), ContainerError> {
        if self.view.is_some() {
            self.check_view()?;
        }
        vector_policy::check_indexes(&self.indexing.vector, &self.vector_embeddings)?;
        full_text::check_indexes(&self.indexing.full_text, &self.full_text)?;
        let mut spatial = self.indexing.spatial.iter();
        match (self.geospatial, spatial.find(|index| index.bounding_box.is_none())) {
            (GeospatialType::Geometry, Some(index)) => Err(invalid(format!(
                "The spatial index of '{}' needs a 'boundingBox', since 'geospatialConfig.type' is 'Geometry'.",
                index.path
            ))),
            _ => Ok(()),
        }
    }

    /// A view follows its source: it has no rules that could refuse or expire items.
    fn check_view(&self) -> Result<(), ContainerError> {
        let forbidden = [
            (self.default_ttl.is_some(), "defaultTtl", "its items go when those of its source go"),
            (!self.unique_keys.is_empty(), "uniqueKeyPolicy", "it takes every item of its source"),
        ];
        match forbidden.into_iter().find(|(found, ..)| *found) {
            Some((_, member, why)) => Err(invalid(format!("A view cannot have a '{member}': {why}."))),
            None => Ok(()),
        }
    }

    fn write_json(&self, given: &Object) -> Object {
        let mut json = Object::new();
        for name in CONTAINER_MEMBERS {
            let given = members::present(given, name);
            let written = match name {
                "indexingPolicy" => Some(self.indexing.to_json()),
                "partitionKey" => given.map(|given| self.write_partition_key(given)),
                "conflictResolutionPolicy" => Some(self.conflict_resolution.write_over(given)),
                "geospatialConfig" => Some(self.geospatial.write_over(given)),
                name if VIEW_MEMBERS.contains(&name) => {
                    given.zip(self.view.as_ref()).map(|(given, view)| view.write_over(given))
                }
                _ => given.cloned(),
            };
            if let Some(value) = written {
                json.set(name, value);
            }
        }
        for (name, value) in given.iter() {
            if !CONTAINER_MEMBERS.contains(&name) && !SYSTEM_MEMBERS.contains(&name) {
                json.set(name, value.clone());
            }
        }
        json
    }

    /// Paths as the client wrote them, the kind always, the version as a number and only if it was given.
    fn write_partition_key(&self, given: &Value) -> Value {
        let mut written = self.partition_key.to_json().as_object().cloned().unwrap_or_default();
        for (name, value) in given.as_object().into_iter().flat_map(Object::iter) {
            if name != "version" && !matches!(value, Value::Null | Value::Undefined) {
                written.set(name, value.clone());
            }
        }
        written.into()
    }

    fn member(&self, name: &str) -> Value {
        self.json.get(name).cloned().unwrap_or(Value::Undefined)
    }
}

fn read<T>(
    given: &Object,
    name: &str,
    reader: impl FnOnce(&Value) -> Result<T, ContainerError>,
) -> Result<Option<T>, ContainerError> {
    members::present(given, name).map(reader).transpose()
}

fn read_id(given: &Object) -> Result<String, ContainerError> {
    let Some(id) = members::present(given, "id") else {
        return Err(invalid(
            "The input content is invalid because the required properties - 'id; ' - are missing",
        ));
    };
    let id = id.as_str().ok_or_else(|| wrong("id", "a string"))?;
    check_name(id).map_err(|error| invalid(error.to_string()))?;
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests;
