//! Actors that no controller reconciles. The webhook watches them, and some are bindings in effect.

use asya_tests::Result;
use asya_tests::cluster::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// Maximum number of concurrent creates.
const CREATIONS: usize = 32;
/// Number of namespaces over which bindings are spread.
pub const NAMESPACES: usize = 200;

/// The actors that the webhook watches.
pub struct Crowd {
    bindings: usize,
}

impl Crowd {
    /// Creates this many actors. Of these, `bindings` bind a Deployment each, and `required` of those deny pods without
    /// the sidecar. Bindings are created last.
    pub async fn create(
        cluster: &Cluster,
        actors: usize,
        bindings: usize,
        required: usize,
    ) -> Result<Self> {
        let crowd = Self { bindings };
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        for number in 0..NAMESPACES {
            let namespace = json!({"metadata": {"name": namespace_of(number)}});
            let namespace = serde_json::from_value(namespace)?;
            namespaces
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        let others = (0..actors.saturating_sub(bindings))
            .map(|number| (namespace_of(number), standalone(number)));
        all(cluster, others, false).await?;
        let bound = (0..bindings).map(|number| {
            let actor = binding(number, &target_of(number), number < required);
            (namespace_of(number), actor)
        });
        all(cluster, bound, true).await?;
        Ok(crowd)
    }

    pub fn bindings(&self) -> usize {
        self.bindings
    }
}

/// The namespace of the actor with this number.
pub fn namespace_of(number: usize) -> String {
    format!("bench-{}", number % NAMESPACES)
}

/// The target of the binding with this number.
pub fn target_of(number: usize) -> String {
    format!("model-{number}")
}

fn standalone(number: usize) -> Value {
    let env = json!([{"name": "ASYA_HANDLER", "value": "echo.handle"}]);
    let container = json!({"name": "asya-runtime", "image": "python:3.13-slim", "env": env});
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": format!("other-{number}")},
        "spec": {"transport": "rabbitmq", "workload": {"template": {"spec": {"containers": [container]}}}},
    })
}

fn binding(number: usize, target: &str, required: bool) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": format!("bound-{number}")},
        "spec": {
            "transport": "rabbitmq", "runtime": {"targetURL": "http://127.0.0.1:8000"},
            "binding": {"required": required},
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        },
    })
}

async fn all(
    cluster: &Cluster,
    actors: impl Iterator<Item = (String, Value)>,
    bound: bool,
) -> Result<()> {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor"));
    let (client, resource) = (cluster.client(), &resource);
    let made = actors.map(|(namespace, actor)| {
        let client = client.clone();
        async move {
            let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, resource);
            let actor: DynamicObject = serde_json::from_value(actor)?;
            let made = api.create(&PostParams::default(), &actor).await?;
            if bound {
                let status = json!({"status": {"boundSince": "2026-01-01T00:00:00Z"}});
                let name = made.metadata.name.unwrap_or_default();
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                    .await?;
            }
            Ok(())
        }
    });
    stream::iter(made)
        .buffer_unordered(CREATIONS)
        .try_collect()
        .await
}
