//! What is sent over HTTP.

use std::sync::Arc;

use anyhow::{Result, ensure};
use quire_testkit::http::{Address, Connection, Signer};
use serde_json::{Value, json};

use super::workload::{Operation, Query, Workload};
use super::zipf::Zipf;
use crate::client::NextRequest;
use crate::people::{
    CONTAINER, JSON, PEOPLE, Person, SCORES, TENANTS, create, create_all, create_another, create_request,
    draw, key_header,
};

/// For what writes two items: a counter for each tenant, and new people. Pages of queries end after 100,000 items, so that no
/// other items may lie among the people.
pub const PAIRS: &str = "dbs/bench/colls/pairs";
/// Numbers of people that a timing may create.
const NEW_PEOPLE: u64 = 10_000_000;
pub const SCAN_MAX: u64 = 100;
/// One of so many requests of YCSB E is a create.
pub const SCANS_TO_A_CREATE: u64 = 20;

/// Raises a count and creates an item: as a user would write it.
const ADD_PERSON: &str = r#"function addPerson(person, counter) {
  const collection = getContext().getCollection();
  collection.readDocument(collection.getAltLink() + "/docs/" + counter, (error, found) => {
    if (error) throw error;
    found.count += 1;
    collection.replaceDocument(found._self, found);
    collection.createDocument(collection.getSelfLink(), person, (error, stored) => {
      if (error) throw error;
      getContext().getResponse().setBody(stored.id);
    });
  });
}"#;

/// The people, and in another container a counter for every tenant and the procedure.
pub fn load(address: &Address) -> Result<()> {
    crate::people::load(address, 0..PEOPLE)?;
    create_another(address, "pairs", "")?;
    create_all(address, 0..TENANTS, |signer, tenant| {
        create_request(signer, PAIRS, &format!("tenant-{tenant}"), &counter(tenant))
    })?;
    let path = format!("/{PAIRS}/sprocs");
    let procedure = json!({ "id": "addPerson", "body": ADD_PERSON }).to_string();
    let request = Signer::well_known().request("POST", &path, ("sprocs", PAIRS), JSON, procedure.as_bytes());
    let status = Connection::open_at(address)?.status(&request)?;
    ensure!(status == 201, "creating the procedure answered {status}");
    Ok(())
}

