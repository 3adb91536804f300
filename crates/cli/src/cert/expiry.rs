//! When a certificate expires: the only part of X.509 that nothing else here reads.
//!
//! `Certificate ::= SEQUENCE { tbs SEQUENCE { [0] version OPTIONAL, serial, algorithm, issuer, validity SEQUENCE { notBefore,
//! notAfter }, … } … }` in DER. A time is text: `YYMMDDHHMMSSZ` (UTCTime, until 2049) or `YYYYMMDDHHMMSSZ`.

use time::{Date, Month, OffsetDateTime, Time};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `None` when the bytes are no certificate.
pub fn not_after(certificate: &[u8]) -> Option<OffsetDateTime> {
    let (_, certificate, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = element(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _serial_algorithm_issuer in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (tag, text, _) = element(element(validity)?.2)?;
    parse_time(tag, std::str::from_utf8(text).ok()?)
}

/// Tag, contents and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7F))?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = after;
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

fn parse_time(tag: u8, text: &str) -> Option<OffsetDateTime> {
    let (year_digits, century) = match tag {
        UTC_TIME => (2, 2000),
        GENERALIZED_TIME => (4, 0),
        _ => return None,
    };
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = digits.split_at_checked(year_digits)?;
    let number = |place: usize| rest.get(2 * place..2 * place + 2)?.parse::<u8>().ok();
    let month = Month::try_from(number(0)?).ok()?;
    let date = Date::from_calendar_date(century + year.parse::<i32>().ok()?, month, number(1)?).ok()?;
    let time = Time::from_hms(number(2)?, number(3)?, number(4)?).ok()?;
    Some(date.with_time(time).assume_utc())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use time::Duration;

    use super::*;
    use crate::cert::{AUTHORITY_DAYS, Authority, CERTIFICATE_DAYS};

    fn expiry(pem: &str) -> OffsetDateTime {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        not_after(&certificate).expect("a time")
    }

    #[test]
    fn the_end_is_read_before_and_after_2050() {
        for now in [1_800_000_000, 2_500_000_000_i64] {
            let authority = Authority::generate(now * 1000).expect("an authority");
            let signed = authority.sign(&[], now * 1000).expect("a certificate");
            let start = OffsetDateTime::from_unix_timestamp(now).expect("a time");
            assert_eq!(expiry(&authority.certificate), start + Duration::days(AUTHORITY_DAYS));
            assert_eq!(expiry(&signed.chain), start + Duration::days(CERTIFICATE_DAYS));
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let authority = Authority::generate(0).expect("an authority");
        let certificate = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).expect("PEM");
        // Cut anywhere, or with any byte changed, it is refused or read, and nothing panics.
        for cut in 0..certificate.len() {
            assert_eq!(not_after(&certificate[..cut]), None, "{cut}");
            let mut changed = certificate.to_vec();
            changed[cut] ^= 0xFF;
            not_after(&changed);
        }
        assert_eq!(parse_time(UTC_TIME, "991332000000Z"), None);
        assert_eq!(parse_time(UTC_TIME, "2701ä4080000Z"), None);
    }
}
