//! KEDA's operator and metrics adapter, configured like KEDA's own installation.

use std::path::Path;
use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{Backend, Cluster};
use crate::crds;
use crate::error::{Context, Error, Result};
use crate::eventually::{check, eventually};
use crate::pki::{TestCa, Use};
use crate::ports;
use crate::process::{Process, Spec};

/// The process that scales workloads and gives queue lengths to the adapter.
pub const OPERATOR: &str = "keda-operator";
/// The process that serves the external metrics API to the HPA controller.
pub const ADAPTER: &str = "keda-adapter";

const NAMESPACE: &str = "keda";
const SERVICE: &str = "keda-metrics-apiserver";
const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";
/// An aggregated API needs an endpoint address to be considered available, but nothing connects to this one.
const NOWHERE: &str = "203.0.113.9";
const START: Duration = Duration::from_mins(1);
/// An API server deletes a CRD's objects first, and KEDA must remove its finalizer from each.
const REMOVAL: Duration = Duration::from_mins(3);

/// The ports of both processes.
struct Ports {
    metrics_service: u16,
    health: u16,
    adapter: u16,
}

/// Installs KEDA and waits until the external metrics API responds.
pub(crate) async fn start(bin: &Path, cluster: &Cluster) -> Result<Vec<Process>> {
    let client = cluster.client();
    install_crds(&client, &bin.join("../crds")).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    apply(&client, &namespace).await?;
    let certificates = cluster.folder().join("keda");
    write_certificates(&certificates)?;
    let ports = Ports {
        metrics_service: ports::free()?,
        health: ports::free()?,
        adapter: ports::free()?,
    };
    let operator = Process::start(operator(bin, cluster, &certificates, &ports)?).await?;
    let ready = format!("http://127.0.0.1:{}/readyz", ports.health);
    let http = crate::http_client()?;
    let started = eventually("KEDA's operator is ready", START, async || {
        let status = http.get(&ready).send().await?.status();
        check(status.is_success(), status)
    });
    operator.alive_while(started).await?;
    let adapter = Process::start(adapter(bin, cluster, &certificates, &ports)?).await?;
    cluster.set_route(
        NAMESPACE,
        SERVICE,
        443,
        &[Backend {
            address: format!("127.0.0.1:{}", ports.adapter),
            ready: None,
        }],
    )?;
    for object in api_objects() {
        apply(&client, &object).await?;
    }
    let api = api(&client, "apiregistration.k8s.io/v1", "APIService", None);
    let available = eventually("the API of external metrics answers", START, async || {
        let conditions = &api.get(API_SERVICE).await?.data["status"]["conditions"];
        let available = conditions.as_array().is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition["type"] == "Available" && condition["status"] == "True")
        });
        check(available, conditions)
    });
    adapter.alive_while(available).await?;
    Ok(vec![operator, adapter])
}

/// Unregisters the external metrics API: while it is registered but unavailable, no namespace can be deleted.
pub(crate) async fn unregister(client: &Client) -> Result<()> {
    let api = api(client, "apiregistration.k8s.io/v1", "APIService", None);
    ignore_missing(api.delete(API_SERVICE, &DeleteParams::default()).await)
}

/// Removes KEDA's CRDs, and with them every `ScaledObject`. KEDA's operator must still run to remove their finalizers.
pub(crate) async fn remove_crds(client: &Client) -> Result<()> {
    let api = api(
        client,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
    );
    let names = [
        "scaledobjects.keda.sh",
        "scaledjobs.keda.sh",
        "triggerauthentications.keda.sh",
        "clustertriggerauthentications.keda.sh",
    ];
    for name in names {
        ignore_missing(api.delete(name, &DeleteParams::default()).await)?;
    }
    eventually("KEDA's CRDs are gone", REMOVAL, async || {
        for name in names {
            check(api.get_opt(name).await?.is_none(), name)?;
        }
        Ok(())
    })
    .await
}

