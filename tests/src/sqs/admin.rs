//! A client for the SQS server, for tests. It uses the JSON protocol with a dummy signature, which the server does not
//! verify.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// SQS sends and receives at most this many messages per request.
const AT_ONCE: usize = 10;
/// A visibility timeout longer than any test.
const OUT_OF_SIGHT_SECONDS: u32 = 3600;

/// A client for the SQS server.
#[derive(Debug, Clone)]
pub struct Sqs {
    endpoint: String,
    client: reqwest::Client,
}

impl Sqs {
    pub(crate) fn new(endpoint: &str) -> Result<Self> {
        Ok(Self {
            endpoint: endpoint.to_owned(),
            client: crate::http_client()?,
        })
    }

    /// Returns the URL of a queue, if it exists.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn url(&self, queue: &str) -> Result<Option<String>> {
        match self
            .call("GetQueueUrl", &json!({"QueueName": queue}))
            .await?
        {
            Ok(answer) => Ok(answer["QueueUrl"].as_str().map(str::to_owned)),
            Err(refusal) if refusal.contains("QueueDoesNotExist") => Ok(None),
            Err(refusal) => Err(Error::Other(refusal)),
        }
    }

    /// Creates a queue with the server's defaults and no tags.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn create(&self, queue: &str) -> Result<()> {
        let body = json!({"QueueName": queue});
        self.must("CreateQueue", &body).await.map(drop)
    }

    /// The attributes of an existing queue.
    ///
    /// # Errors
    /// When the queue does not exist, or the request fails.
    pub async fn attributes(&self, queue: &str) -> Result<BTreeMap<String, String>> {
        let body = json!({"QueueUrl": self.existing(queue).await?, "AttributeNames": ["All"]});
        let answer = self.must("GetQueueAttributes", &body).await?;
        Ok(serde_json::from_value(answer["Attributes"].clone())?)
    }

    /// The tags of an existing queue.
    ///
    /// # Errors
    /// When the queue does not exist, or the request fails.
    pub async fn tags(&self, queue: &str) -> Result<BTreeMap<String, String>> {
        let body = json!({"QueueUrl": self.existing(queue).await?});
        let answer = self.must("ListQueueTags", &body).await?;
        Ok(serde_json::from_value(answer["Tags"].clone())?)
    }

    /// Sends messages.
    ///
    /// # Errors
    /// When the queue does not exist, or does not accept all messages.
    pub async fn send(&self, queue: &str, messages: &[String]) -> Result<()> {
        let url = self.existing(queue).await?;
        for some in messages.chunks(AT_ONCE) {
            let entries: Vec<Value> = some
                .iter()
                .enumerate()
                .map(|(id, message)| json!({"Id": id.to_string(), "MessageBody": message}))
                .collect();
            let body = json!({"QueueUrl": url, "Entries": entries});
            let answer = self.must("SendMessageBatch", &body).await?;
            if answer["Successful"].as_array().map(Vec::len) != Some(some.len()) {
                return Err(Error::Other(format!("SQS: {answer}")));
            }
        }
        Ok(())
    }

    /// Receives all waiting messages, which leaves them in flight.
    ///
    /// # Errors
    /// When the queue does not exist, or a request fails.
    pub async fn receive_all(&self, queue: &str) -> Result<Vec<String>> {
        let body = json!({
            "QueueUrl": self.existing(queue).await?,
            "MaxNumberOfMessages": AT_ONCE,
            "VisibilityTimeout": OUT_OF_SIGHT_SECONDS,
        });
        let mut all = Vec::new();
        loop {
            let answer = self.must("ReceiveMessage", &body).await?;
            let some = answer["Messages"].as_array().cloned().unwrap_or_default();
            if some.is_empty() {
                return Ok(all);
            }
            let bodies = some.iter().filter_map(|message| message["Body"].as_str());
            all.extend(bodies.map(str::to_owned));
        }
    }

    /// Deletes all messages of a queue, including those in flight.
    ///
    /// # Errors
    /// When the queue does not exist, or the request fails.
    pub async fn purge(&self, queue: &str) -> Result<()> {
        let body = json!({"QueueUrl": self.existing(queue).await?});
        self.must("PurgeQueue", &body).await.map(drop)
    }

    async fn existing(&self, queue: &str) -> Result<String> {
        let url = self.url(queue).await?;
        url.ok_or_else(|| Error::Other(format!("SQS has no queue {queue}")))
    }

    async fn must(&self, action: &str, body: &Value) -> Result<Value> {
        self.call(action, body).await?.map_err(Error::Other)
    }

    /// Returns the response, or the server's error message.
    async fn call(&self, action: &str, body: &Value) -> Result<Result<Value, String>> {
        let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
        let request = self
            .client
            .post(&self.endpoint)
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header("authorization", credential)
            .body(body.to_string());
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        if status.is_success() {
            // Treat an empty response as an empty object.
            let text = if text.is_empty() { "{}" } else { &text };
            return Ok(Ok(serde_json::from_str(text)?));
        }
        Ok(Err(format!("SQS: {action}: {status} {text}")))
    }
}
