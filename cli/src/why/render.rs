//! The explanation as a page of text.

use super::decide::{Explanation, Outcome, Verdict};
use crate::output::{Paint, Table, paint, wrapped};

/// The answer first, then the rules, then the fix.
pub fn text(explanation: &Explanation, width: Option<usize>) -> String {
    let mut text = heading(explanation, width);
    for line in reasons(explanation) {
        for line in wrapped(&line, width) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text.push('\n');
    text.push_str(&details(explanation).render(width));
    if explanation.outcome != Outcome::FromTemplate {
        text.push('\n');
        text.push_str(&rules(explanation).render(width));
    }
    text
}

/// Explanations of several pods; pods with the same explanation share it.
pub fn all(explanations: &[Explanation], width: Option<usize>) -> String {
    let mut left: Vec<&Explanation> = explanations.iter().collect();
    let mut pages = Vec::new();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|it| it.is_like(first));
        left = others;
        let mut page = text(first, width);
        let names: Vec<&str> = same.iter().skip(1).map(|it| &*it.pod).collect();
        if !names.is_empty() {
            let line = format!("the same holds for {}", names.join(", "));
            for line in wrapped(&line, width) {
                page.push_str(&line);
                page.push('\n');
            }
        }
        pages.push(page);
    }
    pages.join("\n")
}

fn heading(explanation: &Explanation, width: Option<usize>) -> String {
    let (answer, colour) = match explanation.outcome {
        Outcome::Injected if explanation.running.is_some() => (
            "has no sidecar; created now, it would get it",
            Paint::Warning,
        ),
        Outcome::Injected => ("gets the sidecar", Paint::Good),
        Outcome::FromTemplate => (
            "has the sidecar from the pod template of its actor",
            Paint::Good,
        ),
        Outcome::NotInjected => ("does not get the sidecar", Paint::Bad),
        Outcome::Rejected => ("is rejected: the sidecar is required", Paint::Bad),
        Outcome::Unknown => ("cannot be judged", Paint::Warning),
    };
    let pod = match &explanation.new_pod_of {
        Some(workload) => format!("A new pod of {workload}"),
        None => format!("Pod {}", explanation.pod),
    };
    let rule = match explanation.outcome {
        // The webhook's reason would be that no actor binds the pod.
        Outcome::FromTemplate => String::new(),
        _ => format!(" ({}, rule {})", explanation.reason, explanation.rule),
    };
    let taken = pod.len() + answer.len() + rule.len() + 1;
    let end = if width.is_none_or(|width| taken <= width) {
        ' '
    } else {
        '\n'
    };
    let (pod, answer) = (paint(&pod, Paint::Heading), paint(answer, colour));
    format!("{pod}{end}{answer}{rule}\n")
}

fn details(explanation: &Explanation) -> Table {
    let mut details = Table::new(&["", ""]);
    let none = || "none".to_owned();
    details.row([
        "controller".to_owned(),
        explanation.controller.clone().unwrap_or_else(none),
    ]);
    let target = explanation
        .target
        .as_ref()
        .map_or_else(String::new, |it| format!(", which binds {it}"));
    let actor = explanation
        .actor
        .as_ref()
        .map_or_else(none, |it| format!("{it}{target}"));
    details.row(["actor".to_owned(), actor]);
    details
}

fn rules(explanation: &Explanation) -> Table {
    let mut table = Table::new(&["RULE", "", "RESULT", ""]);
    for answer in &explanation.rules {
        let (word, colour) = match answer.verdict {
            Verdict::Passes => ("passes", Paint::Good),
            Verdict::Injects => ("injects", Paint::Good),
            Verdict::Stops => ("stops", Paint::Bad),
            Verdict::Unknown => ("unknown", Paint::Warning),
            Verdict::NotReached => ("not reached", Paint::Faint),
        };
        table.painted([
            (answer.number.to_string(), Paint::Plain),
            (answer.rule.to_owned(), Paint::Plain),
            (word.to_owned(), colour),
            (answer.text.clone(), Paint::Plain),
        ]);
    }
    table
}

/// The reason, and the fix.
fn reasons(explanation: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    let decisive = explanation
        .rules
        .iter()
        .find(|it| it.number == explanation.rule);
    let decisive = decisive.filter(|it| it.verdict != Verdict::Injects && !it.text.is_empty());
    lines.extend(decisive.map(|it| format!("why: {}", it.text)));
    if let Some(nearest) = &explanation.nearest {
        lines.push(format!("nearest: {}", nearest.actor));
        lines.extend(nearest.missing.iter().map(|it| format!("  {it}")));
    }
    lines.extend(explanation.running.iter().map(|it| format!("why: {it}")));
    lines.extend(explanation.next.iter().map(|it| format!("next: {it}")));
    lines.extend(
        explanation
            .warnings
            .iter()
            .map(|it| format!("warning: {it}")),
    );
    if ![Outcome::Injected, Outcome::FromTemplate].contains(&explanation.outcome) {
        lines.push(format!("fix: {}", explanation.fix));
        lines.push(format!("more: {}", explanation.page));
    }
    lines
}
