//! SQS through the AWS SDK. Every peek at a message counts as a receive.

#[cfg(test)]
mod fake;
mod hold;
mod move_task;

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    Message, MessageAttributeValue, MessageSystemAttributeName as Known,
    QueueAttributeName as Attribute,
};
use aws_smithy_http_client::Builder as HttpClient;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use bytes::Bytes;
use serde_json::Value;

use self::hold::{HIDDEN, Hold, is_lapsed};
use super::broker::{Delivery, Moved, QueueClient, SendFailure, Settlement, Size};
use crate::answer::Failure;
use crate::interrupt::Interrupt;

/// Maximum batch size of SQS.
const BATCH: usize = 10;
/// Region for servers other than AWS, unless one is configured.
const ANY_REGION: &str = "us-east-1";

/// Endpoint and credentials.
#[derive(Clone, Debug, Default)]
pub struct Account {
    pub region: Option<String>,
    /// URL of a server other than AWS.
    pub endpoint: Option<String>,
    /// Whether the endpoint is a port-forward of this program, which no proxy can reach.
    pub is_forwarded: bool,
    /// Access key id and secret access key; `None` for the default chain of AWS.
    pub keys: Option<(String, String)>,
    /// Account that owns the queues.
    pub owner: Option<String>,
}

/// A client of an SQS endpoint.
pub struct Sqs {
    client: Client,
    owner: Option<String>,
    urls: HashMap<String, String>,
    limit: Option<u64>,
    clock: Box<dyn Fn() -> Instant>,
}

/// Identifies a delivery.
#[derive(Clone, Debug)]
pub struct Receipt {
    handle: String,
    attributes: Option<HashMap<String, MessageAttributeValue>>,
    /// `None` once SQS has taken the message back.
    hold: Option<Hold>,
}

