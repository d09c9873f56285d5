//! Findings in a manifest.

use std::sync::Arc;

use serde::Serialize;

use super::locate::line_of;
use crate::catalogue;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The API server or the webhook rejects the actor, or it cannot work.
    Error,
    /// The actor is accepted, but probably not as intended.
    Warning,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A manifest that was checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub file: String,
    /// Line at which its document begins, from 1.
    pub line: usize,
    /// `namespace/name`; empty for a document that cannot be read.
    pub actor: String,
    #[serde(skip)]
    pub text: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LintFinding {
    #[serde(skip)]
    pub source: Source,
    pub file: String,
    /// Line of the field, from 1.
    pub line: usize,
    /// `namespace/name`; empty for a document that cannot be read.
    pub actor: String,
    /// Path of the field; empty for the whole document.
    pub path: String,
    pub severity: Severity,
    /// A stable id, as accepted by `explain`.
    pub id: String,
    pub problem: String,
    pub fix: String,
    /// The documentation page with more about it.
    pub page: &'static str,
}

impl LintFinding {
    /// A finding with this name in the catalogue, which also provides the fix unless the rule itself names one.
    pub fn new(
        source: &Source,
        severity: Severity,
        name: &str,
        path: &str,
        problem: &str,
        fix: Option<&str>,
    ) -> Self {
        let entry = catalogue::entry(name);
        Self {
            source: source.clone(),
            file: source.file.clone(),
            line: source.line + line_of(&source.text, path),
            actor: source.actor.clone(),
            path: path.to_owned(),
            severity,
            id: catalogue::id(name),
            problem: problem.to_owned(),
            fix: fix.map_or_else(
                || entry.map_or_else(String::new, |it| it.fix.to_owned()),
                str::to_owned,
            ),
            page: entry.map_or(catalogue::INDEX, |it| it.page),
        }
    }

    /// The message on one line: path and problem.
    pub fn message(&self) -> String {
        if self.path.is_empty() {
            self.problem.clone()
        } else {
            format!("{}: {}", self.path, self.problem)
        }
    }
}
