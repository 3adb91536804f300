//! Encoding of values in temporary files. Exact: decoding gives the same value, with the same order of members and
//! the same form of numbers.

use quire_value::{Number, Object, Value};

use crate::error::SqlError;

const UNDEFINED: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const INT: u8 = 4;
const UNSIGNED: u8 = 5;
const DOUBLE: u8 = 6;
const STRING: u8 = 7;
const ARRAY: u8 = 8;
const OBJECT: u8 = 9;

/// LEB128: seven bits per byte, least significant first; the high bit marks that more bytes follow.
pub(crate) fn put_number(number: u64, out: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_double(number: f64, out: &mut Vec<u8>) {
    out.extend(number.to_bits().to_le_bytes());
}

/// Appends the encoded value.
pub(crate) fn put_value(value: &Value, out: &mut Vec<u8>) {
    let tagged = |tag: u8, bytes: [u8; 8], out: &mut Vec<u8>| {
        out.push(tag);
        out.extend(bytes);
    };
    match value {
        Value::Undefined => out.push(UNDEFINED),
        Value::Null => out.push(NULL),
        Value::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Number(Number::Int(value)) => tagged(INT, value.to_le_bytes(), out),
        Value::Number(Number::Unsigned(value)) => tagged(UNSIGNED, value.to_le_bytes(), out),
        Value::Number(Number::Double(value)) => tagged(DOUBLE, value.to_bits().to_le_bytes(), out),
        Value::String(text) => {
            out.push(STRING);
            put_bytes(text.as_bytes(), out);
        }
        Value::Array(elements) => {
            out.push(ARRAY);
            put_number(elements.len() as u64, out);
            elements.iter().for_each(|element| put_value(element, out));
        }
        Value::Object(object) => {
            out.push(OBJECT);
            put_number(object.len() as u64, out);
            for (name, value) in object.iter() {
                put_bytes(name.as_bytes(), out);
                put_value(value, out);
            }
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes fields from the front.
pub(crate) struct Fields<'b>(pub &'b [u8]);

impl Fields<'_> {
    pub fn number(&mut self) -> Result<u64, SqlError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(invalid_record)?;
            self.0 = rest;
            number |= u64::from(*byte & 0x7F) << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(invalid_record())
    }

    fn bits(&mut self) -> Result<u64, SqlError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(invalid_record)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub fn double(&mut self) -> Result<f64, SqlError> {
        Ok(f64::from_bits(self.bits()?))
    }

    pub fn flag(&mut self) -> Result<bool, SqlError> {
        let (byte, rest) = self.0.split_first().ok_or_else(invalid_record)?;
        self.0 = rest;
        Ok(*byte != 0)
    }

    fn text(&mut self) -> Result<String, SqlError> {
        let length = usize::try_from(self.number()?).map_err(|_| invalid_record())?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(invalid_record)?;
        self.0 = rest;
        String::from_utf8(bytes.to_vec()).map_err(|_| invalid_record())
    }

    pub fn value(&mut self) -> Result<Value, SqlError> {
        let (tag, rest) = self.0.split_first().ok_or_else(invalid_record)?;
        self.0 = rest;
        Ok(match *tag {
            UNDEFINED => Value::Undefined,
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            INT => Value::Number(Number::Int(self.bits()? as i64)),
            UNSIGNED => Value::Number(Number::Unsigned(self.bits()?)),
            DOUBLE => Value::Number(Number::Double(self.double()?)),
            STRING => Value::String(self.text()?),
            ARRAY => {
                let count = self.number()?;
                Value::Array((0..count).map(|_| self.value()).collect::<Result<Vec<Value>, SqlError>>()?)
            }
            OBJECT => {
                let count = self.number()?;
                let members = (0..count).map(|_| Ok((self.text()?, self.value()?)));
                Value::Object(
                    members
                        .collect::<Result<Vec<(String, Value)>, SqlError>>()?
                        .into_iter()
                        .collect::<Object>(),
                )
            }
            _ => return Err(invalid_record()),
        })
    }
}

pub(crate) fn invalid_record() -> SqlError {
    SqlError::TempIo { message: "a record cannot be decoded".to_owned() }
}
