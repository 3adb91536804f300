//! What rows call targets and referrers.
//!
//! A target is the first 16 bytes of SHA-256 of the ordered key encoding of its key's value, followed by the partition key as
//! items have it where the link says one (`PartitionKey::encode`). Nobody finds two of them with one hash; whoever reads an item
//! behind a row compares nevertheless.
//!
//! The order of a referrer is that of mirrors: the ordered key encoding of its id, then of every component of its partition key,
//! cut after [`REFERRER_BYTES_MAX`] bytes. Where two orders agree up to the cut, the rid decides.

use quire_model::{LinkRules, Reference, TargetKey};
use quire_resource::{Component, PartitionKey};
use quire_value::{Number, key};
use ring::digest;

use crate::store::keys::REFERRER_BYTES_MAX;

/// What the rows of a target are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetHash(pub [u8; 16]);

impl TargetHash {
    pub fn of(target: &TargetKey) -> TargetHash {
        let mut encoded = Vec::new();
        key::encode_string(&target.value, &mut encoded);
        if let Some(partition_key) = &target.partition_key {
            partition_key.encode(&mut encoded);
        }
        let hash = digest::digest(&digest::SHA256, &encoded);
        TargetHash(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

pub(crate) fn referrer_order(id: &str, partition_key: &PartitionKey) -> Vec<u8> {
    let mut order = Vec::with_capacity(id.len() + 16);
    key::encode_string(id, &mut order);
    for component in &partition_key.0 {
        encode_component(component, &mut order);
    }
    order.truncate(REFERRER_BYTES_MAX);
    order
}

/// The place of a referrer among those of a target.
pub(crate) fn referrer_place(id: &str, partition_key: &PartitionKey, rid: u64) -> Vec<u8> {
    let mut place = referrer_order(id, partition_key);
    place.extend(rid.to_be_bytes());
    place
}

/// Rows of a link's index for an item, without container, index and rid: one for each target, sorted.
pub(crate) fn link_rows(references: &[Reference], order: &[u8]) -> Vec<Vec<u8>> {
    let row = |reference: &Reference| [&TargetHash::of(&reference.target).0, order].concat();
    let mut rows: Vec<Vec<u8>> = references.iter().map(row).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Whether an item really refers to a target.
pub(super) fn refers_to(link: &LinkRules, item: quire_value::Node<'_>, target: &TargetKey) -> bool {
    let references = link.references(item).unwrap_or_default();
    references.iter().any(|reference| reference.target == *target)
}

fn encode_component(component: &Component, order: &mut Vec<u8>) {
    match component {
        Component::Undefined => order.push(key::UNDEFINED),
        Component::Null => order.push(key::NULL),
        Component::Bool(value) => key::encode_bool(*value, order),
        Component::Number(value) => key::encode_number(Number::Double(*value), order),
        Component::String(text) => key::encode_string(text, order),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quire_model::ReferrerKey;

    use super::*;

    fn key(components: &[Component]) -> PartitionKey {
        PartitionKey(components.to_vec())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// On disk: a change here is a new format.
    #[test]
    fn golden_bytes() {
        let text = |text: &str| Component::String(text.to_owned());
        let hash = |value: &str, partition_key: Option<PartitionKey>| {
            hex(&TargetHash::of(&TargetKey { value: value.to_owned(), partition_key }).0)
        };
        assert_eq!(hash("a1", None), "a9d313eadd7c9647ef54e9747c4add64");
        assert_eq!(hash("a1", Some(key(&[text("a1")]))), "ad5e328a25fe51a7bf3d04f09c72e1e1");
        let order =
            referrer_order("b\u{0}", &key(&[text("p"), Component::Number(1.0), Component::Undefined]));
        assert_eq!(hex(&order), "406200ff0001 40700001 30bff0000000000000 0000 05".replace(' ', ""));
        let place = referrer_place("b", &key(&[Component::Null, Component::Bool(true)]), 5);
        assert_eq!(hex(&place), "40620001 10 21 0000000000000005".replace(' ', ""));
    }

    #[test]
    fn one_row_for_each_target() {
        let reference = |value: &str, at| Reference {
            positions: vec![at],
            target: TargetKey { value: value.to_owned(), partition_key: None },
        };
        let references = [reference("b", 0), reference("a", 1), reference("b", 2)];
        let rows = link_rows(&references, b"order");
        assert_eq!(rows.len(), 2);
        assert!(rows.is_sorted() && rows.iter().all(|row| row.ends_with(b"order") && row.len() == 21));
    }

    fn component() -> impl Strategy<Value = Component> {
        prop_oneof![
            Just(Component::Undefined),
            Just(Component::Null),
            any::<bool>().prop_map(Component::Bool),
            (-3i32..3).prop_map(|number| Component::Number(f64::from(number) / 2.0)),
            "[a-c\u{0}]{0,3}".prop_map(Component::String),
        ]
    }

    proptest! {
        /// What is kept has the order that mirrors show.
        #[test]
        fn orders_compare_as_referrers_do(
            a in ("[a-c\u{0}é]{1,3}", prop::collection::vec(component(), 2)),
            b in ("[a-c\u{0}é]{1,3}", prop::collection::vec(component(), 2)),
        ) {
            let order = |(id, key): &(String, Vec<Component>)| referrer_order(id, &PartitionKey(key.clone()));
            let (left, right) = (order(&a), order(&b));
            let key = |(id, key): (String, Vec<Component>)| ReferrerKey { id, partition_key: PartitionKey(key) };
            prop_assert_eq!(left.cmp(&right), key(a).cmp(&key(b)));
        }
    }
}
