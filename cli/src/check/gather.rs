//! Reads what the checks need. What the user may not read is recorded as such, and the other checks continue.

use std::sync::Arc;
use std::time::Duration;

use asya_certs::data::Data;
use asya_shared::admission::CRD_NAME;
use asya_shared::api::AsyncActor;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::lease::{self, ObservedLease};
use super::permissions::{self, Needed};
use super::reading::Read;
use crate::answer::Failure;
use crate::cluster::{ApiFailure, Cluster, Permission, resource};
use crate::installation::{self, ControllerLocation, Installation, OperatorDeployment, TLS_SECRET};
use crate::queue::{self, ActorQueueState};

const WEBHOOK_SERVICE: &str = "--webhook-service=";
/// Key for the namespaces whose actors the controller manages.
const WATCHED: &str = "watch-namespaces";
const KEDA_CRD: &str = "scaledobjects.keda.sh";
/// Each watched namespace needs dozens of access reviews.
const CONCURRENT_REVIEWS: usize = 16;

/// Inputs of `check`.
#[derive(Debug)]
pub struct Observed {
    /// Version of the API server.
    pub version: String,
    pub crd: Read<Option<Value>>,
    pub keda: Read<bool>,
    pub operator_namespace: String,
    pub deployments: Read<Vec<OperatorDeployment>>,
    /// The controllers of all operators in the cluster.
    pub controllers: Read<Vec<ControllerLocation>>,
    /// Whether the operator has each permission that it needs.
    pub operator_permissions: Read<Vec<(Needed, bool)>>,
    pub lease: Read<Option<ObservedLease>>,
    pub validating_configurations: Read<Vec<Value>>,
    pub mutating_configurations: Read<Vec<Value>>,
    /// The Secret with the webhook's certificate.
    pub serving_secret: Read<Option<Data>>,
    /// The number of ready endpoints of the webhook's Service, if it has one.
    pub endpoints: Read<Option<usize>>,
    /// The API server's response to an actor that only the webhook rejects.
    pub review: Review,
    pub installation: Read<Installation>,
    pub actors: Read<Vec<Value>>,
    /// The actors' queues, from the brokers that could be reached.
    pub queues: Vec<ActorQueueState>,
    /// The queues that are missing from it, and why.
    pub notes: Vec<String>,
}

/// Inputs of `check --pre`.
#[derive(Debug)]
pub struct Prerequisites {
    pub version: String,
    pub crd: Read<Option<Value>>,
    pub keda: Read<bool>,
    pub operator_namespace: String,
    /// The controllers of all operators in the cluster.
    pub controllers: Read<Vec<ControllerLocation>>,
    /// Whether the user has each permission that installing needs.
    pub permissions: Vec<(Permission, Read<bool>)>,
}

/// The response to a dry run of an actor that breaks a rule of the webhook but none of the CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// The webhook rejects it, as it should.
    Rejected,
    /// The API server admits it: the webhook is not called, or does not answer.
    Admitted,
    Unknown(String),
}

/// Permissions to create the chart's cluster-wide objects.
const INSTALL_PERMISSIONS: [Permission; 5] = [
    create("apiextensions.k8s.io", "customresourcedefinitions"),
    create("rbac.authorization.k8s.io", "clusterroles"),
    create("rbac.authorization.k8s.io", "clusterrolebindings"),
    create(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    create("apps", "deployments"),
];

const fn create(group: &'static str, resource: &'static str) -> Permission {
    Permission {
        verb: "create",
        group,
        resource,
    }
}

/// Reads everything that `check` needs.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn installed(cluster: &Arc<Cluster>, timeout: Duration) -> Result<Observed, Failure> {
    let version = cluster.version().await?;
    let actor_kind = resource::<AsyncActor>();
    let validating = resource::<ValidatingWebhookConfiguration>();
    let mutating = resource::<MutatingWebhookConfiguration>();
    let (crd, keda, deployments, mut lease, validating, mutating, review, installation, actors) = futures::join!(
        crd(cluster, CRD_NAME),
        crd(cluster, KEDA_CRD),
        installation::deployments(cluster),
        lease::read(cluster),
        cluster.list(&validating, None),
        cluster.list(&mutating, None),
        review(cluster),
        Installation::read(cluster),
        cluster.list(&actor_kind, None),
    );
    let deployments = deployments.map_err(|failure| failure.to_string());
    let found = deployments.as_deref().unwrap_or_default();
    let (controllers, operator_permissions, serving_secret, endpoints, is_renewed, (queues, notes)) = futures::join!(
        controllers(cluster),
        operator_permissions(cluster, found),
        serving_secret(cluster, found),
        endpoints(cluster, found),
        lease::is_renewed(cluster, &lease, timeout),
        queues(
            cluster,
            installation.as_ref().ok(),
            actors.as_deref().unwrap_or_default(),
            timeout
        ),
    );
    if let Ok(Some(lease)) = &mut lease {
        lease.is_renewed = is_renewed;
    }
    Ok(Observed {
        version,
        crd,
        keda: keda.map(|it| it.is_some()),
        operator_namespace: cluster.operator_namespace.clone(),
        deployments,
        controllers,
        operator_permissions,
        lease,
        validating_configurations: validating.map_err(text),
        mutating_configurations: mutating.map_err(text),
        serving_secret,
        endpoints,
        review,
        installation: installation.map_err(|failure| failure.to_string()),
        actors: actors.map_err(text),
        queues,
        notes,
    })
}

