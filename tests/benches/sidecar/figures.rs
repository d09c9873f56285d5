//! Medians, percentiles and tables.

use std::time::Duration;

/// The value below which this percentage of all values lies.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The median over all rounds of what `made` computes from a round's two values, so that load that varies between
/// rounds cancels out.
pub fn median_of_rounds(bare: &[f64], ours: &[f64], made: fn(f64, f64) -> f64) -> f64 {
    let rounds = bare.iter().zip(ours);
    median(
        &rounds
            .map(|(bare, ours)| made(*bare, *ours))
            .collect::<Vec<_>>(),
    )
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number of messages as a factor.
pub fn many(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut lines = vec![line(&head), "|---".repeat(head.len()) + "|"];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n") + "\n"
}
