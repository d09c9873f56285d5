//! Actors as a list, and an actor as a page.

use super::decide::ActorSummary;
use super::page::Page;
use crate::catalogue;
use crate::output::{Paint, Table, paint, wrapped};

/// Which columns a list has.
#[derive(Clone, Copy)]
pub struct Columns {
    pub namespace: bool,
    pub wide: bool,
}

/// A line per actor.
pub fn list(rows: &[ActorSummary], columns: Columns, width: Option<usize>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut headers = Vec::new();
    headers.extend(columns.namespace.then_some("NAMESPACE"));
    headers.extend(["NAME", "STATUS", "READY", "QUEUED"]);
    headers.extend(
        columns
            .wide
            .then_some(["PROCESSING", "TRANSPORT", "TARGET"])
            .into_iter()
            .flatten(),
    );
    headers.extend(["AGE", "ATTENTION"]);
    let mut table = Table::new(&headers);
    for row in rows {
        table.painted(cells(row, columns));
    }
    table.render(width)
}

fn cells(row: &ActorSummary, columns: Columns) -> Vec<(String, Paint)> {
    let number = |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let plain = |text: &str| (text.to_owned(), Paint::Plain);
    let colour = if row.attention.is_some() {
        Paint::Bad
    } else {
        Paint::Good
    };
    let mut cells = Vec::new();
    cells.extend(columns.namespace.then(|| plain(&row.namespace)));
    cells.push(plain(&row.name));
    cells.push((row.status.clone(), colour));
    cells.push(plain(&row.ready));
    cells.push((number(row.queued_messages), Paint::Plain));
    if columns.wide {
        cells.push((number(row.processing_messages), Paint::Plain));
        cells.push(plain(&row.transport));
        cells.push(plain(&row.target));
    }
    cells.push(plain(&row.age));
    let attention = row.attention.as_ref();
    // The list shows only the reason; the page shows the whole message.
    cells.push(plain(attention.map_or("", |it| &it.reason)));
    cells
}

/// One page about an actor.
pub fn page(page: &Page, width: Option<usize>) -> String {
    let summary = &page.summary;
    let colour = if summary.attention.is_some() {
        Paint::Bad
    } else {
        Paint::Good
    };
    let name = paint(
        &format!("AsyncActor {}/{}", summary.namespace, summary.name),
        Paint::Heading,
    );
    let mut text = format!(
        "{name} {} (age {})\n",
        paint(&summary.status, colour),
        summary.age
    );
    let mut details = Table::new(&["", ""]);
    for (name, value) in &page.details {
        details.row([name, value]);
    }
    text.push_str(&details.render(width));
    section(&mut text, &conditions(page).render(width));
    if !page.events.is_empty() {
        section(&mut text, &events(page).render(width));
    }
    if !page.findings.is_empty() {
        section(&mut text, &findings(page, width));
    }
    if !page.next.is_empty() {
        let next: Vec<String> = page
            .next
            .iter()
            .flat_map(|it| wrapped(&format!("next: {it}"), width))
            .collect();
        section(&mut text, &(next.join("\n") + "\n"));
    }
    if let Some(attention) = &summary.attention {
        section(
            &mut text,
            &(hint(&attention.reason, &attention.message, width) + "\n"),
        );
    }
    text
}

/// Findings from the broker's report, each with its fix for this actor.
fn findings(page: &Page, width: Option<usize>) -> String {
    let actor = format!("{} -n {}", page.summary.name, page.summary.namespace);
    let mut text = String::new();
    for finding in &page.findings {
        let entry = catalogue::entry(finding.name);
        let (meaning, fix) = entry.map_or(("", ""), |it| (it.meaning, it.fix));
        let lines = format!(
            "{}: {meaning} {}\n  fix: {}",
            finding.id,
            finding.text,
            fix.replace("NAME", &actor)
        );
        for line in wrapped(&lines, width) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// Where the user finds out what to do. The operator may be of another release, with reasons that this program does not
/// know.
fn hint(reason: &str, message: &str, width: Option<usize>) -> String {
    let text = match catalogue::remedy(reason, message) {
        Some(entry) => format!("`kubectl asya explain {}` says what to do", entry.name),
        None => format!(
            "{reason} is not known to this program: use kubectl-asya of the operator's release"
        ),
    };
    wrapped(&text, width).join("\n")
}

fn section(text: &mut String, section: &str) {
    text.push('\n');
    text.push_str(section);
}

fn conditions(page: &Page) -> Table {
    let mut table = Table::new(&["CONDITION", "STATUS", "REASON", "AGE", "MESSAGE"]);
    for condition in &page.conditions {
        table.row([
            &condition.r#type,
            &condition.status,
            &condition.reason,
            &condition.age,
            &condition.message,
        ]);
    }
    table
}

fn events(page: &Page) -> Table {
    let mut table = Table::new(&["EVENT", "AGE", "MESSAGE"]);
    for event in &page.events {
        table.row([&event.reason, &event.age, &event.message]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn only_known_reasons_are_said_to_be_explained() {
        assert_eq!(
            hint("QueueMissing", "", None),
            "`kubectl asya explain QueueMissing` says what to do"
        );
        assert_eq!(
            hint("ProbeFailed", "no pod is replaced: HostNetwork", None),
            "`kubectl asya explain HostNetwork` says what to do"
        );
        assert_eq!(
            hint("OfTomorrow", "", None),
            "OfTomorrow is not known to this program: use kubectl-asya of the operator's release"
        );
    }
}
