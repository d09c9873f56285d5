//! Replaced pods of third-party kinds: by eviction, or by a change that makes their owner roll them.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::audit::{Mark, Write};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::owners::kserve::{
    AUTOSCALER_CLASS, INFERENCE_SERVICE, Kserve, deployment_of as of_kserve, inference_service,
};
use asya_tests::owners::llmisvc::{LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::ray::{RAY_CLUSTER, RayClusters, ray_cluster};
use asya_tests::owners::{Kind, RecordingClient};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::systems::{bind, bind_as};
use crate::binding::{condition, status_is};

/// Pods are replaced one by one, each once the previous replacement is ready.
const REPLACED: Duration = Duration::from_mins(3);

pub(super) fn all_injected(status: &Value) -> bool {
    condition(status, "Injected") == ("True", "AllPodsInjected") && status["rollout"].is_null()
}

/// Pods with or without the sidecar that are not being deleted.
pub(super) async fn with_sidecar(client: &RecordingClient, wanted: bool) -> Result<Vec<String>> {
    let pods = client.list(Kind::POD).await?;
    let has = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array();
        containers.is_some_and(|all| all.iter().any(|it| it["name"] == "asya-sidecar"))
    };
    let found = pods.iter().filter(|pod| has(pod) == wanted);
    Ok(found
        .map(|pod| pod["metadata"]["name"].to_string())
        .collect())
}

/// Writes in the scenario's namespace, each with whether the operator made it.
pub(super) async fn writes(scenario: &Scenario, mark: Mark) -> Result<Vec<(bool, Write)>> {
    let cluster = scenario.cluster();
    let user = cluster.operator_user()?;
    let all = cluster
        .audit()
        .writes_in(mark, scenario.namespace())
        .await?;
    let all = all.into_iter().filter(|it| it.code < 300);
    Ok(all.map(|write| (write.user == user, write)).collect())
}

/// ROLL-4, SIM-6, BIND-43
#[tokio::test]
async fn ray_cluster_workers_are_evicted_one_by_one() {
    const WORKERS: usize = 3;
    Scenario::run("evicted", async |scenario| {
        let target = ray_cluster("batch", 3);
        let mark = scenario.cluster().audit().mark().await?;
        let (owner, name) = bind(scenario, RayClusters, (RAY_CLUSTER, &target)).await?;
        let client = owner.client();
        status_is(
            scenario,
            &name,
            "all workers are replaced",
            REPLACED,
            |status| all_injected(status) && status["pods"]["injected"] == WORKERS,
        )
        .await?;
        assert_eq!(with_sidecar(client, false).await?.len(), 1, "the head");
        let mut missing = 0;
        let mut evictions = 0;
        for (is_ours, write) in writes(scenario, mark).await? {
            if write.resource != "pods" || write.verb != "create" {
                continue;
            }
            match (is_ours, &*write.subresource) {
                (true, "eviction") => (evictions, missing) = (evictions + 1, missing + 1),
                (false, "") => missing = 0,
                _ => {}
            }
            assert!(missing <= 1, "one at a time");
        }
        assert_eq!(evictions, WORKERS);

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        eventually("no pod has the sidecar", REPLACED, async || {
            let left = with_sidecar(client, true).await.map_err(NotYet::new)?;
            let clean = with_sidecar(client, false).await.map_err(NotYet::new)?;
            check(
                left.is_empty() && clean.len() == WORKERS + 1,
                format_args!("{left:?}, {clean:?}"),
            )
        })
        .await
    })
    .await;
}

/// BIND-43, ROLL-3, SIM-2
#[tokio::test]
async fn llm_inference_service_loses_the_sidecar_by_a_changed_annotation() {
    Scenario::run("unbound-llm", async |scenario| {
        let target = llm_inference_service("qwen");
        let (owner, name) = bind(scenario, LlmIsvc, (LLM_INFERENCE_SERVICE, &target)).await?;
        let client = owner.client();
        status_is(scenario, &name, "it is rolled", REPLACED, all_injected).await?;
        let live = async || client.get(LLM_INFERENCE_SERVICE, "qwen").await;
        let bound = live().await?.unwrap_or_default();
        let value = &bound["spec"]["annotations"]["asya.sh/roll"];
        assert!(value.is_string(), "{bound}");

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        assert_eq!(with_sidecar(client, true).await?, [""; 0]);
        let left = live().await?.unwrap_or_default();
        assert!(!left["spec"].to_string().contains("asya.sh"), "{left}");
        assert_eq!(left["spec"]["template"], bound["spec"]["template"]);
        // The values that the owner has propagated to the template.
        let told = owner.writes().into_iter().filter_map(|write| {
            let annotations = write.body.pointer("/spec/template/metadata/annotations")?;
            Some(annotations["asya.sh/roll"].clone())
        });
        let told: Vec<_> = told.filter(Value::is_string).collect();
        assert_eq!(told, [value.clone(), json!("unbound")]);
        Ok(())
    })
    .await;
}

