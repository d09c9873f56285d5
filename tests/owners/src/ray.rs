//! `KubeRay` (SIM-6). It counts pods and never compares their specs.

use std::time::Duration;

use serde_json::{Value, json};

use super::recording_client::name;
use super::workload::{annotation, controlled_by, hash, is_of, label, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// A Ray cluster of bare pods.
pub const RAY_CLUSTER: Kind = Kind::new("ray.io", "v1", "RayCluster", "rayclusters");
/// The kind whose controller creates and replaces Ray clusters.
pub const RAY_SERVICE: Kind = Kind::new("ray.io", "v1", "RayService", "rayservices");
/// The kind whose controller creates one Ray cluster and runs a job on it.
pub const RAY_JOB: Kind = Kind::new("ray.io", "v1", "RayJob", "rayjobs");
const CLUSTER: &str = "ray.io/cluster";
const GROUP: &str = "ray.io/group";
const NODE_TYPE: &str = "ray.io/node-type";
/// On a service's cluster: the hash of the template that it was created from.
const TEMPLATE: &str = "ray.io/hash-without-replicas-and-workers-to-delete";

/// The `RayCluster` controller (SIM-6).
pub struct RayClusters;
/// The `RayService` controller (SIM-6).
pub struct RayServices;
/// The `RayJob` controller, whose clusters are named like those of services (SIM-6).
pub struct RayJobs;

/// The spec of a Ray cluster with one worker group.
#[must_use]
pub fn cluster_spec(image: &str, workers: i64) -> Value {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": image, "ports": [{"containerPort": 8000}]}]}});
    json!({
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "workers", "replicas": workers, "minReplicas": 0, "maxReplicas": 10,
            "rayStartParams": {}, "template": template("ray-worker"),
        }],
    })
}

/// A `RayCluster`.
#[must_use]
pub fn ray_cluster(name: &str, workers: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": cluster_spec("ray:1", workers)})
}

/// A `RayService`.
#[must_use]
pub fn ray_service(name: &str, image: &str, workers: i64) -> Value {
    let cluster = cluster_spec(image, workers);
    json!({"metadata": {"name": name}, "spec": {"serveConfigV2": "applications: []", "rayClusterConfig": cluster}})
}

/// A `RayJob`.
#[must_use]
pub fn ray_job(name: &str, workers: i64) -> Value {
    let cluster = cluster_spec("ray:1", workers);
    json!({"metadata": {"name": name}, "spec": {"entrypoint": "python train.py", "rayClusterSpec": cluster}})
}

impl Reconciler for RayClusters {
    fn manager(&self) -> &'static str {
        "kuberay-operator"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![RAY_CLUSTER, Kind::POD]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for cluster in client.list(RAY_CLUSTER).await? {
            let mut pods = client.list(Kind::POD).await?;
            pods.retain(|it| is_of(it, &cluster));
            let mut wanted = 1;
            let head = &cluster["spec"]["headGroupSpec"]["template"];
            count(client, &cluster, ("headgroup", "head"), head, &pods, 1).await?;
            let groups = cluster["spec"]["workerGroupSpecs"].as_array();
            for group in groups.into_iter().flatten() {
                let group_name = group["groupName"].as_str().unwrap_or_default();
                let replicas = group["replicas"].as_u64().unwrap_or(1);
                let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
                wanted += replicas;
                let as_group = (group_name, "worker");
                count(
                    client,
                    &cluster,
                    as_group,
                    &group["template"],
                    &pods,
                    replicas,
                )
                .await?;
            }
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let state = if ready == wanted { "ready" } else { "" };
            let status = json!({"state": state, "desiredWorkerReplicas": wanted - 1});
            client.status(RAY_CLUSTER, &cluster, &status).await?;
        }
        Ok(())
    }
}

