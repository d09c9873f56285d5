//! Queues that an earlier process may have created.

use asya_shared::api::QueueDeletionPolicy;
use asya_shared::config::TransportsConfig;
use serde_json::json;

use crate::fault::{Fault, Reason};
use crate::reconcile::desired::Desired;
use crate::reconcile::observe::{known_queues, may_have_moved, maybe_created_queues};
use crate::reconcile::tests::fixtures::{actor, context, installation, observed, spec};
use crate::record::ActorRecord;

/// QUE-13: asking other brokers costs calls, so they are asked only about a changed spec that no status reflects yet.
#[test]
fn actor_may_have_moved_if_its_spec_changed_since_its_queue_was_verified() {
    let verified = |generation: i64| json!({"queue": {"name": "asya-a", "transport": "mq", "verifiedGeneration": generation}});
    for (generation, status, moved) in [
        (1, json!({}), false),
        (2, json!({}), true),
        (
            2,
            json!({"queue": {"name": "asya-a", "transport": "mq"}}),
            true,
        ),
        (2, verified(1), true),
        (2, verified(2), false),
        (3, verified(2), true),
    ] {
        let metadata = json!({"generation": generation});
        let observed = observed(&actor(&metadata, &spec(&json!({})), &status));
        let may_have = may_have_moved(&observed.actor, &observed.previous);
        assert_eq!(may_have, moved, "generation {generation}, {status}");
    }
}

/// QUE-13: seed 3183 of the simulation with owners, in which a new process sees the transport before its change, and
/// cannot read the queue there.
#[test]
fn desired_queue_of_which_no_status_tells_may_exist() {
    let transports = TransportsConfig::default();
    let queue = |name: &str| json!({"queue": {"name": name, "transport": "mq"}});
    for (status, is_possible) in [
        (json!({}), true),
        (queue("other"), true),
        (queue("asya-a"), false),
    ] {
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
        let desired = observed.desired.as_ref().unwrap();
        let actor = &observed.actor;
        let previous = &observed.previous;
        let possible = maybe_created_queues(desired, actor, previous, &transports);
        let names: Vec<_> = possible.iter().map(|(it, _)| &*it.name).collect();
        let expected = if is_possible { vec!["asya-a"] } else { vec![] };
        assert_eq!(names, expected, "{status}");
    }
}

/// QUE-13: a broker that did not respond is asked again by a new process, even if the queue was verified meanwhile.
#[test]
fn queue_listed_as_unconfirmed_may_exist() {
    let transports = installation().transports;
    let status = json!({
        "queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 2},
        "retiredQueues": [
            {"transport": "other", "name": "asya-a", "unconfirmed": true}, {"transport": "dead", "name": "asya-a"},
        ],
    });
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
    let desired = observed.desired.as_ref().unwrap();
    let possible = maybe_created_queues(desired, &observed.actor, &observed.previous, &transports);
    let transports: Vec<_> = possible.iter().map(|(it, _)| &*it.transport).collect();
    assert_eq!(transports, ["other"]);
}

/// QUE-13: while the spec cannot be acted on, it does not tell which queues may exist.
#[tokio::test]
async fn queues_that_may_exist_are_known_once_the_spec_can_be_acted_on() {
    let context = context();
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let known = |desired: Result<&Desired, &Fault>, retains_queue| {
        let mut actor = ActorRecord::clone(&observed.actor);
        if retains_queue {
            actor.queue_policy = QueueDeletionPolicy::Retain;
        }
        let queues = known_queues(&context, &actor, &observed.previous, desired);
        let transports = queues.maybe_created.into_iter().map(|it| it.transport);
        transports.collect::<Vec<_>>().join(" ")
    };
    let fault = Fault::until_change(Reason::QueueConflict, "");
    assert_eq!(known(Err(&fault), false), "");
    assert_eq!(known(observed.desired.as_deref(), true), "", "kept");
    assert_eq!(known(observed.desired.as_deref(), false), "aws dead other");
    let key = observed.key();
    context
        .unrecorded_queues
        .confirm(key, &context.unrecorded_queues.maybe_created_by(key)[1]);
    assert_eq!(
        known(observed.desired.as_deref(), false).split(' ').count(),
        2
    );
}
