use asya_shared::api::WorkloadKind;
use asya_shared::inject::Replicas;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use super::{active_plan, new, now, standalone_plan, with_spec};
use crate::fault::Reason;
use crate::reconcile::desired::desired;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::service_account::plan_service_account;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::plan::{ChildStep, plan};
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
    let mut observed = on_sqs(&role);
    assert_eq!(plan_service_account(&observed), apply);
    observed.service_account = Child::Ours(account("actor-uid"));
    assert_eq!(plan_service_account(&observed), apply, "not as recorded");

    let mut without = on_sqs(&json!({}));
    without.service_account = Child::Ours(account("actor-uid"));
    let delete = ChildStep::Delete("account-uid".into());
    assert_eq!(plan_service_account(&without), delete);
    without.pods = vec![pod("old", "of an earlier template")];
    assert_eq!(
        plan_service_account(&without),
        ChildStep::Wait,
        "an old pod still uses it"
    );

    observed.service_account = Child::Foreign(account("other"));
    let step = standalone_plan(&observed);
    assert_eq!(plan_service_account(&observed), ChildStep::Keep);
    let WorkloadStep::Blocked(fault) = step.workload else {
        panic!("{:?}", step.workload)
    };
    assert!(
        fault.message.contains("ServiceAccount ns/asya-a exists"),
        "{fault:?}"
    );
}

/// KEDA-1, KEDA-8
#[test]
fn scaling_is_planned_with_the_workload_and_removed_when_it_is_off() {
    let scaled = with_spec(&json!({"scaling": {"enabled": true}}));
    let Some(ScalingStep::Enabled(plan)) = active_plan(&scaled).common.scaling else {
        panic!()
    };
    let apply = ChildStep::Apply { take_over: None };
    assert_eq!((plan.scaled_object, plan.fault), (apply, None));

    let mut off = new();
    off.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Disabled(teardown)) = active_plan(&off).common.scaling else {
        panic!()
    };
    assert_eq!(teardown.scaled_object, ChildStep::Delete("u-so".into()));
}

/// API-3, KEDA-9, SA-3
#[test]
fn paused_actor_still_reports_foreign_names_and_scaling_faults() {
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let scaled = spec(&json!({"scaling": {"enabled": true}}));
    let mut observed: Observed = observed(&actor(&paused, &scaled, &json!({})));
    observed.scaling.installed = false;
    let foreign =
        json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}});
    observed.workload = Child::Foreign(workload(&foreign));
    let Plan::Paused(previous) = plan(&observed, now()) else {
        panic!()
    };
    let previous = previous.common();
    let scaling = &previous.scaling.as_ref().unwrap().fault;
    let reasons = [&previous.fault, scaling].map(|fault| fault.as_ref().unwrap().reason);
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
        let observed = observed(&actor(&json!({}), &scaled, &status));
        let first = observed.standalone().unwrap().workload.to_create();
        assert_eq!(first["spec"]["replicas"], replicas, "{status}");
    }
}

/// SAFE-25
#[test]
fn replicas_are_left_to_an_autoscaler_of_the_user() {
    let mut observed = with_spec(&json!({}));
    let replicas = |scaled: &[WorkloadKind], observed: &Observed| {
        let desired =
            desired(&installation(), &observed.actor, &observed.previous, scaled).unwrap();
        desired.standalone().unwrap().workload.replicas
    };
    assert_eq!(replicas(&[], &observed), Replicas::Enforced(1));
    let other = [WorkloadKind::StatefulSet];
    assert_eq!(replicas(&other, &observed), Replicas::Enforced(1));
    let scaled = [WorkloadKind::Deployment];
    assert_eq!(replicas(&scaled, &observed), Replicas::Initial(1));

    let mut scaled_up = deployment(&observed);
    scaled_up["spec"]["replicas"] = json!(7);
    observed.workload = Child::Ours(workload(&scaled_up));
    observed.desired = desired(
        &installation(),
        &observed.actor,
        &observed.previous,
        &scaled,
    );
    assert!(matches!(
        standalone_plan(&observed).workload,
        WorkloadStep::Update(update) if update.hand_off_replicas
    ));
}
