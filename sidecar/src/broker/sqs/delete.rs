//! Deletes messages that are done, several at once (SC-39, SC-40).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry as Entry;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;

/// SQS' bound for a batch.
const BATCH: usize = 10;
/// How long the first of a batch waits for others.
const WAIT: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Deletions on their way.
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

    /// Deletes a message. Tried for as long as it is hidden: a request without an answer is not taken for done.
    pub(super) async fn delete(&self, shared: &Shared, number: u64) {
        let mut pause = FIRST_PAUSE;
        while let Some(lease) = shared.leases.get(number).filter(|lease| !lease.is_lost()) {
            let (deleted, answer) = oneshot::channel();
            // The task ends only with the process.
            let _ = self.0.send(Deletion {
                number,
                handle: lease.handle,
                deleted,
            });
            if answer.await == Ok(true) {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        shared.leases.end(number);
    }
}

async fn run(shared: Arc<Shared>, mut deletions: mpsc::UnboundedReceiver<Deletion>) {
    while let Some(first) = deletions.recv().await {
        let mut batch = vec![first];
        // One that is alone does not wait: others could not come before it is done.
        let others = shared.leases.count() > 1;
        let until = Instant::now() + if others { WAIT } else { Duration::ZERO };
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
        // The one who asked may be gone at the end of the process.
        let _ = deletion.deleted.send(deleted.contains(&deletion.number));
    }
}

async fn delete(shared: &Shared, batch: &[Deletion]) -> HashSet<u64> {
    let Ok(url) = shared.queues.url(&shared.own).await else {
        return HashSet::new();
    };
    if let [one] = batch {
        let request = shared
            .client
            .delete_message()
            .queue_url(url)
            .receipt_handle(&one.handle);
        return request
            .send()
            .await
            .is_ok()
            .then_some(one.number)
            .into_iter()
            .collect();
    }
    let entry = |deletion: &Deletion| {
        Entry::builder()
            .id(deletion.number.to_string())
            .receipt_handle(&deletion.handle)
            .build()
            .ok()
    };
    let entries = batch.iter().filter_map(entry).collect();
    let request = shared
        .client
        .delete_message_batch()
        .queue_url(url)
        .set_entries(Some(entries));
    let Ok(answer) = request.send().await else {
        return HashSet::new();
    };
    answer
        .successful()
        .iter()
        .filter_map(|entry| entry.id().parse().ok())
        .collect()
}
