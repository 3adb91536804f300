//! JSON values as the interpreter has them: equality, order and text by its own rules. `undefined` is `None`.

use std::cmp::Ordering;
use std::fmt::Write as _;

use quire_value::{Number, Value};

/// What an expression is; `None` is `undefined`.
pub type JsonOrUndefined = Option<Json>;

#[derive(Clone, Debug)]
pub enum Json {
    Null,
    Bool(bool),
    /// Integers that fit 64 bits, signed or not.
    Integer(i128),
    /// Everything else, NaN and infinities included.
    Double(f64),
    String(String),
    Array(Vec<Json>),
    /// In the order written, names unique.
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn number(value: f64) -> Json {
        let is_integer = value.trunc() == value && (-9.3e18..1.9e19).contains(&value);
        let negative_zero = value == 0.0 && value.is_sign_negative();
        if is_integer && !negative_zero && fits_64_bits(value as i128) {
            Json::Integer(value as i128)
        } else {
            Json::Double(value)
        }
    }

    pub fn text(text: &str) -> Json {
        Json::String(text.to_owned())
    }

    pub fn of(value: &Value) -> JsonOrUndefined {
        Some(match value {
            Value::Undefined => return None,
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(Number::Int(value)) => Json::Integer(i128::from(*value)),
            Value::Number(Number::Unsigned(value)) => Json::Integer(i128::from(*value)),
            Value::Number(Number::Double(value)) => Json::number(*value),
            Value::String(text) => Json::String(text.clone()),
            Value::Array(elements) => Json::Array(elements.iter().filter_map(Json::of).collect()),
            Value::Object(object) => Json::Object(
                object.iter().filter_map(|(name, value)| Some((name.to_owned(), Json::of(value)?))).collect(),
            ),
        })
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Json::Bool(value) = self { Some(*value) } else { None }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Integer(value) => Some(*value as f64),
            Json::Double(value) => Some(*value),
            _ => None,
        }
    }

    /// An integer value, however it is written.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Json::Integer(value) => Some(*value),
            Json::Double(value) if *value == 0.0 => Some(0),
            _ => None,
        }
    }

    /// An integer value of 64 bits with a sign.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_integer().and_then(|value| i64::try_from(value).ok())
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Json::String(text) = self { Some(text) } else { None }
    }

    pub fn as_array(&self) -> Option<&[Json]> {
        if let Json::Array(elements) = self { Some(elements) } else { None }
    }

    pub fn as_object(&self) -> Option<&[(String, Json)]> {
        if let Json::Object(members) = self { Some(members) } else { None }
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        self.as_object()?.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub fn is_number(&self) -> bool {
        self.as_f64().is_some()
    }

    pub fn is_primitive(&self) -> bool {
        !matches!(self, Json::Array(_) | Json::Object(_))
    }

    /// Null, booleans, numbers, strings, arrays, objects.
    fn type_rank(&self) -> u8 {
        match self {
            Json::Null => 0,
            Json::Bool(_) => 1,
            Json::Integer(_) | Json::Double(_) => 2,
            Json::String(_) => 3,
            Json::Array(_) => 4,
            Json::Object(_) => 5,
        }
    }

    pub fn same_type(&self, other: &Json) -> bool {
        self.type_rank() == other.type_rank()
    }

    /// `=`: different types are different; arrays by their elements; objects whatever the order of their members.
    pub fn equals(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Null, Json::Null) => true,
            (Json::Bool(left), Json::Bool(right)) => left == right,
            (Json::String(left), Json::String(right)) => left == right,
            (Json::Array(left), Json::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.equals(right))
            }
            (Json::Object(left), Json::Object(right)) => {
                left.len() == right.len()
                    && left
                        .iter()
                        .all(|(name, value)| other.get(name).is_some_and(|other| value.equals(other)))
            }
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        }
    }

    /// Whether anything in it has no JSON form.
    pub fn has_non_finite(&self) -> bool {
        match self {
            Json::Double(value) => !value.is_finite(),
            Json::Array(elements) => elements.iter().any(Json::has_non_finite),
            Json::Object(members) => members.iter().any(|(_, value)| value.has_non_finite()),
            _ => false,
        }
    }

    /// Compact JSON.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Integer(value) => write!(out, "{value}").expect("text grows"),
            Json::Double(value) => out.push_str(&double_text(*value)),
            Json::String(text) => write_string(text, out),
            Json::Array(elements) => {
                out.push('[');
                for (nth, element) in elements.iter().enumerate() {
                    out.push_str(if nth > 0 { "," } else { "" });
                    element.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (nth, (name, value)) in members.iter().enumerate() {
                    out.push_str(if nth > 0 { "," } else { "" });
                    write_string(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn fits_64_bits(value: i128) -> bool {
    i64::try_from(value).is_ok() || u64::try_from(value).is_ok()
}

/// Shortest digits that read back as the same; zero has no sign.
fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    serde_json::Number::from_f64(value).map_or(String::new(), |number| number.to_string())
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("strings have a JSON form"));
}

/// `None` when one is no number or not a number at all.
pub fn compare_numbers(left: &Json, right: &Json) -> Option<Ordering> {
    match (left, right) {
        (Json::Integer(left), Json::Integer(right)) => Some(left.cmp(right)),
        (Json::Integer(left), Json::Double(right)) => compare_exactly(*left, *right),
        (Json::Double(left), Json::Integer(right)) => compare_exactly(*right, *left).map(Ordering::reverse),
        (Json::Double(left), Json::Double(right)) => left.partial_cmp(right),
        _ => None,
    }
}

/// Without rounding the integer.
fn compare_exactly(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double.abs() > 1e20 {
        return Some(if double > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = double.floor();
    let order = integer.cmp(&(whole as i128));
    Some(if order == Ordering::Equal && double > whole { Ordering::Less } else { order })
}

/// `<` and its kin: undefined for different types, arrays and objects; nothing is less or more than NaN.
pub fn compare_same(left: &Json, right: &Json) -> Option<Option<Ordering>> {
    if !left.same_type(right) {
        return None;
    }
    match (left, right) {
        (Json::Null, Json::Null) => Some(Some(Ordering::Equal)),
        (Json::Bool(left), Json::Bool(right)) => Some(Some(left.cmp(right))),
        (Json::String(left), Json::String(right)) => Some(Some(left.cmp(right))),
        (Json::Array(_), _) | (Json::Object(_), _) => None,
        _ => Some(compare_numbers(left, right)),
    }
}

/// The order of ORDER BY, MIN and MAX: undefined, null, booleans, numbers, strings, arrays, objects.
pub fn total_order(left: &JsonOrUndefined, right: &JsonOrUndefined) -> Ordering {
    let (Some(left), Some(right)) = (left, right) else { return left.is_some().cmp(&right.is_some()) };
    if !left.same_type(right) {
        return left.type_rank().cmp(&right.type_rank());
    }
    match compare_same(left, right) {
        Some(Some(order)) => order,
        Some(None) => left.as_f64().map_or(0.0, |v| v).total_cmp(&right.as_f64().map_or(0.0, |v| v)),
        None => super::hash::order_key(left).cmp(&super::hash::order_key(right)),
    }
}

/// Equality of DISTINCT and GROUP BY, where undefined equals itself.
pub fn same(left: &JsonOrUndefined, right: &JsonOrUndefined) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => left.equals(right),
        _ => false,
    }
}

/// JSON text to a value; `None` for anything else. Only what JSON allows, with space around it.
pub fn parse(text: &str) -> JsonOrUndefined {
    let mut reader = JsonReader { text: text.as_bytes(), at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    (reader.at == text.len()).then_some(value)
}

struct JsonReader<'t> {
    text: &'t [u8],
    at: usize,
}

const DEPTH_MAX: usize = 200;

impl JsonReader<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        self.space();
        let found = self.peek() == wanted;
        self.at += usize::from(found);
        found.then_some(())
    }

    fn word(&mut self, word: &str, value: Json) -> JsonOrUndefined {
        let found = self.text[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(value)
    }

    fn value(&mut self, depth: usize) -> JsonOrUndefined {
        self.space();
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek() {
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'"' => self.string().map(Json::String),
            b'[' => self.array(depth),
            b'{' => self.object(depth),
            _ => self.number(),
        }
    }

    fn array(&mut self, depth: usize) -> JsonOrUndefined {
        let mut elements = Vec::new();
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.take(b']').is_some() {
                return Some(Json::Array(elements));
            }
            self.take(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> JsonOrUndefined {
        let mut members: Vec<(String, Json)> = Vec::new();
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.take(b':')?;
            let value = self.value(depth + 1)?;
            if members.iter().any(|(own, _)| *own == name) {
                return None;
            }
            members.push((name, value));
            if self.take(b'}').is_some() {
                return Some(Json::Object(members));
            }
            self.take(b',')?;
        }
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        if self.peek() != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        let text = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
        serde_json::from_str(text).ok()
    }

    fn number(&mut self) -> JsonOrUndefined {
        let start = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).ok()?;
        number_of(text)
    }
}

/// A number as JSON writes it.
fn number_of(text: &str) -> JsonOrUndefined {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.split(['.', 'e', 'E']).next().unwrap_or("");
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    let rest = &digits[whole.len()..];
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if !fraction.is_empty() && !fraction.strip_prefix('.').is_some_and(is_digits) {
        return None;
    }
    if let Some(exponent) = exponent {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if !is_digits(exponent) {
            return None;
        }
    }
    if rest.is_empty()
        && let Ok(integer) = text.parse::<i128>()
        && fits_64_bits(integer)
    {
        return Some(Json::Integer(integer));
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite()).map(Json::number)
}
