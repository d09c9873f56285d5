//! Violations of validation rules.

use std::fmt;

/// A rule violation, written as `<path>: <problem>; <fix>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path of the field from the object's root.
    pub path: String,
    /// The problem, or the rule.
    pub problem: String,
    /// The remedy, unless the problem already states it.
    pub fix: Option<String>,
}

impl Violation {
    /// Creates a violation; what follows the first semicolon in the text is the fix.
    #[must_use]
    pub fn new(path: impl Into<String>, text: &str) -> Self {
        let (problem, fix) = match text.split_once("; ") {
            Some((problem, fix)) => (problem, Some(fix.to_owned())),
            None => (text, None),
        };
        Self {
            path: path.into(),
            problem: problem.to_owned(),
            fix,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)?;
        match &self.fix {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

/// Joins violations into the message of a condition.
#[must_use]
pub fn joined(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(". ")
}

/// Collects violations.
#[derive(Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn add(&mut self, path: impl Into<String>, text: &str) {
        self.0.push(Violation::new(path, text));
    }

    pub(super) fn sorted(mut self) -> Vec<Violation> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}
