use asya_shared::api::AsyncActorStatus;
use asya_shared::resolve::Roll;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{bound, found, now, status_of};
use crate::fault::Requeue;
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};
use crate::reconcile::model::outcome::{By, Rolled};
use crate::reconcile::model::rollout::Live;
use crate::reconcile::model::rollout::RolloutSeen;

/// Status after a reconcile that asked for a replacement; with `came_bare`, the last replacement came without the
/// sidecar.
fn asked(by: By, before: &AsyncActorStatus, came_bare: bool) -> AsyncActorStatus {
    let (mut observed, seen, mut ensured) = bound(&json!({}), before);
    let mut rollout = RolloutSeen::default();
    if came_bare {
        rollout.counted.lacking.push(OutdatedPod {
            name: "bare".into(),
            created: Some(Time(now())),
            lacks: Lacks::Given,
            ..OutdatedPod::default()
        });
    }
    observed.binding = Some(BindingSeen {
        rollout: Some(rollout),
        ..BindingSeen::default()
    });
    *ensured.rolled = Rolled::Asked(by, "text".to_owned(), Requeue::AwaitChange);
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
fn replacements_of_evicted_pods_without_the_sidecar_are_counted_across_reconciles() {
    let bare = |status: &AsyncActorStatus| status.rollout.as_ref().unwrap().bare;
    let first = asked(By::Eviction, &AsyncActorStatus::default(), false);
    let second = asked(By::Eviction, &first, true);
    let third = asked(By::Eviction, &second, true);
    assert_eq!((bare(&first), bare(&second), bare(&third)), (0, 1, 2));
    assert_eq!(bare(&asked(By::Eviction, &third, false)), 0, "in a row");
    let rolled = asked(By::Annotation, &third, true);
    assert_eq!(bare(&rolled), 0, "its controller replaces all");
}

/// SAFE-19
#[test]
fn annotated_object_is_remembered_after_it_leaves_the_target() {
    let marks = |before: &AsyncActorStatus, target: &str, value: Option<&str>, rolled| {
        let (mut observed, _, mut ensured) = bound(&json!({}), before);
        let mut seen = found();
        let resolved = seen.target.as_mut().unwrap().as_mut().unwrap();
        let Roll::AnnotateTemplate(workloads) = &mut resolved.target.roll else {
            panic!()
        };
        target.clone_into(&mut workloads[0].name);
        let live = Live {
            object: workloads[0].clone(),
            value: value.map(str::to_owned),
            ..Live::default()
        };
        seen.rollout = Some(RolloutSeen {
            live: vec![live],
            ..RolloutSeen::default()
        });
        observed.binding = Some(seen);
        *ensured.rolled = rolled;
        status_of(&(observed, found(), ensured))
    };
    let names = |status: &AsyncActorStatus| {
        let all = status.roll_annotations.iter();
        all.map(|it| format!("{} {}", it.name, it.path))
            .collect::<Vec<_>>()
    };
    let [web, other] =
        ["web", "web-2"].map(|it| format!("{it} spec.template.metadata.annotations"));
    let none = AsyncActorStatus::default();
    assert!(names(&marks(&none, "web", None, Rolled::Rest)).is_empty());
    let seen = marks(&none, "web", Some("v"), Rolled::Rest);
    assert_eq!(names(&seen), [&*web], "a former release wrote it");
    let asked = Rolled::Asked(By::Annotation, String::new(), Requeue::AwaitChange);
    let wrote = marks(&none, "web", None, asked);
    assert_eq!(names(&wrote), [&*web]);
    let next = marks(&wrote, "web-2", Some("v"), Rolled::Rest);
    assert_eq!(names(&next), [&*web, &*other]);
    let again = marks(&next, "web-2", None, Rolled::Rest);
    assert_eq!(
        names(&again),
        [web, other],
        "only the end of the actor knows"
    );
}
