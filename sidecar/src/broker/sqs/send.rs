//! Sends messages; a fan-out is sent in batches (SC-39, SC-41).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asya_wire::queue::FIFO;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry as Entry;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::sleep;

use super::Shared;
use super::error::{Failure, classify, refusal};
use crate::broker::{Publication, Refusal};
use crate::digest;

/// Maximum batch size of SQS.
const BATCH: usize = 10;
/// Maximum size of a message body, and of all bodies of a batch together. For a larger body, SQS may close the
/// connection while receiving it, which looks like a transient failure.
const MAX_BYTES: usize = 1 << 20;
/// Maximum concurrent requests.
const CONCURRENT_REQUESTS: usize = 16;
const INITIAL_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Maximum length of a message group id.
const MAX_GROUP_LENGTH: usize = 128;

#[derive(Clone)]
pub(super) struct Publisher(mpsc::UnboundedSender<Request>);

/// A message to send, and the channel for its result.
pub(super) struct Request {
    pub(super) publication: Publication,
    pub(super) reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Publisher {
    pub(super) fn start(shared: Arc<Shared>) -> Self {
        let (requests, to_send) = mpsc::unbounded_channel();
        tokio::spawn(run(shared, to_send));
        Self(requests)
    }

    /// Sends a message, retrying while SQS is unreachable or throttles requests.
    pub(super) fn send(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        let (reply, result) = oneshot::channel();
        // The task ends only with the process.
        let _ = self.0.send(Request { publication, reply });
        async move { result.await.unwrap_or(Err(Refusal::Closing)) }
    }
}

async fn run(shared: Arc<Shared>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let open = Arc::new(Semaphore::new(CONCURRENT_REQUESTS));
    while let Some(first) = requests.recv().await {
        let mut pending = vec![first];
        // A fan-out is enqueued as a whole, so there is no need to wait for more messages.
        while let Ok(next) = requests.try_recv() {
            pending.push(next);
        }
        for batches in batches(pending) {
            tokio::spawn(send_in_order(shared.clone(), open.clone(), batches));
        }
    }
}

/// Groups messages into batches by destination. The batches of each returned list are sent one after the other.
/// Messages of a FIFO group are sent one at a time, since a batch may store a later message although an earlier one
/// failed.
pub(super) fn batches(pending: Vec<Request>) -> Vec<Vec<Vec<Request>>> {
    let mut standard: BTreeMap<String, Vec<Vec<Request>>> = BTreeMap::new();
    let mut fifo: BTreeMap<(String, String), Vec<Vec<Request>>> = BTreeMap::new();
    for request in pending {
        let queue = request.publication.queue.clone();
        if queue.ends_with(FIFO) {
            let group = group(&request.publication);
            fifo.entry((queue, group)).or_default().push(vec![request]);
            continue;
        }
        let batches = standard.entry(queue).or_default();
        match batches.last_mut().filter(|batch| has_room(batch, &request)) {
            Some(batch) => batch.push(request),
            None => batches.push(vec![request]),
        }
    }
    let independent = standard.into_values().flatten().map(|batch| vec![batch]);
    independent.chain(fifo.into_values()).collect()
}

fn has_room(batch: &[Request], request: &Request) -> bool {
    let bytes = |request: &Request| request.publication.body.len();
    batch.len() < BATCH && batch.iter().map(bytes).sum::<usize>() + bytes(request) <= MAX_BYTES
}

async fn send_in_order(shared: Arc<Shared>, open: Arc<Semaphore>, batches: Vec<Vec<Request>>) {
    for mut batch in batches {
        let mut delay = INITIAL_DELAY;
        loop {
            // Drop messages whose source delivery is lost (SC-74).
            batch.retain(|request| !request.reply.is_closed());
            let Ok(permit) = open.acquire().await else {
                return;
            };
            batch = attempt(&shared, batch).await;
            drop(permit);
            if batch.is_empty() {
                break;
            }
            sleep(delay.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            delay = (delay * 2).min(MAX_DELAY);
        }
    }
}

/// Sends messages to one queue; returns those to retry.
async fn attempt(shared: &Shared, batch: Vec<Request>) -> Vec<Request> {
    if batch.len() > 1 {
        match send_batch(shared, &batch).await {
            Ok(results) => return settle(shared, batch, results),
            Err(Failure::Transient(why)) => {
                warn(&why);
                return batch;
            }
            // The batch as a whole was refused, for example because of its size: send individually to find the culprit.
            Err(Failure::Refused(_)) => {}
        }
    }
    let mut retry = Vec::new();
    for request in batch {
        let result = send_one(shared, &request.publication).await;
        retry.extend(settle(shared, vec![request], vec![result]));
    }
    retry
}

/// Completes each request with its result; returns those to retry.
fn settle(shared: &Shared, batch: Vec<Request>, results: Vec<Result<(), Failure>>) -> Vec<Request> {
    let mut retry = Vec::new();
    for (request, result) in batch.into_iter().zip(results) {
        let result = match result {
            Ok(()) => Ok(()),
            Err(Failure::Transient(why)) => {
                warn(&why);
                retry.push(request);
                continue;
            }
            Err(Failure::Refused(refusal)) => {
                if refusal == Refusal::NoQueue {
                    shared.queues.forget(&request.publication.queue);
                }
                Err(refusal)
            }
        };
        // The receiver is gone if the source delivery was lost.
        let _ = request.reply.send(result);
    }
    retry
}

fn warn(why: &str) {
    tracing::warn!("SQS: cannot send a message: {why}; retrying");
}

async fn send_one(shared: &Shared, publication: &Publication) -> Result<(), Failure> {
    let body = String::from_utf8_lossy(&publication.body);
    let body = without_noncharacters(&body);
    if body.len() > MAX_BYTES {
        return Err(Failure::Refused(Refusal::TooLarge));
    }
    let url = shared.queues.url(&publication.queue).await?;
    let is_fifo = publication.queue.ends_with(FIFO);
    let request = |sqs: &Client| {
        sqs.send_message()
            .queue_url(&url)
            .message_body(&body)
            .set_message_group_id(is_fifo.then(|| group(publication)))
            .set_message_deduplication_id(is_fifo.then(|| deduplication(publication)))
            .send()
    };
    shared
        .api
        .send(request)
        .await
        .map(drop)
        .map_err(|error| classify(&error))
}

/// The result for each message of the batch, or why the whole batch failed. Never called for a FIFO queue, whose
/// messages are sent one at a time.
async fn send_batch(
    shared: &Shared,
    batch: &[Request],
) -> Result<Vec<Result<(), Failure>>, Failure> {
    let queue = batch.first().map(|request| &request.publication.queue);
    let url = shared.queues.url(queue.map_or("", String::as_str)).await?;
    let entry = |(index, request): (usize, &Request)| {
        let body = String::from_utf8_lossy(&request.publication.body);
        Entry::builder()
            .id(index.to_string())
            .message_body(without_noncharacters(&body))
            .build()
            .ok()
    };
    let entries: Vec<Entry> = batch.iter().enumerate().filter_map(entry).collect();
    let request = |sqs: &Client| {
        sqs.send_message_batch()
            .queue_url(&url)
            .set_entries(Some(entries.clone()))
            .send()
    };
    let response = shared
        .api
        .send(request)
        .await
        .map_err(|error| classify(&error))?;
    // An entry without a result does not count as sent.
    let missing_result = || Err(Failure::Transient("no result for a batch entry".to_owned()));
    let mut results: Vec<_> = batch.iter().map(|_| missing_result()).collect();
    let mut set = |id: &str, result| {
        if let Some(slot) = id
            .parse()
            .ok()
            .and_then(|index: usize| results.get_mut(index))
        {
            *slot = result;
        }
    };
    for sent in response.successful() {
        set(sent.id(), Ok(()));
    }
    for failed in response.failed() {
        let failure = refusal(failed.code(), failed.message().unwrap_or_default()).map_or_else(
            || Failure::Transient(failed.code().to_owned()),
            Failure::Refused,
        );
        set(failed.id(), Err(failure));
    }
    Ok(results)
}

/// Escapes U+FFFE and U+FFFF, which SQS refuses. JSON can carry them escaped, since they occur only in strings.
pub(super) fn without_noncharacters(body: &str) -> String {
    body.replace('\u{fffe}', "\\ufffe")
        .replace('\u{ffff}', "\\uffff")
}

/// The source's message group, which preserves its order; without one the source's id, which preserves the order of a
/// fan-out.
pub(super) fn group(publication: &Publication) -> String {
    let source = publication
        .id
        .strip_suffix(&format!("-{}", publication.index))
        .filter(|_| publication.index > 0)
        .unwrap_or(&publication.id);
    let group = publication.origin.group.as_deref().unwrap_or(source);
    let is_legal = (1..=MAX_GROUP_LENGTH).contains(&group.len())
        && group.bytes().all(|byte| byte.is_ascii_graphic());
    if is_legal {
        group.to_owned()
    } else {
        digest::of(group.as_bytes())
    }
}

/// Deduplication id: stable across redeliveries of the source, but different for a message routed back to its own
/// queue.
pub(super) fn deduplication(publication: &Publication) -> String {
    let source = publication
        .origin
        .message
        .as_ref()
        .unwrap_or(&publication.id);
    digest::of_parts(&[
        source.as_bytes(),
        &publication.index.to_be_bytes(),
        publication.queue.as_bytes(),
    ])
}
