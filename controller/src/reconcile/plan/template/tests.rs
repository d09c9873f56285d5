use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingStrategy, TemplateStatus};
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Proof, TemplateFacts, Templating, cede, decide};
use crate::fault::Reason;
use crate::reconcile::contention::{Losses, Specs, State};
use crate::reconcile::model::handover::{Ceded, Successor};

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
        target: "spec".to_owned(),
        fingerprint: "owned".to_owned(),
    }
}

struct Row {
    wished: bool,
    owner: Option<ObjectRef>,
    hash: &'static str,
    at_once: bool,
    target: &'static str,
    owned: Option<&'static str>,
    before: Option<TemplateStatus>,
    conflict: State,
}

impl Default for Row {
    /// Our part is in place.
    fn default() -> Self {
        Self {
            wished: true,
            owner: None,
            hash: "hash",
            at_once: false,
            target: "spec",
            owned: Some("owned"),
            before: Some(applied()),
            conflict: State::Idle,
        }
    }
}

impl Row {
    fn decide(&self) -> Templating {
        decide(&TemplateFacts {
            wished: self.wished,
            owner: self.owner.as_ref(),
            workload: &object("Deployment", "web"),
            hash: self.hash,
            at_once: self.at_once,
            target: self.target,
            owned: self.owned,
            before: self.before.as_ref(),
            conflict: &self.conflict,
            generation: 2,
            now: at(100),
        })
    }
}

fn specs(target: &str) -> Specs {
    Specs {
        generation: 2,
        target: target.to_owned(),
    }
}

/// BIND-50
#[test]
fn our_part_is_applied_once_for_each_sidecar_and_each_template() {
    assert_eq!(Row::default().decide(), Templating::Stands);
    for row in [
        Row {
            before: None,
            owned: None,
            ..Row::default()
        },
        Row {
            hash: "of another spec of the actor",
            ..Row::default()
        },
        Row {
            target: "another template",
            ..Row::default()
        },
        Row {
            before: Some(TemplateStatus {
                uid: "another workload".to_owned(),
                ..applied()
            }),
            owned: None,
            ..Row::default()
        },
    ] {
        assert_eq!(row.decide(), Templating::Apply);
    }
}

/// BIND-50
#[test]
fn our_part_is_released_when_undesired_or_when_the_target_gets_an_owner() {
    let not_wished = |owned| Row {
        wished: false,
        owned,
        ..Row::default()
    };
    assert_eq!(
        not_wished(Some("owned")).decide(),
        Templating::Release(object("Deployment", "web"), None)
    );
    assert_eq!(not_wished(None).decide(), Templating::Rest);
    let owned_by = |owned| Row {
        owner: Some(object("Workspace", "phi")),
        owned,
        ..Row::default()
    };
    let Templating::Release(_, Some(fault)) = owned_by(Some("owned")).decide() else {
        panic!()
    };
    assert_eq!(fault.reason, Reason::StrategyNotAllowed);
    assert!(fault.message.contains("Workspace/phi"), "{fault:?}");
    assert!(fault.message.ends_with("use Pod"), "{fault:?}");
    assert_eq!(owned_by(None).decide(), Templating::Refuse(fault));
}

/// CONF-1, CONF-6
#[test]
fn lost_part_is_applied_again_with_backoff_and_not_forever() {
    let taken = |owned, conflict| Row {
        owned,
        conflict,
        ..Row::default()
    };
    let two = Losses::new(2).unwrap();
    let lost = Templating::Lost(specs("spec"));
    for owned in [None, Some("less than was applied")] {
        assert_eq!(taken(owned, State::Idle).decide(), lost);
        assert_eq!(taken(owned, State::Held(two)).decide(), lost);
        let wait = Templating::Wait(Duration::from_secs(20));
        assert_eq!(taken(owned, State::Waiting(two, at(120))).decide(), wait);
        let over = State::Waiting(two, at(100));
        assert_eq!(taken(owned, over).decide(), Templating::Apply);
        let stopped = State::Stopped(specs("spec"));
        assert_eq!(taken(owned, stopped).decide(), Templating::Stop);
        let other = State::Stopped(specs("another"));
        assert_eq!(taken(owned, other).decide(), Templating::Apply);
    }
    let with_another_template = Row {
        target: "another",
        ..taken(None, State::Idle)
    };
    let lost = Templating::Lost(specs("another"));
    assert_eq!(with_another_template.decide(), lost, "a replace");
    let of_another_actor_spec = Row {
        hash: "another",
        ..taken(None, State::Idle)
    };
    assert_eq!(of_another_actor_spec.decide(), Templating::Apply);
}

