//! Books with copies of their authors' names, and authors with a count of their books: some went stale.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const AUTHORS: usize = 250;
const BOOKS: usize = 500;
const RENAMED: usize = 30;
const READS: usize = 1_700;
const RATED: usize = 400;
const STEPS: usize = RENAMED + READS + RATED;
/// One of so many counts was not brought up to date.
const MISCOUNTED: usize = 25;

/// Numbers of the authors of each book.
type Authors = Vec<Vec<usize>>;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let written: Authors = (0..BOOKS).map(|_| chosen(&mut session.random)).collect();
    let authors: Vec<String> = (0..AUTHORS).map(|number| author(number, &written)).collect();
    let books: Vec<String> =
        written.iter().enumerate().map(|(number, own)| book(number, own, &mut session.random)).collect();
    session.load(0, &authors)?;
    session.load(1, &books)?;
    let mut renamed = 0;
    for step in 0..STEPS {
        session.at(step, STEPS);
        if step % (STEPS / RENAMED) == 1 {
            rename(session, renamed * 7 % AUTHORS, &written)?;
            renamed += 1;
        } else if step % (STEPS / RATED) == 0 {
            let (book, rating) = (session.random.below(BOOKS), 20 + session.random.below(31));
            let change =
                format!(r#"{{"op":"set","path":"/rating","value":{}.{}}}"#, rating / 10, rating % 10);
            session.patch(1, &book_id(book), &[change])?;
        } else if session.random.below(3) == 0 {
            let author = session.random.below(AUTHORS);
            session.read(0, &author_id(author))?;
        } else {
            let book = session.random.below(BOOKS);
            session.read(1, &book_id(book))?;
        }
    }
    Ok(())
}

fn chosen(random: &mut Random) -> Vec<usize> {
    let mut own = Vec::new();
    for _ in 0..1 + random.below(3) {
        let author = random.below(AUTHORS);
        if !own.contains(&author) {
            own.push(author);
        }
    }
    own
}

fn author_id(number: usize) -> String {
    format!("author-{number:03}")
}

fn book_id(number: usize) -> String {
    format!("book-{number:04}")
}

/// Every author has another name.
fn name(number: usize) -> String {
    words::person(number * 11 + 4)
}

fn author(number: usize, written: &Authors) -> String {
    let books = written.iter().filter(|own| own.contains(&number)).count();
    let counted = if number % MISCOUNTED == 3 { books + 1 } else { books };
    let (id, name) = (author_id(number), name(number));
    let thumbnail = format!("https://img.example.org/{id}.jpg");
    format!(r#"{{"id":"{id}","name":"{name}","thumbnailUrl":"{thumbnail}","countOfBooks":{counted}}}"#)
}

fn book(number: usize, authors: &[usize], random: &mut Random) -> String {
    let copy = |author: &usize| {
        let (id, name) = (author_id(*author), name(*author));
        format!(r#"{{"id":"{id}","name":"{name}","thumbnailUrl":"https://img.example.org/{id}.jpg"}}"#)
    };
    let authors = authors.iter().map(copy).collect::<Vec<_>>().join(",");
    let (id, title, rating) = (book_id(number), words::title(random), 20 + random.below(31));
    let (published, rating) = (words::date(random), format!("{}.{}", rating / 10, rating % 10));
    format!(
        r#"{{"id":"{id}","title":"{title}","published":"{published}","rating":{rating},"authors":[{authors}]}}"#
    )
}

/// An author takes another name. The program that brings books up to date misses some.
fn rename(session: &mut Session<'_>, author: usize, written: &Authors) -> Result<(), EngineError> {
    let new = format!("{} {}", name(author), words::city(&mut session.random));
    let change = |path: String| format!(r#"{{"op":"set","path":"{path}","value":"{new}"}}"#);
    session.patch(0, &author_id(author), &[change("/name".to_owned())])?;
    for (book, own) in written.iter().enumerate() {
        let Some(place) = own.iter().position(|own| *own == author) else { continue };
        if session.random.below(4) > 0 {
            session.patch(1, &book_id(book), &[change(format!("/authors/{place}/name"))])?;
        }
    }
    Ok(())
}
