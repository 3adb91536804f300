//! Windows and their pages: what clients' writes make of them, one sentence of the contract at a time.

use super::*;

pub const BLOG: &[(&str, &[&str])] = &[("posts", &["/id"]), ("pages", &["/postId"])];

/// A window over `/c` of posts that keeps 3, with pages of 10 and a count.
pub fn model(members: &str) -> String {
    format!(
        r#"{{"version":1,"windows":[{{"name":"w","container":"posts","path":"/c","keep":3,"count":"/n",{members}
        "pages":{{"container":"pages","path":"/all","parent":"/postId","number":"/page","size":10}}}}]}}"#
    )
}

pub fn blog(partitions: u32, members: &str) -> Bench {
    Bench::new(partitions, BLOG, &model(members))
}

pub const KEY: &str = r#""key":"/id","#;

/// Elements with these ids.
pub fn elements(ids: impl IntoIterator<Item = usize>) -> String {
    let elements: Vec<String> = ids.into_iter().map(|id| format!(r#"{{"id":{id}}}"#)).collect();
    format!("[{}]", elements.join(","))
}

pub fn post(id: &str, ids: impl IntoIterator<Item = usize>) -> String {
    format!(r#"{{"id":"{id}","c":{}}}"#, elements(ids))
}

pub const ADD: &str = r#"{"operations":[{"op":"add","path":"/c/-","value":{"id":ID}}]}"#;

impl Bench {
    pub fn add_element(&self, id: &str, element: usize) -> Value {
        let patch = ADD.replace("ID", &element.to_string());
        self.patch("posts", id, &format!("[{id:?}]"), &patch).unwrap()
    }

    /// `window | page | page … = count`, ids only.
    pub fn shown(&self, id: &str) -> String {
        let ids = |array: Option<&Value>| {
            let array = array.and_then(Value::as_array).unwrap_or_default();
            let id = |element: &Value| element.get("id").unwrap_or(element).to_json();
            array.iter().map(id).collect::<Vec<_>>().join(" ")
        };
        let items = self.items();
        let of = |name: &str, item: &(String, Value)| item.0 == name;
        let post = items.iter().find(|item| of("posts", item) && item.1.get("id") == Some(&id.into()));
        let mut pages: Vec<&Value> =
            items.iter().filter(|item| of("pages", item)).map(|(_, page)| page).collect();
        pages.retain(|page| page.get("postId") == Some(&id.into()));
        pages.sort_by_key(|page| page.get("page").and_then(Value::as_i64));
        let page = |page: &&Value| {
            let number = page.get("page").and_then(Value::as_i64).unwrap();
            assert_eq!(page.get("id"), Some(&format!("w:{id}:{number:08}").into()));
            format!("{number}: {}", ids(page.get("all")))
        };
        let pages: Vec<String> = pages.iter().map(page).collect();
        let Some((_, post)) = post else { return format!("none | {}", pages.join(" | ")) };
        let count = post.get("n").map_or("none".to_owned(), Value::to_json);
        format!("{} | {} = {count}", ids(post.get("c")), pages.join(" | "))
    }

    pub fn read_page(&self, post: &str, number: u32) -> Option<Value> {
        self.read("pages", &format!("w:{post}:{number:08}"), &format!("[{post:?}]"))
    }

    pub fn replace_page(&self, page: &Value) -> Result<Value, EngineError> {
        let id = page.get("id").and_then(Value::as_str).unwrap();
        self.replace("pages", id, &page.to_json())
    }
}

#[test]
fn the_newest_stay_and_the_oldest_go_to_pages() {
    for partitions in [1, 5] {
        let bench = blog(partitions, KEY);
        let made = bench.create("posts", &post("p", 1..6)).unwrap();
        assert_eq!(made.to_json(), r#"{"c":[{"id":3},{"id":4},{"id":5}],"id":"p","n":5}"#, "what was stored");
        assert_eq!(bench.shown("p"), "3 4 5 | 0: 1 2 = 5");
        (6..15).for_each(|id| _ = bench.add_element("p", id));
        assert_eq!(bench.shown("p"), "12 13 14 | 0: 1 2 3 4 5 6 7 8 9 10 | 1: 11 = 14");
        let expected = r#"{"all":[{"id":11}],"id":"w:p:00000001","page":1,"postId":"p"}"#;
        assert_eq!(bench.read_page("p", 1).unwrap().to_json(), expected);
        bench.upsert("posts", &post("p", 12..30)).unwrap();
        let pages = "0: 1 2 3 4 5 6 7 8 9 10 | 1: 11 12 13 14 15 16 17 18 19 20 | 2: 21 22 23 24 25 26";
        assert_eq!(bench.shown("p"), format!("27 28 29 | {pages} = 29"));
        bench.check("after all");
        bench.verify("after all");
    }
}

#[test]
fn elements_left_out_are_deleted_and_the_window_is_refilled() {
    let bench = blog(5, KEY);
    bench.create("posts", &post("p", 0..14)).unwrap();
    assert_eq!(bench.shown("p"), "11 12 13 | 0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 = 14");
    bench.replace("posts", "p", &post("p", [12])).unwrap();
    assert_eq!(bench.shown("p"), "9 10 12 | 0: 0 1 2 3 4 5 6 7 8 | 1:  = 12");
    bench.patch("posts", "p", r#"["p"]"#, r#"{"operations":[{"op":"remove","path":"/c/0"}]}"#).unwrap();
    assert_eq!(bench.shown("p"), "8 10 12 | 0: 0 1 2 3 4 5 6 7 | 1:  = 11");
    for _ in 0..3 {
        bench.upsert("posts", &post("p", [])).unwrap();
    }
    assert_eq!(bench.shown("p"), "0 1 | 1:  = 2", "an empty page goes, except the last");
    bench.check("after all");
    bench.upsert("posts", r#"{"id":"p","title":"t"}"#).unwrap();
    assert_eq!(bench.shown("p"), "0 1 | 1:  = 2", "an array that is left out stays");
}

#[test]
fn elements_change_stay_and_what_is_in_pages_is_not_new() {
    let bench = blog(1, KEY);
    bench.create("posts", &post("p", 0..30)).unwrap();
    bench.upsert("posts", &post("p", [15, 25, 27, 28, 29])).unwrap();
    let pages = "0: 0 1 2 3 4 5 6 7 8 9 | 1: 10 11 12 13 14 15 16 17 18 19 | 2: 20 21 22 23 24 25 26";
    assert_eq!(bench.shown("p"), format!("27 28 29 | {pages} = 30"));
    let changed = r#"{"id":"p","c":[{"id":29,"x":1},{"id":27}]}"#;
    bench.upsert("posts", changed).unwrap();
    let post = bench.get("posts", "p").unwrap();
    assert_eq!(post.get("c").unwrap().to_json(), r#"[{"id":26},{"id":27},{"id":29,"x":1}]"#);
    bench.check("after all");
}

#[test]
fn newest_first_slack_and_by() {
    let bench = blog(1, r#""key":"/id","newest":"first","slack":2,"#);
    bench.create("posts", &post("p", (0..5).rev())).unwrap();
    assert_eq!(bench.shown("p"), "4 3 2 1 0 |  = 5");
    bench.upsert("posts", &post("p", (0..6).rev())).unwrap();
    assert_eq!(bench.shown("p"), "5 4 3 | 0: 0 1 2 = 6");
    bench.check("newest first");
    let bench = blog(1, r#""key":"/id","by":"/at","#);
    let element = |(id, at): (usize, i64)| format!(r#"{{"id":{id},"at":{at}}}"#);
    let all = [(1, 5), (2, 1), (3, 3), (4, 4)].map(element).join(",");
    bench.create("posts", &format!(r#"{{"id":"p","c":[{all}]}}"#)).unwrap();
    assert_eq!(bench.shown("p"), "3 4 1 | 0: 2 = 4");
    bench.check("by");
}

#[test]
fn garbage_at_owned_paths_of_a_window_changes_nothing() {
    let bench = blog(5, KEY);
    bench.create("posts", &post("p", 0..5)).unwrap();
    for garbage in [r#""c":7"#, r#""c":null,"n":-1"#, r#""c":{"x":1}"#, r#""n":"many""#, r#""x":1"#] {
        bench.upsert("posts", &format!(r#"{{"id":"p",{garbage}}}"#)).unwrap();
        assert_eq!(bench.shown("p"), "2 3 4 | 0: 0 1 = 5", "{garbage}");
        bench.check(garbage);
    }
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":99},{"op":"remove","path":"/c"}]}"#;
    bench.patch("posts", "p", r#"["p"]"#, patch).unwrap();
    assert_eq!(bench.shown("p"), "2 3 4 | 0: 0 1 = 5");
    let bench = blog(1, r#""key":"/id","onWrite":"refuse","#);
    bench.create("posts", &post("p", 0..5)).unwrap();
    for (garbage, path) in [(r#""c":7"#, "/c"), (r#""n":6"#, "/n")] {
        let refused = refusal(bench.upsert("posts", &format!(r#"{{"id":"p",{garbage}}}"#)));
        assert_eq!(refused, format!("400/6103 PathOwned: {path} is maintained by 'w'."));
    }
    bench.upsert("posts", r#"{"id":"p","n":5}"#).unwrap();
    assert_eq!(bench.shown("p"), "2 3 4 | 0: 0 1 = 5");
}

#[test]
fn an_item_without_an_array_gets_none_and_a_count_may_be_blocked() {
    let bench = blog(1, KEY);
    let made = bench.create("posts", r#"{"id":"p"}"#).unwrap();
    assert_eq!(made.to_json(), r#"{"id":"p","n":0}"#);
    let bench = Bench::new(1, BLOG, &model(KEY).replace(r#""/n""#, r#""/stats/n""#));
    bench.create("posts", &post("p", 0..5)).unwrap();
    bench.upsert("posts", r#"{"id":"p","stats":7}"#).unwrap();
    bench.check("blocked");
    let page = bench.read_page("p", 0).unwrap();
    let smaller = page.to_json().replace(r#"{"id":0},"#, "");
    bench.replace_page(&json(&smaller)).unwrap();
    let made = bench.upsert("posts", r#"{"id":"p","stats":{}}"#).unwrap();
    assert_eq!(made.get("stats").unwrap().to_json(), r#"{"n":4}"#, "counted anew");
    bench.check("no longer blocked");
}

#[test]
fn clients_may_change_elements_of_pages_and_take_them_away() {
    for partitions in [1, 5] {
        let bench = blog(partitions, KEY);
        bench.create("posts", &post("p", 0..25)).unwrap();
        let page = bench.read_page("p", 1).unwrap();
        let changed =
            page.to_json().replace(r#"{"id":12},"#, "").replace(r#"{"id":14}"#, r#"{"id":14,"x":1}"#);
        bench.replace_page(&json(&changed)).unwrap();
        let (first, last) = ("0: 0 1 2 3 4 5 6 7 8 9", "2: 20 21");
        assert_eq!(
            bench.shown("p"),
            format!("22 23 24 | {first} | 1: 10 11 13 14 15 16 17 18 19 | {last} = 24")
        );
        let patch = r#"{"operations":[{"op":"remove","path":"/all/0"}]}"#;
        bench.patch("pages", "w:p:00000002", r#"["p"]"#, patch).unwrap();
        assert_eq!(bench.get("posts", "p").unwrap().get("n"), Some(&23.into()));
        // Emptied, it goes; the last stays.
        let emptied = r#"{"operations":[{"op":"set","path":"/all","value":[]}]}"#;
        let answer = bench.patch("pages", "w:p:00000001", r#"["p"]"#, emptied).unwrap();
        assert_eq!(answer.get("all"), Some(&Value::Array(Vec::new())));
        bench.patch("pages", "w:p:00000002", r#"["p"]"#, emptied).unwrap();
        assert_eq!(bench.shown("p"), format!("22 23 24 | {first} | 2:  = 13"));
        bench.check("after all");
        bench.verify("after all");
    }
}

#[test]
fn anything_else_of_a_page_is_refused() {
    let bench = blog(5, KEY);
    bench.create("posts", &post("p", 0..25)).unwrap();
    let before = bench.items();
    let page = bench.read_page("p", 1).unwrap().to_json();
    let expected = "403/6108 WindowPage: pages of 'w' are made and removed by the window.";
    for changed in [
        page.replace(r#"{"id":12},"#, r#"{"id":12},{"id":99},"#),
        page.replace(r#"{"id":10},{"id":11}"#, r#"{"id":11},{"id":10}"#),
        page.replace(r#""page":1"#, r#""page":7"#),
        page.replace(r#""page":1"#, r#""page":1,"x":1"#),
        page.replace("w:p:00000001", "x"),
    ] {
        let id = "w:p:00000001".to_owned();
        let write = request(WriteKind::Replace { id }, Some(r#"["p"]"#), &changed);
        assert_eq!(refusal(bench.write("pages", write).result.map(drop)), expected, "{changed}");
    }
    assert_eq!(refusal(bench.delete("pages", "w:p:00000001", r#"["p"]"#)), expected);
    let new = r#"{"id":"w:q:00000000","postId":"q","page":0,"all":[]}"#;
    assert_eq!(refusal(bench.create("pages", new)), expected);
    assert_eq!(refusal(bench.upsert("pages", new)), expected);
    let key = PartitionKey::from_header(r#"["p"]"#).unwrap();
    assert_eq!(
        refusal(bench.engine.delete_partition_key(&bench.container("pages", 0), key).result),
        expected
    );
    assert_eq!(bench.items(), before, "nothing of a refused write remains");
    // What is no page may be there.
    bench.create("pages", r#"{"id":"else","postId":"p"}"#).unwrap();
    bench.delete("pages", "else", r#"["p"]"#).unwrap();
    bench.check("after all");
}

#[test]
fn pages_go_with_their_item() {
    for partitions in [1, 5] {
        let bench = blog(partitions, KEY);
        bench.create("posts", &post("p", 0..300)).unwrap();
        bench.create("posts", &post("q", 0..30)).unwrap();
        bench.delete("posts", "p", r#"["p"]"#).unwrap();
        assert_eq!(bench.shown("p"), "none | ");
        bench.check("deleted");
        bench.create("posts", &post("p", 0..4)).unwrap();
        assert_eq!(bench.shown("p"), "1 2 3 | 0: 0 = 4", "and come anew");
        bench.check("created again");
        bench.verify("created again");
    }
}

#[test]
fn writes_are_refused_as_the_contract_says() {
    let bench = blog(1, KEY);
    let twice = refusal(bench.create("posts", &post("p", [1, 2, 1])));
    assert_eq!(
        twice,
        "400/0 WindowKeyTwice: two elements at /c have the key 1, by which 'w' tells them apart."
    );
    let long = "x".repeat(1_013);
    assert!(refusal(bench.create("posts", &post(&long, [1]))).starts_with("400/0 WindowIdTooLong"));
    bench.create("posts", &format!(r#"{{"id":"{long}"}}"#)).unwrap();
    let many = refusal(bench.create("posts", &post("p", 0..10_004)));
    let expected =
        "413/6104 MaintainedTooLarge: 'w' would make the item 'p' of 'posts' larger than 1,000 pages.";
    assert_eq!(many, expected);
    // A page may not be too large either.
    let text = "x".repeat(300_000);
    for id in 0..9 {
        let patch = format!(
            r#"{{"operations":[{{"op":"{}","path":"/c{}","value":{}{{"id":{id},"t":"{text}"}}{}}}]}}"#,
            if id == 0 { "set" } else { "add" },
            if id == 0 { "" } else { "/-" },
            if id == 0 { "[" } else { "" },
            if id == 0 { "]" } else { "" },
        );
        if id == 0 {
            bench.create("posts", r#"{"id":"p"}"#).unwrap();
        }
        bench.patch("posts", "p", r#"["p"]"#, &patch).unwrap();
    }
    let before = bench.items();
    let add = format!(r#"{{"operations":[{{"op":"add","path":"/c/-","value":{{"id":9,"t":"{text}"}}}}]}}"#);
    let large = refusal(bench.patch("posts", "p", r#"["p"]"#, &add));
    let expected =
        "413/6104 MaintainedTooLarge: 'w' would make the item 'w:p:00000000' of 'pages' larger than 2 MB.";
    assert_eq!(large, expected);
    assert_eq!(bench.items(), before, "nothing of a refused write remains");
}

#[test]
fn a_page_that_stays_is_not_written() {
    let bench = blog(1, KEY);
    bench.create("posts", &post("p", 0..14)).unwrap();
    let lsn = || bench.container("pages", 0).positions()[0].lsn;
    let before = lsn();
    bench.upsert("posts", r#"{"id":"p","title":"t"}"#).unwrap();
    bench.upsert("posts", &post("p", [11, 12, 13])).unwrap();
    assert_eq!(lsn(), before);
    bench.add_element("p", 14);
    assert_eq!(lsn(), before + 1);
    // Nor is the item whose page has other elements, but as many.
    let lsn = || bench.container("posts", 0).positions()[0].lsn;
    let before = lsn();
    let page = bench.read_page("p", 0).unwrap().to_json();
    bench.replace_page(&json(&page.replace(r#"{"id":4}"#, r#"{"id":4,"x":1}"#))).unwrap();
    assert_eq!(lsn(), before);
}

#[test]
fn a_page_is_charged_as_a_replace() {
    let bench = blog(1, KEY);
    let charge = |id: &str, ids: std::ops::Range<usize>| {
        let written = bench.write("posts", request(WriteKind::Create, None, &post(id, ids)));
        written.result.unwrap();
        written.charge
    };
    let (plain, paged, longer) = (charge("p", 1..4), charge("q", 0..4), charge("r", 10..22));
    // Four values of the page: its id, the item's, its number, and an element.
    let page = crate::api::charge::replace(100, 4);
    assert!((paged - plain - page).abs() < 0.02, "{paged} {plain} {page}");
    assert!(longer > paged, "more elements, more values");
}

#[test]
fn versions_of_pages_say_who_made_them() {
    let bench = blog(1, KEY);
    let definition = r#"{"id":"pages","partitionKey":{"paths":["/postId"],"kind":"Hash","version":2},
        "changeFeedPolicy":{"retentionDuration":60}}"#;
    bench
        .engine
        .catalog()
        .replace_container("d", "pages", &json(definition), &Precondition::default())
        .unwrap();
    let read = |start| {
        let page = PageRequest { item_count_max: Some(-1), ..PageRequest::default() };
        let mode = FeedMode::AllVersions;
        let request = ChangesRequest { mode, page, start, since: None, all_previous_images: false };
        bench.engine.read_changes(&bench.container("pages", 0), &request).result.unwrap()
    };
    let before = read(FeedStart::Now).etag;
    bench.create("posts", &post("p", 0..5)).unwrap();
    bench.add_element("p", 5);
    let page = bench.read_page("p", 0).unwrap();
    bench.replace_page(&page).unwrap();
    bench.delete("posts", "p", r#"["p"]"#).unwrap();
    let changes = read(FeedStart::After(before));
    let rows = text::parse(&changes.rows, Limits::default()).unwrap();
    let shown = |row: &Value| {
        let metadata = row.get("metadata").unwrap();
        let member = |name: &str| metadata.get(name).map_or(String::new(), Value::to_json);
        format!("{} {}", member("operationType"), member("maintainedBy"))
    };
    let found: Vec<String> = rows.as_array().unwrap().iter().map(shown).collect();
    assert_eq!(found, [r#""create" ["w"]"#, r#""replace" ["w"]"#, r#""replace" "#, r#""delete" "#]);
}

/// Until it is active, an item shows a client's array or the right one, and no write is refused.
#[test]
fn windows_while_they_are_built() {
    use crate::jobs::JobId;
    use crate::model::BuildPhase;
    let bench = blog(5, r#""key":"/id","onWrite":"refuse","#);
    let building = |phase| DeclarationState::Building { job: JobId(1), phase };
    bench.set_states(&building(BuildPhase::Index));
    bench
        .create("posts", r#"{"id":"p","c":[{"id":1},{"id":1},{"id":2},{"id":3},{"id":4}],"n":"x"}"#)
        .unwrap();
    let all: Vec<String> = (0..14).map(|id| format!(r#"{{"id":{}}}"#, 100 + id)).collect();
    let page = format!(r#"{{"id":"w:p:00000000","postId":"p","page":7,"all":[{}]}}"#, all.join(","));
    bench.create("pages", &page).unwrap();
    assert!(bench.get("posts", "p").unwrap().get("n").unwrap().as_str().is_some(), "a client's value");
    bench.set_states(&building(BuildPhase::Values));
    // What a client leaves out stays; its garbage is corrected.
    bench.upsert("posts", r#"{"id":"p","c":7,"n":1}"#).unwrap();
    let pages = "0: 100 101 102 103 104 105 106 107 108 109 | 1: 110 111 112 113 1 1";
    assert_eq!(bench.shown("p"), format!("2 3 4 | {pages} = 19"));
    bench.check("corrected");
    bench.set_states(&DeclarationState::Active);
    assert!(refusal(bench.upsert("posts", r#"{"id":"p","n":1}"#)).starts_with("400/6103"));
    bench.set_states(&DeclarationState::Failed { error: "no".to_owned(), examples: Vec::new() });
    bench.upsert("posts", r#"{"id":"p","n":1}"#).unwrap();
    bench.delete("pages", "w:p:00000000", r#"["p"]"#).unwrap();
}

/// A page that a client changes before its item was built: the item is made right with it.
#[test]
fn pages_that_change_while_their_window_is_built() {
    use crate::jobs::JobId;
    use crate::model::BuildPhase;
    let bench = blog(5, KEY);
    bench.set_states(&DeclarationState::Building { job: JobId(1), phase: BuildPhase::Index });
    bench.create("posts", &post("p", 20..25)).unwrap();
    let page = format!(r#"{{"id":"w:p:00000000","postId":"p","page":0,"all":{}}}"#, elements(0..8));
    bench.create("pages", &page).unwrap();
    bench.set_states(&DeclarationState::Building { job: JobId(1), phase: BuildPhase::Values });
    let take = r#"{"operations":[{"op":"remove","path":"/all/0"}]}"#;
    bench.patch("pages", "w:p:00000000", r#"["p"]"#, take).unwrap();
    assert_eq!(bench.shown("p"), "22 23 24 | 0: 1 2 3 4 5 6 7 20 21 = 12");
    bench.check("built");
}
