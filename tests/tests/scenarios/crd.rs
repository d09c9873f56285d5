//! The CRD on a real API server: only this tests its schema validation, cost limits and ratcheting.

use asya_crds::corpus::{Case, cases, former_actors};
use asya_tests::Result;
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::crds;
use asya_tests::eventually::SOON;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::own_cluster;

const NAMESPACE: &str = "corpus";

/// API-1, API-4, API-5, VAC-2, VAL-18, VAL-1, VAL-2, VAL-12, VAL-13, VAL-14, BIND-10, BIND-11, BIND-12, BIND-13,
/// BIND-14, BIND-15, BIND-16, BIND-17, BIND-18, BIND-19
#[tokio::test]
async fn crd_accepts_and_refuses_what_it_should() {
    let _turn = own_cluster().await;
    let options = Options {
        rabbitmq: false,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    for namespace in [NAMESPACE, "compat"] {
        cluster
            .kubectl(&["create", "namespace", namespace])
            .await
            .unwrap();
    }
    let crd: Value = serde_saphyr::from_str(&asya_crds::yaml().unwrap()).unwrap();
    let old = refused_at_creation();

    apply_crd(&cluster, &without_rules(crd.clone())).await;
    let api = actors(cluster.client(), NAMESPACE);
    for actor in &old {
        api.create(&PostParams::default(), actor).await.unwrap();
    }
    apply_crd(&cluster, &crd).await;
    let version = cluster.client().apiserver_version().await.unwrap();
    let minor: u32 = version.minor.parse().unwrap();
    for actor in &old {
        stays_writable(&api, actor, minor).await;
    }

    for case in cases().unwrap() {
        check_case(&api, &case).await;
    }
    for actor in former_actors().unwrap() {
        let api = actors(cluster.client(), "compat");
        let stored = create(&api, &actor).await.unwrap();
        assert_eq!(stored.data["spec"], actor["spec"]);
    }
    scale_subresource_is_the_number_of_replicas(&cluster)
        .await
        .unwrap();
    // Use a fresh discovery cache: kubectl's predates the CRD.
    let fresh = format!("--cache-dir={}", cluster.folder().join("fresh").display());
    let text = cluster
        .kubectl(&["explain", "asya.spec.scaling", &fresh])
        .await
        .unwrap();
    assert!(
        text.contains("Minimum number of pods. Default: 0"),
        "{text}"
    );
}

/// API-1: as in docs/guides/multi-tenancy.md.
async fn scale_subresource_is_the_number_of_replicas(cluster: &Cluster) -> Result<()> {
    let api = actors(cluster.client(), NAMESPACE);
    let cache = format!("--cache-dir={}", cluster.folder().join("scale").display());
    let scale = async |name: &str| {
        let actor = format!("asya/{name}");
        let all = [
            "scale",
            &actor,
            "--replicas=2",
            "--namespace",
            NAMESPACE,
            &cache,
        ];
        cluster.kubectl(&all).await
    };
    for (name, mode) in [
        ("scaled", json!({"workload": {"template": {}}})),
        (
            "bound",
            json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}),
        ),
    ] {
        let mut actor = json!({
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": name}, "spec": mode,
        });
        actor["spec"]["transport"] = json!("rabbitmq");
        api.create(&PostParams::default(), &object(&actor)).await?;
        let unset = api.get_scale(name).await;
        assert!(unset.is_err(), "{name}: {unset:?}");
    }
    scale("scaled").await?;
    let scaled = api.get_scale("scaled").await?;
    assert_eq!(scaled.spec.and_then(|it| it.replicas), Some(2));
    assert_eq!(
        api.get("scaled").await?.data["spec"]["workload"]["replicas"],
        2
    );
    let refused = scale("bound").await.unwrap_err().to_string();
    assert!(refused.contains("spec.workload.template"), "{refused}");
    Ok(())
}

fn actors(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
    let resource = ApiResource::from_gvk_with_plural(&kind, "asyncactors");
    Api::namespaced_with(client, namespace, &resource)
}

