//! An item, with the items that it refers to or that refer to it: what must hold in every snapshot.

use super::{ExpectedValue, ModelOracle, text};
use crate::interpreter::Json;

impl ModelOracle {
    /// The containers of a link: of referrers and of targets.
    pub fn ends(&self, link: &str) -> (String, String) {
        let link = self.link(link);
        let container = |end: &str| link.get(end).map_or("", |end| text(end, "container")).to_owned();
        (container("from"), container("to"))
    }

    /// Whether an item may have several references by a link.
    pub fn has_many(&self, link: &str) -> bool {
        self.link(link).get("from").is_some_and(|from| text(from, "path").contains('*'))
    }

    /// What is wrong with the copies of a referrer, given the targets of its references.
    pub fn referrer_problems(&self, link: &str, item: &Json, targets: &[Json]) -> Vec<String> {
        let (from, to) = self.ends(link);
        let items: Vec<(String, Json)> = targets.iter().map(|target| (to.clone(), target.clone())).collect();
        let mut expected = Vec::new();
        for copy in self.list("copies").iter().filter(|own| text(own, "link") == link && self.is_checked(own))
        {
            self.expect_copy_on(copy, (&from, item), &items, &mut expected);
        }
        expected.iter().filter_map(ExpectedValue::problem).collect()
    }

    /// References of an item by which none of these targets is named, as [`ModelOracle::references_of`](super::ModelOracle::references_of) names them.
    pub fn missing_targets(&self, link: &str, item: &Json, targets: &[Json]) -> Vec<String> {
        let (own, (from, _)) = (self.link(link), self.ends(link));
        let references = self.references(own, item).into_iter();
        let missing =
            references.filter(|found| !targets.iter().any(|target| self.is_named(own, found, target)));
        missing.map(|found| self.reference_name(own, (&from, item), &found)).collect()
    }

    /// What is wrong with the mirrors and rollups of a target, given its referrers.
    pub fn target_problems(&self, link: &str, item: &Json, referrers: &[Json]) -> Vec<String> {
        let (from, to) = self.ends(link);
        let items: Vec<(String, Json)> = referrers.iter().map(|own| (from.clone(), own.clone())).collect();
        let is_own = |own: &&Json| text(own, "link") == link && self.is_checked(own);
        let mirrors = self.list("mirrors").iter().filter(is_own);
        let mirrors = mirrors.map(|own| self.expect_on_target(own, (&to, item), &items, ModelOracle::mirror));
        let rollups = self.list("rollups").iter().filter(is_own);
        let rollups = rollups.map(|own| self.expect_on_target(own, (&to, item), &items, ModelOracle::rollup));
        mirrors.chain(rollups).filter_map(|expected| expected.problem()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::parse_json;

    const MODEL: &str = r#"{"version":1,"links":[{"name":"l","from":{"container":"books","path":"/authors/*/id"},
        "to":{"container":"authors"}}],"copies":[{"name":"c","link":"l","fields":{"name":"t.name"}}],
        "rollups":[{"name":"n","link":"l","op":"count","into":"/n"}],"mirrors":[{"name":"m","link":"l","into":"/m"}]}"#;

    fn oracle() -> ModelOracle {
        ModelOracle::new(MODEL, &[("books", &["/id"]), ("authors", &["/id"])])
    }

    fn json(text: &str) -> Json {
        parse_json(text).expect("JSON")
    }

    #[test]
    fn a_referrer_agrees_with_its_targets() {
        let (oracle, ann) = (oracle(), json(r#"{"id":"a1","name":"Ann"}"#));
        let book = json(r#"{"id":"b","authors":[{"id":"a1","name":"Ann"},{"id":"a2"}]}"#);
        assert_eq!(oracle.referrer_problems("l", &book, std::slice::from_ref(&ann)), [""; 0]);
        let missing = |targets: &[Json]| oracle.missing_targets("l", &book, targets);
        let items = [("books".to_owned(), book.clone()), ("authors".to_owned(), ann.clone())];
        let named = oracle.references_of(&items, &["l"]);
        assert_eq!((named[0].1, named[1].1), (true, false));
        assert_eq!(missing(std::slice::from_ref(&ann)), [named[1].0.clone()]);
        let old = json(r#"{"id":"a1","name":"Old"}"#);
        let problems = oracle.referrer_problems("l", &book, &[old]);
        assert_eq!(problems, [r#"c: /authors/0/name of books b is "Ann" and must be "Old""#]);
        assert_eq!(missing(&[]), [named[0].0.clone(), named[1].0.clone()]);
    }

    #[test]
    fn a_target_agrees_with_its_referrers() {
        let oracle = oracle();
        let author = json(r#"{"id":"a1","n":1,"m":["b"]}"#);
        let book = json(r#"{"id":"b","authors":[{"id":"a1"}]}"#);
        assert_eq!(oracle.target_problems("l", &author, &[book]), [""; 0]);
        let problems = oracle.target_problems("l", &author, &[]);
        assert_eq!(
            problems,
            [r#"m: /m of authors a1 is ["b"] and must be []"#, "n: /n of authors a1 is 1 and must be 0"]
        );
    }
}
