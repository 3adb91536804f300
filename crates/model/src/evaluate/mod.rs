//! What the declarations of a model make of items: pure functions over items as they are stored.
//!
//! [`ModelRules`] is a model with its expressions compiled. A write of an item goes through it in this order: windows
//! ([`window`]), references ([`Reference`]), owned values ([`OwnedValue`]), and the differences that its references make to
//! rollups ([`RollupChange`]) and mirrors ([`MirrorChange`]) of targets.

mod copies; // fields beside references
mod item_error; // why a write is refused
mod mirror; // arrays of referrers
mod owned; // owned values put into an item, and an item without them
mod reference; // what an item refers to, and what it is referred to by
mod rollup; // counts, sums, extremes
pub mod window; // newest elements in the item, the others in pages

use std::collections::HashMap;

use quire_resource::PartitionKeyDefinition;
use quire_sql::{Expression, ExpressionError};

use crate::Pointer;
use crate::declare::{Copy, Link, Mirror, Model, OnWrite, Rollup, Window};
use crate::validate::{Database, OwnedKind, names_of, owned_paths};

pub use self::item_error::{ItemError, SizeLimit};
pub use self::mirror::{MirrorChange, ReferrerKey};
pub use self::owned::{ExpectedPathValue, OwnedValue, PutOutcome, put_owned_values};
pub use self::reference::{Reference, TargetKey, added_references};
pub use self::rollup::{RollupChange, RollupTotals};

/// A valid model, ready to be applied to items.
#[derive(Debug)]
pub struct ModelRules {
    pub model: Model,
    pub links: Vec<LinkRules>,
    pub copies: Vec<CopyRules>,
    pub mirrors: Vec<MirrorRules>,
    pub rollups: Vec<RollupRules>,
    pub windows: Vec<WindowRules>,
    owned: HashMap<String, Vec<OwnedPattern>>,
}

#[derive(Debug)]
pub struct LinkRules {
    pub link: Link,
    /// Of the target container.
    pub target_key: PartitionKeyDefinition,
}

#[derive(Debug)]
pub struct CopyRules {
    pub copy: Copy,
    /// Number of its link.
    pub link: usize,
    pub on_write: OnWrite,
    /// Whole paths in the referrer, with their expressions over `t`.
    fields: Vec<(Pointer, Expression)>,
}

#[derive(Debug)]
pub struct MirrorRules {
    pub mirror: Mirror,
    pub link: usize,
    pub on_write: OnWrite,
    value: Expression,
}

#[derive(Debug)]
pub struct RollupRules {
    pub rollup: Rollup,
    pub link: usize,
    pub on_write: OnWrite,
    value: Option<Expression>,
    filter: Option<Expression>,
}

#[derive(Clone, Debug)]
pub struct WindowRules {
    pub window: Window,
    pub on_write: OnWrite,
    /// Key paths of the pages' container that are not `parent`: pages have the item's values there.
    pub shared_keys: Vec<Pointer>,
}

/// A path that is owned in all items of a container, or beside the references of a link.
#[derive(Debug)]
struct OwnedPattern {
    path: Pointer,
    beside: Option<usize>,
}

/// A model that does not match its database: it is not the one that was checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the declaration '{declaration}' does not fit the database")]
pub struct ModelMismatch {
    pub declaration: String,
}

impl ModelRules {
    pub fn new(model: &Model, database: &Database<'_>) -> Result<ModelRules, ModelMismatch> {
        Ok(ModelRules {
            links: model.links.iter().map(|link| link_rules(link, database)).collect::<Result<_, _>>()?,
            copies: model.copies.iter().map(|copy| copy_rules(model, copy)).collect::<Result<_, _>>()?,
            mirrors: model
                .mirrors
                .iter()
                .map(|mirror| mirror_rules(model, mirror))
                .collect::<Result<_, _>>()?,
            rollups: model
                .rollups
                .iter()
                .map(|rollup| rollup_rules(model, rollup))
                .collect::<Result<_, _>>()?,
            windows: model
                .windows
                .iter()
                .map(|own| window_rules(model, own, database))
                .collect::<Result<_, _>>()?,
            owned: patterns(model),
            model: model.clone(),
        })
    }

