//! The preview of an actor, and its problems.

use serde::Serialize;
use serde_json::Value;

use super::admission::{Admission, AdmissionVerdict, RejectedBy};
use super::change::{Change, ChangeKind, normalized};
use super::cost::Cost;
use super::restart::Restart;
use crate::answer::Answer;
use crate::catalogue;
use crate::lint::{LintFinding, Linted, Severity};

/// The effects of applying an actor.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// As `namespace/name`.
    pub actor: String,
    pub write: ActorWrite,
    /// Findings of the validation rules, without the API server.
    pub validation: Vec<LintFinding>,
    /// The result of the actor's dry run.
    pub server: AdmissionVerdict,
    pub changes: Vec<Change>,
    pub restart: Option<Restart>,
    pub cost: Option<Cost>,
    /// Results of the dry runs of the objects that would follow.
    pub admissions: Vec<Admission>,
    /// Problems that would keep the actor from working.
    pub problems: Vec<Problem>,
    /// Gaps that make the answer unknown.
    pub unknown: Vec<String>,
    /// Gaps that do not invalidate the preview.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The change to the actor itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ActorWrite {
    Create,
    Update,
    Unchanged,
    /// None, or unknown.
    None,
}

/// Something that would keep the actor from working.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "named as in findings of lint")]
pub struct Problem {
    /// A stable id, as accepted by `explain`.
    pub id: String,
    /// The object, as Kind/name.
    pub object: String,
    pub problem: String,
    pub fix: String,
    pub page: &'static str,
}

impl ActorWrite {
    pub fn of(existing: Option<&Value>, stored: &Value) -> Self {
        match existing {
            None => Self::Create,
            Some(existing) if normalized(existing) == normalized(stored) => Self::Unchanged,
            Some(_) => Self::Update,
        }
    }
}

impl Preview {
    /// A preview without a cluster.
    pub fn new(object: &Value, linted: &Linted) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        let actor = format!("{}/{}", text("namespace"), text("name"));
        let validation = linted.findings.iter().filter(|it| it.actor == actor);
        Self {
            validation: validation.cloned().collect(),
            actor,
            write: ActorWrite::None,
            server: AdmissionVerdict::Unknown {
                message: "the API server was not asked".to_owned(),
            },
            changes: Vec::new(),
            restart: None,
            cost: None,
            admissions: Vec::new(),
            problems: Vec::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The actor, as Kind/name.
    pub fn object(&self) -> String {
        let (_, name) = self.actor.split_once('/').unwrap_or_default();
        format!("AsyncActor/{name}")
    }

    /// Adds the problem with this name in the catalogue.
    pub fn problem(&mut self, name: &str, object: &str, problem: &str) {
        let entry = catalogue::entry(name);
        self.problems.push(Problem {
            id: catalogue::id(name),
            object: object.to_owned(),
            problem: problem.to_owned(),
            fix: entry.map_or_else(String::new, |it| it.fix.to_owned()),
            page: entry.map_or(catalogue::INDEX, |it| it.page),
        });
    }

    /// Adds a gap: something that could not be determined.
    pub fn incomplete(&mut self, why: &str) {
        self.unknown.push(why.to_owned());
    }

    /// Adds the API server's rejection of the actor, unless the rules have found the same problem.
    pub fn reject_actor(&mut self) {
        let Some((by, message)) = self.server.rejection() else {
            return;
        };
        let (entry, message) = (by.entry(), message.to_owned());
        let is_known = by != RejectedBy::Quota && self.has_errors();
        if !is_known {
            let object = self.object();
            self.problem(entry, &object, &message);
        }
    }

    /// Adds the result of an object's dry run.
    pub fn admission(&mut self, object: &str, verdict: AdmissionVerdict) {
        if let Some((by, message)) = verdict.rejection() {
            let message = message.to_owned();
            self.problem(by.entry(), object, &message);
        }
        self.admissions.push(Admission {
            object: object.to_owned(),
            verdict,
        });
    }

    fn has_errors(&self) -> bool {
        self.validation
            .iter()
            .any(|it| it.severity == Severity::Error)
    }

    /// Whether nothing would change.
    pub fn changes_nothing(&self) -> bool {
        self.changes
            .iter()
            .all(|it| it.action == ChangeKind::Unchanged)
    }

    pub fn answer(&self) -> Answer {
        let is_unknown = self.server.is_unknown()
            || !self.unknown.is_empty()
            || self.admissions.iter().any(|it| it.verdict.is_unknown());
        if self.has_errors() || !self.problems.is_empty() {
            Answer::Findings
        } else if is_unknown {
            Answer::Unknown
        } else {
            Answer::Fine
        }
    }
}

#[cfg(test)]
mod tests;
