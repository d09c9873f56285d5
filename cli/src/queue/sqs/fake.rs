//! An SQS server with its own clock, which advances with the requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Account, Sqs};

/// A message in a queue.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub body: String,
    /// How often it was received.
    pub receives: u64,
    id: String,
    /// The latest receipt.
    receipt: String,
    hidden_until: u64,
}

/// The server's contents and behavior.
#[derive(Debug, Default)]
pub struct State {
    pub queues: BTreeMap<String, Vec<Stored>>,
    /// Seconds on its clock.
    pub now: u64,
    /// How many seconds each of these requests takes.
    pub receiving: u64,
    pub sending: u64,
    /// How much further on it starts looking for messages each time, since SQS keeps no order.
    pub stride: usize,
    looks: usize,
    /// Whether it refuses to hide messages for longer.
    pub refuses_extensions: bool,
    /// How many deletions it accepts but ignores, as if another consumer had received the message meanwhile.
    pub ignored_deletions: u64,
    /// The state of a message move task that is started and has moved two messages; `None`: the server does not support
    /// them.
    pub task: Option<&'static str>,
    pub refuses_to_cancel: bool,
    is_started: bool,
    /// How many identifiers have been assigned.
    named: u64,
}

/// A running server.
pub struct Fake {
    state: Arc<Mutex<State>>,
    url: String,
}

type Answer = Result<Value, &'static str>;

impl Fake {
    /// Starts a server with these queues.
    pub async fn start(queues: &[(&str, &[String])]) -> Self {
        let mut state = State::default();
        for (name, bodies) in queues {
            state.queues.entry((*name).to_owned()).or_default();
            for body in *bodies {
                state.store(name, body);
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                tokio::spawn(async move { serve(stream, &state).await });
            }
        });
        Self { state, url }
    }

    /// A client whose clock is the server's.
    pub async fn client(&self) -> Sqs {
        let account = Account {
            endpoint: Some(self.url.clone()),
            is_forwarded: true,
            keys: Some(("id".to_owned(), "secret".to_owned())),
            ..Account::default()
        };
        let mut client = Sqs::open(&account, None, Duration::from_mins(1)).await;
        let (start, state) = (Instant::now(), self.state.clone());
        client.clock = Box::new(move || start + Duration::from_secs(state.lock().unwrap().now));
        client
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn bodies(&self, queue: &str) -> Vec<String> {
        let state = self.state();
        let all = state.queues[queue].iter();
        all.map(|it| it.body.clone()).collect()
    }

    /// How many messages of a queue consumers could receive now.
    pub fn visible(&self, queue: &str) -> usize {
        let state = self.state();
        let all = state.queues[queue].iter();
        all.filter(|it| it.hidden_until <= state.now).count()
    }
}

impl State {
    fn store(&mut self, queue: &str, body: &str) {
        let id = self.name("m");
        self.queues.get_mut(queue).unwrap().push(Stored {
            body: body.to_owned(),
            id,
            ..Stored::default()
        });
    }

    fn name(&mut self, prefix: &str) -> String {
        self.named += 1;
        format!("{prefix}{}", self.named)
    }

    fn answer(&mut self, action: &str, request: &Value) -> Answer {
        let text = |field: &str| request[field].as_str().unwrap_or_default();
        let queue = text("QueueUrl").rsplit('/').next().unwrap_or_default();
        match action {
            "GetQueueUrl" => Ok(json!({"QueueUrl": format!("http://sqs/1/{}", text("QueueName"))})),
            "GetQueueAttributes" => {
                let all = &self.queues[queue];
                let hidden = all.iter().filter(|it| it.hidden_until > self.now).count();
                Ok(json!({"Attributes": {
                    "ApproximateNumberOfMessages": (all.len() - hidden).to_string(),
                    "ApproximateNumberOfMessagesNotVisible": hidden.to_string(),
                    "QueueArn": format!("arn:aws:sqs:eu-west-1:1:{queue}"),
                }}))
            }
            "ReceiveMessage" => Ok(self.receive(queue, request)),
            "SendMessage" => {
                self.store(queue, text("MessageBody"));
                self.now += self.sending;
                Ok(json!({"MessageId": "new", "MD5OfMessageBody": "0"}))
            }
            "DeleteMessage" => {
                self.delete(queue, text("ReceiptHandle"));
                Ok(json!({}))
            }
            "ChangeMessageVisibilityBatch" => Ok(self.hide(queue, &request["Entries"])),
            "ListMessageMoveTasks" if self.task.is_some() => {
                let task = json!({
                    "TaskHandle": "t", "Status": self.task, "StartedTimestamp": 1,
                    "DestinationArn": "arn:aws:sqs:eu-west-1:1:asya-embed",
                    "ApproximateNumberOfMessagesMoved": 2,
                });
                let tasks = self.is_started.then_some(task);
                Ok(json!({"Results": tasks.as_slice()}))
            }
            "StartMessageMoveTask" if self.task.is_some() => {
                self.is_started = true;
                Ok(json!({"TaskHandle": "t"}))
            }
            "CancelMessageMoveTask" if self.is_started && !self.refuses_to_cancel => {
                self.task = Some("CANCELLED");
                Ok(json!({"ApproximateNumberOfMessagesMoved": 2}))
            }
            _ => Err("UnsupportedOperation"),
        }
    }

