//! Reports that wait: a bounded queue that loses progress before anything else.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Report;

const CAPACITY: usize = 1024;

/// A queue with one reader.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    /// One was taken and is being sent.
    sending: bool,
    closed: bool,
}

impl Queue {
    /// Adds a report; returns the one that is dropped for it, if the queue is full.
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

    /// The next report; `None`: there will be none any more.
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

    /// The report that was taken last is sent, or given up.
    pub(super) fn done(&self) {
        self.state.lock().sending = false;
    }

    /// What is in it is still sent.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Whether it is closed and nothing is left of it.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closed && !state.sending && state.reports.is_empty()
    }
}
