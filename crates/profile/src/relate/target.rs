//! What is compared of a target: its scalars and its sets of texts, by path.

use std::collections::BTreeSet;

use quire_value::{Kind, Node};

use crate::path;
use crate::sketch::value_hash;

const SCALARS_MAX: usize = 60;
const DEPTH_MAX: usize = 3;

#[derive(Default)]
pub(super) struct TargetValues {
    pub scalars: Vec<Scalar>,
    /// Arrays of texts, or of objects with an id.
    pub sets: Vec<(String, BTreeSet<u64>)>,
}

pub(super) struct Scalar {
    pub path: String,
    pub hash: u64,
    pub number: Option<f64>,
}

impl TargetValues {
    pub fn of(item: Node<'_>) -> TargetValues {
        let mut values = TargetValues::default();
        values.object(item, "", 1);
        values
    }

    fn object(&mut self, object: Node<'_>, above: &str, depth: usize) {
        let members = object.members().filter(|(name, _)| !(above.is_empty() && name.starts_with('_')));
        for (name, value) in members {
            let own = path::join(above, name);
            match value.kind() {
                Kind::Object if depth < DEPTH_MAX => self.object(value, &own, depth + 1),
                Kind::Array => self.array(value, own),
                Kind::String | Kind::Number if self.scalars.len() < SCALARS_MAX => {
                    self.scalars.push(Scalar {
                        path: own,
                        hash: value_hash(value),
                        number: value.as_number().map(|number| number.as_f64()),
                    })
                }
                _ => {}
            }
        }
    }

    fn array(&mut self, array: Node<'_>, own: String) {
        let ids = array.elements().all(|element| element.kind() == Kind::Object) && !array.is_empty();
        let texts = |node: Node<'_>| (node.kind() == Kind::String).then(|| value_hash(node));
        let hashes: Vec<u64> = match ids {
            true => array.elements().filter_map(|element| texts(element.get("id")?)).collect(),
            false => array.elements().filter_map(texts).collect(),
        };
        if hashes.len() == array.len() {
            let path = if ids { format!("{own}/*/id") } else { own };
            self.sets.push((path, hashes.into_iter().collect()));
        }
    }
}