    fn receive(&mut self, queue: &str, request: &Value) -> Value {
        let count = request["MaxNumberOfMessages"].as_u64().unwrap();
        let hidden_until = self.now + request["VisibilityTimeout"].as_u64().unwrap();
        let mut received = Vec::new();
        let total = self.queues[queue].len();
        let first = self.looks * self.stride;
        self.looks += 1;
        for at in (first..first + total).map(|at| at % total) {
            if self.queues[queue][at].hidden_until > self.now || received.len() as u64 == count {
                continue;
            }
            let receipt = self.name("r");
            let message = &mut self.queues.get_mut(queue).unwrap()[at];
            message.receives += 1;
            (message.receipt, message.hidden_until) = (receipt, hidden_until);
            received.push(json!({
                "MessageId": message.id, "ReceiptHandle": message.receipt, "Body": message.body,
                "Attributes": {"ApproximateReceiveCount": message.receives.to_string()},
            }));
        }
        self.now += self.receiving;
        json!({"Messages": received})
    }

    fn delete(&mut self, queue: &str, receipt: &str) {
        let messages = self.queues.get_mut(queue).unwrap();
        if self.ignored_deletions > 0 {
            self.ignored_deletions -= 1;
            let message = messages.iter_mut().find(|it| it.receipt == receipt);
            message.unwrap().hidden_until = self.now;
            return;
        }
        messages.retain(|it| it.receipt != receipt);
    }

    fn hide(&mut self, queue: &str, entries: &Value) -> Value {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        let entries = entries.as_array().unwrap();
        assert!(entries.len() <= 10, "SQS takes at most 10");
        for entry in entries {
            let time = entry["VisibilityTimeout"].as_u64().unwrap();
            let messages = self.queues.get_mut(queue).unwrap().iter_mut();
            let mut held = messages.filter(|it| it.hidden_until > self.now);
            let found = held.find(|it| entry["ReceiptHandle"] == *it.receipt);
            match found.filter(|_| time == 0 || !self.refuses_extensions) {
                Some(message) => {
                    message.hidden_until = self.now + time;
                    successful.push(json!({"Id": entry["Id"]}));
                }
                None => failed.push(json!({
                    "Id": entry["Id"], "SenderFault": true,
                    "Code": "AWS.SimpleQueueService.MessageNotInflight",
                })),
            }
        }
        json!({"Successful": successful, "Failed": failed})
    }
}

/// Serves the requests of a connection.
async fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut action, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                return;
            }
            let line = line.trim().to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("x-amz-target", target)) => target.clone_into(&mut action),
                Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request = serde_json::from_slice(&body).unwrap();
        let actions = [
            "GetQueueUrl",
            "GetQueueAttributes",
            "ReceiveMessage",
            "SendMessage",
            "DeleteMessage",
            "ChangeMessageVisibilityBatch",
            "ListMessageMoveTasks",
            "StartMessageMoveTask",
            "CancelMessageMoveTask",
        ];
        let is_asked = |it: &&str| action == format!("amazonsqs.{}", it.to_ascii_lowercase());
        let action = actions.into_iter().find(is_asked).unwrap_or_default();
        let answer = state.lock().unwrap().answer(action, &request);
        let (code, text) = match answer {
            Ok(answer) => (200, answer),
            Err(code) => (400, json!({"__type": format!("com.amazonaws.sqs#{code}")})),
        };
        let (text, kind) = (text.to_string(), "application/x-amz-json-1.0");
        let length = text.len();
        let head =
            format!("HTTP/1.1 {code} .\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n");
        let answer = format!("{head}\r\n{text}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
