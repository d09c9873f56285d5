use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::ObservedRollout;
use crate::reconcile::plan::rollout::inputs::RolloutAction;
use crate::reconcile::tests::bindings::{binding_to, resolved};
use crate::reconcile::tests::fixtures::{
    self, actor, context_with, observed, slot_end, verified_status,
};

/// An actor that binds Deployment `web`, with `injection` in its status and a pod for the next dry run.
fn bound(injection: Option<Value>) -> Observed {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let mut status = verified_status();
    if let Some(injection) = injection {
        status["injection"] = injection;
    }
    let mut observed = observed(&actor(&json!({}), &spec, &status));
    let rollout = ObservedRollout {
        probe_pod: Some(json!({"metadata": {}, "spec": {"containers": []}})),
        ..ObservedRollout::default()
    };
    let mut binding = binding_to(resolved(fixtures::target()));
    binding.rollout = Some(rollout);
    observed.binding = Some(binding.into());
    observed
}

fn hash() -> String {
    let observed = bound(None);
    observed
        .desired_binding()
        .unwrap()
        .injected_hash
        .clone()
        .unwrap()
}

/// The outcome that blocks the step after the dry run that it needs; `None` if the rollout may take it.
async fn blocked(
    context: &Context,
    observed: &Observed,
    step: &RolloutDecision,
    probe: &mut ProbeState,
) -> Option<RolloutOutcome> {
    let params = ProbeParams::new(observed);
    let readiness = check_step(context, observed.key(), &params, step, probe).await;
    match readiness.unwrap() {
        StepReadiness::Ready => None,
        StepReadiness::Blocked { outcome, .. } => Some(outcome),
    }
}

type Responses = fn(&str) -> Option<(u16, Value)>;

fn respond(request: &str, status: u16, body: Value) -> Option<(u16, Value)> {
    (request == "POST /api/v1/namespaces/ns/pods").then_some((status, body))
}

const NO_RESPONSE: Responses = |_| None;
const UNINJECTED: Responses = |request| {
    respond(
        request,
        201,
        json!({"metadata": {}, "spec": {"containers": []}}),
    )
};
const INJECTED: Responses = |request| {
    let annotations = json!({"asya.sh/injected-by": "actor-uid", "asya.sh/injected-hash": hash()});
    let containers = json!([{"name": "asya-runtime"}, {"name": "asya-sidecar"}]);
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
    respond(request, 201, pod)
};
const REJECTED: Responses = |request| {
    let text = "the image comes from no registry of ours";
    let rejection = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": text});
    respond(request, 403, rejection)
};

/// ROLL-2 (h): other replicas of the webhook may not have read the status yet.
#[tokio::test]
async fn rollout_waits_until_all_webhook_replicas_have_read_the_probe_result() {
    let hash = hash();
    let actor_hash = hash.split('.').next();
    let annotate = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
    for (age, starts) in [(0, false), (10, true)] {
        let since = Timestamp::now() - Duration::from_secs(age);
        let injection = json!({"proved": actor_hash, "since": since});
        let context = context_with(INJECTED);
        let observed = bound(Some(injection));
        let mut probe = ProbeState::default();
        match blocked(&context, &observed, &annotate, &mut probe).await {
            None => assert!(starts, "{age}"),
            Some(RolloutOutcome::Waiting(Fault {
                reason: Reason::RolloutInProgress,
                requeue: Requeue::After(wait),
                ..
            })) => {
                assert!(!starts && wait <= Duration::from_secs(2), "{age}: {wait:?}");
            }
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// SAFE-1, ROLL-2 (b, i)
#[tokio::test]
async fn pods_are_replaced_only_after_a_dry_run_shows_that_new_pods_get_the_sidecar() {
    let hash = hash();
    let actor_hash = hash.split('.').next();
    let rejected = json!({"refused": actor_hash, "message": "exceeded quota"});
    for (injection, responses, expected) in [
        (None, INJECTED, None),
        (None, UNINJECTED, Some(Some(Reason::ProbeFailed))),
        (None, REJECTED, Some(None)),
        // No dry run is needed.
        (Some(rejected), NO_RESPONSE, Some(None)),
        (
            Some(json!({})),
            NO_RESPONSE,
            Some(Some(Reason::ProbeFailed)),
        ),
    ] {
        let context = context_with(responses);
        let observed = bound(injection);
        let other = Key::new("elsewhere", "other");
        context.rollout_slots.acquire(observed.key(), slot_end());
        let step = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
        let mut probe = ProbeState::default();
        let reported = match blocked(&context, &observed, &step, &mut probe).await {
            None => None,
            Some(RolloutOutcome::Waiting(fault)) => {
                // The message mentions the webhook only if a dry run was made.
                let ran = probe.outcome != ProbeOutcome::NotRun;
                let text = fault.message;
                assert_eq!(text.contains("waiting for the webhook"), ran, "{text}");
                Some(Some(fault.reason))
            }
            Some(RolloutOutcome::NotChecked) => Some(None),
            Some(other) => panic!("{other:?}"),
        };
        assert_eq!(reported, expected, "{:?}", observed.previous.injection);
        let slot_is_free = context.rollout_slots.can_acquire(&other, Timestamp::now());
        assert_eq!(
            slot_is_free,
            expected.is_some(),
            "a blocked rollout holds no slot"
        );
    }
}

/// ROLL-2 (b, i): nothing can show that new pods of such a target get the sidecar.
#[tokio::test]
async fn target_whose_pods_cannot_be_dry_run_keeps_its_pods() {
    let mut observed = bound(None);
    let rollout = observed.resolved_mut().rollout.as_mut();
    rollout.unwrap().probe_pod = None;
    let step = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
    let context = context_with(NO_RESPONSE);
    match blocked(&context, &observed, &step, &mut ProbeState::default()).await {
        Some(RolloutOutcome::Waiting(fault)) => {
            assert_eq!(fault.reason, Reason::ProbeFailed);
            let text = fault.message;
            assert!(
                text.contains("restart the target's pods yourself"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// SAFE-7: the target has all its pods, so a quota needs room only for what injection adds.
#[tokio::test]
async fn pod_that_a_quota_rejects_is_judged_as_the_replacement_of_another() {
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let sink = Arc::clone(&bodies);
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let sink = Arc::clone(&sink);
        async move {
            let body = request.into_body().collect_bytes().await?;
            sink.lock().push(serde_json::from_slice(&body)?);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "pods \"a\" is forbidden: exceeded quota: q",
            });
            let body = kube::client::Body::from(status.to_string().into_bytes());
            let response = http::Response::builder().status(403).body(body)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let context = fixtures::context_of(kube::Client::new(server, "default"));
    let mut observed = bound(None);
    let rollout = observed.resolved_mut().rollout.as_mut().unwrap();
    let model = json!({"name": "model", "resources": {"requests": {"cpu": "4"}}});
    rollout.probe_pod = Some(json!({"metadata": {}, "spec": {"containers": [model]}}));
    rollout.pod_counts.pods.matched = 1;
    let step = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
    let outcome = blocked(&context, &observed, &step, &mut ProbeState::default()).await;
    assert!(outcome.is_some(), "there is no room for that, either");
    let cpu = |pod: &Value| pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone();
    let requests: Vec<_> = bodies.lock().iter().map(cpu).collect();
    assert_eq!(requests, ["4", "0"]);
}
