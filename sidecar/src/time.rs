//! Timestamp formatting.

use std::time::{SystemTime, UNIX_EPOCH};

/// RFC 3339 with seconds, in UTC: `2026-05-04T10:00:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let (date, _) = parts(time);
    format!("{date}Z")
}

/// RFC 3339 with microseconds, in UTC.
pub fn rfc3339_micros(time: SystemTime) -> String {
    let (date, micros) = parts(time);
    format!("{date}.{micros:06}Z")
}

/// Date and time to the second, and microseconds.
fn parts(time: SystemTime) -> (String, u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    (
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"),
        since.subsec_micros(),
    )
}

/// Year, month and day of a day since 1970 (Howard Hinnant's algorithm: years begin in March, eras have 400 years).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{rfc3339, rfc3339_micros};

    #[test]
    fn times_are_formatted_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_777_888_800, "2026-05-04T10:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let micros = UNIX_EPOCH + Duration::from_micros(1_000_007);
        assert_eq!(rfc3339_micros(micros), "1970-01-01T00:00:01.000007Z");
    }
}