/// BIND-45
#[test]
fn younger_actors_part_is_released_once_pods_get_the_older_ones() {
    let (web, pod) = (object("Deployment", "web"), json!({"kind": "Pod"}));
    let stands = |owned, in_force, templates| {
        cede(&Ceded::Stands {
            workload: web.clone(),
            owned,
            successor: Successor {
                uid: "older".into(),
                in_force,
                templates,
                proved: Some("part".to_owned()),
            },
            pod: Some(pod.clone()),
        })
    };
    let later = Templating::Later(Duration::from_secs(2));
    let proof = Proof {
        pod: pod.clone(),
        uid: "older".into(),
        part: "part".to_owned(),
    };
    let hand_over = Templating::HandOver(web.clone(), proof);
    assert_eq!(stands(false, true, false), hand_over);
    assert_eq!(stands(true, true, false), hand_over);
    let too_early = "pods would restart without a sidecar, and once more to get one";
    assert_eq!(stands(false, false, false), later, "{too_early}");
    assert_eq!(stands(true, false, true), later, "{too_early}");
    assert_eq!(stands(false, true, true), later, "it is written over");
    let release = Templating::Release(web.clone(), None);
    assert_eq!(stands(true, true, true), release, "nobody may write there");
    let without_gate = Ceded::Stands {
        workload: web,
        owned: false,
        successor: Successor {
            in_force: true,
            ..Successor::default()
        },
        pod: Some(pod),
    };
    assert_eq!(cede(&without_gate), release, "an earlier release");
    assert_eq!(cede(&Ceded::Gone), Templating::Forget);
}

/// BIND-45, SAFE-1, SAFE-3
#[test]
fn pods_get_an_older_actors_sidecar_only_after_a_dry_run_of_its_spec_has_passed() {
    let successor = |injection: &Value, strategy| {
        let status = json!({
            "boundSince": "2026-01-01T00:00:00Z", "injection": injection,
            "resolvedTarget": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "ns", "uid": "u"},
        });
        let status = serde_json::from_value(status).unwrap();
        Successor::of(("older", 2), &status, strategy)
    };
    for (injection, in_force) in [
        (json!(null), true),
        (json!({}), false),
        (json!({"proved": "part", "generation": 2}), true),
        (json!({"proved": "part", "generation": 1}), false),
        (
            json!({"proved": "part", "refused": "another", "generation": 2}),
            false,
        ),
        (json!({"refused": "part", "generation": 2}), false),
    ] {
        let older = successor(&injection, BindingStrategy::Pod);
        let told = (older.in_force, older.templates, older.proved.as_deref());
        let proved = injection["proved"].as_str();
        assert_eq!(told, (in_force, false, proved), "{injection}");
    }
    let templates = successor(&json!({}), BindingStrategy::Template);
    assert_eq!((templates.in_force, templates.templates), (true, true));
    let status = AsyncActorStatus::default();
    let unbound = Successor::of(("older", 2), &status, BindingStrategy::Pod);
    assert!(!unbound.in_force);
}

/// The part behind the dot is that of the operator's release (SAFE-35, ROLL-8).
#[test]
fn operator_upgrade_leaves_our_part_alone_unless_roll_now_is_set() {
    let of = |before: &str, hash, at_once| {
        let row = Row {
            hash,
            at_once,
            before: Some(TemplateStatus {
                hash: before.to_owned(),
                ..applied()
            }),
            ..Row::default()
        };
        row.decide()
    };
    assert_eq!(of("actor.older", "actor.newer", false), Templating::Stands);
    assert_eq!(of("actor.older", "actor.newer", true), Templating::Apply);
    assert_eq!(of("actor.newer", "actor.newer", true), Templating::Stands);
    assert_eq!(of("actor.older", "changed.older", false), Templating::Apply);
}
