//! Previews as text: what would restart and at what cost, what is wrong, and then the changes.

use std::fmt::Write as _;

use super::admission::AdmissionVerdict;
use super::change::{Change, ChangeKind};
use super::cost::Cost;
use super::decide::{ActorWrite, Preview, Problem};
use super::restart::Restart;
use crate::lint::{LintFinding, Severity};
use crate::output::{Paint, Table, continued, paint, wrapped};

/// Maximum number of pod names on a line.
const NAMES: usize = 8;

pub fn text(previews: &[Preview], width: Option<usize>) -> String {
    let pages: Vec<String> = previews.iter().map(|it| page(it, width)).collect();
    pages.join("\n")
}

fn page(preview: &Preview, width: Option<usize>) -> String {
    let mut text = heading(preview, width);
    let mut details = Table::new(&["", ""]);
    if let Some(it) = &preview.restart {
        restart(&mut details, it);
    }
    if let Some(it) = &preview.cost {
        cost(&mut details, it);
    }
    text.push_str(&details.render(width));
    findings(&mut text, preview, width);
    if !preview.changes.is_empty() {
        text.push('\n');
        text.push_str(&changes(&preview.changes).render(width));
    }
    if !preview.admissions.is_empty() {
        let mut table = Table::new(&["DRY RUN", "ANSWER", ""]);
        for admission in &preview.admissions {
            let (word, colour, message) = verdict(&admission.verdict);
            table.painted([
                (admission.object.clone(), Paint::Plain),
                (word.to_owned(), colour),
                (message, Paint::Plain),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render(width));
    }
    for change in preview.changes.iter().filter(|it| !it.diff.is_empty()) {
        diff(&mut text, change, width);
    }
    text
}

/// Adds problems and gaps.
fn findings(text: &mut String, preview: &Preview, width: Option<usize>) {
    let is_empty = preview.validation.is_empty() && preview.problems.is_empty();
    if !is_empty || !preview.unknown.is_empty() {
        text.push('\n');
    }
    for it in &preview.problems {
        problem(text, it, width);
    }
    for it in &preview.unknown {
        let word = paint("unknown", Paint::Warning);
        paragraph(text, &format!("{word}: {it}"), width, "");
    }
    for finding in &preview.validation {
        validation(text, finding, width);
    }
}

fn heading(preview: &Preview, width: Option<usize>) -> String {
    let actor = paint(&format!("AsyncActor {}", preview.actor), Paint::Heading);
    let (word, colour, message) = verdict(&preview.server);
    let outcome = match (preview.write, preview.server.is_unknown()) {
        (_, true) | (ActorWrite::None, _) => String::new(),
        (ActorWrite::Create, _) => " would be created".to_owned(),
        (ActorWrite::Update, _) => " would be changed".to_owned(),
        (ActorWrite::Unchanged, _) if preview.changes_nothing() => {
            " and all that follows from it stay as they are".to_owned()
        }
        (ActorWrite::Unchanged, _) => " stays as it is".to_owned(),
    };
    let colon = if message.is_empty() { "" } else { ": " };
    let word = paint(word, colour);
    let mut text = String::new();
    for line in [
        format!("{actor}{outcome}"),
        format!("API server: {word}{colon}{message}"),
    ] {
        paragraph(&mut text, &line, width, "");
    }
    text
}

fn validation(text: &mut String, finding: &LintFinding, width: Option<usize>) {
    let colour = match finding.severity {
        Severity::Error => Paint::Bad,
        Severity::Warning => Paint::Warning,
    };
    let word = paint(finding.severity.as_str(), colour);
    let id = paint(&finding.id, Paint::Heading);
    paragraph(
        text,
        &format!("{word} {id} {}", finding.message()),
        width,
        "",
    );
    if !finding.fix.is_empty() {
        paragraph(text, &format!("fix: {}", finding.fix), width, "  ");
    }
}

fn changes(changes: &[Change]) -> Table {
    let mut table = Table::new(&["CHANGE", "OBJECT"]);
    for change in changes {
        let colour = match change.action {
            ChangeKind::Create => Paint::Good,
            ChangeKind::Change | ChangeKind::Inject => Paint::Warning,
            ChangeKind::Retire => Paint::Bad,
            ChangeKind::Unchanged => Paint::Faint,
        };
        table.painted([
            (change.action.as_str().to_owned(), colour),
            (change.object.clone(), Paint::Plain),
        ]);
    }
    table
}

fn diff(text: &mut String, change: &Change, width: Option<usize>) {
    let title = format!("\n{} ({})\n", change.object, change.action.as_str());
    text.push_str(&paint(&title, Paint::Heading));
    for line in change.diff.lines() {
        let colour = match line.as_bytes().first() {
            Some(b'+') => Paint::Good,
            Some(b'-') => Paint::Bad,
            Some(b'@') => Paint::Faint,
            _ => Paint::Plain,
        };
        for line in continued(line, width) {
            text.push_str(&paint(&line, colour));
            text.push('\n');
        }
    }
}

fn restart(details: &mut Table, restart: &Restart) {
    let Restart {
        pods, total, text, ..
    } = restart;
    details.row([
        "restarts".to_owned(),
        format!("{pods} of {total} pods: {text}"),
    ]);
    if restart.pods > 0 {
        let (row, names) = if restart.order.is_empty() {
            ("pods", &restart.names)
        } else {
            ("in order", &restart.order)
        };
        details.row([row.to_owned(), listed(names)]);
        if let Some(rule) = &restart.order_rule {
            details.row(["order", rule]);
        }
    }
    if restart.pods > 0 {
        for wait in &restart.waits {
            details.row(["waits".to_owned(), wait.clone()]);
        }
    }
}

/// The first names, and how many more there are.
fn listed(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(NAMES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = names.len().checked_sub(NAMES).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn cost(details: &mut Table, cost: &Cost) {
    let Cost {
        rollouts,
        replaced,
        started,
        ready,
        gpus_per_pod,
        gpus_now,
        gpus_meanwhile,
    } = cost;
    let number = |count: i64, noun: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {noun}{plural}")
    };
    let pods = if *started > 0 {
        number(*started, "new pod")
    } else {
        let rollouts = number(i64::from(*rollouts), "rollout");
        let replaced = number(*replaced, "pod");
        format!("{rollouts}, {replaced} replaced, at least {ready} ready meanwhile")
    };
    let gpus = if *gpus_per_pod > 0 {
        let held = number(*gpus_meanwhile, "GPU");
        format!("; {held} held meanwhile, {gpus_now} now, {gpus_per_pod} per pod")
    } else {
        String::new()
    };
    details.row(["costs".to_owned(), pods + &gpus]);
}

fn verdict(verdict: &AdmissionVerdict) -> (&'static str, Paint, String) {
    match verdict {
        AdmissionVerdict::Admitted => ("admitted", Paint::Good, String::new()),
        AdmissionVerdict::AdmittedAsReplacement { message } => (
            "admitted",
            Paint::Good,
            format!("in place of a pod that frees its share of the quota; beside it: {message}"),
        ),
        AdmissionVerdict::Rejected { message, .. } => ("REJECTED", Paint::Bad, message.clone()),
        AdmissionVerdict::Unknown { message } => ("unknown", Paint::Warning, message.clone()),
    }
}

fn problem(text: &mut String, problem: &Problem, width: Option<usize>) {
    let word = paint("problem", Paint::Bad);
    let id = paint(&problem.id, Paint::Heading);
    paragraph(
        text,
        &format!("{word} {id} {}: {}", problem.object, problem.problem),
        width,
        "",
    );
    if !problem.fix.is_empty() {
        paragraph(text, &format!("fix: {}", problem.fix), width, "  ");
    }
}

fn paragraph(text: &mut String, paragraph: &str, width: Option<usize>, indent: &str) {
    for line in wrapped(paragraph, width.map(|it| it.saturating_sub(indent.len()))) {
        text.push_str(indent);
        text.push_str(&line);
        text.push('\n');
    }
}
