use asya_shared::resolve::{Related, Resolution, Scale, Target, resolver};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::binding::TemplatePart;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::{BindingSeen, PartOwner, Resolved};
use crate::reconcile::model::bound_pods::BoundPods;
use crate::reconcile::model::bound_pods::{Counted, OutdatedPod};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::handover::{Ceded, Successor};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::RolloutSeen;
use crate::reconcile::observe::binding::scaling_of;
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::scaling::ScalingPlan;
use crate::reconcile::plan::steps::ScalingStep;
use crate::reconcile::plan::template::Templating;
use crate::reconcile::plan::wake::Waking;
use crate::reconcile::plan::{ChildStep, plan};
use crate::reconcile::tests::fixtures::{actor, observed, proved_status, record};
use crate::record::{ActorRecord, UninjectedPodRecord};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

const APPLY: ChildStep = ChildStep::Apply { take_over: None };

fn deployment() -> Target {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let resolver = resolver("apps", "Deployment");
    match resolver.resolve(&object, &Related::default()) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

/// Actor `ns/a`, which binds this target and scales it.
fn scaling(target: Result<Target, Fault>) -> Observed {
    bound(&json!({"enabled": true}), target)
}

fn bound(scaling: &Value, target: Result<Target, Fault>) -> Observed {
    let spec = json!({
        "transport": "mq", "scaling": scaling,
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let mut seen = observed(&actor(&json!({}), &spec, &proved_status()));
    let desired = seen.desired.as_ref().unwrap();
    let target = target.map(|target| {
        Box::new(Resolved {
            target,
            replicas: Some(0),
            spec: "spec".into(),
            templated: None,
        })
    });
    let of_target = |target: &Resolved| scaling_of(&seen.actor, &seen.previous, desired, target);
    let binding = BindingSeen {
        scaling: target.as_deref().ok().and_then(of_target),
        target: Some(target),
        pods: Some(BoundPods::default()),
        ..BindingSeen::default()
    };
    seen.binding = Some(binding);
    seen
}

fn step(seen: &Observed) -> Option<ScalingStep> {
    match plan(seen, Timestamp::UNIX_EPOCH) {
        Plan::Bind(plan) => plan.scaling,
        other => panic!("{other:?}"),
    }
}

fn wanted(seen: &Observed) -> ScalingPlan {
    match step(seen) {
        Some(ScalingStep::Wanted(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

/// SO-1, SO-2
#[test]
fn scaled_object_is_created_for_the_workload_of_the_target() {
    let seen = scaling(Ok(deployment()));
    let plan = wanted(&seen);
    assert_eq!((plan.scaled_object, plan.fault), (APPLY, None));
    let objects = seen.scaling_objects().unwrap().unwrap();
    let spec = &objects.scaled_object.object["spec"];
    assert_eq!(
        spec["scaleTargetRef"],
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
    );
    let trigger = &spec["triggers"][0];
    assert!(
        !trigger["name"].as_str().unwrap().contains('-'),
        "{trigger}"
    );
    assert!(
        !trigger["metadata"].to_string().contains("FromEnv"),
        "{trigger}"
    );
}

/// SAFE-20, SAFE-21
#[test]
fn first_scaled_object_waits_until_pods_have_the_sidecar() {
    let bare = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"}});
    let serves = || {
        let mut seen = scaling(Ok(deployment()));
        let pods = seen.binding.as_mut().unwrap().pods.as_mut().unwrap();
        pods.bare = vec![record::<UninjectedPodRecord>(&bare)];
        seen
    };
    let plan = wanted(&serves());
    assert_eq!((plan.scaled_object, plan.fault), (ChildStep::Wait, None));
    assert!(plan.waits_for.unwrap().contains("Ready, has the sidecar"));

    let mut unproved = scaling(Ok(deployment()));
    unproved.previous.injection = None;
    assert_eq!(wanted(&unproved).scaled_object, ChildStep::Wait);
    let mut unlisted = scaling(Ok(deployment()));
    unlisted.binding.as_mut().unwrap().pods = None;
    assert_eq!(wanted(&unlisted).scaled_object, ChildStep::Wait);

    let mut exists = serves();
    exists.previous.injection = None;
    let of_before = json!({"spec": {"scaleTargetRef": {"name": "web"}}});
    exists.scaling.scaled_object = Child::Ours(scaled_object(&of_before));
    let plan = wanted(&exists);
    assert_eq!((plan.scaled_object, plan.waits_for), (APPLY, None));
}

/// SAFE-20, KEDA-9
#[test]
fn scaling_fault_takes_precedence_over_what_scaling_waits_for() {
    let mut seen = scaling(Ok(deployment()));
    seen.previous.conditions.clear();
    seen.scaling.installed = false;
    let plan = wanted(&seen);
    assert_eq!(
        (plan.fault.unwrap().reason, plan.waits_for),
        (Reason::KedaNotInstalled, None)
    );
}

/// SAFE-27, FW-21
#[test]
fn binding_with_reconcile_once_leaves_its_target_alone_after_it_was_ready() {
    let planned = |ready: Option<i64>| {
        let mut target = deployment();
        target.server.url = Some("http://127.0.0.1:8000".to_owned());
        let mut seen = scaling(Ok(target));
        let mut actor = ActorRecord::clone(&seen.actor);
        actor.annotations.once = true;
        seen.actor = std::sync::Arc::new(actor);
        seen.previous.ready_generation = ready;
        let lacking = OutdatedPod {
            name: "bare".into(),
            uid: "bare".into(),
            ..OutdatedPod::default()
        };
        let mut rollout = RolloutSeen {
            has_slot: true,
            ..RolloutSeen::default()
        };
        rollout.counted.pods.matched = 1;
        rollout.counted.total = 1;
        rollout.counted.lacking = vec![lacking];
        seen.binding.as_mut().unwrap().rollout = Some(rollout);
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan,
            other => panic!("{other:?}"),
        }
    };
    let before = planned(Some(1));
    assert!(!before.done_once && before.mark.is_some() && before.contest.is_some());
    let done = planned(Some(2));
    assert!(done.done_once);
    assert_eq!((&done.mark, &done.claim, &done.wake), (&None, &None, &None));
    assert_eq!(done.template, Templating::default());
    assert!(done.contest.is_none() && done.replicas.is_none() && done.retired.is_empty());
    assert!(matches!(before.roll, Some(Rolling::Act(_))));
    assert_eq!(done.roll, None, "no pod is replaced");
}

/// SO-8
#[test]
fn scaled_object_is_retargeted_in_place_to_a_new_workload() {
    let mut seen = scaling(Ok(deployment()));
    let of_the_last = json!({"spec": {"scaleTargetRef": {"name": "web-of-before"}}});
    seen.scaling.scaled_object = Child::Ours(scaled_object(&of_the_last));
    let plan = wanted(&seen);
    assert_eq!((plan.scaled_object, plan.fault), (APPLY, None));
}

/// SO-3
#[test]
fn foreign_autoscaler_on_the_same_object_is_a_rival() {
    let on = |name: &str| {
        let mut seen = scaling(Ok(deployment()));
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let rival = json!({"metadata": {"name": "theirs", "ownerReferences": []}, "spec": {"scaleTargetRef": target}});
        seen.scaling.hpas = vec![hpa(&rival)];
        wanted(&seen)
    };
    let plan = on("web");
    assert_eq!(plan.scaled_object, ChildStep::Keep);
    let fault = plan.fault.unwrap();
    assert_eq!(fault.reason, Reason::RivalAutoscaler);
    assert!(
        fault
            .message
            .starts_with("HorizontalPodAutoscaler theirs scales Deployment web"),
        "{fault:?}"
    );
    assert_eq!(on("other").fault, None);
}

/// SO-4
#[test]
fn unscalable_target_loses_its_scaled_object_with_a_reason() {
    let mut target = deployment();
    assert!(target.scale.object().is_some());
    target.scale = Scale::Refused(asya_shared::resolve::Finding::new(
        asya_shared::resolve::FindingReason::ScalingNotSupported,
        "its owner scales it",
    ));
    let mut seen = scaling(Ok(target));
    seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Refused(removal, fault)) = step(&seen) else {
        panic!()
    };
    assert_eq!(removal.scaled_object, ChildStep::Delete("u-so".into()));
    assert_eq!(
        (fault.reason, &*fault.message),
        (Reason::ScalingNotSupported, "its owner scales it")
    );
}

/// BIND-42
#[test]
fn scaled_object_is_deleted_with_its_target_but_not_when_that_cannot_be_read() {
    for (reason, goes) in [
        (Reason::TargetNotFound, true),
        (Reason::TargetStopped, true),
        (Reason::KindNotInstalled, true),
        (Reason::AlreadyBound, true),
        (Reason::TargetNotReady, false),
        (Reason::KindForbidden, false),
        (Reason::Ambiguous, false),
    ] {
        let mut seen = scaling(Err(Fault::until_change(reason, "")));
        seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        let found = step(&seen);
        let removes = matches!(&found, Some(ScalingStep::Unwanted(removal)) if removal.scaled_object == ChildStep::Delete("u-so".into()));
        assert_eq!(removes, goes, "{reason}: {found:?}");
        assert_eq!(found.is_none(), !goes, "{reason}");
    }
}

/// SO-6
#[test]
fn target_is_woken_once_after_scaling_ends() {
    let off = |status: &Value, min: i32, exists: bool| {
        let mut seen = bound(
            &json!({"enabled": false, "minReplicas": min, "maxReplicas": 9}),
            Ok(deployment()),
        );
        seen.previous = serde_json::from_value(status.clone()).unwrap();
        if exists {
            seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        }
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan.wake,
            other => panic!("{other:?}"),
        }
    };
    let scaled = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let woken = |status: &Value, min: i32| match off(status, min, false) {
        Some(Waking::Now(wake)) => wake,
        other => panic!("{other:?}"),
    };
    assert_eq!(off(&scaled, 0, true), None, "KEDA has not let go of it yet");
    let wake = woken(&scaled, 0);
    assert_eq!((&*wake.object.name, wake.replicas), ("web", 1));
    assert_eq!(woken(&scaled, 3).replicas, 3);
    assert_eq!(off(&json!({}), 0, false), None, "it was not scaled by us");
}

/// KEDA-8
#[test]
fn scaled_object_is_deleted_when_scaling_is_switched_off() {
    let mut seen = bound(&json!({"enabled": false}), Ok(deployment()));
    seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Unwanted(removal)) = step(&seen) else {
        panic!()
    };
    assert_eq!(removal.scaled_object, ChildStep::Delete("u-so".into()));
}

/// BIND-45
#[test]
fn actor_that_may_not_bind_releases_its_part_of_the_template() {
    let fault = Fault::until_change(Reason::AlreadyBound, "by another");
    let mut seen = bound(&json!({}), Err(fault));
    let template = |seen: &Observed| match plan(seen, Timestamp::UNIX_EPOCH) {
        Plan::Bind(plan) => plan.template,
        other => panic!("{other:?}"),
    };
    assert_eq!(template(&seen), Templating::Rest);
    let workload = deployment().workload;
    seen.binding.as_mut().unwrap().ceded = Some(Ceded::Stands {
        workload: workload.clone(),
        owned: false,
        successor: Successor {
            in_force: true,
            ..Successor::default()
        },
        pod: None,
    });
    assert_eq!(template(&seen), Templating::Release(workload, None));
}

/// BIND-3, BIND-23, BIND-50
#[test]
fn template_gets_the_sidecar_once_bound_with_a_known_model_url() {
    let template = |runtime: &Value, since: Option<&str>| {
        let spec = json!({
            "transport": "mq", "binding": {"strategy": "Template"}, "runtime": runtime,
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        let mut seen = observed(&actor(&json!({}), &spec, &json!({})));
        let resolved = Resolved {
            target: deployment(),
            replicas: Some(1),
            spec: "spec".into(),
            templated: None,
        };
        seen.binding = Some(BindingSeen {
            target: Some(Ok(Box::new(resolved))),
            ..BindingSeen::default()
        });
        seen.previous = serde_json::from_value(json!({"boundSince": since})).unwrap();
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan.template,
            other => panic!("{other:?}"),
        }
    };
    let url = json!({"targetURL": "http://127.0.0.1:8000"});
    let since = Some("2026-01-01T00:00:00Z");
    assert_eq!(template(&url, since), Templating::Apply);
    assert_eq!(template(&url, None), Templating::Rest);
    assert_eq!(template(&json!({}), since), Templating::Rest);
}

/// BIND-45, BIND-50
#[test]
fn template_part_of_another_actor_is_not_ours() {
    let template = |actor: Option<&str>| {
        let mut seen = bound(&json!({}), Ok(deployment()));
        let part = TemplatePart {
            fields: "fields".to_owned(),
            actor: actor.map(Box::from),
        };
        let resolved = seen.binding.as_mut().unwrap().target.as_mut().unwrap();
        resolved.as_mut().unwrap().templated = Some(part);
        let before =
            json!({"uid": "web-uid", "hash": "", "target": "spec", "fingerprint": "fields"});
        seen.previous = serde_json::from_value(json!({"template": before})).unwrap();
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan.template,
            other => panic!("{other:?}"),
        }
    };
    let release = Templating::Release(deployment().workload, None);
    let own = &bound(&json!({}), Ok(deployment())).actor.metadata.uid;
    assert_eq!(template(Some(own)), release, "it is not asked for any more");
    assert_eq!(template(None), release, "nobody says whose it is");
    assert_eq!(template(Some("of-another")), Templating::Rest);
}

/// BIND-45, ROLL-2
#[test]
fn rollout_waits_until_another_actors_sidecar_has_left_the_pod_template() {
    let roll = |actor: Option<&str>, part_of| {
        let mut seen = bound(&json!({}), Ok(deployment()));
        seen.previous.bound_since = Some(Time(Timestamp::UNIX_EPOCH));
        let binding = seen.binding.as_mut().unwrap();
        let resolved = binding.target.as_mut().unwrap().as_mut().unwrap();
        resolved.templated = actor.map(|actor| TemplatePart {
            fields: "fields".to_owned(),
            actor: Some(actor.into()),
        });
        binding.part_of = part_of;
        binding.rollout = Some(RolloutSeen {
            counted: Counted {
                total: 1,
                lacking: vec![OutdatedPod::default()],
                ..Counted::default()
            },
            has_slot: true,
            ..RolloutSeen::default()
        });
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan.roll.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let waits = |roll: &Rolling| matches!(roll, Rolling::Wait(Reason::RolloutWaiting, text, _) if text.contains("the sidecar of"));
    let owner = |paused| PartOwner {
        name: "other".into(),
        paused,
    };
    for (part_of, text) in [
        (Some(owner(false)), "the sidecar of AsyncActor other;"),
        (Some(owner(true)), "AsyncActor other, which is paused"),
        (None, "no longer exists"),
    ] {
        let by_another = roll(Some("of-another"), part_of);
        assert!(waits(&by_another), "{by_another:?}");
        assert!(format!("{by_another:?}").contains(text), "{by_another:?}");
    }
    for actor in [
        None,
        Some(&*bound(&json!({}), Ok(deployment())).actor.metadata.uid),
    ] {
        let ours = roll(actor, None);
        assert!(!waits(&ours), "{ours:?}");
    }
}

/// BIND-47
#[test]
fn workload_is_marked_once_and_a_custom_resource_never() {
    let mark = |target: Target, uid: Option<&str>| {
        let mut seen = bound(&json!({}), Ok(target));
        let before = uid.map(
            |uid| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}),
        );
        seen.previous = serde_json::from_value(json!({"resolvedTarget": before})).unwrap();
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => plan.mark.map(|it| it.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let web = Some("Deployment/web".to_owned());
    assert_eq!(mark(deployment(), None), web);
    assert_eq!(mark(deployment(), Some("of-before")), web);
    assert_eq!(mark(deployment(), Some("web-uid")), None);
    let mut group = deployment();
    group.workload.kind = "RayCluster".to_owned();
    group.workload.api_version = "ray.io/v1".to_owned();
    assert_eq!(mark(group, None), None);
}
