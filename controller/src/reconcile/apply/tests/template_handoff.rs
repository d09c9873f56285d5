//! Handoff of a pod template to another actor.

use super::*;
use crate::reconcile::tests::bindings::refused;

/// BIND-45: the API server admits pods of `web` with the sidecar of actor `older`, or (`uninjected_pods`) without one
/// while the webhook has not read that actor's status.
fn injected_pods(request: &str) -> Option<(u16, Value)> {
    let annotations = json!({"asya.sh/injected-by": "older", "asya.sh/injected-hash": "hash.0"});
    let containers = json!([{"name": "asya-runtime"}, {"name": "asya-sidecar"}]);
    match request {
        "POST /api/v1/namespaces/ns/pods" => Some((
            201,
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}),
        )),
        "PATCH /apis/apps/v1/namespaces/ns/deployments/web" => Some((
            200,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}),
        )),
        _ => None,
    }
}

fn uninjected_pods(request: &str) -> Option<(u16, Value)> {
    let annotations = json!({"asya.sh/not-injected": "NotProved"});
    (request == "POST /api/v1/namespaces/ns/pods").then(|| {
        (
            201,
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}}),
        )
    })
}

/// BIND-45, SAFE-4
#[tokio::test(start_paused = true)]
async fn template_is_handed_over_only_if_its_pods_would_get_the_older_actors_sidecar() {
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let web = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    };
    let plan = TemplateStep::HandOff(
        web,
        HandoffProbe {
            pod: Box::default(),
            uid: "older".into(),
            actor_hash: "hash".to_owned(),
        },
    );
    let context = context_with(uninjected_pods);
    for (seconds, what) in [(1, "the webhook may lag"), (30, "it is asked less often")] {
        let outcome = template::template(&context, observed.key(), plan.clone(), None).await;
        let Ok(TemplateOutcome::Waiting(fault)) = outcome else {
            panic!("{outcome:?}")
        };
        let wait = Duration::from_secs(seconds);
        let expected = (Reason::AlreadyBound, Requeue::After(wait));
        assert_eq!((fault.reason, fault.requeue), expected, "{what}");
        tokio::time::advance(wait).await;
    }
    let context = context_with(injected_pods);
    let given_up = template::template(&context, observed.key(), plan, None)
        .await
        .unwrap();
    assert_eq!(given_up, TemplateOutcome::GivenUp(None));
}

/// BIND-45: [`injected_pods`] with the `ConfigMap` of the runtime script.
fn with_config_map(request: &str) -> Option<(u16, Value)> {
    let config_map = "PATCH /api/v1/namespaces/ns/configmaps/asya-runtime";
    let metadata =
        json!({"name": "asya-runtime", "namespace": "ns", "uid": "script", "resourceVersion": "1"});
    match request {
        _ if request == config_map => Some((200, json!({"metadata": metadata}))),
        _ => injected_pods(request),
    }
}

/// BIND-45
#[tokio::test]
async fn actor_without_a_usable_queue_hands_its_template_over() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let mut observed = observed(&actor(&json!({}), &spec, &json!({})));
    let fault = Fault::until_change(Reason::AlreadyBound, "by another");
    let workload = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    };
    let mut binding = refused(fault);
    binding.injection.template_handoff = Some(TemplateHandoff::InTemplate {
        workload,
        owned: false,
        recipient: TemplateRecipient {
            uid: "older".into(),
            injects: true,
            uses_template: false,
            verified_actor_hash: Some("hash".to_owned()),
        },
        pod: Some(json!({"metadata": {}, "spec": {"containers": []}})),
    });
    observed.binding = Some(binding.into());
    observed.queue =
        ObservedQueue::Unknown(BrokerError::ConfigInvalid("no such broker".to_owned()));
    let context = context_with(with_config_map);
    let plan = plan(&observed, Timestamp::now());
    let Ok(Outcome::Active(active_outcome)) = apply(&context, &observed.actor, plan).await else {
        panic!()
    };
    let outcome = active_outcome.binding();
    assert!(!outcome.can_bind);
    assert_eq!(outcome.template, TemplateOutcome::GivenUp(None));
}

/// A Deployment of two pods, all of which its strategy would stop at once.
fn recreating(request: &str) -> Option<(u16, Value)> {
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "uid-of-web"},
        "spec": {"replicas": 2, "strategy": {"type": "Recreate"}},
        "status": {"replicas": 2, "updatedReplicas": 2},
    });
    (request == "GET /apis/apps/v1/namespaces/ns/deployments/web").then_some((200, web))
}

/// SAFE-14: the API server of this test refuses every write.
#[tokio::test]
async fn fields_of_a_template_are_kept_while_giving_them_up_would_stop_all_pods() {
    let context = context_with(recreating);
    let web = serve_deployment(&context);
    let key = Key::new("ns", "a");
    let fault = Fault::until_change(Reason::StrategyNotAllowed, "an owner");
    for fault in [None, Some(fault)] {
        let step = TemplateStep::GiveUp(web.clone(), fault);
        let outcome = template::template(&context, &key, step, None).await;
        let Ok(TemplateOutcome::Waiting(fault)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(fault.reason, Reason::RolloutWaiting);
        assert!(fault.message.contains("Recreate"), "{}", fault.message);
    }
}
