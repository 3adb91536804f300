//! Vector embeddings and the indexes over them.

use quire_value::{Object, Path, Value};

use crate::members::{self, invalid, wrong};
use crate::policy_path;

use super::ContainerError;

/// Of a container. Each index has a build and a tree of its own.
const VECTORS_MAX: usize = 100;
const DIMENSIONS_MAX: u32 = 4096;
const FLAT_DIMENSIONS_MAX: u32 = 505;
const QUANTIZATION_BYTES_MAX: u32 = 512;
const SEARCH_LIST_SIZE: std::ops::RangeInclusive<i64> = 25..=500;
const SHARD_PATHS_MAX: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorEmbedding {
    pub path: Path,
    pub data_type: VectorDataType,
    pub dimensions: u32,
    pub distance: DistanceFunction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorDataType {
    Float32,
    Float16,
    Int8,
    Uint8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistanceFunction {
    Cosine,
    Euclidean,
    DotProduct,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorIndex {
    pub path: Path,
    pub kind: VectorIndexKind,
    pub quantizer: Option<Quantizer>,
    pub quantization_size_bytes: Option<i64>,
    pub search_list_size: Option<i64>,
    pub shard_path: Option<Path>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorIndexKind {
    Flat,
    QuantizedFlat,
    DiskAnn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantizer {
    Product,
    Spherical,
}

/// `vectorEmbeddingPolicy.vectorEmbeddings`
pub(crate) fn read_embeddings(policy: &Value) -> Result<Vec<VectorEmbedding>, ContainerError> {
    let policy = members::as_object(policy, "vectorEmbeddingPolicy")?;
    let entries = members::short_array(policy, "vectorEmbeddingPolicy", "vectorEmbeddings", VECTORS_MAX)?;
    let mut embeddings: Vec<VectorEmbedding> = Vec::with_capacity(entries.len());
    for entry in entries {
        let embedding = read_embedding(entry)?;
        if embeddings.iter().any(|earlier| earlier.path == embedding.path) {
            return Err(invalid(format!(
                "The Vector Embedding Policy has the path {} more than once.",
                embedding.path
            )));
        }
        embeddings.push(embedding);
    }
    Ok(embeddings)
}

fn read_embedding(entry: &Value) -> Result<VectorEmbedding, ContainerError> {
    const PARENT: &str = "vectorEmbeddingPolicy.vectorEmbeddings";
    let entry = members::as_entry(entry, PARENT)?;
    let text = members::string(entry, PARENT, "path")?;
    let path = policy_path::parse_names(text);
    Ok(VectorEmbedding {
        path: path
            .map_err(|_| invalid(format!("The Vector Embedding Policy has an invalid Path:{text}.")))?,
        data_type: read_data_type(members::string(entry, PARENT, "dataType")?)?,
        dimensions: read_dimensions(entry)?,
        distance: read_distance(members::string(entry, PARENT, "distanceFunction")?)?,
    })
}

fn read_data_type(text: &str) -> Result<VectorDataType, ContainerError> {
    match text {
        "float32" => Ok(VectorDataType::Float32),
        "float16" => Ok(VectorDataType::Float16),
        "int8" => Ok(VectorDataType::Int8),
        "uint8" => Ok(VectorDataType::Uint8),
        _ => Err(invalid(format!(
            "The Vector Embedding Policy has an invalid DataType:{text}. It should be float32, float16, int8 or uint8."
        ))),
    }
}

fn read_dimensions(entry: &Object) -> Result<u32, ContainerError> {
    let dimensions = members::present(entry, "dimensions").and_then(Value::as_i64);
    let dimensions =
        dimensions.ok_or_else(|| wrong("vectorEmbeddingPolicy.vectorEmbeddings.dimensions", "an integer"))?;
    match u32::try_from(dimensions) {
        Ok(dimensions @ 1..=DIMENSIONS_MAX) => Ok(dimensions),
        // Clients expect one of the service's two texts.
        _ if dimensions < 1 => Err(invalid(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions}: it has invalid Dimensions:{dimensions}, it \
             should be positive integer."
        ))),
        _ => Err(too_many_dimensions(dimensions, DIMENSIONS_MAX)),
    }
}

fn too_many_dimensions(dimensions: i64, maximum: u32) -> ContainerError {
    invalid(format!(
        "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported value \
         {maximum}."
    ))
}

fn read_distance(text: &str) -> Result<DistanceFunction, ContainerError> {
    match text {
        "cosine" => Ok(DistanceFunction::Cosine),
        "euclidean" => Ok(DistanceFunction::Euclidean),
        "dotproduct" => Ok(DistanceFunction::DotProduct),
        _ => Err(invalid(format!(
            "The Vector Embedding Policy has an invalid DistanceFunction:{text}. It should be cosine, euclidean or \
             dotproduct."
        ))),
    }
}

const INDEXES: &str = "indexingPolicy.vectorIndexes";

/// `indexingPolicy.vectorIndexes`
pub(crate) fn read_indexes(policy: &Object) -> Result<Vec<VectorIndex>, ContainerError> {
    let entries = members::short_array(policy, "indexingPolicy", "vectorIndexes", VECTORS_MAX)?;
    entries.iter().map(read_index).collect()
}

fn read_index(entry: &Value) -> Result<VectorIndex, ContainerError> {
    let entry = members::as_entry(entry, INDEXES)?;
    let text = members::string(entry, INDEXES, "path")?;
    let index = VectorIndex {
        path: policy_path::parse_names(text)
            .map_err(|_| invalid(format!("The Vector Indexing Policy has an invalid Path:{text}.")))?,
        kind: read_kind(members::string(entry, INDEXES, "type")?)?,
        quantizer: read_quantizer(entry)?,
        quantization_size_bytes: read_integer(entry, "quantizationByteSize")?,
        search_list_size: read_integer(entry, "indexingSearchListSize")?,
        shard_path: read_shard_path(entry)?,
    };
    check_options(&index)?;
    Ok(index)
}

fn read_kind(text: &str) -> Result<VectorIndexKind, ContainerError> {
    match text {
        "flat" => Ok(VectorIndexKind::Flat),
        "quantizedFlat" => Ok(VectorIndexKind::QuantizedFlat),
        "diskANN" => Ok(VectorIndexKind::DiskAnn),
        _ => Err(invalid(format!("The Vector Indexing Policy's Index Type::{text} is invalid."))),
    }
}

fn read_quantizer(entry: &Object) -> Result<Option<Quantizer>, ContainerError> {
    match members::optional_string(entry, INDEXES, "quantizerType")? {
        None => Ok(None),
        Some("product") => Ok(Some(Quantizer::Product)),
        Some("spherical") => Ok(Some(Quantizer::Spherical)),
        Some(_) => Err(wrong(&format!("{INDEXES}.quantizerType"), "'product' or 'spherical'")),
    }
}

fn read_integer(entry: &Object, name: &str) -> Result<Option<i64>, ContainerError> {
    let Some(value) = members::present(entry, name) else { return Ok(None) };
    value.as_i64().map(Some).ok_or_else(|| wrong(&format!("{INDEXES}.{name}"), "an integer"))
}

fn read_shard_path(entry: &Object) -> Result<Option<Path>, ContainerError> {
    let paths = members::array(entry, INDEXES, "vectorIndexShardKey")?;
    if paths.len() > SHARD_PATHS_MAX {
        return Err(invalid(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {} exceeds the maximum: {SHARD_PATHS_MAX}.",
            paths.len()
        )));
    }
    let Some(path) = paths.first() else { return Ok(None) };
    let text = path
        .as_str()
        .ok_or_else(|| wrong(&format!("{INDEXES}.vectorIndexShardKey"), "an array of strings"))?;
    let path = policy_path::parse_names(text)
        .map_err(|_| invalid(format!("The Vector Indexing Policy has an invalid Shard Path: {text}.")))?;
    Ok(Some(path))
}

/// Which options each kind of index allows.
fn check_options(index: &VectorIndex) -> Result<(), ContainerError> {
    let (kind, quantized) = match index.kind {
        VectorIndexKind::Flat => ("flat", false),
        VectorIndexKind::QuantizedFlat => ("quantizedFlat", true),
        VectorIndexKind::DiskAnn => ("diskANN", true),
    };
    let refused = [
        ("quantizerType", index.quantizer.is_some() && !quantized),
        ("quantizationByteSize", index.quantization_size_bytes.is_some() && !quantized),
        (
            "indexingSearchListSize",
            index.search_list_size.is_some() && index.kind != VectorIndexKind::DiskAnn,
        ),
        ("vectorIndexShardKey", index.shard_path.is_some() && !quantized),
    ];
    if let Some((option, _)) = refused.iter().find(|(_, refused)| *refused) {
        return Err(invalid(format!(
            "The Vector Indexing Policy parameter {option} is not supported for the Index Type::{kind}."
        )));
    }
    match index.search_list_size {
        Some(size) if !SEARCH_LIST_SIZE.contains(&size) => Err(out_of_range(
            "IndexingSearchListSize",
            size,
            *SEARCH_LIST_SIZE.start(),
            *SEARCH_LIST_SIZE.end(),
        )),
        _ => Ok(()),
    }
}

fn out_of_range(parameter: &str, value: i64, minimum: i64, maximum: i64) -> ContainerError {
    invalid(format!(
        "The Vector Indexing Policy parameter {parameter} value :: {value} is out of range. The allowed range is \
         between {minimum} and {maximum}."
    ))
}

/// Each index needs an embedding of its path, which sets limits for it.
pub(crate) fn check_indexes(
    indexes: &[VectorIndex],
    embeddings: &[VectorEmbedding],
) -> Result<(), ContainerError> {
    for index in indexes {
        let embedding =
            embeddings.iter().find(|embedding| embedding.path == index.path).ok_or_else(|| {
                invalid(format!(
                    "The Vector Indexing Policy's path::{} not matching in Embedding's path.",
                    index.path
                ))
            })?;
        if index.kind == VectorIndexKind::Flat && embedding.dimensions > FLAT_DIMENSIONS_MAX {
            return Err(too_many_dimensions(i64::from(embedding.dimensions), FLAT_DIMENSIONS_MAX));
        }
        let size_max = i64::from(embedding.dimensions.min(QUANTIZATION_BYTES_MAX));
        match index.quantization_size_bytes {
            Some(size) if !(1..=size_max).contains(&size) => {
                return Err(out_of_range("QuantizationByteSize", size, 1, size_max));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Existing embeddings stay unchanged; new ones may be added, and indexes may be removed.
pub(crate) fn check_replacement(
    (old_embeddings, old_indexes): (&[VectorEmbedding], &[VectorIndex]),
    (embeddings, indexes): (&[VectorEmbedding], &[VectorIndex]),
) -> Result<(), ContainerError> {
    if !old_embeddings.iter().all(|embedding| embeddings.contains(embedding)) {
        return Err(invalid("Paths in existing embedding policy cannot be modified in Collection Replace."));
    }
    let is_changed = |old: &VectorIndex| indexes.iter().any(|index| index.path == old.path && index != old);
    if old_indexes.iter().any(is_changed) {
        return Err(invalid(
            "Paths in existing vector indexing policy cannot be modified in Collection Replace.",
        ));
    }
    Ok(())
}
