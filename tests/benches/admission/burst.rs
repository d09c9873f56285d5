//! Creates a burst of pods through the API server: pods of a bound `StatefulSet`, which the webhook injects; pods of an
//! unbound one, which are never sent to it; and pods of the bound one while others flood the webhook's port.

use std::time::{Duration, Instant};

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::flood::Clients;
use asya_tests::operator::Instance;
use asya_tests::{Error, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::load::Times;

const NAMESPACE: &str = "burst";
const BOUND: &str = "bound";
const FREE: &str = "free";
/// Maximum number of concurrent creates.
const CREATIONS: usize = 32;
/// The `StatefulSet` controller numbers its own pods from 0, and waits forever for the first one.
const FIRST: usize = 1000;
const INJECTED: Duration = Duration::from_mins(1);

/// Clients of the flood (ADM-22).
const IDLE: usize = 5_000;
const STREAMS: u32 = 256;
const BODIES: usize = 40;

/// Creates this many pods of each kind, after a tenth of them for warm-up; returns the times for each kind.
pub async fn measure(cluster: &Cluster, replica: &Instance, pods: usize) -> Result<Vec<String>> {
    let create = PostParams::default();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    namespaces.create(&create, &namespace).await?;
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor"));
    let actors: Api<DynamicObject> = Api::namespaced_with(cluster.client(), NAMESPACE, &resource);
    actors
        .create(&create, &serde_json::from_value(actor())?)
        .await?;
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), NAMESPACE);
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let mut owners = Vec::new();
    for name in [BOUND, FREE] {
        let made = sets
            .create(&create, &serde_json::from_value(set(name))?)
            .await?;
        owners.push((name, made.metadata.uid.unwrap_or_default()));
    }
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let first = pod(BOUND, &owners[0].1, FIRST)?;
    eventually("pods are injected", INJECTED, async || {
        let made = api.create(&dry_run, &first).await.map_err(NotYet::new)?;
        check(is_injected(&made), "without the sidecar")
    })
    .await?;

    let mut told = Vec::new();
    for (begin, count) in [(FIRST, pods / 10), (2 * FIRST, pods)] {
        told.clear();
        for (name, uid) in &owners {
            let (took, times) = create_all(&api, name, uid, begin..begin + count).await?;
            let kind = if *name == BOUND {
                "all injected"
            } else {
                "without the webhook"
            };
            told.push(line(count, kind, took, &times)?);
        }
    }
    let clients = Clients::of(cluster, replica).await?;
    clients.slow_streams(STREAMS);
    clients.large_bodies(BODIES);
    clients.idle(IDLE).await;
    let (name, uid) = &owners[0];
    let numbers = 2 * FIRST + pods..2 * FIRST + 2 * pods;
    let (took, times) = create_all(&api, name, uid, numbers).await?;
    let kind = "all injected, during a flood of the webhook's port";
    told.push(line(pods, kind, took, &times)?);
    Ok(told)
}

fn line(count: usize, kind: &str, took: Duration, times: &Times) -> Result<String> {
    let rate = f64::from(u32::try_from(count).map_err(Error::other)?) / took.as_secs_f64();
    Ok(format!(
        "burst of {count} pods, {kind}: {rate:.0}/s, {times}"
    ))
}

async fn create_all(
    api: &Api<Pod>,
    name: &str,
    uid: &str,
    numbers: std::ops::Range<usize>,
) -> Result<(Duration, Times)> {
    let began = Instant::now();
    let made = numbers.map(|number| async move {
        let pod = pod(name, uid, number)?;
        let began = Instant::now();
        let made = api.create(&PostParams::default(), &pod).await?;
        if is_injected(&made) == (name == BOUND) {
            Ok(began.elapsed())
        } else {
            Err(Error::other(format!("pod {name}-{number} came out wrong")))
        }
    });
    let all: Vec<Duration> = stream::iter(made)
        .buffer_unordered(CREATIONS)
        .try_collect()
        .await?;
    let took = began.elapsed();
    let mut times = Times::default();
    for time in all {
        times.add(time);
    }
    Ok((took, times))
}

fn is_injected(pod: &Pod) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.any(|it| it.name == "asya-sidecar")
}

fn actor() -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": "burst"},
        "spec": {
            "transport": "rabbitmq", "runtime": {"targetURL": "http://127.0.0.1:8000"},
            "binding": {"rollout": "OnRestart"},
            "workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": BOUND},
        },
    })
}

fn set(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec()},
        },
    })
}

fn spec() -> Value {
    let env: Vec<Value> = (0..30)
        .map(|number| json!({"name": format!("MODEL_SETTING_{number}"), "value": "x".repeat(40)}))
        .collect();
    let container = json!({"name": "model", "image": "model:1", "env": env});
    json!({"schedulerName": "nobody", "containers": [container]})
}

fn pod(name: &str, uid: &str, number: usize) -> Result<Pod> {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": uid, "controller": true,
    });
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": format!("{name}-{number}"), "labels": {"app": name}, "ownerReferences": [owner],
        },
        "spec": spec(),
    }))?)
}
