//! What PostgreSQL does: one table, a primary key, and the indexes that a competent user declares for exactly these queries.
//!
//! Its own load generator draws the values, so items are formatted by the server: the same shape and the same number of
//! distinct values as ours.

use anyhow::Result;

use super::ours::{SCAN_MAX, SCANS_TO_A_CREATE, counter};
use super::workload::Operation;
use super::zipf::EXPONENT;
use crate::people::{CITIES, PEOPLE, Person, SCORES, SKUS, TAGS, TEAMS, TENANTS};
use crate::postgres::Postgres;

/// Nobody declares an index on our side.
const INDEXES: &[&str] = &[
    "((body->>'team'))",
    "(((body->>'score')::float8))",
    "USING gin ((body->'tags') jsonb_path_ops)",
    "USING gin ((body->'orders') jsonb_path_ops)",
];

/// A script of the load generator: variables that it draws, and statements that name them as `(:name)`.
pub struct Script {
    pub weight: u32,
    variables: Vec<(String, String)>,
    statements: String,
}

impl Script {
    fn new(variables: Vec<(String, String)>, statements: impl Into<String>) -> Script {
        Script { weight: 1, variables, statements: statements.into() }
    }

    fn weighing(self, weight: u32) -> Script {
        Script { weight, ..self }
    }

    pub fn text(&self) -> String {
        let sets = self.variables.iter().map(|(name, value)| format!("\\set {name} {value}\n"));
        format!("{}{}\n", sets.collect::<String>(), self.statements)
    }

    /// The statements with given values, to be run once.
    pub fn with(&self, values: &[(&str, u64)]) -> String {
        values.iter().fold(self.statements.clone(), |text, (name, value)| {
            text.replace(&format!("(:{name})"), &format!("('{value}')"))
        })
    }
}

pub fn load(postgres: &Postgres) -> Result<()> {
    postgres.sql("DROP TABLE items; CREATE SEQUENCE numbers; CREATE SEQUENCE gone")?;
    for table in ["items", "pairs"] {
        postgres
            .sql(&format!("CREATE TABLE {table} (id text PRIMARY KEY COLLATE \"C\", body jsonb NOT NULL)"))?;
    }
    let people = (0..PEOPLE).map(|number| {
        let person = Person::numbered(number);
        format!("{}\t{}\n", person.id, person.json())
    });
    let counters = (0..TENANTS).map(|tenant| format!("counter-{tenant}\t{}\n", counter(tenant)));
    postgres.copy("items", &people.collect::<String>())?;
    postgres.copy("pairs", &counters.collect::<String>())?;
    for table in ["items", "pairs"] {
        INDEXES.iter().try_for_each(|index| postgres.sql(&format!("CREATE INDEX ON {table} {index}")))?;
    }
    postgres.sql(&format!(
        "CREATE FUNCTION add_person(counter text, new text, document jsonb) RETURNS text LANGUAGE plpgsql AS $$ \
         BEGIN {} INSERT INTO pairs (id, body) VALUES (new, document); RETURN new; END $$",
        raise_count("counter")
    ))?;
    finish_background_work(postgres)
}

/// What background work would do at some time is done now.
pub fn finish_background_work(postgres: &Postgres) -> Result<()> {
    postgres.sql("VACUUM ANALYZE items")?;
    postgres.sql("VACUUM ANALYZE pairs")?;
    postgres.sql("CHECKPOINT")
}

/// Inserts what a timing is going to delete. The load generator's variables are person 7's here.
pub fn prepare_deletes(postgres: &Postgres, first: u64, count: u64) -> Result<()> {
    postgres.sql(&format!(
        "INSERT INTO items (id, body) SELECT 'gone-' || n, {} FROM generate_series({first}, {}) AS n",
        with_seventh(&document("'gone-' || n")),
        first + count - 1
    ))?;
    postgres.sql(&format!("ALTER SEQUENCE gone RESTART WITH {first}"))
}

pub fn left_to_delete(postgres: &Postgres) -> Result<u64> {
    Ok(postgres.rows("SELECT count(*) FROM items WHERE id LIKE 'gone-%'")?.trim().parse()?)
}

pub fn scripts(operation: &Operation) -> Vec<Script> {
    match operation {
        Operation::PointRead => vec![Script::new(vec![any_person()], READ)],
        Operation::Query(query) => {
            let variables = match query.parameter_below {
                0 => vec![],
                below => vec![drawn("p", below)],
            };
            vec![Script::new(variables, format!("{};", query.theirs))]
        }
        Operation::YcsbA => {
            let mut variables = popular_person();
            let read = Script::new(variables.clone(), READ);
            variables.push(drawn("name", 1_000_000_000));
            vec![read, Script::new(variables, SET_NAME)]
        }
        Operation::YcsbE => {
            let mut variables = popular_person();
            variables.push(("count".to_owned(), format!("random(1, {SCAN_MAX})")));
            let scans = SCANS_TO_A_CREATE as u32 - 1;
            vec![Script::new(variables, SCAN).weighing(scans), insert()]
        }
        Operation::Patch => {
            vec![Script::new(vec![any_person(), drawn("score", SCORES)], SET_SCORE)]
        }
        Operation::Replace => vec![replace()],
        Operation::Create => vec![insert()],
        Operation::Delete => {
            // In a subquery, since it would be called for every row otherwise.
            let id = "(SELECT 'gone-' || nextval('gone'))";
            vec![Script::new(vec![], format!("DELETE FROM items WHERE id = {id};"))]
        }
        Operation::Batch => vec![batch()],
        Operation::Procedure => vec![procedure()],
    }
}

