//! Reads variables and collects errors. An empty value counts as unset.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use asya_wire::duration;

/// The environment, and the problems found so far.
pub(super) struct Reader<'e> {
    environment: &'e BTreeMap<String, String>,
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl<'e> Reader<'e> {
    pub(super) fn new(environment: &'e BTreeMap<String, String>) -> Self {
        Self {
            environment,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Errors, and warnings.
    pub(super) fn finish(self) -> (Vec<String>, Vec<String>) {
        (self.errors, self.warnings)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'e str> + use<'e> {
        self.environment.keys().map(String::as_str)
    }

    pub(super) fn get(&self, variable: &str) -> Option<&'e str> {
        self.environment
            .get(variable)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Records an error and how to fix it. Omits the value, which may be a secret.
    pub(super) fn invalid(&mut self, variable: &str, what: &str) {
        self.errors.push(format!("{variable}: {what}"));
    }

    pub(super) fn warn(&mut self, variable: &str, what: &str) {
        self.warnings.push(format!("{variable}: {what}"));
    }

    pub(super) fn text(&self, variable: &str, default: &str) -> String {
        self.get(variable).unwrap_or(default).to_owned()
    }

    pub(super) fn boolean(&mut self, variable: &str, default: bool) -> bool {
        let words = [
            ("true", true),
            ("false", false),
            ("1", true),
            ("0", false),
            ("yes", true),
            ("no", false),
            ("on", true),
            ("off", false),
        ];
        self.choice(variable, default, &words)
    }

    /// One of several words, case-insensitive.
    pub(super) fn choice<T: Copy>(&mut self, variable: &str, default: T, words: &[(&str, T)]) -> T {
        let Some(value) = self.get(variable) else {
            return default;
        };
        let found = words
            .iter()
            .find(|(word, _)| word.eq_ignore_ascii_case(value.trim()));
        found.map_or_else(
            || {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.invalid(
                    variable,
                    &format!("unknown value; write one of {}", words.join(", ")),
                );
                default
            },
            |(_, meaning)| *meaning,
        )
    }

    pub(super) fn number<T>(&mut self, variable: &str, range: RangeInclusive<T>, default: T) -> T
    where
        T: FromStr + PartialOrd + Display + Copy,
    {
        let Some(value) = self.get(variable) else {
            return default;
        };
        let number = value
            .trim()
            .parse()
            .ok()
            .filter(|number| range.contains(number));
        number.unwrap_or_else(|| {
            self.invalid(
                variable,
                &format!(
                    "not a valid number; write one from {} to {}",
                    range.start(),
                    range.end()
                ),
            );
            default
        })
    }

    pub(super) fn duration(&mut self, variable: &str, default: Duration) -> Duration {
        let Some(value) = self.get(variable) else {
            return default;
        };
        duration::parse(value.trim()).unwrap_or_else(|| {
            self.invalid(
                variable,
                "not a duration; write one with a unit, such as 300s or 1h30m",
            );
            default
        })
    }

    pub(super) fn positive_duration(&mut self, variable: &str, default: Duration) -> Duration {
        let value = self.duration(variable, default);
        if value.is_zero() {
            self.invalid(
                variable,
                "must be greater than 0; write a duration such as 300s",
            );
        }
        value
    }

    /// A size in bytes, with an optional suffix Ki or Mi.
    pub(super) fn size(
        &mut self,
        variable: &str,
        range: RangeInclusive<usize>,
        default: usize,
    ) -> usize {
        let Some(value) = self.get(variable) else {
            return default;
        };
        let value = value.trim();
        let suffixes = [("Ki", 10), ("Mi", 20)];
        let (digits, shift) = suffixes
            .into_iter()
            .find_map(|(suffix, shift)| Some((value.strip_suffix(suffix)?, shift)))
            .unwrap_or((value, 0));
        let bytes = digits
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_mul(1 << shift));
        bytes
            .filter(|bytes| range.contains(bytes))
            .unwrap_or_else(|| {
                self.invalid(variable, "not a valid size; write one from 1Ki to 512Mi");
                default
            })
    }
}
