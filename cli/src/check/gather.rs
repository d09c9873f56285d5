//! Reads what the checks need. What the user may not read is recorded as such, and the other checks go on.

use asya_shared::admission::CRD_NAME;
use asya_shared::api::AsyncActor;
use asya_shared::names::LEASE;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::answer::Failure;
use crate::cluster::{ApiFailure, Cluster, Right, resource};
use crate::installation::{self, Installation, OperatorDeployment};

const KEDA_CRD: &str = "scaledobjects.keda.sh";

/// Something that was read, or why it could not be.
pub type Read<T> = Result<T, String>;

/// What `check` looks at.
#[derive(Debug)]
pub struct Observed {
    /// Version of the API server.
    pub version: String,
    pub crd: Read<Option<Value>>,
    pub keda: Read<bool>,
    pub operator_namespace: String,
    pub deployments: Read<Vec<OperatorDeployment>>,
    pub lease: Read<Option<Value>>,
    pub webhook_configurations: Read<Vec<Value>>,
    /// What the API server says to an actor that only the webhook rejects.
    pub review: Review,
    pub installation: Read<Installation>,
    pub actors: Read<Vec<Value>>,
}

/// What `check --pre` looks at.
#[derive(Debug)]
pub struct Prerequisites {
    pub version: String,
    pub crd: Read<Option<Value>>,
    pub keda: Read<bool>,
    /// Whether the user has each right that an installation takes.
    pub rights: Vec<(Right, Read<bool>)>,
}

/// The answer to a dry run of an actor that breaks a rule of the webhook and none of the CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// The webhook rejects it, as it should.
    Rejected,
    /// It is admitted: the webhook is not called, or does not answer.
    Admitted,
    Unknown(String),
}

/// What the installation of the chart creates cluster-wide.
const RIGHTS: [Right; 5] = [
    create("apiextensions.k8s.io", "customresourcedefinitions"),
    create("rbac.authorization.k8s.io", "clusterroles"),
    create("rbac.authorization.k8s.io", "clusterrolebindings"),
    create(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    create("apps", "deployments"),
];

const fn create(group: &'static str, resource: &'static str) -> Right {
    Right {
        verb: "create",
        group,
        resource,
        namespace: None,
    }
}

/// Reads everything that `check` looks at.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn installed(cluster: &Cluster) -> Result<Observed, Failure> {
    let version = cluster.version().await?;
    let operator = Some(&*cluster.operator_namespace);
    let (lease_kind, actor_kind) = (resource::<Lease>(), resource::<AsyncActor>());
    let webhook_kind = resource::<ValidatingWebhookConfiguration>();
    let (crd, keda, deployments, lease, configurations, review, installation, actors) = futures::join!(
        crd(cluster, CRD_NAME),
        crd(cluster, KEDA_CRD),
        installation::deployments(cluster),
        cluster.get(&lease_kind, operator, LEASE),
        cluster.list(&webhook_kind, None),
        review(cluster),
        Installation::read(cluster),
        cluster.list(&actor_kind, None),
    );
    Ok(Observed {
        version,
        crd,
        keda: keda.map(|it| it.is_some()),
        operator_namespace: cluster.operator_namespace.clone(),
        deployments: deployments.map_err(|failure| failure.to_string()),
        lease: lease.map_err(text),
        webhook_configurations: configurations.map_err(text),
        review,
        installation: installation.map_err(|failure| failure.to_string()),
        actors: actors.map_err(text),
    })
}

/// Reads everything that `check --pre` looks at.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn before_installing(cluster: &Cluster) -> Result<Prerequisites, Failure> {
    let version = cluster.version().await?;
    let mut rights = Vec::new();
    for right in RIGHTS {
        rights.push((right, cluster.may(&right).await.map_err(text)));
    }
    Ok(Prerequisites {
        version,
        crd: crd(cluster, CRD_NAME).await,
        keda: crd(cluster, KEDA_CRD).await.map(|it| it.is_some()),
        rights,
    })
}

async fn crd(cluster: &Cluster, name: &str) -> Read<Option<Value>> {
    let kind = resource::<CustomResourceDefinition>();
    cluster.get(&kind, None, name).await.map_err(text)
}

fn text(failure: ApiFailure) -> String {
    failure.text
}

/// Sends an actor through the API server whose pod template takes the sidecar's name (VAL-4), which no rule of the CRD
/// sees.
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
