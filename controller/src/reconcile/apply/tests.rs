use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Outcome, apply};
use crate::queue::Depth;
use crate::queue::depths::Told;
use crate::reconcile::observe::binding::BindingSeen;
use crate::reconcile::observe::observe;
use crate::reconcile::plan::plan;
use crate::reconcile::testing::{actor, context, observed, spec};
use crate::record::Key;

const MESSAGES: Depth = Depth {
    queued: 5,
    processing: 0,
};

/// QUE-20: nobody else forgets them where the health pass is switched off.
#[tokio::test]
async fn messages_of_an_actor_that_goes_are_not_told_of_the_next_one_of_its_name() {
    let context = context();
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let gone = observed(&actor(&gone, &spec(&json!({})), &json!({})));
    context.depths.take(gone.key(), Some(MESSAGES));
    let plan = plan(&gone, Timestamp::now());
    let outcome = apply(&context, &gone, plan).await.unwrap();
    assert!(matches!(outcome, Outcome::Gone));
    assert_eq!(context.depths.told(gone.key()), Told::AsBefore);
}

/// QUE-20, FW-14
#[tokio::test]
async fn messages_of_an_actor_that_is_gone_are_forgotten() {
    let context = context();
    let gone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    context.depths.take(gone.key(), Some(MESSAGES));
    let seen = observe(&context, gone.key(), Timestamp::now()).await;
    assert!(seen.unwrap().is_none());
    assert_eq!(context.depths.told(gone.key()), Told::AsBefore);
}

/// ROLL-2
#[tokio::test]
async fn who_is_left_alone_or_refused_in_the_midst_of_a_rollout_holds_up_no_other() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let unknown = json!({"transport": "unknown", "workloadRef": target});
    for (metadata, spec) in [(&paused, &bound), (&json!({}), &unknown)] {
        let (context, other) = (context(), Key::new("ns", "other"));
        let mut seen = observed(&actor(metadata, spec, &json!({})));
        seen.binding = Some(BindingSeen::default());
        context.slots.hold(seen.key());
        assert!(!context.slots.has_room_for(&other));
        let plan = plan(&seen, Timestamp::now());
        // Whatever else it would do, nobody answers.
        let _ = apply(&context, &seen, plan).await;
        assert!(context.slots.has_room_for(&other), "{metadata} {spec}");
    }
}
