//! LIKE and regular expressions.

use super::json::{Json, JsonOrUndefined};

enum PatternPart {
    /// `%`
    Any,
    /// `_`
    One,
    Set {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
    Letter(char),
}

/// Whether the whole text is like the pattern.
pub fn like(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let text: Vec<char> = text.chars().collect();
    matches(&text, &parts(pattern, escape))
}

fn parts(pattern: &str, escape: Option<char>) -> Vec<PatternPart> {
    let letters: Vec<char> = pattern.chars().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        at += 1;
        if Some(letter) == escape && at < letters.len() {
            parts.push(PatternPart::Letter(letters[at]));
            at += 1;
            continue;
        }
        parts.push(match letter {
            '%' => PatternPart::Any,
            '_' => PatternPart::One,
            '[' => match set(&letters[at..]) {
                Some((set, length)) => {
                    at += length;
                    set
                }
                None => PatternPart::Letter('['),
            },
            letter => PatternPart::Letter(letter),
        });
    }
    parts
}

/// What stands between brackets, and how long it is with the closing one.
fn set(letters: &[char]) -> Option<(PatternPart, usize)> {
    let negated = letters.first() == Some(&'^');
    let start = usize::from(negated);
    let end = start + letters[start..].iter().position(|letter| *letter == ']')?;
    let inside = &letters[start..end];
    if inside.is_empty() {
        return None;
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < inside.len() {
        if at + 2 < inside.len() && inside[at + 1] == '-' {
            ranges.push((inside[at], inside[at + 2]));
            at += 3;
        } else {
            ranges.push((inside[at], inside[at]));
            at += 1;
        }
    }
    Some((PatternPart::Set { ranges, negated }, end + 1))
}

fn matches(text: &[char], parts: &[PatternPart]) -> bool {
    // `done[n]`: the parts so far match the first n letters.
    let mut done = vec![false; text.len() + 1];
    done[0] = true;
    for part in parts {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            next[at] = match part {
                PatternPart::Any => done[..=at].contains(&true),
                PatternPart::One => at > 0 && done[at - 1],
                PatternPart::Letter(letter) => at > 0 && done[at - 1] && text[at - 1] == *letter,
                PatternPart::Set { ranges, negated } => {
                    at > 0
                        && done[at - 1]
                        && ranges.iter().any(|(low, high)| (*low..=*high).contains(&text[at - 1])) != *negated
                }
            };
        }
        done = next;
    }
    done[text.len()]
}

pub fn regex(name: &str, values: &[Json]) -> JsonOrUndefined {
    let (text, pattern) = (values[0].as_str()?, values[1].as_str()?);
    let modifiers = match values.get(2) {
        Some(modifiers) => modifiers.as_str()?,
        None => "",
    };
    if !modifiers.chars().all(|modifier| "msix".contains(modifier)) {
        return None;
    }
    let has = |modifier: char| modifiers.contains(modifier);
    let regex = regex::RegexBuilder::new(pattern)
        .multi_line(has('m'))
        .dot_matches_new_line(has('s'))
        .case_insensitive(has('i'))
        .ignore_whitespace(has('x'))
        .build()
        .ok()?;
    let group = |captures: &regex::Captures<'_>, group: &Json| {
        let group = usize::try_from(group.as_i64()?).ok()?;
        captures.get(group).map(|found| Json::text(found.as_str()))
    };
    match name {
        "REGEXMATCH" => Some(Json::Bool(regex.is_match(text))),
        "REGEXEXTRACT" => group(&regex.captures(text)?, values.get(3).unwrap_or(&Json::Integer(0))),
        _ => {
            let whole = [Json::Integer(0)];
            let groups = match values.get(3) {
                Some(groups) => groups.as_array()?,
                None => &whole,
            };
            let all = regex.captures_iter(text).map(|captures| {
                Json::Array(groups.iter().filter_map(|index| group(&captures, index)).collect())
            });
            Some(Json::Array(all.collect()))
        }
    }
}
