//! Batches in the binary form of the .NET client: HybridRow rows in a RecordIO stream, both ways.
//!
//! A stream is a segment header row, then for every operation or result a record header row and the row itself:
//!
//! | row            | bytes                                                                                          |
//! |----------------|------------------------------------------------------------------------------------------------|
//! | segment header | `81`, schema `F0 D8 FF 7F`, `01`, i32 length of this row (10, or more with comments: skipped)   |
//! | record header  | `81`, schema `F1 D8 FF 7F`, i32 length of the row behind it, u32 CRC-32 of it                   |
//! | operation      | `81`, schema `70 54 E1 7F`, mask, i32 operation type, i32 resource type (2), variable, sparse   |
//! | result         | `81`, schema `71 54 E1 7F`, mask, i32 status, i32 sub-status, variable, sparse                  |
//!
//! Numbers are little-endian; lengths and tokens are *varuints*, seven bits to a byte, low ones first, the high bit
//! for more. A bit of the mask says whether a field is there; the two numbers have their room in any case.
//!
//! | bit | operation                       | result                 |
//! |-----|---------------------------------|------------------------|
//! | 0   | operation type                  | status                 |
//! | 1   | resource type                   | sub-status             |
//! | 2   | partition key, a JSON text      | ETag                   |
//! | 3   | effective partition key, bytes  | body, bytes            |
//! | 4   | id                              |                        |
//! | 5   | binary id                       |                        |
//! | 6   | body, bytes                     |                        |
//!
//! Fields from bit 2 on are a length and bytes, in this order. Sparse fields follow to the end of the row, in any order:
//! type code, token, value. Operations have 8 indexing directive, 9 if-match, 10 if-none-match, 11 time to live,
//! 12 minimal return preference; a token from 13 on is the length, above 13, of the field's name, which follows. Results
//! have 5 retry after (milliseconds, u32) and 6 request charge (f64).

use bytes::Bytes;

const VERSION: u8 = 0x81;
const SEGMENT: [u8; 4] = [0xF0, 0xD8, 0xFF, 0x7F];
const RECORD: [u8; 4] = [0xF1, 0xD8, 0xFF, 0x7F];
const OPERATION: [u8; 4] = [0x70, 0x54, 0xE1, 0x7F];
const RESULT: [u8; 4] = [0x71, 0x54, 0xE1, 0x7F];

const SEGMENT_BYTES: usize = 10;
const ITEM_RESOURCE: i32 = 2;
/// Tokens from here on are names.
const NAMED: u64 = 13;

const NULL: u8 = 0x01;
const FALSE: u8 = 0x02;
const TRUE: u8 = 0x03;
const UINT32: u8 = 0x0B;
const FLOAT64: u8 = 0x10;
const UTF8: u8 = 0x14;

/// Why a stream cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HybridRowError {
    #[error("the binary batch ends inside {what}")]
    Cut { what: &'static str },
    #[error("the binary batch has {found} where {what} is expected")]
    Unexpected { what: &'static str, found: String },
    #[error("the checksum of operation {index} of the binary batch is wrong")]
    Checksum { index: usize },
    #[error("{field} in a binary batch is not UTF-8")]
    NotUtf8 { field: &'static str },
    #[error("the binary batch has more than {count_max} operations")]
    TooMany { count_max: usize },
}

/// One operation as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperationRow {
    pub operation_type: Option<i32>,
    pub resource_type: Option<i32>,
    pub partition_key: Option<String>,
    pub effective_partition_key: Option<Bytes>,
    pub id: Option<String>,
    pub binary_id: Option<Bytes>,
    pub body: Option<Bytes>,
    pub indexing: Option<String>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub minimal_return: Option<bool>,
    /// A field that was sent and that nothing here can do.
    pub unsupported: Option<String>,
}

/// One result as it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultRow<'a> {
    pub status: u16,
    pub substatus: Option<u32>,
    pub etag: Option<&'a str>,
    pub body: Option<&'a [u8]>,
    pub retry_after_ms: Option<u32>,
    pub charge: f64,
}