fn ignore_missing<T>(deleted: kube::Result<T>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn install_crds(client: &Client, folder: &Path) -> Result<()> {
    let files = std::fs::read_dir(folder).context(format_args!("read {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let path = file.context("read a folder")?.path();
        let text =
            std::fs::read_to_string(&path).context(format_args!("read {}", path.display()))?;
        let crd: Value = serde_saphyr::from_str(&text).map_err(Error::other)?;
        names.push(text_at(&crd, "/metadata/name")?.to_owned());
        apply(client, &crd).await?;
    }
    for name in names {
        crds::established(client, &name, START).await?;
    }
    Ok(())
}

fn write_certificates(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).context(format_args!("make {}", folder.display()))?;
    let authority = TestCa::new("keda-ca")?;
    authority.write(folder, "ca")?;
    // One certificate for both, because the adapter is a client of the operator.
    let service = format!("{SERVICE}.{NAMESPACE}.svc");
    let hosts = ["localhost", "127.0.0.1", service.as_str()];
    authority.issue(folder, "tls", "keda", &hosts, Use::Both)
}

/// Restarts a program after a Go panic, as a kubelet would: KEDA 2.16 dereferences nil when it reads a `ScaledObject`
/// from its cache before its own status update.
const RESTART: &str = r#"while setpriv --pdeathsig KILL -- "$0" "$@"; [ $? = 2 ]; do :; done"#;

fn spec(name: &str, bin: &Path, cluster: &Cluster) -> Spec {
    let folder = cluster.folder();
    let program = bin.join(name).display().to_string();
    Spec::new(name, "/bin/sh")
        .args(["-c", RESTART, &program])
        .log(folder.join(format!("{name}.log")))
        .env("HOME", folder.display())
        .env("KUBECONFIG", cluster.state().kubeconfig.display())
        // Empty means all namespaces.
        .env("WATCH_NAMESPACE", "")
        .env("KEDA_CLUSTER_OBJECT_NAMESPACE", NAMESPACE)
        .env("POD_NAMESPACE", NAMESPACE)
        // The default limits would need minutes for a few hundred `ScaledObjects`.
        .env("KEDA_SCALEDOBJECT_CTRL_MAX_RECONCILES", "20")
        .args(["--kube-api-qps=2000", "--kube-api-burst=4000"])
}

fn operator(bin: &Path, cluster: &Cluster, certificates: &Path, ports: &Ports) -> Result<Spec> {
    Ok(spec(OPERATOR, bin, cluster).args([
        format!("--cert-dir={}", certificates.display()),
        format!("--metrics-bind-address=127.0.0.1:{}", ports::free()?),
        format!("--health-probe-bind-address=127.0.0.1:{}", ports.health),
        format!(
            "--metrics-service-bind-address=127.0.0.1:{}",
            ports.metrics_service
        ),
    ]))
}

fn adapter(bin: &Path, cluster: &Cluster, certificates: &Path, ports: &Ports) -> Result<Spec> {
    let kubeconfig = cluster.state().kubeconfig.display();
    Ok(spec(ADAPTER, bin, cluster).args([
        format!("--cert-dir={}", certificates.display()),
        format!("--tls-cert-file={}", certificates.join("tls.crt").display()),
        format!(
            "--tls-private-key-file={}",
            certificates.join("tls.key").display()
        ),
        format!(
            "--client-ca-file={}",
            cluster.folder().join("ca.crt").display()
        ),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.adapter),
        format!("--port={}", ports::free()?),
        format!(
            "--metrics-service-address=localhost:{}",
            ports.metrics_service
        ),
        format!("--lister-kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
    ]))
}

/// The aggregated API and its Service.
fn api_objects() -> [Value; 4] {
    let metadata = json!({"name": SERVICE, "namespace": NAMESPACE});
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata,
            "subsets": [{"addresses": [{"ip": NOWHERE}], "ports": [{"name": "https", "port": 6443}]}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": SERVICE, "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NOWHERE], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"name": SERVICE, "namespace": NAMESPACE, "port": 443},
            },
        }),
    ]
}

/// Applies any object by server-side apply.
async fn apply(client: &Client, object: &Value) -> Result<()> {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    let api = api(
        client,
        text_at(object, "/apiVersion")?,
        text_at(object, "/kind")?,
        namespace,
    );
    let name = text_at(object, "/metadata/name")?;
    let params = PatchParams::apply("asya-tests").force();
    api.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

fn api(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = match kind.kind.as_str() {
        "Endpoints" => ApiResource::from_gvk_with_plural(&kind, "endpoints"),
        _ => ApiResource::from_gvk(&kind),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .ok_or_else(|| Error::Other(format!("an object without {pointer}")))
}
