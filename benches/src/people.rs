//! The people that most benchmarks run over, and the container that holds them: the same number always gives the same item
//! of about 1 KB.

use std::time::Instant;

use anyhow::{Result, ensure};
use quire_testkit::http::{Address, Connection, Signer};

pub const DATABASE: &str = "dbs/bench";
pub const CONTAINER: &str = "dbs/bench/colls/people";
pub const JSON: &str = "content-type: application/json\r\n";

/// Items that the queries run over.
pub const PEOPLE: u64 = 100_000;
/// About ten people each.
pub const TEAMS: u64 = PEOPLE / 10;
pub const TAGS: u64 = 3 * PEOPLE / 10;
pub const SKUS: u64 = 3 * PEOPLE / 10;
/// Twenty biographies each.
pub const RARE_WORDS: u64 = PEOPLE / 20;
pub const CITIES: u64 = 100;
pub const TENANTS: u64 = 1000;
/// Scores lie evenly below this.
pub const SCORES: u64 = 1_000_000;

const WORDS: &[&str] = &[
    "harbour", "letter", "window", "copper", "garden", "winter", "ticket", "silver", "market", "engine",
    "bridge", "pencil", "orange", "forest", "mirror", "castle", "button", "ladder", "thread", "candle",
    "shadow", "planet", "violin", "pepper", "basket", "tunnel", "island", "kettle", "ribbon", "marble",
    "saddle", "timber",
];
const GIVEN: &[&str] =
    &["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "Tony", "Radia", "Leslie"];
const FAMILY: &[&str] =
    &["Marsh", "Okafor", "Lindqvist", "Tanaka", "Moreau", "Novak", "Silva", "Haddad", "Kowalski", "Reyes"];

/// One of the many values that belong to a person.
pub fn draw(person: u64, field: u64, below: u64) -> u64 {
    let mut bits =
        person.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(field.wrapping_mul(0xD1B5_4A32_D192_ED03));
    for shift in [30, 27, 31] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    (bits ^ (bits >> 32)) % below
}

pub fn tenant(person: u64) -> String {
    format!("tenant-{}", draw(person, 0, TENANTS))
}

/// The fields that differ from person to person; everything else follows from them.
pub struct Person {
    pub id: String,
    pub tenant: String,
    pub name: String,
    pub team: u64,
    pub city: u64,
    pub age: u64,
    pub score: u64,
    pub active: bool,
    pub tags: [u64; 3],
    pub skus: [u64; 3],
    pub bio: String,
}

impl Person {
    pub fn numbered(number: u64) -> Person {
        let of = |field, below| draw(number, field, below);
        Person {
            id: format!("person-{number:08}"),
            tenant: tenant(number),
            name: format!(
                "{} {}",
                GIVEN[of(1, GIVEN.len() as u64) as usize],
                FAMILY[of(2, FAMILY.len() as u64) as usize]
            ),
            team: of(3, TEAMS),
            city: of(4, CITIES),
            age: 18 + of(5, 70),
            score: of(6, SCORES),
            active: of(7, 2) == 0,
            tags: [0, 1, 2].map(|tag| of(8 + tag, TAGS)),
            skus: [0, 1, 2].map(|order| of(11 + order, SKUS)),
            bio: bio(number),
        }
    }

    pub fn json(&self) -> String {
        let Person { id, tenant, name, team, city, age, score, active, tags, skus, bio } = self;
        let orders: Vec<String> = skus
            .iter()
            .enumerate()
            .map(|(index, sku)| {
                let (quantity, cents) = (1 + (sku + index as u64) % 9, 100 + sku % 9000);
                format!(
                    r#"{{"sku":"sku-{sku}","quantity":{quantity},"price":{}.{:02}}}"#,
                    cents / 100,
                    cents % 100
                )
            })
            .collect();
        format!(
            r#"{{"id":"{id}","tenant":"{tenant}","name":"{name}","email":"{}@example.org","team":"team-{team}","city":"city-{city}","age":{age},"score":{score},"active":{active},"joined":"20{:02}-{:02}-{:02}T08:30:00Z","address":{{"street":"{} street","number":{},"postcode":"{:05}"}},"tags":["tag-{}","tag-{}","tag-{}"],"orders":[{}],"bio":"{bio}"}}"#,
            name.to_lowercase().replace(' ', "."),
            10 + team % 15,
            1 + city % 12,
            1 + age % 28,
            WORDS[(score % 32) as usize],
            1 + score % 200,
            score % 100_000,
            tags[0],
            tags[1],
            tags[2],
            orders.join(",")
        )
    }
}

/// Some four hundred bytes of plain words, one of them rare.
fn bio(number: u64) -> String {
    let words: Vec<&str> = (0..54).map(|at| WORDS[draw(number, 100 + at, 32) as usize]).collect();
    format!("{} rare{} {}", words[..27].join(" "), draw(number, 99, RARE_WORDS), words[27..].join(" "))
}

/// A container with the default policy, and the people in it.
pub fn load(address: &Address, people: std::ops::Range<u64>) -> Result<()> {
    create_container(address, "")?;
    create_all(address, people, create)
}

/// The database and the container of the people. `policy` is what the definition has behind the partition key.
pub fn create_container(address: &Address, policy: &str) -> Result<()> {
    let database = Signer::well_known().request("POST", "/dbs", ("dbs", ""), JSON, br#"{"id":"bench"}"#);
    ensure!(Connection::open_at(address)?.status(&database)? == 201, "the database is not created");
    create_another(address, "people", policy)
}

/// Another container in the same database.
pub fn create_another(address: &Address, id: &str, policy: &str) -> Result<()> {
    let signer = Signer::well_known();
    let mut connection = Connection::open_at(address)?;
    let definition = format!(
        r#"{{"id":"{id}","partitionKey":{{"paths":["/tenant"],"kind":"Hash","version":2}}{policy}}}"#
    );
    let request =
        signer.request("POST", "/dbs/bench/colls", ("colls", DATABASE), JSON, definition.as_bytes());
    ensure!(connection.status(&request)? == 201, "the container is not created");
    Ok(())
}

/// One request for each number, over 16 connections.
pub fn create_all(
    address: &Address,
    numbers: std::ops::Range<u64>,
    make: fn(&Signer, u64) -> Vec<u8>,
) -> Result<()> {
    const THREADS: u64 = 16;
    let started = Instant::now();
    let count = numbers.end - numbers.start;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (numbers, address) = (numbers.clone(), address.clone());
            std::thread::spawn(move || -> Result<()> {
                let signer = Signer::well_known();
                let mut connection = Connection::open_at(&address)?;
                for number in numbers.skip(thread as usize).step_by(THREADS as usize) {
                    let status = connection.status(&make(&signer, number))?;
                    ensure!(status == 201, "creating item {number} answered {status}");
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a client thread does not panic")?;
    }
    eprintln!("loaded {count} items in {:.1?}", started.elapsed());
    Ok(())
}

pub fn create(signer: &Signer, number: u64) -> Vec<u8> {
    let person = Person::numbered(number);
    create_request(signer, CONTAINER, &person.tenant, &person.json())
}

pub fn create_request(signer: &Signer, container: &str, tenant: &str, json: &str) -> Vec<u8> {
    let headers = format!("{JSON}{}", key_header(tenant));
    signer.request("POST", &format!("/{container}/docs"), ("docs", container), &headers, json.as_bytes())
}

pub fn key_header(tenant: &str) -> String {
    format!("x-ms-documentdb-partitionkey: [\"{tenant}\"]\r\n")
}
