//! The end of polling.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::Message;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, error};
use super::requests::{STUCK, shared};
use crate::broker::Demand;
use crate::broker::demand;
use crate::broker::sqs::poll::Poll;

/// A poll loop with demand.
fn poll(fake: &Fake, stopping: &CancellationToken) -> Poll {
    let (demand, wanted) = demand::channel();
    demand.set(Demand {
        slots: 1,
        lookahead: 0,
    });
    Poll {
        shared: Arc::new(shared(fake)),
        demand: wanted,
        events: unbounded_channel().0,
        stopping: stopping.clone(),
    }
}

/// SC-78
#[tokio::test]
async fn no_poll_begins_once_the_process_stops() {
    let fake = Fake::start(|_| Some(error("ThrottlingException"))).await;
    let stopping = CancellationToken::new();
    stopping.cancel();
    // Both demand and the end are there, so it must not be left to chance.
    for _ in 0..20 {
        let run = poll(&fake, &stopping).run();
        timeout(STUCK, run).await.expect("an end");
    }
    assert_eq!(fake.seen(&["GetQueueUrl", "ReceiveMessage"]).len(), 0);
}

/// SC-40, SC-73, SC-78: they would be hidden for the visibility timeout, which may be hours.
#[tokio::test]
async fn messages_of_the_last_poll_are_released_again_unless_they_may_have_been() {
    let throttled = error("ThrottlingException");
    let failed = json!({"Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": false}]});
    let mut partly = failed.clone();
    partly["Successful"] = json!([{"Id": "0"}]);
    let rest = json!({"Successful": [{"Id": "1"}], "Failed": []});
    let minute = Duration::from_mins(1);
    for (answers, left, expected) in [
        (
            vec![throttled, (200, partly), (200, rest)],
            minute,
            vec![vec!["a", "b"], vec!["a", "b"], vec!["b"]],
        ),
        // Another consumer may have them.
        (
            vec![(504, json!("Gateway Timeout"))],
            minute,
            vec![vec!["a", "b"]],
        ),
        // This process was suspended while SQS answered.
        (Vec::new(), Duration::ZERO, Vec::new()),
    ] {
        let mut answers = answers.into_iter();
        let fake = Fake::start(move |_| answers.next()).await;
        let poll = poll(&fake, &CancellationToken::new());
        let messages = ["a", "b"].map(|handle| Message::builder().receipt_handle(handle).build());
        let releasing = timeout(
            Duration::from_secs(5),
            poll.requeue(messages.into(), Instant::now() + left),
        );
        releasing.await.expect("an end");
        let seen = fake.seen(&["ChangeMessageVisibilityBatch"]);
        let handles = seen.iter().map(|seen| {
            let entries = seen.body["Entries"].as_array().expect("entries");
            let handle = |entry: &serde_json::Value| entry["ReceiptHandle"].to_string();
            entries.iter().map(handle).collect::<Vec<_>>()
        });
        let handles: Vec<_> = handles.collect();
        let expected: Vec<Vec<_>> = expected
            .into_iter()
            .map(|handles| handles.iter().map(|it| format!("{it:?}")).collect())
            .collect();
        assert_eq!(handles, expected);
    }
}
