//! Messages that are in flight, hidden from others for as long as that is extended (SC-37, SC-38).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asya_wire::env::MAX_SQS_VISIBILITY_TIMEOUT;
use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Entry;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::Shared;

/// SQS' bound for a batch.
const BATCH: usize = 10;
/// How often an extension that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Longer than this SQS hides no message.
const LONGEST: Duration = Duration::from_secs(MAX_SQS_VISIBILITY_TIMEOUT as u64);

/// A message in flight.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) handle: String,
    /// How often it was received.
    pub(super) received: u32,
    since: Instant,
    /// Until when it is hidden.
    until: Instant,
    lost: bool,
}

impl Lease {
    /// Whether others can have the message.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }
}

/// All messages in flight.
#[derive(Default)]
pub(super) struct Leases {
    all: Mutex<BTreeMap<u64, Lease>>,
    ended: Notify,
}

impl Leases {
    pub(super) fn begin(
        &self,
        number: u64,
        handle: String,
        received: u32,
        visibility: Duration,
        since: Instant,
    ) {
        let lease = Lease {
            handle,
            received,
            since,
            until: since + visibility,
            lost: false,
        };
        self.all.lock().insert(number, lease);
    }

    /// The message is no longer ours.
    pub(super) fn end(&self, number: u64) -> Option<Lease> {
        let lease = self.all.lock().remove(&number);
        self.ended.notify_one();
        lease
    }

    pub(super) fn get(&self, number: u64) -> Option<Lease> {
        self.all.lock().get(&number).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// Ends when one has ended.
    pub(super) async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// Those that are to be extended now: a third of their time is over. Those whose time is over altogether are lost,
    /// which is counted once.
    pub(super) fn due(&self, visibility: Duration, now: Instant) -> (Vec<(u64, String)>, u64) {
        let mut lost = 0;
        let mut due = Vec::new();
        for (number, lease) in self.all.lock().iter_mut().filter(|(_, lease)| !lease.lost) {
            if now >= lease.until {
                lease.lost = true;
                lost += 1;
            } else if lease.until - now <= visibility * 2 / 3
                && now + visibility <= lease.since + LONGEST
            {
                due.push((*number, lease.handle.clone()));
            }
        }
        (due, lost)
    }

    pub(super) fn extended(&self, number: u64, until: Instant) {
        if let Some(lease) = self.all.lock().get_mut(&number) {
            lease.until = until;
        }
    }
}

/// Extends leases for as long as the process lives.
pub(super) async fn extend(shared: Arc<Shared>) {
    let visibility = shared.settings.visibility;
    loop {
        sleep(AGAIN.min(visibility / 6)).await;
        let (due, lost) = shared.leases.due(visibility, Instant::now());
        if lost > 0 {
            tracing::warn!(
                lost,
                "SQS: messages came into sight again while they were worked on"
            );
            shared.metrics.leases_lost.inc_by(lost);
        }
        for some in due.chunks(BATCH) {
            let extended = batch(&shared, some, visibility).await;
            shared.metrics.extended(extended, true);
            shared.metrics.extended(some.len() - extended, false);
        }
    }
}

/// Extends up to ten leases; returns how many were.
async fn batch(shared: &Shared, leases: &[(u64, String)], visibility: Duration) -> usize {
    let seconds = i32::try_from(visibility.as_secs()).unwrap_or(i32::MAX);
    let until = Instant::now() + visibility;
    let entry = |(number, handle): &(u64, String)| {
        Entry::builder()
            .id(number.to_string())
            .receipt_handle(handle)
            .visibility_timeout(seconds)
            .build()
            .ok()
    };
    let entries = leases.iter().filter_map(entry).collect();
    let Ok(url) = shared.queues.url(&shared.own).await else {
        return 0;
    };
    let request = shared
        .client
        .change_message_visibility_batch()
        .queue_url(url)
        .set_entries(Some(entries));
    let Ok(answer) = request.send().await else {
        return 0;
    };
    let extended = answer
        .successful()
        .iter()
        .filter_map(|entry| entry.id().parse().ok());
    extended
        .inspect(|number| shared.leases.extended(*number, until))
        .count()
}
