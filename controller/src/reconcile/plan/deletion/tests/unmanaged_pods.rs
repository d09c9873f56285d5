//! Pods that a `StatefulSet` left when it was deleted without them.

use asya_shared::api::WorkloadKind;

use super::*;

/// A `StatefulSet` actor being deleted, with a pod `name` that nothing controls.
fn with_unmanaged_pod(name: &str, extra: &Value) -> Observed {
    let template =
        json!({"spec": {"containers": [{"name": "asya-runtime", "image": "me/handler:1"}]}});
    let mut all = json!({"workload": {"kind": "StatefulSet", "template": template}});
    all.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    let mut observed = deleting(&json!({}), &all);
    observed.unmanaged_pods = vec![unmanaged(name).into()];
    observed
}

fn unmanaged(name: &str) -> PodRecord {
    let mut pod = PodRecord::clone(&pod(name, "h"));
    pod.metadata.controller = None;
    pod.unmanaged_of = Some(WorkloadKind::StatefulSet);
    pod
}

/// The `StatefulSet` that has the actor's name, with this deletion time.
fn set(observed: &Observed, deleted: Option<&str>) -> Arc<crate::record::WorkloadRecord> {
    let mut object = deployment(observed);
    object["metadata"]["deletionTimestamp"] = json!(deleted);
    stateful_set(&object)
}

/// FIN-2, FW-22
#[test]
fn pods_that_a_stateful_set_left_are_adopted_by_another_and_deleted_with_it() {
    for policy in ["Delete", "Retain"] {
        let extra = json!({"queue": {"deletionPolicy": policy}});
        let mut observed = with_unmanaged_pod("a-0", &extra);
        observed.workload = Child::Ours(set(&observed, Some("2026-01-01T00:00:00Z")));
        assert_eq!(
            deletion(&observed),
            wait(vec![], None),
            "the one that leaves them has to be gone"
        );

        observed.workload = Child::NotFound;
        let steps = deletion(&observed);
        assert_eq!(steps.next, NextPhase::Wait(Some(Duration::from_secs(10))));
        let [WorkloadRemoval::Adopt(kind, object)] = &steps.workloads[..] else {
            panic!("{:?}", steps.workloads);
        };
        assert_eq!(*kind, WorkloadKind::StatefulSet);
        assert_eq!(object["spec"]["replicas"], 0, "it creates no pod");
        let selector = &object["spec"]["selector"]["matchLabels"];
        assert_eq!(selector["asya.sh/asya"], "a");

        let adopting = set(&observed, None);
        observed.workload = Child::Ours(adopting.clone());
        assert_eq!(deletion(&observed), wait(vec![], Some(10)));

        observed.pods = std::mem::take(&mut observed.unmanaged_pods);
        let removal = vec![WorkloadRemoval::Delete(adopting)];
        assert_eq!(deletion(&observed), wait(removal, None), "adopted");
    }
}

/// FIN-2, FW-22
#[test]
fn pods_that_no_stateful_set_adopts_delay_the_queue_like_others() {
    let mut terminating = unmanaged("a-0");
    terminating.deleted = Some(Time("2026-01-01T00:00:40Z".parse().unwrap()));
    let mut replica = unmanaged("a-0");
    replica.unmanaged_of = Some(WorkloadKind::Deployment);
    for (case, pod) in [
        ("is being deleted", terminating),
        ("of a Deployment", replica),
        ("another name", unmanaged("a-0-copy")),
        ("of another set", unmanaged("b-0")),
    ] {
        let mut observed = with_unmanaged_pod("a-0", &json!({}));
        observed.unmanaged_pods = vec![pod.into()];
        assert_eq!(deletion(&observed), wait(vec![], Some(10)), "{case}");
        observed.workload = Child::Ours(set(&observed, None));
        let removal = vec![WorkloadRemoval::Delete(set(&observed, None))];
        assert_eq!(deletion(&observed), wait(removal, None), "{case}");
    }

    let mut foreign = with_unmanaged_pod("a-0", &json!({}));
    foreign.workload = Child::Foreign(set(&foreign, None));
    assert_eq!(deletion(&foreign), wait(vec![], Some(10)));
    let mut deployment = deleting(&json!({}), &json!({}));
    deployment.unmanaged_pods = vec![unmanaged("a-0").into()];
    assert_eq!(deletion(&deployment), wait(vec![], Some(10)));
}

/// FIN-2, FW-22, FW-23 (g)
#[test]
fn pods_that_a_stateful_set_left_do_not_delay_the_deletion_forever() {
    let mut late = with_unmanaged_pod("a-0", &json!({}));
    late.actor = Arc::new(crate::record::ActorRecord {
        deleted: Some(Time("2026-01-01T00:00:00Z".parse().unwrap())),
        ..(*late.actor).clone()
    });
    assert_eq!(deletion(&late), finish(Some("asya-a")));

    let mut orphaning = with_unmanaged_pod("a-0", &json!({}));
    orphaning.deletion.orphans = true;
    let steps = deletion(&orphaning);
    assert_eq!(steps.workloads, []);
    assert_eq!(steps.next, NextPhase::FinalStep { queues: vec![] });
}

/// FW-22, FW-23 (e)
#[test]
fn queue_that_a_left_pod_receives_from_is_kept_and_the_remedy_fits_the_pod() {
    let mut standalone = with_unmanaged_pod("a-0", &json!({}));
    standalone.predecessor_pods = vec![pod("a-1-x", "h")];
    let bound = json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "workload": null});
    let mut binding = deleting(&json!({}), &bound);
    binding.unmanaged_pods = vec![unmanaged("a-0").into()];
    let queue = QueueStatus {
        transport: "mq".to_owned(),
        name: "asya-a".to_owned(),
        ..QueueStatus::default()
    };
    for (observed, pod, expected) in [
        (
            &standalone,
            "a-0",
            "pod a-0, which no workload controls, receives from it; delete that pod,",
        ),
        (
            &standalone,
            "a-1-x",
            "which an earlier actor of this name left, receives from it; delete that pod's workload,",
        ),
        (&binding, "a-0", "delete that pod,"),
        (
            &binding,
            "web-1",
            "restart that pod, which removes the sidecar,",
        ),
    ] {
        let plan = plan_deletion(observed, now());
        let text = plan.kept_queue_text(&observed.actor, &queue, pod);
        assert!(text.contains(expected), "{text}");
        assert!(!plan.ignores_workload_pods, "they mount the ConfigMaps");
        let names = plan.left_pods();
        let mut names = names.iter().map(|it| &*it.metadata.key.name);
        assert!(names.any(|it| it == "a-0"));
    }
}
