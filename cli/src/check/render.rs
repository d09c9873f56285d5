//! The checks as a list, with a fix for each finding.

use super::decide::{Check, CheckResult};
use crate::output::{Paint, Table, paint};

/// A line per check, with the fix below each finding.
pub fn text(checks: &[Check], width: Option<usize>) -> String {
    let mut table = Table::new(&["RESULT", "CHECK", "DETAIL"]);
    for check in checks {
        let (word, colour) = match check.result {
            CheckResult::Ok => ("ok", Paint::Good),
            CheckResult::Warning => ("warning", Paint::Warning),
            CheckResult::Failed => ("FAILED", Paint::Bad),
            CheckResult::Unknown => ("unknown", Paint::Warning),
        };
        let detail = match (&check.id, check.fix) {
            (Some(id), Some(fix)) => format!("{id}: {}\nfix: {fix}", check.detail),
            _ => check.detail.clone(),
        };
        table.painted([
            (word.to_owned(), colour),
            (check.subject.clone(), Paint::Plain),
            (detail, Paint::Plain),
        ]);
    }
    let count = |result| checks.iter().filter(|it| it.result == result).count();
    let (failed, warnings, unknown) = (
        count(CheckResult::Failed),
        count(CheckResult::Warning),
        count(CheckResult::Unknown),
    );
    let plural = if warnings == 1 { "" } else { "s" };
    let summary = format!(
        "{} checks: {failed} failed, {warnings} warning{plural}, {unknown} unknown",
        checks.len()
    );
    format!(
        "{}\n{}\n",
        table.render(width),
        paint(&summary, Paint::Heading)
    )
}
