//! Properties of the order, the key encoding, the paths and the binary form, for arbitrary values.

#[allow(dead_code, reason = "each test file uses its part of the generators")]
#[path = "../../testkit/src/values.rs"]
mod values;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use proptest::prelude::*;
use quire_value::{Item, Number, Object, Path, Value, key};
use values::{any_number, any_object, any_path, any_value};

fn encode(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    key::encode(value, &mut key);
    key
}

fn encode_sort(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    key::encode_sort(value, &mut key);
    key
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The exact value in sixteenths of the smallest step of `any_number`, if it fits.
fn exact(number: Number) -> Option<i128> {
    match number {
        Number::Int(value) => Some(i128::from(value) << 4),
        Number::Unsigned(value) => Some(i128::from(value) << 4),
        Number::Double(value) => {
            let scaled = value * 16.0;
            (scaled.abs() < 1e36 && scaled.trunc() == scaled).then_some(scaled as i128)
        }
    }
}

fn reversed(object: &Object) -> Object {
    let mut members: Vec<_> = object.clone().into_iter().collect();
    members.reverse();
    members.into_iter().collect()
}

proptest! {
    #[test]
    fn numbers_are_ordered_by_exact_value(left in any_number(), right in any_number()) {
        prop_assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
        if let (Some(exact_left), Some(exact_right)) = (exact(left), exact(right)) {
            prop_assert_eq!(left.cmp(&right), exact_left.cmp(&exact_right));
        }
    }

    #[test]
    fn order_is_transitive(mut values in prop::collection::vec(any_value(), 3)) {
        values.sort();
        prop_assert!(values[0] <= values[1] && values[1] <= values[2] && values[0] <= values[2]);
    }

    #[test]
    fn equality_order_and_hash_agree(left in any_value(), right in any_value()) {
        prop_assert_eq!(left == right, left.cmp(&right).is_eq());
        if left == right {
            prop_assert_eq!(hash(&left), hash(&right));
        }
    }

    #[test]
    fn property_order_does_not_count(object in any_object()) {
        let (left, right) = (Value::Object(object.clone()), Value::Object(reversed(&object)));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(hash(&left), hash(&right));
        prop_assert_eq!(encode(&left), encode(&right));
    }

    #[test]
    fn keys_are_ordered_as_values(left in any_value(), right in any_value()) {
        let order = encode_sort(&left).cmp(&encode_sort(&right));
        prop_assert!(order == left.cmp(&right) || order.is_eq());
        if left.as_array().is_none() && left.as_object().is_none() {
            prop_assert_eq!(left.cmp(&right), encode(&left).cmp(&encode(&right)));
        }
    }

    #[test]
    fn number_keys_are_ordered_as_numbers(left in any_number(), right in any_number()) {
        prop_assert_eq!(left.cmp(&right), encode(&left.into()).cmp(&encode(&right.into())));
    }

    #[test]
    fn keys_decode_to_their_value(value in any_value(), rest in any::<[u8; 2]>()) {
        let bytes = [encode(&value), rest.to_vec()].concat();
        prop_assert_eq!(key::decode(&bytes), Ok((value, &rest[..])));
    }

    #[test]
    fn no_key_is_a_prefix_of_another(left in any_value(), right in any_value()) {
        let (left_key, right_key) = (encode(&left), encode(&right));
        prop_assert!(left == right || !right_key.starts_with(&left_key));
    }

    #[test]
    fn composite_keys_are_ordered_as_tuples(left in prop::collection::vec(any_value(), 2), right in prop::collection::vec(any_value(), 2)) {
        let composite = |values: &[Value]| values.iter().map(encode_sort).collect::<Vec<_>>().concat();
        let order = composite(&left).cmp(&composite(&right));
        prop_assert!(order == left.cmp(&right) || order.is_eq());
    }

    #[test]
    fn paths_survive_their_text(path in any_path()) {
        prop_assert_eq!(Path::parse(&path.to_string()), Ok(path));
    }

    #[test]
    fn items_hold_what_was_written(value in any_value()) {
        let item = Item::from_value(&value);
        let read = item.root().to_value();
        prop_assert_eq!(&read, &value);
        prop_assert_eq!(read.to_json(), value.to_json());
        prop_assert_eq!(Item::from_json(value.to_json().as_bytes(), Default::default()).unwrap().root().to_json(), value.to_json());
        prop_assert!(Item::from_bytes(item.as_bytes().to_vec()).is_ok());
    }

    #[test]
    fn items_find_every_member(object in any_object(), other in values::any_name()) {
        let item = Item::from_value(&object.clone().into());
        let names: Vec<&str> = item.root().members().map(|(name, _)| name).collect();
        prop_assert_eq!(names, object.names().collect::<Vec<_>>());
        for (name, value) in object.iter() {
            prop_assert_eq!(&item.root().get(name).unwrap().to_value(), value);
        }
        prop_assert_eq!(item.root().get(&other).is_some(), object.contains(&other));
    }

    #[test]
    fn dropped_properties_are_as_if_never_sent(object in any_object(), dropped in prop::collection::vec("[a-d]{1,2}", 0..4)) {
        let dropped: Vec<&str> = dropped.iter().map(String::as_str).collect();
        let json = Value::from(object.clone()).to_json();
        let item = Item::from_json_object_without(json.as_bytes(), Default::default(), &dropped).unwrap();
        let kept: Object = object.into_iter().filter(|(name, _)| !dropped.contains(&name.as_str())).collect();
        let kept = Item::from_json(Value::from(kept).to_json().as_bytes(), Default::default()).unwrap();
        prop_assert_eq!(item.as_bytes(), kept.as_bytes());
    }
}
