use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

pub(super) fn service() -> Value {
    object(
        "serving.kserve.io/v1alpha2",
        "LLMInferenceService",
        "qwen",
        &json!({
            "spec": {"model": {"uri": "hf://Qwen/Qwen2.5-7B-Instruct", "name": "qwen"}, "router": {"route": {}}},
            "status": {"url": "http://example.com", "workloads": {
                "primary": {"apiGroup": "apps", "kind": "Deployment", "name": "qwen-kserve", "readyReplicas": 1},
                "prefill": {"apiGroup": "apps", "kind": "Deployment", "name": "qwen-kserve-prefill"}}},
        }),
    )
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "qwen", "app.kubernetes.io/part-of": "llminferenceservice",
        "app.kubernetes.io/component": "llminferenceservice-workload", "kserve.io/component": "workload"})
}

pub(super) fn deployment(service: &Value, name: &str) -> Value {
    let containers = json!([{"name": "main", "image": "kserve/llmisvc-vllm:v0.20.0", "ports": [{"containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTPS"}}}]);
    by(
        service,
        workload("Deployment", name, &labels(), &containers),
    )
}

fn leaders(service: &Value, name: &str) -> Value {
    let template = json!({"metadata": {"labels": labels()}, "spec": {"containers": [{"name": "main", "image": "kserve/llmisvc-vllm:v0.20.0"}]}});
    let spec = json!({"replicas": 1, "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template, "workerTemplate": template}});
    let made = object(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        name,
        &json!({"spec": spec}),
    );
    by(service, made)
}

fn of_pod<'a>(further: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [
        ("app.kubernetes.io/name", "qwen"),
        ("app.kubernetes.io/part-of", "llminferenceservice"),
        ("kserve.io/component", "workload"),
    ];
    own.iter().chain(further).copied().collect()
}

/// RES-17
#[test]
fn llm_resolves_to_the_primary_workload_in_its_status() {
    let target = service();
    let prefill = deployment(&target, "qwen-kserve-prefill");
    let own = deployment(&target, "qwen-kserve");
    let it = found(&target, &[&prefill, &own]);
    assert_eq!(
        chain(&it),
        ["LLMInferenceService/qwen", "Deployment/qwen-kserve"]
    );
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    let annotations = vec!["spec", "annotations"];
    assert_eq!(
        it.roll,
        RolloutMethod::Annotate(it.chain[0].clone(), annotations)
    );
    assert_eq!(
        (url(&it), it.server.adapter),
        ("https://127.0.0.1:8000", "openai_chat")
    );
    let pod = of_pod(&[(POD_TEMPLATE_HASH, "5d8f7c")]);
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(
            &pods,
            &pod,
            ("apps/v1", "ReplicaSet", "qwen-kserve-5d8f7c")
        ));
        assert!(!has(
            &pods,
            &pod,
            ("apps/v1", "ReplicaSet", "qwen-kserve-prefill-5d8f7c")
        ));
    }
    assert_eq!(
        waits(&target, &[&prefill]),
        "LLMInferenceService/qwen: status.workloads.primary is Deployment/qwen-kserve, which does not belong to it \
         yet; waiting for KServe to create it"
    );
}

/// RES-17
#[test]
fn llm_without_tls_uses_plain_http() {
    let resolver = resolver_of(&service());
    let main = container("main", Some(8000));
    assert_eq!(
        resolver.server(&[main], None).url.as_deref(),
        Some("http://127.0.0.1:8000")
    );
    let with_tls = ContainerShape {
        https: true,
        ..main
    };
    assert_eq!(
        resolver.server(&[with_tls], None).url.as_deref(),
        Some("https://127.0.0.1:8000")
    );
}

/// RES-17
#[test]
fn leaders_of_an_llm_are_bound() {
    let status = json!({"status": {"workloads": {"primary": {"kind": "LeaderWorkerSet", "name": "qwen-kserve-mn", "apiGroup": "leaderworkerset.x-k8s.io"}}}});
    let target = with(service(), &status);
    let own = leaders(&target, "qwen-kserve-mn");
    let it = found(&target, &[&own]);
    assert_eq!(it.workload.to_string(), "LeaderWorkerSet/qwen-kserve-mn");
    let warned = |it: &Target| {
        it.warnings
            .iter()
            .any(|it| it.message.contains("all pods of the group"))
    };
    assert!(warned(&it), "RES-24");
    assert_eq!(scaled(&target, &[&own]), "LeaderWorkerSet/qwen-kserve-mn");
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(
            &pods,
            &of_pod(&[]),
            ("apps/v1", "StatefulSet", "qwen-kserve-mn")
        ));
        assert!(!has(
            &pods,
            &of_pod(&[]),
            ("apps/v1", "StatefulSet", "qwen-kserve-mn-0")
        ));
    }
}

/// RES-2, RES-17
#[test]
fn llm_without_status_is_found_by_name_then_by_label() {
    let target = with(service(), &json!({"status": {"workloads": null}}));
    let of = |name| deployment(&target, name);
    let prefill = of("qwen-kserve-prefill");
    assert_eq!(
        found(&target, &[&prefill, &of("qwen-kserve")])
            .workload
            .name,
        "qwen-kserve"
    );
    let mut other = of("qwen-abc");
    let mut other_prefill = of("qwen-abc-prefill");
    other_prefill["spec"]["template"]["metadata"]["labels"]["llm-d.ai/role"] = json!("prefill");
    assert_eq!(
        found(&target, &[&other_prefill, &other]).workload.name,
        "qwen-abc"
    );
    assert_eq!(
        refuses(&target, &[&other, &prefill]).message,
        "LLMInferenceService/qwen has several workloads: Deployment/qwen-abc, Deployment/qwen-kserve-prefill; set spec.workloadRef to one of them, in a new AsyncActor"
    );
    other["spec"]["template"]["metadata"]["labels"] =
        json!({"app.kubernetes.io/component": "router-scheduler"});
    assert_eq!(
        waits(&target, &[&other]),
        "LLMInferenceService/qwen has neither a Deployment nor a LeaderWorkerSet yet; waiting for KServe to create one"
    );
}

/// SO-4, RES-17
#[test]
fn llm_with_replicas_set_by_kserve_is_not_scaled() {
    let own = deployment(&service(), "qwen-kserve");
    assert_eq!(
        not_scaled(&with(service(), &json!({"spec": {"replicas": 2}})), &[&own]),
        "LLMInferenceService/qwen: spec.replicas is set, and KServe keeps that number; remove it, or set spec.scaling.enabled of the AsyncActor to false"
    );
    let scaling = json!({"spec": {"scaling": {"minReplicas": 1, "maxReplicas": 4, "keda": {}}}});
    assert_eq!(
        not_scaled(&with(service(), &scaling), &[&own]),
        "LLMInferenceService/qwen: spec.scaling is set, so KServe scales it; remove it, or set spec.scaling.enabled of the AsyncActor to false"
    );
}