pub fn counter(tenant: u64) -> String {
    format!(r#"{{"id":"counter-{tenant}","tenant":"tenant-{tenant}","count":0}}"#)
}

/// Creates what a timing is going to delete.
pub fn prepare_deletes(address: &Address, timing: u64, count: u64) -> Result<()> {
    let first = first_new(timing);
    create_all(address, first..first + count, create)
}

fn first_new(timing: u64) -> u64 {
    PEOPLE + (1 + timing) * NEW_PEOPLE
}

/// The requests of a timing; timings are numbered, so that none draws what another one drew.
pub fn requests(workload: &'static Workload, timing: u64) -> NextRequest {
    let signer = Signer::well_known();
    let (seed, first) = (timing * NEW_PEOPLE, first_new(timing));
    match &workload.operation {
        Operation::PointRead => Arc::new(move |number| read(&signer, draw(seed + number, 777, PEOPLE))),
        Operation::Query(query) => Arc::new(move |number| {
            query_request(&signer, query, draw(seed + number, 777, query.parameter_below.max(1)))
        }),
        Operation::YcsbA => {
            let zipf = Zipf::over(PEOPLE);
            Arc::new(move |number| {
                let person = zipf.person(seed + number);
                match draw(seed + number, 778, 2) {
                    0 => read(&signer, person),
                    _ => set_name(&signer, person, seed + number),
                }
            })
        }
        Operation::YcsbE => {
            let zipf = Zipf::over(PEOPLE);
            Arc::new(move |number| match draw(seed + number, 778, SCANS_TO_A_CREATE) {
                0 => create(&signer, first + number),
                _ => scan(&signer, zipf.person(seed + number), 1 + draw(seed + number, 779, SCAN_MAX)),
            })
        }
        Operation::Patch => Arc::new(move |number| {
            let score = draw(seed + number, 780, SCORES);
            set_score(&signer, draw(seed + number, 777, PEOPLE), score)
        }),
        Operation::Replace => Arc::new(move |number| {
            let old = Person::numbered(draw(seed + number, 777, PEOPLE));
            let new = Person { id: old.id, tenant: old.tenant, ..Person::numbered(first + number) };
            replace(&signer, &new)
        }),
        Operation::Create => Arc::new(move |number| create(&signer, first + number)),
        Operation::Delete => Arc::new(move |number| delete(&signer, first + number)),
        Operation::Batch => Arc::new(move |number| {
            batch(&signer, draw(seed + number, 777, TENANTS), Person::numbered(first + number))
        }),
        Operation::Procedure => Arc::new(move |number| {
            procedure(&signer, draw(seed + number, 777, TENANTS), Person::numbered(first + number))
        }),
    }
}

fn on_item(signer: &Signer, verb: &str, (id, tenant): (&str, &str), headers: &str, body: &str) -> Vec<u8> {
    in_container(signer, verb, CONTAINER, (id, tenant), headers, body)
}

fn in_container(
    signer: &Signer,
    verb: &str,
    container: &str,
    (id, tenant): (&str, &str),
    headers: &str,
    body: &str,
) -> Vec<u8> {
    let link = format!("{container}/docs/{id}");
    let headers = format!("{headers}{}", key_header(tenant));
    signer.request(verb, &format!("/{link}"), ("docs", &link), &headers, body.as_bytes())
}

fn on_person(signer: &Signer, verb: &str, number: u64, headers: &str, body: &str) -> Vec<u8> {
    let (id, tenant) = (format!("person-{number:08}"), crate::people::tenant(number));
    on_item(signer, verb, (&id, &tenant), headers, body)
}

pub fn read(signer: &Signer, number: u64) -> Vec<u8> {
    on_person(signer, "GET", number, "", "")
}

pub fn read_item(signer: &Signer, container: &str, id: &str, tenant: &str) -> Vec<u8> {
    in_container(signer, "GET", container, (id, tenant), "", "")
}

pub fn delete(signer: &Signer, number: u64) -> Vec<u8> {
    on_person(signer, "DELETE", number, "", "")
}

pub fn replace(signer: &Signer, person: &Person) -> Vec<u8> {
    on_item(signer, "PUT", (&person.id, &person.tenant), JSON, &person.json())
}

pub fn set_score(signer: &Signer, number: u64, score: u64) -> Vec<u8> {
    let patch = format!(r#"{{"operations":[{{"op":"set","path":"/score","value":{score}}}]}}"#);
    on_person(signer, "PATCH", number, JSON, &patch)
}

pub fn set_name(signer: &Signer, number: u64, name: u64) -> Vec<u8> {
    let patch = format!(r#"{{"operations":[{{"op":"set","path":"/name","value":"name {name:020}"}}]}}"#);
    on_person(signer, "PATCH", number, JSON, &patch)
}

pub fn batch(signer: &Signer, tenant: u64, mut person: Person) -> Vec<u8> {
    person.tenant = format!("tenant-{tenant}");
    let headers = format!(
        "{JSON}{}x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n",
        key_header(&person.tenant)
    );
    let body = format!(
        r#"[{{"operationType":"Patch","id":"counter-{tenant}","resourceBody":{{"operations":[{{"op":"incr","path":"/count","value":1}}]}}}},{{"operationType":"Create","resourceBody":{}}}]"#,
        person.json()
    );
    signer.request("POST", &format!("/{PAIRS}/docs"), ("docs", PAIRS), &headers, body.as_bytes())
}

pub fn procedure(signer: &Signer, tenant: u64, mut person: Person) -> Vec<u8> {
    person.tenant = format!("tenant-{tenant}");
    let headers = format!("{JSON}{}", key_header(&person.tenant));
    let link = format!("{PAIRS}/sprocs/addPerson");
    let body = format!(r#"[{},"counter-{tenant}"]"#, person.json());
    signer.request("POST", &format!("/{link}"), ("sprocs", &link), &headers, body.as_bytes())
}

pub fn query_request(signer: &Signer, query: &Query, drawn: u64) -> Vec<u8> {
    let parameters = match query.parameter_below {
        0 => json!([]),
        _ => {
            let value: Value = serde_json::from_str(&(query.parameter)(drawn)).expect("parameters are JSON");
            json!([{ "name": "@p", "value": value }])
        }
    };
    send_query(signer, query.ours, &parameters)
}

pub fn scan(signer: &Signer, first: u64, count: u64) -> Vec<u8> {
    let parameters = json!([
        { "name": "@first", "value": format!("person-{first:08}") }, { "name": "@count", "value": count }
    ]);
    send_query(signer, "SELECT TOP @count * FROM c WHERE c.id >= @first ORDER BY c.id", &parameters)
}

fn send_query(signer: &Signer, text: &str, parameters: &Value) -> Vec<u8> {
    const HEADERS: &str = "content-type: application/query+json\r\nx-ms-documentdb-isquery: true\r\n\
        x-ms-documentdb-query-enablecrosspartition: true\r\nx-ms-documentdb-partitionkeyrangeid: 0\r\n\
        x-ms-max-item-count: -1\r\n";
    let body = json!({ "query": text, "parameters": parameters }).to_string();
    signer.request("POST", &format!("/{CONTAINER}/docs"), ("docs", CONTAINER), HEADERS, body.as_bytes())
}
