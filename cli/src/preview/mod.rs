//! `preview`: what applying actors would do. The API server checks everything in dry runs, and the operator's and the
//! webhook's own functions compute the rest.

mod admission;
mod binding;
mod bound;
mod change;
mod children;
mod cost;
mod decide;
mod effects;
mod gather;
mod online;
mod queue;
mod render;
mod restart;
mod secrets;
mod standalone;

use asya_shared::api::AsyncActor;
use asya_shared::key::Key;
use serde_json::{Value, json};

use self::admission::AdmissionVerdict;
use self::decide::{ActorWrite, Preview};
use self::online::Online;
use crate::answer::{Answer, Failure, Report};
use crate::args::PreviewArgs;
use crate::cluster::{ApiFailure, Cluster, Connection, resource};
use crate::installation::Installation;
use crate::lint::{self, Linted, Rules};
use crate::manifests::{Manifest, Manifests};
use crate::{manifests, output, values};

/// Namespace of actors that name none if there is no cluster.
const DEFAULT_NAMESPACE: &str = "default";
/// UID of an actor that is not stored yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";
/// How often to try the dry run of an actor that others write at the same time. When the operator starts an actor, it
/// writes the actor's status a few times within a second.
const ATTEMPTS: u32 = 5;
/// How many of the ignored objects are named.
const MOST_NAMES: usize = 3;

/// Previews the actors of these files. Exit code 1: they would not work; 2: unknown.
///
/// # Errors
/// If a path or the values cannot be read, or there is no `AsyncActor`.
pub async fn run(connection: &Connection, args: &PreviewArgs) -> Result<Report, Failure> {
    let found = manifests::read(&args.filename)?;
    let has_actors = found.objects.iter().any(lint::is_actor);
    if !has_actors && found.unreadable.is_empty() {
        return Err(manifests::without_actors(&args.filename));
    }
    let given = args.values.as_deref().map(values::read).transpose()?;
    let schema = asya_crds::evaluable_schema();
    let schema =
        schema.map_err(|error| Failure::new(format!("cannot read the CRD's schema: {error}")))?;
    let mut notes: Vec<String> = ignored(&found).into_iter().collect();
    let cluster = if has_actors {
        let cluster = reachable(connection).await;
        cluster
            .map_err(|failure| notes.push(failure.to_string()))
            .ok()
    } else {
        None
    };
    let installation = match &cluster {
        Some(cluster) => Installation::given_or_read(given, cluster, &mut notes).await,
        None => given,
    };
    let namespace = default_namespace(connection, cluster.as_ref());
    let linted = lint::lint(
        &found,
        &Rules {
            schema: &schema,
            installation: installation.as_ref(),
            namespace: &namespace,
            operator_namespace: connection.operator_namespace(),
        },
    );
    let mut previews = Vec::new();
    for manifest in found.objects.iter().filter(|it| lint::is_actor(it)) {
        let object = placed(manifest, &namespace);
        let mut preview = Preview::new(&object, &linted);
        if let Some(cluster) = &cluster {
            Box::pin(online(
                cluster,
                installation.as_ref(),
                &object,
                &mut preview,
            ))
            .await;
        }
        previews.push(preview);
    }
    let width = output::terminal_width();
    let format = args.output.output;
    let text = format.write(&previews, || render::text(&previews, width))?;
    let unreadable = linted.findings.iter().filter(|it| it.actor.is_empty());
    notes.extend(unreadable.map(|it| format!("{}:{}: {}", it.file, it.line, it.problem)));
    let answer = answer(&previews, &linted);
    for preview in &mut previews {
        notes.append(&mut preview.notes);
    }
    notes.dedup();
    Ok(Report::new(text, answer).with_notes(notes))
}

/// The namespace of actors that name none.
fn default_namespace(connection: &Connection, cluster: Option<&Cluster>) -> String {
    let of_cluster = cluster.map(|it| &*it.namespace);
    let chosen = of_cluster.or(connection.namespace());
    chosen.unwrap_or(DEFAULT_NAMESPACE).to_owned()
}

/// Findings outweigh unknowns, and a document that cannot be read counts as a finding.
fn answer(previews: &[Preview], linted: &Linted) -> Answer {
    if linted.findings.iter().any(|it| it.actor.is_empty()) {
        return Answer::Findings;
    }
    let answers = previews.iter().map(Preview::answer);
    let worst = answers.max_by_key(|it| (*it == Answer::Findings, *it));
    worst.unwrap_or(Answer::Fine)
}

