//! Findings as text: one line each, in the form that editors and CI systems link to the file.

use std::fmt::Write as _;

use super::Severity;
use super::decide::Linted;
use crate::output::{Paint, paint, wrapped};

/// The findings, and how many there are.
pub fn text(linted: &Linted, width: Option<usize>) -> String {
    let mut text = String::new();
    for finding in &linted.findings {
        let colour = match finding.severity {
            Severity::Error => Paint::Bad,
            Severity::Warning => Paint::Warning,
        };
        let (file, line) = (&finding.file, finding.line);
        let severity = paint(finding.severity.as_str(), colour);
        let id = paint(&finding.id, Paint::Heading);
        // A document that cannot be read does not belong to an actor.
        let actor = match &*finding.actor {
            "" => String::new(),
            actor => format!(" {actor}"),
        };
        let _ = writeln!(text, "{file}:{line}: {severity} {id}{actor}");
        indented(&mut text, &finding.message(), width);
        if !finding.fix.is_empty() {
            indented(&mut text, &format!("fix: {}", finding.fix), width);
        }
    }
    let count = |severity| {
        linted
            .findings
            .iter()
            .filter(|it| it.severity == severity)
            .count()
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let counts = [
        counted(linted.actors.len(), "AsyncActor"),
        counted(errors, "error"),
        counted(warnings, "warning"),
    ];
    let _ = writeln!(text, "{}: {}, {}", counts[0], counts[1], counts[2]);
    text
}

fn indented(text: &mut String, paragraph: &str, width: Option<usize>) {
    for line in wrapped(paragraph, width.map(|it| it.saturating_sub(2))) {
        let _ = writeln!(text, "  {line}");
    }
}

/// A count with its noun.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
