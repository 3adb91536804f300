//! Paths of containers by their segments. A model can have tens of thousands of paths; the index finds those that touch a path
//! without comparing it with every other one.

use std::collections::BTreeMap;

use crate::pointer::{Pointer, Segment, as_index};

#[derive(Default)]
pub(super) struct PathIndex<'m> {
    containers: BTreeMap<&'m str, PathNode>,
}

#[derive(Default)]
struct PathNode {
    /// Numbers of the paths that end here.
    here: Vec<usize>,
    names: BTreeMap<String, PathNode>,
    each: Option<Box<PathNode>>,
}

impl<'m> PathIndex<'m> {
    pub fn insert(&mut self, container: &'m str, path: &Pointer, number: usize) {
        let mut node = self.containers.entry(container).or_default();
        for segment in &path.0 {
            node = match segment {
                Segment::Name(name) => node.names.entry(name.clone()).or_default(),
                Segment::Each => node.each.get_or_insert_default(),
            };
        }
        node.here.push(number);
    }

    /// The number of a path that touches this one and is `wanted`.
    pub fn find(&self, container: &str, path: &Pointer, wanted: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.containers.get(container)?.find(&path.0, wanted)
    }
}

impl PathNode {
    fn find(&self, path: &[Segment], wanted: &dyn Fn(usize) -> bool) -> Option<usize> {
        let here = self.here.iter().copied().find(|number| wanted(*number));
        here.or_else(|| match path.split_first() {
            None => self.children().find_map(|node| node.find(&[], wanted)),
            Some((Segment::Name(name), rest)) => {
                let each = self.each.as_deref().filter(|_| as_index(name).is_some());
                self.names.get(name).into_iter().chain(each).find_map(|node| node.find(rest, wanted))
            }
            Some((Segment::Each, rest)) => {
                let indexes = self.names.iter().filter(|(name, _)| as_index(name).is_some());
                let children = indexes.map(|(_, node)| node).chain(self.each.as_deref());
                children.into_iter().find_map(|node| node.find(rest, wanted))
            }
        })
    }

    fn children(&self) -> impl Iterator<Item = &PathNode> {
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

    /// As many paths as fit a model. Those that do not touch a path cost nothing.
    #[test]
    fn only_paths_that_touch_are_looked_at() {
        let paths: Vec<Pointer> = (0..19_000)
            .map(|number| Pointer(vec![Segment::Name("a".to_owned()), Segment::Name(format!("f{number}"))]))
            .collect();
        let (mut index, compared) = (PathIndex::default(), std::cell::Cell::new(0));
        for (number, path) in paths.iter().enumerate() {
            let wanted = |_| {
                compared.set(compared.get() + 1);
                true
            };
            assert_eq!(index.find("c", path, &wanted), None);
            index.insert("c", path, number);
        }
        assert_eq!(compared.get(), 0);
        assert_eq!(index.find("c", &paths[7], &|_| true), Some(7));
    }

    proptest! {
        #[test]
        fn finds_overlapping_paths(paths in prop::collection::vec(any_pointer(), 0..12), wanted in any_pointer()) {
            let mut index = PathIndex::default();
            for (number, path) in paths.iter().enumerate() {
                index.insert("c", path, number);
            }
            for (number, path) in paths.iter().enumerate() {
                let found = index.find("c", &wanted, &|found| found == number);
                prop_assert_eq!(found.is_some(), path.touches(&wanted));
            }
            prop_assert_eq!(index.find("other", &wanted, &|_| true), None);
        }
    }
}
