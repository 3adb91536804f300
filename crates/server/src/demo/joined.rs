//! Writers and works, and items that only say which belong together.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const WRITERS: usize = 240;
const WORKS: usize = 450;
const SCREENS: usize = 1_200;
const WORKS_OF: &str = "SELECT VALUE b.workId FROM b WHERE b.writerId = @value";
const WRITERS_OF: &str = "SELECT VALUE b.writerId FROM b WHERE b.workId = @value";

/// Numbers of writer and work.
type Pairs = Vec<(usize, usize)>;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let writers: Vec<String> = (0..WRITERS).map(|number| writer(number, &mut session.random)).collect();
    let works: Vec<String> = (0..WORKS).map(|number| work(number, &mut session.random)).collect();
    let pairs = pairs(&mut session.random);
    let joins: Vec<String> = pairs.iter().enumerate().map(|(number, pair)| join(number, *pair)).collect();
    session.load(0, &writers)?;
    session.load(1, &works)?;
    session.load(2, &joins)?;
    for step in 0..SCREENS {
        session.at(step, SCREENS);
        match step % 2 {
            0 => writer_screen(session, &pairs)?,
            _ => work_screen(session, &pairs)?,
        }
    }
    Ok(())
}

fn pairs(random: &mut Random) -> Pairs {
    let mut pairs = Pairs::new();
    for work in 0..WORKS {
        for _ in 0..1 + random.below(3) {
            let pair = (random.below(WRITERS), work);
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
    pairs
}

fn writer_id(number: usize) -> String {
    format!("writer-{number:03}")
}

fn work_id(number: usize) -> String {
    format!("work-{number:04}")
}

fn writer(number: usize, random: &mut Random) -> String {
    let (id, name, born) = (writer_id(number), words::person(number * 5), 1_900 + random.below(95));
    format!(r#"{{"id":"{id}","name":"{name}","born":{born}}}"#)
}

fn work(number: usize, random: &mut Random) -> String {
    let (id, title, year) = (work_id(number), words::title(random), 1_950 + random.below(76));
    format!(r#"{{"id":"{id}","title":"{title}","year":{year}}}"#)
}

fn join(number: usize, (writer, work): (usize, usize)) -> String {
    let (writer, work) = (writer_id(writer), work_id(work));
    format!(r#"{{"id":"bw-{number:05}","writerId":"{writer}","workId":"{work}"}}"#)
}

/// A writer with the works.
fn writer_screen(session: &mut Session<'_>, pairs: &Pairs) -> Result<(), EngineError> {
    let writer = session.random.below(WRITERS);
    let works: Vec<String> =
        pairs.iter().filter(|(own, _)| *own == writer).map(|(_, work)| work_id(*work)).collect();
    session.action(|session| {
        session.read(0, &writer_id(writer))?;
        session.query(2, WORKS_OF, &writer_id(writer))?;
        works.iter().try_for_each(|work| session.read(1, work))
    })
}

/// A work with its writers.
fn work_screen(session: &mut Session<'_>, pairs: &Pairs) -> Result<(), EngineError> {
    let work = session.random.below(WORKS);
    let writers: Vec<String> =
        pairs.iter().filter(|(_, own)| *own == work).map(|(writer, _)| writer_id(*writer)).collect();
    session.action(|session| {
        session.read(1, &work_id(work))?;
        session.query(2, WRITERS_OF, &work_id(work))?;
        writers.iter().try_for_each(|writer| session.read(0, writer))
    })
}
