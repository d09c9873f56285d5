//! What an actor that is being deleted still has at the broker and in its target.

use asya_shared::api::BindingRollout;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::binding::KindAvailability;
use crate::reconcile::observe::unbinding::{self, LeftBehind};
use crate::reconcile::observe::{binding, known_queues};
use crate::reconcile::plan::deletion::{NextPhase, plan_deletion_steps};
use crate::reconcile::tests::fixtures::{actor, context, context_with, observed, spec};

/// QUE-13: seed 3803 of the simulation, in which the operator crashed before a status named the queue.
#[tokio::test]
async fn queue_of_which_no_status_tells_is_looked_up_on_other_transports_before_its_actor_is_gone()
{
    let context = context();
    let looked_up = |generation: i64, extra: &Value| -> Vec<String> {
        let metadata =
            json!({"generation": generation, "deletionTimestamp": "2026-01-01T00:00:10Z"});
        let mut observed = observed(&actor(&metadata, &spec(extra), &json!({})));
        let actor = &observed.actor;
        let previous = &observed.previous;
        let desired = observed.desired.as_deref();
        context.unrecorded_queues.forget(observed.key());
        observed.queues = known_queues(&context, actor, previous, desired);
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let NextPhase::FinalStep { queues } = plan_deletion_steps(&observed, now).next else {
            panic!("nothing is left but queues");
        };
        let queues = queues.into_iter();
        queues.map(|removal| removal.queue.transport).collect()
    };
    assert_eq!(looked_up(1, &json!({})), ["mq"], "it cannot have moved");
    let moved = looked_up(2, &json!({}));
    assert_eq!(moved[0], "mq");
    assert!(moved.contains(&"other".to_owned()), "{moved:?}");
    assert!(
        !moved.contains(&"fixed".to_owned()) && !moved.contains(&"twin".to_owned()),
        "{moved:?}"
    );
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    assert!(looked_up(2, &retain).is_empty());
}

/// BIND-43: removing a transport and then its actors does not restart the pods of models.
#[tokio::test]
async fn sidecars_that_may_stay_do_so_although_the_transport_is_not_configured_any_more() {
    let context = context_with(|_| Some((200, json!({"metadata": {"name": "ns"}}))));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    for (rollout, stays) in [("OnRestart", true), ("Always", false)] {
        let spec = json!({
            "transport": "nowhere", "workloadRef": target, "binding": {"rollout": rollout},
            "queue": {"deletionPolicy": "Retain"},
        });
        let observed = observed(&actor(&metadata, &spec, &json!({})));
        let desired = observed.desired.as_deref();
        assert!(desired.is_err());
        let left_behind = LeftBehind {
            orphans: false,
            keeps_queues: true,
        };
        let previous = &observed.previous;
        let observing = binding::observe(
            &context,
            &observed.actor,
            desired,
            previous,
            Some(left_behind),
        );
        let binding = observing.await.unwrap().unwrap();
        assert_eq!(binding.unbinding().unwrap().skip, stays, "{rollout}");
    }
}

/// SAFE-24, BIND-43
#[tokio::test]
async fn annotations_on_a_stopped_target_are_given_up_although_sidecars_may_stay() {
    fn stopped(request: &str) -> Option<(u16, Value)> {
        let path = "GET /apis/serving.kserve.io/v1beta1/namespaces/ns/inferenceservices/m";
        let fields =
            json!({"f:metadata": {"f:annotations": {"f:serving.kserve.io/autoscalerClass": {}}}});
        let annotations = json!({
            "serving.kserve.io/stop": "true", "serving.kserve.io/autoscalerClass": "external", "asya.sh/roll": "hash",
        });
        let service = json!({
            "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
            "metadata": {
                "name": "m", "namespace": "ns", "uid": "m-uid", "resourceVersion": "1", "annotations": annotations,
                "managedFields": [{"manager": "asya-operator/parent", "operation": "Apply", "fieldsV1": fields}],
            },
            "status": {"deploymentMode": "Standard"},
        });
        (request == path).then_some((200, service))
    }
    let context = context_with(stopped);
    let kinds = &context.bindings.kinds;
    let kind = GroupVersionKind::gvk("serving.kserve.io", "v1beta1", "InferenceService");
    kinds.serve(
        "serving.kserve.io",
        "InferenceService",
        ApiResource::from_gvk(&kind),
    );
    kinds.set("apps", "Deployment", KindAvailability::NotInstalled);
    for kind in ["Service", "Configuration", "Revision"] {
        kinds.set("serving.knative.dev", kind, KindAvailability::NotInstalled);
    }
    let target =
        json!({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "m"});
    let spec = json!({
        "transport": "mq", "workloadRef": target, "binding": {"rollout": "OnRestart"},
        "queue": {"deletionPolicy": "Retain"},
    });
    for (annotations, opts_out) in [
        (json!({}), false),
        (json!({"asya.sh/skip-unbind": "true"}), true),
    ] {
        let metadata = json!({"annotations": annotations});
        let actor = observed(&actor(&metadata, &spec, &json!({}))).actor;
        context.bindings.refresh(&actor.metadata.key, Some(&actor));
        let left_behind = LeftBehind {
            orphans: false,
            keeps_queues: true,
        };
        let rollout = BindingRollout::OnRestart;
        let unbinding = unbinding::observe(&context, &actor, left_behind, rollout, &[]).await;
        let unbinding = unbinding.unwrap().unwrap();
        assert_eq!(unbinding.skip, opts_out);
        let handed_off = unbinding.stale_objects.iter().map(ToString::to_string);
        let expected = (!opts_out).then_some("InferenceService/m".to_owned());
        assert_eq!(handed_off.collect::<Vec<_>>(), Vec::from_iter(expected));
    }
}
