//! Dates as text: ISO 8601, UTC, milliseconds.

const MS_PER_DAY: i64 = 86_400_000;

/// `2026-11-15T18:32:04.007Z` of milliseconds since 1970.
pub fn iso_date(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(MS_PER_DAY), ms.rem_euclid(MS_PER_DAY));
    let (year, month, day) = civil(days);
    let (seconds, ms) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar. Years begin in March here, so that the day of a leap year is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // since 1 March of the year 0
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    (era * 400 + year + i64::from(is_next_year), if is_next_year { month - 9 } else { month + 3 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_are_known() {
        for (ms, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_794_767_524_007, "2026-11-15T18:32:04.007Z"),
        ] {
            assert_eq!(iso_date(ms), date);
        }
    }
}
