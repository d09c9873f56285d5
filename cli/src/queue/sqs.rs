//! SQS through the AWS SDK. Every look at a message counts as a receive.

mod move_task;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::list_message_move_tasks::ListMessageMoveTasksError;
use aws_sdk_sqs::types::{
    ListMessageMoveTasksResultEntry as ListedTask, Message, MessageAttributeValue,
    MessageSystemAttributeName as Known, QueueAttributeName as Attribute,
};
use bytes::Bytes;
use serde_json::Value;

use self::move_task::MoveTask;
use super::broker::{Delivery, QueueClient, SendFailure, Size};
use crate::answer::Failure;

/// Messages per receive call.
const BATCH: usize = 10;
/// Seconds for which a message that is peeked at is hidden from consumers, should this program be killed.
const HIDDEN: i32 = 60;
/// Region for servers other than AWS when none is configured.
const ANY_REGION: &str = "us-east-1";
const POLL: Duration = Duration::from_millis(500);
/// Move tasks that SQS lists.
const LISTED_TASKS: i32 = 10;
/// How often a task may be missing in that list before it is given up.
const MAX_MISSING: u32 = 20;

/// Endpoint and credentials.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub region: Option<String>,
    /// URL of a server other than AWS.
    pub endpoint: Option<String>,
    /// Access key id and secret access key; `None`: the default chain of AWS.
    pub keys: Option<(String, String)>,
    /// Owner of the queues.
    pub owner: Option<String>,
}

/// A client of an SQS endpoint.
pub struct Sqs {
    client: Client,
    owner: Option<String>,
    urls: HashMap<String, String>,
    limit: Option<u64>,
}

/// Identifies a delivery.
pub struct Receipt {
    handle: String,
    attributes: Option<HashMap<String, MessageAttributeValue>>,
}

