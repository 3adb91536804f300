//! Signatures with an account key: the text that is signed, and its date.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{DATE, HeaderName};
use hyper::{HeaderMap, Method};

use super::header::{self, Kind};
use super::{AuthError, KeyKind, Principal};
use crate::state::ServerState;

const X_MS_DATE: HeaderName = HeaderName::from_static("x-ms-date");

/// A date further away than this, before or after, is refused.
const DATE_SKEW_MAX: Duration = Duration::from_secs(15 * 60);
const DATE_BYTES_MAX: usize = 64;
/// The year 9000. Later dates are refused, because `httpdate` panics when it prints the year 10000.
const DATE_MAX: Duration = Duration::from_secs(221_845_392_000);

/// What the signature of a request is about: its verb, and the type and link of what it names. A path of rids may be signed by its
/// last rid; a path whose database only looks like one, by its names.
pub(crate) struct Signed<'a> {
    pub method: &'a Method,
    pub resource_type: &'a str,
    pub link: &'a str,
    pub link_rid: Option<&'a str>,
}

/// The header of a key is short, so it is decoded without an allocation; `None` for all other headers.
pub(super) fn authenticate_short(
    state: &ServerState,
    headers: &HeaderMap,
    signed: &Signed<'_>,
    sent: &[u8],
) -> Option<Result<Principal, AuthError>> {
    let mut buffer = [0; 192];
    let decoded = header::percent_decoded_into(sent, &mut buffer)?;
    match header::split(decoded) {
        Ok((Kind::Master, signature)) => Some(authenticate(state, headers, signed, signature)),
        _ => None,
    }
}

/// `signature` is the base64 text of the header.
pub(super) fn authenticate(
    state: &ServerState,
    headers: &HeaderMap,
    signed: &Signed<'_>,
    signature: &[u8],
) -> Result<Principal, AuthError> {
    let dates = Dates::of(headers)?;
    let mut bytes = [0; 48];
    let length = STANDARD.decode_slice(signature, &mut bytes).map_err(|_| AuthError::Malformed)?;
    let kind = verify(state, signed, &dates, &bytes[..length])?;
    if state.config.check_date {
        check_date(dates.time, state.config.clock.now_ms())?;
    }
    Ok(Principal::Master { read_only: kind == KeyKind::ReadOnly })
}

fn verify(
    state: &ServerState,
    signed: &Signed<'_>,
    dates: &Dates<'_>,
    signature: &[u8],
) -> Result<KeyKind, AuthError> {
    thread_local! {
        static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let keys = state.keys.load();
    TEXT.with_borrow_mut(|text| {
        for link in signed.link_rid.into_iter().chain([signed.link]) {
            text.clear();
            write_text(signed, link, dates, text);
            if let Some(kind) = keys.verify(text, signature) {
                return Ok(kind);
            }
        }
        Err(AuthError::WrongSignature { payload: String::from_utf8_lossy(text).into_owned() })
    })
}

/// Five lines: verb, type, link, `x-ms-date`, `date`. All but the link in lower case.
fn write_text(signed: &Signed<'_>, link: &str, dates: &Dates<'_>, text: &mut Vec<u8>) {
    let lower = |line: &[u8], text: &mut Vec<u8>| {
        text.extend(line.iter().map(u8::to_ascii_lowercase));
        text.push(b'\n');
    };
    lower(signed.method.as_str().as_bytes(), text);
    lower(signed.resource_type.as_bytes(), text);
    text.extend_from_slice(link.as_bytes());
    text.push(b'\n');
    lower(dates.x_ms_date, text);
    lower(dates.date, text);
}

/// The date as signed (one of the two lines is empty) and as a time.
struct Dates<'a> {
    x_ms_date: &'a [u8],
    date: &'a [u8],
    time: SystemTime,
}

