//! Windows and their pages, one sentence of the contract at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::library::{container, parse, rules};
use quire_model::window::{Page, PageChange, StoredPages};
use quire_model::{ItemError, ModelRules};
use quire_value::Value;

/// An item and its pages in memory.
struct Post {
    rules: ModelRules,
    item: Option<Value>,
    pages: Pages,
}

#[derive(Default)]
struct Pages {
    pages: BTreeMap<u32, Vec<Value>>,
    read: RefCell<Vec<u32>>,
}

impl StoredPages for Pages {
    type Error = ItemError;
    fn newest_below(&self, number: Option<u32>) -> Result<Option<Page>, ItemError> {
        let found = self.pages.range(..number.unwrap_or(u32::MAX)).next_back();
        let page = found.map(|(number, elements)| Page { number: *number, elements: elements.clone() });
        self.read.borrow_mut().extend(page.as_ref().map(|page| page.number));
        Ok(page)
    }
}

impl Post {
    fn new(members: &str) -> Post {
        let model = format!(
            r#"{{"version":1,"windows":[{{"name":"w","container":"posts","path":"/c","keep":3,"count":"/n",{members}
            "pages":{{"container":"pages","path":"/all","parent":"/post","number":"/page","size":10}}}}]}}"#
        );
        let containers = [container("posts", &["/id"]), container("pages", &["/post"])];
        Post { rules: rules(&model, &containers), item: None, pages: Pages::default() }
    }

    /// Writes the item with this body.
    fn write(&mut self, body: &str) -> Result<(), ItemError> {
        let window = &self.rules.windows[0];
        let mut body = parse(body);
        self.pages.read.borrow_mut().clear();
        let write = window.write("p", self.item.as_ref(), &body, &self.pages)?;
        let count =
            self.item.as_ref().and_then(|item| window.stored_count(item)).unwrap_or(0) + write.count_change;
        window.place(&mut body, self.item.as_ref(), &write.array, count)?;
        for page in write.written {
            self.pages.pages.insert(page.number, page.elements);
        }
        for number in write.removed {
            self.pages.pages.remove(&number).expect("a page that is there");
        }
        self.item = Some(body);
        Ok(())
    }

    /// Writes an array of elements: ids, or whole elements.
    fn send(&mut self, elements: &[&str]) {
        self.try_send(elements).expect("accepted");
    }

    fn try_send(&mut self, elements: &[&str]) -> Result<(), ItemError> {
        let elements: Vec<String> = elements.iter().map(|element| whole(element)).collect();
        self.write(&format!(r#"{{"id":"p","c":[{}]}}"#, elements.join(",")))
    }

    /// Adds one element as a patch does.
    fn add(&mut self, element: &str) {
        let mut body = self.item.clone().unwrap_or_else(|| parse(r#"{"id":"p","c":[]}"#));
        let first = self.rules.windows[0].window.newest == quire_model::NewestAt::First;
        if let Some(Value::Array(elements)) = body.as_object_mut().and_then(|object| object.get_mut("c")) {
            elements.insert(if first { 0 } else { elements.len() }, parse(&whole(element)));
        }
        self.write(&body.to_json()).expect("accepted");
    }

    fn add_all(&mut self, ids: std::ops::Range<usize>) {
        ids.for_each(|id| self.add(&id.to_string()));
    }

    /// `window | page | page … = count`, ids only.
    fn shown(&self) -> String {
        let ids = |elements: &[Value]| {
            let id = |element: &Value| match element.get("id") {
                Some(id) => id.as_str().unwrap_or("?").to_owned(),
                None => element.to_json(),
            };
            elements.iter().map(id).collect::<Vec<_>>().join(" ")
        };
        let item = self.item.as_ref().expect("an item");
        let window = self.rules.windows[0].array(item).map_or("none".to_owned(), |array| ids(&array));
        let pages: Vec<String> = self
            .pages
            .pages
            .iter()
            .map(|(number, elements)| format!("{number}: {}", ids(elements)))
            .collect();
        let count = item.get("n").map_or("none".to_owned(), Value::to_json);
        format!("{window} | {} = {count}", pages.join(" | "))
    }
}

fn whole(element: &str) -> String {
    if element.starts_with(['{', '"', '[']) { element.to_owned() } else { format!(r#"{{"id":"{element}"}}"#) }
}

const KEY: &str = r#""key":"/id","#;

#[test]
fn the_newest_stay_and_the_oldest_go_to_pages() {
    let mut post = Post::new(KEY);
    post.send(&["1", "2", "3"]);
    assert_eq!(post.shown(), "1 2 3 |  = 3");
    post.add("4");
    assert_eq!(post.shown(), "2 3 4 | 0: 1 = 4");
    post.add_all(5..15);
    assert_eq!(post.shown(), "12 13 14 | 0: 1 2 3 4 5 6 7 8 9 10 | 1: 11 = 14");
}

#[test]
fn many_at_once_fill_pages() {
    let mut post = Post::new(KEY);
    let ids: Vec<String> = (0..25).map(|id| id.to_string()).collect();
    post.send(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        post.shown(),
        "22 23 24 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 = 25"
    );
}

#[test]
fn newest_first() {
    let mut post = Post::new(r#""key":"/id","newest":"first","#);
    post.send(&["3", "2", "1"]);
    post.add("4");
    assert_eq!(post.shown(), "4 3 2 | 0: 1 = 4");
    post.send(&["6", "5", "4", "2"]);
    assert_eq!(post.shown(), "6 5 4 | 0: 1 2 = 5");
}

#[test]
fn slack_moves_several_at_once() {
    let mut post = Post::new(r#""key":"/id","slack":2,"#);
    post.add_all(1..6);
    assert_eq!(post.shown(), "1 2 3 4 5 |  = 5");
    post.add("6");
    assert_eq!(post.shown(), "4 5 6 | 0: 1 2 3 = 6");
}

#[test]
fn elements_change_stay_and_go() {
    let mut post = Post::new(KEY);
    post.send(&["1", "2", "3"]);
    post.send(&[r#"{"id":"3","x":1}"#, "1"]);
    assert_eq!(post.shown(), "1 3 |  = 2");
    assert_eq!(
        post.item.as_ref().expect("an item").to_json(),
        r#"{"id":"p","c":[{"id":"1"},{"id":"3","x":1}],"n":2}"#
    );
}

#[test]
fn without_a_key_values_are_matched_each_once() {
    let mut post = Post::new("");
    post.send(&[r#""a""#, r#""a""#, r#""b""#]);
    post.send(&[r#""a""#, r#""b""#, r#""c""#]);
    assert_eq!(post.shown(), r#""a" "b" "c" |  = 3"#);
    post.send(&[r#""a""#, r#""b""#, r#""c""#, r#""c""#]);
    assert_eq!(post.shown(), r#""b" "c" "c" | 0: "a" = 4"#);
}

#[test]
fn what_is_in_the_two_newest_pages_is_not_new() {
    let mut post = Post::new(KEY);
    post.add_all(0..30);
    assert_eq!(
        post.shown(),
        "27 28 29 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 22 23 24 25 26 = 30"
    );
    post.send(&["15", "25", "27", "28", "29"]);
    assert_eq!(
        post.shown(),
        "27 28 29 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 22 23 24 25 26 = 30"
    );
    assert_eq!(*post.pages.read.borrow(), [2, 1]);
    // Older pages are not examined.
    post.send(&["27", "28", "29", "5"]);
    assert_eq!(
        post.shown(),
        "28 29 5 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 22 23 24 25 26 27 = 31"
    );
}

#[test]
fn no_page_is_read_for_a_write_that_changes_nothing() {
    let mut post = Post::new(KEY);
    post.add_all(0..30);
    post.send(&["27", "28", "29"]);
    assert_eq!(*post.pages.read.borrow(), [0; 0]);
}

#[test]
fn two_elements_with_one_key_are_refused() {
    let error = Post::new(KEY).try_send(&["1", "2", "1"]).expect_err("twice");
    assert_eq!(error.status(), (400, 0));
    assert_eq!(
        error.to_string(),
        "WindowKeyTwice: two elements at /c have the key \"1\", by which 'w' tells them apart."
    );
}

#[test]
fn below_keep_it_is_refilled_from_the_newest_page() {
    let mut post = Post::new(KEY);
    post.add_all(0..14);
    assert_eq!(post.shown(), "11 12 13 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 = 14");
    post.send(&["12"]);
    // The last page stays, empty; behind it the one before gives.
    assert_eq!(post.shown(), "9 10 12 | 0: 0 1 2 3 4 5 6 7 8 | 1:  = 12");
    post.add("x");
    assert_eq!(post.shown(), "10 12 x | 0: 0 1 2 3 4 5 6 7 8 | 1: 9 = 13");
    post.send(&[]);
    assert_eq!(post.shown(), "7 8 9 | 0: 0 1 2 3 4 5 6 | 1:  = 10");
    for _ in 0..3 {
        post.send(&[]);
    }
    assert_eq!(post.shown(), "0 | 1:  = 1");
    post.send(&[]);
    assert_eq!(post.shown(), " | 1:  = 0");
    post.add("y");
    assert_eq!(post.shown(), "y | 1:  = 1");
}

#[test]
fn by_keeps_the_greatest() {
    let mut post = Post::new(r#""key":"/id","by":"/at","#);
    let element = |id: &str, at: i64| format!(r#"{{"id":"{id}","at":{at}}}"#);
    for (id, at) in [("a", 5), ("b", 1), ("c", 3), ("d", 4)] {
        post.add(&element(id, at));
    }
    assert_eq!(post.shown(), "c d a | 0: b = 4");
    post.add(&element("e", 0));
    assert_eq!(post.shown(), "c d a | 0: b e = 5");
    // Changing the value moves it; the greatest of the page comes back.
    post.send(&[&element("c", 9), &element("d", 4)]);
    assert_eq!(post.shown(), "b d c | 0: e = 4");
}

#[test]
fn an_array_that_is_left_out_stays() {
    let mut post = Post::new(KEY);
    post.add_all(0..5);
    post.write(r#"{"id":"p","title":"t"}"#).expect("accepted");
    assert_eq!(post.shown(), "2 3 4 | 0: 0 1 = 5");
}

#[test]
fn garbage_changes_nothing() {
    let mut post = Post::new(KEY);
    post.add_all(0..5);
    for garbage in [r#""c":7"#, r#""c":null,"n":-1"#, r#""c":{"x":1}"#, r#""n":"many""#] {
        post.write(&format!(r#"{{"id":"p",{garbage}}}"#)).expect("corrected");
        assert_eq!(post.shown(), "2 3 4 | 0: 0 1 = 5", "{garbage}");
    }
    let mut post = Post::new(r#""key":"/id","onWrite":"refuse","#);
    post.add_all(0..5);
    for (garbage, path) in [(r#""c":7"#, "/c"), (r#""n":6"#, "/n")] {
        let error = post.write(&format!(r#"{{"id":"p",{garbage}}}"#)).expect_err("refused");
        assert_eq!(error.to_string(), format!("PathOwned: {path} is maintained by 'w'."));
    }
    post.write(r#"{"id":"p","n":5}"#).expect("the right value");
}

#[test]
fn an_item_without_the_array_counts_none() {
    let mut post = Post::new(KEY);
    post.write(r#"{"id":"p"}"#).expect("accepted");
    assert_eq!(post.shown(), "none |  = 0");
}

#[test]
fn ids_of_pages_are_not_too_long() {
    let post = Post::new(KEY);
    let window = &post.rules.windows[0];
    let write =
        |length: usize, body: &str| window.write(&"x".repeat(length), None, &parse(body), &post.pages);
    write(1_012, r#"{"c":[1]}"#).expect("1,023 bytes");
    let error = write(1_013, r#"{"c":[1]}"#).expect_err("1,024 bytes");
    assert_eq!(error.status(), (400, 0));
    write(1_013, "{}").expect("no element, no page");
}

#[test]
fn one_write_makes_a_thousand_pages_at_most() {
    let mut post = Post::new("");
    let body = |count: usize| format!(r#"{{"id":"p","c":[{}]}}"#, vec!["1"; count].join(","));
    let error = post.write(&body(10_004)).expect_err("1,001 pages");
    assert_eq!(error.status(), (413, 6104));
    assert_eq!(
        error.to_string(),
        "MaintainedTooLarge: 'w' would make the item 'p' of 'posts' larger than 1,000 pages."
    );
    post.write(&body(10_003)).expect("1,000 pages");
    assert_eq!(post.pages.pages.len(), 1_000);
    // A page that was there already is not made.
    let mut post = Post::new("");
    post.write(&body(4)).expect("one page with one element");
    post.write(&body(10_012)).expect("nine elements more in it, and 1,000 pages");
    assert_eq!(post.pages.pages.len(), 1_001);
}

#[test]
fn pages_as_items() {
    let containers = [container("posts", &["/tenant", "/id"]), container("pages", &["/tenant", "/post"])];
    let rules = rules(
        r#"{"version":1,"windows":[{"name":"w","container":"posts","path":"/c","keep":3,
        "pages":{"container":"pages","path":"/all","parent":"/post","number":"/page","size":10}}]}"#,
        &containers,
    );
    let window = &rules.windows[0];
    let page = Page { number: 7, elements: vec![1.into()] };
    let item = parse(r#"{"id":"p:1","tenant":"t","x":1}"#);
    assert_eq!(
        window.page_item(&item, "p:1", &page).to_json(),
        r#"{"id":"w:p:1:00000007","tenant":"t","post":"p:1","page":7,"all":[1]}"#
    );
    assert_eq!(window.parse_page_id("w:p:1:00000007"), Some(("p:1", 7)));
    for other in ["w:p:1:7", "v:p:00000007", "w:00000007", "w::00000007", "wp:00000007", "w:p:0000000x"] {
        assert_eq!(window.parse_page_id(other), None, "{other}");
    }
}

#[test]
fn what_a_client_may_do_to_a_page() {
    let keyed = Post::new(KEY);
    let window = &keyed.rules.windows[0];
    let page =
        |elements: &str| parse(&format!(r#"{{"id":"w:p:00000000","post":"p","page":0,"all":{elements}}}"#));
    let stored = page(r#"[{"id":"1"},{"id":"2"},{"id":"3"}]"#);
    let allowed = |body: Value| window.check_page(&stored, &body).ok();
    let change = |taken, is_empty| Some(PageChange { taken, is_empty });
    assert_eq!(allowed(stored.clone()), change(0, false));
    assert_eq!(allowed(page(r#"[{"id":"1","x":1},{"id":"3"}]"#)), change(1, false));
    assert_eq!(allowed(page("[]")), change(3, true));
    for refused in [
        page(r#"[{"id":"1"},{"id":"4"}]"#),
        page(r#"[{"id":"2"},{"id":"1"}]"#),
        page(r#"[{"id":"1"},{"id":"1"}]"#),
        page("7"),
        parse(r#"{"id":"w:p:00000000","post":"p","page":0}"#),
        parse(r#"{"id":"w:p:00000000","post":"p","page":1,"all":[]}"#),
        parse(r#"{"id":"w:p:00000000","post":"q","page":0,"all":[]}"#),
        parse(r#"{"id":"w:p:00000000","post":"p","page":0,"all":[],"more":1}"#),
    ] {
        let error = window.check_page(&stored, &refused).expect_err("refused");
        assert_eq!(error.status(), (403, 6108));
        assert_eq!(error.to_string(), "WindowPage: pages of 'w' are made and removed by the window.");
    }
    let plain = Post::new("");
    let window = &plain.rules.windows[0];
    window.check_page(&page("[1,2]"), &page("[3]")).expect("a change and a removal");
    window.check_page(&page("[1,2]"), &page("[1,2,3]")).expect_err("one more");
}
