//! Items that only one writer writes: it knows what became of them.
//!
//! An author that is never deleted, and books that refer to it. What was acknowledged is there; what was refused is not; of a request
//! without an answer both may be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::super::client::Client;
use super::DATABASE;
use crate::Random;
use crate::http::Response;
use crate::interpreter;

const BOOKS: usize = 4;
/// Nothing is known after these: the storage may have failed after it wrote.
const UNSURE: [u16; 5] = [408, 429, 500, 503, 504];

/// Whoever has waited so long cannot say that the request is over.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an item may be: its token, or nothing.
type PossibleTokens = Vec<Option<u64>>;

pub struct OwnedItems {
    /// Of the partition key of its books, and the id of its author.
    name: String,
    next_token: u64,
    next_book: u64,
    books: Vec<String>,
    /// By container and id. More than one: it depends on requests without an answer.
    possible: BTreeMap<(&'static str, String), PossibleTokens>,
    /// The same of requests that may still be done at any time.
    late: BTreeMap<(&'static str, String), PossibleTokens>,
}

impl OwnedItems {
    pub fn new(writer: u32) -> OwnedItems {
        let name = format!("own{writer}");
        let (books, possible, late) = Default::default();
        OwnedItems { name, next_token: 0, next_book: 0, books, possible, late }
    }

    /// Writes the author or one of the books.
    pub fn step(&mut self, client: &mut Client<'_>, random: &mut Random) -> Option<(&'static str, Response)> {
        while self.books.len() < BOOKS {
            self.next_book += 1;
            self.books.push(format!("{}-{}", self.name, self.next_book));
        }
        self.next_token += 1;
        let token = self.next_token;
        if random.one_in(4) {
            let author = json!({ "id": self.name, "v": token, "name": format!("Name {}", random.below(5)) });
            let id = self.name.clone();
            return self.write(client, ("a", &id), "own upsert", Some(token), &author);
        }
        let id = random.pick(&self.books).clone();
        let book = json!({ "id": id, "pk": self.name, "v": token, "x": self.name, "n": random.below(9) });
        match random.below(4) {
            0 => self.write(client, ("b", &id), "own delete", None, &Json::Null),
            _ => self.write(client, ("b", &id), "own upsert", Some(token), &book),
        }
    }

    fn write(
        &mut self,
        client: &mut Client<'_>,
        (container, id): (&'static str, &str),
        what: &'static str,
        after: Option<u64>,
        item: &Json,
    ) -> Option<(&'static str, Response)> {
        let key = format!("x-ms-documentdb-partitionkey: [{:?}]\r\n", self.name);
        let link = format!("{DATABASE}/colls/{container}");
        let (is_left, sent) = (client.leave_next, Instant::now());
        let answer = match after {
            None => {
                let link = format!("{link}/docs/{id}");
                client.send("DELETE", &format!("/{link}"), ("docs", &link), &key, "")
            }
            Some(_) => {
                let headers = format!("{key}x-ms-documentdb-is-upsert: true\r\n");
                client.send("POST", &format!("/{link}/docs"), ("docs", &link), &headers, &item.to_string())
            }
        };
        let possible = self.possible.entry((container, id.to_owned())).or_insert_with(|| vec![None]);
        match answer.as_ref().map(|answer| answer.status) {
            Some(200..300) => *possible = vec![after],
            Some(status) if !UNSURE.contains(&status) => {}
            Some(_) | None => possible.push(after),
        }
        if is_left || sent.elapsed() > PATIENCE {
            self.late.entry((container, id.to_owned())).or_default().push(after);
            self.books.retain(|own| own != id);
        }
        answer.map(|answer| (what, answer))
    }

    /// What is not as it must be, and how many items were looked for.
    pub fn problems(&self, items: &crate::model::Items) -> (Vec<String>, usize) {
        let token = |container: &str, id: &str| {
            let own = |(name, item): &&(String, interpreter::Json)| {
                name == container && item.get("id").and_then(interpreter::Json::as_str) == Some(id)
            };
            let item = items.iter().find(own)?;
            item.1.get("v").and_then(interpreter::Json::as_i64).and_then(|token| u64::try_from(token).ok())
        };
        let mut problems = Vec::new();
        for ((container, id), possible) in &self.possible {
            let found = token(container, id);
            let late = self.late.get(&(*container, id.clone()));
            if !possible.contains(&found) && late.is_none_or(|late| !late.contains(&found)) {
                problems.push(format!("{id} of {container} is {found:?}, written were {possible:?}"));
            }
        }
        (problems, self.possible.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a writer knows is compared with what is there.
    #[test]
    fn lost_writes_are_found() {
        let item = |text: &str| ("b".to_owned(), interpreter::parse_json(text).expect("JSON"));
        let mut owned = OwnedItems::new(1);
        owned.possible.insert(("b", "x".to_owned()), vec![Some(3)]);
        owned.possible.insert(("b", "y".to_owned()), vec![Some(3), None]);
        assert_eq!(owned.problems(&[item(r#"{"id":"x","v":3}"#)]).0, [""; 0]);
        assert_eq!(owned.problems(&[item(r#"{"id":"x","v":2}"#)]).0.len(), 1, "an older version");
        assert_eq!(owned.problems(&[]).0.len(), 1, "an acknowledged write is gone");
        let both = [item(r#"{"id":"x","v":3}"#), item(r#"{"id":"y","v":4}"#)];
        assert_eq!(owned.problems(&both).0.len(), 1, "a write that nobody sent");
        owned.late.insert(("b", "y".to_owned()), vec![Some(4)]);
        assert_eq!(owned.problems(&both).0, [""; 0], "one that nobody waited for");
    }
}
