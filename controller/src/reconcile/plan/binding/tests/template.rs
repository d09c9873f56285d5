//! What an actor writes into the pod template of its target.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::bound;
use crate::binding::OurTemplateFields;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::ActorInTemplate;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::ObservedRollout;
use crate::reconcile::model::target_pods::{PodToReplace, TargetPodCounts};
use crate::reconcile::model::template_handoff::{TemplateHandoff, TemplateRecipient};
use crate::reconcile::plan::plan;
use crate::reconcile::plan::rollout::inputs::RolloutDecision;
use crate::reconcile::plan::template::TemplateStep;
use crate::reconcile::tests::bindings::{binding_to, refused, resolved};
use crate::reconcile::tests::fixtures::{actor, observed, target};

/// BIND-45
#[test]
fn actor_that_may_not_bind_gives_up_its_template_fields() {
    let fault = || Fault::until_change(Reason::AlreadyBound, "by another");
    let mut observed = bound(&json!({}), Err(fault()));
    let template = |observed: &Observed| {
        plan(observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .template
    };
    assert_eq!(template(&observed), TemplateStep::NotDesired);
    let workload = target().workload;
    let mut binding = refused(fault());
    binding.injection.template_handoff = Some(TemplateHandoff::InTemplate {
        workload: workload.clone(),
        owned: false,
        recipient: TemplateRecipient {
            injects: true,
            ..TemplateRecipient::default()
        },
        pod: None,
    });
    observed.binding = Some(binding.into());
    assert_eq!(template(&observed), TemplateStep::GiveUp(workload, None));
}

/// BIND-3, BIND-23, BIND-50
#[test]
fn template_gets_the_sidecar_once_bound_with_a_known_model_url() {
    let template = |runtime: &Value, since: Option<&str>| {
        let spec = json!({
            "transport": "mq", "binding": {"strategy": "Template"}, "runtime": runtime,
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        let mut observed = observed(&actor(&json!({}), &spec, &json!({})));
        observed.binding = Some(binding_to(resolved(target())).into());
        observed.previous = serde_json::from_value(json!({"boundSince": since})).unwrap();
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .template
    };
    let url = json!({"targetURL": "http://127.0.0.1:8000"});
    let since = Some("2026-01-01T00:00:00Z");
    assert_eq!(template(&url, since), TemplateStep::Apply);
    assert_eq!(template(&url, None), TemplateStep::NotDesired);
    assert_eq!(template(&json!({}), since), TemplateStep::NotDesired);
}

/// SAFE-13: whether it has the sidecar already, since the last apply to this object.
#[test]
fn first_apply_to_a_template_is_told_from_later_ones() {
    let uid = target().workload.uid;
    for (applied_to, is_first) in [
        (None, true),
        (Some("another"), true),
        (uid.as_deref(), false),
    ] {
        let spec = json!({
            "transport": "mq", "binding": {"strategy": "Template"}, "runtime": {"targetURL": "http://127.0.0.1:8000"},
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        let template = applied_to
            .map(|uid| json!({"uid": uid, "hash": "before", "target": "spec", "fingerprint": "f"}));
        let status = json!({"boundSince": "2026-01-01T00:00:00Z", "template": template});
        let mut observed = observed(&actor(&json!({}), &spec, &status));
        observed.binding = Some(binding_to(resolved(target())).into());
        let steps = plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target;
        assert_eq!(steps.template, TemplateStep::Apply, "{applied_to:?}");
        assert_eq!(
            steps.template_params.unwrap().is_first,
            is_first,
            "{applied_to:?}"
        );
    }
}

/// BIND-45, BIND-50
#[test]
fn template_fields_of_another_actor_are_not_ours() {
    let template = |actor: Option<&str>| {
        let mut observed = bound(&json!({}), Ok(target()));
        let ownership = OurTemplateFields {
            fingerprint: "fields".to_owned(),
            actor: actor.map(Box::from),
        };
        observed.resolved_mut().target.our_template_fields = Some(ownership);
        let previous =
            json!({"uid": "web-uid", "hash": "", "target": "spec", "fingerprint": "fields"});
        observed.previous = serde_json::from_value(json!({"template": previous})).unwrap();
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .template
    };
    let give_up = TemplateStep::GiveUp(target().workload, None);
    let own = &bound(&json!({}), Ok(target())).actor.metadata.uid;
    assert_eq!(template(Some(own)), give_up, "no longer desired");
    assert_eq!(template(None), give_up, "no annotation names the owner");
    assert_eq!(template(Some("of-another")), TemplateStep::NotDesired);
}

/// BIND-45
#[test]
fn rollout_waits_until_another_actors_sidecar_has_left_the_pod_template() {
    let rollout = |actor: Option<&str>, template_actor| {
        let mut observed = bound(&json!({}), Ok(target()));
        observed.previous.bound_since = Some(Time(Timestamp::UNIX_EPOCH));
        let binding = observed.resolved_mut();
        binding.target.our_template_fields = actor.map(|actor| OurTemplateFields {
            fingerprint: "fields".to_owned(),
            actor: Some(actor.into()),
        });
        binding.template_actor = template_actor;
        binding.rollout = Some(ObservedRollout {
            pod_counts: TargetPodCounts {
                total: 1,
                outdated: vec![PodToReplace::default()],
                ..TargetPodCounts::default()
            },
            has_slot: true,
            ..ObservedRollout::default()
        });
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .rollout
            .unwrap()
            .decision
    };
    let is_waiting = |rollout: &RolloutDecision| matches!(rollout, RolloutDecision::Wait { message, .. } if message.contains("the sidecar of"));
    let owner = |paused| ActorInTemplate {
        name: "other".into(),
        paused,
    };
    for (template_actor, text) in [
        (Some(owner(false)), "the sidecar of AsyncActor other;"),
        (Some(owner(true)), "AsyncActor other, which is paused"),
        (None, "no longer exists"),
    ] {
        let decision = rollout(Some("of-another"), template_actor);
        assert!(is_waiting(&decision), "{decision:?}");
        assert!(format!("{decision:?}").contains(text), "{decision:?}");
    }
    for actor in [
        None,
        Some(&*bound(&json!({}), Ok(target())).actor.metadata.uid),
    ] {
        let decision = rollout(actor, None);
        assert!(!is_waiting(&decision), "{decision:?}");
    }
}
