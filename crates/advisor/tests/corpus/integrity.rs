//! Cases of the rules about integrity.

use quire_profile::Operation;

use crate::harness::{Db, json};
use crate::shape::{list, varied_number, words};
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = copies();
    cases.extend(dangling());
    cases.extend(mirrors());
    cases.extend(rollups());
    cases.extend(updates());
    cases
}

struct Books {
    /// Books whose copy is out of date.
    stale: fn(usize) -> bool,
    /// Recorded writes of books that changed the copy.
    writes: u32,
    dangling: fn(usize) -> bool,
    items: usize,
    id: &'static str,
    reference: &'static str,
    expires: bool,
}

const BOOKS: Books = Books {
    stale: |number| number % 20 == 0,
    writes: 60,
    dangling: |_| false,
    items: 400,
    id: "au-",
    reference: "authorId",
    expires: false,
};

fn books(db: &mut Db, made: &Books) {
    let ttl = if made.expires { r#","defaultTtl":86400"# } else { "" };
    db.define(&format!(
        r#"{{"id":"authors","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}{ttl}}}"#
    ));
    db.container("books", "/id");
    let name = |number: usize| words(number * 3 + 1, 16);
    for number in 0..80 {
        db.add("authors", format!(r#"{{"id":"{}{number}","name":"{}"}}"#, made.id, name(number)));
    }
    for number in 0..made.items {
        let author = number % 80;
        let copy = if (made.stale)(number) { format!("was {}", words(number * 5, 11)) } else { name(author) };
        let target = if (made.dangling)(number) { 900 + number % 3 } else { author };
        db.add(
            "books",
            format!(
                r#"{{"id":"bk{number}","title":"{}","{}":"{}{target}","authorName":"{copy}"}}"#,
                words(number, 18),
                made.reference,
                made.id
            ),
        );
    }
    db.change("books", "bk1", &["/authorName"], made.writes);
    db.change("books", "bk2", &["/title"], 200);
    db.traffic("books", 1_500);
    db.traffic("authors", 1_500);
}

fn declared(db: &mut Db) {
    db.model = json(
        r#"{"version":1,"links":[{"name":"book-author","from":{"container":"books","path":"/authorId"},"to":{"container":"authors"}}],
        "copies":[{"name":"author-on-book","link":"book-author","fields":{"authorName":"t.name"}}]}"#,
    );
}

fn copies() -> Vec<Case> {
    vec![
        fires(
            "books: five in a hundred names are out of date",
            &[("stale-copies", "books", "/authorName")],
            |db| books(db, &BOOKS),
        ),
        fires(
            "books: a fifth of the names is out of date",
            &[("stale-copies", "books", "/authorName")],
            |db| {
                books(db, &Books { stale: |number| number % 5 == 0, ..BOOKS });
            },
        ),
        clean("orders: the name as it was when they were placed", &["stale-copies"], |db| {
            books(db, &Books { writes: 0, ..BOOKS })
        }),
        clean("books: all names are right", &["stale-copies"], |db| {
            books(db, &Books { stale: |_| false, ..BOOKS })
        }),
        clean("books: three slips", &["stale-copies"], |db| {
            books(db, &Books { stale: |number| number % 133 == 1, ..BOOKS })
        }),
        clean("books: names of their own", &["stale-copies"], |db| {
            books(db, &Books { stale: |number| number % 2 == 0, ..BOOKS })
        }),
        clean("books: six slips in 6,000", &["stale-copies"], |db| {
            books(db, &Books { stale: |number| number % 1_000 == 1, items: 6_000, ..BOOKS });
        }),
        clean("books: a declared copy that is being built", &["stale-copies"], |db| {
            books(db, &BOOKS);
            declared(db);
        }),
    ]
}

const RIGHT: Books = Books { stale: |_| false, ..BOOKS };

fn dangling() -> Vec<Case> {
    vec![
        fires("books: authors that were deleted", &[("dangling-references", "books", "/authorId")], |db| {
            books(db, &Books { dangling: |number| number % 50 == 7, ..RIGHT });
        }),
        fires(
            "books: one author in twenty is missing",
            &[("dangling-references", "books", "/byAuthor")],
            |db| {
                books(
                    db,
                    &Books {
                        dangling: |number| number % 50 == 7 || number % 50 == 9,
                        id: "writer",
                        reference: "byAuthor",
                        ..RIGHT
                    },
                );
            },
        ),
        clean("carts: they refer to offers that expire", &["dangling-references"], |db| {
            books(db, &Books { dangling: |number| number % 50 == 7, expires: true, ..RIGHT });
        }),
        clean("seats: numbers that look like ids", &["dangling-references"], |db| {
            books(db, &Books { dangling: |number| number % 50 == 7, id: "", reference: "seat", ..RIGHT });
        }),
        fires(
            "books: an old name beside an id is no broken reference",
            &[("stale-copies", "books", "/authorName")],
            renamed,
        ),
        clean("books: two missing authors", &["dangling-references"], |db| {
            books(db, &Books { dangling: |number| number % 200 == 7, ..RIGHT });
        }),
        clean("books: eight missing of 4,000", &["dangling-references"], |db| {
            books(db, &Books { dangling: |number| number % 500 == 7, items: 4_000, ..RIGHT });
        }),
        clean("books: a declared weak link counts them already", &["dangling-references"], |db| {
            books(db, &Books { dangling: |number| number % 50 == 7, ..RIGHT });
            db.model = json(
                r#"{"version":1,"links":[{"name":"book-author","from":{"container":"books","path":"/authorId"},"to":{"container":"authors"}}]}"#,
            );
        }),
    ]
}

/// Every author has a name of their own; four have another one by now, which half of their books do not know.
fn renamed(db: &mut Db) {
    db.container("authors", "/id");
    db.container("books", "/id");
    for number in 0..80 {
        db.add("authors", format!(r#"{{"id":"au-{number}","name":"Author {number}"}}"#));
    }
    for number in 0..400 {
        let author = number % 80;
        let is_old = author % 20 == 0 && number / 80 % 2 == 0;
        let name = if is_old { format!("Once {author}") } else { format!("Author {author}") };
        let title = words(number, 18);
        db.add(
            "books",
            format!(
                r#"{{"id":"bk{number}","title":"{title}","authorId":"au-{author}","authorName":"{name}"}}"#
            ),
        );
    }
    db.change("books", "bk1", &["/authorName"], 60);
    db.change("books", "bk2", &["/title"], 200);
    db.traffic("books", 1_500);
    db.traffic("authors", 1_500);
}

/// Students and courses with each other's ids; `missing` leaves one out on the courses' side.
fn courses(db: &mut Db, students: usize, missing: fn(usize) -> bool) {
    db.container("students", "/id");
    db.container("courses", "/id");
    let count = students / 2;
    let chosen = |student: usize| [student % count, (student * 3 + 1) % count, (student * 7 + 2) % count];
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    for student in 0..students {
        let mut own = chosen(student).to_vec();
        own.sort_unstable();
        own.dedup();
        own.iter().for_each(|course| members[*course].push(student));
        let ids = list(own.len(), |place| format!(r#""co{}""#, own[place]));
        db.add(
            "students",
            format!(r#"{{"id":"st{student}","name":"{}","courses":[{ids}]}}"#, words(student, 12)),
        );
    }
    for (course, own) in members.iter().enumerate() {
        let kept = if missing(course) && !own.is_empty() { &own[1..] } else { &own[..] };
        let ids = list(kept.len(), |place| format!(r#""st{}""#, kept[place]));
        db.add(
            "courses",
            format!(r#"{{"id":"co{course}","title":"{}","students":[{ids}]}}"#, words(course, 14)),
        );
    }
    db.traffic("students", 1_500);
    db.traffic("courses", 1_500);
}

fn mirrors() -> Vec<Case> {
    vec![
        fires(
            "courses: some lists of students miss one",
            &[("mirror-broken", "courses", "/students")],
            |db| {
                courses(db, 440, |course| course % 20 == 3);
            },
        ),
        fires("courses: a fifth of the lists is wrong", &[("mirror-broken", "courses", "/students")], |db| {
            courses(db, 440, |course| course % 5 == 3);
        }),
        clean("courses: all lists agree", &["mirror-broken"], |db| courses(db, 440, |_| false)),
        clean("courses: three lists are wrong", &["mirror-broken"], |db| {
            courses(db, 440, |course| course % 80 == 3)
        }),
        clean("courses: a declared mirror", &["mirror-broken"], |db| {
            courses(db, 440, |course| course % 20 == 3);
            db.model = json(
                r#"{"version":1,"links":[{"name":"student-course","from":{"container":"students","path":"/courses/*"},"to":{"container":"courses"}}],
                "mirrors":[{"name":"students-of-course","link":"student-course","into":"/students"}]}"#,
            );
        }),
    ]
}

struct CountedCase {
    wrong: fn(usize) -> i64,
    authors: usize,
    sums: bool,
    expires: bool,
}

const COUNTED: CountedCase =
    CountedCase { wrong: |author| i64::from(author % 12 == 0), authors: 220, sums: false, expires: false };

fn counted(db: &mut Db, made: &CountedCase) {
    let ttl = if made.expires { r#","defaultTtl":86400"# } else { "" };
    db.define(&format!(
        r#"{{"id":"books","partitionKey":{{"paths":["/id"],"kind":"Hash","version":2}}{ttl}}}"#
    ));
    db.container("authors", "/id");
    let mut number = 0;
    for author in 0..made.authors {
        let count = 2 + varied_number(author, 7);
        let mut pages = 0;
        for _ in 0..count {
            let own = 50 + varied_number(number, 300);
            pages += own;
            db.add("books", format!(r#"{{"id":"bk{number}","author":"au{author}","pages":{own}}}"#));
            number += 1;
        }
        let right = if made.sums { pages } else { count } as i64;
        db.add(
            "authors",
            format!(
                r#"{{"id":"au{author}","name":"{}","total":{}}}"#,
                words(author, 12),
                right + (made.wrong)(author)
            ),
        );
    }
    db.traffic("books", 1_500);
    db.traffic("authors", 1_500);
}

fn rollups() -> Vec<Case> {
    vec![
        fires(
            "authors: counts of books that are off by one",
            &[("rollup-wrong", "authors", "/total")],
            |db| counted(db, &COUNTED),
        ),
        fires("authors: sums of pages that are wrong", &[("rollup-wrong", "authors", "/total")], |db| {
            counted(
                db,
                &CountedCase { sums: true, wrong: |author| if author % 15 == 0 { 40 } else { 0 }, ..COUNTED },
            );
        }),
        clean("authors: all counts are right", &["rollup-wrong"], |db| {
            counted(db, &CountedCase { wrong: |_| 0, ..COUNTED })
        }),
        clean("authors: a number of its own", &["rollup-wrong"], |db| {
            counted(db, &CountedCase { wrong: |author| varied_number(author, 50) as i64, ..COUNTED })
        }),
        clean("authors: three counts are wrong", &["rollup-wrong"], |db| {
            counted(db, &CountedCase { wrong: |author| i64::from(author % 80 == 0), ..COUNTED });
        }),
        clean("visitors: what is counted expires", &["rollup-wrong"], |db| {
            counted(db, &CountedCase { expires: true, ..COUNTED })
        }),
        clean("authors: a declared rollup", &["rollup-wrong"], |db| {
            counted(db, &COUNTED);
            db.model = json(
                r#"{"version":1,"links":[{"name":"book-author","from":{"container":"books","path":"/author"},"to":{"container":"authors"}}],
                "rollups":[{"name":"book-count","link":"book-author","op":"count","into":"/total"}]}"#,
            );
        }),
    ]
}

struct Updates {
    pairs: u64,
    if_match: bool,
    late: bool,
    number: bool,
    singles: u64,
    others: u32,
}

const UPDATES: Updates =
    Updates { pairs: 15, if_match: false, late: false, number: false, singles: 0, others: 900 };

fn documents(db: &mut Db, made: &Updates) {
    db.container("documents", "/id");
    for number in 0..250 {
        db.add(
            "documents",
            format!(r#"{{"id":"d{number}","title":"{}","views":{number}}}"#, words(number, 16)),
        );
    }
    let path = if made.number { "/views" } else { "/title" };
    let replace = |db: &mut Db, id: &str| {
        db.write("documents", id, &[path], &[], 1, |record| {
            if let Some(change) = &mut record.change {
                change.if_match = made.if_match;
                change.one_number = made.number;
            }
        });
    };
    for pair in 0..made.pairs {
        let id = format!("d{pair}");
        let (one, other) = (pair * 2, pair * 2 + 1);
        db.in_action(one, |db| db.read("documents", &id));
        db.in_action(other, |db| db.read("documents", &id));
        db.in_action(one, |db| replace(db, &id));
        if made.late {
            db.wait(5_000);
        }
        db.in_action(other, |db| replace(db, &id));
        db.wait(5_000);
    }
    for single in 0..made.singles {
        let id = format!("d{}", single % 250);
        db.in_action(10_000 + single, |db| {
            db.read("documents", &id);
            replace(db, &id);
        });
    }
    db.change("documents", "d200", &["/title", "/views"], made.others);
    db.traffic("documents", 1_500);
}

fn updates() -> Vec<Case> {
    vec![
        fires("wiki: two editors replace one page", &[("lost-updates", "documents", "")], |db| {
            documents(db, &UPDATES)
        }),
        fires("planning: two planners replace one day", &[("lost-updates", "documents", "")], |db| {
            documents(db, &Updates { pairs: 40, ..UPDATES })
        }),
        clean("wiki: editors send what they have seen", &["lost-updates"], |db| {
            documents(db, &Updates { if_match: true, ..UPDATES })
        }),
        clean("wiki: one editor after the other", &["lost-updates"], |db| {
            documents(db, &Updates { late: true, ..UPDATES })
        }),
        clean("wiki: four clashes", &["lost-updates"], |db| documents(db, &Updates { pairs: 4, ..UPDATES })),
        fires("pages: views are counted by replace", &[("read-modify-write", "documents", "/views")], |db| {
            documents(db, &Updates { pairs: 0, singles: 200, number: true, ..UPDATES });
        }),
        fires(
            "stock: counted by replace, half of it guarded",
            &[("read-modify-write", "documents", "/views")],
            |db| {
                documents(db, &Updates { pairs: 0, singles: 150, number: true, others: 300, ..UPDATES });
            },
        ),
        clean("pages: views are counted by replace with If-Match", &["read-modify-write"], |db| {
            documents(db, &Updates { pairs: 0, singles: 200, number: true, if_match: true, ..UPDATES });
        }),
        clean("pages: views are counted by patch", &["read-modify-write"], |db| {
            documents(db, &Updates { pairs: 0, ..UPDATES });
            for number in 0..200 {
                let id = format!("d{number}");
                db.in_action(20_000 + number, |db| {
                    db.read("documents", &id);
                    db.record("documents", &id, Operation::Patch, 1, |record| record.charge = 11.0);
                });
            }
        }),
        clean("pages: thirty views", &["read-modify-write"], |db| {
            documents(db, &Updates { pairs: 0, singles: 30, number: true, others: 100, ..UPDATES });
        }),
        clean("pages: views are few among the writes", &["read-modify-write"], |db| {
            documents(db, &Updates { pairs: 0, singles: 60, number: true, others: 5_000, ..UPDATES });
        }),
        clean("forms: one text is replaced after reading it", &["read-modify-write", "lost-updates"], |db| {
            documents(db, &Updates { pairs: 0, singles: 200, ..UPDATES });
        }),
    ]
}
