//! Adoption of pods that a workload deleted without them has left.

use super::*;
use crate::reconcile::tests::fixtures::{deployment, pod, recording_context};
use crate::record::PodRecord;
use asya_shared::api::WorkloadKind;

/// FIN-2, FW-22
#[tokio::test]
async fn stateful_set_without_pods_is_created_to_adopt_those_of_a_deleted_actor() {
    let deleted = json!({"deletionTimestamp": Timestamp::now().to_string()});
    let container = json!({"name": "asya-runtime", "image": "me/handler:1"});
    let template = json!({"spec": {"containers": [container]}});
    let of_actor = spec(&json!({"workload": {"kind": "StatefulSet", "template": template}}));
    let mut observed = observed(&actor(&deleted, &of_actor, &json!({})));
    let mut unmanaged = PodRecord::clone(&pod("a-0", "h"));
    unmanaged.metadata.controller = None;
    unmanaged.unmanaged_of = Some(WorkloadKind::StatefulSet);
    observed.unmanaged_pods = vec![unmanaged.into()];

    let (context, bodies) = recording_context(deployment(&observed));
    let deletion = plan(&observed, Timestamp::now());
    let outcome = apply(&context, &observed.actor, deletion).await.unwrap();
    assert!(matches!(outcome, Outcome::Deleting { .. }), "{outcome:?}");
    let bodies = bodies.lock();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(bodies[0]["kind"], "StatefulSet");
    assert_eq!(bodies[0]["spec"]["replicas"], 0);
}
