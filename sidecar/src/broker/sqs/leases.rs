//! Leases on messages in flight: visibility timeouts, extended until the message is settled (SC-37, SC-38).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use asya_wire::env::MAX_SQS_VISIBILITY_TIMEOUT;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry as Entry;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::error::{describe, may_be_done};

/// Maximum batch size of SQS.
const BATCH: usize = 10;
/// Interval at which failed extensions are retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// SQS' upper bound for the total visibility timeout of a message.
const MAX_VISIBILITY: Duration = Duration::from_secs(MAX_SQS_VISIBILITY_TIMEOUT as u64);

/// The lease on a message in flight.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) handle: String,
    /// How often the message has been received.
    pub(super) received: u32,
    since: Instant,
    /// When the visibility timeout expires.
    until: Instant,
    lost: bool,
}

impl Lease {
    /// Whether the visibility timeout has expired, so that another consumer may receive the message.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// When the visibility timeout expires.
    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

/// The leases of all messages in flight.
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

    /// Ends a lease.
    pub(super) fn end(&self, number: u64) -> Option<Lease> {
        let lease = self.all.lock().remove(&number);
        self.ended.notify_one();
        lease
    }

    /// Ends an expired lease; returns whether it had not been counted by [`Self::due`] yet.
    pub(super) fn end_expired(&self, number: u64, now: Instant) -> Option<bool> {
        let mut all = self.all.lock();
        let lease = all.get(&number).filter(|lease| now >= lease.until)?;
        let is_new = !lease.lost;
        all.remove(&number);
        self.ended.notify_one();
        Some(is_new)
    }

    pub(super) fn get(&self, number: u64) -> Option<Lease> {
        self.all.lock().get(&number).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// Resolves when a lease ends.
    pub(super) async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// The leases that need attention now.
    pub(super) fn due(&self, visibility: Duration, now: Instant) -> DueLeases {
        let mut lost = 0;
        let mut extend = Vec::new();
        for (number, lease) in self.all.lock().iter_mut().filter(|(_, lease)| !lease.lost) {
            if now >= lease.until {
                lease.lost = true;
                lost += 1;
            } else if lease.until - now <= visibility * 2 / 3
                && now + visibility <= lease.since + MAX_VISIBILITY
            {
                extend.push((*number, lease.handle.clone()));
            }
        }
        DueLeases { extend, lost }
    }

    pub(super) fn extended(&self, number: u64, until: Instant) {
        if let Some(lease) = self.all.lock().get_mut(&number) {
            lease.until = until;
        }
    }
}

/// The result of [`Leases::due`].
pub(super) struct DueLeases {
    /// Number and receipt handle of leases to extend, because a third of their visibility timeout has elapsed.
    pub(super) extend: Vec<(u64, String)>,
    /// How many have expired since the last call.
    pub(super) lost: u64,
}

/// Extends leases until the process exits.
pub(super) async fn extend(shared: Arc<Shared>) {
    let visibility = shared.settings.visibility;
    loop {
        sleep(RETRY_INTERVAL.min(visibility / 6)).await;
        let DueLeases { extend, lost } = shared.leases.due(visibility, Instant::now());
        if lost > 0 {
            tracing::warn!(
                lost,
                "SQS: visibility timeout expired while messages were being processed"
            );
            shared.metrics.leases_lost.inc_by(lost);
        }
        let mut batches = JoinSet::new();
        for batch in extend.chunks(BATCH) {
            batches.spawn(extend_batch(shared.clone(), batch.to_vec()));
        }
        batches.join_all().await;
    }
}

async fn extend_batch(shared: Arc<Shared>, leases: Vec<(u64, String)>) {
    let visibility = shared.settings.visibility;
    let until = Instant::now() + visibility;
    let extended = set_visibility(&shared, &leases, visibility).await;
    let extended = extended.unwrap_or_default();
    shared.metrics.extended(extended.len(), true);
    shared
        .metrics
        .extended(leases.len() - extended.len(), false);
    for number in extended {
        shared.leases.extended(number, until);
    }
}

/// Why the visibility timeout of messages was not set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unset {
    /// SQS may have set it nevertheless.
    pub(super) may_be_done: bool,
}

/// Sets the visibility timeout of up to ten messages; returns those for which that succeeded.
pub(super) async fn set_visibility(
    shared: &Shared,
    leases: &[(u64, String)],
    visibility: Duration,
) -> Result<Vec<u64>, Unset> {
    let seconds = i32::try_from(visibility.as_secs()).unwrap_or(i32::MAX);
    let entry = |(number, handle): &(u64, String)| {
        Entry::builder()
            .id(number.to_string())
            .receipt_handle(handle)
            .visibility_timeout(seconds)
            .build()
            .ok()
    };
    let entries: Vec<Entry> = leases.iter().filter_map(entry).collect();
    let failed = |why: &dyn Display| {
        tracing::warn!("SQS: cannot set the visibility timeout of messages in flight: {why}");
    };
    let url = match shared.queues.url(&shared.own).await {
        Ok(url) => url,
        Err(failure) => {
            failed(&failure);
            return Err(Unset { may_be_done: false });
        }
    };
    let request = |sqs: &Client| {
        sqs.change_message_visibility_batch()
            .queue_url(&url)
            .set_entries(Some(entries.clone()))
            .send()
    };
    let response = match shared.api.send(request).await {
        Ok(response) => response,
        Err(error) => {
            failed(&describe(&error));
            return Err(Unset {
                may_be_done: may_be_done(&error),
            });
        }
    };
    if let Some(entry) = response.failed().first() {
        failed(&entry.code());
    }
    let succeeded = response.successful().iter();
    Ok(succeeded
        .filter_map(|entry| entry.id().parse().ok())
        .collect())
}
