use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

const V: &str = "kaito.sh/v1beta1";

pub(super) fn workspace() -> Value {
    object(
        V,
        "Workspace",
        "phi",
        &json!({
            "resource": {"instanceType": "Standard_NC24ads_A100_v4", "labelSelector": {"matchLabels": {"apps": "phi"}}},
            "inference": {"preset": {"name": "phi-4-mini-instruct"}},
            "status": {"targetNodeCount": 1, "workerNodes": ["gpu-1"], "state": "Ready",
                "conditions": [{"type": "InferenceReady", "status": "True"}]},
        }),
    )
}

pub(super) fn stateful_set(workspace: &Value) -> Value {
    let name = workspace["metadata"]["name"].as_str().unwrap();
    let containers = json!([{"name": name, "image": "mcr.microsoft.com/aks/kaito/kaito-base:0.1", "ports": [{"containerPort": 5000}]}]);
    let made = workload(
        "StatefulSet",
        name,
        &json!({"kaito.sh/workspace": name}),
        &containers,
    );
    by(workspace, made)
}

/// RES-2, RES-13
#[test]
fn workspace_resolves_to_the_stateful_set_that_it_owns() {
    let target = workspace();
    let own = stateful_set(&target);
    let mut other = stateful_set(&workspace());
    other["metadata"]["ownerReferences"][1]["uid"] = json!("an earlier Workspace of this name");
    other["metadata"]["name"] = json!("other");

    let it = found(&target, &[&other, &own]);
    assert_eq!(chain(&it), ["Workspace/phi", "StatefulSet/phi"]);
    assert_eq!(it.workload.uid.as_deref(), Some("StatefulSet-phi"));
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:5000", "openai_chat")
    );
    assert_eq!(
        it.to_status("models").pod_selector.as_deref(),
        Some("kaito.sh/workspace=phi")
    );
    assert_eq!(
        waits(&target, &[&other]),
        "Workspace/phi has no StatefulSet yet; waiting for KAITO to create it"
    );
}

/// RES-13
#[test]
fn workspace_of_an_older_kaito_resolves_to_a_deployment() {
    let target = workspace();
    let mut own = stateful_set(&target);
    own["kind"] = json!("Deployment");
    let it = found(&target, &[&own]);
    assert_eq!(it.workload.to_string(), "Deployment/phi");
    let labels = [("kaito.sh/workspace", "phi"), (POD_TEMPLATE_HASH, "5d8f7c")];
    assert!(has(
        &it.pods,
        &labels,
        ("apps/v1", "ReplicaSet", "phi-5d8f7c")
    ));
    assert!(has(
        &unresolved_pods(&target),
        &labels,
        ("apps/v1", "ReplicaSet", "phi-5d8f7c")
    ));

    assert_eq!(
        refuses(&target, &[&own, &stateful_set(&target)]),
        Finding::new(
            FindingReason::Ambiguous,
            "Workspace/phi has several workloads: Deployment/phi, StatefulSet/phi; set spec.workloadRef to one of them, in a new AsyncActor"
        )
    );
}

/// RES-5, RES-13
#[test]
fn pods_of_a_workspace_match_before_it_is_resolved_and_jobs_do_not() {
    let target = workspace();
    let label = [("kaito.sh/workspace", "phi")];
    for pods in [
        unresolved_pods(&target),
        found(&target, &[&stateful_set(&target)]).pods,
    ] {
        assert!(has(&pods, &label, ("apps/v1", "StatefulSet", "phi")));
        assert!(!has(&pods, &label, ("batch/v1", "Job", "phi")));
        assert!(!has(&pods, &label, ("apps/v1", "StatefulSet", "phi-2")));
        assert!(!has(&pods, &[], ("apps/v1", "StatefulSet", "phi")));
    }
}

/// RES-13
#[test]
fn tuning_workspace_is_refused() {
    let target = with(workspace(), &json!({"tuning": {"method": "qlora"}}));
    assert_eq!(
        refuses(&target, &[]),
        Finding::new(
            FindingReason::UnsupportedTarget,
            "Workspace/phi: tuning is set, and a tuning job finishes; bind a Workspace with inference"
        )
    );
}

/// SO-4
#[test]
fn workspace_scales_only_if_one_pod_is_a_whole_model() {
    let own = stateful_set(&workspace());
    assert_eq!(
        warnings(&workspace(), &[&own]),
        [(
            CaveatReason::ScalingCaveat,
            "each additional replica of StatefulSet/phi needs a node of its own that fits Workspace/phi, and KAITO \
             does not provision it: provide the nodes, or bind an InferenceSet".to_owned()
        )]
    );
    let two = with(workspace(), &json!({"status": {"targetNodeCount": 2}}));
    assert_eq!(
        not_scaled(&two, &[&own]),
        "Workspace/phi: status.targetNodeCount is 2, so the replicas of StatefulSet/phi are the nodes of one model; bind an InferenceSet, which scales by whole models, or set spec.scaling.enabled to false"
    );
    assert_eq!(warnings(&two, &[&own]), []);
    let new = with(workspace(), &json!({"status": {"targetNodeCount": null}}));
    assert_eq!(
        not_scaled(&new, &[&own]),
        "Workspace/phi: status.targetNodeCount is missing; scaling starts once KAITO has set it to 1"
    );
    let message = "Workspace/phi belongs to InferenceSet/fleet, which scales it; set spec.workloadRef to InferenceSet/fleet in a new AsyncActor, or set spec.scaling.enabled to false";
    let one_of_many = by(&inference_set(), workspace());
    assert_eq!(not_scaled(&one_of_many, &[&own]), message);
    assert_eq!(
        warnings(&one_of_many, &[&own]),
        [(
            CaveatReason::HasOwner,
            "Workspace/phi belongs to InferenceSet/fleet: set spec.workloadRef to InferenceSet/fleet instead, in a new AsyncActor".to_owned()
        )]
    );
    let by_label = json!({"metadata": {"labels": {"inferenceset.kaito.sh/created-by": "fleet"}}});
    assert_eq!(not_scaled(&with(workspace(), &by_label), &[&own]), message);
}

