use asya_shared::validate::MAX_SPEC_BYTES;
use serde_json::json;

use crate::fault::{Reason, Requeue};
use crate::reconcile::tests::fixtures::{actor, installation, observed, spec};

/// FW-21: admission rejects such an annotation, but an object may have it already.
#[test]
fn unknown_annotation_value_is_a_fault_of_the_actor() {
    let metadata = json!({"annotations": {"asya.sh/reconcile": "paused"}});
    let observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    let fault = observed.desired.unwrap_err();
    assert_eq!(fault.reason, Reason::ValidationError);
    assert_eq!(fault.requeue, Requeue::AwaitChange);
    for text in ["asya.sh/reconcile", "paused"] {
        assert!(fault.message.contains(text), "{}", fault.message);
    }
}

/// VAL-22, VAL-19: such a spec may have been stored before there was a limit, or while no webhook ran.
#[test]
fn large_spec_is_a_fault_whose_remedy_is_to_move_values() {
    let mut spec = spec(&json!({}));
    spec["workload"]["template"]["metadata"] =
        json!({"annotations": {"large": "x".repeat(MAX_SPEC_BYTES)}});
    let observed = observed(&actor(&json!({}), &spec, &json!({})));
    let fault = observed.desired.unwrap_err();
    assert_eq!(
        (fault.reason, fault.requeue),
        (Reason::ValidationError, Requeue::AwaitChange)
    );
    for text in [
        &spec.to_string().len().to_string(),
        "262144",
        "into a ConfigMap",
    ] {
        assert!(fault.message.contains(text), "{}", fault.message);
    }
}

/// QUE-13: a queue at another broker may have been created by a process that was interrupted. Not asked about: another
/// transport to the same broker (`twin`), a transport that creates no queues (`fixed`) and one that is disabled
/// (`off`).
#[test]
fn earlier_queue_may_be_at_any_other_broker_at_which_queues_are_created() {
    let transports = installation().transports;
    let queue = "asya-a";
    let aws = ("aws", queue, vec![]);
    let dead = ("dead", queue, vec!["asya-a-dlq"]);
    let mq = ("mq", queue, vec![]);
    let other = ("other", queue, vec![]);
    let twin = ("twin", queue, vec![]);
    for (current, elsewhere) in [
        ("mq", vec![aws.clone(), dead.clone(), other.clone()]),
        ("twin", vec![aws.clone(), dead.clone(), other.clone()]),
        ("other", vec![aws.clone(), dead, mq.clone(), twin.clone()]),
        ("dead", vec![aws, mq, other, twin]),
    ] {
        let actor = actor(
            &json!({}),
            &spec(&json!({"transport": current})),
            &json!({}),
        );
        let observed = observed(&actor);
        let desired = observed.desired.as_ref().unwrap();
        let found = desired.queues_elsewhere(&observed.actor, &transports);
        let mut statuses: Vec<_> = found
            .iter()
            .map(|(status, _)| {
                let dead_letters = status.dead_letters.iter().map(|it| &**it).collect();
                (&*status.transport, &*status.name, dead_letters)
            })
            .collect();
        statuses.sort();
        assert_eq!(statuses, elsewhere, "{current}");
        for (status, created) in found {
            assert_eq!(created.names.queue, status.name, "{current}");
            assert_eq!((&*created.uid, &*created.actor), ("actor-uid", "a"));
        }
    }
}
