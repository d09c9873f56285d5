//! Reads the contents of the archive. Objects that cannot be read are listed in it.

use std::collections::BTreeMap;

use asya_shared::admission::CRD_NAME;
use asya_shared::api::AsyncActor;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::archive::Files;
use super::redact;
use crate::cluster::{ApiFailure, Cluster, resource};
use crate::installation::{self, OperatorDeployment};

const GROUP: &str = "asya.sh";
const SIDECAR: &str = "asya-sidecar";

/// The archive's contents so far.
#[derive(Debug, Default)]
pub struct Bundle {
    pub files: Files,
    /// Objects that could not be read, with the reason.
    pub missing: Vec<String>,
}

/// Reads everything; actors and their pods from one namespace, or from all.
pub async fn all(cluster: &Cluster, namespace: Option<&str>) -> Bundle {
    let mut bundle = Bundle::default();
    let server = bundle.read(cluster.version().await);
    let deployments = installation::deployments(cluster).await.unwrap_or_default();
    let images = deployments.into_iter().map(|it| (it.name, it.image));
    let versions = json!({
        "kubectlAsya": env!("CARGO_PKG_VERSION"),
        "kubernetes": server,
        "operator": images.collect::<BTreeMap<_, _>>(),
    });
    bundle.add("versions.yaml", &versions);
    operator(cluster, &mut bundle).await;
    actors(cluster, namespace, &mut bundle).await;
    let missing = bundle.missing.join("\n");
    bundle.files.push(("missing.txt".to_owned(), missing));
    bundle
}

/// The operator: its objects, logs and metrics.
async fn operator(cluster: &Cluster, bundle: &mut Bundle) {
    let namespace = Some(&*cluster.operator_namespace);
    let crds = resource::<CustomResourceDefinition>();
    let crd = bundle.read(cluster.get(&crds, None, CRD_NAME).await);
    bundle.add("crd.yaml", &json!(crd.flatten()));
    for kind in [
        resource::<MutatingWebhookConfiguration>(),
        resource::<ValidatingWebhookConfiguration>(),
    ] {
        let found = cluster.list(&kind, None).await;
        let is_ours = |it: &Value| it.to_string().contains(GROUP);
        bundle.list(&format!("webhooks/{}", kind.plural), found, is_ours);
    }
    let found = cluster.list(&resource::<Deployment>(), namespace).await;
    // Other programs, such as brokers and actors, may run in this namespace.
    let is_ours = |it: &Value| OperatorDeployment::of(it).is_some();
    bundle.list("operator/deployments", found, is_ours);
    for kind in [resource::<Lease>(), resource::<Event>()] {
        let found = cluster.list(&kind, namespace).await;
        bundle.list(&format!("operator/{}", kind.plural), found, |_| true);
    }
    let pods = cluster.list(&resource::<Pod>(), namespace).await;
    for pod in &bundle.list("operator/pods", pods, installation::is_operator) {
        telemetry(cluster, &cluster.operator_namespace, pod, bundle).await;
    }
}

/// Actors, and the objects that they scale, target and report.
async fn actors(cluster: &Cluster, namespace: Option<&str>, bundle: &mut Bundle) {
    let actors = cluster.list(&resource::<AsyncActor>(), namespace).await;
    for actor in &bundle.list("actors", actors, |_| true) {
        target(cluster, actor, bundle).await;
    }
    let keda = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    for kind in [
        ApiResource::from_gvk(&keda),
        resource::<HorizontalPodAutoscaler>(),
        resource::<Event>(),
    ] {
        let found = cluster.list(&kind, namespace).await;
        bundle.list(&kind.plural, found, |_| true);
    }
    let pods = cluster.list(&resource::<Pod>(), namespace).await;
    for pod in &bundle.list("pods", pods, has_sidecar) {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        log(cluster, namespace, pod, SIDECAR, bundle).await;
    }
}

/// Metadata and status of the object that an actor binds. Not its spec, which is the user's.
async fn target(cluster: &Cluster, actor: &Value, bundle: &mut Bundle) {
    let reference = &actor["spec"]["workloadRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, name, version) = (text("kind"), text("name"), text("apiVersion"));
    if name.is_empty() {
        return;
    }
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let namespace = actor["metadata"]["namespace"].as_str();
    let found = bundle.read(cluster.get(&kind, namespace, name).await);
    if let Some(mut object) = found.flatten() {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("spec");
        }
        let namespace = namespace.unwrap_or_default();
        bundle.add(
            &format!("targets/{namespace}/{}-{name}.yaml", kind.plural),
            &object,
        );
    }
}

/// Logs and metrics of a pod of the operator.
async fn telemetry(cluster: &Cluster, namespace: &str, pod: &Value, bundle: &mut Bundle) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    for container in containers(pod) {
        let container_name = container["name"].as_str().unwrap_or_default();
        log(cluster, namespace, pod, container_name, bundle).await;
        if let Some(port) = metrics_port(container) {
            let text = bundle.read(cluster.metrics(namespace, name, port).await);
            bundle.text(&format!("operator/metrics/{name}.txt"), text);
        }
    }
}

