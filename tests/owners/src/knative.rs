//! Knative Serving: its Revision controller and its autoscaler (SIM-4).

use std::time::Duration;

use serde_json::{Value, json};

use super::recording_client::name;
use super::workload::{annotation, controlled_by, hash, is_of, label, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

const GROUP: &str = "serving.knative.dev";
/// The kind that users create.
pub const SERVICE: Kind = Kind::new(GROUP, "v1", "Service", "services");
/// Each Service has one Configuration.
pub const CONFIGURATION: Kind = Kind::new(GROUP, "v1", "Configuration", "configurations");
/// A Configuration has one Revision for each version of its template.
pub const REVISION: Kind = Kind::new(GROUP, "v1", "Revision", "revisions");
/// On a Deployment: the hash of Knative's desired state.
pub const HASH: &str = "serving.knative.dev/deployment-hash";
/// On a Revision: the hash of its template, since the Revision's spec contains defaults.
const TEMPLATE: &str = "asya.test/template";

/// Releases, which differ in what they revert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Since 1.22: nothing, until the hash of the desired state changes.
    Hashed,
    /// 1.20.3 to 1.21: containers, at each reconcile.
    Containers,
    /// Up to 1.20.0: the whole template, its metadata included, at each reconcile.
    Template,
}

/// Knative Serving's controllers (SIM-4).
pub struct Knative {
    /// Determines what is reverted.
    pub release: Release,
    /// The image of Knative's own sidecar, which changes with an upgrade of Knative.
    pub queue_proxy: &'static str,
}

/// A Service with one container.
#[must_use]
pub fn service(name: &str, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [
            {"name": "user-container", "image": image, "ports": [{"containerPort": 8080}]},
        ]}}},
    })
}

/// The name of the Deployment of a Service's Revision, counted from 1.
#[must_use]
pub fn deployment_of(service: &str, revision: usize) -> String {
    format!("{service}-{revision:05}-deployment")
}

impl Reconciler for Knative {
    fn manager(&self) -> &'static str {
        "knative-controller"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![SERVICE, REVISION, Kind::DEPLOYMENT]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for service in client.list(SERVICE).await? {
            let configuration = configuration(client, &service).await?;
            let mut revisions = revisions(client, &configuration).await?;
            let template = &service["spec"]["template"];
            if revisions.last().and_then(|it| annotation(it, TEMPLATE)) != Some(&hash(template)) {
                let number = revisions.len() + 1;
                let wanted = revision(&configuration, number, template);
                revisions.push(client.create(REVISION, &wanted).await?);
            }
            let mut ready = None;
            for revision in &revisions {
                if self.deployment(client, &service, revision).await? {
                    ready = Some(name(revision).to_owned());
                }
            }
            let created = revisions.last().map(|it| name(it).to_owned());
            let status = json!({
                "latestCreatedRevisionName": created, "latestReadyRevisionName": ready,
            });
            let told = without(&status, |key| status[key].is_null());
            client
                .status(SERVICE, &service, &Value::Object(told))
                .await?;
        }
        Ok(())
    }
}

impl Knative {
    /// Reconciles a Revision's Deployment, and returns whether it has a ready pod.
    async fn deployment(
        &self,
        client: &RecordingClient,
        service: &Value,
        revision: &Value,
    ) -> Result<bool> {
        let wanted = self.wanted(service, revision);
        let Some(live) = client.get(Kind::DEPLOYMENT, name(&wanted)).await? else {
            client.create(Kind::DEPLOYMENT, &wanted).await?;
            return Ok(false);
        };
        let mut next = live.clone();
        if let Some(hash) = label(&wanted, HASH) {
            next["metadata"]["labels"][HASH] = json!(hash);
        }
        next["spec"] = wanted["spec"].clone();
        for key in ["replicas", "selector"] {
            next["spec"][key] = live["spec"][key].clone();
        }
        if self.release != Release::Template {
            let of =
                |object: &Value, part: &str| object["spec"]["template"]["metadata"][part].clone();
            for part in ["labels", "annotations"] {
                let own = of(&wanted, part);
                let kept = without(&of(&live, part), |key| {
                    key.contains("knative.dev/") || key == "app" || own.get(key).is_some()
                });
                put_all(&mut next["spec"]["template"]["metadata"][part], &kept);
            }
        }
        let same = label(&live, HASH) == label(&wanted, HASH);
        if self.release != Release::Hashed || !same {
            client.put(Kind::DEPLOYMENT, &next).await?;
        }
        Ok(live.pointer("/status/readyReplicas").is_some())
    }

