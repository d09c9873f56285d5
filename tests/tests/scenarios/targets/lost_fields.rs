//! API versions in which a change of ours would remove fields of a target.

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::llmisvc::{LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::{Kind, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::systems::bind;
use crate::admission::Stage;
use crate::binding::{condition, status_is};
use crate::own_cluster;

/// A newer version of the same kind.
const NEWER: Kind = Kind::new(
    LLM_INFERENCE_SERVICE.group,
    "v1alpha3",
    LLM_INFERENCE_SERVICE.kind,
    LLM_INFERENCE_SERVICE.plural,
);

/// Adds a version in which `spec` is atomic, as in KServe's v1alpha1: a server-side apply of one annotation replaces
/// the whole spec, without a conflict with managers that wrote in another version.
async fn add_version(scenario: &Scenario, is_stored: bool) -> Result<()> {
    crds::install(scenario.cluster(), &[LLM_INFERENCE_SERVICE]).await?;
    let name = format!("{}.{}", NEWER.plural, NEWER.group);
    let api: Api<CustomResourceDefinition> = Api::all(scenario.client());
    let crd = api.get(&name).await?;
    let mut versions = serde_json::to_value(crd.spec.versions)?;
    let all = versions.as_array_mut().map(std::mem::take);
    let mut all = all.unwrap_or_default();
    all.retain(|it| it["name"] == LLM_INFERENCE_SERVICE.version);
    let mut newer = all[0].clone();
    newer["name"] = json!(NEWER.version);
    newer["schema"]["openAPIV3Schema"] = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": true},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    all[0]["storage"] = json!(!is_stored);
    newer["storage"] = json!(is_stored);
    all.push(newer);
    let patch = json!({"spec": {"versions": all}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    eventually("the version is served", SOON, async || {
        let served = client.list(NEWER).await;
        check(served.is_ok(), format_args!("{served:?}"))
    })
    .await
}

/// A service with the default that the CRD sets.
fn service() -> Value {
    let mut service = llm_inference_service("qwen");
    service["spec"]["template"]["containers"][0]["ports"][0]["protocol"] = json!("TCP");
    service
}

/// Binds a service; returns its spec as the API server serves it to its owner, once status satisfies `until`.
async fn bound(
    name: &str,
    is_stored: bool,
    until: impl Fn(&Value) -> bool,
    verify: impl Fn(&Value),
) {
    let _turn = own_cluster().await;
    let stage = Stage::set(&[]).await.unwrap();
    Scenario::run_on(Ok((*stage.cluster).clone()), name, async |scenario| {
        add_version(scenario, is_stored).await?;
        let target = service();
        let made = (LLM_INFERENCE_SERVICE, &target);
        let (owner, actor) = bind(scenario, LlmIsvc, made).await?;
        status_is(scenario, &actor, "a rollout is planned", SOON, until).await?;
        let live = owner.client().get(LLM_INFERENCE_SERVICE, "qwen").await?;
        let spec = live.unwrap_or_default()["spec"].clone();
        verify(&spec);
        scenario
            .kubectl(&["delete", "asya", &actor, "--timeout=60s"])
            .await?;
        let live = owner.client().get(LLM_INFERENCE_SERVICE, "qwen").await?;
        let spec = live.unwrap_or_default()["spec"].clone();
        for field in ["model", "template"] {
            assert_eq!(spec[field], target["spec"][field], "{spec}");
        }
        assert!(!spec.to_string().contains("asya.sh"), "{spec}");
        Ok(())
    })
    .await;
}

/// SAFE-41
#[tokio::test]
async fn annotation_that_would_replace_the_whole_spec_is_not_written() {
    let refused = |status: &Value| {
        condition(status, "Injected") == ("False", "RolloutWaiting")
            && status["conditions"]
                .to_string()
                .contains("would also remove spec.model")
    };
    let spec = service()["spec"].clone();
    bound("lost-fields", true, refused, |live| assert_eq!(*live, spec)).await;
}

/// RES-1
#[tokio::test]
async fn annotation_is_written_in_the_version_that_the_crd_stores() {
    let rolled = |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
    let spec = service()["spec"].clone();
    bound("stored", false, rolled, |live| {
        assert!(live["annotations"]["asya.sh/roll"].is_string(), "{live}");
        for field in ["model", "template"] {
            assert_eq!(live[field], spec[field], "{live}");
        }
    })
    .await;
}
