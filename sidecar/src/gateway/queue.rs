//! A bounded queue of reports, which drops progress reports first.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Report;

const CAPACITY: usize = 1024;
/// Maximum total size of all bodies: a final report contains the payload of its message. A single larger report is
/// accepted.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// A single-consumer queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    /// Total size of all bodies.
    bytes: usize,
    /// Whether a report was taken and is being sent.
    sending: bool,
    closed: bool,
}

impl State {
    fn take(&mut self, index: usize) -> Option<Report> {
        let report = self.reports.remove(index)?;
        self.bytes -= report.body.len();
        Some(report)
    }
}

impl Queue {
    /// Adds a report; returns the reports dropped for it if the queue is full.
    pub(super) fn push(&self, report: Report) -> Vec<Report> {
        let mut state = self.state.lock();
        let mut dropped = Vec::new();
        while state.reports.len() >= CAPACITY || state.bytes + report.body.len() > MAX_BYTES {
            let oldest = state.reports.iter().position(Report::is_progress);
            let Some(oldest) = state.take(oldest.unwrap_or(0)) else {
                break;
            };
            dropped.push(oldest);
        }
        state.bytes += report.body.len();
        state.reports.push_back(report);
        drop(state);
        self.changed.notify_one();
        dropped
    }

    /// The next report that is due, or any once the queue is closed; `None` once it is closed and empty.
    pub(super) async fn next(&self) -> Option<Report> {
        loop {
            let due = {
                let mut state = self.state.lock();
                let (closed, now) = (state.closed, Instant::now());
                let is_due = |report: &Report| closed || report.due().is_none_or(|due| due <= now);
                if let Some(next) = state.reports.iter().position(is_due) {
                    state.sending = true;
                    return state.take(next);
                }
                if closed {
                    return None;
                }
                state.reports.iter().filter_map(Report::due).min()
            };
            let due = async {
                sleep_until(due?).await;
                Some(())
            };
            tokio::select! {
                () = self.changed.notified() => {}
                Some(()) = due => {}
            }
        }
    }

    /// Marks the report taken last as sent or abandoned.
    pub(super) fn done(&self) {
        self.state.lock().sending = false;
    }

    /// Closes the queue; its remaining reports are still sent.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Whether the queue is closed and drained.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closed && !state.sending && state.reports.is_empty()
    }
}
