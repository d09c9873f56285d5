use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use asya_shared::scaling::{ScalingObjects, TriggerError};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{ScalingPlan, ScalingPlanInputs, ScalingTeardown, plan_scaling, plan_teardown};
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::reconcile::plan::ChildStep;
use crate::record::{
    AutoscalerTarget, ChildRecord, HpaRecord, ScaledObjectRecord, TriggerAuthentication,
};
use crate::scaling::tests::fixtures::{hpa, scaled_object, trigger_authentication};

const APPLY: ChildStep = ChildStep::Apply { take_over: None };

/// The inputs of a scaling plan.
struct Fixture {
    desired: Result<ScalingObjects, TriggerError>,
    installed: bool,
    target_exists: bool,
    scaled_object: Child<ScaledObjectRecord>,
    trigger_authentication: Child<ChildRecord<TriggerAuthentication>>,
    hpas: Vec<Arc<HpaRecord>>,
    competing: Vec<Arc<ScaledObjectRecord>>,
    inventory: Vec<InventoryEntry>,
}

fn manifest() -> HashedManifest {
    HashedManifest {
        object: json!({}),
        hash: "h".to_owned(),
    }
}

fn entry(kind: &str, name: &str, uid: &str, fingerprint: &str) -> InventoryEntry {
    InventoryEntry {
        group: "keda.sh".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: Some(uid.to_owned()),
        hash: Some("h".to_owned()),
        fingerprint: Some(fingerprint.to_owned()),
        ..InventoryEntry::default()
    }
}

/// The workload exists, but no KEDA object.
fn fresh() -> Fixture {
    Fixture {
        desired: Ok(ScalingObjects {
            config_map: None,
            trigger_authentication: Some(manifest()),
            scaled_object: manifest(),
        }),
        installed: true,
        target_exists: true,
        scaled_object: Child::NotFound,
        trigger_authentication: Child::NotFound,
        hpas: Vec::new(),
        competing: Vec::new(),
        inventory: Vec::new(),
    }
}

/// Everything is as desired.
fn up_to_date() -> Fixture {
    let object = scaled_object(&json!({}));
    let authentication = trigger_authentication(&json!({}));
    let print = |fingerprint: Option<crate::record::Fingerprint>| fingerprint.unwrap().to_string();
    Fixture {
        inventory: vec![
            entry(
                "ScaledObject",
                "a",
                "u-so",
                &print(object.last_applied.fingerprint),
            ),
            entry(
                "TriggerAuthentication",
                "a-trigger-auth",
                "u-ta",
                &print(authentication.last_applied.fingerprint),
            ),
        ],
        scaled_object: Child::Ours(object),
        trigger_authentication: Child::Ours(authentication),
        hpas: vec![hpa(&json!({}))],
        ..fresh()
    }
}

impl Fixture {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn plan(&self) -> ScalingPlan {
        let ours = match &self.scaled_object {
            Child::Ours(existing) | Child::Foreign(existing) => Some(existing),
            Child::NotFound => None,
        };
        let scaled_objects: Vec<_> = ours.into_iter().chain(&self.competing).cloned().collect();
        plan_scaling(&ScalingPlanInputs {
            actor: "a",
            desired: self.desired.as_ref(),
            installed: self.installed,
            target: &AutoscalerTarget {
                group: "apps".into(),
                kind: "Deployment".into(),
                name: "a".into(),
            },
            target_exists: self.target_exists,
            scaled_object: &self.scaled_object,
            trigger_authentication: &self.trigger_authentication,
            hpas: &self.hpas,
            scaled_objects: &scaled_objects,
            inventory: &self.inventory,
        })
    }

    /// The steps for `TriggerAuthentication` and `ScaledObject` in a plan without a fault.
    fn steps(&self) -> (ChildStep, ChildStep) {
        let plan = self.plan();
        assert_eq!(plan.fault, None);
        (plan.trigger_authentication, plan.scaled_object)
    }

