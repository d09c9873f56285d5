//! The subject of `why`: a pod, or the pods of an actor or a workload.

use asya_shared::api::{AsyncActor, WorkloadRef};
use asya_shared::probe::ProbeMetadata;
use asya_shared::resolve::Integration;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::KnownActor;
use crate::answer::Failure;
use crate::cluster::{Cluster, resource};
use crate::resolved_target::{self, Unresolved, new_pod};

/// The object that the user has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhySubject {
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pod,
    /// Named without a kind: a pod, or else an actor.
    PodOrActor,
    Actor,
    /// Of the group `apps`.
    Workload(&'static str),
}

/// A pod that is asked about.
pub struct Asked {
    pub object: Value,
    /// If the pod does not exist: the workload that would create it, as Kind/name.
    pub new_pod_of: Option<String>,
}

impl Asked {
    pub fn existing(object: Value) -> Self {
        Self {
            object,
            new_pod_of: None,
        }
    }
}

impl WhySubject {
    /// Parses `NAME` or `KIND/NAME`, as printed by kubectl and `trace`; also `deployment.apps/NAME` and
    /// `AsyncActor/NAMESPACE/NAME`.
    ///
    /// # Errors
    /// If pods of this kind cannot be found.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let Some((kind, rest)) = text.split_once('/') else {
            return Ok(Self {
                kind: Kind::PodOrActor,
                namespace: None,
                name: text.to_owned(),
            });
        };
        let (word, _) = kind.split_once('.').unwrap_or((kind, ""));
        let kind = match &*word.to_ascii_lowercase() {
            "po" | "pod" | "pods" => Kind::Pod,
            "actor" | "actors" | "asya" | "asyncactor" | "asyncactors" => Kind::Actor,
            "deploy" | "deployment" | "deployments" => Kind::Workload("Deployment"),
            "sts" | "statefulset" | "statefulsets" => Kind::Workload("StatefulSet"),
            _ => {
                return Err(Failure::new(format!(
                    "{text} is not a pod; pass a pod, actor/NAME, deploy/NAME or statefulset/NAME"
                )));
            }
        };
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, rest),
        };
        Ok(Self {
            kind,
            namespace,
            name: name.to_owned(),
        })
    }

    /// The namespace, if it is part of the name.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub fn is_pod(&self) -> bool {
        self.kind == Kind::Pod
    }

    /// Decides what a name without a kind means. Names of pods are long, so users often give the actor's name.
    pub async fn resolved(self, cluster: &Cluster) -> Self {
        if self.kind != Kind::PodOrActor {
            return self;
        }
        let namespace = Some(&*cluster.namespace);
        let pod = cluster.get(&resource::<Pod>(), namespace, &self.name).await;
        let has_actor = match pod {
            Ok(None) => {
                let actor = resource::<AsyncActor>();
                let actor = cluster.get(&actor, namespace, &self.name).await;
                matches!(actor, Ok(Some(_)))
            }
            // If a pod cannot be read, that is reported when it is read again.
            Ok(Some(_)) | Err(_) => false,
        };
        self.decided(has_actor)
    }

    fn decided(self, is_actor: bool) -> Self {
        let kind = match self.kind {
            Kind::PodOrActor if is_actor => Kind::Actor,
            Kind::PodOrActor => Kind::Pod,
            kind => kind,
        };
        Self { kind, ..self }
    }
}

/// The pods of a subject, or the one that its workload would create; and what could not be read.
///
/// # Errors
/// If the subject does not exist, or its pods cannot be found.
pub async fn pods(
    cluster: &Cluster,
    subject: &WhySubject,
) -> Result<(Vec<Asked>, Vec<String>), Failure> {
    let wanted = match subject.kind {
        Kind::Pod | Kind::PodOrActor => {
            let pod = cluster.pod(&subject.name).await?;
            return Ok((vec![Asked::existing(pod)], Vec::new()));
        }
        Kind::Actor => target_of(&cluster.actor(&subject.name).await?, &subject.name)?,
        Kind::Workload(kind) => WorkloadRef {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            name: subject.name.clone(),
            ..WorkloadRef::default()
        },
    };
    let found = resolved_target::resolve(cluster, &cluster.namespace, &wanted).await;
    let found = found.map_err(|unresolved| match unresolved {
        Unresolved::Finding(finding) => Failure::new(finding.message),
        Unresolved::Unknown(failure) => failure.into(),
    })?;
    if !found.pods.is_empty() {
        let pods = found.pods.into_iter().map(Asked::existing);
        return Ok((pods.collect(), found.notes));
    }
    let metadata = ProbeMetadata::of(&found.target.pods, Integration::of_target(&wanted));
    let workload = found.target.workload.to_string();
    let Some(object) = new_pod(&found, metadata.as_ref()) else {
        return Err(Failure::new(format!(
            "{workload} has no pods, and no new one can be constructed; scale it up"
        )));
    };
    let asked = Asked {
        object,
        new_pod_of: Some(workload),
    };
    Ok((vec![asked], found.notes))
}

fn target_of(actor: &Value, name: &str) -> Result<WorkloadRef, Failure> {
    let decoded: Result<AsyncActor, _> = serde_json::from_value(actor.clone());
    let target = decoded.ok().and_then(|it| it.spec.workload_ref);
    target.ok_or_else(|| Failure::new(KnownActor::own_workload_text(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_kubectl_and_trace_print_them() {
        for (text, kind, namespace, name) in [
            ("phi-0", Kind::PodOrActor, None, "phi-0"),
            ("pod/phi-0", Kind::Pod, None, "phi-0"),
            ("pods/phi-0", Kind::Pod, None, "phi-0"),
            ("Pod/phi-0", Kind::Pod, None, "phi-0"),
            ("actor/embed", Kind::Actor, None, "embed"),
            ("asyncactor.asya.sh/embed", Kind::Actor, None, "embed"),
            (
                "AsyncActor/models/embed",
                Kind::Actor,
                Some("models"),
                "embed",
            ),
            ("deploy/phi", Kind::Workload("Deployment"), None, "phi"),
            (
                "deployment.apps/phi",
                Kind::Workload("Deployment"),
                None,
                "phi",
            ),
            (
                "StatefulSet/phi",
                Kind::Workload("StatefulSet"),
                None,
                "phi",
            ),
        ] {
            let expected = WhySubject {
                kind,
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            };
            assert_eq!(WhySubject::parse(text), Ok(expected), "{text}");
        }
        let kind_of =
            |text: &str, is_actor| WhySubject::parse(text).unwrap().decided(is_actor).kind;
        assert_eq!(kind_of("embed", true), Kind::Actor);
        assert_eq!(kind_of("embed", false), Kind::Pod);
        assert_eq!(kind_of("pod/embed", true), Kind::Pod);
        let refused = WhySubject::parse("service/phi").unwrap_err().to_string();
        assert!(refused.starts_with("service/phi is not a pod"), "{refused}");
    }
}
