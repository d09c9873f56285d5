//! A scriptable SQS server, for responses that a real one cannot be made to give.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The action, such as `SendMessage`.
    pub(super) action: String,
    pub(super) body: Value,
    /// The access key id of the signature.
    pub(super) key: String,
}

impl Seen {
    /// The message bodies in the request.
    pub(super) fn messages(&self) -> Vec<String> {
        let text = |message: &Value| {
            message["MessageBody"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        match self.body["Entries"].as_array() {
            Some(entries) => entries.iter().map(text).collect(),
            None => vec![text(&self.body)],
        }
    }
}

pub(super) struct Fake {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

pub(super) type Answer = (u16, Value);

impl Fake {
    /// Starts a server. Queue URL requests are answered automatically; `answer` handles everything else, and `None`
    /// leaves a request unanswered.
    pub(super) async fn start(
        mut answer: impl FnMut(&Seen) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (requests, queues) = (seen.clone(), url.clone());
        let answer = Arc::new(Mutex::new(move |seen: &Seen| {
            if seen.action == "GetQueueUrl" && seen.key != "EXPIRED" {
                let name = seen.body["QueueName"].as_str().unwrap_or_default();
                return Some((200, json!({"QueueUrl": format!("{queues}/1/{name}")})));
            }
            answer(seen)
        }));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (requests, answer) = (requests.clone(), answer.clone());
                let service = service_fn(move |request| {
                    let (requests, answer) = (requests.clone(), answer.clone());
                    async move {
                        let seen = read(request).await;
                        requests.lock().push(seen.clone());
                        let answer = (*answer.lock())(&seen);
                        match answer {
                            Some(answer) => Ok::<_, Infallible>(response(&answer)),
                            None => std::future::pending().await,
                        }
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, seen }
    }

    /// The requests with these actions.
    pub(super) fn seen(&self, actions: &[&str]) -> Vec<Seen> {
        let all = self.seen.lock();
        let wanted = all.iter().filter(|seen| actions.contains(&&*seen.action));
        wanted.cloned().collect()
    }
}

async fn read(request: Request<Incoming>) -> Seen {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let (target, signature) = (header("x-amz-target"), header("authorization"));
    let key = signature
        .split_once("Credential=")
        .and_then(|(_, rest)| rest.split_once('/'));
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    Seen {
        action: target.trim_start_matches("AmazonSQS.").to_owned(),
        key: key.map(|(key, _)| key.to_owned()).unwrap_or_default(),
        body: serde_json::from_slice(&body).expect("JSON"),
    }
}

fn response((status, body): &Answer) -> Response<Full<Bytes>> {
    Response::builder()
        .status(*status)
        .header("content-type", "application/x-amz-json-1.0")
        .body(Full::from(match body {
            // A load balancer in front of SQS answers in plain text.
            Value::String(text) => text.clone(),
            body => body.to_string(),
        }))
        .expect("a response")
}

/// An SQS error response.
pub(super) fn error(code: &str) -> Answer {
    (
        400,
        json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": code}),
    )
}

/// The response to a send request: all entries succeed except those in `failed`, each with its error code.
pub(super) fn stored(seen: &Seen, failed: &[(&str, &str)]) -> Answer {
    let Some(entries) = seen.body["Entries"].as_array() else {
        return (200, json!({"MessageId": "m", "MD5OfMessageBody": "0"}));
    };
    let code = |entry: &Value| {
        failed
            .iter()
            .find(|(body, _)| entry["MessageBody"] == *body)
            .map(|(_, code)| *code)
    };
    let (mut successful, mut unsuccessful) = (Vec::new(), Vec::new());
    for entry in entries {
        match code(entry) {
            Some(code) => {
                unsuccessful.push(json!({"Id": entry["Id"], "Code": code, "SenderFault": false}));
            }
            None => successful
                .push(json!({"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": "0"})),
        }
    }
    (
        200,
        json!({"Successful": successful, "Failed": unsuccessful}),
    )
}