impl<'a> Dates<'a> {
    fn of(headers: &'a HeaderMap) -> Result<Dates<'a>, AuthError> {
        let (value, is_own) = match headers.get(X_MS_DATE) {
            Some(value) => (value, true),
            None => (headers.get(DATE).ok_or(AuthError::DateMissing)?, false),
        };
        let text =
            value.to_str().ok().filter(|text| text.len() <= DATE_BYTES_MAX).ok_or(AuthError::BadDate)?;
        let time = parse_date(text).ok_or(AuthError::BadDate)?;
        let (x_ms_date, date) = if is_own { (text, "") } else { ("", text) };
        Ok(Dates { x_ms_date: x_ms_date.as_bytes(), date: date.as_bytes(), time })
    }
}

/// RFC 1123, in any case: some clients send it as they sign it, in lower case.
pub(crate) fn parse_date(text: &str) -> Option<SystemTime> {
    let time =
        httpdate::parse_http_date(text).or_else(|_| httpdate::parse_http_date(&capitalise(text))).ok()?;
    (time < UNIX_EPOCH + DATE_MAX).then_some(time)
}

fn capitalise(text: &str) -> String {
    let mut after_letter = false;
    let mut written: String = text
        .chars()
        .map(|letter| {
            let lower = std::mem::replace(&mut after_letter, letter.is_ascii_alphabetic());
            if lower { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
        })
        .collect();
    if written.ends_with("Gmt") {
        written.replace_range(written.len() - 3.., "GMT");
    }
    written
}

fn check_date(time: SystemTime, now_ms: i64) -> Result<(), AuthError> {
    let now = UNIX_EPOCH + Duration::from_millis(now_ms.max(0).unsigned_abs());
    let distance = now.duration_since(time).unwrap_or_else(|after| after.duration());
    if distance <= DATE_SKEW_MAX {
        return Ok(());
    }
    let start = time.checked_sub(DATE_SKEW_MAX).filter(|start| *start >= UNIX_EPOCH).unwrap_or(UNIX_EPOCH);
    let text = httpdate::fmt_http_date;
    Err(AuthError::OutsideWindow { start: text(start), expiry: text(time + DATE_SKEW_MAX), now: text(now) })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::super::Keys;
    use super::*;

    const DAY: &str = "Sun, 15 Nov 2026 18:32:04 GMT";

    fn signature(method: Method, resource_type: &str, link: &str) -> Vec<u8> {
        let time = parse_date(DAY).unwrap();
        let dates = Dates { x_ms_date: DAY.as_bytes(), date: b"", time };
        let signed = Signed { method: &method, resource_type, link, link_rid: None };
        let mut text = Vec::new();
        write_text(&signed, link, &dates, &mut text);
        text
    }

    #[test]
    fn published_signatures_verify() {
        let check = |method, resource_type, link, expected: &str| {
            let text = signature(method, resource_type, link);
            let expected = STANDARD.decode(expected).unwrap();
            assert_eq!(Keys::well_known().verify(&text, &expected), Some(KeyKind::ReadWrite), "{link}");
        };
        check(Method::GET, "", "", "xVzjTHScdOjc7vDsut16B/FNlocEOTgtUKfsJ+XICow=");
        check(Method::GET, "colls", "dbs/d/colls/c", "0v8XbIIXaWW9/FAe854QLy6bX8nTXspd2YE7setwUcI=");
        check(Method::POST, "docs", "dbs/d/colls/c", "88MXRD8MPhMngSukbDLRGbeMr4p87AF3a5KiranEOx4=");
    }

    #[test]
    fn published_texts_are_built() {
        let text = String::from_utf8(signature(Method::PUT, "docs", "dpztakyoj5gbaaaaaaaaaa==")).unwrap();
        assert_eq!(text, "put\ndocs\ndpztakyoj5gbaaaaaaaaaa==\nsun, 15 nov 2026 18:32:04 gmt\n\n");
    }

    #[test]
    fn the_date_header_stands_in_on_its_own_line() {
        let mut headers = HeaderMap::new();
        assert!(matches!(Dates::of(&headers), Err(AuthError::DateMissing)));
        headers.insert(DATE, HeaderValue::from_static(DAY));
        let dates = Dates::of(&headers).unwrap();
        assert_eq!((dates.x_ms_date, dates.date), (&b""[..], DAY.as_bytes()));
        headers.insert(X_MS_DATE, HeaderValue::from_static("sun, 15 nov 2026 18:32:04 gmt"));
        let dates = Dates::of(&headers).unwrap();
        assert_eq!((dates.x_ms_date, dates.date), (&b"sun, 15 nov 2026 18:32:04 gmt"[..], &b""[..]));
        assert_eq!(dates.time, parse_date(DAY).unwrap());
        headers.insert(X_MS_DATE, HeaderValue::from_static("2026-11-15T18:32:04Z"));
        assert!(matches!(Dates::of(&headers), Err(AuthError::BadDate)));
        headers.insert(X_MS_DATE, HeaderValue::from_static("Fri, 31 Dec 9999 23:59:59 GMT"));
        assert!(matches!(Dates::of(&headers), Err(AuthError::BadDate)));
    }

    #[test]
    fn fifteen_minutes_either_way() {
        let time = parse_date(DAY).unwrap();
        let seconds = i64::try_from(time.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        for away in [0, 900, -900] {
            assert!(check_date(time, (seconds + away) * 1000).is_ok(), "{away}");
        }
        for away in [901, -901, -seconds] {
            assert!(check_date(time, (seconds + away) * 1000).is_err(), "{away}");
        }
        let error = check_date(time, (seconds + 901) * 1000).unwrap_err().to_string();
        assert!(error.contains("token expiry time: Sun, 15 Nov 2026 18:47:04 GMT"), "{error}");
    }
}
