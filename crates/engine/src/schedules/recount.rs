//! What the model of `maintained` must have made of authors and books, recounted from the stored items.

use std::collections::BTreeMap;

use quire_storage::Snapshot;
use quire_value::Value;

use crate::store::item_row::ItemRow;
use crate::store::{for_each_row, keys};

/// Items by id.
pub(super) type Items = BTreeMap<String, Value>;

pub(super) struct Library {
    pub authors: Items,
    pub books: Items,
    /// Of the declarations that the program builds.
    pub has_totals: bool,
    pub has_citations: bool,
}

/// What a recount says of an author.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    count: i64,
    last: Option<i64>,
    books: Vec<String>,
}

/// What is stored, whether clients see it or not: it counts until it is removed.
pub(super) fn stored_items(snapshot: &dyn Snapshot, container: u32) -> Items {
    let mut items = Items::new();
    let read = for_each_row(snapshot, keys::ITEMS, &keys::container_prefix(container), |_, row| {
        let row = ItemRow::parse(row)?;
        let other = items.insert(row.id()?.to_owned(), row.node()?.to_value());
        assert_eq!(other, None, "two items have one id");
        Ok(())
    });
    read.expect("it is open");
    items
}

impl Library {
    pub fn check(&self) {
        self.check_copies();
        if self.has_totals {
            self.authors.iter().for_each(|(id, author)| self.check_totals(id, author));
        }
        if self.has_citations {
            self.lasting_books().for_each(|book| self.check_citations(book));
        }
    }

    /// Those that do not expire: what is invisible is not written any more.
    fn lasting_books(&self) -> impl Iterator<Item = &Value> {
        self.books.values().filter(|book| book.get("ttl").is_none())
    }

    fn check_copies(&self) {
        for book in self.lasting_books() {
            let name = self.authors.get(&author_of(book)).and_then(|author| text(author, "name"));
            let copy = book.get("author").and_then(|author| text(author, "name"));
            assert_eq!(copy, name, "a copy is wrong: {book:?}");
        }
    }

    fn check_totals(&self, id: &str, author: &Value) {
        let mut expected = Totals::default();
        for (book_id, book) in self.books.iter().filter(|(_, book)| author_of(book) == id) {
            expected.count += 1;
            expected.last = expected.last.max(number(book, "year"));
            expected.books.push(book_id.clone());
        }
        let books = author.get("books").and_then(Value::as_array).expect("a mirror");
        let found = Totals {
            count: number(author, "n").expect("a count"),
            last: number(author, "last"),
            books: books.iter().map(|id| id.as_str().expect("an id").to_owned()).collect(),
        };
        assert_eq!(found, expected, "of {author:?}");
    }

    fn check_citations(&self, book: &Value) {
        let isbn = text(book, "isbn");
        let is_named = |other: &&Value| isbn.is_some() && text(other, "cites") == isbn;
        let expected = self.books.values().filter(is_named).count() as i64;
        assert_eq!(number(book, "cited"), Some(expected), "of {book:?}");
        let same = self.lasting_books().filter(|other| isbn.is_some() && text(other, "isbn") == isbn);
        assert!(same.count() < 2, "two books have one key: {book:?}");
    }
}

fn author_of(book: &Value) -> String {
    book.get("author").and_then(|author| text(author, "id")).expect("every book has one")
}

fn text(value: &Value, member: &str) -> Option<String> {
    value.get(member).and_then(Value::as_str).map(str::to_owned)
}

fn number(value: &Value, member: &str) -> Option<i64> {
    value.get(member).and_then(Value::as_i64)
}
