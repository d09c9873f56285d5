use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingStrategy, TemplateStatus};
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{HandoffProbe, TemplateInputs, TemplateStep, decide, plan_template_handoff};
use crate::fault::Reason;
use crate::reconcile::contention::{ConflictCount, ContentionState, SpecRevision};
use crate::reconcile::model::template_handoff::{TemplateHandoff, TemplateRecipient};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: Some(name.to_owned()),
    }
}

fn applied() -> TemplateStatus {
    TemplateStatus {
        uid: "web".to_owned(),
        hash: "hash".to_owned(),
        target_spec_hash: "spec".to_owned(),
        fingerprint: "owned".to_owned(),
    }
}

struct Row {
    desired: bool,
    owner: Option<ObjectRef>,
    hash: &'static str,
    roll_now: bool,
    target_spec_hash: &'static str,
    owned: Option<&'static str>,
    previous: Option<TemplateStatus>,
    contention: ContentionState,
}

impl Default for Row {
    /// Our fields are in place.
    fn default() -> Self {
        Self {
            desired: true,
            owner: None,
            hash: "hash",
            roll_now: false,
            target_spec_hash: "spec",
            owned: Some("owned"),
            previous: Some(applied()),
            contention: ContentionState::Uncontested,
        }
    }
}

impl Row {
    fn decide(&self) -> TemplateStep {
        decide(&TemplateInputs {
            desired: self.desired,
            owner: self.owner.as_ref(),
            workload: &object("Deployment", "web"),
            hash: self.hash,
            roll_now: self.roll_now,
            target_spec_hash: self.target_spec_hash,
            owned: self.owned,
            previous: self.previous.as_ref(),
            contention: &self.contention,
            generation: 2,
            now: at(100),
        })
    }
}

fn revision(spec_hash: &str) -> SpecRevision {
    SpecRevision {
        generation: 2,
        spec_hash: spec_hash.to_owned(),
    }
}

/// BIND-50
#[test]
fn our_fields_are_applied_once_per_sidecar_and_template() {
    assert_eq!(Row::default().decide(), TemplateStep::Unchanged);
    for row in [
        Row {
            previous: None,
            owned: None,
            ..Row::default()
        },
        Row {
            hash: "of another spec of the actor",
            ..Row::default()
        },
        Row {
            target_spec_hash: "another template",
            ..Row::default()
        },
        Row {
            previous: Some(TemplateStatus {
                uid: "another workload".to_owned(),
                ..applied()
            }),
            owned: None,
            ..Row::default()
        },
    ] {
        assert_eq!(row.decide(), TemplateStep::Apply);
    }
}

/// BIND-50
#[test]
fn our_fields_are_released_when_undesired_or_when_the_target_gets_an_owner() {
    let undesired = |owned| Row {
        desired: false,
        owned,
        ..Row::default()
    };
    assert_eq!(
        undesired(Some("owned")).decide(),
        TemplateStep::GiveUp(object("Deployment", "web"), None)
    );
    assert_eq!(undesired(None).decide(), TemplateStep::NotDesired);
    let owned_by = |owned| Row {
        owner: Some(object("Workspace", "phi")),
        owned,
        ..Row::default()
    };
    let TemplateStep::GiveUp(_, Some(fault)) = owned_by(Some("owned")).decide() else {
        panic!()
    };
    assert_eq!(fault.reason, Reason::StrategyNotAllowed);
    assert!(fault.message.contains("Workspace/phi"), "{fault:?}");
    assert!(fault.message.ends_with("use Pod"), "{fault:?}");
    assert_eq!(owned_by(None).decide(), TemplateStep::Refuse(fault));
}

/// CONF-1, CONF-6
#[test]
fn changed_fields_are_reapplied_with_backoff_until_stopped() {
    let reverted = |owned, contention| Row {
        owned,
        contention,
        ..Row::default()
    };
    let two = ConflictCount::new(2).unwrap();
    for owned in [None, Some("less than was applied")] {
        assert_eq!(
            reverted(owned, ContentionState::Uncontested).decide(),
            TemplateStep::RecordConflict
        );
        assert_eq!(
            reverted(owned, ContentionState::Rewritten(two)).decide(),
            TemplateStep::RecordConflict
        );
        let wait = TemplateStep::Wait(Duration::from_secs(20));
        assert_eq!(
            reverted(owned, ContentionState::Waiting(two, at(120))).decide(),
            wait
        );
        let over = ContentionState::Waiting(two, at(100));
        assert_eq!(reverted(owned, over).decide(), TemplateStep::Apply);
        let yielded = ContentionState::Yielded(revision("spec"));
        assert_eq!(reverted(owned, yielded).decide(), TemplateStep::Yield);
        let other = ContentionState::Yielded(revision("another"));
        assert_eq!(reverted(owned, other).decide(), TemplateStep::Apply);
    }
    let template_changed = Row {
        target_spec_hash: "another",
        ..reverted(None, ContentionState::Uncontested)
    };
    assert_eq!(
        template_changed.decide(),
        TemplateStep::RecordConflict,
        "replaced"
    );
    let actor_changed = Row {
        hash: "another",
        ..reverted(None, ContentionState::Uncontested)
    };
    assert_eq!(actor_changed.decide(), TemplateStep::Apply);
}