const READ: &str = "SELECT body FROM items WHERE id = 'person-' || lpad((:p)::text, 8, '0');";
const SET_SCORE: &str = "UPDATE items SET body = jsonb_set(body, '{score}', to_jsonb((:score)::int)) \
    WHERE id = 'person-' || lpad((:p)::text, 8, '0');";
const SET_NAME: &str = "UPDATE items SET body = jsonb_set(body, '{name}', to_jsonb('name ' || lpad((:name)::text, 20, '0'))) \
    WHERE id = 'person-' || lpad((:p)::text, 8, '0');";
const SCAN: &str = "SELECT body FROM items WHERE id >= 'person-' || lpad((:p)::text, 8, '0') ORDER BY id LIMIT (:count)::int;";
/// The id of an insert; the comparison of answers puts another one in its place.
pub const NEW_ID: &str = "'new-' || nextval('numbers')";

fn any_person() -> (String, String) {
    drawn("p", PEOPLE)
}

fn popular_person() -> Vec<(String, String)> {
    vec![
        ("rank".to_owned(), format!("random_zipfian(1, {PEOPLE}, {EXPONENT})")),
        ("p".to_owned(), format!("permute(:rank - 1, {PEOPLE}, 42)")),
    ]
}

fn drawn(name: &str, below: u64) -> (String, String) {
    (name.to_owned(), format!("random(0, {})", below - 1))
}

/// The fields of a person that are drawn.
fn fields() -> Vec<(String, String)> {
    let mut fields = vec![drawn("team", TEAMS), drawn("city", CITIES), drawn("score", SCORES)];
    fields.extend((0..3).map(|index| drawn(&format!("tag{index}"), TAGS)));
    fields.extend((0..3).map(|index| drawn(&format!("sku{index}"), SKUS)));
    fields
}

fn insert() -> Script {
    insert_into("items")
}

fn insert_into(table: &str) -> Script {
    let document = document("new.id");
    Script::new(
        fields(),
        format!(
            "INSERT INTO {table} (id, body) SELECT new.id, {document} FROM (SELECT {NEW_ID} AS id) AS new;"
        ),
    )
}

fn replace() -> Script {
    let mut variables = fields();
    variables.push(any_person());
    let id = "'person-' || lpad((:p)::text, 8, '0')";
    Script::new(variables, format!("UPDATE items SET body = {} WHERE id = {id};", document(id)))
}

fn raise_count(counter: &str) -> String {
    format!(
        "UPDATE pairs SET body = jsonb_set(body, '{{count}}', to_jsonb((body->>'count')::int + 1)) WHERE id = {counter};"
    )
}

const COUNTER: &str = "'counter-' || (:tenant)::int";

fn batch() -> Script {
    let mut variables = fields();
    variables.push(drawn("tenant", TENANTS));
    let statements =
        format!("BEGIN;\n{}\n{}\nCOMMIT;", raise_count(COUNTER), insert_into("pairs").statements);
    Script::new(variables, statements)
}

fn procedure() -> Script {
    let mut variables = fields();
    variables.push(drawn("tenant", TENANTS));
    let statements = format!(
        "SELECT add_person({COUNTER}, new.id, {}) FROM (SELECT {NEW_ID} AS id) AS new;",
        document("new.id")
    );
    Script::new(variables, statements)
}

/// The JSON of person 7 with another id and what the load generator draws.
fn document(id: &str) -> String {
    let person = Person::numbered(7);
    let mut json = person.json().replace(&person.id, "%1$s");
    let mut arguments = String::new();
    let mut place = |found: String, argument: &str, name: &str| {
        json = json.replace(&found, argument);
        arguments.push_str(&format!(", (:{name})::int"));
    };
    place(format!("\"team-{}\"", person.team), "\"team-%2$s\"", "team");
    place(format!("\"city-{}\"", person.city), "\"city-%3$s\"", "city");
    place(format!("\"score\":{}", person.score), "\"score\":%4$s", "score");
    for index in 0..3 {
        let argument = format!("\"tag-%{}$s\"", 5 + index);
        place(format!("\"tag-{}\"", person.tags[index]), &argument, &format!("tag{index}"));
    }
    for index in 0..3 {
        let argument = format!("\"sku-%{}$s\"", 8 + index);
        place(format!("\"sku-{}\"", person.skus[index]), &argument, &format!("sku{index}"));
    }
    // The load generator takes a word behind a colon for a variable, also inside a text.
    let json = json.replace("08:30:00", "08\\u003a30\\u003a00").replace("\":", "\": ");
    format!("format('{json}', {id}{arguments})::jsonb")
}

/// With the values that person 7 has itself.
pub fn seventh() -> Vec<(&'static str, u64)> {
    let person = Person::numbered(7);
    let mut values = vec![("team", person.team), ("city", person.city), ("score", person.score)];
    values.extend(["tag0", "tag1", "tag2"].into_iter().zip(person.tags));
    values.extend(["sku0", "sku1", "sku2"].into_iter().zip(person.skus));
    values
}

fn with_seventh(statements: &str) -> String {
    Script::new(vec![], statements).with(&seventh())
}
