//! Calls to SQS.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::World;
use super::invariants::QueueRemoval;
use crate::broker::Broker;
use crate::broker::sqs::{DLQ_SUFFIX, Failure, LAG, TRANSPORTS, name};
use crate::process::Process;

/// Maximum age of a message count when the deletion based on it is sent, in addition to the lag of counts: the count
/// and the two calls after it take up to 10 s each.
const COUNTED: Duration = Duration::from_secs(30);

/// A call to SQS.
pub struct Call {
    /// The transport that it is sent through.
    pub transport: String,
    /// The name of the operation.
    pub operation: String,
    /// The input of the operation.
    pub input: Value,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = name(&self.input);
        write!(f, "{} {}/{queue}", self.operation, self.transport)
    }
}

impl Call {
    /// Whether it is a write.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.operation.starts_with("Get") && !self.operation.starts_with("List")
    }
}

impl World {
    /// SQS carries out a call by the controller; a read shows the state from `age` ago.
    ///
    /// # Errors
    /// As SQS would return them.
    pub fn act_on_sqs(
        &self,
        process: &Process,
        call: &Call,
        age: Duration,
    ) -> Result<Value, Failure> {
        if call.writes() {
            self.check_leader(process, &call.to_string());
        } else {
            self.check_reader(process, &call.to_string());
        }
        if call.operation == "DeleteQueue" {
            self.check_sqs_deletion(process, call);
        }
        let mut brokers = self.brokers.lock();
        let Some(Broker::Sqs(sqs)) = brokers.get_mut(&call.transport) else {
            return Err(Failure::internal());
        };
        let before = call.writes().then(|| sqs.clone());
        let answer = sqs.answer(&call.operation, &call.input, age);
        if before.is_some_and(|before| *sqs != before) {
            self.writes.lock().push(call.to_string());
        }
        drop(brokers);
        let result = answer
            .as_ref()
            .map_or_else(|failure| failure.code, |_| "ok");
        self.trace
            .add(&process.name, format_args!("{call}: {result}"));
        answer
    }

    /// A dead letter queue is deleted after its queue, when empty; for other queues the rules of all brokers apply.
    /// Messages that no count could show yet do not matter.
    fn check_sqs_deletion(&self, process: &Process, call: &Call) {
        let queue = name(&call.input);
        let brokers = self.brokers.lock();
        let Some(Broker::Sqs(sqs)) = brokers.get(&call.transport) else {
            return;
        };
        let Some(messages) = sqs.messages_for(queue, LAG + COUNTED) else {
            return;
        };
        let (owner, is_dlq) = (sqs.owner_of(queue), sqs.is_dlq(queue));
        let of_queue = queue.strip_suffix(DLQ_SUFFIX).filter(|_| is_dlq);
        let is_used = of_queue.is_some_and(|of| sqs.messages(of).is_some());
        drop(brokers);
        if !is_dlq {
            let removal = QueueRemoval {
                host: &call.transport,
                queue,
                messages,
                owner,
            };
            return self.check_queue_removal(process, removal);
        }
        let is_shared = call.transport != TRANSPORTS[1];
        if is_shared || is_used || messages > 0 {
            self.violation(format!(
                "{} deletes dead letter queue {queue} with {messages} messages; shared: {is_shared}, used: {is_used}",
                process.name
            ));
        }
    }
}
