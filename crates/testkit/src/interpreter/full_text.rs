//! Full text: words, phrases, fuzzy words, and BM25.

use snowball_stemmers_rs::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_segmentation::UnicodeSegmentation as _;

use super::json::{Json, JsonOrUndefined};

/// `None`: no function of this family.
pub fn call(name: &str, values: &[Json]) -> Option<JsonOrUndefined> {
    Some(match name {
        "FULLTEXTCONTAINS" | "FULLTEXTCONTAINSALL" | "FULLTEXTCONTAINSANY" => contains(name, values),
        "_FULLTEXTWORDCOUNT" => values[0].as_str().map(|text| Json::Integer(length(text) as i128)),
        "_FULLTEXTSCORE" => internal_score(values),
        _ => return None,
    })
}

/// Every word with its place, English stop words left out.
fn words(text: &str) -> Vec<(usize, String)> {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut words = Vec::new();
    for (place, word) in text.unicode_words().enumerate() {
        let plain: String =
            word.nfkc().collect::<String>().replace(['\u{2019}', '\u{FF07}'], "'").to_lowercase();
        if !quire_sql::text::ENGLISH_STOP_WORDS.contains(&plain.as_str()) {
            words.push((place, stemmer.stem(&plain).into_owned()));
        }
    }
    words
}

/// How many words a text has, without those that do not count.
fn length(text: &str) -> usize {
    let plain =
        |word: &str| word.nfkc().collect::<String>().replace(['\u{2019}', '\u{FF07}'], "'").to_lowercase();
    let left_out = [quire_sql::text::ENGLISH_STOP_WORDS, quire_sql::text::ENGLISH_UNCOUNTED_WORDS].concat();
    text.unicode_words().filter(|word| !left_out.contains(&plain(word).as_str())).count()
}

fn contains(name: &str, values: &[Json]) -> JsonOrUndefined {
    let text = values[0].as_str()?;
    let found: Option<Vec<bool>> =
        values[1..].iter().map(|term| occurrences(text, term).map(|count| count > 0)).collect();
    let found = found?;
    let any = name == "FULLTEXTCONTAINSANY";
    Some(Json::Bool(if any { found.contains(&true) } else { !found.contains(&false) }))
}

/// How often a term occurs; `None`: no term. A phrase needs its words in their distances.
fn occurrences(text: &str, term: &Json) -> Option<usize> {
    let (wanted, distance) = match term {
        Json::String(term) => (term.as_str(), 0),
        Json::Object(members) => {
            if members.iter().any(|(name, _)| name != "term" && name != "distance") {
                return None;
            }
            let distance = match term.get("distance") {
                Some(distance) => distance.as_i64().filter(|distance| (0..=2).contains(distance))?,
                None => 0,
            };
            (term.get("term")?.as_str()?, distance as usize)
        }
        _ => return None,
    };
    let (text, wanted) = (words(text), words(wanted));
    let Some((first, _)) = wanted.first() else { return Some(0) };
    let starts = text.iter().filter(|(start, _)| {
        wanted.iter().all(|(place, word)| {
            let at = start + place - first;
            text.iter().any(|(other, found)| *other == at && edits(found, word) <= distance)
        })
    });
    Some(starts.count())
}

/// Letters put in, left out or changed to make one word the other.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (nth, letter) in left.chars().enumerate() {
        let mut next = vec![nth + 1];
        for (at, other) in right.iter().enumerate() {
            let changed = row[at] + usize::from(letter != *other);
            next.push(changed.min(row[at + 1] + 1).min(next[at] + 1));
        }
        row = next;
    }
    row[right.len()]
}

/// What BM25 knows of all texts.
pub struct TextStatistics {
    documents: f64,
    total_words: f64,
    /// Texts with the term, one per term.
    hits: Vec<f64>,
}

impl TextStatistics {
    pub fn of(texts: &[JsonOrUndefined], terms: &[Json]) -> TextStatistics {
        let known: Vec<&str> = texts.iter().filter_map(|text| text.as_ref()?.as_str()).collect();
        let hits = terms.iter().map(|term| {
            known.iter().filter(|text| occurrences(text, term).is_some_and(|count| count > 0)).count() as f64
        });
        TextStatistics {
            documents: texts.len() as f64,
            total_words: known.iter().map(|text| length(text) as f64).sum(),
            hits: hits.collect(),
        }
    }

    /// k1 = 1.2, b = 0.75.
    pub fn score(&self, text: &str, terms: &[Json]) -> Option<f64> {
        let average = if self.documents > 0.0 { self.total_words / self.documents } else { 0.0 };
        let length = if average > 0.0 { length(text) as f64 / average } else { 1.0 };
        let mut score = 0.0;
        for (nth, term) in terms.iter().enumerate() {
            let count = occurrences(text, term)? as f64;
            let hits = self.hits.get(nth).copied().unwrap_or(0.0).clamp(0.0, self.documents.max(0.0));
            let rarity = ((self.documents.max(0.0) - hits + 0.5) / (hits + 0.5) + 1.0).ln();
            score += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length));
        }
        Some(score)
    }
}

/// `(text, [terms], documents, words, [hits])`
fn internal_score(values: &[Json]) -> JsonOrUndefined {
    let hits: Option<Vec<f64>> = values[4].as_array()?.iter().map(Json::as_f64).collect();
    let statistics =
        TextStatistics { documents: values[2].as_f64()?, total_words: values[3].as_f64()?, hits: hits? };
    statistics.score(values[0].as_str()?, values[1].as_array()?).map(Json::number)
}
