//! The explanation as a page of text.

use super::decide::{Explanation, Outcome, Verdict};
use crate::output::{Paint, Table, paint, wrapped};

/// The answer first, then the rules, then what to do.
pub fn text(explanation: &Explanation, width: Option<usize>) -> String {
    let mut text = heading(explanation, width);
    text.push('\n');
    text.push_str(&rules(explanation).render(width));
    text.push('\n');
    for line in closing(explanation) {
        for line in wrapped(&line, width) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn heading(explanation: &Explanation, width: Option<usize>) -> String {
    let (answer, colour) = match explanation.outcome {
        Outcome::Injected if explanation.running.is_some() => (
            "has no sidecar; created now, it would get it",
            Paint::Warning,
        ),
        Outcome::Injected => ("gets the sidecar", Paint::Good),
        Outcome::NotInjected => ("does not get the sidecar", Paint::Bad),
        Outcome::Rejected => ("is rejected: the sidecar is required", Paint::Bad),
        Outcome::Unknown => ("cannot be judged", Paint::Warning),
    };
    let pod = format!("Pod {}", explanation.pod);
    let rule = format!("({}, rule {})", explanation.reason, explanation.rule);
    let taken = pod.len() + answer.len() + rule.len() + 2;
    let end = if width.is_none_or(|width| taken <= width) {
        ' '
    } else {
        '\n'
    };
    let (pod, answer) = (paint(&pod, Paint::Heading), paint(answer, colour));
    let mut text = format!("{pod}{end}{answer} {rule}\n");
    let mut facts = Table::new(&["", ""]);
    let none = || "none".to_owned();
    facts.row([
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
    facts.row(["actor".to_owned(), actor]);
    text.push_str(&facts.render(width));
    text
}

fn rules(explanation: &Explanation) -> Table {
    let mut table = Table::new(&["RULE", "", "ANSWER", ""]);
    for answer in &explanation.rules {
        let (word, colour) = match answer.verdict {
            Verdict::Passes => ("ok", Paint::Good),
            Verdict::Injects => ("YES", Paint::Good),
            Verdict::Stops => ("NO", Paint::Bad),
            Verdict::Unknown => ("?", Paint::Warning),
            Verdict::NotReached => ("-", Paint::Faint),
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

fn closing(explanation: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(nearest) = &explanation.nearest {
        lines.push(format!("nearest: {}", nearest.actor));
        lines.extend(nearest.missing.iter().map(|it| format!("  {it}")));
    }
    lines.extend(
        explanation
            .running
            .iter()
            .map(|it| format!("why it has none: {it}")),
    );
    lines.extend(
        explanation
            .warnings
            .iter()
            .map(|it| format!("warning: {it}")),
    );
    if explanation.outcome != Outcome::Injected {
        lines.push(format!("fix: {}", explanation.fix));
        lines.push(format!("more: {}", explanation.page));
    }
    lines
}
