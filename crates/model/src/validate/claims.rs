//! Paths of containers by their segments: what touches a path is found without comparing all paths with all others, of which
//! a model can have tens of thousands.

use std::collections::BTreeMap;

use crate::pointer::{Pointer, Segment, as_index};

#[derive(Default)]
pub(super) struct Claims<'m> {
    containers: BTreeMap<&'m str, Branch>,
}

#[derive(Default)]
struct Branch {
    /// Numbers of the paths that end here.
    here: Vec<usize>,
    names: BTreeMap<String, Branch>,
    each: Option<Box<Branch>>,
}

impl<'m> Claims<'m> {
    pub fn insert(&mut self, container: &'m str, path: &Pointer, number: usize) {
        let mut branch = self.containers.entry(container).or_default();
        for segment in &path.0 {
            branch = match segment {
                Segment::Name(name) => branch.names.entry(name.clone()).or_default(),
                Segment::Each => branch.each.get_or_insert_default(),
            };
        }
        branch.here.push(number);
    }

    /// A path that touches this one, among those wanted.
    pub fn find(&self, container: &str, path: &Pointer, wanted: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.containers.get(container)?.find(&path.0, wanted)
    }
}

impl Branch {
    fn find(&self, path: &[Segment], wanted: &dyn Fn(usize) -> bool) -> Option<usize> {
        let here = self.here.iter().copied().find(|number| wanted(*number));
        here.or_else(|| match path.split_first() {
            None => self.branches().find_map(|branch| branch.find(&[], wanted)),
            Some((Segment::Name(name), rest)) => {
                let each = self.each.as_deref().filter(|_| as_index(name).is_some());
                self.names.get(name).into_iter().chain(each).find_map(|branch| branch.find(rest, wanted))
            }
            Some((Segment::Each, rest)) => {
                let indexes = self.names.iter().filter(|(name, _)| as_index(name).is_some());
                let branches = indexes.map(|(_, branch)| branch).chain(self.each.as_deref());
                branches.into_iter().find_map(|branch| branch.find(rest, wanted))
            }
        })
    }

    fn branches(&self) -> impl Iterator<Item = &Branch> {
        self.names.values().chain(self.each.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_pointer() -> impl Strategy<Value = Pointer> {
        let segment = prop::sample::select(vec!["a", "b", "0", "1", "*"]).prop_map(|name| match name {
            "*" => Segment::Each,
            name => Segment::Name(name.to_owned()),
        });
        prop::collection::vec(segment, 1..5).prop_map(Pointer)
    }

    proptest! {
        #[test]
        fn finds_what_touches(paths in prop::collection::vec(any_pointer(), 0..12), wanted in any_pointer()) {
            let mut claims = Claims::default();
            for (number, path) in paths.iter().enumerate() {
                claims.insert("c", path, number);
            }
            for (number, path) in paths.iter().enumerate() {
                let found = claims.find("c", &wanted, &|found| found == number);
                prop_assert_eq!(found.is_some(), path.touches(&wanted));
            }
            prop_assert_eq!(claims.find("other", &wanted, &|_| true), None);
        }
    }
}