impl Sqs {
    /// Makes a client; sends no request to SQS.
    pub async fn open(account: &Account, limit: Option<u64>, timeout: Duration) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(timeout)
            .operation_timeout(timeout)
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts);
        if let Some(endpoint) = &account.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let custom = account.endpoint.as_ref().map(|_| ANY_REGION.to_owned());
        if let Some(region) = account.region.clone().or(custom) {
            loader = loader.region(Region::new(region));
        }
        if let Some((id, secret)) = &account.keys {
            loader = loader.credentials_provider(Credentials::new(id, secret, None, None, "user"));
        }
        Self {
            client: Client::new(&loader.load().await),
            owner: account.owner.clone(),
            urls: HashMap::new(),
            limit,
        }
    }

    /// The URL of a queue; `None` if it does not exist.
    async fn find(&mut self, queue: &str) -> Result<Option<String>, Failure> {
        if let Some(url) = self.urls.get(queue) {
            return Ok(Some(url.clone()));
        }
        let request = self.client.get_queue_url().queue_name(queue);
        let request = request.set_queue_owner_aws_account_id(self.owner.clone());
        let url = match request.send().await {
            Ok(found) => found.queue_url,
            Err(SdkError::ServiceError(error)) if error.err().is_queue_does_not_exist() => None,
            Err(error) => return Err(failure(queue, &error)),
        };
        self.urls
            .extend(url.iter().map(|url| (queue.to_owned(), url.clone())));
        Ok(url)
    }

    async fn url(&mut self, queue: &str) -> Result<String, Failure> {
        let url = self.find(queue).await?;
        url.ok_or_else(|| {
            Failure::new(format!(
                "SQS has no queue {queue}; check --address, and whether `kubectl asya status` reports it as ready"
            ))
        })
    }

    async fn attributes(&mut self, queue: &str) -> Result<HashMap<Attribute, String>, Failure> {
        let request = self.client.get_queue_attributes();
        let request = request.queue_url(self.url(queue).await?);
        let found = request.attribute_names(Attribute::All).send().await;
        let found = found.map_err(|error| failure(queue, &error))?;
        Ok(found.attributes.unwrap_or_default())
    }

    async fn arn(&mut self, queue: &str) -> Result<String, Failure> {
        let attributes = self.attributes(queue).await?;
        let arn = attributes.get(&Attribute::QueueArn).cloned();
        arn.ok_or_else(|| Failure::new(format!("SQS returned no ARN for queue {queue}")))
    }

    /// The last move tasks of a queue.
    async fn move_tasks(
        &self,
        arn: &str,
    ) -> Result<Vec<ListedTask>, SdkError<ListMessageMoveTasksError>> {
        let request = self.client.list_message_move_tasks().source_arn(arn);
        let found = request.max_results(LISTED_TASKS).send().await?;
        Ok(found.results.unwrap_or_default())
    }

    /// Follows a move of a queue's messages to its end.
    async fn moved(&self, dlq: &str, arn: &str, mut task: MoveTask) -> Result<u64, Failure> {
        let mut missing = 0;
        loop {
            let listed = self.move_tasks(arn).await;
            let listed = listed.map_err(|error| failure(dlq, &error))?;
            match task.find(&listed) {
                Some(found) => {
                    let count = found.approximate_number_of_messages_moved;
                    match found.status() {
                        Some("COMPLETED") => return Ok(u64::try_from(count).unwrap_or_default()),
                        Some("RUNNING" | "CANCELLING") => {}
                        other => {
                            let reason = found.failure_reason().unwrap_or_default();
                            let state = other.unwrap_or("unknown");
                            return Err(Failure::new(format!(
                                "SQS moved about {count} messages of {dlq}, then stopped: {state} {reason}"
                            )));
                        }
                    }
                }
                None if missing < MAX_MISSING => missing += 1,
                None => {
                    return Err(Failure::new(format!(
                        "SQS moves the messages of {dlq}, but does not list that move; `kubectl asya queue` shows \
                         what has arrived"
                    )));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl QueueClient for Sqs {
    type Handle = Receipt;

    async fn size(&mut self, queue: &str) -> Result<Option<Size>, Failure> {
        if self.find(queue).await?.is_none() {
            return Ok(None);
        }
        let attributes = self.attributes(queue).await?;
        let count = |name: &Attribute| attributes.get(name)?.parse::<u64>().ok();
        self.limit = attributes
            .get(&Attribute::RedrivePolicy)
            .and_then(|text| max_receives(text));
        Ok(Some(Size {
            waiting: count(&Attribute::ApproximateNumberOfMessages).unwrap_or_default()
                + count(&Attribute::ApproximateNumberOfMessagesDelayed).unwrap_or_default(),
            processing: count(&Attribute::ApproximateNumberOfMessagesNotVisible),
            consumers: None,
        }))
    }

    async fn take(&mut self, queue: &str, count: usize) -> Result<Vec<Delivery<Receipt>>, Failure> {
        let url = self.url(queue).await?;
        let mut taken = Vec::new();
        while taken.len() < count {
            let batch = i32::try_from((count - taken.len()).min(BATCH)).unwrap_or(1);
            let request = self.client.receive_message().queue_url(&url);
            let request = request
                .max_number_of_messages(batch)
                .visibility_timeout(HIDDEN)
                // A long poll asks all servers: a short one may miss messages.
                .wait_time_seconds(1)
                .message_system_attribute_names(Known::All)
                .message_attribute_names("All");
            let received = request.send().await;
            let received = received.map_err(|error| failure(queue, &error))?;
            let messages = received.messages.unwrap_or_default();
            if messages.is_empty() {
                break;
            }
            taken.extend(messages.into_iter().map(delivery));
        }
        Ok(taken)
    }

    async fn put_back(&mut self, queue: &str, delivery: Delivery<Receipt>) -> Result<(), Failure> {
        let request = self.client.change_message_visibility();
        let request = request.queue_url(self.url(queue).await?);
        let request = request
            .receipt_handle(delivery.handle.handle)
            .visibility_timeout(0);
        let changed = request.send().await;
        changed.map(drop).map_err(|error| failure(queue, &error))
    }

    async fn relocate(
        &mut self,
        from: &str,
        delivery: Delivery<Receipt>,
        to: &str,
    ) -> Result<(), Failure> {
        let body = text(to, &delivery.body)?;
        let attributes = delivery.handle.attributes.clone();
        let request = self.client.send_message().queue_url(self.url(to).await?);
        let request = request
            .message_body(body)
            .set_message_attributes(attributes);
        let sent = request.send().await;
        sent.map_err(|error| failure(to, &error))?;
        self.remove(from, delivery).await
    }

    async fn remove(&mut self, queue: &str, delivery: Delivery<Receipt>) -> Result<(), Failure> {
        let request = self.client.delete_message();
        let request = request.queue_url(self.url(queue).await?);
        let deleted = request.receipt_handle(delivery.handle.handle).send().await;
        deleted.map(drop).map_err(|error| failure(queue, &error))
    }

    async fn send(&mut self, queue: &str, _: &str, body: Bytes) -> Result<(), SendFailure> {
        let body = text(queue, &body)?;
        let request = self.client.send_message().queue_url(self.url(queue).await?);
        let sent = request.message_body(body).send().await;
        sent.map(drop).map_err(|error| {
            let why = failure(queue, &error);
            if may_be_done(&error) {
                SendFailure::Unconfirmed(why)
            } else {
                SendFailure::Refused(why)
            }
        })
    }

    async fn move_all(&mut self, dlq: &str, queue: &str) -> Result<Option<u64>, Failure> {
        let (source, destination) = (self.arn(dlq).await?, self.arn(queue).await?);
        // Servers that do not know these calls differ in how they say so; moving one by one fails if this was another
        // error.
        let listed = match self.move_tasks(&source).await {
            Err(SdkError::ServiceError(_)) => return Ok(None),
            listed => listed.map_err(|error| failure(dlq, &error))?,
        };
        let request = self.client.start_message_move_task();
        let request = request.source_arn(&source).destination_arn(&destination);
        match request.send().await {
            Ok(started) => {
                let task = MoveTask::new(started.task_handle, destination, &listed);
                self.moved(dlq, &source, task).await.map(Some)
            }
            Err(SdkError::ServiceError(_)) => Ok(None),
            Err(error) => Err(failure(dlq, &error)),
        }
    }

    fn delivery_limit(&self) -> Option<u64> {
        self.limit
    }
}

/// `maxReceiveCount` of a redrive policy, which servers write as a number or as text.
fn max_receives(policy: &str) -> Option<u64> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    let count = &policy["maxReceiveCount"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok())
}

fn delivery(message: Message) -> Delivery<Receipt> {
    let known = message.attributes.unwrap_or_default();
    let receives = known.get(&Known::ApproximateReceiveCount);
    let receives = receives.and_then(|count| count.parse::<u64>().ok());
    let source = known.get(&Known::DeadLetterQueueSourceArn);
    Delivery {
        // The count includes this receive.
        deliveries: receives.map(|count| count.saturating_sub(1)),
        source: source.and_then(|arn| Some(arn.rsplit_once(':')?.1.to_owned())),
        handle: Receipt {
            handle: message.receipt_handle.unwrap_or_default(),
            attributes: message.message_attributes,
        },
        body: message.body.unwrap_or_default().into(),
    }
}

fn text(queue: &str, body: &[u8]) -> Result<String, Failure> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| Failure::new(format!("queue {queue}: SQS takes text only")))?;
    Ok(text.to_owned())
}

/// Whether a server may have carried out a failed request: it has not answered, or with an error of its own.
fn may_be_done<E>(error: &SdkError<E>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => false,
        SdkError::ServiceError(service) => service.raw().status().is_server_error(),
        _ => true,
    }
}

