//! Watches the metadata of `RayCluster`s while a `RayService` is bound (SAFE-31).

use std::sync::Arc;
use std::time::Duration;

use asya_process::watch_loop::follow as follow_kind;
use asya_shared::backoff::Backoff;
use asya_shared::key::Key;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use tracing::{debug, warn};

use super::Index;
use super::clusters::owner_of;

/// Shorter than the client's read timeout, which thus only closes dead connections.
const WATCH_SECONDS: u32 = 50;
/// Only one page of a list is in memory at a time.
const PAGE_SIZE: u32 = 100;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));

/// Keeps the index up to date, forever.
pub async fn follow(client: Client, index: Arc<Index>) {
    let mut needed = index.clusters_needed();
    while needed.wait_for(|is_needed| *is_needed).await.is_ok() {
        tokio::select! {
            // In a fixed order, so that a simulation can be repeated.
            biased;
            () = watch(&client, &index) => {}
            _ = needed.wait_for(|is_needed| !*is_needed) => index.clear_clusters(),
        }
    }
}

async fn watch(client: &Client, index: &Index) {
    let kind = GroupVersionKind::gvk("ray.io", "v1", "RayCluster");
    let resource = ApiResource::from_gvk_with_plural(&kind, "rayclusters");
    let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client.clone(), &resource);
    let config = watcher::Config::default();
    let config = config.timeout(WATCH_SECONDS).page_size(PAGE_SIZE);
    follow_kind(
        api,
        config,
        BACKOFF,
        |event| handle(index, event),
        log_failure,
    )
    .await;
}

fn handle(index: &Index, event: Event<PartialObjectMeta<DynamicObject>>) {
    let key = |object: &PartialObjectMeta<DynamicObject>| {
        let metadata = &object.metadata;
        Some(Key::new(
            metadata.namespace.as_deref()?,
            metadata.name.as_deref()?,
        ))
    };
    match event {
        Event::Init => index.init_clusters(),
        Event::InitApply(object) | Event::Apply(object) => {
            if let Some(key) = key(&object) {
                index.apply_cluster(&key, owner_of(&object.metadata));
            }
        }
        Event::InitDone => index.init_clusters_done(),
        Event::Delete(object) => {
            if let Some(key) = key(&object) {
                index.delete_cluster(&key);
            }
        }
    }
}

/// If KubeRay is not installed or the permission is missing, the controller's resolution decides which pods match.
fn log_failure(error: &Error, failures: u32) {
    if failures == 2 {
        warn!(%error, "the watch of RayClusters failed: pods of new clusters of a bound RayService start without the \
                       sidecar until the controller has resolved it again");
    } else {
        debug!(%error, failures, "the watch of RayClusters failed");
    }
}

#[cfg(test)]
mod tests;
