//! Both sides must give the same answers before anything is timed. Writes are made once on each side and what they wrote
//! is compared; person 7 and counter 7 are the same on both sides afterwards.

use anyhow::{Context, Result, ensure};
use quire_testkit::http::{Address, Connection, Signer};
use serde_json::Value;

use super::ours;
use super::theirs::{self, NEW_ID};
use super::workload::{ComparedRows, Operation, Query, Workload};
use crate::people::{CONTAINER, PEOPLE, Person, create_request, draw};
use crate::postgres::Postgres;

/// Of each query.
const COMPARED_ANSWERS: u64 = 8;
const SEVENTH: u64 = 7;

pub struct Sides<'a> {
    connection: Connection,
    signer: Signer,
    postgres: &'a Postgres,
}

impl<'a> Sides<'a> {
    pub fn new(address: &Address, postgres: &'a Postgres) -> Result<Sides<'a>> {
        Ok(Sides { connection: Connection::open_at(address)?, signer: Signer::well_known(), postgres })
    }

    pub fn compare(&mut self, workload: &Workload) -> Result<()> {
        self.compared(&workload.operation).with_context(|| format!("{}: answers differ", workload.title))
    }

    fn compared(&mut self, operation: &Operation) -> Result<()> {
        let scripts = theirs::scripts(operation);
        let person = || Person::numbered(SEVENTH);
        match operation {
            Operation::PointRead => {
                for sample in 0..COMPARED_ANSWERS {
                    let number = draw(sample, 778, PEOPLE);
                    let person = Person::numbered(number);
                    let text = self.postgres.rows(&scripts[0].with(&[("p", number)]))?;
                    let ours = self.item(CONTAINER, &person.id, &person.tenant)?;
                    same(ours.as_ref(), Some(&serde_json::from_str(&text)?))?;
                }
                Ok(())
            }
            Operation::Query(query) => self.query(query, &scripts[0]),
            Operation::YcsbA => {
                self.send(&ours::set_name(&self.signer, SEVENTH, 4711))?;
                self.postgres.sql(&scripts[1].with(&[("p", SEVENTH), ("name", 4711)]))?;
                self.seventh()
            }
            Operation::YcsbE => {
                for sample in 0..COMPARED_ANSWERS {
                    let (first, count) = (draw(sample, 778, PEOPLE), 1 + draw(sample, 779, ours::SCAN_MAX));
                    let body = self.send(&ours::scan(&self.signer, first, count))?;
                    let text = self.postgres.rows(&scripts[0].with(&[("p", first), ("count", count)]))?;
                    same_rows(&ComparedRows::Ids, &body, &text)?;
                }
                Ok(())
            }
            Operation::Patch => {
                self.send(&ours::set_score(&self.signer, SEVENTH, 123_456))?;
                self.postgres.sql(&scripts[0].with(&[("p", SEVENTH), ("score", 123_456)]))?;
                self.seventh()
            }
            Operation::Replace => {
                self.send(&ours::replace(&self.signer, &person()))?;
                self.postgres.sql(&with_seventh(&scripts[0], ("p", SEVENTH)))?;
                self.seventh()
            }
            Operation::Delete | Operation::Create => {
                self.send(&ours::delete(&self.signer, SEVENTH))?;
                let id = person().id;
                self.postgres.sql(&format!("DELETE FROM items WHERE id = '{id}'"))?;
                self.seventh()?;
                self.send(&create_request(&self.signer, CONTAINER, &person().tenant, &person().json()))?;
                let insert = &theirs::scripts(&Operation::Create)[0];
                let statement = with_seventh(insert, ("p", SEVENTH)).replace(NEW_ID, &format!("'{id}'"));
                self.postgres.sql(&statement)?;
                self.seventh()
            }
            Operation::Batch => self.two_items("check-batch", &scripts[0], ours::batch),
            Operation::Procedure => self.two_items("check-procedure", &scripts[0], ours::procedure),
        }
    }

    fn query(&mut self, query: &Query, script: &theirs::Script) -> Result<()> {
        for sample in 0..COMPARED_ANSWERS.min(query.parameter_below.max(1)) {
            let drawn = draw(sample, 778, query.parameter_below.max(1));
            let body = self.send(&ours::query_request(&self.signer, query, drawn))?;
            let text = self.postgres.rows(&script.with(&[("p", drawn)]))?;
            same_rows(&query.compared, &body, &text)?;
        }
        Ok(())
    }

    /// A new person of a tenant, and the count of the tenant.
    fn two_items(
        &mut self,
        id: &str,
        script: &theirs::Script,
        make: fn(&Signer, u64, Person) -> Vec<u8>,
    ) -> Result<()> {
        let tenant = Person::numbered(SEVENTH).tenant;
        let number: u64 = tenant.trim_start_matches("tenant-").parse()?;
        let person = Person { id: id.to_owned(), ..Person::numbered(SEVENTH) };
        self.send(&make(&self.signer, number, person))?;
        let statements = with_seventh(script, ("tenant", number)).replace(NEW_ID, &format!("'{id}'"));
        self.postgres.rows(&statements)?;
        self.both(ours::PAIRS, &format!("counter-{number}"), &tenant)?;
        self.both(ours::PAIRS, id, &tenant)
    }

    fn seventh(&mut self) -> Result<()> {
        let Person { id, tenant, .. } = Person::numbered(SEVENTH);
        self.both(CONTAINER, &id, &tenant)
    }

    /// An item as it is on both sides, or on neither.
    fn both(&mut self, container: &str, id: &str, tenant: &str) -> Result<()> {
        let ours = self.item(container, id, tenant)?;
        let table = if container == ours::PAIRS { "pairs" } else { "items" };
        let text = self.postgres.rows(&format!("SELECT body FROM {table} WHERE id = '{id}'"))?;
        let theirs = text.lines().next().map(serde_json::from_str::<Value>).transpose()?;
        same(ours.as_ref(), theirs.as_ref())
    }

    fn item(&mut self, container: &str, id: &str, tenant: &str) -> Result<Option<Value>> {
        let answer = self.connection.exchange(&ours::read_item(&self.signer, container, id, tenant))?;
        if answer.status == 404 {
            return Ok(None);
        }
        ensure!(answer.status == 200, "reading {id} answered {}", answer.status);
        let mut item: Value = serde_json::from_slice(&answer.body)?;
        let members = item.as_object_mut().context("an item is an object")?;
        members.retain(|name, _| !name.starts_with('_'));
        Ok(Some(item))
    }

    fn send(&mut self, request: &[u8]) -> Result<Value> {
        let answer = self.connection.exchange(request)?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!((200..300).contains(&answer.status) && answer.status != 207, "{} {text}", answer.status);
        ensure!(answer.header("x-ms-continuation").is_none(), "the answer has several pages");
        Ok(serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}

fn with_seventh(script: &theirs::Script, more: (&'static str, u64)) -> String {
    let mut values = theirs::seventh();
    values.push(more);
    script.with(&values)
}

fn same(ours: Option<&Value>, theirs: Option<&Value>) -> Result<()> {
    ensure!(ours == theirs, "over HTTP {ours:?}, of PostgreSQL {theirs:?}");
    Ok(())
}

fn same_rows(compared: &ComparedRows, body: &Value, text: &str) -> Result<()> {
    let ours = body["Documents"].as_array().context("no Documents")?;
    let theirs = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let (ours, theirs) = (shown(compared, ours), shown(compared, &theirs));
    ensure!(ours.len() == theirs.len(), "{} rows over HTTP, {} of PostgreSQL", ours.len(), theirs.len());
    let different = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
    ensure!(different.is_none(), "rows over HTTP and of PostgreSQL: {different:?}");
    Ok(())
}

fn shown(compared: &ComparedRows, rows: &[Value]) -> Vec<String> {
    let one = |row: &Value| match compared {
        ComparedRows::Ids => row["id"].to_string(),
        ComparedRows::Rows => {
            let members = row.as_object().into_iter().flatten();
            let mut members: Vec<String> =
                members.map(|(name, value)| format!("{name}={}", plain(value))).collect();
            members.sort();
            members.join(" ")
        }
    };
    let mut rows: Vec<String> = rows.iter().map(one).collect();
    rows.sort();
    rows
}

/// Averages differ in the last digits, and 1 may be written 1.0.
fn plain(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| format!("{number:.6}"))
}
