//! In-memory SQS, as seen through its JSON protocol.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// The transports by name: two regions of one account, and the first region of another account. Only queues of the
/// second have dead letter queues.
pub const TRANSPORTS: [&str; 3] = ["eu-north-1", "eu-south-1", "eu-north-1-other"];

/// Another transport for the account and region of the first, with another access key. No actor uses it.
pub const TWIN: &str = "eu-north-1-twin";

/// Suffix of the name of [`TWIN`], and of the Secret with its access key.
const TWIN_SUFFIX: &str = "-twin";

/// An SQS access key, and the Secret that holds it.
pub const ACCESS_KEY: &str = "aws";

/// Suffix of the names of the other account's transports, and of the Secret with its access key.
pub const OTHER_ACCOUNT: &str = "-other";

/// Suffix of dead letter queue names.
pub const DLQ_SUFFIX: &str = "-dlq";

/// How long the name of a deleted queue cannot be reused.
const DELETED_RECENTLY: Duration = Duration::from_mins(1);

/// How long a new queue may not be found.
const CREATION: Duration = Duration::from_secs(1);

/// How long message counts may be stale, and deleted queues may still be found.
pub const LAG: Duration = Duration::from_mins(1);

/// Region and access key of a transport.
#[must_use]
pub fn location(transport: &str) -> (&str, String) {
    let suffixes = [OTHER_ACCOUNT, TWIN_SUFFIX].into_iter();
    let mut stripped =
        suffixes.filter_map(|suffix| Some((transport.strip_suffix(suffix)?, suffix)));
    let (region, suffix) = stripped.next_back().unwrap_or((transport, ""));
    (region, format!("{ACCESS_KEY}{suffix}"))
}

/// The transport for a region and an access key.
#[must_use]
pub fn transport(region: &str, key: &str) -> String {
    let other = if key.ends_with(OTHER_ACCOUNT) {
        OTHER_ACCOUNT
    } else {
        ""
    };
    format!("{region}{other}")
}

/// An account's queues in one region.
#[derive(Clone, Debug, PartialEq)]
pub struct Sqs {
    region: String,
    account: &'static str,
    queues: BTreeMap<String, Queue>,
    /// Deleted queues, and when they were deleted.
    deleted: BTreeMap<String, (Instant, Queue)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Queue {
    created: Instant,
    attributes: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    messages: u64,
    /// Earlier message counts, each with the time until which it was current.
    earlier: VecDeque<(Instant, u64)>,
}

/// An error returned by SQS.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status.
    pub status: u16,
    /// Code of the JSON protocol.
    pub code: &'static str,
    /// Code of the older query protocol, sent in a header.
    pub query_code: &'static str,
    message: String,
}

impl Failure {
    fn new(code: &'static str, query_code: &'static str, message: String) -> Self {
        Self {
            status: 400,
            code,
            query_code,
            message,
        }
    }

    fn absent() -> Self {
        Self::new(
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue",
            "The specified queue does not exist.".to_owned(),
        )
    }

    fn deleted_recently() -> Self {
        Self::new(
            "QueueDeletedRecently",
            "AWS.SimpleQueueService.QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with the same name."
                .to_owned(),
        )
    }

    fn invalid(message: String) -> Self {
        Self::new("InvalidAttributeValue", "InvalidParameterValue", message)
    }

    /// SQS rejects calls above its rate limits with 403.
    #[must_use]
    pub fn throttled() -> Self {
        Self {
            status: 403,
            ..Self::new(
                "RequestThrottled",
                "RequestThrottled",
                "Request is throttled.".to_owned(),
            )
        }
    }

    /// An internal error of SQS.
    #[must_use]
    pub fn internal() -> Self {
        Self {
            status: 503,
            ..Self::new("ServiceUnavailable", "ServiceUnavailable", String::new())
        }
    }

    /// The body of the response.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({"__type": format!("com.amazonaws.sqs#{}", self.code), "message": self.message})
    }
}

impl Sqs {
    /// An empty region for a transport.
    #[must_use]
    pub fn new(transport: &str) -> Self {
        let (region, key) = location(transport);
        let is_other = key.ends_with(OTHER_ACCOUNT);
        Self {
            region: region.to_owned(),
            account: if is_other {
                "210987654321"
            } else {
                "123456789012"
            },
            queues: BTreeMap::new(),
            deleted: BTreeMap::new(),
        }
    }

