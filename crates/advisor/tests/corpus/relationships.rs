//! Cases of the rules about relationships.

use crate::harness::{Db, json};
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = embed();
    cases.extend(copies());
    cases.extend(references());
    cases
}

/// Users, each with a profile: read together or not.
struct Pair {
    together: usize,
    alone: usize,
    shared: bool,
    writes: u32,
    bytes: usize,
    expires: bool,
}

const PAIR: Pair = Pair { together: 400, alone: 5, shared: false, writes: 10, bytes: 300, expires: false };

fn users(db: &mut Db, made: &Pair) {
    db.container("users", "/id");
    let ttl = if made.expires { r#","defaultTtl":86400"# } else { "" };
    db.define(&format!(
        r#"{{"id":"profiles","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}{ttl}}}"#
    ));
    for number in 0..300 {
        let profile = if made.shared { number % 60 } else { number };
        db.add(
            "users",
            format!(r#"{{"id":"u{number}","name":"{}","profileId":"pr{profile}"}}"#, words(number, 12)),
        );
        db.add("profiles", format!(r#"{{"id":"pr{number}","about":"{}"}}"#, words(number, made.bytes)));
    }
    db.actions(made.together, |db, number| {
        let number = number % 300;
        let profile = if made.shared { number % 60 } else { number };
        db.read("users", &format!("u{number}"));
        db.read("profiles", &format!("pr{profile}"));
    });
    db.actions(made.alone, |db, number| db.read("profiles", &format!("pr{number}")));
    db.change("profiles", "pr1", &["/about"], made.writes);
    db.change("users", "u1", &["/name"], 60);
    db.reads("users", "u0", 600);
    db.reads("profiles", "pr0", 1_000);
}

/// Orders and their lines, read by a query after the order.
fn lines(db: &mut Db, per_order: usize, together: usize) {
    db.container("orders", "/id");
    db.container("lines", "/orderId");
    for number in 0..220 {
        db.add("orders", format!(r#"{{"id":"o{number}","customer":"{}"}}"#, words(number, 12)));
        for line in 0..1 + varied_number(number, per_order) {
            db.add(
                "lines",
                format!(
                    r#"{{"id":"l{number}-{line}","orderId":"o{number}","article":"a{}","count":{line}}}"#,
                    number % 17
                ),
            );
        }
    }
    db.actions(together, |db, number| {
        let number = number % 220;
        let order = format!("o{number}");
        db.read("orders", &order);
        let ids: Vec<String> =
            (0..1 + varied_number(number, per_order)).map(|line| format!("l{number}-{line}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let sql = format!("SELECT * FROM c WHERE c.orderId = '{order}'");
        db.query_with("lines", &sql, ids.len() as u64, ids.len() as u64, 1, true, &ids);
    });
    db.create("orders", "o1");
    db.creates("lines", "l1-0", 800);
    db.creates("orders", "o2", 800);
}

fn embed() -> Vec<Case> {
    vec![
        fires(
            "users: the profile is always read after the user",
            &[("embed-together", "users", "/profileId")],
            |db| users(db, &PAIR),
        ),
        fires(
            "orders: lines are always read after the order",
            &[("embed-together", "lines", "/orderId")],
            |db| lines(db, 8, 500),
        ),
        clean("users: profiles are read by themselves, too", &["embed-together"], |db| {
            users(db, &Pair { alone: 300, ..PAIR })
        }),
        clean("users: profiles are shared", &["embed-together"], |db| {
            users(db, &Pair { shared: true, ..PAIR })
        }),
        clean("users: profiles are written all the time", &["embed-together"], |db| {
            users(db, &Pair { writes: 900, ..PAIR })
        }),
        clean("users: sessions that expire", &["embed-together"], |db| {
            users(db, &Pair { expires: true, ..PAIR })
        }),
        Case {
            name: "users: profiles of 110 KB",
            similar_to: &["embed-together"],
            expect: &[("large-items", "profiles", "")],
            build: |db| users(db, &Pair { bytes: 110_000, ..PAIR }),
        },
        clean("users: the profile is read in half of the actions", &["embed-together"], |db| {
            users(db, &PAIR);
            db.actions(400, |db, number| db.read("users", &format!("u{}", number % 300)));
        }),
        clean("orders: up to sixty lines", &["embed-together"], |db| lines(db, 60, 500)),
        clean("users: profiles keep growing", &["embed-together"], |db| {
            db.container("users", "/id");
            db.container("profiles", "/id");
            for number in 0..300 {
                let posts =
                    list(2 + varied_number(number, 6), |post| format!(r#"{{"t":"{}"}}"#, words(post, 20)));
                db.add(
                    "users",
                    format!(
                        r#"{{"id":"u{number}","name":"{}","profileId":"pr{number}"}}"#,
                        words(number, 12)
                    ),
                );
                db.add("profiles", format!(r#"{{"id":"pr{number}","posts":[{posts}]}}"#));
            }
            for number in 0..25 {
                for version in 0..2 {
                    db.resize("profiles", &format!("pr{number}"), "/posts", 2 + version, 3 + version);
                }
            }
            db.actions(600, |db, number| {
                db.read("users", &format!("u{}", number % 300));
                db.read("profiles", &format!("pr{}", number % 300));
            });
            db.change("users", "u1", &["/name"], 60);
            db.reads("users", "u0", 600);
            db.reads("profiles", "pr0", 500);
        }),
    ]
}

struct Portfolios {
    stocks: usize,
    portfolios: usize,
    changes: u32,
    others: u32,
    reads: u32,
}

const PORTFOLIOS: Portfolios =
    Portfolios { stocks: 60, portfolios: 300, changes: 900, others: 300, reads: 200 };

fn portfolios(db: &mut Db, made: &Portfolios) {
    db.container("portfolios", "/id");
    for number in 0..made.portfolios {
        let holdings = list(4, |place| {
            let stock = varied_number(number * 5 + place, made.stocks);
            format!(
                r#"{{"count":{place},"stock":{{"symbol":"S{stock}","open":{},"high":{},"low":{}}}}}"#,
                stock * 3,
                stock * 4,
                stock * 2
            )
        });
        db.add(
            "portfolios",
            format!(r#"{{"id":"p{number}","owner":"{}","holdings":[{holdings}]}}"#, words(number, 14)),
        );
    }
    db.change("portfolios", "p1", &["/holdings/*/stock/high"], made.changes);
    db.change("portfolios", "p2", &["/owner"], made.others);
    db.traffic("portfolios", made.reads);
    db.query_in_key("portfolios", "SELECT TOP 9 * FROM c WHERE c.id = 'p1' AND c.owner > 'a'", 9, 9, 1_000);
}

/// Posts and their authors: the name is fetched after each post.
struct Authors {
    actions: usize,
    posts_alone: usize,
    width: usize,
    whole: bool,
    field: &'static str,
    name_bytes: usize,
    renames: u32,
    /// Of posts.
    changes: u32,
    per_author: usize,
}

const AUTHORS: Authors = Authors {
    actions: 450,
    posts_alone: 350,
    width: 1,
    whole: false,
    field: "name",
    name_bytes: 14,
    renames: 2,
    changes: 220,
    per_author: 6,
};

fn authors(db: &mut Db, made: &Authors) {
    db.container("posts", "/id");
    db.container("authors", "/id");
    for number in 0..60 {
        db.add(
            "authors",
            format!(
                r#"{{"id":"au{number}","name":"{}","bio":"{}"}}"#,
                words(number, made.name_bytes),
                words(number, 900)
            ),
        );
    }
    let posts = 60 * made.per_author;
    for number in 0..posts {
        let refs = list(made.width, |place| format!(r#"{{"id":"au{}"}}"#, (number + place * 7) % 60));
        match made.width {
            1 => db.add(
                "posts",
                format!(
                    r#"{{"id":"po{number}","title":"{}","authorId":"au{}"}}"#,
                    words(number, 20),
                    number % 60
                ),
            ),
            _ => db.add(
                "posts",
                format!(r#"{{"id":"po{number}","title":"{}","authors":[{refs}]}}"#, words(number, 20)),
            ),
        }
    }
    db.actions(made.actions, |db, number| {
        let number = number % posts;
        db.read("posts", &format!("po{number}"));
        for place in 0..made.width {
            let author = format!("au{}", (number + place * 7) % 60);
            match made.whole {
                true => db.read("authors", &author),
                false => {
                    let sql = format!("SELECT c.{} FROM c WHERE c.id = '{author}' AND c.id > ''", made.field);
                    db.query_with("authors", &sql, 1, 1, 1, true, &[&author]);
                }
            }
        }
    });
    db.actions(made.posts_alone, |db, number| db.read("posts", &format!("po{}", number % posts)));
    db.change("authors", "au1", &["/name"], made.renames);
    db.actions(300, |db, number| db.read("authors", &format!("au{}", number % 60)));
    db.change("posts", "po1", &["/title"], made.changes);
}

fn copies() -> Vec<Case> {
    vec![
        fires(
            "portfolios: quotes copied into every holding",
            &[("hot-copy", "portfolios", "/holdings/*/stock")],
            |db| portfolios(db, &PORTFOLIOS),
        ),
        fires("bets: odds copied into every slip", &[("hot-copy", "slips", "/game")], |db| {
            db.container("slips", "/id");
            for number in 0..600 {
                let game = varied_number(number, 25);
                db.add("slips", format!(r#"{{"id":"s{number}","stake":{number},"game":{{"id":"g{game}","home":{},"away":{}}}}}"#, game * 3, game * 7));
            }
            db.change("slips", "s1", &["/game/home", "/game/away"], 800);
            db.change("slips", "s2", &["/stake"], 200);
            db.traffic("slips", 200);
            db.query_in_key("slips", "SELECT TOP 9 * FROM c WHERE c.id = 's1' AND c.stake > 1", 9, 9, 1_000);
        }),
        clean("portfolios: copied names that seldom change", &["hot-copy"], |db| {
            portfolios(db, &Portfolios { changes: 120, others: 900, reads: 50, ..PORTFOLIOS })
        }),
        clean("portfolios: hundreds of stocks, each in three portfolios", &["hot-copy"], |db| {
            portfolios(db, &Portfolios { stocks: 400, ..PORTFOLIOS });
        }),
        clean("portfolios: read a thousand times for each change", &["hot-copy"], |db| {
            portfolios(db, &Portfolios { changes: 120, others: 20, reads: 90_000, ..PORTFOLIOS });
        }),
        fires("blog: only the author's name is fetched", &[("copy-missing", "posts", "/authorId")], |db| {
            authors(db, &AUTHORS)
        }),
        clean("blog: posts are written more often than they are read", &["copy-missing"], |db| {
            authors(db, &Authors { actions: 400, posts_alone: 100, changes: 550, ..AUTHORS })
        }),
        fires(
            "forum: the author's name after each thread",
            &[("copy-missing", "posts", "/authorId")],
            |db| {
                let seldom_written = Authors { actions: 600, posts_alone: 300, changes: 150, ..AUTHORS };
                authors(db, &Authors { per_author: 10, ..seldom_written });
            },
        ),
        clean("blog: whole authors are shown", &["copy-missing"], |db| {
            authors(db, &Authors { whole: true, ..AUTHORS })
        }),
        clean("blog: the author's long text is shown", &["copy-missing"], |db| {
            authors(db, &Authors { field: "bio", ..AUTHORS })
        }),
        clean("blog: names change all day", &["copy-missing"], |db| {
            authors(db, &Authors { renames: 900, ..AUTHORS })
        }),
        clean("blog: names are fetched after one post in four", &["copy-missing"], |db| {
            authors(db, &Authors { posts_alone: 1_600, ..AUTHORS })
        }),
        clean("blog: seen sixty times", &["copy-missing"], |db| {
            authors(db, &Authors { actions: 60, posts_alone: 10, renames: 0, changes: 0, ..AUTHORS });
            db.reads("posts", "po1", 1_000);
        }),
        clean("blog: names for some, whole authors for others", &["copy-missing"], |db| {
            authors(db, &AUTHORS);
            db.actions(100, |db, number| {
                db.read("posts", &format!("po{number}"));
                db.read("authors", &format!("au{}", number % 60));
            });
        }),
        clean("blog: one post for each author", &["copy-missing"], |db| {
            authors(db, &Authors { per_author: 1, ..AUTHORS });
            for number in 0..300 {
                db.add("posts", format!(r#"{{"id":"draft{number}","title":"{}"}}"#, words(number, 20)));
            }
        }),
        clean("blog: a declared copy", &["copy-missing"], |db| {
            authors(db, &AUTHORS);
            db.model = json(
                r#"{"version":1,"links":[{"name":"post-author","from":{"container":"posts","path":"/authorId"},"to":{"container":"authors"}}],
                "copies":[{"name":"author-on-post","link":"post-author","fields":{"authorName":"t.name"}}]}"#,
            );
        }),
        fires("papers: eight authors, read one by one", &[("n-plus-one", "posts", "/authors/*/id")], |db| {
            authors(db, &Authors { width: 8, whole: true, ..AUTHORS });
        }),
        fires("teams: six members, read one by one", &[("n-plus-one", "posts", "/authors/*/id")], |db| {
            authors(
                db,
                &Authors { width: 6, whole: true, actions: 360, posts_alone: 100, changes: 550, ..AUTHORS },
            );
        }),
        clean("papers: two authors", &["n-plus-one"], |db| {
            authors(db, &Authors { width: 2, whole: true, ..AUTHORS })
        }),
        clean("papers: seldom more than the list", &["n-plus-one"], |db| {
            authors(db, &Authors { width: 8, whole: true, actions: 120, posts_alone: 900, ..AUTHORS });
        }),
        clean("papers: eight authors, looked at fifty times", &["n-plus-one"], |db| {
            authors(db, &Authors { width: 8, whole: true, actions: 50, posts_alone: 5, ..AUTHORS });
            db.reads("posts", "po1", 1_000);
        }),
    ]
}

struct Publishers {
    length: fn(usize) -> usize,
    growing: bool,
    shared: bool,
    writes: u32,
}

const PUBLISHERS: Publishers = Publishers {
    length: |number| {
        if varied_number(number, 8) == 0 {
            100 + varied_number(number, 30)
        } else {
            10 + varied_number(number, 25)
        }
    },
    growing: true,
    shared: false,
    writes: 800,
};

fn publishers(db: &mut Db, made: &Publishers) {
    db.container("publishers", "/id");
    db.container("titles", "/id");
    let mut next = 0;
    for number in 0..210 {
        let length = (made.length)(number);
        let first = next;
        next += length;
        let ids = list(length, |place| {
            format!(r#""t{}""#, if made.shared && place < 4 { place } else { first + place })
        });
        db.add(
            "publishers",
            format!(r#"{{"id":"pub{number}","name":"{}","books":[{ids}]}}"#, words(number, 12)),
        );
    }
    for number in 0..next {
        db.add("titles", format!(r#"{{"id":"t{number}","name":"{}"}}"#, words(number, 18)));
    }
    if made.growing {
        for number in 0..40 {
            for version in 0..3 {
                db.resize("publishers", &format!("pub{number}"), "/books", 10 + version, 11 + version);
            }
        }
    }
    db.change("publishers", "pub1", &["/books"], made.writes);
    db.traffic("publishers", 1_000);
    db.traffic("titles", 1_000);
    db.change("titles", "t1", &["/name"], 600);
}

struct Joins {
    per_writer: usize,
    extra: &'static str,
    actions: usize,
    filtered: u32,
    unfiltered: u32,
}

const JOINS: Joins = Joins { per_writer: 4, extra: "", actions: 200, filtered: 900, unfiltered: 100 };

fn writers(db: &mut Db, made: &Joins) {
    db.container("writers", "/id");
    db.container("works", "/id");
    db.container("bookWriters", "/writerId");
    let works = 150;
    for number in 0..90 {
        db.add("writers", format!(r#"{{"id":"w{number}","name":"{}"}}"#, words(number, 12)));
    }
    for number in 0..works {
        db.add("works", format!(r#"{{"id":"b{number}","title":"{}"}}"#, words(number, 16)));
    }
    for number in 0..90 {
        for place in 0..made.per_writer {
            let work = (number * 7 + place * 11) % works;
            let extra = made.extra.replace("{n}", &(number + place).to_string());
            db.add(
                "bookWriters",
                format!(r#"{{"id":"j{number}-{place}","writerId":"w{number}","workId":"b{work}"{extra}}}"#),
            );
        }
    }
    db.actions(made.actions, |db, number| {
        let writer = number % 90;
        let ids: Vec<String> = (0..made.per_writer).map(|place| format!("j{writer}-{place}")).collect();
        let ids: Vec<&str> = ids.iter().take(20).map(String::as_str).collect();
        let sql = format!("SELECT * FROM c WHERE c.writerId = 'w{writer}'");
        db.query_with("bookWriters", &sql, ids.len() as u64, ids.len() as u64, 1, true, &ids);
        db.read("works", &format!("b{}", (writer * 7) % works));
    });
    db.query_in_key("bookWriters", "SELECT * FROM c WHERE c.writerId = 'w1'", 4, 4, made.filtered);
    db.query("bookWriters", "SELECT TOP 9 * FROM c WHERE c.id > 'a'", 9, 9, made.unfiltered);
    db.reads("writers", "w1", 1_000);
    db.reads("works", "b1", 1_500);
}

fn references() -> Vec<Case> {
    vec![
        fires(
            "publishers: ids of all their titles",
            &[("growing-references", "publishers", "/books")],
            |db| publishers(db, &PUBLISHERS),
        ),
        fires("channels: ids of all their videos", &[("growing-references", "publishers", "/books")], |db| {
            publishers(
                db,
                &Publishers {
                    length: |number| {
                        if varied_number(number, 7) == 0 {
                            100 + varied_number(number, 40)
                        } else {
                            12 + varied_number(number, 25)
                        }
                    },
                    shared: true,
                    ..PUBLISHERS
                },
            );
        }),
        fires(
            "collections: a thousand ids, made at once",
            &[("growing-references", "publishers", "/books")],
            |db| {
                publishers(
                    db,
                    &Publishers {
                        length: |number| {
                            if varied_number(number, 12) == 0 {
                                1_100 + varied_number(number, 90)
                            } else {
                                30
                            }
                        },
                        growing: false,
                        writes: 900,
                        shared: false,
                    },
                );
            },
        ),
        clean("publishers: at most thirty titles", &["growing-references"], |db| {
            publishers(db, &Publishers { length: |number| 3 + varied_number(number, 27), ..PUBLISHERS });
        }),
        clean("play lists: capped at 120", &["growing-references"], |db| {
            publishers(
                db,
                &Publishers {
                    length: |number| {
                        if varied_number(number, 8) == 0 { 120 } else { 10 + varied_number(number, 30) }
                    },
                    ..PUBLISHERS
                },
            );
        }),
        clean("albums: a hundred ids that never change", &["growing-references"], |db| {
            publishers(db, &Publishers { growing: false, writes: 800, ..PUBLISHERS });
        }),
        fires("books: join items between writers and works", &[("join-items", "bookWriters", "")], |db| {
            writers(db, &JOINS)
        }),
        fires("courses: join items with one more field", &[("join-items", "bookWriters", "")], |db| {
            writers(db, &Joins { extra: r#","role":"r{n}""#, actions: 0, ..JOINS });
        }),
        clean("rentals: the join has data of its own", &["join-items"], |db| {
            writers(db, &Joins { extra: r#","from":{n},"to":{n},"price":{n},"paid":true"#, ..JOINS });
        }),
        clean("tags: hundreds on both sides", &["join-items"], |db| {
            writers(db, &Joins { per_writer: 120, ..JOINS })
        }),
        clean("friends: looked up all ways", &["join-items"], |db| {
            writers(db, &Joins { actions: 20, filtered: 100, unfiltered: 1_500, ..JOINS });
        }),
    ]
}