/// Applies a CRD and waits until the API server enforces it: a new schema takes effect some time after the response.
async fn apply_crd(cluster: &Cluster, crd: &Value) {
    let file = cluster.folder().join("crd.json");
    std::fs::write(&file, crd.to_string()).unwrap();
    let file = file.display().to_string();
    cluster
        .kubectl(&["apply", "--server-side", "--filename", &file])
        .await
        .unwrap();
    crds::established(&cluster.client(), crds::ACTORS, SOON)
        .await
        .unwrap();
    let judges = crd.to_string().contains("x-kubernetes-validations");
    let without_transport = json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": "probe"},
        "spec": {"transport": "", "workload": {"template": {}}},
    });
    let probe = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = actors(cluster.client(), NAMESPACE);
    let object = object(&without_transport);
    asya_tests::eventually::eventually("the API server judges by the CRD", SOON, async || {
        let refused = match api.create(&probe, &object).await {
            Ok(_) => false,
            Err(kube::Error::Api(status)) if status.code == 422 => true,
            Err(other) => return Err(other.into()),
        };
        asya_tests::eventually::check(refused == judges, format_args!("refused: {refused}"))
    })
    .await
    .unwrap();
}

/// The CRD as it was before it had validation rules.
fn without_rules(crd: Value) -> Value {
    match crd {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(key, _)| key != "x-kubernetes-validations")
            .map(|(key, value)| (key, without_rules(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_rules).collect(),
        other => other,
    }
}

/// Objects that violate the rules and are already stored.
fn refused_at_creation() -> Vec<DynamicObject> {
    let refused = cases().unwrap().into_iter().filter(|case| {
        // Negative replicas were never accepted: the scale subresource rejects them, too.
        case.old.is_none()
            && case
                .refusal
                .as_ref()
                .is_some_and(|it| it.by_crd && it.path != "spec.workload.replicas")
    });
    let old: Vec<_> = refused
        .enumerate()
        .map(|(number, case)| {
            let mut actor = object(&case.new);
            actor.metadata.name = Some(format!("old-{number}"));
            actor.metadata.finalizers = Some(vec!["asya.sh/finalizer".to_owned()]);
            actor
        })
        .collect();
    assert!(old.len() > 20);
    old
}

/// From this minor version of Kubernetes on, the status can be written regardless of which rules the rest of the object
/// violates.
const STATUS_RATCHETS: u32 = 33;

/// An actor's labels, status and deletion do not depend on its spec. Before Kubernetes 1.33, the status does if the
/// spec violates a CEL rule.
async fn stays_writable(api: &Api<DynamicObject>, actor: &DynamicObject, minor: u32) {
    let name = actor.metadata.name.as_deref().unwrap();
    let params = PatchParams::default();
    let spec = &actor.data["spec"];
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    api.patch(name, &params, &label)
        .await
        .unwrap_or_else(|error| panic!("label of {spec}: {error}"));
    for status in ["WorkloadError", "Terminating"] {
        let status = Patch::Merge(json!({"status": {"status": status}}));
        let written = api.patch_status(name, &params, &status).await;
        let is_known = |error: &kube::Error| {
            minor < STATUS_RATCHETS
                && matches!(error, kube::Error::Api(status) if status.code == 422)
        };
        if let Err(error) = written
            && !is_known(&error)
        {
            panic!("status of {spec}: {error}");
        }
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &params, &free)
        .await
        .unwrap_or_else(|error| panic!("finalizer of {spec}: {error}"));
}

async fn check_case(api: &Api<DynamicObject>, case: &Case) {
    let name = case.new["metadata"]["name"].as_str().unwrap();
    let outcome = match &case.old {
        None => create(api, &case.new).await,
        Some(old) => {
            let stored = create(api, old).await.unwrap();
            let mut new = object(&case.new);
            new.metadata.resource_version = stored.metadata.resource_version;
            api.replace(name, &PostParams::default(), &new).await
        }
    };
    let about = format!("{:?} {}", case.rules, case.new);
    match (outcome, case.refusal.as_ref().filter(|it| it.by_crd)) {
        (Ok(stored), None) => {
            assert_eq!(stored.data["spec"], case.new["spec"], "{about}");
            let writes = if case.old.is_some() { 2 } else { 1 };
            assert_eq!(stored.metadata.generation, Some(writes), "{about}");
        }
        (Err(kube::Error::Api(status)), Some(refusal)) => {
            assert_eq!(status.code, 422, "{about}: {}", status.message);
            let path = format!("{}: ", refusal.path);
            let told = status.message.contains(&path) && status.message.contains(&refusal.text);
            assert!(told, "{about}: {}", status.message);
        }
        (outcome, _) => panic!("{about}: {outcome:?}"),
    }
    let _ = api.delete(name, &DeleteParams::default()).await;
}

async fn create(api: &Api<DynamicObject>, actor: &Value) -> Result<DynamicObject, kube::Error> {
    api.create(&PostParams::default(), &object(actor)).await
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}