    /// Answers a call. A read returns counts and queues as they were up to `age` ago.
    ///
    /// # Errors
    /// As SQS would return them.
    pub fn answer(
        &mut self,
        operation: &str,
        input: &Value,
        age: Duration,
    ) -> Result<Value, Failure> {
        match operation {
            "CreateQueue" => self.create(input),
            "GetQueueUrl" => {
                let name = text(&input["QueueName"]);
                self.seen(name, age)?;
                Ok(json!({"QueueUrl": self.url(name)}))
            }
            "GetQueueAttributes" => {
                let name = name(input);
                let mut attributes = self.seen(name, age)?.shown(age);
                attributes["QueueArn"] = self.arn(name).into();
                Ok(json!({"Attributes": attributes}))
            }
            "ListQueueTags" => Ok(json!({"Tags": self.seen(name(input), age)?.tags})),
            "SetQueueAttributes" => {
                let attributes = self.checked(&input["Attributes"])?;
                let queue = self.queue_mut(name(input))?;
                queue.attributes.extend(attributes);
                // Setting an empty policy removes it.
                queue.attributes.retain(|_, value| !value.is_empty());
                Ok(json!({}))
            }
            "TagQueue" => {
                self.queue_mut(name(input))?
                    .tags
                    .extend(strings(&input["Tags"]));
                Ok(json!({}))
            }
            "DeleteQueue" => {
                self.queue_mut(name(input))?;
                self.remove(name(input));
                Ok(json!({}))
            }
            _ => Err(Failure::new(
                "UnsupportedOperation",
                "AWS.SimpleQueueService.UnsupportedOperation",
                format!("the simulation does not know {operation}"),
            )),
        }
    }

    fn create(&mut self, input: &Value) -> Result<Value, Failure> {
        let name = text(&input["QueueName"]);
        let attributes = self.checked(&input["Attributes"])?;
        if let Some(queue) = self.queues.get(name) {
            let is_same =
                |(key, value): (&String, &String)| queue.attributes.get(key) == Some(value);
            if !attributes.iter().all(is_same) {
                return Err(Failure::new(
                    "QueueNameExists",
                    "QueueAlreadyExists",
                    "A queue already exists with the same name and a different value for an attribute."
                        .to_owned(),
                ));
            }
        } else {
            let deleted = self.deleted.get(name);
            if deleted.is_some_and(|(at, _)| at.elapsed() < DELETED_RECENTLY) {
                return Err(Failure::deleted_recently());
            }
            let defaults = [
                ("VisibilityTimeout", "30"),
                ("MessageRetentionPeriod", "345600"),
            ];
            let defaults = defaults.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let queue = Queue {
                created: Instant::now(),
                attributes: defaults.into_iter().chain(attributes).collect(),
                tags: strings(&input["tags"]),
                messages: 0,
                earlier: VecDeque::new(),
            };
            self.queues.insert(name.to_owned(), queue);
        }
        Ok(json!({"QueueUrl": self.url(name)}))
    }

    /// The attributes of a call, after validation.
    fn checked(&self, attributes: &Value) -> Result<BTreeMap<String, String>, Failure> {
        let attributes = strings(attributes);
        let policy = attributes.get("RedrivePolicy").filter(|it| !it.is_empty());
        if let Some(policy) = policy {
            let parsed: Value = serde_json::from_str(policy).unwrap_or_default();
            let target = text(&parsed["deadLetterTargetArn"]);
            if !self.queues.keys().any(|name| self.arn(name) == target) {
                return Err(Failure::invalid(format!(
                    "Value {policy} for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist."
                )));
            }
        }
        Ok(attributes)
    }

    /// A queue as a read shows it.
    fn seen(&self, name: &str, age: Duration) -> Result<&Queue, Failure> {
        let is_old = |queue: &&Queue| queue.created.elapsed() >= age.min(CREATION);
        let live = self.queues.get(name).filter(is_old);
        let deleted = self.deleted.get(name);
        let deleted = deleted.filter(|(at, _)| at.elapsed() < age.min(LAG));
        let found = live.or(deleted.map(|(_, queue)| queue));
        found.ok_or_else(Failure::absent)
    }

    fn queue_mut(&mut self, name: &str) -> Result<&mut Queue, Failure> {
        self.queues.get_mut(name).ok_or_else(Failure::absent)
    }

    fn url(&self, name: &str) -> String {
        let Self {
            region, account, ..
        } = self;
        format!("https://sqs.{region}.amazonaws.com/{account}/{name}")
    }

