//! People with their addresses and contact details inside: few, bounded and seldom changed. Nothing is wrong with it.

use quire_engine::EngineError;

use super::session::{Random, Session};
use super::words;

const PEOPLE: usize = 400;
const REQUESTS: usize = 1_800;

pub(super) fn run(session: &mut Session<'_>) -> Result<(), EngineError> {
    let people: Vec<String> = (0..PEOPLE).map(|number| person(number, &mut session.random)).collect();
    session.load(0, &people)?;
    for step in 0..REQUESTS {
        session.at(step, REQUESTS);
        let id = id(session.random.below(PEOPLE));
        match session.random.below(40) {
            0 => change_address(session, &id)?,
            1 => {
                session.query(0, "SELECT c.id, c.name FROM c WHERE c.name = @value", &words::person(step))?
            }
            _ => session.read(0, &id)?,
        }
    }
    Ok(())
}

fn id(number: usize) -> String {
    format!("person-{number:04}")
}

fn person(number: usize, random: &mut Random) -> String {
    let addresses = (0..1 + random.below(3)).map(|place| address(["home", "work", "holiday"][place], random));
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let phone = format!(
        r#"{{"type":"phone","number":"+43 555 {:04}","extension":{}}}"#,
        random.below(9_999),
        random.below(90)
    );
    let details = [
        format!(r#"{{"type":"mail","address":"person{number}@example.org"}}"#),
        phone,
        format!(r#"{{"type":"site","url":"https://example.org/~{number}","language":"en"}}"#),
    ];
    let details = details[..1 + random.below(3)].join(",");
    let (id, name) = (id(number), words::person(number));
    format!(r#"{{"id":"{id}","name":"{name}","addresses":[{addresses}],"contactDetails":[{details}]}}"#)
}

fn address(kind: &str, random: &mut Random) -> String {
    let (street, city) = (words::street(random), words::city(random));
    format!(r#"{{"type":"{kind}","street":"{street}","city":"{city}"}}"#)
}

fn change_address(session: &mut Session<'_>, id: &str) -> Result<(), EngineError> {
    let address = address("home", &mut session.random);
    session.patch(0, id, &[format!(r#"{{"op":"set","path":"/addresses/0","value":{address}}}"#)])
}
