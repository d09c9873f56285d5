//! Actors that scale by queue depth, with KEDA and the HPA controller.

use asya_shared::scaling::hpa_name;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::minimal_actor;
use crate::steady::late_pods;

/// An actor that requests one pod per 5 messages, polled every second.
fn scaled_actor(name: &str) -> Value {
    let mut actor = minimal_actor(name);
    actor["spec"]["scaling"] = json!({
        "enabled": true, "maxReplicas": 3, "pollingInterval": 1, "cooldownPeriod": 0,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    });
    actor
}

pub(crate) fn of_keda(scenario: &Scenario, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("keda.sh", "v1alpha1", kind));
    Api::namespaced_with(scenario.client(), scenario.namespace(), &resource)
}

pub(crate) fn condition(actor: &DynamicObject, kind: &str) -> (String, String, String) {
    let conditions = actor.data["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == kind);
    let text = |key: &str| {
        let text = found.and_then(|it| it[key].as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"), text("message"))
}

/// Waits until a condition has this reason.
async fn actor_with_reason(
    scenario: &Scenario,
    actor: &str,
    kind: &str,
    reason: &str,
) -> Result<DynamicObject> {
    let what = format!("{kind} of {actor} is {reason}");
    eventually(what, LATER, async || {
        let found = scenario.actors().get(actor).await?;
        let is = condition(&found, kind);
        check(is.1 == reason, &found.data["status"])?;
        Ok(found)
    })
    .await
}

/// KEDA-1, KEDA-5, KEDA-6, KEDA-10, KEDA-11, STA-5, STA-9
#[tokio::test]
async fn rabbitmq_messages_scale_an_actor_from_zero_and_it_is_scaled_to_zero_when_idle() {
    Scenario::run("scaling", async |scenario| {
        // Long enough to need its own HPA name.
        let name = format!("{:-<56}x", scenario.name("ocr"));
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mark = audit.mark().await?;
        scenario.apply(&scaled_actor(&name)).await?;
        scenario.actor_status(&name, "Napping", LATER).await?;
        let napping =
            actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        assert_eq!(condition(&napping, "Ready").0, "True");
        let status = &napping.data["status"];
        assert_eq!(
            (
                &status["readySummary"],
                &status["scalingMode"],
                &status["maxReplicas"]
            ),
            (&json!("3/3"), &json!("KEDA"), &json!(3))
        );
        assert_eq!(status["scaledObjectRef"]["name"], json!(name));
        let hpas = scenario.api::<HorizontalPodAutoscaler>();
        hpas.get(&name).await?;
        let wait = [
            "wait",
            "--for=condition=Ready",
            "--timeout=10s",
            &format!("asya/{name}"),
        ];
        scenario.kubectl(&wait).await?;
        let writes = audit.writes_since(mark, &user).await?;
        let writes: Vec<_> = writes
            .iter()
            .filter(|write| write.namespace == scenario.namespace())
            .map(|write| {
                (
                    &*write.verb,
                    &*write.resource,
                    &*write.subresource,
                    &*write.name,
                )
            })
            .collect();
        // Both ConfigMaps belong to the namespace.
        let own = writes.iter().filter(|write| write.1 != "configmaps");
        let late = late_pods(scenario.cluster(), scenario).await?;
        assert!(own.count() <= 8 + late, "{writes:?}");

        let (rabbitmq, queue) = (scenario.cluster().rabbitmq()?, format!("asya-{name}"));
        for number in 0..12 {
            assert!(rabbitmq.publish("", &queue, &number.to_string()).await?);
        }
        eventually("three pods run", LATER, async || {
            let status = scenario.actors().get(&name).await?.data["status"].clone();
            let is = (&status["status"], &status["readyReplicas"]);
            check(is == (&json!("Running"), &json!(3)), &status)
        })
        .await?;
        let scaled_up = scenario.actors().get(&name).await?;
        assert_eq!(scaled_up.data["status"]["lastScaleDirection"], "up");
        assert_eq!(rabbitmq.messages(&queue, 12, false).await?.len(), 12);
        let scaled_down = scenario.actor_status(&name, "Napping", LATER).await?;
        assert_eq!(scaled_down.data["status"]["lastScaleDirection"], "down");

        scenario.kubectl(&["delete", "asya", &name]).await?;
        scenario.actor_gone(&name, LATER).await?;
        for kind in ["ScaledObject", "TriggerAuthentication"] {
            let left = of_keda(scenario, kind).list(&ListParams::default()).await?;
            assert!(left.items.is_empty(), "{kind}: {left:?}");
        }
        let left = scenario.api::<Deployment>().get_opt(&name).await?;
        assert!(left.is_none(), "{left:?}");
        let shared = scenario
            .api::<ConfigMap>()
            .list(&ListParams::default())
            .await?;
        let ours = shared.iter().filter_map(|it| it.metadata.name.as_deref());
        let ours: Vec<_> = ours.filter(|name| name.starts_with("asya-")).collect();
        assert!(ours.is_empty(), "{ours:?}");
        Ok(())
    })
    .await;
}

/// KEDA-4, KEDA-5, WRK-2
#[tokio::test]
async fn sqs_messages_scale_a_stateful_set_from_zero() {
    Scenario::run("scaling-sqs", async |scenario| {
        let name = scenario.name("asr");
        let mut actor = scaled_actor(&name);
        actor["spec"]["transport"] = json!("sqs");
        actor["spec"]["workload"]["kind"] = json!("StatefulSet");
        scenario.apply(&actor).await?;
        let napping =
            actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        let hpas = scenario.api::<HorizontalPodAutoscaler>();
        let labels = hpas.get(&hpa_name(&name)).await?.metadata.labels;
        let label = labels
            .as_ref()
            .and_then(|labels| labels.get("asya.sh/actor"));
        assert_eq!(label, Some(&name), "KEDA copies our labels");
        let url = &napping.data["status"]["queue"]["url"];
        assert!(url.is_string(), "{url}");
        let (sqs, queue) = (scenario.cluster().sqs()?, format!("asya-{name}"));
        let messages: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        sqs.send(&queue, &messages).await?;
        eventually("two pods run", LATER, async || {
            let status = scenario.actors().get(&name).await?.data["status"].clone();
            check(status["readyReplicas"] == 2, &status)
        })
        .await?;
        sqs.purge(&queue).await?;
        scenario.actor_status(&name, "Napping", LATER).await?;
        Ok(())
    })
    .await;
}

/// WRK-3, KEDA-8
#[tokio::test]
async fn enabling_scaling_keeps_replicas_and_disabling_resets_them() {
    Scenario::run("scaling-switch", async |scenario| {
        let name = scenario.name("switch");
        let mut actor = minimal_actor(&name);
        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", LATER).await?;

        let mut scaled = actor.clone();
        scaled["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 2, "maxReplicas": 4});
        scenario.apply(&scaled).await?;
        actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        let deployments = scenario.api::<Deployment>();
        let live = deployments.get(&name).await?;
        assert_eq!(live.spec.and_then(|spec| spec.replicas), Some(2));
        let annotations = live.metadata.annotations.unwrap_or_default();
        let revision = annotations.get("deployment.kubernetes.io/revision");
        assert_eq!(
            revision.map(String::as_str),
            Some("1"),
            "no pod was touched"
        );

        let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
        deployments
            .patch_scale(&name, &PatchParams::default(), &three)
            .await?;
        scenario.apply(&actor).await?;
        eventually("two pods again, and nobody scales", LATER, async || {
            let live = deployments.get(&name).await?;
            let replicas = live.spec.and_then(|spec| spec.replicas);
            check(replicas == Some(2), format_args!("{replicas:?}"))?;
            let found = scenario.actors().get(&name).await?;
            let told = condition(&found, "ScalingReady").1;
            check(told.is_empty(), told)?;
            let status = &found.data["status"];
            check(status["scaledObjectRef"].is_null(), status)?;
            check(status["scalingMode"] == "Manual", status)?;
            check(status["status"] == "Running", status)
        })
        .await?;
        for kind in ["ScaledObject", "TriggerAuthentication"] {
            eventually(format_args!("no {kind}"), LATER, async || {
                let left = of_keda(scenario, kind).list(&ListParams::default()).await?;
                check(left.items.is_empty(), format_args!("{left:?}"))
            })
            .await?;
        }
        Ok(())
    })
    .await;
}

/// KEDA-9, STA-4
#[tokio::test]
async fn other_autoscaler_is_named_and_replaced_once_deleted() {
    Scenario::run("scaling-other", async |scenario| {
        let name = scenario.name("rival");
        let hpas = scenario.api::<HorizontalPodAutoscaler>();
        let autoscaler = serde_json::from_value(json!({
            "metadata": {"name": "rival"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 2},
        }))?;
        hpas.create(&PostParams::default(), &autoscaler).await?;
        scenario.apply(&scaled_actor(&name)).await?;
        let refused = actor_with_reason(scenario, &name, "ScalingReady", "RivalAutoscaler").await?;
        let text = condition(&refused, "ScalingReady").2;
        assert!(text.contains("HorizontalPodAutoscaler rival"), "{text}");
        scenario.actor_status(&name, "ScalingError", LATER).await?;
        let none = of_keda(scenario, "ScaledObject").get_opt(&name).await?;
        assert!(none.is_none(), "{none:?}");

        hpas.delete("rival", &DeleteParams::default()).await?;
        actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        Ok(())
    })
    .await;
}

/// KEDA-7, KEDA-8, SA-3
#[tokio::test]
async fn drift_of_keda_objects_is_repaired_and_foreign_fields_stay() {
    Scenario::run("scaling-drift", async |scenario| {
        let name = scenario.name("drift");
        scenario.apply(&scaled_actor(&name)).await?;
        actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        let scaled_objects = of_keda(scenario, "ScaledObject");
        let change = json!({
            "metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}, "labels": {"team": "nlp"}},
            "spec": {"maxReplicaCount": 99},
        });
        let patch = Patch::Merge(change);
        scaled_objects.patch(&name, &PatchParams::default(), &patch).await?;
        let authentications = of_keda(scenario, "TriggerAuthentication");
        let authentication = format!("{name}-trigger-auth");
        let before = authentications.get(&authentication).await?.metadata.uid;
        authentications.delete(&authentication, &DeleteParams::default()).await?;
        let settings = scenario.api::<ConfigMap>();
        settings.delete("asya-transport-rabbitmq", &DeleteParams::default()).await?;
        eventually("all is as it was", LATER, async || {
            let found = scaled_objects.get(&name).await?;
            check(found.data["spec"]["maxReplicaCount"] == 3, &found.data)?;
            settings.get("asya-transport-rabbitmq").await?;
            let after = authentications.get(&authentication).await?.metadata.uid;
            check(after != before, "the old one")
        })
        .await?;
        let metadata = scaled_objects.get(&name).await?.metadata;
        let annotations = metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get("autoscaling.keda.sh/paused").map(String::as_str), Some("true"));
        let labels = metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("team").map(String::as_str), Some("nlp"));
        Ok(())
    })
    .await;
}

/// SA-1, SA-2, SA-3
#[tokio::test]
async fn service_account_exists_while_the_actor_has_a_role() {
    Scenario::run("account", async |scenario| {
        let name = scenario.name("role");
        let account = format!("asya-{name}");
        let accounts = scenario.api::<ServiceAccount>();
        let foreign = serde_json::from_value(json!({"metadata": {"name": account}}))?;
        accounts.create(&PostParams::default(), &foreign).await?;
        let mut actor = minimal_actor(&name);
        actor["spec"]["transport"] = json!("sqs");
        actor["metadata"]["annotations"] =
            json!({"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"});
        scenario.apply(&actor).await?;
        let refused = actor_with_reason(scenario, &name, "WorkloadReady", "NotOwned").await?;
        let text = condition(&refused, "WorkloadReady").2;
        assert!(
            text.contains(&format!(
                "ServiceAccount {}/{account} exists",
                scenario.namespace()
            )),
            "{text}"
        );

        accounts.delete(&account, &DeleteParams::default()).await?;
        // Any change to the actor triggers a reconcile, otherwise it takes up to half a minute.
        actor["spec"]["timeout"] = json!({"processing": 100});
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", LATER).await?;
        let made = accounts.get(&account).await?;
        let role = made.metadata.annotations.unwrap_or_default();
        assert_eq!(
            role.get("eks.amazonaws.com/role-arn").map(String::as_str),
            Some("arn:aws:iam::1:role/r")
        );
        let used = async || {
            let live = scenario.api::<Deployment>().get(&name).await?;
            let pod = live.spec.and_then(|spec| spec.template.spec);
            Ok::<_, Error>(pod.and_then(|pod| pod.service_account_name))
        };
        assert_eq!(used().await?, Some(account.clone()));

        accounts.delete(&account, &DeleteParams::default()).await?;
        eventually("it comes back", LATER, async || {
            accounts.get(&account).await?;
            Ok(())
        })
        .await?;
        let key = "eks.amazonaws.com/role-arn-";
        scenario.kubectl(&["annotate", "asya", &name, key]).await?;
        eventually("it is gone", LATER, async || {
            let left = accounts.get_opt(&account).await?;
            check(left.is_none(), "it is there")
        })
        .await?;
        assert_eq!(used().await?, None);
        Ok(())
    })
    .await;
}

/// FW-23 (a, b, c)
#[tokio::test]
async fn orphaned_children_keep_scaling() {
    Scenario::run("scaling-orphan", async |scenario| {
        let name = scenario.name("orphan");
        let mut actor = scaled_actor(&name);
        actor["spec"]["deletionPolicy"] = json!("Orphan");
        keep_scaling(scenario, &actor, "background").await
    })
    .await;
}

/// FW-23 (g): the garbage collector orphans the objects itself.
#[tokio::test]
async fn children_keep_scaling_if_their_actor_is_deleted_with_propagation_policy_orphan() {
    Scenario::run("cascade-orphan", async |scenario| {
        let name = scenario.name("orphan");
        keep_scaling(scenario, &scaled_actor(&name), "orphan").await
    })
    .await;
}

/// Deletes an actor that orphans its children.
async fn keep_scaling(scenario: &Scenario, actor: &Value, cascade: &str) -> Result<()> {
    let name = actor["metadata"]["name"].as_str().unwrap_or_default();
    scenario.apply(actor).await?;
    actor_with_reason(scenario, name, "ScalingReady", "ScaledObjectReady").await?;
    let cascade = format!("--cascade={cascade}");
    scenario
        .kubectl(&["delete", "asya", name, &cascade])
        .await?;
    scenario.actor_gone(name, LATER).await?;

    let deployment = scenario.api::<Deployment>().get(name).await?.metadata;
    let scaled_object = of_keda(scenario, "ScaledObject").get(name).await?;
    let authentications = of_keda(scenario, "TriggerAuthentication");
    let authentication = authentications.get(&format!("{name}-trigger-auth")).await?;
    for left in [deployment, scaled_object.metadata, authentication.metadata] {
        assert_eq!(left.owner_references, None, "{:?}", left.name);
        assert_eq!(left.deletion_timestamp, None, "{:?}", left.name);
    }
    for shared in ["asya-runtime", "asya-transport-rabbitmq"] {
        let left = scenario.api::<ConfigMap>().get(shared).await?.metadata;
        let annotations = left.annotations.unwrap_or_default();
        assert_eq!(
            annotations.get("asya.sh/orphaned").map(String::as_str),
            Some("true")
        );
    }
    let (rabbitmq, queue) = (scenario.cluster().rabbitmq()?, format!("asya-{name}"));
    assert!(rabbitmq.publish("", &queue, "one").await?, "no queue");
    eventually("KEDA continues", LATER, async || {
        let live = scenario.api::<Deployment>().get(name).await?;
        let replicas = live.spec.and_then(|spec| spec.replicas);
        check(replicas == Some(1), format_args!("{replicas:?}"))
    })
    .await?;
    rabbitmq.delete_queue(&queue).await?;
    Ok(())
}

/// WRK-6
#[tokio::test]
async fn changed_kind_keeps_scaling_and_the_old_workload_is_deleted() {
    Scenario::run("scaling-kind", async |scenario| {
        let name = scenario.name("kind");
        let mut actor = scaled_actor(&name);
        scenario.apply(&actor).await?;
        actor_with_reason(scenario, &name, "ScalingReady", "ScaledObjectReady").await?;
        actor["spec"]["workload"]["kind"] = json!("StatefulSet");
        scenario.apply(&actor).await?;
        eventually("the StatefulSet is what KEDA scales", LATER, async || {
            let found = of_keda(scenario, "ScaledObject").get(&name).await?;
            let target = &found.data["spec"]["scaleTargetRef"]["kind"];
            check(target == "StatefulSet", target)?;
            let left = scenario.api::<Deployment>().get_opt(&name).await?;
            check(left.is_none(), "the Deployment is there")
        })
        .await?;
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(rabbitmq.publish("", &format!("asya-{name}"), "one").await?);
        let running = scenario.actor_status(&name, "Running", LATER).await?;
        assert_eq!(running.data["status"]["workloadRef"]["kind"], "StatefulSet");
        Ok(())
    })
    .await;
}

/// KEDA-8, SA-3: objects that were never adopted are not deleted.
#[tokio::test]
async fn objects_never_adopted_survive_the_actor() {
    Scenario::run("unowned", async |scenario| {
        let name = scenario.name("mine");
        let labels = json!({"app": "mine"});
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "mine"}]}},
            },
        }))?;
        let deployments = scenario.api::<Deployment>();
        deployments.create(&PostParams::default(), &deployment).await?;
        let scaled_objects = of_keda(scenario, "ScaledObject");
        let scaled_object = serde_json::from_value(json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": name},
            "spec": {"scaleTargetRef": {"name": "elsewhere"}, "triggers": [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50"}}]},
        }))?;
        scaled_objects.create(&PostParams::default(), &scaled_object).await?;
        let mut actor = minimal_actor(&name);
        actor["spec"]["adoptionPolicy"] = json!("IfUnowned");
        scenario.apply(&actor).await?;
        actor_with_reason(scenario, &name, "WorkloadReady", "ReconcileError").await?;

        scenario.kubectl(&["delete", "asya", &name]).await?;
        scenario.actor_gone(&name, LATER).await?;
        let left = deployments.get(&name).await?.metadata;
        assert_eq!(left.deletion_timestamp, None);
        let left = scaled_objects.get(&name).await?.metadata;
        assert_eq!(left.deletion_timestamp, None);
        Ok(())
    })
    .await;
}
