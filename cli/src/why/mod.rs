//! `why`: whether a pod gets the sidecar, and why, rule by rule. The decision is the webhook's own function.

mod decide;
mod known;
mod nearest;
mod render;
mod subject;
#[cfg(test)]
pub mod testing;

use std::path::Path;

use asya_shared::api::AsyncActor;
use asya_shared::resolve::{IntermediateOwners, ObjectRef, controller_of};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;

use self::decide::{Explanation, Question, explain};
pub use self::known::KnownActor;
use self::subject::{Asked, WhySubject};
use crate::answer::{Answer, Failure, Report};
use crate::args::WhyArgs;
use crate::cluster::{Cluster, Connection, resource};
use crate::installation::Installation;
use crate::manifests::Manifests;
use crate::{manifests, output, values};

/// Says why a pod gets the sidecar or not. Exit code 1: it does not.
///
/// # Errors
/// If the pod or the actors cannot be read.
pub async fn run(connection: &Connection, args: &WhyArgs) -> Result<Report, Failure> {
    let gathered = gather(connection, args).await?;
    let explanations: Vec<Explanation> = gathered
        .pods
        .iter()
        .map(|pod| Explanation {
            new_pod_of: pod.new_pod_of.clone(),
            ..explain(&gathered.question(&pod.object))
        })
        .collect();
    let width = output::terminal_width();
    let format = args.output.output;
    let text = match &explanations[..] {
        [one] if gathered.is_one => format.write(one, || render::text(one, width))?,
        all => format.write(&all, || render::all(all, width))?,
    };
    let answers = explanations.iter().map(Explanation::answer);
    let worst = answers.max_by_key(|it| (*it == Answer::Findings, *it));
    Ok(Report::new(text, worst.unwrap_or(Answer::Fine)).with_notes(gathered.notes))
}

/// Inputs of the decision.
struct Gathered {
    pods: Vec<Asked>,
    /// Whether the user has named a pod rather than an object that has pods.
    is_one: bool,
    namespace: String,
    operator_namespace: String,
    actors: Vec<KnownActor>,
    installation: Option<Installation>,
    clusters: Option<IntermediateOwners>,
    /// Whether the actors come from files, which do not show what has happened to them.
    offline: bool,
    notes: Vec<String>,
}

impl Gathered {
    fn question<'a>(&'a self, pod: &'a Value) -> Question<'a> {
        Question {
            pod,
            namespace: &self.namespace,
            operator_namespace: &self.operator_namespace,
            actors: &self.actors,
            installation: self.installation.as_ref(),
            clusters: self.clusters.as_ref(),
            offline: self.offline,
        }
    }
}

async fn gather(connection: &Connection, args: &WhyArgs) -> Result<Gathered, Failure> {
    let given = args.values.as_deref().map(values::read).transpose()?;
    if let Some(file) = &args.filename {
        let found = manifests::read(std::slice::from_ref(file))?;
        return from_file(connection, file, &found, given).await;
    }
    let mut cluster = connection.open().await?;
    let subject = WhySubject::parse(args.pod.as_deref().unwrap_or_default())?;
    if let Some(namespace) = subject.namespace() {
        namespace.clone_into(&mut cluster.namespace);
    }
    let subject = subject.resolved(&cluster).await;
    let (pods, notes) = subject::pods(&cluster, &subject).await?;
    let namespace = cluster.namespace.clone();
    let mut gathered = from_cluster(&cluster, pods, namespace, given).await?;
    gathered.is_one = subject.is_pod();
    gathered.notes.extend(notes);
    Ok(gathered)
}

/// The first pod in the file, with the file's actors or, if it has none, those of the cluster.
async fn from_file(
    connection: &Connection,
    file: &Path,
    found: &Manifests,
    given: Option<Installation>,
) -> Result<Gathered, Failure> {
    let of_kind = |kind: &'static str| {
        found
            .objects
            .iter()
            .filter(move |it| it.kind() == kind)
            .map(|it| &it.object)
    };
    let pod = of_kind("Pod").next().cloned();
    let Some(pod) = pod else {
        return Err(Failure::new(format!(
            "no Pod in {}; it may also hold AsyncActors",
            file.display()
        )));
    };
    let namespace = pod["metadata"]["namespace"]
        .as_str()
        .or(connection.namespace())
        .map(str::to_owned);
    let mut actors = of_kind("AsyncActor").peekable();
    if actors.peek().is_none() {
        let cluster = connection.open().await?;
        let namespace = namespace.unwrap_or_else(|| cluster.namespace.clone());
        return from_cluster(&cluster, vec![Asked::existing(pod)], namespace, given).await;
    }
    let namespace = namespace.unwrap_or_else(|| "default".to_owned());
    let actors = actors.filter(|actor| {
        actor["metadata"]["namespace"]
            .as_str()
            .is_none_or(|it| it == namespace)
    });
    let mut notes = vec!["actors from a file: it is assumed that their bindings are in effect and that the API server admits their pods".to_owned()];
    if given.is_none() {
        notes.push("the operator's settings are unknown; pass its --values".to_owned());
    }
    Ok(Gathered {
        actors: actors
            .map(|actor| KnownActor::from_file(actor, &namespace))
            .collect(),
        pods: vec![Asked::existing(pod)],
        is_one: true,
        namespace,
        operator_namespace: connection.operator_namespace().to_owned(),
        installation: given,
        clusters: None,
        offline: true,
        notes,
    })
}

async fn from_cluster(
    cluster: &Cluster,
    pods: Vec<Asked>,
    namespace: String,
    given: Option<Installation>,
) -> Result<Gathered, Failure> {
    let listed = cluster
        .list(&resource::<AsyncActor>(), Some(&namespace))
        .await?;
    let actors: Vec<_> = listed.into_iter().map(KnownActor::new).collect();
    let mut notes = Vec::new();
    let installation = Installation::given_or_read(given, cluster, &mut notes).await;
    let clusters = if actors.iter().any(KnownActor::has_intermediate_owners) {
        ray_clusters(cluster, &namespace)
            .await
            .map_err(|failure| notes.push(format!("RayClusters are unknown: {failure}")))
            .ok()
    } else {
        None
    };
    Ok(Gathered {
        pods,
        is_one: true,
        namespace,
        operator_namespace: cluster.operator_namespace.clone(),
        actors,
        installation,
        clusters,
        offline: false,
        notes,
    })
}

/// A namespace's `RayCluster`s with their owners, because pods of a `RayService` refer only to them (SAFE-30).
pub async fn ray_clusters(
    cluster: &Cluster,
    namespace: &str,
) -> Result<IntermediateOwners, Failure> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let found = cluster.list(&kind, Some(namespace)).await?;
    let named = found.iter().filter_map(|object| {
        let name = object["metadata"]["name"].as_str()?;
        Some((name.into(), controller_of(object)))
    });
    Ok(named.collect::<std::collections::BTreeMap<Box<str>, Option<ObjectRef>>>())
}
