//! Paths of a profile: JSON pointers (`~0`, `~1`) with `*` for every element of an array, as text.

use quire_value::{Path, Segment};

/// A name as it is written in a pointer.
pub fn escaped(name: &str) -> String {
    match name.contains(['~', '/']) {
        true => name.replace('~', "~0").replace('/', "~1"),
        false => name.to_owned(),
    }
}

pub fn join(above: &str, name: &str) -> String {
    format!("{above}/{}", escaped(name))
}

/// Without the last segment.
pub fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..end])
}

/// The first segment, with its slash.
pub fn top_level(path: &str) -> &str {
    match path.get(1..).and_then(|rest| rest.find('/')) {
        Some(end) => &path[..=end],
        None => path,
    }
}

/// Whether `path` is `above` or below it.
pub fn covers(above: &str, path: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Segments, unescaped.
pub fn names(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
}

/// As an indexing policy names it.
pub fn policy_path(path: &str) -> Path {
    let segment = |name: String| if name == "*" { Segment::Elements } else { Segment::Name(name) };
    Path(names(path).into_iter().map(segment).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(join("/a", "b/c"), "/a/b~1c");
        assert_eq!(parent("/a/*/b"), "/a/*");
        assert_eq!(top_level("/a/*/b"), "/a");
        assert_eq!(top_level("/a"), "/a");
        assert!(covers("/a", "/a/*/b") && covers("/a", "/a") && covers("", "/a") && !covers("/a", "/ab"));
        assert_eq!(policy_path("/a/*/b").to_string(), "/a/[]/b");
    }
}
