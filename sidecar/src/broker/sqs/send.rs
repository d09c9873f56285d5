//! Sends messages (SC-39, SC-41).

use std::sync::Arc;
use std::time::Duration;

use asya_wire::queue::FIFO;
use tokio::time::sleep;

use super::Shared;
use super::error::{Failure, classify};
use crate::broker::{Publication, Refusal};
use crate::digest;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// SQS' bound for names of groups.
const LONGEST_GROUP: usize = 128;

/// Sends a message, again and again while SQS cannot be reached or is busy.
pub(super) async fn send(shared: Arc<Shared>, publication: Publication) -> Result<(), Refusal> {
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt(&shared, &publication).await {
            Ok(()) => return Ok(()),
            Err(Failure::Refused(refusal)) => {
                if refusal == Refusal::NoQueue {
                    shared.queues.forget(&publication.queue);
                }
                return Err(refusal);
            }
            Err(Failure::Transient(why)) => {
                tracing::warn!("SQS: a message cannot be sent: {why}; trying again");
            }
        }
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(shared: &Shared, publication: &Publication) -> Result<(), Failure> {
    let url = shared.queues.url(&publication.queue).await?;
    let body = String::from_utf8_lossy(&publication.body);
    let mut request = shared
        .client
        .send_message()
        .queue_url(url)
        .message_body(without_noncharacters(&body));
    if publication.queue.ends_with(FIFO) {
        request = request
            .message_group_id(group(publication))
            .message_deduplication_id(deduplication(publication));
    }
    request
        .send()
        .await
        .map(drop)
        .map_err(|error| classify(&error))
}

/// SQS refuses U+FFFE and U+FFFF, which JSON can carry escaped: they are only ever in strings.
pub(super) fn without_noncharacters(body: &str) -> String {
    body.replace('\u{fffe}', "\\ufffe")
        .replace('\u{ffff}', "\\uffff")
}

/// The group of the source, so that its order is kept; else the message is a group of its own.
pub(super) fn group(publication: &Publication) -> String {
    let group = publication.origin.group.as_ref().unwrap_or(&publication.id);
    let is_legal = (1..=LONGEST_GROUP).contains(&group.len())
        && group.bytes().all(|byte| byte.is_ascii_graphic());
    if is_legal {
        group.clone()
    } else {
        digest::of(group.as_bytes())
    }
}

/// The same for a source that comes again, and not for a message that is put back into its own queue.
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
