//! `trace`: the objects related to an actor as a tree, each with its state, and what waits for what.

mod decide;
mod render;

use std::sync::Arc;

use asya_shared::names::RUNTIME_CONFIG_MAP;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use self::decide::RelatedObjects;
use crate::answer::{Answer, Failure, Report};
use crate::args::TraceArgs;
use crate::cluster::{ApiFailure, Cluster, Connection, resource};
use crate::output;
use crate::queue;
use crate::watch::Watched;

/// Shows the tree of an actor. Exit code 1: a part of it has a problem.
///
/// # Errors
/// If the actor cannot be read, or does not exist.
pub async fn run(connection: &Connection, args: &TraceArgs) -> Result<Report, Failure> {
    let cluster = Arc::new(connection.open().await?);
    let actor = cluster.actor(&args.name).await?;
    let timeout = connection.args().timeout;
    let ((mut related, mut notes), state) = futures::join!(
        gather(&cluster, &actor),
        queue::state(&cluster, &actor, timeout),
    );
    match state {
        Ok(state) => related.queue = state,
        Err(failure) => notes.push(format!("consumers and dead letters are missing: {failure}")),
    }
    let tree = decide::tree(&actor, &related);
    let text = args
        .output
        .output
        .write(&tree, || render::text(&tree, output::terminal_width()))?;
    let answer = if tree.is_sound() {
        Answer::Fine
    } else {
        Answer::Findings
    };
    Ok(Report::new(text, answer).with_notes(notes))
}

/// What `--watch` watches.
pub fn watched(args: &TraceArgs) -> Vec<Watched> {
    vec![
        Watched::actor(&args.name),
        Watched::kind(resource::<Pod>()),
        Watched::kind(resource::<HorizontalPodAutoscaler>()),
    ]
}

/// Reads the objects that the actor's status names; what cannot be read is noted and left out.
async fn gather(cluster: &Cluster, actor: &Value) -> (RelatedObjects, Vec<String>) {
    let status = &actor["status"];
    let mut notes = Vec::new();
    let pods = pods(cluster, status).await;
    let pods = pods
        .map_err(|failure| notes.push(failure.text))
        .unwrap_or_default();
    let autoscaler = autoscaler(cluster, status).await;
    let autoscaler = autoscaler
        .map_err(|failure| notes.push(failure.text))
        .unwrap_or_default();
    let script = cluster
        .get(
            &resource::<ConfigMap>(),
            Some(&cluster.namespace),
            RUNTIME_CONFIG_MAP,
        )
        .await;
    let has_script = script
        .map_err(|failure| notes.push(failure.text))
        .ok()
        .map(|found| found.is_some());
    let related = RelatedObjects {
        pods,
        autoscaler,
        has_script,
        queue: None,
    };
    (related, notes)
}

/// The pods that match the selector in status.
async fn pods(cluster: &Cluster, status: &Value) -> Result<Vec<Value>, ApiFailure> {
    let selector = status["resolvedTarget"]["podSelector"]
        .as_str()
        .or(status["selector"].as_str());
    let Some(selector) = selector else {
        return Ok(Vec::new());
    };
    let params = ListParams::default().labels(selector);
    cluster
        .list_with(&resource::<Pod>(), Some(&cluster.namespace), params)
        .await
}

/// The `HorizontalPodAutoscaler` that KEDA has created for the actor's `ScaledObject`.
async fn autoscaler(cluster: &Cluster, status: &Value) -> Result<Option<Value>, ApiFailure> {
    let namespace = Some(&*cluster.namespace);
    let Some(name) = status["scaledObjectRef"]["name"].as_str() else {
        return Ok(None);
    };
    let scaled_object = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let scaled_object = ApiResource::from_gvk(&scaled_object);
    let Some(scaled_object) = cluster.get(&scaled_object, namespace, name).await? else {
        return Ok(None);
    };
    let Some(name) = scaled_object["status"]["hpaName"].as_str() else {
        return Ok(None);
    };
    let kind = resource::<HorizontalPodAutoscaler>();
    cluster.get(&kind, namespace, name).await
}
