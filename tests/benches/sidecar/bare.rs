//! The bare mover: the minimum that any sidecar must do. It makes no decisions, recovers from nothing and reports
//! nothing. Like the sidecar, it runs as its own process.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use asya_tests::{Error, Result};
use asya_wire::socket::SOCKET;
use serde_json::{Value, json};

use crate::amqp::{Acknowledgements, Connection, Event, Login, variable};
use crate::messages::{FROM, TO, TO_QUEUE, queue};

/// As many messages in flight as the sidecar has with one slot and a fast runtime.
const IN_FLIGHT: u16 = 17;
const SQS_BATCH: u8 = 10;

/// Moves messages of RabbitMQ until it is killed.
pub fn move_on_rabbitmq() -> Result<()> {
    let socket = socket()?;
    let mut broker = Connection::open(&Login::from_env()?)?;
    broker.consume(&queue(FROM), IN_FLIGHT, Acknowledgements::Expected)?;
    let mut waiting = VecDeque::new();
    let mut unconfirmed = BTreeMap::new();
    loop {
        let mut event = if waiting.is_empty() {
            Some(broker.wait()?)
        } else {
            broker.poll()?
        };
        while let Some(it) = event {
            match it {
                Event::Delivered { tag, body } => waiting.push_back((tag, body)),
                Event::Confirmed { number, multiple } => {
                    for tag in confirmed(&mut unconfirmed, number, multiple) {
                        broker.acknowledge(tag);
                    }
                }
            }
            event = broker.poll()?;
        }
        if let Some((tag, body)) = waiting.pop_front() {
            let number = broker.publish(TO_QUEUE, &result_of(&socket, &body)?);
            unconfirmed.insert(number, tag);
        }
        broker.flush()?;
    }
}

/// The sources of the publications that this confirm covers.
fn confirmed(unconfirmed: &mut BTreeMap<u64, u64>, number: u64, multiple: bool) -> Vec<u64> {
    if !multiple {
        return unconfirmed.remove(&number).into_iter().collect();
    }
    let rest = unconfirmed.split_off(&(number + 1));
    std::mem::replace(unconfirmed, rest).into_values().collect()
}

/// Moves messages on SQS until it is killed: receives up to ten, and forwards, sends and deletes them one after the
/// other.
pub fn move_on_sqs() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::other)?;
    runtime.block_on(async {
        let (socket, sqs) = (socket()?, SqsClient::from_env()?);
        let (from, to) = (sqs.url_of(FROM).await?, sqs.url_of(TO).await?);
        loop {
            let receive =
                json!({"QueueUrl": from, "MaxNumberOfMessages": SQS_BATCH, "WaitTimeSeconds": 20});
            let received = sqs.call("ReceiveMessage", &receive).await?;
            for message in received["Messages"].as_array().into_iter().flatten() {
                let body = message["Body"].as_str().unwrap_or_default();
                let result = result_of(&socket, body.as_bytes())?;
                let result = String::from_utf8_lossy(&result);
                let send = json!({"QueueUrl": to, "MessageBody": result});
                sqs.call("SendMessage", &send).await?;
                let delete = json!({"QueueUrl": from, "ReceiptHandle": message["ReceiptHandle"]});
                sqs.call("DeleteMessage", &delete).await?;
            }
        }
    })
}

/// A client that does not sign its requests, since the server does not check signatures.
struct SqsClient {
    endpoint: String,
    client: reqwest::Client,
}

impl SqsClient {
    fn from_env() -> Result<Self> {
        Ok(Self {
            endpoint: variable("ASYA_SQS_ENDPOINT")?,
            client: reqwest::Client::builder().no_proxy().build()?,
        })
    }

    async fn url_of(&self, actor: &str) -> Result<Value> {
        let body = json!({"QueueName": queue(actor)});
        Ok(self.call("GetQueueUrl", &body).await?["QueueUrl"].clone())
    }

    async fn call(&self, action: &str, body: &Value) -> Result<Value> {
        const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
        let request = self.client.post(&self.endpoint);
        let answer = request
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header("authorization", SIGNATURE)
            .body(body.to_string());
        let answer = answer.send().await?.error_for_status()?.bytes().await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&answer)?)
    }
}

fn socket() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ASYA_SOCKET_DIR")?).join(SOCKET))
}

/// The runtime's result for a message, to be sent on. The reply's only element is a complete message except for its id.
pub fn result_of(socket: &Path, message: &[u8]) -> Result<Vec<u8>> {
    let reply = call(socket, message).map_err(|error| Error::Other(format!("runtime: {error}")))?;
    let element = reply
        .strip_prefix(b"[{")
        .and_then(|it| it.strip_suffix(b"]"));
    let element = element.ok_or_else(|| Error::other("the runtime's reply has no result"))?;
    let mut result = br#"{"id":"1","#.to_vec();
    result.extend_from_slice(element);
    Ok(result)
}

/// Sends one request to the runtime.
fn call(socket: &Path, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    let length = u32::try_from(request.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let written = stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(request)])?;
    if let Some(rest) = written.checked_sub(length.len()) {
        stream.write_all(&request[rest..])?;
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}
