//! Checks whether the operator may be uninstalled. Without it nothing processes the deletion of remaining actors, and
//! their finalizers block them and their namespaces (QUE-49).

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use asya_process::{BoxError, api_server};
use asya_shared::names::FINALIZER;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use crate::record::{ActorRecord, Key, Projected};

/// How long failed requests are retried.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_secs(2);
/// Connections on which nothing arrives for this long are closed.
const ANSWER: Duration = Duration::from_secs(20);
const PAGE: u32 = 500;
/// How many actors the message names.
const NAMED: usize = 3;

/// What the check needs to know of an actor.
#[derive(Clone, Debug)]
struct Left {
    key: Key,
    is_held: bool,
    has_queue: bool,
}

impl Left {
    fn of(actor: &ActorRecord) -> Self {
        let told = &actor.told;
        Self {
            key: actor.metadata.key.clone(),
            is_held: actor.finalizers.iter().any(|it| **it == *FINALIZER),
            has_queue: told.queue.is_some() || !told.retired_queues.is_empty(),
        }
    }
}

/// Reports by the exit code whether no actor blocks an uninstall in these namespaces (all of them, if empty).
/// `rollback` is the command after which Helm upgrades the release again.
pub async fn check(kubeconfig: Option<&str>, namespaces: &[String], rollback: &str) -> ExitCode {
    match looked(kubeconfig, namespaces).await {
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

async fn looked(kubeconfig: Option<&str>, namespaces: &[String]) -> Result<Vec<Left>, BoxError> {
    let config = api_server::config(kubeconfig, ANSWER).await?;
    let client = Client::try_from(config)?;
    let apis: Vec<Api<Projected<ActorRecord>>> = match namespaces {
        [] => vec![Api::all(client)],
        some => {
            let of = |namespace: &String| Api::namespaced(client.clone(), namespace);
            some.iter().map(of).collect()
        }
    };
    let started = Instant::now();
    let mut left = Vec::new();
    for api in apis {
        loop {
            match list(&api).await {
                Ok(found) => {
                    left.extend(found);
                    break;
                }
                // The CRD does not exist.
                Err(kube::Error::Api(status)) if status.is_not_found() => break,
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    return Err(status.message.into());
                }
                Err(error) if started.elapsed() >= PATIENCE => return Err(error.into()),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
    Ok(left)
}

async fn list(api: &Api<Projected<ActorRecord>>) -> Result<Vec<Left>, kube::Error> {
    let (mut found, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items.iter().map(|seen| Left::of(&seen.record)));
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// Why the operator must not be uninstalled; `None` if it may be.
fn refusal(actors: &[Left], rollback: &str) -> Option<String> {
    let held: Vec<_> = actors.iter().filter(|it| it.is_held).collect();
    if held.is_empty() {
        return None;
    }
    let with_queues = held.iter().filter(|it| it.has_queue).count();
    let mut text = format!(
        "{} AsyncActors are left, {with_queues} of them with a queue:",
        held.len()
    );
    for Left { key, .. } in held.iter().take(NAMED) {
        let _ = write!(text, " {key}");
    }
    if held.len() > NAMED {
        text.push_str(" …");
    }
    let _ = write!(
        text,
        ". Without the operator neither they nor their namespaces can be deleted. First decide about their queues: \
         spec.queue.deletionPolicy Retain keeps queue and messages, Drain processes the messages first. Then delete \
         the actors, and uninstall again. {}",
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
    use super::{Left, refusal};
    use crate::record::Key;

    fn left(name: &str, is_held: bool, has_queue: bool) -> Left {
        let key = Key::new("team", name);
        Left {
            key,
            is_held,
            has_queue,
        }
    }

    /// QUE-49
    #[test]
    fn operator_stays_as_long_as_an_actor_needs_it() {
        let refusal = |actors: &[Left]| refusal(actors, "helm rollback o 3");
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&[left("new", false, false)]), None);
        let some = [
            left("new", false, false),
            left("a", true, true),
            left("b", true, false),
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
            .map(|name| left(name, true, true))
            .into();
        let text = refusal(&many).unwrap();
        assert!(text.contains(": team/a team/b team/c …."), "{text}");
    }
}
