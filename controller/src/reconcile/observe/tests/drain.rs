use std::time::Duration;

use serde_json::json;

use crate::context::Context;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::drain::DrainState;
use crate::reconcile::model::observed::DeletionSettings;
use crate::reconcile::observe::{drain, known_queues};
use crate::reconcile::tests::fixtures::{actor, context_with, observed, spec};

/// QUE-42: the API server has no Secret with the broker's password, so the second count fails.
#[tokio::test]
async fn count_that_fails_does_not_shorten_the_wait_for_a_second_one() {
    let metadata = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["asya.sh/finalizer"],
    });
    let queue = json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2});
    let status = json!({"queue": queue, "queueReleasedSince": "2026-01-01T00:00:00Z"});
    let extra = json!({"queue": {"deletionPolicy": "Drain"}});
    let observed = observed(&actor(&metadata, &spec(&extra), &status));
    let actor = &observed.actor;
    let previous = &observed.previous;
    let context = context_with(|_| {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        Some((404, status))
    });
    // Otherwise the namespace counts as gone.
    let context = Context {
        client: context_with(|_| Some((200, json!({"metadata": {"name": "ns"}})))).client,
        ..context
    };
    let deletion = DeletionSettings::of(actor);
    let queues = known_queues(
        &context,
        actor,
        previous,
        Err(&Fault::until_change(Reason::QueueConflict, "")),
    );
    let wait = async |now: &str| {
        let now = now.parse().unwrap();
        let observing = drain::observe(&context, actor, previous, &deletion, &queues, now);
        observing.await.unwrap().state
    };
    let nine_seconds = Some(DrainState::Confirming(Duration::from_secs(9)));
    assert_eq!(wait("2026-01-01T00:00:01Z").await, nine_seconds);
    assert_eq!(wait("2026-01-01T00:00:10Z").await, Some(DrainState::Empty));
}