/// Names what these files contain besides actors. A target, for example, must already be in the cluster.
fn ignored(found: &Manifests) -> Option<String> {
    let others: Vec<&Manifest> = found
        .objects
        .iter()
        .filter(|it| !lint::is_actor(it))
        .collect();
    let names = others.iter().take(MOST_NAMES).map(|it| {
        let kind = Some(it.kind())
            .filter(|it| !it.is_empty())
            .unwrap_or("object");
        let name = it.object["metadata"]["name"].as_str().unwrap_or("?");
        format!("{kind}/{name}")
    });
    let names: Vec<String> = names.collect();
    let more = match others.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "ignored: {}{more}; only AsyncActors are previewed, against what is in the cluster",
            names.join(", ")
        )
    })
}

/// The cluster, if it is reachable.
async fn reachable(connection: &Connection) -> Result<Cluster, Failure> {
    let cluster = connection.open().await?;
    cluster.version().await?;
    Ok(cluster)
}

/// The actor in the namespace that it would be applied to.
fn placed(manifest: &Manifest, namespace: &str) -> Value {
    let mut object = manifest.object.clone();
    let metadata = &mut object["metadata"];
    if metadata["namespace"].as_str().is_none_or(str::is_empty) {
        metadata["namespace"] = json!(namespace);
    }
    object
}

/// Adds the effects of the API server and the operator.
async fn online(
    cluster: &Cluster,
    installation: Option<&Installation>,
    object: &Value,
    preview: &mut Preview,
) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let key = Key::new(text("namespace"), text("name"));
    let dry_run = match ActorDryRun::of(cluster, &key, object).await {
        Ok(dry_run) => dry_run,
        Err(failure) => {
            preview.server = AdmissionVerdict::Unknown {
                message: failure.text,
            };
            return;
        }
    };
    let ActorDryRun {
        existing,
        wanted,
        answer,
    } = dry_run;
    preview.server = AdmissionVerdict::of(&answer);
    preview.reject_actor();
    let mut stored = match (answer, &preview.server) {
        (Ok(stored), _) => stored,
        (Err(_), AdmissionVerdict::Rejected { .. }) => return,
        (Err(_), _) => wanted,
    };
    if existing.is_none() {
        stored["metadata"]["uid"] = json!(NO_UID);
    }
    preview.write = ActorWrite::of(existing.as_ref(), &stored);
    preview.changes.push(change::Change::of(
        preview.object(),
        existing.as_ref(),
        &stored,
    ));
    let Some(installation) = installation else {
        preview.incomplete("the operator's settings are unknown, so its objects are not shown");
        return;
    };
    let online = Online {
        cluster,
        installation,
        namespace: &key.namespace,
        name: &key.name,
        existing: existing.as_ref(),
        stored: &stored,
    };
    online.add_effects(preview).await;
}

struct ActorDryRun {
    /// The stored actor, if there is one.
    existing: Option<Value>,
    /// The manifest that was sent.
    wanted: Value,
    answer: Result<Value, ApiFailure>,
}

impl ActorDryRun {
    /// Dry-runs the creation or replacement of the actor. If someone writes the actor meanwhile, as the operator does
    /// with its status, starts again from the new state, up to [`ATTEMPTS`] times in all.
    async fn of(cluster: &Cluster, key: &Key, object: &Value) -> Result<Self, ApiFailure> {
        let Key { namespace, name } = key;
        let kind = resource::<AsyncActor>();
        let mut attempt = 1;
        loop {
            let existing = cluster.get(&kind, Some(namespace), name).await?;
            let (wanted, answer) = match &existing {
                None => {
                    let answer = cluster.dry_run_create(&kind, namespace, object).await;
                    (object.clone(), answer)
                }
                Some(existing) => {
                    let wanted = replacing(existing, object);
                    let answer = cluster.dry_run_replace(&kind, key, &wanted).await;
                    (wanted, answer)
                }
            };
            let is_conflict = answer.as_ref().is_err_and(|failure| failure.is_conflict);
            if !is_conflict || attempt == ATTEMPTS {
                return Ok(Self {
                    existing,
                    wanted,
                    answer,
                });
            }
            attempt += 1;
        }
    }
}