fn failure<E>(queue: &str, error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    SdkError<E>: fmt::Debug,
{
    match error {
        SdkError::ServiceError(service) => {
            let (code, message) = (service.err().code(), service.err().message());
            let (code, message) = (code.unwrap_or("error"), message.unwrap_or_default());
            Failure::new(format!("SQS, queue {queue}: {code}: {message}"))
        }
        error => Failure::new(format!(
            "SQS, queue {queue}: {}; check --address, and that there are AWS credentials, or pass --user and \
             --password-file",
            DisplayErrorContext(error)
        )),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::config::http::HttpResponse;

    use super::*;

    #[test]
    fn message_may_be_stored_unless_the_server_refuses_it() {
        let answered = |code: u16| {
            let response = HttpResponse::new(code.try_into().unwrap(), "".into());
            SdkError::service_error((), response)
        };
        for (error, expected) in [
            (SdkError::construction_failure("no region"), false),
            (answered(400), false),
            (answered(503), true),
            (SdkError::timeout_error("late"), true),
        ] {
            assert_eq!(may_be_done(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn limit_of_receives_is_a_number_or_text() {
        for (policy, limit) in [
            (r#"{"maxReceiveCount":3}"#, Some(3)),
            (
                r#"{"maxReceiveCount":"4","deadLetterTargetArn":"a"}"#,
                Some(4),
            ),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(max_receives(policy), limit, "{policy}");
        }
    }

    #[test]
    fn delivery_counts_receives_before_this_one_and_knows_its_source() {
        let message = Message::builder()
            .body("{}")
            .attributes(Known::ApproximateReceiveCount, "3")
            .attributes(
                Known::DeadLetterQueueSourceArn,
                "arn:aws:sqs:eu-west-1:000000000000:asya-embed",
            );
        let found = delivery(message.build());
        assert_eq!(
            (found.deliveries, found.source.as_deref()),
            (Some(2), Some("asya-embed"))
        );
    }
}
