//! Durations in the format of Go: `300s`, `1h30m`, `1.5h`, `500ms`.

use std::fmt::Write as _;
use std::time::Duration;

/// Units and their lengths in nanoseconds. A name that is a prefix of another one comes after it.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration. Zero may be written without a unit; negative durations are rejected, and so are
/// those that overflow 64 bits of nanoseconds, as in Go.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(asya_wire::duration::parse("1h30m"), Some(Duration::from_secs(5400)));
/// assert_eq!(asya_wire::duration::parse("300"), None);
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let (name, unit) = unit_at(after)?;
        nanoseconds = nanoseconds.checked_add(in_nanoseconds(number, unit)?)?;
        rest = &after[name.len()..];
    }
    i64::try_from(nanoseconds).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The leading digits, with at most one decimal point.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let digits = number.bytes().any(|byte| byte.is_ascii_digit());
    (digits && number.matches('.').count() <= 1).then_some((number, rest))
}

fn unit_at(text: &str) -> Option<(&'static str, u64)> {
    let end = text
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(text.len());
    UNITS.into_iter().find(|(name, _)| *name == &text[..end])
}

fn in_nanoseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut part: u64 = 0;
    let mut scale = unit;
    for digit in fraction.bytes() {
        scale /= 10;
        part += u64::from(digit - b'0') * scale;
    }
    whole.checked_mul(unit)?.checked_add(part)
}

/// Formats a duration like Go: `5m0s`, `1h30m0s`, `1.5s`, `500ms`, `0s`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(asya_wire::duration::format(Duration::from_secs(300)), "5m0s");
/// ```
#[must_use]
pub fn format(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".to_owned();
    }
    let nanoseconds = duration.as_nanos();
    for (unit, length) in [("ns", 1_u128), ("µs", 1_000), ("ms", 1_000_000)] {
        if nanoseconds < length * 1_000 {
            return decimal(nanoseconds, length) + unit;
        }
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    // writing to a String cannot fail
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if seconds >= 60 {
        let _ = write!(text, "{minutes}m");
    }
    text + &decimal(nanoseconds % 60_000_000_000, 1_000_000_000) + "s"
}

/// `value / unit` without trailing zeros; `unit` is a power of ten.
fn decimal(value: u128, unit: u128) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{format, parse};

    #[test]
    fn durations_are_parsed_like_in_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("300s", 300_000),
            ("+5s", 5_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("500ms", 500),
            ("1000us", 1),
            ("1000µs", 1),
            ("1000000ns", 1),
            ("1h1m1s1ms", 3_661_001),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_that_go_rejects_are_rejected() {
        for text in [
            "",
            "300",
            "s",
            ".s",
            "1",
            "-5s",
            "1d",
            "1.2.3s",
            "5 s",
            "s5",
            "1h30",
            "9223372036855s",
            "1e3s",
            "+",
            "99999999999999999999s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn durations_are_formatted_like_in_go() {
        for (text, written) in [
            ("0", "0s"),
            ("300s", "5m0s"),
            ("5400s", "1h30m0s"),
            ("1500ms", "1.5s"),
            ("500ms", "500ms"),
            ("1.5ms", "1.5ms"),
            ("1500ns", "1.5µs"),
            ("7ns", "7ns"),
            ("61.25s", "1m1.25s"),
            ("1h", "1h0m0s"),
        ] {
            assert_eq!(parse(text).map(format).as_deref(), Some(written), "{text}");
        }
    }
}
