//! Adding books: without a model, with a link, with a count; to one author and to many; beside PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use quire_testkit::http::Signer;
use quire_testkit::live::LiveServer;
use serde_json::json;

use super::{CONNECTIONS, Client, Size, book, counted, key_header, link, median};
use crate::client::{NextRequest, run_each};
use crate::postgres::Postgres;
use crate::process::cpu;
use crate::table::Table;

/// Whose books are added.
#[derive(Clone, Copy, PartialEq)]
enum Authors {
    One,
    Many(u64),
}

impl Authors {
    fn of(self, number: u64) -> u64 {
        match self {
            Authors::One => 0,
            Authors::Many(count) => number % count,
        }
    }
}

#[derive(Clone, Copy)]
struct Measurement {
    rate: f64,
    cpu_micros: f64,
}

pub fn run(quire: &LiveServer, size: Size, table: &mut Table) -> Result<()> {
    set_up(quire, size)?;
    let postgres = Postgres::start_tuned()?;
    if let Some(postgres) = &postgres {
        set_up_postgres(postgres, size)?;
    }
    let many = Authors::Many(size.authors);
    let mut rounds = Vec::new();
    for round in 0..size.rounds {
        let add = |database: &str, authors, label: &str| {
            added(quire, size, database, authors, &format!("{label}{round}"))
        };
        let ours = [
            add("plain", many, "p")?,
            add("linked", many, "l")?,
            add("counted", many, "c")?,
            add("counted", Authors::One, "h")?,
            replaced(quire, size, round)?,
        ];
        let theirs = match &postgres {
            Some(postgres) => Some([
                postgres.query_rate(&insert("plain_books", many), CONNECTIONS)?,
                postgres.query_rate(&insert("books", many), CONNECTIONS)?,
                postgres.query_rate(&insert("books", Authors::One), CONNECTIONS)?,
            ]),
            None => None,
        };
        rounds.push((ours, theirs));
    }
    print(&rounds, table);
    Ok(())
}

type QuireFigures = [Measurement; 5];
type PostgresFigures = [f64; 3];
type Round = (QuireFigures, Option<PostgresFigures>);