impl Sqs {
    /// Creates a client without sending a request to SQS.
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
        let mut config = aws_sdk_sqs::config::Builder::from(&loader.load().await);
        if account.is_forwarded {
            // The SDK's own client uses `HTTP_PROXY` for loopback addresses as well. Credentials are still obtained
            // through a proxy.
            let provider = Provider::Rustls(CryptoMode::AwsLc);
            let client = HttpClient::new().tls_provider(provider).build_https();
            config = config.http_client(client);
        }
        Self {
            client: Client::from_conf(config.build()),
            owner: account.owner.clone(),
            urls: HashMap::new(),
            limit,
            clock: Box::new(Instant::now),
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

    /// Stores a message; returns once SQS has confirmed it.
    async fn store(
        &mut self,
        queue: &str,
        body: &[u8],
        attributes: Option<HashMap<String, MessageAttributeValue>>,
    ) -> Result<(), SendFailure> {
        let body = text(queue, body)?;
        let request = self.client.send_message().queue_url(self.url(queue).await?);
        let request = request.set_message_attributes(attributes);
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

    async fn delete(
        &mut self,
        queue: &str,
        receipt: String,
        hold: Hold,
    ) -> Result<Settlement, Failure> {
        let request = self.client.delete_message();
        let request = request.queue_url(self.url(queue).await?);
        match request.receipt_handle(receipt).send().await {
            // SQS also accepts the deletion of a message that it has redelivered, but keeps the message.
            Ok(_) if hold.is_over((self.clock)()) => Ok(Settlement::Late),
            Ok(_) => Ok(Settlement::Done),
            Err(error) if error.code().is_some_and(is_lapsed) => Ok(Settlement::Lapsed),
            Err(error) => Err(failure(queue, &error)),
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
            let receipts = taken.iter_mut().map(|it: &mut Delivery<_>| &mut it.handle);
            self.extend(queue, receipts.collect()).await?;
            let batch = i32::try_from((count - taken.len()).min(BATCH)).unwrap_or(1);
            let request = self.client.receive_message().queue_url(&url);
            let request = request
                .max_number_of_messages(batch)
                .visibility_timeout(seconds(HIDDEN))
                // A long poll asks all servers; a short one may miss messages.
                .wait_time_seconds(1)
                .message_system_attribute_names(Known::All)
                .message_attribute_names("All");
            let hold = Hold::new((self.clock)());
            let received = request.send().await;
            let received = received.map_err(|error| failure(queue, &error))?;
            let before = taken.len();
            for message in received.messages.unwrap_or_default() {
                add(&mut taken, delivery(message, hold));
            }
            // Meanwhile, SQS may have taken some back, and have no others.
            if taken.len() == before {
                break;
            }
        }
        Ok(taken)
    }

    async fn keep(&mut self, queue: &str, held: &mut [Delivery<Receipt>]) -> Result<(), Failure> {
        let held = held.iter_mut().map(|it| &mut it.handle).collect();
        self.extend(queue, held).await
    }

    async fn put_back(&mut self, queue: &str, held: Vec<Delivery<Receipt>>) -> Result<(), Failure> {
        for batch in held.chunks(BATCH) {
            let batch = batch.iter().map(|it| (&it.handle, Duration::ZERO));
            self.hide(queue, batch).await?;
        }
        Ok(())
    }

    async fn relocate(
        &mut self,
        from: &str,
        mut delivery: Delivery<Receipt>,
        to: &str,
    ) -> Result<Settlement, Failure> {
        self.extend(from, vec![&mut delivery.handle]).await?;
        let Receipt {
            handle,
            attributes,
            hold,
        } = delivery.handle;
        let Some(hold) = hold else {
            return Ok(Settlement::Lapsed);
        };
        let stored = self.store(to, &delivery.body, attributes).await;
        stored.map_err(|failure| failure.of_copy(from, to))?;
        match self.delete(from, handle, hold).await {
            Ok(Settlement::Done) => Ok(Settlement::Done),
            Ok(Settlement::Late | Settlement::Lapsed) => Ok(Settlement::Late),
            Err(why) => Err(Failure::new(format!(
                "{why}; one message is in {to}, and may still be in {from}"
            ))),
        }
    }

    async fn remove(
        &mut self,
        queue: &str,
        mut delivery: Delivery<Receipt>,
    ) -> Result<Settlement, Failure> {
        self.extend(queue, vec![&mut delivery.handle]).await?;
        match delivery.handle.hold {
            Some(hold) => self.delete(queue, delivery.handle.handle, hold).await,
            None => Ok(Settlement::Lapsed),
        }
    }

    async fn send(&mut self, queue: &str, _: &str, body: Bytes) -> Result<(), SendFailure> {
        self.store(queue, &body, None).await
    }

    async fn move_all(
        &mut self,
        dlq: &str,
        queue: &str,
        interrupt: &Interrupt,
    ) -> Result<Option<Moved>, Failure> {
        self.move_by_task(dlq, queue, interrupt).await
    }

    fn delivery_limit(&self) -> Option<u64> {
        self.limit
    }

    const LIMIT_SOURCE: &str = "as the queue's redrive policy says";
}

/// The `maxReceiveCount` of a redrive policy, which servers write as a number or as text.
fn max_receives(policy: &str) -> Option<u64> {
    let policy: Value = serde_json::from_str(policy).ok()?;
    let count = &policy["maxReceiveCount"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok())
}

/// Adds a message. If SQS has redelivered one, only its latest receipt counts.
fn add(taken: &mut Vec<Delivery<Receipt>>, delivery: Delivery<Receipt>) {
    let is_same = |it: &&mut Delivery<Receipt>| it.id.is_some() && it.id == delivery.id;
    match taken.iter_mut().find(is_same) {
        Some(former) => *former = delivery,
        None => taken.push(delivery),
    }
}

fn seconds(time: Duration) -> i32 {
    i32::try_from(time.as_secs()).unwrap_or(i32::MAX)
}

fn delivery(message: Message, hold: Hold) -> Delivery<Receipt> {
    let known = message.attributes.unwrap_or_default();
    let receives = known.get(&Known::ApproximateReceiveCount);
    let receives = receives.and_then(|count| count.parse::<u64>().ok());
    let source = known.get(&Known::DeadLetterQueueSourceArn);
    Delivery {
        id: message.message_id,
        // The count includes this receive.
        deliveries: receives.map(|count| count.saturating_sub(1)),
        source: source.and_then(|arn| Some(arn.rsplit_once(':')?.1.to_owned())),
        handle: Receipt {
            handle: message.receipt_handle.unwrap_or_default(),
            attributes: message.message_attributes,
            hold: Some(hold),
        },
        body: message.body.unwrap_or_default().into(),
    }
}

fn text(queue: &str, body: &[u8]) -> Result<String, Failure> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| Failure::new(format!("queue {queue}: SQS takes text only")))?;
    Ok(text.to_owned())
}

/// Whether a server may have carried out a failed request: it did not respond, or with an error of its own.
fn may_be_done<E>(error: &SdkError<E>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => false,
        SdkError::ServiceError(service) => service.raw().status().is_server_error(),
        _ => true,
    }
}

fn refusal(queue: &str, code: &str, message: &str) -> Failure {
    Failure::new(format!("SQS, queue {queue}: {code}: {message}"))
}

fn failure<E>(queue: &str, error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    SdkError<E>: fmt::Debug,
{
    match error {
        SdkError::ServiceError(service) => {
            let (code, message) = (service.err().code(), service.err().message());
            refusal(queue, code.unwrap_or("error"), message.unwrap_or_default())
        }
        error => Failure::new(format!(
            "SQS, queue {queue}: {}; check --address, and that there are AWS credentials, or pass --user and \
             --password-file",
            DisplayErrorContext(error)
        )),
    }
}

#[cfg(test)]
mod tests;
