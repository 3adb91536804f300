//! Whole systems, with the noise that they have: chats, feeds, wikis, mail, learning, hospitals.
//! What is expected follows from the text of the rules, not from what they do.

use crate::harness::Db;
use crate::shape::{list, varied_number, words};
use crate::systems_trade::grow;
use crate::{Case, clean, fires};

pub fn cases() -> Vec<Case> {
    let mut cases = messages();
    cases.extend(networks());
    cases.extend(wikis());
    cases.extend(schools());
    cases.extend(hospitals());
    cases
}

fn base64(seed: usize, bytes: usize) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..bytes / 4 * 4).map(|place| DIGITS[varied_number(seed * 31 + place, 64)] as char).collect()
}

fn mail(db: &mut Db, body: fn(usize) -> String) {
    db.container("mails", "/box");
    for number in 0..240 {
        let subject =
            if number % 31 == 5 { String::new() } else { format!(r#","subject":"{}""#, words(number, 25)) };
        db.add(
            "mails",
            format!(r#"{{"id":"m{number}","box":"b{}"{subject},"body":"{}"}}"#, number % 60, body(number)),
        );
    }
    db.traffic("mails", 1_500);
    db.creates("mails", "m1", 300);
}

fn members(db: &mut Db, if_match: fn(usize) -> bool, other: bool) {
    db.container("members", "/id");
    for number in 0..300 {
        db.add(
            "members",
            format!(r#"{{"id":"m{number}","name":"{}","unread":{}}}"#, words(number, 9), number % 30),
        );
    }
    db.actions(160, |db, number| {
        let read = format!("m{number}");
        let written = if other { format!("m{}", number + 100) } else { read.clone() };
        db.read("members", &read);
        db.write("members", &written, &["/unread"], &[], 1, |record| {
            let change = record.change.get_or_insert_default();
            (change.one_number, change.if_match) = (true, if_match(number));
        });
        db.wait(5_000);
    });
    db.traffic("members", 900);
}

fn messages() -> Vec<Case> {
    vec![
        fires("mails: attachments inside", &[("blob-in-item", "mails", "/body")], |db| {
            mail(db, |number| base64(number, if number % 3 == 0 { 200 } else { 28_000 }));
        }),
        clean("mails: long texts", &["blob-in-item", "large-items"], |db| {
            mail(db, |number| words(number, 26_000))
        }),
        clean("mails: thumbnails", &["blob-in-item"], |db| mail(db, |number| base64(number, 2_000))),
        fires("chat: rooms with their messages", &[("unbounded-array", "rooms", "/messages")], |db| {
            db.container("rooms", "/id");
            for number in 0..260 {
                let messages = list(50 + varied_number(number, 120), |message| {
                    format!(
                        r#"{{"by":"u{}","said":"{}"}}"#,
                        varied_number(message, 90),
                        words(message + number, 40)
                    )
                });
                db.add(
                    "rooms",
                    format!(
                        r#"{{"id":"r{number}","topic":"{}","messages":[{messages}]}}"#,
                        words(number, 12)
                    ),
                );
            }
            grow(db, "rooms", "/messages", (0..120).map(|number| format!("r{number}")), 2);
            db.traffic("rooms", 1_500);
        }),
        fires(
            "chat: unread counters are read and written",
            &[("read-modify-write", "members", "/unread")],
            |db| {
                members(db, |_| false, false);
            },
        ),
        clean("chat: unread counters with etags", &["read-modify-write", "lost-updates"], |db| {
            members(db, |number| number % 25 != 0, false);
        }),
        clean("chat: one member is read, another written", &["read-modify-write"], |db| {
            members(db, |_| false, true)
        }),
        fires("chat: the last message over all partitions", &[("latest-by-scan", "posts", "/at")], |db| {
            posts(db, 4, "SELECT TOP 1 * FROM c ORDER BY c.at DESC", 300)
        }),
        clean("chat: the last message of one partition", &["latest-by-scan"], |db| {
            posts(db, 1, "SELECT TOP 1 * FROM c ORDER BY c.at DESC", 300)
        }),
        fires("feed: pages far behind", &[("deep-offset", "posts", "")], |db| {
            posts(db, 1, "SELECT * FROM c ORDER BY c.at OFFSET 4000 LIMIT 20", 15)
        }),
        clean("feed: the first pages", &["deep-offset"], |db| {
            posts(db, 1, "SELECT * FROM c ORDER BY c.at OFFSET 200 LIMIT 20", 40)
        }),
    ]
}

fn posts(db: &mut Db, partitions: u32, sql: &str, times: u32) {
    db.container("posts", "/room").partitions = partitions;
    for number in 0..1_200 {
        let text = words(number, 60 + varied_number(number, 200));
        db.add(
            "posts",
            format!(
                r#"{{"id":"p{number}","room":"r{}","at":"2026-05-{:02}T10:{:02}:00Z","text":"{text}"}}"#,
                number % 300,
                1 + number / 60,
                number % 60
            ),
        );
    }
    db.query("posts", sql, 20, 20, times);
    db.query_in_key("posts", "SELECT TOP 4 * FROM c WHERE c.room = 'r1'", 4, 4, 900);
    db.traffic("posts", 600);
}

/// Timelines with ids of posts that are read one by one.
fn timelines(db: &mut Db, width: usize, share: usize) {
    db.container("timelines", "/id");
    db.container("posts", "/id");
    for number in 0..600 {
        db.add("posts", format!(r#"{{"id":"po{number}","text":"{}"}}"#, words(number, 300)));
    }
    for number in 0..300 {
        let posts = list(width, |post| format!(r#""po{}""#, (number * 7 + post * 13) % 600));
        db.add("timelines", format!(r#"{{"id":"tl{number}","posts":[{posts}]}}"#));
    }
    db.actions(300, |db, number| {
        db.read("timelines", &format!("tl{number}"));
        if varied_number(number, 100) < share {
            (0..width).for_each(|post| db.read("posts", &format!("po{}", (number * 7 + post * 13) % 600)));
        }
    });
    db.traffic("timelines", 1_000);
    db.traffic("posts", 600);
}

fn followers(db: &mut Db, length: fn(usize) -> usize) {
    db.container("people", "/id");
    for number in 0..500 {
        let own = length(number);
        let followers = list(own, |place| format!(r#""pe{}""#, (number + place * 3 + 1) % 500));
        db.add(
            "people",
            format!(r#"{{"id":"pe{number}","name":"{}","followers":[{followers}]}}"#, words(number, 10)),
        );
    }
    grow(db, "people", "/followers", (0..200).map(|number| format!("pe{number}")), 1);
    db.traffic("people", 1_200);
}

fn memberships(db: &mut Db, more: &str) {
    db.container("users", "/id");
    db.container("groups", "/id");
    db.container("memberships", "/userId");
    for number in 0..200 {
        db.add("users", format!(r#"{{"id":"us{number}","name":"{}"}}"#, words(number, 12)));
        db.add("groups", format!(r#"{{"id":"gr{number}","title":"{}"}}"#, words(number + 7, 12)));
    }
    for number in 0..1_000 {
        db.add(
            "memberships",
            format!(
                r#"{{"id":"ms{number}","userId":"us{}","groupId":"gr{}"{more}}}"#,
                number % 200,
                (number * 7 + number / 200) % 200
            ),
        );
    }
    db.query_in_key("memberships", "SELECT * FROM c WHERE c.userId = 'us3'", 5, 5, 1_400);
    db.traffic("users", 1_000);
    db.traffic("groups", 1_000);
}

fn networks() -> Vec<Case> {
    vec![
        fires("feed: posts of a timeline one by one", &[("n-plus-one", "timelines", "/posts/*")], |db| {
            timelines(db, 9, 90)
        }),
        clean("feed: two posts of a timeline", &["n-plus-one"], |db| timelines(db, 2, 90)),
        clean("feed: posts are seldom opened", &["n-plus-one", "copy-missing"], |db| timelines(db, 9, 30)),
        fires("network: followers without end", &[("growing-references", "people", "/followers")], |db| {
            followers(db, |number| 30 + varied_number(number, 110));
        }),
        clean("network: a hundred friends at most", &["growing-references", "unbounded-array"], |db| {
            followers(db, |number| if number % 9 == 0 { 120 } else { varied_number(number, 110) });
        }),
        fires("groups: memberships without data", &[("join-items", "memberships", "")], |db| {
            memberships(db, "")
        }),
        clean("groups: memberships with role, date and note", &["join-items"], |db| {
            memberships(db, r#","role":"guest","since":"2026-01-02","note":"invited","by":"system""#);
        }),
        fires(
            "groups: memberships over gone groups",
            &[("dangling-references", "memberships", "/groupId"), ("join-items", "memberships", "")],
            |db| {
                memberships(db, "");
                (0..40).for_each(|number| {
                    db.add(
                        "memberships",
                        format!(
                            r#"{{"id":"gone{number}","userId":"us{number}","groupId":"grx{}"}}"#,
                            number % 6
                        ),
                    )
                });
            },
        ),
    ]
}

/// Pages with their former versions inside.
fn pages(db: &mut Db, revisions: fn(usize) -> usize) {
    db.container("pages", "/id");
    for number in 0..250 {
        let own = |seed: usize| {
            format!(
                r#""title":"{}","text":"{}","author":"u{}","updated":"2026-02-{:02}T00:00:00Z""#,
                words(number, 15),
                words(seed, 60),
                seed % 30,
                1 + seed % 28
            )
        };
        let former = list(revisions(number), |revision| format!("{{{}}}", own(number + revision)));
        db.add("pages", format!(r#"{{"id":"pg{number}",{},"former":[{former}]}}"#, own(number)));
    }
    grow(db, "pages", "/former", (0..120).map(|number| format!("pg{number}")), 1);
    db.traffic("pages", 1_000);
}

fn wikis() -> Vec<Case> {
    vec![
        fires("wiki: all versions of a page inside it", &[("history-in-item", "pages", "/former")], |db| {
            pages(db, |number| 90 + varied_number(number, 80))
        }),
        clean("wiki: the last ten versions of a page", &["history-in-item", "unbounded-array"], |db| {
            pages(db, |number| varied_number(number, 11))
        }),
        clean(
            "wiki: sections of which one changes",
            &["hot-and-cold", "large-array", "extract-part"],
            |db| {
                db.container("articles", "/id");
                for number in 0..220 {
                    let sections = list(30, |section| {
                        format!(
                            r#"{{"title":"{}","text":"{}"}}"#,
                            words(section, 12),
                            words(number + section, 600)
                        )
                    });
                    db.add(
                        "articles",
                        format!(r#"{{"id":"ar{number}","language":"en","sections":[{sections}]}}"#),
                    );
                }
                for number in 0..220 {
                    db.change("articles", &format!("ar{number}"), &["/sections/*/text"], 2);
                }
                db.traffic("articles", 1_000);
            },
        ),
        fires("wiki: two editors, no etag", &[("lost-updates", "articles", "")], |db| editors(db, 16, 400)),
        clean("wiki: two editors, hours apart", &["lost-updates"], |db| editors(db, 16, 4_000_000)),
        fires("wiki: comments below comments", &[("deep-nesting", "threads", "")], |db| {
            threads(db, |number| if number % 20 == 0 { 70 } else { 4 })
        }),
        clean("wiki: one thread that went astray", &["deep-nesting"], |db| {
            threads(db, |number| if number == 7 { 90 } else { 6 })
        }),
    ]
}

fn editors(db: &mut Db, pairs: usize, gap_ms: u64) {
    db.container("articles", "/id");
    for number in 0..250 {
        db.add(
            "articles",
            format!(
                r#"{{"id":"ar{number}","text":"{}","title":"{}"}}"#,
                words(number, 900),
                words(number, 20)
            ),
        );
    }
    for number in 0..pairs as u64 {
        let id = format!("ar{number}");
        for editor in 0..2 {
            db.in_action(number * 2 + editor, |db| db.read("articles", &id));
        }
        for editor in 0..2 {
            db.in_action(number * 2 + editor, |db| {
                db.write("articles", &id, &["/text", "/title"], &[], 1, |_| {})
            });
            db.wait(gap_ms);
        }
        db.wait(60_000);
    }
    db.traffic("articles", 1_200);
}

fn threads(db: &mut Db, depth: fn(usize) -> usize) {
    db.container("threads", "/id");
    for number in 0..400 {
        let depth = depth(number);
        let text = words(number, 10);
        let nested = format!(
            "{}{}{}",
            format!(r#"{{"text":"{text}","reply":"#).repeat(depth),
            "null",
            "}".repeat(depth)
        );
        db.add("threads", format!(r#"{{"id":"th{number}","root":{nested}}}"#));
    }
}

/// Courses and students in one container.
fn school(db: &mut Db, kind: bool, alike: bool) {
    db.container("school", "/id");
    for number in 0..500 {
        let is_course = number % 2 == 0;
        let (name, level) = (words(number, 14), number % 5);
        let own = match (is_course, alike) {
            (true, false) => format!(r#""title":"{name}","hours":{},"teacher":"t{level}""#, number % 40),
            (false, false) => format!(r#""firstName":"{name}","birthday":"2001-02-03","grade":{level}"#),
            (true, true) => {
                format!(r#""name":"{name}","level":{level},"campus":"c{level}","hours":{}"#, number % 40)
            }
            (false, true) => {
                format!(r#""name":"{name}","level":{level},"campus":"c{level}","grade":{level}"#)
            }
        };
        let kind = if kind {
            format!(r#","kind":"{}""#, if is_course { "course" } else { "student" })
        } else {
            String::new()
        };
        db.add("school", format!(r#"{{"id":"s{number}"{kind},{own}}}"#));
    }
    db.query("school", "SELECT * FROM c WHERE IS_DEFINED(c.title)", 250, 250, 30);
    db.traffic("school", 1_200);
}

fn grades(db: &mut Db, items: usize) {
    db.define(r#"{"id":"grades","partitionKey":{"paths":["/student"],"kind":"Hash","version":2},
        "indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/remark/?"}]}}"#);
    for number in 0..items {
        let remark =
            if number % 9 == 0 { String::new() } else { format!(r#","remark":"{}""#, words(number, 20)) };
        db.add(
            "grades",
            format!(
                r#"{{"id":"g{number}","student":"st{}","course":"co{}","points":{}{remark}}}"#,
                number % 700,
                number % 40,
                varied_number(number, 100)
            ),
        );
    }
    db.traffic("grades", 1_000);
}

fn schools() -> Vec<Case> {
    vec![
        fires(
            "school: courses and students without a type",
            &[("missing-discriminator", "school", "")],
            |db| school(db, false, false),
        ),
        clean("school: courses and students with a type", &["missing-discriminator"], |db| {
            school(db, true, false)
        }),
        clean("school: courses and classes look alike", &["missing-discriminator"], |db| {
            school(db, false, true)
        }),
        fires("grades: a remark is looked for", &[("index-missing", "grades", "/remark")], |db| {
            grades(db, 2_000);
            db.query("grades", "SELECT * FROM c WHERE c.remark = 'river'", 2_000, 3, 60);
        }),
        fires(
            "grades: sorted by course and points",
            &[("composite-missing", "grades", "/course, /points")],
            |db| {
                grades(db, 600);
                db.refused("grades", "SELECT * FROM c ORDER BY c.course, c.points", 14);
            },
        ),
        fires("grades: all of a course at once", &[("unbounded-result", "grades", "")], |db| {
            grades(db, 3_000);
            db.query("grades", "SELECT * FROM c WHERE c.points > 20", 2_400, 2_400, 15);
        }),
        clean("grades: the best of a course", &["unbounded-result"], |db| {
            grades(db, 3_000);
            db.query("grades", "SELECT TOP 2000 * FROM c WHERE c.points > 20", 2_000, 2_000, 15);
        }),
        fires("grades: averages over everything", &[("scan-for-analytics", "grades", "")], |db| {
            grades(db, 12_000);
            db.query("grades", "SELECT c.course, AVG(c.points) FROM c GROUP BY c.course", 12_000, 40, 25);
        }),
        clean("grades: averages over a small container", &["scan-for-analytics"], |db| {
            grades(db, 3_000);
            db.query("grades", "SELECT c.course, AVG(c.points) FROM c GROUP BY c.course", 3_000, 40, 25);
        }),
        fires("grades: looked up by id with a query", &[("query-for-point-read", "grades", "/id")], |db| {
            grades(db, 600);
            db.query_in_key("grades", "SELECT * FROM c WHERE c.id = 'g7'", 1, 1, 1_500);
        }),
        clean("grades: looked up by id, the student is not known", &["query-for-point-read"], |db| {
            grades(db, 600);
            db.query("grades", "SELECT * FROM c WHERE c.id = 'g7'", 1, 1, 1_500);
        }),
    ]
}

fn patients(db: &mut Db, visits: fn(usize) -> usize) {
    db.container("patients", "/id");
    for number in 0..1_000 {
        let visits = list(visits(number), |visit| {
            format!(r#"{{"at":"2025-01-{:02}","reason":"{}"}}"#, 1 + visit % 28, words(visit, 30))
        });
        let phone = if number % 12 == 0 { String::new() } else { format!(r#","phone":"0{number}""#) };
        db.add("patients", format!(r#"{{"id":"pa{number}"{phone},"visits":[{visits}]}}"#));
    }
    db.traffic("patients", 1_000);
}

fn insured(db: &mut Db, exclusive: bool, alone: usize) {
    db.container("patients", "/id");
    db.container("policies", "/id");
    for number in 0..400 {
        let policy = if exclusive { number } else { number % 100 };
        db.add(
            "patients",
            format!(r#"{{"id":"pa{number}","name":"{}","policyId":"po{policy}"}}"#, words(number, 14)),
        );
        db.add(
            "policies",
            format!(
                r#"{{"id":"po{number}","insurer":"{}","terms":"{}"}}"#,
                words(number, 10),
                words(number, 200)
            ),
        );
    }
    db.actions(500, |db, number| {
        let number = number % 400;
        db.read("patients", &format!("pa{number}"));
        db.read("policies", &format!("po{}", if exclusive { number } else { number % 100 }));
    });
    db.actions(alone, |db, number| db.read("policies", &format!("po{}", number % 400)));
    db.traffic("patients", 700);
    db.creates("policies", "po1", 20);
    db.creates("patients", "pa1", 50);
}

fn hospitals() -> Vec<Case> {
    vec![
        fires("patients: a few with hundreds of visits", &[("outliers", "patients", "/visits")], |db| {
            patients(db, |number| if number % 70 == 0 { 420 } else { 3 + varied_number(number, 5) });
        }),
        clean("patients: visits between one and sixty", &["outliers"], |db| {
            patients(db, |number| 1 + varied_number(number, 60))
        }),
        fires(
            "patients: the policy is always read with the patient",
            &[("embed-together", "patients", "/policyId")],
            |db| insured(db, true, 10),
        ),
        clean("patients: families share a policy", &["embed-together"], |db| insured(db, false, 10)),
        fires("patients: records called by room and bed", &[("risky-ids", "beds", "/id")], |db| {
            beds(db, |number| number % 40 == 0)
        }),
        clean("patients: one odd bed in four hundred", &["risky-ids"], |db| {
            beds(db, |number| number % 400 == 0)
        }),
    ]
}

fn beds(db: &mut Db, risky: fn(usize) -> bool) {
    db.container("beds", "/ward");
    for number in 0..800 {
        let id = if risky(number) { format!("room/{number}#2") } else { format!("room-{number}") };
        db.add("beds", format!(r#"{{"id":"{id}","ward":"w{}","free":{}}}"#, number % 120, number % 3 == 0));
    }
}