fn print(rounds: &[Round], table: &mut Table) {
    let of =
        |figure: &dyn Fn(&QuireFigures) -> f64| median(rounds.iter().map(|(own, _)| figure(own)).collect());
    let link = of(&|[plain, linked, ..]| linked.cpu_micros / plain.cpu_micros);
    table.at_most("create with one enforced link, to a plain create (CPU)", link, 1.5, "x");
    let count =
        of(&|[_, linked, counted, _, replace]| (counted.cpu_micros - linked.cpu_micros) / replace.cpu_micros);
    table.at_most("what a count elsewhere adds, to the replace of an item (CPU)", count, 1.3, "x");
    let hot = of(&|[_, _, counted, hot, _]| hot.rate / counted.rate);
    table.at_least("16 clients adding books of one author, to books of many (rate)", hot, 0.5, "x");
    let shown = rounds.last().map_or(String::new(), |([plain, linked, counted, hot, replace], _)| {
        let shown = |own: &Measurement| format!("{:.0}/s with {:.0} us", own.rate, own.cpu_micros);
        format!(
            "plain {}, linked {}, counted {}, one author {}, replace {}",
            shown(plain),
            shown(linked),
            shown(counted),
            shown(hot),
            shown(replace)
        )
    });
    table.note("creates: last round", shown);
    let both: Vec<(QuireFigures, PostgresFigures)> =
        rounds.iter().filter_map(|(own, theirs)| Some((*own, (*theirs)?))).collect();
    let Some((_, last)) = both.last() else {
        return table.note("PostgreSQL 15", "is not installed here".to_owned());
    };
    let ratio =
        |figure: &dyn Fn(&(QuireFigures, PostgresFigures)) -> f64| median(both.iter().map(figure).collect());
    let plain = ratio(&|(own, theirs)| own[0].rate / theirs[0]);
    let many = ratio(&|(own, theirs)| own[2].rate / theirs[1]);
    let one = ratio(&|(own, theirs)| own[3].rate / theirs[2]);
    table.note("plain creates, to PostgreSQL 15", format!("{plain:.2}x"));
    table.at_least("creates with link and count, to a foreign key and a trigger", many, round(plain), "x");
    table.at_least("the same of one author", one, round(2.0 * plain), "x");
    let shown =
        format!("plain {:.0}/s, key and trigger {:.0}/s, one author {:.0}/s", last[0], last[1], last[2]);
    table.note("PostgreSQL 15: last round", shown);
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn set_up(quire: &LiveServer, size: Size) -> Result<()> {
    let mut client = Client::open(quire.port)?;
    for database in ["plain", "linked", "counted"] {
        client.library(database)?;
        client.authors(database, size.authors)?;
    }
    client.put_model("linked", &json!({ "version": 1, "links": [link()] }))?;
    client.put_model("counted", &counted())?;
    client.wait_for_jobs()?;
    Ok(())
}

fn added(
    quire: &LiveServer,
    size: Size,
    database: &str,
    authors: Authors,
    label: &str,
) -> Result<Measurement> {
    let (container, label) = (format!("dbs/{database}/colls/books"), label.to_owned());
    let signer = Signer::well_known();
    measured(
        quire,
        size,
        201,
        Arc::new(move |number| {
            let id = format!("{label}-{number}");
            let body = book(&id, authors.of(number)).to_string();
            let path = format!("/{container}/docs");
            signer.request("POST", &path, ("docs", &container), &key_header(&id), body.as_bytes())
        }),
    )
}

/// Authors without a model, of the size that they have with one.
fn replaced(quire: &LiveServer, size: Size, round: usize) -> Result<Measurement> {
    let signer = Signer::well_known();
    measured(
        quire,
        size,
        200,
        Arc::new(move |number| {
            let mut author = super::author(number % size.authors);
            author["countOfBooks"] = json!(round as u64 * 1_000_000 + number);
            let id = author["id"].as_str().unwrap_or_default().to_owned();
            let link = format!("dbs/plain/colls/authors/docs/{id}");
            let body = author.to_string();
            signer.request("PUT", &format!("/{link}"), ("docs", &link), &key_header(&id), body.as_bytes())
        }),
    )
}

fn measured(quire: &LiveServer, size: Size, status: u16, next: NextRequest) -> Result<Measurement> {
    let before = cpu(quire)?;
    let load = run_each(quire.port, CONNECTIONS, size.round, status, |_| Arc::clone(&next))?;
    let used = cpu(quire)? - before;
    Ok(Measurement { rate: load.rate(), cpu_micros: used.as_secs_f64() * 1e6 / load.requests as f64 })
}

/// Every path of a document is indexed on our side: a GIN index on theirs.
fn set_up_postgres(postgres: &Postgres, size: Size) -> Result<()> {
    postgres.sql("CREATE SEQUENCE numbers")?;
    postgres.sql("CREATE TABLE authors (id text COLLATE \"C\" PRIMARY KEY, count_of_books bigint NOT NULL, body jsonb NOT NULL)")?;
    let authors = size.authors;
    postgres.sql(&format!(
        "INSERT INTO authors SELECT 'a' || n, 0, '{{\"name\":\"Author\"}}'::jsonb FROM generate_series(0, {authors}) AS n"
    ))?;
    for (table, key) in [("plain_books", ""), ("books", "REFERENCES authors (id)")] {
        postgres.sql(&format!(
            "CREATE TABLE {table} (id text COLLATE \"C\" PRIMARY KEY, author text COLLATE \"C\" NOT NULL {key}, body jsonb NOT NULL)"
        ))?;
        postgres.sql(&format!("CREATE INDEX ON {table} (author)"))?;
        postgres.sql(&format!("CREATE INDEX ON {table} USING gin (body jsonb_path_ops)"))?;
    }
    postgres.sql(
        "CREATE FUNCTION count_books() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         UPDATE authors SET count_of_books = count_of_books + 1 WHERE id = NEW.author; RETURN NEW; END $$",
    )?;
    postgres
        .sql("CREATE TRIGGER count_books AFTER INSERT ON books FOR EACH ROW EXECUTE FUNCTION count_books()")
}

fn insert(table: &str, authors: Authors) -> String {
    let author = match authors {
        Authors::One => "'a0'".to_owned(),
        Authors::Many(count) => format!("'a' || (:n % {count})"),
    };
    // The load generator takes a word behind a colon for a variable, also inside a text.
    let body = book("b", 0).to_string().replace("\":", "\": ");
    format!(
        "\\set n random(0, 1000000000)\n\
         INSERT INTO {table} (id, author, body) VALUES ('b' || nextval('numbers'), {author}, '{body}'::jsonb);\n"
    )
}
