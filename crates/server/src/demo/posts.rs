//! Blog posts with all their comments inside.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const POSTS: usize = 220;
const COMMENTED: usize = 700;
const REQUESTS: usize = 2_100;
/// The longest posts have about so many comments.
const COMMENTS_MAX: usize = 340;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let mut comments = 0;
    let posts: Vec<String> =
        (0..POSTS).map(|number| post(number, &mut comments, &mut session.random)).collect();
    session.load(0, &posts)?;
    for step in 0..REQUESTS {
        session.at(step, REQUESTS);
        let number = session.random.skewed(POSTS);
        match step * COMMENTED / REQUESTS != (step + 1) * COMMENTED / REQUESTS {
            true => add_comment(session, number, &mut comments)?,
            false => session.read(0, &id(number))?,
        }
    }
    Ok(())
}

fn id(number: usize) -> String {
    format!("post-{number:04}")
}

fn post(number: usize, comments: &mut usize, random: &mut Random) -> String {
    let count = 20 + random.below(COMMENTS_MAX * 2 / 3) + random.skewed(COMMENTS_MAX / 3);
    let all = (0..count).map(|_| comment(comments, random)).collect::<Vec<_>>().join(",");
    let (id, title, author) = (id(number), words::title(random), words::random_name(random));
    let (published, body) = (words::time(random), words::paragraph(random, 8));
    format!(
        r#"{{"id":"{id}","title":"{title}","author":"{author}","published":"{published}","body":"{body}","comments":[{all}]}}"#
    )
}

fn comment(number: &mut usize, random: &mut Random) -> String {
    *number += 1;
    let (by, at, text) = (words::random_name(random), words::time(random), words::random_remark(random));
    format!(r#"{{"id":"comment-{number:06}","by":"{by}","at":"{at}","text":"{text}"}}"#)
}

fn add_comment(session: &mut Session<'_>, number: usize, comments: &mut usize) -> Result<(), EngineError> {
    let comment = comment(comments, &mut session.random);
    session.patch(0, &id(number), &[format!(r#"{{"op":"add","path":"/comments/-","value":{comment}}}"#)])
}