/// SO-5, ROLL-3, BIND-43, SIM-1
#[tokio::test]
async fn kserve_autoscaler_is_disabled_and_restored_by_one_patch_each() {
    Scenario::run("claimed", async |scenario| {
        let target = inference_service("iris", &json!({}));
        let mark = scenario.cluster().audit().mark().await?;
        let scaling = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
        let made = (INFERENCE_SERVICE, &target);
        let (owner, name) = bind_as(scenario, Kserve, made, &json!({"scaling": scaling})).await?;
        let (client, hpa) = (owner.client(), of_kserve("iris"));
        status_is(scenario, &name, "the queue scales it", REPLACED, |status| {
            all_injected(status)
                && condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
        })
        .await?;
        assert_eq!(client.get(Kind::HPA, &hpa).await?, None, "KServe's own");
        let live = client
            .get(INFERENCE_SERVICE, "iris")
            .await?
            .unwrap_or_default();
        let annotations = &live["metadata"]["annotations"];
        assert_eq!(annotations[AUTOSCALER_CLASS], "external");
        assert!(annotations["asya.sh/roll"].is_string(), "{annotations}");
        assert_eq!(owner.changes(Kind::DEPLOYMENT), 2, "made, and rolled once");
        let all = writes(scenario, mark).await?;
        let at = |is_it: &dyn Fn(&Write) -> bool| all.iter().position(|(_, it)| is_it(it));
        let gone = at(&|it| (&*it.verb, &*it.name) == ("delete", &*hpa));
        let scaled = at(&|it| it.resource == "scaledobjects");
        assert!(gone.is_some() && gone < scaled, "{gone:?}, {scaled:?}");
        let on_it = |all: &[(bool, Write)]| {
            let ours = all
                .iter()
                .filter(|(is_ours, it)| *is_ours && it.resource == "inferenceservices");
            ours.count()
        };
        assert_eq!(on_it(&all), 1);

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        let left = client
            .get(INFERENCE_SERVICE, "iris")
            .await?
            .unwrap_or_default();
        let annotations = left["metadata"]["annotations"].to_string();
        assert!(
            !annotations.contains("asya") && !annotations.contains("autoscaler"),
            "{annotations}"
        );
        assert_eq!(on_it(&writes(scenario, mark).await?), 2);
        assert_eq!(owner.changes(Kind::DEPLOYMENT), 3, "rolled once more");
        assert_eq!(with_sidecar(client, true).await?, [""; 0]);
        assert!(
            client.get(Kind::HPA, &hpa).await?.is_some(),
            "KServe's own is back"
        );
        Ok(())
    })
    .await;
}

/// SO-4, SO-5
#[tokio::test]
async fn autoscaler_class_of_a_user_is_kept() {
    Scenario::run("class", async |scenario| {
        let class = json!({AUTOSCALER_CLASS: "hpa"});
        let target = inference_service("iris", &class);
        let made = (INFERENCE_SERVICE, &target);
        let scaling = json!({"scaling": {"enabled": true}});
        let (owner, name) = bind_as(scenario, Kserve, made, &scaling).await?;
        let status = status_is(scenario, &name, "it is bound", REPLACED, |status| {
            all_injected(status)
                && condition(status, "ScalingReady") == ("False", "ScalingNotSupported")
        })
        .await?;
        let told = status["conditions"].to_string();
        assert!(told.contains("autoscalerClass is hpa"), "{told}");
        let live = owner
            .client()
            .get(INFERENCE_SERVICE, "iris")
            .await?
            .unwrap_or_default();
        assert_eq!(live["metadata"]["annotations"][AUTOSCALER_CLASS], "hpa");
        assert!(
            owner
                .client()
                .get(Kind::HPA, &of_kserve("iris"))
                .await?
                .is_some()
        );
        Ok(())
    })
    .await;
}

/// SO-5, SAFE-14: KServe rolls its Deployment when the autoscaler class changes, with strategy Recreate all pods at
/// once.
#[tokio::test]
async fn kserve_autoscaler_is_left_alone_while_disabling_it_would_stop_all_pods() {
    Scenario::run("recreated-iris", async |scenario| {
        let mut target = inference_service("iris", &json!({}));
        target["spec"]["predictor"]["deploymentStrategy"] = json!({"type": "Recreate"});
        let scaling = json!({"enabled": true, "minReplicas": 1, "maxReplicas": 3});
        let made = (INFERENCE_SERVICE, &target);
        let (owner, name) = bind_as(scenario, Kserve, made, &json!({"scaling": scaling})).await?;
        let client = owner.client();
        let class = async || -> Result<Value> {
            let live = client.get(INFERENCE_SERVICE, "iris").await?;
            Ok(live.unwrap_or_default()["metadata"]["annotations"][AUTOSCALER_CLASS].clone())
        };
        // The preceding replacement of its pods has the same reason.
        let blocker =
            "Deployment/iris-predictor: its strategy Recreate would stop all of its pods at once";
        status_is(
            scenario,
            &name,
            "its pods are replaced",
            REPLACED,
            |status| {
                all_injected(status)
                    && condition(status, "ScalingReady") == ("Unknown", "RolloutWaiting")
                    && status["conditions"].to_string().contains(blocker)
            },
        )
        .await?;
        assert_eq!(class().await?, Value::Null);
        assert_eq!(owner.changes(Kind::DEPLOYMENT), 1, "made, and not changed");

        let one = r#"{"spec": {"predictor": {"minReplicas": 1}}}"#;
        scenario
            .kubectl(&[
                "patch",
                INFERENCE_SERVICE.plural,
                "iris",
                "--type=merge",
                "-p",
                one,
            ])
            .await?;
        scenario
            .kubectl(&["scale", "deployment", &of_kserve("iris"), "--replicas=1"])
            .await?;
        status_is(scenario, &name, "the queue scales it", REPLACED, |status| {
            all_injected(status)
                && condition(status, "ScalingReady") == ("True", "ScaledObjectReady")
        })
        .await?;
        assert_eq!(class().await?, "external");
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, REPLACED).await?;
        assert_eq!(class().await?, Value::Null);
        assert_eq!(with_sidecar(client, true).await?, [""; 0]);
        Ok(())
    })
    .await;
}