    /// Links whose referrers are in a container.
    pub fn links_from(&self, container: &str) -> impl Iterator<Item = (usize, &LinkRules)> {
        self.links.iter().enumerate().filter(move |(_, rules)| rules.link.from.container == container)
    }

    /// Links whose targets are in a container.
    pub fn links_to(&self, container: &str) -> impl Iterator<Item = (usize, &LinkRules)> {
        self.links.iter().enumerate().filter(move |(_, rules)| rules.link.to.container == container)
    }

    pub fn windows_of(&self, container: &str) -> impl Iterator<Item = (usize, &WindowRules)> {
        self.windows.iter().enumerate().filter(move |(_, rules)| rules.window.container == container)
    }
}

fn mismatch(declaration: &str) -> ModelMismatch {
    ModelMismatch { declaration: declaration.to_owned() }
}

fn compiled(declaration: &str, text: &str, names: &[&str]) -> Result<Expression, ModelMismatch> {
    Expression::compile(text, names).map_err(|_: ExpressionError| mismatch(declaration))
}

fn link_number(model: &Model, declaration: &str, link: &str) -> Result<usize, ModelMismatch> {
    model.links.iter().position(|own| own.name == link).ok_or_else(|| mismatch(declaration))
}

fn link_rules(link: &Link, database: &Database<'_>) -> Result<LinkRules, ModelMismatch> {
    let target = database.containers.get(link.to.container.as_str()).ok_or_else(|| mismatch(&link.name))?;
    Ok(LinkRules { link: link.clone(), target_key: target.partition_key.clone() })
}

fn copy_rules(model: &Model, copy: &Copy) -> Result<CopyRules, ModelMismatch> {
    let link = link_number(model, &copy.name, &copy.link)?;
    let holder = model.links[link].holder();
    let fields = copy
        .fields
        .iter()
        .map(|field| Ok((holder.join(&field.path), compiled(&copy.name, &field.expression, &["t"])?)));
    let fields = fields.collect::<Result<_, _>>()?;
    Ok(CopyRules { link, on_write: copy.on_write.unwrap_or(model.on_write), fields, copy: copy.clone() })
}

fn mirror_rules(model: &Model, mirror: &Mirror) -> Result<MirrorRules, ModelMismatch> {
    Ok(MirrorRules {
        link: link_number(model, &mirror.name, &mirror.link)?,
        on_write: mirror.on_write.unwrap_or(model.on_write),
        value: compiled(&mirror.name, &mirror.value, &["r"])?,
        mirror: mirror.clone(),
    })
}

fn rollup_rules(model: &Model, rollup: &Rollup) -> Result<RollupRules, ModelMismatch> {
    let expression = |text: &Option<String>| {
        text.as_ref().map(|text| compiled(&rollup.name, text, names_of(rollup))).transpose()
    };
    Ok(RollupRules {
        link: link_number(model, &rollup.name, &rollup.link)?,
        on_write: rollup.on_write.unwrap_or(model.on_write),
        value: expression(&rollup.value)?,
        filter: expression(&rollup.filter)?,
        rollup: rollup.clone(),
    })
}

fn window_rules(
    model: &Model,
    window: &Window,
    database: &Database<'_>,
) -> Result<WindowRules, ModelMismatch> {
    let pages =
        database.containers.get(window.pages.container.as_str()).ok_or_else(|| mismatch(&window.name))?;
    let keys = pages.partition_key.paths.iter().map(Pointer::of_path);
    let shared_keys = keys.filter(|key| *key != window.pages.parent).collect();
    Ok(WindowRules {
        on_write: window.on_write.unwrap_or(model.on_write),
        window: window.clone(),
        shared_keys,
    })
}

fn patterns(model: &Model) -> HashMap<String, Vec<OwnedPattern>> {
    let mut patterns: HashMap<String, Vec<OwnedPattern>> = HashMap::new();
    for owned in owned_paths(model) {
        let link = owned.link.and_then(|link| model.links.iter().position(|own| own.name == link.name));
        let beside = link.filter(|_| owned.kind == OwnedKind::Copy);
        patterns
            .entry(owned.container.to_owned())
            .or_default()
            .push(OwnedPattern { path: owned.path, beside });
    }
    patterns
}
