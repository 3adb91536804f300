//! Names and texts: invented, and put together at random.

use super::session::Random;

const FIRST: &[&str] = &[
    "Mira", "Jonas", "Elif", "Tomas", "Ines", "Karim", "Sofie", "Bruno", "Leila", "Oskar", "Nadia", "Felix",
    "Yara", "Hugo", "Amelie", "Viktor", "Paula", "Emre", "Klara", "Ruben", "Selma", "Anton", "Dunja",
    "Matteo", "Ronja", "Idris", "Lotte", "Pavel", "Greta", "Samir", "Helena", "Arne", "Zora", "Luca",
    "Marit", "Dario",
];
const LAST: &[&str] = &[
    "Hollis",
    "Brandt",
    "Okafor",
    "Lindqvist",
    "Moreau",
    "Hadzic",
    "Winter",
    "Castell",
    "Novak",
    "Ferrante",
    "Aydin",
    "Bergman",
    "Keller",
    "Duarte",
    "Ivers",
    "Petrov",
    "Sandoval",
    "Tamm",
    "Ritter",
    "Vaughn",
    "Zeman",
    "Olander",
    "Quist",
    "Marchetti",
    "Eriksen",
    "Farkas",
    "Gruber",
    "Haddad",
    "Jansen",
    "Kowal",
    "Leitner",
    "Mokrane",
    "Nowik",
    "Palmer",
    "Rosen",
    "Steiner",
];
const NOUNS: &[&str] = &[
    "river",
    "garden",
    "signal",
    "harbour",
    "letter",
    "mountain",
    "engine",
    "orchard",
    "window",
    "compass",
    "bridge",
    "lantern",
    "forest",
    "kitchen",
    "market",
    "island",
    "winter",
    "archive",
    "station",
    "meadow",
    "quarry",
    "cathedral",
    "observatory",
    "ferry",
    "workshop",
    "library",
    "valley",
    "tunnel",
    "granary",
    "shore",
];
const ADJECTIVES: &[&str] = &[
    "quiet",
    "northern",
    "borrowed",
    "last",
    "copper",
    "hidden",
    "slow",
    "distant",
    "paper",
    "early",
    "broken",
    "green",
    "second",
    "empty",
    "narrow",
    "brief",
    "open",
    "salted",
    "patient",
    "late",
    "hollow",
    "bright",
    "unwritten",
    "common",
];
const CITIES: &[&str] = &[
    "Graz", "Ghent", "Turku", "Porto", "Brno", "Aarhus", "Trieste", "Lyon", "Leeds", "Gdansk", "Cork",
    "Bergen",
];
const STREETS: &[&str] = &[
    "Mill Lane",
    "Station Road",
    "Harbour Street",
    "Linden Avenue",
    "Church Square",
    "Park Row",
    "Canal Side",
];
const REMARKS: &[&str] = &[
    "Thank you, this helped.",
    "I tried it with a larger set and saw the same.",
    "Could you show the second step in more detail?",
    "We do it the other way round.",
    "The picture in the middle explains it best.",
    "It does not work for me, the last line fails.",
    "Good point about the order.",
    "Please write more about this.",
    "I had to read it twice, but then it was clear.",
    "What would you do with a million of them?",
];

pub(super) fn city(random: &mut Random) -> &'static str {
    random.pick(CITIES)
}

pub(super) fn street(random: &mut Random) -> String {
    format!("{} {}", random.pick(STREETS), 1 + random.below(140))
}

/// The same person for the same number.
pub(super) fn person(number: usize) -> String {
    format!("{} {}", FIRST[number % FIRST.len()], LAST[(number / FIRST.len() + number * 7) % LAST.len()])
}

pub(super) fn random_name(random: &mut Random) -> String {
    person(random.below(FIRST.len() * LAST.len()))
}

pub(super) fn title(random: &mut Random) -> String {
    let title = format!("The {} {}", random.pick(ADJECTIVES), random.pick(NOUNS));
    match random.below(3) {
        0 => format!("{title} and the {}", random.pick(NOUNS)),
        1 => format!("{title} of the {} {}", random.pick(ADJECTIVES), random.pick(NOUNS)),
        _ => title,
    }
}

pub(super) fn random_remark(random: &mut Random) -> &'static str {
    random.pick(REMARKS)
}

/// So many sentences.
pub(super) fn paragraph(random: &mut Random, sentences: usize) -> String {
    let sentence = |random: &mut Random| {
        format!(
            "The {} {} is near the {} {}.",
            random.pick(ADJECTIVES),
            random.pick(NOUNS),
            random.pick(ADJECTIVES),
            random.pick(NOUNS)
        )
    };
    (0..sentences).map(|_| sentence(random)).collect::<Vec<_>>().join(" ")
}

/// A date of the last years.
pub(super) fn date(random: &mut Random) -> String {
    format!("{}-{:02}-{:02}", 2019 + random.below(7), 1 + random.below(12), 1 + random.below(28))
}

/// A time of a day of the last years.
pub(super) fn time(random: &mut Random) -> String {
    format!("{}T{:02}:{:02}:{:02}Z", date(random), random.below(24), random.below(60), random.below(60))
}