/// By the first byte: no JSON text starts like this.
pub(crate) fn is_hybrid_row(body: &[u8]) -> bool {
    body.first() == Some(&VERSION)
}

/// At most `count_max` operations are read; one more is an error.
pub(crate) fn read_operations(stream: &Bytes, count_max: usize) -> Result<Vec<OperationRow>, HybridRowError> {
    let mut reader = Reader { stream, at: 0 };
    reader.segment()?;
    let mut operations = Vec::new();
    while reader.at < stream.len() {
        if reader.schema_ahead() == Some(SEGMENT) {
            reader.segment()?;
            continue;
        }
        if operations.len() == count_max {
            return Err(HybridRowError::TooMany { count_max });
        }
        let row = reader.record(operations.len() + 1)?;
        operations.push(read_operation(&row)?);
    }
    Ok(operations)
}

pub(crate) fn write_results<'a>(results: impl Iterator<Item = ResultRow<'a>>) -> Vec<u8> {
    let mut stream = vec![VERSION];
    stream.extend(SEGMENT);
    stream.push(1);
    stream.extend((SEGMENT_BYTES as i32).to_le_bytes());
    for result in results {
        let row = write_result(&result);
        stream.push(VERSION);
        stream.extend(RECORD);
        stream.extend((row.len() as u32).to_le_bytes());
        stream.extend(crc32fast::hash(&row).to_le_bytes());
        stream.extend(row);
    }
    stream
}

fn write_result(result: &ResultRow<'_>) -> Vec<u8> {
    let present = [true, result.substatus.is_some(), result.etag.is_some(), result.body.is_some()];
    let mask = present.iter().enumerate().fold(0, |mask, (bit, is_there)| mask | u8::from(*is_there) << bit);
    let mut row = vec![VERSION];
    row.extend(RESULT);
    row.push(mask);
    row.extend(i32::from(result.status).to_le_bytes());
    row.extend(result.substatus.unwrap_or(0).to_le_bytes());
    for field in [result.etag.map(str::as_bytes), result.body].into_iter().flatten() {
        write_varuint(field.len() as u64, &mut row);
        row.extend_from_slice(field);
    }
    if let Some(retry_after_ms) = result.retry_after_ms {
        row.extend([UINT32, 5]);
        row.extend(retry_after_ms.to_le_bytes());
    }
    row.extend([FLOAT64, 6]);
    row.extend(result.charge.to_le_bytes());
    row
}

fn write_varuint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_operation(row: &Bytes) -> Result<OperationRow, HybridRowError> {
    let mut reader = Reader { stream: row, at: 0 };
    reader.start(OPERATION, "an operation")?;
    let [mask] = reader.array("a mask")?;
    let has = |bit: u8| mask & 1 << bit != 0;
    let operation_type = Some(i32::from_le_bytes(reader.array("an operation type")?)).filter(|_| has(0));
    let resource_type = Some(i32::from_le_bytes(reader.array("a resource type")?)).filter(|_| has(1));
    if let Some(other) = resource_type.filter(|&kind| kind != ITEM_RESOURCE) {
        return Err(unexpected("the resource type of items", other));
    }
    let mut operation = OperationRow {
        operation_type,
        resource_type,
        partition_key: has(2).then(|| reader.text("a partition key")).transpose()?,
        effective_partition_key: has(3).then(|| reader.bytes("an effective partition key")).transpose()?,
        id: has(4).then(|| reader.text("an id")).transpose()?,
        binary_id: has(5).then(|| reader.bytes("a binary id")).transpose()?,
        body: has(6).then(|| reader.bytes("a body")).transpose()?,
        ..OperationRow::default()
    };
    while reader.at < row.len() {
        reader.sparse(&mut operation)?;
    }
    Ok(operation)
}

fn unexpected(what: &'static str, found: impl ToString) -> HybridRowError {
    HybridRowError::Unexpected { what, found: found.to_string() }
}

struct Reader<'a> {
    stream: &'a Bytes,
    at: usize,
}

enum Sparse {
    Null,
    Bool(bool),
    Text(String),
    /// Of a type that no field which is understood has.
    Other,
}