/// The stored actor with the spec, labels and annotations of the manifest.
fn replacing(existing: &Value, object: &Value) -> Value {
    let mut wanted = existing.clone();
    wanted["spec"] = object["spec"].clone();
    for field in ["labels", "annotations"] {
        let given = object["metadata"][field].as_object();
        for (key, value) in given.into_iter().flatten() {
            wanted["metadata"][field][key] = value.clone();
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use kube::Client;
    use kube::client::Body;

    use super::*;

    /// An API server where the actor is written between each of the first `writes` reads and the replacement.
    fn busy(writes: u32) -> Cluster {
        let version = Arc::new(AtomicU32::new(1));
        let answer = move |request: http::Request<Body>| {
            let version = Arc::clone(&version);
            async move {
                let is_read = request.method() == http::Method::GET;
                let body = request.into_body().collect_bytes().await?;
                let now = version.load(Ordering::Relaxed);
                let actor = json!({
                    "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
                    "metadata": {"name": "a", "namespace": "n", "resourceVersion": now.to_string()},
                    "spec": {"transport": "mq"},
                });
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = if is_read {
                    if now <= writes {
                        version.fetch_add(1, Ordering::Relaxed);
                    }
                    (200, actor)
                } else if sent["metadata"]["resourceVersion"]
                    == actor["metadata"]["resourceVersion"]
                {
                    (200, sent)
                } else {
                    let message = "the object has been modified";
                    let status = json!({"status": "Failure", "reason": "Conflict", "message": message, "code": 409});
                    (409, status)
                };
                let response = http::Response::builder().status(code);
                response
                    .body(Body::from(answer.to_string().into_bytes()))
                    .map_err(tower::BoxError::from)
            }
        };
        Cluster::of(Client::new(tower::service_fn(answer), "n"))
    }

    /// The operator may write an actor's status at any time.
    #[tokio::test]
    async fn actor_that_is_written_meanwhile_is_read_again() {
        let object =
            json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"transport": "sqs"}});
        for (writes, admitted) in [
            (0, true),
            (1, true),
            (ATTEMPTS - 1, true),
            (ATTEMPTS, false),
        ] {
            let dry_run = ActorDryRun::of(&busy(writes), &Key::new("n", "a"), &object).await;
            let answer = dry_run.map(|it| AdmissionVerdict::of(&it.answer));
            assert_eq!(
                answer == Ok(AdmissionVerdict::Admitted),
                admitted,
                "{writes} writes: {answer:?}"
            );
        }
    }

    #[test]
    fn objects_that_are_no_actors_are_said_to_be_ignored() {
        let object = |kind: &str, name: &str| Manifest {
            file: "a.yaml".to_owned(),
            line: 1,
            text: "".into(),
            object: json!({"apiVersion": "asya.sh/v1alpha1", "kind": kind, "metadata": {"name": name}}),
        };
        let of = |kinds: &[&str]| {
            let objects = kinds.iter().map(|kind| object(kind, "phi"));
            ignored(&Manifests {
                objects: objects.collect(),
                unreadable: Vec::new(),
            })
        };
        let rest = "; only AsyncActors are previewed, against what is in the cluster";
        assert_eq!(of(&["AsyncActor"]), None);
        assert_eq!(
            of(&["Deployment", "AsyncActor"]),
            Some(format!("ignored: Deployment/phi{rest}"))
        );
        assert_eq!(
            of(&["A", "B", "", "D", "E"]),
            Some(format!(
                "ignored: A/phi, B/phi, object/phi and 2 more{rest}"
            ))
        );
    }

    #[test]
    fn manifest_replaces_the_spec_and_keeps_what_others_annotated() {
        let existing = json!({
            "metadata": {"name": "a", "resourceVersion": "7", "annotations": {"theirs": "1", "both": "1"}},
            "spec": {"transport": "mq", "scaling": {}}, "status": {"status": "Running"},
        });
        let object = json!({
            "metadata": {"name": "a", "annotations": {"both": "2"}, "labels": {"new": "1"}},
            "spec": {"transport": "sqs"},
        });
        let found = replacing(&existing, &object);
        assert_eq!(found["metadata"]["resourceVersion"], "7");
        assert_eq!(
            found["metadata"]["annotations"],
            json!({"theirs": "1", "both": "2"})
        );
        assert_eq!(found["metadata"]["labels"], json!({"new": "1"}));
        assert_eq!(found["spec"], json!({"transport": "sqs"}));
    }
}
