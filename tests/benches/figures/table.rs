//! Renders the figures as a Markdown table.

use crate::measure::Row;

/// Renders a line per measurement, and a comparison after each pair.
pub fn render(rows: &[Row]) -> String {
    let mut lines = vec![
        "| actors | by | created s | applied s | settled s | writes per actor | refused | most writes in 1 s | its CPU s | CPU s of others |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let mut bare: Option<&Row> = None;
    for row in rows {
        lines.push(line(row));
        match (row.who, bare.take()) {
            ("operator", Some(bare)) => lines.push(comparison(bare, row)),
            _ => bare = Some(row),
        }
    }
    lines.push(String::new());
    for row in rows {
        lines.push(format!(
            "{} actors, {}: {}",
            row.actors,
            row.who,
            kinds(row)
        ));
    }
    lines.join("\n")
}

/// The number of writes of each kind, and when the first, half of them and the last had been received.
fn kinds(row: &Row) -> String {
    let kinds = row.kinds.iter().map(|kind| {
        let [first, middle, last] = kind.times;
        format!(
            "{} {} ({first:.1}, {middle:.1}, {last:.1} s)",
            kind.count, kind.name
        )
    });
    kinds.collect::<Vec<_>>().join("; ")
}

fn line(row: &Row) -> String {
    let cpu = row.cpu.map_or_else(String::new, |cpu| format!("{cpu:.1}"));
    let parts = row.parts.iter();
    let parts: Vec<_> = parts
        .map(|(part, seconds)| format!("{part} {seconds:.1}"))
        .collect();
    format!(
        "| {} | {} | {:.1} | {:.1} | {:.1} | {:.2} | {} | {} | {cpu} | {} |",
        row.actors,
        row.who,
        row.created,
        row.applied,
        row.settled,
        per_actor(row),
        row.refused,
        row.peak,
        parts.join(", "),
    )
}

/// The operator's rate as a percentage of the bare client's.
fn comparison(bare: &Row, operator: &Row) -> String {
    let ratio = |bare: f64, operator: f64| format!("**{:.0} %**", 100.0 * bare / operator);
    format!(
        "| {} | rate of the operator | | {} | {} | | | | | |",
        operator.actors,
        ratio(bare.applied, operator.applied),
        ratio(bare.settled, operator.settled),
    )
}

fn per_actor(row: &Row) -> f64 {
    let actors = u32::try_from(row.actors.max(1)).unwrap_or(u32::MAX);
    let writes = u32::try_from(row.writes).unwrap_or(u32::MAX);
    f64::from(writes) / f64::from(actors)
}
