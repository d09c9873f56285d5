use asya_shared::api::AsyncActorStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{bound, now, status_of};
use crate::reconcile::Retry;
use crate::reconcile::apply::{By, Rolled};
use crate::reconcile::bound_pods::{Lacking, Lacks};
use crate::reconcile::observe::binding::BindingSeen;
use crate::reconcile::observe::rollout::RolloutSeen;

/// What is known of the rollout after a pass that asked for a replacement, and saw a pod without the sidecar if one has
/// come for the last.
fn asked(by: By, before: &AsyncActorStatus, came_bare: bool) -> AsyncActorStatus {
    let (mut observed, seen, mut ensured) = bound(&json!({}), before);
    let mut rollout = RolloutSeen::default();
    if came_bare {
        rollout.counted.lacking.push(Lacking {
            name: "bare".into(),
            created: Some(Time(now())),
            lacks: Lacks::Given,
            ..Lacking::default()
        });
    }
    observed.binding = Some(BindingSeen {
        rollout: Some(rollout),
        ..BindingSeen::default()
    });
    *ensured.rolled = Rolled::Asked(by, "text".to_owned(), Retry::OnChange);
    let mut status = status_of(&(observed, seen, ensured));
    // The next pod is newer than that.
    if let Some(rollout) = &mut status.rollout {
        let since = rollout.since.as_ref().unwrap().0;
        rollout.since = Some(Time(since - std::time::Duration::from_secs(10)));
    }
    status
}

/// ROLL-5
#[test]
fn replacements_of_evicted_pods_without_the_sidecar_are_counted_from_pass_to_pass() {
    let bare = |status: &AsyncActorStatus| status.rollout.as_ref().unwrap().bare;
    let first = asked(By::Eviction, &AsyncActorStatus::default(), false);
    let second = asked(By::Eviction, &first, true);
    let third = asked(By::Eviction, &second, true);
    assert_eq!((bare(&first), bare(&second), bare(&third)), (0, 1, 2));
    assert_eq!(bare(&asked(By::Eviction, &third, false)), 0, "in a row");
    let rolled = asked(By::Annotation, &third, true);
    assert_eq!(bare(&rolled), 0, "its controller replaces all");
}