/// RES-13
#[test]
fn model_behind_the_routing_sidecar_is_on_the_next_port() {
    let server = resolver_of(&workspace());
    let containers = [
        container("phi", Some(5001)),
        container("llm-d-routing-sidecar", Some(5000)),
    ];
    let url = |containers: &[_]| server.server(containers, None).url.unwrap();
    assert_eq!(url(&containers), "http://127.0.0.1:5001");
    assert_eq!(url(&containers[..1]), "http://127.0.0.1:5000");
}

pub(super) fn inference_set() -> Value {
    object(
        V,
        "InferenceSet",
        "fleet",
        &json!({
            "spec": {"replicas": 2, "labelSelector": {"matchLabels": {"apps": "phi"}},
                "template": {"resource": {"instanceType": "Standard_NC24ads_A100_v4"}, "inference": {"preset": {"name": "phi-4"}}}},
            "status": {"replicas": 2, "readyReplicas": 1, "selector": "inferenceset.kaito.sh/created-by=fleet"},
        }),
    )
}

pub(super) fn two_models(set: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for name in ["fleet-x7k2p", "fleet-9qwzt"] {
        let mut one = by(set, workspace());
        one["metadata"]["name"] = json!(name);
        one["metadata"]["uid"] = json!(name);
        one["metadata"]["labels"] = json!({"inferenceset.kaito.sh/created-by": "fleet"});
        all.push(stateful_set(&one));
        all.push(one);
    }
    all
}

/// RES-14, BIND-4
#[test]
fn inference_set_groups_the_pods_of_all_its_workspaces() {
    let target = inference_set();
    let models = two_models(&target);
    let all: Vec<_> = models.iter().collect();
    let it = found(&target, &all);
    assert_eq!(it.workload.to_string(), "InferenceSet/fleet");
    assert_eq!(
        chain(&it),
        [
            "InferenceSet/fleet",
            "Workspace/fleet-x7k2p",
            "StatefulSet/fleet-x7k2p",
            "Workspace/fleet-9qwzt",
            "StatefulSet/fleet-9qwzt"
        ]
    );
    let RolloutMethod::AnnotateTemplate(rolled) = &it.roll else {
        panic!("{it:?}");
    };
    assert_eq!(rolled.len(), 2);
    assert_eq!(scaled(&target, &all), "InferenceSet/fleet");
    assert_eq!(
        warnings(&target, &all),
        [(
            CaveatReason::ScalingCaveat,
            "InferenceSet/fleet: KAITO before v0.11 cannot scale to 0; with such a release set spec.scaling.minReplicas to 1".to_owned()
        )]
    );
    let label = [
        ("kaito.sh/workspace", "fleet-new"),
        ("inferenceset.kaito.sh/created-by", "fleet"),
    ];
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(&pods, &label, ("apps/v1", "StatefulSet", "fleet-new")));
        assert!(!has(&pods, &label, ("batch/v1", "Job", "fleet-new")));
        assert!(!has(
            &pods,
            &label[..1],
            ("apps/v1", "StatefulSet", "fleet-new")
        ));
    }
}

/// RES-14
#[test]
fn inference_set_without_models_waits_unless_it_is_scaled_to_zero() {
    let target = inference_set();
    assert_eq!(
        waits(&target, &[]),
        "InferenceSet/fleet: none of its Workspaces has a StatefulSet yet; waiting for KAITO to create one"
    );
    let napping = with(target, &json!({"spec": {"replicas": 0}}));
    let it = found(&napping, &[]);
    assert_eq!(it.roll, RolloutMethod::AnnotateTemplate(Vec::new()));
    assert_eq!(url(&it), "http://127.0.0.1:5000");
}

/// SO-4, RES-14
#[test]
fn inference_set_scaled_by_kaito_is_not_scaled() {
    let annotation =
        json!({"metadata": {"annotations": {"scaledobject.kaito.sh/auto-provision": "true"}}});
    let target = with(inference_set(), &annotation);
    let models = two_models(&target);
    assert_eq!(
        not_scaled(&target, &models.iter().collect::<Vec<_>>()),
        "InferenceSet/fleet: annotation scaledobject.kaito.sh/auto-provision is \"true\", so KAITO creates its own \
         ScaledObject; remove that annotation, or set spec.scaling.enabled to false"
    );
}