    fn arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{name}", self.region, self.account)
    }

    /// The names of all queues.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// The number of messages in a queue, if it exists.
    #[must_use]
    pub fn messages(&self, name: &str) -> Option<u64> {
        Some(self.queues.get(name)?.messages)
    }

    /// The lowest number of messages that a queue has held during this time, if it exists.
    #[must_use]
    pub fn messages_for(&self, name: &str, time: Duration) -> Option<u64> {
        let queue = self.queues.get(name)?;
        let earlier = queue.earlier.iter();
        let recent = earlier.filter(|(until, _)| until.elapsed() < time);
        let counts = recent.map(|(_, count)| *count).chain([queue.messages]);
        counts.min()
    }

    /// Sets the number of messages, as if some had arrived or been received.
    pub fn set_messages(&mut self, name: &str, messages: u64) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if queue.messages != messages {
            queue.earlier.push_back((Instant::now(), queue.messages));
            queue.messages = messages;
        }
    }

    /// Receives all messages. If there are several, one is received repeatedly and becomes a dead letter.
    pub fn consume(&mut self, name: &str) {
        let dlq = self.queues.get(name);
        let dlq = dlq.filter(|queue| queue.messages > 2);
        let dlq = dlq.and_then(|queue| self.dlq_of(queue).map(str::to_owned));
        if let Some(dlq) = dlq {
            let messages = self.messages(&dlq).unwrap_or_default();
            self.set_messages(&dlq, messages + 1);
        }
        self.set_messages(name, 0);
    }

    /// The name of a queue's dead letter queue, if there is one.
    fn dlq_of(&self, queue: &Queue) -> Option<&str> {
        let target = queue.target();
        self.names().find(|name| self.arn(name) == target)
    }

    /// Whether a queue has ever held messages.
    #[must_use]
    pub fn was_used(&self, name: &str) -> bool {
        let queue = self.queues.get(name);
        queue.is_some_and(|queue| !queue.earlier.is_empty())
    }

    /// Removes a queue with its messages.
    pub fn remove(&mut self, name: &str) {
        if let Some(queue) = self.queues.remove(name) {
            self.deleted
                .insert(name.to_owned(), (Instant::now(), queue));
        }
    }

    /// Namespace and name of the actor that owns the queue, by its owner tag.
    #[must_use]
    pub fn owner_of(&self, name: &str) -> Option<(String, String)> {
        let tags = &self.queues.get(name)?.tags;
        let tag = |key: &str| tags.get(key).cloned();
        Some((tag("asya.sh/namespace")?, tag("asya.sh/actor")?))
    }

    /// Whether its tags mark a queue as a dead letter queue.
    #[must_use]
    pub fn is_dlq(&self, name: &str) -> bool {
        let queue = self.queues.get(name);
        let kind = queue.and_then(|queue| queue.tags.get("asya.sh/type"));
        kind.is_some_and(|kind| kind == "dlq")
    }

    /// How a queue differs from what an actor needs: messages must not become visible again while they are processed
    /// (SQS-3), and must end up in the dead letter queue (SQS-6).
    #[must_use]
    pub fn problem(&self, name: &str) -> Option<String> {
        let queue = self.queues.get(name)?;
        let attribute = |key: &str| queue.attributes.get(key).map_or("", String::as_str);
        if attribute("VisibilityTimeout") != "600" {
            return Some(format!("has attributes {:?}", queue.attributes));
        }
        let target = queue.target();
        let has_dlq = self.dlq_of(queue).is_some();
        let is_wanted = self.region == TRANSPORTS[1];
        (has_dlq != is_wanted).then(|| format!("has dead letter queue {target:?}"))
    }
}

impl Queue {
    /// The ARN of the dead letter queue.
    fn target(&self) -> String {
        let policy = self.attributes.get("RedrivePolicy");
        let policy = policy.and_then(|policy| serde_json::from_str::<Value>(policy).ok());
        let target = policy.map(|policy| text(&policy["deadLetterTargetArn"]).to_owned());
        target.unwrap_or_default()
    }

    /// The attributes, with counts as they were `age` ago.
    fn shown(&self, age: Duration) -> Value {
        let mut earlier = self.earlier.iter();
        let then = earlier.find(|(until, _)| until.elapsed() < age);
        let messages = then.map_or(self.messages, |(_, count)| *count);
        let mut shown = json!(self.attributes);
        shown["ApproximateNumberOfMessages"] = messages.to_string().into();
        shown["ApproximateNumberOfMessagesDelayed"] = "0".into();
        shown["ApproximateNumberOfMessagesNotVisible"] = "0".into();
        shown
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The queue name in the input of a call.
#[must_use]
pub fn name(input: &Value) -> &str {
    let url = text(&input["QueueUrl"]);
    let in_url = url.rsplit('/').next().filter(|name| !name.is_empty());
    in_url.unwrap_or_else(|| text(&input["QueueName"]))
}

fn strings(object: &Value) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), text(value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests;
