//! Kubernetes quantities: a decimal number with a suffix or an exponent.

use serde_json::Value;

/// Suffixes and their factors, in billionths.
const SUFFIXES: [(&str, i128); 16] = [
    ("", NANO),
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("k", 1_000 * NANO),
    ("M", 1_000_000 * NANO),
    ("G", 1_000_000_000 * NANO),
    ("T", 1_000_000_000_000 * NANO),
    ("P", 1_000_000_000_000_000 * NANO),
    ("E", 1_000_000_000_000_000_000 * NANO),
    ("Ki", NANO << 10),
    ("Mi", NANO << 20),
    ("Gi", NANO << 30),
    ("Ti", NANO << 40),
    ("Pi", NANO << 50),
    ("Ei", NANO << 60),
];
const NANO: i128 = 1_000_000_000;

/// A quantity, in billionths. Different spellings of the same amount are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Parses a quantity; amounts that are too large saturate.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix(['+', '-']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.len() + fraction.len() == 0 {
            return None;
        }
        let factor = factor(suffix)?;
        let mut amount = whole.bytes().fold(0_i128, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(i128::from(digit - b'0'))
        });
        amount = amount.saturating_mul(factor);
        let mut unit = factor;
        for digit in fraction.bytes() {
            unit /= 10;
            amount = amount.saturating_add(unit.saturating_mul(i128::from(digit - b'0')));
        }
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Reads a quantity from a JSON string or number.
    #[must_use]
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// The amount without its fraction.
    #[must_use]
    pub fn whole(self) -> i64 {
        let saturated = self
            .0
            .clamp(i128::from(i64::MIN) * NANO, i128::from(i64::MAX) * NANO);
        i64::try_from(saturated / NANO).unwrap_or_default()
    }

    /// Whether it is greater than zero.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.0 > 0
    }
}

fn factor(suffix: &str) -> Option<i128> {
    let known = SUFFIXES.iter().find(|(name, _)| *name == suffix);
    if let Some((_, factor)) = known {
        return Some(*factor);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10_i128.saturating_pow(exponent.unsigned_abs());
    Some(if exponent < 0 {
        NANO / power
    } else {
        NANO.saturating_mul(power)
    })
}

#[cfg(test)]
mod tests {
    use super::Quantity;
    use serde_json::json;

    #[test]
    fn different_notations_of_an_amount_are_equal() {
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1Gi", "1024Mi"),
            ("1G", "1e9"),
            ("1.5Ki", "1536"),
            ("+2", "2"),
            ("1E", "1000P"),
            ("12e-1", "1200m"),
        ] {
            assert_eq!(Quantity::parse(one), Quantity::parse(other), "{one}");
            assert!(Quantity::parse(one).is_some(), "{one}");
        }
        assert_ne!(Quantity::parse("1G"), Quantity::parse("1Gi"));
        assert_eq!(Quantity::of(&json!(0.1)), Quantity::parse("100m"));
        assert_eq!(Quantity::of(&json!("1Mi")), Quantity::parse("1048576"));
        assert!(Quantity::parse("1n").is_some_and(Quantity::is_positive));
        assert!(Quantity::parse("0").is_some_and(|it| !it.is_positive()));
        assert!(Quantity::parse("-1") < Quantity::parse("0"));
    }

    #[test]
    fn invalid_amount_is_none() {
        for text in ["", "m", "1.2.3", "1 Gi", "one", "1e", "1Zi", "--1"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert!(Quantity::parse("9e99").is_some());
    }
}