    fn fault(&self) -> (Reason, Requeue, String) {
        let plan = self.plan();
        let steps = (plan.trigger_authentication, plan.scaled_object);
        assert_eq!(
            steps,
            (ChildStep::Keep, ChildStep::Keep),
            "a fault writes nothing"
        );
        let fault = plan.fault.unwrap();
        (fault.reason, fault.requeue, fault.message)
    }
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

fn unowned() -> Value {
    json!({"metadata": {"ownerReferences": []}})
}

/// KEDA-1, FW-24
#[test]
fn new_actor_gets_both_objects_once_its_workload_exists() {
    assert_eq!(fresh().steps(), (APPLY, APPLY));
    let early = fresh().with(|fixture| fixture.target_exists = false);
    assert_eq!(early.steps(), (ChildStep::Wait, ChildStep::Wait));
}

/// KEDA-7, WRK-5
#[test]
fn unchanged_objects_are_left_alone() {
    assert_eq!(up_to_date().steps(), (ChildStep::Keep, ChildStep::Keep));
}

/// KEDA-7
#[test]
fn lost_or_changed_objects_are_applied_again() {
    type Row = (&'static str, fn(&mut Fixture), (ChildStep, ChildStep));
    let rows: [Row; 7] = [
        (
            "a field of ours was taken",
            |fixture| fixture.inventory[0].fingerprint = Some("other".to_owned()),
            (ChildStep::Keep, APPLY),
        ),
        (
            "the configuration changed",
            |fixture| {
                fixture.desired.as_mut().unwrap().scaled_object.hash = "new".to_owned();
            },
            (ChildStep::Keep, APPLY),
        ),
        (
            "the credentials changed",
            |fixture| {
                let desired = fixture.desired.as_mut().unwrap();
                desired.trigger_authentication.as_mut().unwrap().hash = "new".to_owned();
            },
            (APPLY, ChildStep::Keep),
        ),
        (
            "the TriggerAuthentication was deleted",
            |fixture| fixture.trigger_authentication = Child::NotFound,
            (APPLY, ChildStep::Keep),
        ),
        (
            "the object was recreated",
            |fixture| fixture.inventory[0].uid = Some("u-old".to_owned()),
            (ChildStep::Keep, APPLY),
        ),
        (
            "field ownership is unknown",
            |fixture| {
                let cleared = json!({"metadata": {"managedFields": []}});
                fixture.scaled_object = Child::Ours(scaled_object(&cleared));
                fixture.inventory[0].fingerprint = None;
            },
            (ChildStep::Keep, APPLY),
        ),
        (
            "the inventory is lost",
            |fixture| fixture.inventory.clear(),
            (APPLY, APPLY),
        ),
    ];
    for (case, change, expected) in rows {
        assert_eq!(up_to_date().with(change).steps(), expected, "{case}");
    }
}

/// KEDA-6
#[test]
fn unneeded_trigger_authentication_is_deleted() {
    let fixture = up_to_date().with(|fixture| {
        fixture.desired.as_mut().unwrap().trigger_authentication = None;
    });
    assert_eq!(
        fixture.steps(),
        (ChildStep::Delete("u-ta".into()), ChildStep::Keep)
    );
    let never = fresh().with(|fixture| {
        fixture.desired.as_mut().unwrap().trigger_authentication = None;
        fixture.trigger_authentication = Child::Foreign(trigger_authentication(&unowned()));
    });
    assert_eq!(never.steps(), (ChildStep::Keep, APPLY));
}

/// KEDA-9
#[test]
fn replacement_waits_until_the_previous_one_is_deleted() {
    let object = up_to_date().with(|fixture| {
        fixture.scaled_object = Child::Ours(scaled_object(&deleting()));
    });
    assert_eq!(object.steps(), (ChildStep::Keep, ChildStep::Wait));
    let authentication = up_to_date().with(|fixture| {
        fixture.trigger_authentication = Child::Ours(trigger_authentication(&deleting()));
        fixture.scaled_object = Child::NotFound;
        fixture.hpas.clear();
    });
    assert_eq!(authentication.steps(), (ChildStep::Wait, ChildStep::Wait));
    // Its HPA is garbage-collected after the `ScaledObject`.
    let hpa_remains = up_to_date().with(|fixture| fixture.scaled_object = Child::NotFound);
    assert_eq!(hpa_remains.steps(), (ChildStep::Keep, ChildStep::Wait));
}

/// KEDA-9
#[test]
fn without_keda_nothing_is_applied_until_it_is_installed() {
    let (reason, requeue, _) = fresh().with(|fixture| fixture.installed = false).fault();
    assert_eq!(
        (reason, requeue),
        (Reason::KedaNotInstalled, Requeue::AwaitChange)
    );
}

/// KEDA-4
#[test]
fn untriggerable_queue_has_its_own_reason() {
    for fixture in [fresh(), up_to_date()] {
        let fixture = fixture.with(|fixture| {
            let queue = "asya-a".to_owned();
            fixture.desired = Err(TriggerError::QueueUrlUnknown { queue });
        });
        let (reason, requeue, text) = fixture.fault();
        assert_eq!(
            (reason, requeue),
            (Reason::QueueURLUnknown, Requeue::AwaitChange)
        );
        assert!(text.contains("asya-a"), "{text}");
    }
}

/// KEDA-9, SO-3
#[test]
fn competing_autoscaler_is_named_and_blocks_creation() {
    let other_scaled_object = |name: &str, target: Value| {
        scaled_object(&json!({
            "metadata": {"name": name, "uid": name, "ownerReferences": []},
            "spec": {"scaleTargetRef": target},
        }))
    };
    let foreign = |target: Value| {
        hpa(&json!({
            "metadata": {"name": "web", "uid": "web", "ownerReferences": []},
            "spec": {"scaleTargetRef": target},
        }))
    };
    let same = json!({"apiVersion": "apps/v1beta9", "kind": "Deployment", "name": "a"});
    let rows = [
        (
            fresh().with(|fixture| fixture.hpas = vec![foreign(same.clone())]),
            "HorizontalPodAutoscaler web",
        ),
        (
            fresh().with(|fixture| {
                fixture.competing = vec![
                    other_scaled_object("r2", same.clone()),
                    other_scaled_object("r1", same.clone()),
                ];
            }),
            "ScaledObject r1",
        ),
        (
            up_to_date().with(|fixture| fixture.hpas.push(foreign(same.clone()))),
            "HorizontalPodAutoscaler web",
        ),
    ];
    for (fixture, name) in rows {
        let (reason, requeue, text) = fixture.fault();
        assert_eq!(
            (reason, requeue),
            (Reason::RivalAutoscaler, Requeue::AwaitChange)
        );
        assert!(text.starts_with(name), "{text}");
        let is_hpa = name.starts_with("HorizontalPodAutoscaler");
        assert_eq!(
            text.contains("scale the workload to at least 1"),
            is_hpa,
            "{text}"
        );
    }
    let other = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a"});
    let fixture = fresh().with(|fixture| {
        fixture.hpas = vec![foreign(other.clone())];
        fixture.competing = vec![other_scaled_object("r", other)];
    });
    assert_eq!(fixture.steps(), (APPLY, APPLY));
}

/// For an HPA that KEDA created, the fault names its `ScaledObject` (KEDA-9).
#[test]
fn hpa_of_a_competing_scaled_object_is_not_a_second_one() {
    let owner = json!([{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "r", "uid": "r", "controller": true}]);
    let fixture = fresh().with(|fixture| {
        fixture.competing = vec![scaled_object(
            &json!({"metadata": {"name": "r", "uid": "r", "ownerReferences": []}}),
        )];
        fixture.hpas = vec![hpa(
            &json!({"metadata": {"name": "keda-hpa-r", "ownerReferences": owner}}),
        )];
    });
    assert!(fixture.fault().2.starts_with("ScaledObject r "));
    // The `ScaledObject` is deleted, its HPA not yet.
    let fixture = fixture.with(|fixture| fixture.competing.clear());
    assert!(
        fixture
            .fault()
            .2
            .starts_with("HorizontalPodAutoscaler keda-hpa-r ")
    );
}

/// SA-3
#[test]
fn foreign_objects_are_left_alone() {
    let object = up_to_date().with(|fixture| {
        fixture.scaled_object = Child::Foreign(scaled_object(&unowned()));
    });
    let authentication = fresh().with(|fixture| {
        fixture.trigger_authentication = Child::Foreign(trigger_authentication(&unowned()));
    });
    for (fixture, kind) in [
        (object, "ScaledObject ns/a "),
        (authentication, "TriggerAuthentication ns/a-trigger-auth "),
    ] {
        let (reason, requeue, text) = fixture.fault();
        assert_eq!((reason, requeue), (Reason::NotOwned, Requeue::SlowBackoff));
        assert!(text.starts_with(kind), "{text}");
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn teardown(fixture: &Fixture, now: &str) -> ScalingTeardown {
    plan_teardown(
        &fixture.scaled_object,
        &fixture.trigger_authentication,
        at(now),
    )
}

/// FIN-2, FW-24, KEDA-8
#[test]
fn teardown_runs_in_reverse_order_and_waits_for_keda() {
    let first = teardown(&up_to_date(), "2026-01-01T00:00:00Z");
    assert_eq!(
        first,
        ScalingTeardown {
            scaled_object: ChildStep::Delete("u-so".into()),
            trigger_authentication: ChildStep::Wait,
            completed: false,
            deadline: None,
        }
    );
    let waiting = up_to_date().with(|fixture| {
        fixture.scaled_object = Child::Ours(scaled_object(&deleting()));
    });
    assert_eq!(
        teardown(&waiting, "2026-01-01T00:00:29Z"),
        ScalingTeardown {
            scaled_object: ChildStep::Wait,
            trigger_authentication: ChildStep::Wait,
            completed: false,
            deadline: Some(at("2026-01-01T00:00:30Z")),
        }
    );
    let gone = up_to_date().with(|fixture| fixture.scaled_object = Child::NotFound);
    assert_eq!(
        teardown(&gone, "2026-01-01T00:00:00Z"),
        ScalingTeardown {
            scaled_object: ChildStep::Keep,
            trigger_authentication: ChildStep::Delete("u-ta".into()),
            completed: true,
            deadline: None,
        }
    );
}

/// FIN-2
#[test]
fn keda_delays_deletion_of_the_workload_by_at_most_thirty_seconds() {
    let waiting = up_to_date().with(|fixture| {
        fixture.scaled_object = Child::Ours(scaled_object(&deleting()));
    });
    let overdue = teardown(&waiting, "2026-01-01T00:00:30Z");
    assert!(overdue.completed);
    assert_eq!(overdue.deadline, None);
    assert_eq!(
        overdue.trigger_authentication,
        ChildStep::Delete("u-ta".into())
    );
}

/// KEDA-8
#[test]
fn teardown_keeps_foreign_objects() {
    let foreign = fresh().with(|fixture| {
        fixture.scaled_object = Child::Foreign(scaled_object(&unowned()));
        fixture.trigger_authentication = Child::Foreign(trigger_authentication(&unowned()));
    });
    for fixture in [foreign, fresh()] {
        let nothing = teardown(&fixture, "2026-01-01T00:00:00Z");
        assert_eq!(
            (nothing.scaled_object, nothing.trigger_authentication),
            (ChildStep::Keep, ChildStep::Keep)
        );
        assert!(nothing.completed);
    }
}
