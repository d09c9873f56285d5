//! What users create for each owner, and how they change it.

use asya_owners::kaito::{UPGRADE, workspace};
use asya_owners::kserve::{AUTOSCALER_CLASS, STOP, deployment_of, inference_service};
use asya_owners::ray::ray_cluster;
use serde_json::{Value, json};

use super::git::TRACKED;
use crate::api_server::id::Id;
use crate::api_server::resources::{self, Resource};
use crate::world::targets::{TARGET, TargetKind};

/// Annotation of objects that are replaced with their manifest.
pub const REPLACED: &str = "example.com/replaced";

/// An owner of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// KServe, whose `InferenceService`s have Deployments (SIM-1).
    Kserve,
    /// KAITO, whose Workspaces have `StatefulSet`s (SIM-3).
    Kaito,
    /// `KubeRay`, whose `RayCluster`s have bare pods (SIM-6).
    Ray,
    /// Argo CD, which syncs a Deployment with a manifest (SIM-7).
    Argo,
    /// Argo CD that replaces a Deployment with its manifest, so that no fields of others survive (SIM-7).
    Replace,
}

impl OwnerKind {
    /// The kind that users create; `None` if it is not an object in the cluster.
    #[must_use]
    pub fn resource(self) -> Option<&'static Resource> {
        match self {
            Self::Kserve => Some(&resources::INFERENCE_SERVICES),
            Self::Kaito => Some(&resources::WORKSPACES),
            Self::Ray => Some(&resources::RAY_CLUSTERS),
            Self::Argo | Self::Replace => None,
        }
    }

    /// The kind to which actors bind.
    #[must_use]
    pub fn target(self) -> &'static Resource {
        self.resource().unwrap_or(&resources::DEPLOYMENTS)
    }

    /// The workload of a target; `None` if its pods have no workload.
    #[must_use]
    pub fn workload(self, target: &Id) -> Option<Id> {
        let at = |resource, name: &str| Some(Id::new(resource, &target.namespace, name));
        match self {
            Self::Kserve => at(&resources::DEPLOYMENTS, &deployment_of(&target.name)),
            Self::Kaito => at(&resources::STATEFUL_SETS, &target.name),
            Self::Ray => None,
            Self::Argo | Self::Replace => at(&resources::DEPLOYMENTS, &target.name),
        }
    }

    /// A target with this name, number of pods and model version.
    #[must_use]
    pub fn object(self, name: &str, replicas: u8, version: u8) -> Value {
        let mut object = match self {
            Self::Kserve => inference_service(name, &json!({})),
            Self::Kaito => workspace(name, "phi"),
            Self::Ray => ray_cluster(name, 1),
            Self::Argo | Self::Replace => {
                let mut object = TargetKind::Deployment.object(name, replicas, version);
                object["metadata"]["name"] = name.into();
                object["metadata"]["labels"][TRACKED] = name.into();
                if self == Self::Replace {
                    object["metadata"]["annotations"][REPLACED] = "true".into();
                }
                if let (Self::Argo, Some(spec)) = (self, object["spec"].as_object_mut()) {
                    // Users who let the queue scale omit the replicas.
                    spec.remove("replicas");
                }
                object
            }
        };
        object["metadata"]["labels"][TARGET] = "true".into();
        self.set_replicas(&mut object, replicas);
        self.change(&mut object, version);
        object
    }

    /// A user changes the model version, or something specific to this owner.
    pub fn change(self, object: &mut Value, version: u8) {
        let image = Value::from(format!("model:{version}"));
        let annotations = &mut object["metadata"]["annotations"];
        match self {
            Self::Kserve if version == 4 => toggle(annotations, STOP, "true"),
            Self::Kserve if version == 5 => toggle(annotations, AUTOSCALER_CLASS, "none"),
            Self::Kserve if version == 6 => toggle(annotations, AUTOSCALER_CLASS, "hpa"),
            // KServe copies it to the pods.
            Self::Kserve if version == 7 => toggle(annotations, "example.com/note", "hello"),
            Self::Kserve => object["spec"]["predictor"]["containers"][0]["image"] = image,
            // Another base image, which causes the whole pod template to be replaced.
            Self::Kaito if version >= 5 => {
                let label = &mut object["metadata"]["labels"][UPGRADE];
                let next = if *label == "second" {
                    "third"
                } else {
                    "second"
                };
                *label = next.into();
            }
            Self::Kaito => {
                object["inference"]["preset"]["name"] = format!("phi-{version}").into();
            }
            Self::Ray => {
                let group = &mut object["spec"]["workerGroupSpecs"][0];
                group["template"]["spec"]["containers"][0]["image"] = image;
            }
            Self::Argo | Self::Replace => {
                object["spec"]["template"]["spec"]["containers"][0]["image"] = image;
            }
        }
    }

    /// A user lets the pods request these resources. KAITO's pods request only GPUs.
    pub fn request(self, object: &mut Value, resources: &Value) {
        let pods = match self {
            Self::Kserve => vec![&mut object["spec"]["predictor"]],
            Self::Kaito => Vec::new(),
            Self::Ray => {
                let spec = &mut object["spec"];
                spec["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] =
                    resources.clone();
                vec![&mut spec["workerGroupSpecs"][0]["template"]["spec"]]
            }
            Self::Argo | Self::Replace => vec![&mut object["spec"]["template"]["spec"]],
        };
        for pod in pods {
            pod["containers"][0]["resources"] = resources.clone();
        }
    }

    /// A user changes the number of pods. KAITO's Workspaces do not specify it, nor do manifests.
    pub fn set_replicas(self, object: &mut Value, replicas: u8) {
        match self {
            Self::Kserve => {
                object["spec"]["predictor"]["minReplicas"] = replicas.max(1).into();
                object["spec"]["predictor"]["maxReplicas"] = (replicas.max(1) + 2).into();
            }
            Self::Ray => object["spec"]["workerGroupSpecs"][0]["replicas"] = replicas.into(),
            Self::Replace => object["spec"]["replicas"] = replicas.into(),
            Self::Kaito | Self::Argo => {}
        }
    }
}

