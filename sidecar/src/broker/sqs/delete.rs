//! Deletes processed messages in batches (SC-39, SC-40).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry as Entry;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::error::{Failure, classify};

/// Maximum batch size of SQS.
const BATCH: usize = 10;
/// How long the first deletion of a batch waits for more.
const BATCH_WINDOW: Duration = Duration::from_millis(20);
const INITIAL_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Deletions(mpsc::UnboundedSender<Deletion>);

struct Deletion {
    number: u64,
    handle: String,
    deleted: oneshot::Sender<bool>,
}

impl Deletions {
    pub(super) fn start(shared: Arc<Shared>) -> Self {
        let (deletions, to_delete) = mpsc::unbounded_channel();
        tokio::spawn(run(shared, to_delete));
        Self(deletions)
    }

    /// Deletes a message, retrying until SQS confirms it or the visibility timeout expires. An expired one is still
    /// tried once: SQS deletes the message unless it has been received again.
    pub(super) async fn delete(&self, shared: &Shared, number: u64) {
        let mut delay = INITIAL_DELAY;
        while let Some(lease) = shared.leases.get(number) {
            let is_lost = lease.is_lost();
            let (deleted, result) = oneshot::channel();
            // The task ends only with the process.
            let _ = self.0.send(Deletion {
                number,
                handle: lease.handle,
                deleted,
            });
            if result.await == Ok(true) || is_lost {
                break;
            }
            sleep(delay).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
        shared.leases.end(number);
    }
}

async fn run(shared: Arc<Shared>, mut deletions: mpsc::UnboundedReceiver<Deletion>) {
    while let Some(first) = deletions.recv().await {
        let mut batch = vec![first];
        // With a single message in flight no other deletion can follow, so do not wait.
        let others = shared.leases.count() > 1;
        let until = Instant::now() + if others { BATCH_WINDOW } else { Duration::ZERO };
        while batch.len() < BATCH {
            let Ok(Some(next)) = timeout_at(until, deletions.recv()).await else {
                break;
            };
            batch.push(next);
        }
        tokio::spawn(send(shared.clone(), batch));
    }
}

async fn send(shared: Arc<Shared>, batch: Vec<Deletion>) {
    let deleted = delete(&shared, &batch).await;
    for deletion in batch {
        // The receiver may be gone during shutdown.
        let _ = deletion.deleted.send(deleted.contains(&deletion.number));
    }
}

async fn delete(shared: &Shared, batch: &[Deletion]) -> HashSet<u64> {
    let deleted = match batch {
        [one] => delete_one(shared, one).await,
        many => delete_batch(shared, many).await,
    };
    deleted.unwrap_or_else(|failure| {
        tracing::warn!("SQS: cannot delete a processed message: {failure}; retrying");
        HashSet::new()
    })
}

async fn delete_one(shared: &Shared, one: &Deletion) -> Result<HashSet<u64>, Failure> {
    let url = shared.queues.url(&shared.own).await?;
    let request = |sqs: &Client| {
        sqs.delete_message()
            .queue_url(&url)
            .receipt_handle(&one.handle)
            .send()
    };
    let deleted = shared.api.send(request).await;
    deleted
        .map(|_| HashSet::from([one.number]))
        .map_err(|error| classify(&error))
}

async fn delete_batch(shared: &Shared, batch: &[Deletion]) -> Result<HashSet<u64>, Failure> {
    let url = shared.queues.url(&shared.own).await?;
    let entry = |deletion: &Deletion| {
        Entry::builder()
            .id(deletion.number.to_string())
            .receipt_handle(&deletion.handle)
            .build()
            .ok()
    };
    let entries: Vec<Entry> = batch.iter().filter_map(entry).collect();
    let request = |sqs: &Client| {
        sqs.delete_message_batch()
            .queue_url(&url)
            .set_entries(Some(entries.clone()))
            .send()
    };
    let result = shared.api.send(request).await;
    let result = result.map_err(|error| classify(&error))?;
    let deleted = result.successful().iter();
    Ok(deleted
        .filter_map(|entry| entry.id().parse().ok())
        .collect())
}