/// Creates missing pods of a group. Deletes failed pods, and surplus ones from the start of the list.
async fn count(
    client: &RecordingClient,
    cluster: &Value,
    (group, node_type): (&str, &str),
    template: &Value,
    pods: &[Value],
    wanted: usize,
) -> Result<()> {
    let of_group = pods.iter().filter(|pod| label(pod, GROUP) == Some(group));
    let has_ended = |pod: &&Value| {
        let phase = pod["status"]["phase"].as_str();
        matches!(phase, Some("Failed" | "Succeeded"))
    };
    let (ended, live): (Vec<_>, Vec<_>) = of_group.partition(has_ended);
    for pod in ended {
        client.delete(Kind::POD, pod).await?;
    }
    for pod in live.iter().take(live.len().saturating_sub(wanted)) {
        client.delete(Kind::POD, pod).await?;
    }
    for _ in live.len()..wanted {
        let mut pod = template.clone();
        let own = json!({
            CLUSTER: name(cluster), GROUP: group, NODE_TYPE: node_type, "ray.io/is-ray-node": "yes",
        });
        put_all(&mut pod["metadata"]["labels"], &without(&own, |_| false));
        pod["metadata"]["generateName"] = json!(format!("{}-{group}-{node_type}-", name(cluster)));
        pod["metadata"]["ownerReferences"] = controlled_by(RAY_CLUSTER, cluster);
        client.create(Kind::POD, &pod).await?;
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|it| it["type"] == "Ready" && it["status"] == "True")
    })
}

impl Reconciler for RayServices {
    fn manager(&self) -> &'static str {
        "kuberay-operator-services"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![RAY_SERVICE, RAY_CLUSTER]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for service in client.list(RAY_SERVICE).await? {
            let mut clusters = client.list(RAY_CLUSTER).await?;
            clusters.retain(|it| is_of(it, &service));
            let template = hash(&service["spec"]["rayClusterConfig"]);
            let is_newest = |it: &&Value| annotation(it, TEMPLATE) == Some(&template);
            let newest = clusters.iter().find(is_newest);
            let Some(newest) = newest else {
                let spec = &service["spec"]["rayClusterConfig"];
                let made = cluster_of(RAY_SERVICE, &service, spec, &template);
                let made = client.create(RAY_CLUSTER, &made).await?;
                let pending = json!({"rayClusterName": name(&made)});
                let status = json!({"pendingServiceStatus": pending});
                client.status(RAY_SERVICE, &service, &status).await?;
                continue;
            };
            if newest["status"]["state"] != "ready" {
                continue;
            }
            let active = json!({"rayClusterName": name(newest)});
            let status = json!({
                "activeServiceStatus": active, "pendingServiceStatus": {"rayClusterName": null},
            });
            client.status(RAY_SERVICE, &service, &status).await?;
            for old in &clusters {
                if !is_newest(&old) {
                    client.delete(RAY_CLUSTER, old).await?;
                }
            }
        }
        Ok(())
    }
}

impl Reconciler for RayJobs {
    fn manager(&self) -> &'static str {
        "kuberay-operator-jobs"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![RAY_JOB, RAY_CLUSTER]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for job in client.list(RAY_JOB).await? {
            let clusters = client.list(RAY_CLUSTER).await?;
            if !clusters.iter().any(|it| is_of(it, &job)) {
                let spec = &job["spec"]["rayClusterSpec"];
                let made = cluster_of(RAY_JOB, &job, spec, &hash(&job["metadata"]["uid"]));
                client.create(RAY_CLUSTER, &made).await?;
            }
        }
        Ok(())
    }
}

/// A cluster for a service or a job, named `<owner>-<5 characters>`.
fn cluster_of(kind: Kind, owner: &Value, spec: &Value, template: &str) -> Value {
    let suffix = template.get(..5).unwrap_or(template);
    json!({
        "metadata": {
            "name": format!("{}-{suffix}", name(owner)),
            "labels": {"ray.io/originated-from-cr-name": name(owner), "ray.io/originated-from-crd": kind.kind},
            "annotations": {TEMPLATE: template},
            "ownerReferences": controlled_by(kind, owner),
        },
        "spec": spec,
    })
}