async fn controllers(cluster: &Cluster) -> Read<Vec<ControllerLocation>> {
    installation::controllers(cluster)
        .await
        .map_err(|failure| failure.to_string())
}

/// The actors' queues as their brokers report them. Without the operator's settings, no broker is known; another check
/// reports that.
async fn queues(
    cluster: &Arc<Cluster>,
    installation: Option<&Installation>,
    actors: &[Value],
    timeout: Duration,
) -> (Vec<ActorQueueState>, Vec<String>) {
    match installation {
        Some(installation) => queue::states(cluster, installation, actors, timeout).await,
        None => (Vec::new(), Vec::new()),
    }
}

/// Whether the operator has each permission that it needs.
async fn operator_permissions(
    cluster: &Cluster,
    deployments: &[OperatorDeployment],
) -> Read<Vec<(Needed, bool)>> {
    let watched = match installation::controller(deployments) {
        Some(controller) => watched_namespaces(cluster, controller).await?,
        None => return Ok(Vec::new()),
    };
    let needed = permissions::needed(deployments, &cluster.operator_namespace, &watched);
    let answers = needed.into_iter().map(async |needed| {
        let (namespace, name) = (needed.namespace.as_deref(), needed.name.as_deref());
        let may = cluster
            .operator_may(&needed.service_account, needed.permission, namespace, name)
            .await;
        may.map(|may| (needed.clone(), may)).map_err(text)
    });
    stream::iter(answers)
        .buffered(CONCURRENT_REVIEWS)
        .try_collect()
        .await
}

/// `controller.watchNamespaces`; empty if the operator manages actors of all namespaces.
async fn watched_namespaces(
    cluster: &Cluster,
    controller: &OperatorDeployment,
) -> Read<Vec<String>> {
    let Some(name) = &controller.config_map else {
        return Ok(Vec::new());
    };
    let home = Some(&*cluster.operator_namespace);
    let found = cluster.get(&resource::<ConfigMap>(), home, name).await;
    let found = found.map_err(text)?.unwrap_or_default();
    let lines = found["data"][WATCHED].as_str().unwrap_or_default().lines();
    Ok(lines
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect())
}

/// The contents of the Secret with the webhook's certificate.
async fn serving_secret(
    cluster: &Cluster,
    deployments: &[OperatorDeployment],
) -> Read<Option<Data>> {
    let name = installation::webhook(deployments).and_then(|it| it.flag(TLS_SECRET));
    let Some(name) = name else { return Ok(None) };
    let home = Some(&*cluster.operator_namespace);
    let secret = cluster.get(&resource::<Secret>(), home, name).await;
    let Some(mut secret) = secret.map_err(text)? else {
        return Ok(None);
    };
    let data = serde_json::from_value(secret["data"].take());
    data.map(Some)
        .map_err(|_| format!("Secret {name} cannot be decoded"))
}

/// The number of ready endpoints of the webhook's Service.
async fn endpoints(cluster: &Cluster, deployments: &[OperatorDeployment]) -> Read<Option<usize>> {
    let service = installation::controller(deployments).and_then(|it| it.flag(WEBHOOK_SERVICE));
    let Some(service) = service else {
        return Ok(None);
    };
    let params = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let home = Some(&*cluster.operator_namespace);
    let slices = cluster
        .list_with(&resource::<EndpointSlice>(), home, params)
        .await;
    let slices = slices.map_err(text)?;
    let endpoints = slices
        .iter()
        .flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
    // Absent means ready.
    let ready = endpoints.filter(|it| it["conditions"]["ready"].as_bool().unwrap_or(true));
    Ok(Some(ready.count()))
}

/// Reads everything that `check --pre` needs.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn before_installing(cluster: &Cluster) -> Result<Prerequisites, Failure> {
    let version = cluster.version().await?;
    let mut permissions = Vec::new();
    for permission in INSTALL_PERMISSIONS {
        permissions.push((permission, cluster.may(permission).await.map_err(text)));
    }
    Ok(Prerequisites {
        version,
        crd: crd(cluster, CRD_NAME).await,
        keda: crd(cluster, KEDA_CRD).await.map(|it| it.is_some()),
        operator_namespace: cluster.operator_namespace.clone(),
        controllers: controllers(cluster).await,
        permissions,
    })
}

async fn crd(cluster: &Cluster, name: &str) -> Read<Option<Value>> {
    let kind = resource::<CustomResourceDefinition>();
    cluster.get(&kind, None, name).await.map_err(text)
}

fn text(failure: ApiFailure) -> String {
    failure.text
}

/// Dry-runs an actor whose pod template uses the sidecar's name (VAL-4), which no rule of the CRD detects.
async fn review(cluster: &Cluster) -> Review {
    let containers = json!([
        {"name": "asya-runtime", "image": "none"},
        {"name": "asya-sidecar", "image": "none"},
    ]);
    let actor = json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
        "metadata": {"generateName": "kubectl-asya-check-", "namespace": cluster.namespace},
        "spec": {"transport": "none", "workload": {"template": {"spec": {"containers": containers}}}},
    });
    let kind = resource::<AsyncActor>();
    match cluster
        .dry_run_create(&kind, &cluster.namespace, &actor)
        .await
    {
        Ok(_) => Review::Admitted,
        Err(failure) if failure.text.contains("asya-sidecar is reserved") => Review::Rejected,
        Err(failure) => Review::Unknown(failure.text),
    }
}
