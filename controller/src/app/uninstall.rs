//! Checks whether the operator may be uninstalled. Without it nothing processes the deletion of remaining actors, and
//! their finalizers block them and their namespaces (QUE-49).

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use asya_process::{BoxError, api_server};
use asya_shared::names::FINALIZER;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use crate::cluster::watch::OBJECTS_PAGE;
use crate::record::{ActorRecord, Key, Projected};

/// How long failed requests are retried.
const RETRY_TIMEOUT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_secs(2);
/// Connections on which nothing arrives for this long are closed.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// How many actors the message names.
const MAX_NAMED_ACTORS: usize = 3;

#[derive(Clone, Debug)]
struct RemainingActor {
    key: Key,
    has_finalizer: bool,
    has_queue: bool,
}

impl RemainingActor {
    fn of(actor: &ActorRecord) -> Self {
        let status = &actor.status_view;
        Self {
            key: actor.metadata.key.clone(),
            has_finalizer: actor.has_finalizer(FINALIZER),
            has_queue: status.queue.is_some() || !status.retired_queues.is_empty(),
        }
    }
}

/// Reports by the exit code whether no actor blocks an uninstall in these namespaces (all of them, if empty).
/// `rollback` is the command after which Helm upgrades the release again.
pub async fn check(kubeconfig: Option<&str>, namespaces: &[String], rollback: &str) -> ExitCode {
    let actors = match client(kubeconfig).await {
        Ok(client) => remaining_actors(&client, namespaces).await,
        Err(error) => Err(error),
    };
    match actors {
        Ok(actors) => match refusal(&actors, rollback) {
            None => {
                println!("no AsyncActor is left: the operator can be uninstalled");
                ExitCode::SUCCESS
            }
            Some(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!(
                "cannot determine whether AsyncActors are left: {error}. {}",
                ways_out(rollback)
            );
            ExitCode::FAILURE
        }
    }
}

async fn client(kubeconfig: Option<&str>) -> Result<Client, BoxError> {
    let config = api_server::config(kubeconfig, READ_TIMEOUT).await?;
    Ok(Client::try_from(config)?)
}

/// The actors in these namespaces, or in all of them.
async fn remaining_actors(
    client: &Client,
    namespaces: &[String],
) -> Result<Vec<RemainingActor>, BoxError> {
    let started = Instant::now();
    if namespaces.is_empty() {
        return remaining_in(client, None, started).await;
    }
    let mut actors = Vec::new();
    for namespace in namespaces {
        actors.extend(remaining_in(client, Some(namespace), started).await?);
    }
    Ok(actors)
}

async fn remaining_in(
    client: &Client,
    namespace: Option<&str>,
    started: Instant,
) -> Result<Vec<RemainingActor>, BoxError> {
    let api = namespace.map_or_else(
        || Api::all(client.clone()),
        |namespace| Api::namespaced(client.clone(), namespace),
    );
    loop {
        match list(&api).await {
            Ok(actors) => return Ok(actors),
            // The CRD does not exist.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return match namespace {
                    Some(namespace) if is_gone(client, namespace).await => Ok(Vec::new()),
                    _ => Err(status.message.into()),
                };
            }
            Err(error) if started.elapsed() >= RETRY_TIMEOUT => return Err(error.into()),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Whether the namespace does not exist: the operator's permissions in a watched namespace are deleted with it.
async fn is_gone(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_metadata_opt(namespace).await;
    found.is_ok_and(|it| it.is_none())
}

async fn list(api: &Api<Projected<ActorRecord>>) -> Result<Vec<RemainingActor>, kube::Error> {
    let mut actors = Vec::new();
    let mut params = ListParams::default().limit(OBJECTS_PAGE);
    loop {
        let page = api.list(&params).await?;
        actors.extend(
            page.items
                .iter()
                .map(|actor| RemainingActor::of(&actor.record)),
        );
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(actors),
        }
    }
}

/// Why the operator must not be uninstalled; `None` if it may be.
fn refusal(actors: &[RemainingActor], rollback: &str) -> Option<String> {
    let blocking: Vec<_> = actors.iter().filter(|it| it.has_finalizer).collect();
    if blocking.is_empty() {
        return None;
    }
    let with_queues = blocking.iter().filter(|it| it.has_queue).count();
    let left = match blocking.len() {
        1 => "1 AsyncActor is left".to_owned(),
        count => format!("{count} AsyncActors are left"),
    };
    let mut text = format!("{left}, {with_queues} of them with a queue:");
    for RemainingActor { key, .. } in blocking.iter().take(MAX_NAMED_ACTORS) {
        let _ = write!(text, " {key}");
    }
    if blocking.len() > MAX_NAMED_ACTORS {
        text.push_str(" …");
    }
    let _ = write!(
        text,
        ". Without the operator neither they nor their namespaces can be deleted. First decide about their queues: \
         spec.queue.deletionPolicy Retain keeps queue and messages, Drain processes the messages first, while the \
         queues that they go to exist. Then delete the actors, happy-end and error-end last, and uninstall again. {}",
        ways_out(rollback)
    );
    Some(text)
}

fn ways_out(rollback: &str) -> String {
    format!(
        "To leave actors, queues and pods as they are until the operator is reinstalled: helm uninstall --no-hooks. \
         To keep the operator: {rollback}; until then Helm does not upgrade it, because Helm considers the release to \
         be uninstalling"
    )
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::{RemainingActor, refusal, remaining_actors};
    use crate::record::Key;

    fn remaining(name: &str, has_finalizer: bool, has_queue: bool) -> RemainingActor {
        let key = Key::new("team", name);
        RemainingActor {
            key,
            has_finalizer,
            has_queue,
        }
    }

    /// An API server that lets nobody list actors; only namespace `there` exists.
    fn forbidding() -> Client {
        let service = tower::service_fn(|request: Request<Body>| {
            let (code, body) = match request.uri().path() {
                "/api/v1/namespaces/there" => (
                    200,
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "there"}}),
                ),
                "/api/v1/namespaces/gone" => (
                    404,
                    json!({"status": "Failure", "code": 404, "reason": "NotFound"}),
                ),
                _ => (
                    403,
                    json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "may not list"}),
                ),
            };
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            std::future::ready(Ok::<_, BoxError>(response))
        });
        Client::new(service, "default")
    }

    /// QUE-49: the operator's permissions in a watched namespace are deleted with it.
    #[tokio::test]
    async fn deleted_namespace_has_no_actors() {
        let client = forbidding();
        let found = async |namespaces: &[&str]| {
            let namespaces: Vec<_> = namespaces.iter().map(|it| (*it).to_owned()).collect();
            let actors = remaining_actors(&client, &namespaces).await;
            actors.map(|it| it.len()).map_err(|error| error.to_string())
        };
        assert_eq!(found(&["gone"]).await, Ok(0));
        let refused = Err("may not list".to_owned());
        assert_eq!(found(&["gone", "there"]).await, refused);
        assert_eq!(found(&[]).await, refused);
    }

    /// QUE-49
    #[test]
    fn uninstall_is_refused_while_an_actor_has_the_finalizer() {
        let refusal = |actors: &[RemainingActor]| refusal(actors, "helm rollback o 3");
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&[remaining("new", false, false)]), None);
        let some = [
            remaining("new", false, false),
            remaining("a", true, true),
            remaining("b", true, false),
        ];
        let text = refusal(&some).unwrap();
        for part in [
            "2 AsyncActors are left, 1 of them with a queue: team/a team/b.",
            "Retain keeps queue and messages",
            "--no-hooks",
            "To keep the operator: helm rollback o 3;",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let many: Vec<_> = ["a", "b", "c", "d"]
            .map(|name| remaining(name, true, true))
            .into();
        let text = refusal(&many).unwrap();
        assert!(text.contains(": team/a team/b team/c …."), "{text}");
    }
}