/// The log of a container, and that of its previous run.
async fn log(
    cluster: &Cluster,
    namespace: &str,
    pod: &Value,
    container: &str,
    bundle: &mut Bundle,
) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("logs/{namespace}/{name}/{container}");
    let text = bundle.read(cluster.log(namespace, name, container, false).await);
    bundle.text(&format!("{path}.log"), text);
    // A native sidecar is an init container.
    let statuses = |field: &str| pod["status"][field].as_array().into_iter().flatten();
    let mut all = statuses("containerStatuses").chain(statuses("initContainerStatuses"));
    let status = all.find(|it| it["name"] == *container);
    if status.is_some_and(|it| it["restartCount"].as_i64() > Some(0)) {
        let text = bundle.read(cluster.log(namespace, name, container, true).await);
        bundle.text(&format!("{path}.previous.log"), text);
    }
}

impl Bundle {
    fn read<T>(&mut self, result: Result<T, ApiFailure>) -> Option<T> {
        result
            .map_err(|failure| self.missing.push(failure.text))
            .ok()
    }

    /// Adds the wanted objects of a list, and returns them; none if the list could not be read.
    fn list(
        &mut self,
        path: &str,
        found: Result<Vec<Value>, ApiFailure>,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let Some(mut objects) = self.read(found) else {
            return Vec::new();
        };
        objects.retain(is_wanted);
        self.add(&format!("{path}.yaml"), &json!(objects));
        objects
    }

    /// Adds an object or a list without possible secrets.
    fn add(&mut self, path: &str, object: &Value) {
        let mut object = object.clone();
        redact::object(&mut object);
        match serde_saphyr::to_string(&object) {
            Ok(text) => self.files.push((path.to_owned(), text)),
            Err(error) => self.missing.push(format!("{path}: {error}")),
        }
    }

    fn text(&mut self, path: &str, text: Option<String>) {
        let text = text.map(|text| (path.to_owned(), redact::urls(&text)));
        self.files.extend(text);
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let all = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
    all("initContainers").chain(all("containers"))
}

fn has_sidecar(pod: &Value) -> bool {
    containers(pod).any(|it| it["name"] == SIDECAR)
}

/// The controller's metrics port; the webhook serves metrics next to its probes.
fn metrics_port(container: &Value) -> Option<u16> {
    let ports = container["ports"].as_array()?;
    let named = |name: &str| ports.iter().find(|it| it["name"] == *name);
    let port = named("metrics").or_else(|| named("health"))?;
    u16::try_from(port["containerPort"].as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;

    use super::*;

    /// docs/cli.md: the archive contains the sidecars' logs. A native sidecar restarts like any other.
    #[tokio::test]
    async fn restarted_sidecar_gives_the_log_of_its_former_run() {
        let answer = |request: Request<Body>| {
            let is_log = request.uri().path().ends_with("/log");
            assert!(is_log, "{}", request.uri());
            let response = Response::builder().body(Body::from(b"line\n".to_vec()));
            async move { response.map_err(tower::BoxError::from) }
        };
        let cluster = Cluster::of(Client::new(tower::service_fn(answer), "models"));
        for (field, restarts, expected) in [
            ("containerStatuses", 1, true),
            ("initContainerStatuses", 1, true),
            ("initContainerStatuses", 0, false),
        ] {
            let pod = json!({
                "metadata": {"name": "phi-0"},
                "status": {field: [{"name": SIDECAR, "restartCount": restarts}]},
            });
            let mut bundle = Bundle::default();
            log(&cluster, "models", &pod, SIDECAR, &mut bundle).await;
            let mut paths = bundle.files.iter().map(|it| &*it.0);
            let former = "logs/models/phi-0/asya-sidecar.previous.log";
            assert_eq!(paths.any(|it| it == former), expected, "{field} {restarts}");
        }
    }

    /// The operator may share its namespace with brokers or actors.
    #[tokio::test]
    async fn only_the_operators_own_pods_give_their_logs() {
        let answer = |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let operator = json!({"name": "manager", "env": [{"name": "ASYA_TRANSPORT_CONFIG", "value": "{}"}]});
            let spec = |container: &Value| json!({"containers": [container]});
            let (own, other) = (spec(&operator), spec(&json!({"name": "handler"})));
            let items = if path.ends_with("/deployments") {
                let of = |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": {"template": {"spec": spec}}});
                json!([of("operator", &own), of("database", &other)])
            } else if path.ends_with("/pods") {
                let of =
                    |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
                json!([of("operator-0", &own), of("database-0", &other)])
            } else {
                json!([])
            };
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            let body = Body::from(list.to_string().into_bytes());
            let response = Response::builder().body(body);
            async move { response.map_err(tower::BoxError::from) }
        };
        let cluster = Cluster::of(Client::new(tower::service_fn(answer), "m"));
        let mut bundle = Bundle::default();
        operator(&cluster, &mut bundle).await;
        let paths: Vec<&str> = bundle.files.iter().map(|it| &*it.0).collect();
        assert!(
            paths
                .iter()
                .any(|it| it.contains("logs/asya-system/operator-0/manager")),
            "{paths:?}"
        );
        let texts: Vec<String> = bundle
            .files
            .iter()
            .map(|it| format!("{}\n{}", it.0, it.1))
            .collect();
        let texts = texts.join("\n");
        assert!(!texts.contains("database"), "{texts}");
    }
}
