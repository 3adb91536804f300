//! The definition of a materialised view: a container whose items are derived from those of another.

use quire_value::{Object, Value};

use crate::members::{self, invalid, wrong};

use super::ContainerError;

/// Names of the section. Clients that know both names send both.
pub const VIEW_MEMBERS: [&str; 2] = ["materializedViewDefinition", "globalSecondaryIndexDefinition"];
/// Names of the member with the source's name.
const SOURCE_NAMES: [&str; 2] = ["sourceCollectionId", "sourceContainerId"];
const SOURCE_RID: &str = "sourceCollectionRid";
/// Added by the server when the container is read.
const STATUS: &str = "status";

/// The source of a view. The text of the projection is checked by the query compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDefinition {
    /// By name, in the same database.
    pub source_id: Option<String>,
    /// As text. Added by the server; from then on it identifies the source.
    pub source_rid: Option<String>,
    /// `SELECT …`
    pub projection: String,
}

impl ViewDefinition {
    pub(crate) fn read(container: &Object) -> Result<Option<ViewDefinition>, ContainerError> {
        let mut given =
            VIEW_MEMBERS.iter().filter_map(|name| Some((*name, members::present(container, name)?)));
        let Some((member, section)) = given.next() else { return Ok(None) };
        let definition = ViewDefinition::read_section(member, section)?;
        match given.next() {
            Some((other, section)) if ViewDefinition::read_section(other, section)? != definition => {
                Err(invalid(format!("'{member}' and '{other}' say different things.")))
            }
            _ => Ok(Some(definition)),
        }
    }

    fn read_section(member: &str, section: &Value) -> Result<ViewDefinition, ContainerError> {
        let section = members::as_object(section, member)?;
        let mut source_id = None;
        for name in SOURCE_NAMES {
            let given = members::optional_string(section, member, name)?.map(str::to_owned);
            if source_id.is_some() && given.is_some() && source_id != given {
                return Err(invalid(format!("'{member}' names two different sources.")));
            }
            source_id = source_id.or(given);
        }
        let source_rid = members::optional_string(section, member, SOURCE_RID)?.map(str::to_owned);
        if source_id.is_none() && source_rid.is_none() {
            return Err(wrong(&format!("{member}.sourceCollectionId"), "the id of the source container"));
        }
        let projection = members::string(section, member, "definition")?.to_owned();
        Ok(ViewDefinition { source_id, source_rid, projection })
    }

    /// Fixed at creation, so omitting it in a replacement cannot mean that there is none.
    pub(crate) fn keep_view_definition(container: &Object, replacement: &mut Object) {
        if VIEW_MEMBERS.iter().any(|name| members::present(replacement, name).is_some()) {
            return;
        }
        for (name, section) in VIEW_MEMBERS.iter().filter_map(|name| Some((name, container.get(name)?))) {
            replacement.set(*name, section.clone());
        }
    }

    /// Written over what the client sent, so that unknown members stay.
    pub(crate) fn write_over(&self, given: &Value) -> Value {
        let mut section = given.as_object().cloned().unwrap_or_default();
        section.remove(STATUS);
        if let Some(rid) = &self.source_rid {
            section.set(SOURCE_RID, rid.as_str());
        }
        if let (Some(id), false) =
            (&self.source_id, SOURCE_NAMES.iter().any(|name| members::present(&section, name).is_some()))
        {
            section.set(SOURCE_NAMES[0], id.as_str());
        }
        section.into()
    }

    /// Whether a replacement changes nothing; omitted members stay.
    pub(crate) fn is_same(&self, replacement: &ViewDefinition) -> bool {
        let same = |old: &Option<String>, new: &Option<String>| new.is_none() || old == new;
        self.projection == replacement.projection
            && same(&self.source_id, &replacement.source_id)
            && same(&self.source_rid, &replacement.source_rid)
    }
}
