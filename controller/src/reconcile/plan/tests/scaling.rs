use asya_shared::api::WorkloadKind;
use asya_shared::inject::Replicas;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use super::{ensure, new, now, with_spec};
use crate::fault::Reason;
use crate::reconcile::desired::desired;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::plan::{ChildStep, plan, plan_service_account};
use crate::reconcile::tests::fixtures::{
    actor, deployment, installation, observed, pod, record, spec, workload,
};
use crate::record::ChildRecord;
use crate::scaling::tests::fixtures::scaled_object;

/// SA-1, SA-2, SA-3
#[test]
fn service_account_exists_only_with_a_role_and_is_never_taken_from_others() {
    let role = json!({"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}});
    let on_sqs = |metadata: &Value| {
        observed(&actor(
            metadata,
            &spec(&json!({"transport": "aws"})),
            &json!({}),
        ))
    };
    let account = |owner: &str| {
        record::<ChildRecord<ServiceAccount>>(&json!({"metadata": {
            "name": "asya-a", "namespace": "ns", "uid": "account-uid", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": owner, "controller": true}],
        }}))
    };
    let apply = ChildStep::Apply { take_over: None };
    let mut seen = on_sqs(&role);
    assert_eq!(plan_service_account(&seen), apply);
    seen.service_account = Child::Ours(account("actor-uid"));
    assert_eq!(plan_service_account(&seen), apply, "not as recorded");

    let mut without = on_sqs(&json!({}));
    without.service_account = Child::Ours(account("actor-uid"));
    let delete = ChildStep::Delete("account-uid".into());
    assert_eq!(plan_service_account(&without), delete);
    without.pods = vec![pod("old", "of an earlier template")];
    assert_eq!(
        plan_service_account(&without),
        ChildStep::Wait,
        "a pod still runs as it"
    );

    seen.service_account = Child::Foreign(account("other"));
    let step = ensure(&seen);
    assert_eq!(plan_service_account(&seen), ChildStep::Keep);
    let WorkloadStep::Refuse(fault) = step.workload else {
        panic!("{:?}", step.workload)
    };
    assert!(
        fault.message.contains("ServiceAccount ns/asya-a exists"),
        "{fault:?}"
    );
}

/// KEDA-1, KEDA-8
#[test]
fn scaling_is_planned_with_the_workload_and_taken_down_when_it_is_off() {
    let scaled = with_spec(&json!({"scaling": {"enabled": true}}));
    let Some(ScalingStep::Wanted(plan)) = ensure(&scaled).scaling else {
        panic!()
    };
    let apply = ChildStep::Apply { take_over: None };
    assert_eq!((plan.scaled_object, plan.fault), (apply, None));

    let mut off = new();
    off.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Unwanted(removal)) = ensure(&off).scaling else {
        panic!()
    };
    assert_eq!(removal.scaled_object, ChildStep::Delete("u-so".into()));
}

/// API-3, KEDA-9, SA-3
#[test]
fn paused_actor_still_reports_foreign_names_and_scaling_faults() {
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let scaled = spec(&json!({"scaling": {"enabled": true}}));
    let mut seen: Observed = observed(&actor(&paused, &scaled, &json!({})));
    seen.scaling.installed = false;
    let foreign =
        json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}});
    seen.workload = Child::Foreign(workload(&foreign));
    let Plan::Rest(found) = plan(&seen, now()) else {
        panic!()
    };
    let scaling = found.scaling.unwrap().fault;
    let reasons = [found.fault, scaling].map(|fault| fault.unwrap().reason);
    assert_eq!(reasons, [Reason::NotOwned, Reason::KedaNotInstalled]);
}

/// WRK-3, WRK-6
#[test]
fn recreated_workload_starts_with_the_last_desired_replicas() {
    let scaled = spec(&json!({"scaling": {"enabled": true, "minReplicas": 1, "maxReplicas": 5}}));
    for (status, replicas) in [
        (json!({}), 1),
        (json!({"desiredReplicas": 0}), 1),
        (json!({"desiredReplicas": 4}), 4),
        (json!({"desiredReplicas": 9}), 5),
    ] {
        let seen = observed(&actor(&json!({}), &scaled, &status));
        let first = seen.standalone().unwrap().workload.first();
        assert_eq!(first["spec"]["replicas"], replicas, "{status}");
    }
}

/// SAFE-25
#[test]
fn replicas_are_left_to_an_autoscaler_of_the_user() {
    let mut seen = with_spec(&json!({}));
    let wanted = |scaled: &[WorkloadKind], seen: &Observed| {
        let desired = desired(&installation(), &seen.actor, &seen.previous, scaled).unwrap();
        desired.standalone().unwrap().workload.replicas
    };
    assert_eq!(wanted(&[], &seen), Replicas::Enforced(1));
    let other = [WorkloadKind::StatefulSet];
    assert_eq!(wanted(&other, &seen), Replicas::Enforced(1));
    let scaled = [WorkloadKind::Deployment];
    assert_eq!(wanted(&scaled, &seen), Replicas::Initial(1));

    let mut found = deployment(&seen);
    found["spec"]["replicas"] = json!(7);
    seen.workload = Child::Ours(workload(&found));
    seen.desired = desired(&installation(), &seen.actor, &seen.previous, &scaled);
    assert!(matches!(
        ensure(&seen).workload,
        WorkloadStep::Update {
            hand_over: true,
            ..
        }
    ));
}
