//! Shrinks a failing run: leaves out actions and faults as long as it still fails in the same way.

use crate::run::{Options, Report, run};

/// The smallest failing run found in at most `attempts` runs, with its report.
#[must_use]
pub fn shrink(options: &Options, report: Report, mut attempts: usize) -> (Options, Report) {
    let (mut best, mut report) = (options.clone(), report);
    let mut size = report.actions.max(report.faults.len()).next_power_of_two();
    while size >= 1 && attempts > 0 {
        let mut smaller = false;
        for candidate in candidates(&best, &report, size) {
            if attempts == 0 {
                break;
            }
            attempts -= 1;
            let attempt = run(&candidate);
            if kind(&attempt) == kind(&report) {
                (best, report, smaller) = (candidate, attempt, true);
                break;
            }
        }
        if !smaller {
            size /= 2;
        }
    }
    (best, report)
}

/// The kind of failure: the message without the names and numbers of the run.
fn kind(report: &Report) -> String {
    let first = report.violations.first().map_or("", String::as_str);
    let text = first.split(['{', '[', '(']).next().unwrap_or_default();
    let words = text.split_whitespace();
    let words = words.filter(|word| word.chars().all(|it| it.is_alphabetic() || it == ':'));
    words.collect::<Vec<_>>().join(" ")
}

/// The run without some of its remaining faults or actions.
fn candidates(best: &Options, report: &Report, size: usize) -> Vec<Options> {
    let faults: Vec<&String> = report.faults.keys().collect();
    let actions = (0..report.actions).filter(|number| !best.without_actions.contains(number));
    let actions: Vec<usize> = actions.collect();
    let without_faults = faults.chunks(size).map(|chunk| {
        let mut options = best.clone();
        options
            .without_faults
            .extend(chunk.iter().map(|call| (*call).clone()));
        options
    });
    let without_actions = actions.chunks(size).map(|chunk| {
        let mut options = best.clone();
        options.without_actions.extend(chunk);
        options
    });
    without_actions.chain(without_faults).collect()
}
