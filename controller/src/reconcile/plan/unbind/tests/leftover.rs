//! Pods that get the sidecar when its actor is already gone.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{ACTOR, ALL_READY, objects, pod};
use crate::reconcile::model::availability::{Availability, UnreadyPod};
use crate::reconcile::model::rollout::{ObservedUnbinding, TemplateSidecar};
use crate::reconcile::plan::unbind::leftover_eviction;

/// BIND-43: a webhook replica that was cut off injected the sidecar of an actor that was gone.
#[test]
fn pods_that_got_the_sidecar_late_are_evicted_one_in_thirty_seconds() {
    let unbinding = ObservedUnbinding {
        pods: vec![pod("a"), pod("b")],
        availability: Some(ALL_READY.clone()),
        // Written by another actor that binds the target now.
        objects: objects(Some("x")),
        ..ObservedUnbinding::default()
    };
    let now = Timestamp::UNIX_EPOCH;
    let evicted = |unbinding: &ObservedUnbinding, seconds_ago: Option<u64>| {
        let last = seconds_ago.map(|seconds| now - Duration::from_secs(seconds));
        leftover_eviction(unbinding, ACTOR, last, now)
    };
    assert_eq!(evicted(&unbinding, None), Some(pod("b")));
    assert_eq!(
        evicted(&unbinding, Some(29)),
        None,
        "the replica may still be behind"
    );
    assert_eq!(evicted(&unbinding, Some(30)), Some(pod("b")));
    let mut exported = unbinding.clone();
    exported.objects[0].template_sidecar = Some(TemplateSidecar {
        actor: ACTOR.into(),
        is_ours: false,
    });
    assert_eq!(
        evicted(&exported, None),
        None,
        "its replacement would get the sidecar again"
    );
    let mut one_starting = unbinding;
    one_starting.availability = Some(Availability {
        unready: vec![UnreadyPod {
            name: "c".into(),
            uid: "c".into(),
            created: None,
        }],
        ..ALL_READY.clone()
    });
    assert_eq!(
        evicted(&one_starting, None),
        None,
        "another pod is not ready"
    );
}
