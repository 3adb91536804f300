//! Rows with a checksum: those of the catalog, and others that are written rarely.
//!
//! Format (1 byte, now 1), CRC-32 of key and rest (4 bytes), rest. Integers in the rest are little-endian, a list or text has
//! its length (4 bytes) before it.

use crate::api::{EngineError, corrupt};

const ROW_FORMAT: u8 = 1;

pub(crate) fn seal(key: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut row = vec![ROW_FORMAT];
    row.extend(checksum(key, rest).to_le_bytes());
    row.extend(rest);
    row
}

pub(crate) fn open<'a>(key: &[u8], bytes: &'a [u8]) -> Result<FieldReader<'a>, EngineError> {
    let mut reader = FieldReader { rest: bytes };
    let [format] = reader.array()?;
    if format != ROW_FORMAT {
        return Err(corrupt(format!("a row of format {format}")));
    }
    if reader.u32()? != checksum(key, reader.rest) {
        return Err(corrupt(format!("checksum of the row {key:02x?}")));
    }
    Ok(reader)
}

pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend(length(text.len()));
    out.extend(text);
}

/// Of a list or text.
pub(crate) fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a catalog row is far below 4 GB").to_le_bytes()
}

fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

/// Takes fields off the front.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], EngineError> {
        let (front, rest) = self.rest.split_first_chunk().ok_or_else(|| corrupt("a row is too short"))?;
        self.rest = rest;
        Ok(*front)
    }
    pub fn u32(&mut self) -> Result<u32, EngineError> {
        self.array().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Result<u64, EngineError> {
        self.array().map(u64::from_le_bytes)
    }
    pub fn i64(&mut self) -> Result<i64, EngineError> {
        self.array().map(i64::from_le_bytes)
    }
    pub fn bytes(&mut self) -> Result<&'a [u8], EngineError> {
        let length = self.u32()? as usize;
        let (front, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| corrupt("a row is too short"))?;
        self.rest = rest;
        Ok(front)
    }
    pub fn string(&mut self) -> Result<String, EngineError> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| corrupt("text in a row"))
    }
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut FieldReader<'a>) -> Result<T, EngineError>,
    ) -> Result<Vec<T>, EngineError> {
        let count = self.u32()?;
        (0..count).map(|_| read(self)).collect()
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn end(&self) -> Result<(), EngineError> {
        if self.rest.is_empty() { Ok(()) } else { Err(corrupt("a row is too long")) }
    }
}
