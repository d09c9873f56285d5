//! What an actor that is being deleted still has at the broker.

use serde_json::{Value, json};

use crate::reconcile::observe::known_queues;
use crate::reconcile::plan::deletion::{NextPhase, plan_deletion_steps};
use crate::reconcile::tests::fixtures::{actor, context, observed, spec};

/// QUE-13: seed 3803 of the simulation, in which the operator crashed before a status named the queue.
#[tokio::test]
async fn queue_of_which_no_status_tells_is_looked_up_on_other_transports_before_its_actor_is_gone()
{
    let context = context();
    let looked_up = |generation: i64, extra: &Value| -> Vec<String> {
        let metadata =
            json!({"generation": generation, "deletionTimestamp": "2026-01-01T00:00:10Z"});
        let mut observed = observed(&actor(&metadata, &spec(extra), &json!({})));
        let (actor, previous) = (&observed.actor, &observed.previous);
        let desired = observed.desired.as_deref();
        context.unrecorded_queues.forget(observed.key());
        observed.queues = known_queues(&context, actor, previous, desired, &observed.deletion);
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let NextPhase::FinalStep { queues } = plan_deletion_steps(&observed, now).next else {
            panic!("nothing is left but queues");
        };
        let queues = queues.into_iter();
        queues.map(|removal| removal.queue.transport).collect()
    };
    assert_eq!(looked_up(1, &json!({})), ["mq"], "it cannot have moved");
    let moved = looked_up(2, &json!({}));
    assert_eq!(moved[0], "mq");
    assert!(moved.contains(&"other".to_owned()), "{moved:?}");
    assert!(
        !moved.contains(&"fixed".to_owned()) && !moved.contains(&"twin".to_owned()),
        "{moved:?}"
    );
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    assert!(looked_up(2, &retain).is_empty());
}
