//! A bounded queue of reports, which drops progress reports first.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Report;

const CAPACITY: usize = 1024;

/// A single-consumer queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    /// A report was taken and is being sent.
    sending: bool,
    closed: bool,
}

impl Queue {
    /// Adds a report; returns the report dropped in its favour if the queue is full.
    pub(super) fn push(&self, report: Report) -> Option<Report> {
        let mut state = self.state.lock();
        let dropped = if state.reports.len() < CAPACITY {
            None
        } else {
            let oldest = state
                .reports
                .iter()
                .position(Report::is_progress)
                .unwrap_or(0);
            state.reports.remove(oldest)
        };
        state.reports.push_back(report);
        drop(state);
        self.changed.notify_one();
        dropped
    }

    /// The next report; `None` once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<Report> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(report) = state.reports.pop_front() {
                    state.sending = true;
                    return Some(report);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Marks the last report taken as sent or abandoned.
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