/// Sets an annotation, or removes it if it already has this value.
fn toggle(annotations: &mut Value, key: &str, value: &str) {
    annotations[key] = if annotations[key] == value {
        Value::Null
    } else {
        value.into()
    };
}

impl OwnerKind {
    /// Whether users commit manifests rather than create objects.
    #[must_use]
    pub fn is_gitops(self) -> bool {
        self.resource().is_none()
    }
}

/// The owner that reconciles objects of this kind.
#[must_use]
pub fn owner_of_kind(kind: &str) -> Option<OwnerKind> {
    let all = [OwnerKind::Kserve, OwnerKind::Kaito, OwnerKind::Ray];
    all.into_iter()
        .find(|owner| owner.resource().is_some_and(|it| it.kind == kind))
}

/// How many pods of a workload that may be bound are wanted.
#[must_use]
pub fn wanted_pods(workload: &Value) -> u64 {
    if workload["kind"] != "RayCluster" {
        return workload["spec"]["replicas"].as_u64().unwrap_or(1);
    }
    // The number in the status, as its owner last reported it.
    let wanted = &workload["status"]["desiredWorkerReplicas"];
    wanted.as_u64().unwrap_or_default()
}

/// Whether a pod of a workload may be bound: the head of a Ray cluster may not.
#[must_use]
pub fn is_bindable(pod: &Value) -> bool {
    pod["metadata"]["labels"]["ray.io/node-type"] != "head"
}

/// All possible ids of an actor's target, and of what owners create for it.
#[must_use]
pub fn ids_of(namespace: &str, name: &str) -> Vec<Id> {
    let own = [OwnerKind::Kserve, OwnerKind::Kaito, OwnerKind::Ray];
    let of_owner = |owner: OwnerKind| {
        let target = Id::new(owner.target(), namespace, name);
        owner.workload(&target).into_iter().chain([target])
    };
    own.into_iter().flat_map(of_owner).collect()
}