    fn wanted(&self, service: &Value, revision: &Value) -> Value {
        let its_name = name(revision);
        let labels = json!({
            "app": its_name,
            "serving.knative.dev/service": name(service),
            "serving.knative.dev/configuration": name(service),
            "serving.knative.dev/revision": its_name,
        });
        let mut template = revision["spec"].clone();
        let queue_proxy = json!({"name": "queue-proxy", "image": self.queue_proxy});
        if let Some(containers) = template["containers"].as_array_mut() {
            containers.push(queue_proxy);
        }
        let spec = json!({
            "replicas": 1,
            "selector": {"matchLabels": {"serving.knative.dev/revision": its_name}},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": without(&revision["metadata"]["annotations"], |key| key == TEMPLATE),
                },
                "spec": template,
            },
        });
        let mut deployment = json!({
            "metadata": {
                "name": format!("{its_name}-deployment"), "labels": labels,
                "ownerReferences": controlled_by(REVISION, revision),
            },
            "spec": spec,
        });
        if self.release == Release::Hashed {
            deployment["metadata"]["labels"][HASH] = json!(hash(&spec));
        }
        deployment
    }
}

async fn configuration(client: &RecordingClient, service: &Value) -> Result<Value> {
    if let Some(live) = client.get(CONFIGURATION, name(service)).await? {
        return Ok(live);
    }
    let wanted = json!({
        "metadata": {"name": name(service), "ownerReferences": controlled_by(SERVICE, service)},
        "spec": service["spec"],
    });
    client.create(CONFIGURATION, &wanted).await
}

/// The Revisions of a Configuration, oldest first, since their names are numbered.
async fn revisions(client: &RecordingClient, configuration: &Value) -> Result<Vec<Value>> {
    let mut all = client.list(REVISION).await?;
    all.retain(|it| is_of(it, configuration));
    Ok(all)
}

fn revision(configuration: &Value, number: usize, template: &Value) -> Value {
    let mut annotations = template["metadata"]["annotations"].clone();
    let own = json!({TEMPLATE: hash(template)});
    put_all(&mut annotations, &without(&own, |_| false));
    json!({
        "metadata": {
            "name": format!("{}-{number:05}", name(configuration)),
            "annotations": annotations,
            "ownerReferences": controlled_by(CONFIGURATION, configuration),
        },
        "spec": template["spec"],
    })
}

/// Knative's autoscaler: sets the newest Revision of each Service to `replicas` and all others to 0, every 2 s.
pub struct Kpa {
    /// The replicas of the newest Revision.
    pub replicas: i64,
}

impl Reconciler for Kpa {
    fn manager(&self) -> &'static str {
        "autoscaler"
    }

    fn watches(&self) -> Vec<Kind> {
        Vec::new()
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for service in client.list(SERVICE).await? {
            let newest = service["status"]["latestReadyRevisionName"].as_str();
            for live in client.list(Kind::DEPLOYMENT).await? {
                if label(&live, "serving.knative.dev/service") != Some(name(&service)) {
                    continue;
                }
                let revision = label(&live, "serving.knative.dev/revision");
                let created = service["status"]["latestCreatedRevisionName"].as_str();
                let wanted = if revision == newest || revision == created {
                    self.replicas
                } else {
                    0
                };
                if live["spec"]["replicas"] != json!(wanted) {
                    client.scale(Kind::DEPLOYMENT, &live, wanted).await?;
                }
            }
        }
        Ok(())
    }
}