impl Reader<'_> {
    fn schema_ahead(&self) -> Option<[u8; 4]> {
        self.stream.get(self.at + 1..self.at + 5)?.try_into().ok()
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HybridRowError> {
        let bytes = self.stream.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or(HybridRowError::Cut { what })?;
        self.at += N;
        Ok(bytes)
    }

    /// The next bytes, without a copy.
    fn take(&mut self, len: u64, what: &'static str) -> Result<Bytes, HybridRowError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let end = end.filter(|&end| end <= self.stream.len()).ok_or(HybridRowError::Cut { what })?;
        let taken = self.stream.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn start(&mut self, schema: [u8; 4], what: &'static str) -> Result<(), HybridRowError> {
        let [version] = self.array(what)?;
        if version != VERSION {
            return Err(unexpected("a row of version 81", format!("{version:02x}")));
        }
        let found: [u8; 4] = self.array(what)?;
        if found == schema { Ok(()) } else { Err(unexpected(what, format!("schema {found:02x?}"))) }
    }

    fn segment(&mut self) -> Result<(), HybridRowError> {
        const WHAT: &str = "a segment header";
        let start = self.at;
        self.start(SEGMENT, WHAT)?;
        let [mask] = self.array(WHAT)?;
        let length = i32::from_le_bytes(self.array(WHAT)?);
        let length =
            u64::try_from(length).ok().filter(|&length| mask & 1 == 1 && length >= SEGMENT_BYTES as u64);
        let length = length.ok_or_else(|| unexpected(WHAT, "a bad length"))?;
        self.at = start;
        self.take(length, WHAT)?;
        Ok(())
    }

    fn record(&mut self, index: usize) -> Result<Bytes, HybridRowError> {
        const WHAT: &str = "a record header";
        self.start(RECORD, WHAT)?;
        let length = i32::from_le_bytes(self.array(WHAT)?);
        let checksum = u32::from_le_bytes(self.array(WHAT)?);
        let length = u64::try_from(length).map_err(|_| unexpected(WHAT, "a negative length"))?;
        let row = self.take(length, "a record")?;
        if crc32fast::hash(&row) == checksum { Ok(row) } else { Err(HybridRowError::Checksum { index }) }
    }

    fn varuint(&mut self, what: &'static str) -> Result<u64, HybridRowError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array(what)?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(unexpected(what, "a number beyond 64 bits"))
    }

    fn bytes(&mut self, what: &'static str) -> Result<Bytes, HybridRowError> {
        let length = self.varuint(what)?;
        self.take(length, what)
    }

    fn text(&mut self, what: &'static str) -> Result<String, HybridRowError> {
        let bytes = self.bytes(what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| HybridRowError::NotUtf8 { field: what })
    }

    fn sparse(&mut self, operation: &mut OperationRow) -> Result<(), HybridRowError> {
        let [code] = self.array("a field")?;
        let name = match self.varuint("a field")? {
            8 => "indexingDirective".to_owned(),
            9 => "ifMatch".to_owned(),
            10 => "ifNoneMatch".to_owned(),
            11 => "timeToLiveInSeconds".to_owned(),
            12 => "minimalReturnPreference".to_owned(),
            token if token >= NAMED => {
                let name = self.take(token - NAMED, "a field's name")?;
                String::from_utf8(name.to_vec())
                    .map_err(|_| HybridRowError::NotUtf8 { field: "a field's name" })?
            }
            token => return Err(unexpected("a sparse field", format!("token {token}"))),
        };
        match (name.as_str(), self.value(code)?) {
            (_, Sparse::Null) => {}
            ("indexingDirective", Sparse::Text(text)) => operation.indexing = Some(text),
            ("ifMatch", Sparse::Text(text)) => operation.if_match = Some(text),
            ("ifNoneMatch", Sparse::Text(text)) => operation.if_none_match = Some(text),
            ("minimalReturnPreference", Sparse::Bool(value)) => operation.minimal_return = Some(value),
            _ => operation.unsupported = Some(name),
        }
        Ok(())
    }

    fn value(&mut self, code: u8) -> Result<Sparse, HybridRowError> {
        const WHAT: &str = "a field's value";
        // By type code, from int8 (05) on: those of a fixed length.
        let length = match code {
            NULL => return Ok(Sparse::Null),
            FALSE => return Ok(Sparse::Bool(false)),
            TRUE => return Ok(Sparse::Bool(true)),
            UTF8 => return Ok(Sparse::Text(self.text(WHAT)?)),
            0x15 => self.varuint(WHAT)?,
            0x05 | 0x09 => 1,
            0x06 | 0x0A => 2,
            0x07 | UINT32 | 0x0F => 4,
            0x08 | 0x0C | FLOAT64 => 8,
            _ => return Err(unexpected("a field's type", format!("{code:02x}"))),
        };
        self.take(length, WHAT)?;
        Ok(Sparse::Other)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use quire_storage::random::Random;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ")
    }

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
    }

    /// A stream of rows, as a client frames them.
    fn stream(rows: &[Vec<u8>]) -> Vec<u8> {
        let mut out = bytes("81 F0 D8 FF 7F 01 0A 00 00 00");
        for row in rows {
            out.extend(bytes("81 F1 D8 FF 7F"));
            out.extend((row.len() as u32).to_le_bytes());
            out.extend(crc32fast::hash(row).to_le_bytes());
            out.extend(row);
        }
        out
    }

    /// Create in `["p"]` with a body and every option.
    fn full_row() -> Vec<u8> {
        let mut row = bytes("81 70 54 E1 7F 57 00 00 00 00 02 00 00 00");
        for field in [&b"[\"p\"]"[..], b"i", b"{\"id\":\"i\",\"pk\":\"p\"}"] {
            row.push(field.len() as u8);
            row.extend(field);
        }
        row.extend(bytes("14 08 07"));
        row.extend(b"Exclude");
        row.extend(bytes("14 09 03 22 65 22 14 0A 01 2A 03 0C"));
        row
    }

    fn read(stream: Vec<u8>) -> Result<Vec<OperationRow>, HybridRowError> {
        read_operations(&Bytes::from(stream), 100)
    }

    #[test]
    fn operations() {
        let delete = bytes("81 70 54 E1 7F 13 04 00 00 00 02 00 00 00 02 69 32");
        expect![[r#"
            [
                OperationRow {
                    operation_type: Some(
                        0,
                    ),
                    resource_type: Some(
                        2,
                    ),
                    partition_key: Some(
                        "[\"p\"]",
                    ),
                    effective_partition_key: None,
                    id: Some(
                        "i",
                    ),
                    binary_id: None,
                    body: Some(
                        b"{\"id\":\"i\",\"pk\":\"p\"}",
                    ),
                    indexing: Some(
                        "Exclude",
                    ),
                    if_match: Some(
                        "\"e\"",
                    ),
                    if_none_match: Some(
                        "*",
                    ),
                    minimal_return: Some(
                        true,
                    ),
                    unsupported: None,
                },
                OperationRow {
                    operation_type: Some(
                        4,
                    ),
                    resource_type: Some(
                        2,
                    ),
                    partition_key: None,
                    effective_partition_key: None,
                    id: Some(
                        "i2",
                    ),
                    binary_id: None,
                    body: None,
                    indexing: None,
                    if_match: None,
                    if_none_match: None,
                    minimal_return: None,
                    unsupported: None,
                },
            ]
        "#]]
        .assert_debug_eq(&read(stream(&[full_row(), delete])).expect("reads"));
    }

    #[test]
    fn segments_with_comments_and_between_records() {
        let mut long = bytes("81 F0 D8 FF 7F 01 0E 00 00 00 14 02 01 78");
        long.extend(stream(&[full_row()]));
        assert_eq!(read(long).expect("reads").len(), 1);
        assert_eq!(read(stream(&[])).expect("reads"), []);
    }

    #[test]
    fn named_and_unsupported_fields() {
        let with = |tail: &[u8]| {
            let mut row = bytes("81 70 54 E1 7F 03 02 00 00 00 02 00 00 00");
            row.extend(tail);
            read(stream(&[row])).map(|mut rows| rows.remove(0))
        };
        let named = with(&[&[0x14, 13 + 7][..], b"ifMatch", b"\x01e"].concat()).expect("reads");
        assert_eq!(named.if_match.as_deref(), Some("e"));
        let time_to_live = with(&bytes("07 0B 05 00 00 00")).expect("reads");
        assert_eq!(time_to_live.unsupported.as_deref(), Some("timeToLiveInSeconds"));
        assert_eq!(with(&bytes("01 0B")).expect("a null is nothing").unsupported, None);
        assert!(with(&bytes("14 05 00")).is_err() && with(&bytes("7E 09")).is_err());
    }

    /// The example of the reference, and everything that a result can have.
    #[test]
    fn golden_results() {
        let plain = ResultRow { status: 201, etag: Some("x"), charge: 1.0, ..ResultRow::default() };
        assert_eq!(
            hex(&write_result(&plain)),
            "81 71 54 E1 7F 05 C9 00 00 00 00 00 00 00 01 78 10 06 00 00 00 00 00 00 F0 3F"
        );
        let full = ResultRow {
            status: 429,
            substatus: Some(3200),
            etag: None,
            body: Some(b"{}"),
            retry_after_ms: Some(10),
            charge: 0.5,
        };
        let results = write_results([plain, full].into_iter());
        // Made by hand, with the checksums of zlib.
        assert_eq!(
            hex(&results),
            "81 F0 D8 FF 7F 01 0A 00 00 00 81 F1 D8 FF 7F 1A 00 00 00 F9 C6 D2 7E 81 71 54 E1 7F 05 C9 00 00 00 00 00 00 00 01 78 10 06 00 00 00 00 00 00 F0 3F 81 F1 D8 FF 7F 21 00 00 00 86 DA 5B 1B 81 71 54 E1 7F 0B AD 01 00 00 80 0C 00 00 02 7B 7D 0B 05 0A 00 00 00 10 06 00 00 00 00 00 00 E0 3F"
        );
    }

    #[test]
    fn long_fields_have_longer_lengths() {
        let body = vec![b' '; 300];
        let mut row = bytes("81 70 54 E1 7F 43 00 00 00 00 02 00 00 00 AC 02");
        row.extend(&body);
        assert_eq!(read(stream(&[row])).expect("reads")[0].body.as_deref(), Some(&body[..]));
        let result = ResultRow { status: 200, body: Some(&body), ..ResultRow::default() };
        assert_eq!(&write_result(&result)[14..16], bytes("AC 02"));
    }

    #[test]
    fn limits() {
        let rows = vec![full_row(); 3];
        let read = |count_max| read_operations(&Bytes::from(stream(&rows)), count_max);
        assert_eq!(read(3).expect("reads").len(), 3);
        assert_eq!(read(2), Err(HybridRowError::TooMany { count_max: 2 }));
    }

    #[test]
    fn what_is_cut_or_changed_is_an_error() {
        let whole = stream(&[full_row()]);
        for end in 0..whole.len() {
            if end != SEGMENT_BYTES {
                read(whole[..end].to_vec()).expect_err("it is cut");
            }
        }
        for at in SEGMENT_BYTES..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            read(changed).expect_err("a checksum or a length is wrong");
        }
    }

    /// Rows whose checksum holds whatever is in them: every error or none, never a panic.
    #[test]
    fn mutated_rows_never_panic() {
        let mut numbers = Random(7);
        let mut random = |limit: usize| numbers.below(limit);
        let (mut read_well, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut row = full_row();
            for _ in 0..1 + random(4) {
                let at = random(row.len());
                match random(4) {
                    0 => row[at] = random(256) as u8,
                    1 => row[at] ^= 1 << random(8),
                    2 => row.truncate(at.max(1)),
                    _ => row.insert(at, [0, 0x7F, 0x80, 0xFF][random(4)]),
                }
            }
            match read(stream(&[row])) {
                Ok(_) => read_well += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(read_well > 100 && refused > 1000, "{read_well} and {refused}");
    }
}
