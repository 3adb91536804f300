//! Chains of links as a tree: chains that begin alike are followed once.

use crate::api::{EngineError, FollowRequest, FollowStep};
use crate::model::DatabaseModel;

/// One link to follow, and what to follow from the items it leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// As it was asked for, and as the answer names it.
    pub name: String,
    /// Its number in the model.
    pub link: usize,
    pub is_reversed: bool,
    pub then: Vec<Branch>,
}

/// The tree of a request over items of a container.
pub(crate) fn branches(
    request: &FollowRequest,
    model: Option<&DatabaseModel>,
    container: &str,
) -> Result<Vec<Branch>, EngineError> {
    let mut roots = Vec::new();
    for chain in &request.chains {
        add(&mut roots, chain, model, container)?;
    }
    Ok(roots)
}

fn add(
    branches: &mut Vec<Branch>,
    chain: &[FollowStep],
    model: Option<&DatabaseModel>,
    container: &str,
) -> Result<(), EngineError> {
    let Some((step, rest)) = chain.split_first() else { return Ok(()) };
    let unknown = || EngineError::UnknownLink { link: step.link.clone(), container: container.to_owned() };
    let model = model.ok_or_else(unknown)?;
    let link = model.rules.links.iter().position(|own| own.link.name == step.link).ok_or_else(unknown)?;
    let link_containers = &model.rules.links[link].link;
    let (from, to) = match step.is_reversed {
        false => (&link_containers.from.container, &link_containers.to.container),
        true => (&link_containers.to.container, &link_containers.from.container),
    };
    if from != container {
        return Err(unknown());
    }
    let is_same = |own: &Branch| own.link == link && own.is_reversed == step.is_reversed;
    let at = match branches.iter().position(is_same) {
        Some(at) => at,
        None => {
            let name = format!("{}{}", if step.is_reversed { "~" } else { "" }, step.link);
            branches.push(Branch { name, link, is_reversed: step.is_reversed, then: Vec::new() });
            branches.len() - 1
        }
    };
    add(&mut branches[at].then, rest, Some(model), to)
}
