//! Cases of the rules about arrays and sizes.

use crate::harness::Db;
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = arrays();
    cases.extend(large());
    cases
}

/// A text of words, different for each seed.
pub fn words(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 12] = [
        "river", "stone", "light", "paper", "garden", "window", "silver", "morning", "engine", "letter",
        "number", "harbour",
    ];
    let mut text = String::with_capacity(bytes + 10);
    let mut state = seed as u64 * 2_654_435_761 + 1;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// Numbers that look random and are the same each time.
pub fn varied_number(seed: usize, sides: usize) -> usize {
    let state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize % sides.max(1)
}

pub fn list(count: usize, element: impl Fn(usize) -> String) -> String {
    (0..count).map(element).collect::<Vec<_>>().join(",")
}

struct GrowingCase {
    container: &'static str,
    array: &'static str,
    items: usize,
    length: fn(usize) -> usize,
    element: fn(usize) -> String,
    /// Items with three versions, and how many of them grew.
    versioned: usize,
    growing: usize,
    shrinking: usize,
    writes: u32,
    /// Elements that a version adds.
    step: u64,
    reads: u32,
}

const POSTS: GrowingCase = GrowingCase {
    container: "posts",
    array: "comments",
    items: 210,
    length: |number| 105 + varied_number(number, 60),
    element: |number| {
        format!(r#"{{"id":"c{number}","by":"user{}","text":"{}"}}"#, number % 50, words(number, 40))
    },
    versioned: 60,
    growing: 50,
    shrinking: 0,
    writes: 400,
    step: 1,
    reads: 2_000,
};

fn grow(db: &mut Db, made: &GrowingCase) {
    let GrowingCase { container, array, .. } = made;
    db.container(container, "/id");
    for number in 0..made.items {
        let length = (made.length)(number);
        let elements = list(length, |place| (made.element)(number * 1_000 + place));
        db.add(
            container,
            format!(
                r#"{{"id":"{container}{number}","title":"{}","{array}":[{elements}]}}"#,
                words(number, 20)
            ),
        );
    }
    let path = format!("/{array}");
    for number in 0..made.versioned {
        let id = format!("{container}{number}");
        let length = (made.length)(number) as u64;
        for version in 0..3u64 {
            match number {
                number if number < made.growing => {
                    db.resize(container, &id, &path, length + version, length + version + made.step)
                }
                number if number < made.growing + made.shrinking => {
                    db.resize(
                        container,
                        &id,
                        &path,
                        length,
                        if version == 1 { length / 2 } else { length + 1 },
                    );
                }
                _ => db.change(container, &id, &["/title"], 1),
            }
        }
    }
    db.change(container, &format!("{container}0"), &[&path], made.writes);
    db.traffic(container, made.reads);
}

fn arrays() -> Vec<Case> {
    vec![
        fires("blog: comments inside posts", &[("unbounded-array", "posts", "/comments")], |db| {
            grow(db, &POSTS)
        }),
        fires("chat: messages inside rooms", &[("unbounded-array", "rooms", "/messages")], |db| {
            let element = |number: usize| {
                format!(r#"{{"id":"m{number}","sent":{number},"body":"{}"}}"#, words(number, 60))
            };
            grow(db, &GrowingCase { container: "rooms", array: "messages", element, growing: 40, ..POSTS });
        }),
        fires(
            "claims: documents near the item limit",
            &[("unbounded-array", "claims", "/documents")],
            |db| {
                let element =
                    |number: usize| format!(r#"{{"name":"d{number}","text":"{}"}}"#, words(number, 3_900));
                let length = |number: usize| 3 + varied_number(number, 30);
                grow(
                    db,
                    &GrowingCase {
                        container: "claims",
                        array: "documents",
                        length,
                        element,
                        step: 3,
                        ..POSTS
                    },
                );
            },
        ),
        clean("recipes: many steps, never more", &["unbounded-array", "history-in-item"], |db| {
            grow(db, &GrowingCase { container: "recipes", array: "steps", growing: 0, writes: 30, ..POSTS });
        }),
        clean("leader boards: capped at 150", &["unbounded-array"], |db| {
            let length = |number: usize| {
                if varied_number(number, 3) == 0 { 150 } else { 60 + varied_number(number, 60) }
            };
            grow(db, &GrowingCase { container: "boards", array: "entries", length, ..POSTS });
        }),
        clean("games: short lists of scores that grow", &["unbounded-array"], |db| {
            let element = |number: usize| varied_number(number, 1_000).to_string();
            grow(db, &GrowingCase { container: "players", array: "scores", element, ..POSTS });
        }),
        clean(
            "people: a few addresses, one more now and then",
            &["unbounded-array", "growing-references"],
            |db| {
                let length = |number: usize| 1 + varied_number(number, 4) + varied_number(number + 7, 3);
                grow(
                    db,
                    &GrowingCase { container: "people", array: "addresses", length, writes: 20, ..POSTS },
                );
            },
        ),
        clean("carts: seasonal, they fill and empty", &["unbounded-array"], |db| {
            grow(db, &GrowingCase { container: "carts", array: "lines", growing: 8, shrinking: 52, ..POSTS });
        }),
        clean("blog: only a dozen posts were written to", &["unbounded-array"], |db| {
            grow(db, &GrowingCase { versioned: 12, growing: 12, ..POSTS });
        }),
        clean("blog: comments grow, but hardly anyone writes or reads", &["unbounded-array"], |db| {
            grow(
                db,
                &GrowingCase {
                    writes: 1,
                    items: 220,
                    versioned: 25,
                    growing: 6,
                    length: |number| 100 + varied_number(number, 10),
                    ..POSTS
                },
            );
            db.query("posts", "SELECT TOP 20 c.id, c.title FROM c WHERE c.title > 'a'", 200, 20, 9_000);
        }),
        clean("blog: a test database with 80 posts", &["unbounded-array"], |db| {
            grow(db, &GrowingCase { items: 80, ..POSTS });
        }),
        clean("blog: a declared window", &["unbounded-array"], |db| {
            grow(db, &POSTS);
            db.container("posts-pages", "/postId");
            db.model = crate::harness::json(
                r#"{"version":1,"windows":[{"name":"recent","container":"posts","path":"/comments","keep":3,"key":"/id",
                "pages":{"container":"posts-pages","path":"/comments","parent":"/postId","number":"/page","size":100}}]}"#,
            );
        }),
        // History.
        fires("wiki: revisions inside pages", &[("history-in-item", "pages", "/revisions")], |db| {
            let element = |number: usize| {
                format!(
                    r#"{{"at":"2026-01-{:02}T10:00:00Z","body":"{}"}}"#,
                    1 + number % 28,
                    words(number, 120)
                )
            };
            let length = |number: usize| 60 + varied_number(number, 70);
            grow(db, &GrowingCase { container: "pages", array: "revisions", element, length, ..POSTS });
        }),
        fires(
            "contracts: earlier states of the item",
            &[("history-in-item", "contracts", "/earlier")],
            |db| {
                db.container("contracts", "/id");
                let state = |number: usize| {
                    format!(
                        r#""customer":"k{}","price":{},"status":"s{}","note":"{}""#,
                        number % 97,
                        number % 500,
                        number % 5,
                        words(number, 80)
                    )
                };
                for number in 0..300 {
                    let earlier = list(55 + varied_number(number, 40), |place| {
                        format!("{{{}}}", state(number * 100 + place))
                    });
                    db.add(
                        "contracts",
                        format!(r#"{{"id":"contracts{number}",{},"earlier":[{earlier}]}}"#, state(number)),
                    );
                }
                for number in 0..40 {
                    for version in 0..3 {
                        db.resize(
                            "contracts",
                            &format!("contracts{number}"),
                            "/earlier",
                            50 + version,
                            51 + version,
                        );
                    }
                }
                db.change("contracts", "contracts0", &["/earlier", "/price"], 500);
                db.traffic("contracts", 2_000);
            },
        ),
        clean("orders: a short history of states", &["history-in-item"], |db| {
            let element = |number: usize| {
                format!(
                    r#"{{"at":"2026-01-{:02}T10:00:00Z","body":"{}"}}"#,
                    1 + number % 28,
                    words(number, 900)
                )
            };
            let length = |number: usize| 2 + varied_number(number, 40);
            grow(
                db,
                &GrowingCase {
                    container: "orders",
                    array: "history",
                    element,
                    length,
                    writes: 1,
                    reads: 60_000,
                    ..POSTS
                },
            );
        }),
        clean("documents: versions capped at fifty", &["history-in-item"], |db| {
            let element = |number: usize| {
                format!(
                    r#"{{"at":"2026-01-{:02}T10:00:00Z","body":"{}"}}"#,
                    1 + number % 28,
                    words(number, 90)
                )
            };
            let length = |number: usize| {
                if varied_number(number, 4) == 0 { 50 } else { 20 + varied_number(number, 30) }
            };
            grow(db, &GrowingCase { container: "documents", array: "versions", element, length, ..POSTS });
        }),
        clean("teams: seventy members each, and slowly more", &["history-in-item"], |db| {
            let element = |number: usize| {
                format!(r#"{{"member":"m{}","role":"r{}"}}"#, varied_number(number, 90_000), number % 7)
            };
            let length = |number: usize| 55 + varied_number(number, 20);
            grow(db, &GrowingCase { container: "teams", array: "members", element, length, ..POSTS });
        }),
    ]
}

struct Fixed {
    container: &'static str,
    items: usize,
    length: fn(usize) -> usize,
    element_bytes: usize,
    /// Writes inside elements, and others.
    inside: u32,
    others: u32,
    policy: &'static str,
}

const PLANS: Fixed = Fixed {
    container: "plans",
    items: 210,
    length: |number| if varied_number(number, 9) == 0 { 1_010 + varied_number(number, 30) } else { 40 },
    element_bytes: 12,
    inside: 300,
    others: 90,
    policy: r#"{"includedPaths":[{"path":"/*"}]}"#,
};

fn fixed(db: &mut Db, made: &Fixed) {
    let name = made.container;
    db.define(&format!(
        r#"{{"id":"{name}","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}},"indexingPolicy":{}}}"#,
        made.policy
    ));
    for number in 0..made.items {
        let elements = list((made.length)(number), |place| {
            format!(r#"{{"s":"{}"}}"#, words(number + place, made.element_bytes))
        });
        db.add(
            name,
            format!(r#"{{"id":"{name}{number}","title":"{}","cells":[{elements}]}}"#, words(number, 20)),
        );
    }
    db.change(name, &format!("{name}1"), &["/cells/*/s"], made.inside);
    db.change(name, &format!("{name}2"), &["/title"], made.others);
    db.traffic(name, 2_000);
}

fn large() -> Vec<Case> {
    const UNINDEXED: &str = r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/cells/*"}]}"#;
    vec![
        fires(
            "seating plans: a thousand seats, booked one by one",
            &[("large-array", "plans", "/cells")],
            |db| fixed(db, &PLANS),
        ),
        fires(
            "timetables: indexed cells that nobody changes",
            &[("large-array", "tables", "/cells")],
            |db| {
                fixed(db, &Fixed { container: "tables", inside: 0, others: 0, ..PLANS });
                db.change("tables", "tables1", &["/cells", "/title"], 600);
            },
        ),
        clean("maps: a thousand cells, written sixty times", &["large-array"], |db| {
            fixed(db, &Fixed { container: "maps", inside: 0, others: 60, ..PLANS });
        }),
        clean("atlas: a thousand cells without an index", &["large-array"], |db| {
            fixed(db, &Fixed { container: "atlas", inside: 0, others: 0, policy: UNINDEXED, ..PLANS });
            db.change("atlas", "atlas1", &["/cells", "/title"], 600);
        }),
        clean("sheets: a hundred cells, changed often", &["large-array"], |db| {
            fixed(
                db,
                &Fixed { container: "sheets", length: |number| 90 + varied_number(number, 20), ..PLANS },
            );
        }),
        clean("feeds: a thousand entries that grow to a cap", &["large-array"], |db| {
            let length = |number: usize| {
                if varied_number(number, 9) == 0 { 1_200 } else { 60 + varied_number(number, 20) }
            };
            fixed(db, &Fixed { container: "feeds", length, ..PLANS });
            for number in 0..40 {
                for version in 0..3 {
                    db.resize("feeds", &format!("feeds{number}"), "/cells", 1_000 + version, 1_001 + version);
                }
            }
        }),
        // Large items.
        fires("reports: long texts, read often", &[("large-items", "reports", "")], |db| {
            texts(db, "reports", 130_000, 4_000)
        }),
        fires("scans: recognised pages of text", &[("large-items", "scans", "")], |db| {
            texts(db, "scans", 160_000, 3_000)
        }),
        clean("articles: 40 KB each", &["large-items"], |db| texts(db, "articles", 40_000, 4_000)),
        clean("archive: large, but nearly never read", &["large-items"], |db| {
            texts(db, "archive", 130_000, 150);
            db.query("archive", "SELECT TOP 10 c.id FROM c WHERE c.kind = 'a'", 10, 10, 9_000);
        }),
        // Outliers.
        fires(
            "social: a few accounts with thousands of followers",
            &[("outliers", "accounts", "/followers")],
            |db| {
                outliers(db, "accounts", "followers", |number| {
                    if number % 80 == 0 { 1_500 } else { 4 + varied_number(number, 8) }
                });
            },
        ),
        fires("shop: bestsellers with thousands of reviews", &[("outliers", "products", "/reviews")], |db| {
            outliers(db, "products", "reviews", |number| {
                if number % 70 == 3 { 1_200 } else { 3 + varied_number(number, 6) }
            });
        }),
        clean("library: at most 245 copies of a book", &["outliers"], |db| {
            outliers(db, "books", "copies", |number| {
                if number % 67 == 0 { 245 } else { 1 + varied_number(number, 3) }
            });
        }),
        clean("courses: small, large and very large", &["outliers"], |db| {
            outliers(db, "courses", "students", |number| match number {
                number if number % 80 == 0 => 1_500,
                number if number % 9 == 0 => 40,
                number => 3 + varied_number(number, 4),
            });
        }),
        clean("guilds: seventeen times as many members, and longer names", &["outliers"], |db| {
            outliers(db, "guilds", "members", |number| {
                if number % 80 == 0 { 701 } else { 40 + varied_number(number, 4) }
            });
        }),
        clean("tickets: one tester with many entries", &["outliers"], |db| {
            outliers(
                db,
                "tickets",
                "entries",
                |number| if number == 5 { 400 } else { 3 + varied_number(number, 4) },
            );
        }),
        clean("tags: long lists of short words inside large items", &["outliers"], |db| {
            db.container("photos", "/id");
            for number in 0..400 {
                let tags = list(if number % 80 == 0 { 300 } else { 5 + varied_number(number, 9) }, |tag| {
                    format!(r#""t{}""#, tag % 90)
                });
                db.add(
                    "photos",
                    format!(
                        r#"{{"id":"photos{number}","caption":"{}","tags":[{tags}]}}"#,
                        words(number, 3_000)
                    ),
                );
            }
            db.traffic("photos", 2_000);
        }),
        clean("social: outliers that keep growing are another matter", &["outliers"], |db| {
            outliers(db, "accounts", "followers", |number| {
                if number % 80 == 0 { 1_500 } else { 4 + varied_number(number, 8) }
            });
            for number in 0..30 {
                for version in 0..3 {
                    db.resize(
                        "accounts",
                        &format!("accounts{number}"),
                        "/followers",
                        version + 3,
                        version + 4,
                    );
                }
            }
            db.query("accounts", "SELECT TOP 5 c.id FROM c WHERE c.t = 'a'", 5, 5, 200_000);
        }),
    ]
}

fn texts(db: &mut Db, name: &str, bytes: usize, reads: u32) {
    db.container(name, "/id");
    for number in 0..205 {
        let text = words(number, bytes + varied_number(number, bytes / 5));
        db.add(name, format!(r#"{{"id":"{name}{number}","kind":"k{}","text":"{text}"}}"#, number % 9));
    }
    db.traffic(name, reads);
    db.change(name, &format!("{name}0"), &["/text", "/kind"], reads / 20 + 1);
    db.query(name, "SELECT TOP 10 c.id FROM c WHERE c.kind = 'a'", 10, 10, 1_000);
}

fn outliers(db: &mut Db, name: &str, array: &str, length: fn(usize) -> usize) {
    db.container(name, "/id");
    for number in 0..400 {
        // Long names in the largest guilds.
        let who = |place: usize| match length(number) {
            701 => words(place, 300),
            _ => format!("u{}", varied_number(number + place, 9_999)),
        };
        let elements = list(length(number), |place| format!(r#"{{"n":{place},"who":"{}"}}"#, who(place)));
        db.add(name, format!(r#"{{"id":"{name}{number}","t":"{}","{array}":[{elements}]}}"#, number % 9));
    }
    db.traffic(name, 2_000);
}