/// BIND-45
#[test]
fn younger_actor_releases_its_fields_once_pods_get_the_older_actors_sidecar() {
    let web = object("Deployment", "web");
    let pod = json!({"kind": "Pod"});
    let planned = |owned, injects, uses_template| {
        plan_template_handoff(&TemplateHandoff::InTemplate {
            workload: web.clone(),
            owned,
            recipient: TemplateRecipient {
                uid: "older".into(),
                injects,
                uses_template,
                verified_actor_hash: Some("hash".to_owned()),
            },
            pod: Some(pod.clone()),
        })
    };
    let later = TemplateStep::AwaitOther(Duration::from_secs(2));
    let probe = HandoffProbe {
        pod: serde_json::from_value(pod.clone()).unwrap(),
        uid: "older".into(),
        actor_hash: "hash".to_owned(),
    };
    let transfer = TemplateStep::HandOff(web.clone(), probe);
    assert_eq!(planned(false, true, false), transfer);
    assert_eq!(planned(true, true, false), transfer);
    let too_early = "pods would restart without a sidecar, and again to get one";
    assert_eq!(planned(false, false, false), later, "{too_early}");
    assert_eq!(planned(true, false, true), later, "{too_early}");
    assert_eq!(
        planned(false, true, true),
        later,
        "the other actor overwrites it"
    );
    let give_up = TemplateStep::GiveUp(web.clone(), None);
    assert_eq!(
        planned(true, true, true),
        give_up,
        "no actor may write an owned template"
    );
    let without_probe_result = TemplateHandoff::InTemplate {
        workload: web,
        owned: false,
        recipient: TemplateRecipient {
            injects: true,
            ..TemplateRecipient::default()
        },
        pod: Some(pod),
    };
    assert_eq!(
        plan_template_handoff(&without_probe_result),
        give_up,
        "an earlier version"
    );
    assert_eq!(
        plan_template_handoff(&TemplateHandoff::Removed),
        TemplateStep::ClearStatus
    );
}

/// BIND-45, SAFE-1, SAFE-3
#[test]
fn pods_get_an_older_actors_sidecar_only_after_a_dry_run_of_its_spec_has_passed() {
    let recipient = |injection: &Value, strategy| {
        let status = json!({
            "boundSince": "2026-01-01T00:00:00Z", "injection": injection,
            "resolvedTarget": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "ns", "uid": "u"},
        });
        let status = serde_json::from_value(status).unwrap();
        TemplateRecipient::from_status("older", 2, &status, strategy)
    };
    for (injection, injects) in [
        (json!(null), true),
        (json!({}), false),
        (json!({"proved": "hash", "generation": 2}), true),
        (json!({"proved": "hash", "generation": 1}), false),
        (
            json!({"proved": "hash", "refused": "another", "generation": 2}),
            false,
        ),
        (json!({"refused": "hash", "generation": 2}), false),
    ] {
        let older = recipient(&injection, BindingStrategy::Pod);
        let recipient = (
            older.injects,
            older.uses_template,
            older.verified_actor_hash.as_deref(),
        );
        let verified = injection["proved"].as_str();
        assert_eq!(recipient, (injects, false, verified), "{injection}");
    }
    let templates = recipient(&json!({}), BindingStrategy::Template);
    assert_eq!((templates.injects, templates.uses_template), (true, true));
    let status = AsyncActorStatus::default();
    let unbound = TemplateRecipient::from_status("older", 2, &status, BindingStrategy::Pod);
    assert!(!unbound.injects);
}

/// The hash after the dot is that of the operator's version (SAFE-35, ROLL-8 (d)).
#[test]
fn operator_upgrade_keeps_our_fields_unless_roll_now_is_set() {
    let step = |previous: &str, hash, roll_now| {
        let row = Row {
            hash,
            roll_now,
            previous: Some(TemplateStatus {
                hash: previous.to_owned(),
                ..applied()
            }),
            ..Row::default()
        };
        row.decide()
    };
    assert_eq!(
        step("actor.older", "actor.newer", false),
        TemplateStep::Unchanged
    );
    assert_eq!(
        step("actor.older", "actor.newer", true),
        TemplateStep::Apply
    );
    assert_eq!(
        step("actor.newer", "actor.newer", true),
        TemplateStep::Unchanged
    );
    assert_eq!(
        step("actor.older", "changed.older", false),
        TemplateStep::Apply
    );
}
