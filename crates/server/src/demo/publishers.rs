//! Publishers that collect the ids of all their titles.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const PUBLISHERS: usize = 220;
const TITLES: usize = 4_000;
const NEW_TITLES: usize = 500;
const READS: usize = 1_500;
const STEPS: usize = NEW_TITLES + READS;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let mut books: Vec<Vec<usize>> = vec![Vec::new(); PUBLISHERS];
    for number in 0..TITLES {
        let publisher = any(&mut session.random);
        books[publisher].push(number);
    }
    let publishers: Vec<String> =
        (0..PUBLISHERS).map(|number| publisher(number, &books[number], &mut session.random)).collect();
    session.load(0, &publishers)?;
    let titles: Vec<String> = (0..TITLES).map(|number| title(number, &mut session.random)).collect();
    session.load(1, &titles)?;
    let mut next = TITLES;
    for step in 0..STEPS {
        session.at(step, STEPS);
        if step % (STEPS / NEW_TITLES) == 0 {
            publish(session, next)?;
            next += 1;
        } else if session.random.below(3) == 0 {
            let number = session.random.below(TITLES);
            session.read(1, &title_id(number))?;
        } else {
            let number = session.random.below(PUBLISHERS);
            session.read(0, &id(number))?;
        }
    }
    Ok(())
}

/// A few publish most.
fn any(random: &mut Random) -> usize {
    let end = 1 + random.below(PUBLISHERS);
    random.skewed(end)
}

fn id(number: usize) -> String {
    format!("publisher-{number:03}")
}

fn title_id(number: usize) -> String {
    format!("title-{number:05}")
}

fn publisher(number: usize, books: &[usize], random: &mut Random) -> String {
    let books = books.iter().map(|book| format!("\"{}\"", title_id(*book))).collect::<Vec<_>>().join(",");
    let (id, name, city) = (id(number), words::person(number + 50), words::city(random));
    let founded = 1_880 + random.below(130);
    format!(r#"{{"id":"{id}","name":"{name} Press","city":"{city}","founded":{founded},"books":[{books}]}}"#)
}

fn title(number: usize, random: &mut Random) -> String {
    let (id, name, year, pages) =
        (title_id(number), words::title(random), 1_950 + random.below(76), 60 + random.below(800));
    format!(r#"{{"id":"{id}","name":"{name}","year":{year},"pages":{pages}}}"#)
}

fn publish(session: &mut Session<'_>, number: usize) -> Result<(), EngineError> {
    let title = title(number, &mut session.random);
    session.create(1, title)?;
    let publisher = any(&mut session.random);
    let book = title_id(number);
    session.patch(0, &id(publisher), &[format!(r#"{{"op":"add","path":"/books/-","value":"{book}"}}"#)])
}
