//! What brokers report about actors' queues, for commands that show more than queues. This must not take long, so
//! reports that do not arrive in time are left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::Transport;
use futures::future::join_all;
use serde::Serialize;
use serde_json::Value;

use super::access::{self, Names, Secrets};
use super::broker::QueueClient;
use super::guard::QueueUse;
use super::open::{self, Open};
use crate::actor::status_of;
use crate::answer::Failure;
use crate::args::queue::BrokerArgs;
use crate::catalogue;
use crate::cluster::Cluster;
use crate::installation::Installation;

/// The timeout of brokers is the command's timeout divided by this, which leaves time for the rest.
const TIMEOUT_DIVISOR: u32 = 3;
/// Maximum timeout of brokers.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);

/// An actor's queues, as reported by the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueState {
    pub queue: String,
    /// Messages that wait for a consumer; `None` if the queue does not exist at the broker.
    pub waiting: Option<u64>,
    /// Consumers, if reported.
    pub consumers: Option<u64>,
    pub dead_letter_queue: Option<String>,
    pub dead_letters: Option<u64>,
    /// Whether the dead letter queue is shared with other actors.
    pub has_shared_dead_letters: bool,
}

/// Something about an actor's queues that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueFinding {
    pub id: String,
    #[serde(skip)]
    pub name: &'static str,
    /// Whether messages are currently not processed.
    #[serde(skip)]
    pub is_failure: bool,
    pub text: String,
}

/// An actor as `namespace/name`, and its queues.
pub type ActorQueueState = (String, QueueState);

impl QueueState {
    async fn read<B: QueueClient>(broker: &mut B, names: &Names) -> Result<Self, Failure> {
        let size = broker.size(&names.queue).await?;
        let dead_letters = match &names.dlq {
            Some(dlq) => broker.size(&dlq.queue).await?.map(|size| size.waiting),
            None => None,
        };
        Ok(Self {
            queue: names.queue.clone(),
            waiting: size.map(|it| it.waiting),
            consumers: size.and_then(|it| it.consumers),
            dead_letter_queue: names.dlq.as_ref().map(|it| it.queue.clone()),
            dead_letters,
            has_shared_dead_letters: names.dlq.as_ref().is_some_and(|it| it.shared),
        })
    }

    /// Findings that need attention.
    pub fn findings(&self, actor: &Value) -> Vec<QueueFinding> {
        self.no_consumers(actor)
            .into_iter()
            .chain(self.dead_letters())
            .collect()
    }

    /// Messages that wait although there are pods to process them. A pod that starts will soon consume; without pods,
    /// scaling starts some.
    fn no_consumers(&self, actor: &Value) -> Option<QueueFinding> {
        let status = status_of(actor);
        let without_sidecar = status
            .pods
            .as_ref()
            .map_or(0, |pods| pods.matched - pods.injected);
        let has_pods = status.ready_replicas.unwrap_or_default() > 0 || without_sidecar > 0;
        let waiting = self.waiting.filter(|count| *count > 0)?;
        let is_found = has_pods && self.consumers == Some(0);
        is_found.then(|| {
            let text = format!("{waiting} wait in {}, which has no consumers.", self.queue);
            finding("NoConsumers", true, &text)
        })
    }

    fn dead_letters(&self) -> Option<QueueFinding> {
        let queue = self.dead_letter_queue.as_ref()?;
        let count = self.dead_letters.filter(|count| *count > 0)?;
        let shared = if self.has_shared_dead_letters {
            ", which actors share"
        } else {
            ""
        };
        let text = format!("{count} in {queue}{shared}.");
        Some(finding("DeadLetters", false, &text))
    }
}

fn finding(name: &'static str, is_failure: bool, text: &str) -> QueueFinding {
    QueueFinding {
        id: catalogue::id(name),
        name,
        is_failure,
        text: text.to_owned(),
    }
}

/// An actor's queues as the broker reports them; `None` if it has none yet.
///
/// # Errors
/// If the broker cannot be reached, or the user may not read its credentials.
pub async fn state(
    cluster: &Arc<Cluster>,
    actor: &Value,
    timeout: Duration,
) -> Result<Option<QueueState>, Failure> {
    if status_of(actor).queue.is_none() {
        return Ok(None);
    }
    let name = actor["metadata"]["name"].as_str().unwrap_or_default();
    let limit = limit(timeout);
    let asking = async {
        let access = access::access(
            cluster,
            name,
            actor,
            &BrokerArgs::default(),
            QueueUse::Count,
        )
        .await?;
        match open::open(cluster, &access.server, access.limit, limit).await? {
            Open::RabbitMq(mut broker, _forward) => {
                let state = QueueState::read(&mut broker, &access.names).await;
                broker.close().await;
                state
            }
            Open::Sqs(mut broker, _forward) => QueueState::read(&mut broker, &access.names).await,
        }
    };
    // The futures of broker connections are large.
    let state = tokio::time::timeout(limit, Box::pin(asking)).await;
    let state = state.unwrap_or_else(|_| Err(silent(limit)));
    state.map(Some).map_err(|why| naming_the_command(&why))
}

/// The queues of actors in any namespace as their brokers report them, over one connection per transport; and what is
/// missing.
pub async fn states(
    cluster: &Arc<Cluster>,
    installation: &Installation,
    actors: &[Value],
    timeout: Duration,
) -> (Vec<ActorQueueState>, Vec<String>) {
    let mut of_transport: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for actor in actors {
        if let Some(queue) = status_of(actor).queue {
            of_transport.entry(queue.transport).or_default().push(actor);
        }
    }
    let limit = limit(timeout);
    let asked = of_transport.into_iter().map(async |(name, actors)| {
        let mut found = Vec::new();
        let asking = async {
            let transport = installation.transports.usable(&name);
            let transport = transport.map_err(|why| Failure::new(why.to_string()))?;
            ask(cluster, transport, &actors, limit, &mut found).await
        };
        let ended = tokio::time::timeout(limit, Box::pin(asking)).await;
        let ended = ended.unwrap_or_else(|_| Err(silent(limit)));
        let note = ended.err().map(|why| {
            let why = naming_the_command(&why);
            format!(
                "dead letters and consumers on transport {name} are missing for {} of {} actors: {why}",
                actors.len() - found.len(),
                actors.len()
            )
        });
        (found, note)
    });
    let (mut states, mut notes) = (Vec::new(), Vec::new());
    for (found, note) in join_all(asked).await {
        states.extend(found);
        notes.extend(note);
    }
    (states, notes)
}

/// Queries the queues of actors on one transport.
async fn ask(
    cluster: &Arc<Cluster>,
    transport: &Transport,
    actors: &[&Value],
    limit: Duration,
    found: &mut Vec<ActorQueueState>,
) -> Result<(), Failure> {
    let namespace = actors
        .first()
        .and_then(|it| it["metadata"]["namespace"].as_str());
    let secrets = Secrets {
        cluster,
        namespace: namespace.unwrap_or_default(),
    };
    let server = access::server(&secrets, transport).await?;
    match open::open(cluster, &server, None, limit).await? {
        Open::RabbitMq(mut broker, _forward) => {
            let read = read_all(&mut broker, transport, actors, found).await;
            broker.close().await;
            read
        }
        Open::Sqs(mut broker, _forward) => read_all(&mut broker, transport, actors, found).await,
    }
}

async fn read_all<B: QueueClient>(
    broker: &mut B,
    transport: &Transport,
    actors: &[&Value],
    found: &mut Vec<ActorQueueState>,
) -> Result<(), Failure> {
    for actor in actors {
        let text = |field: &str| actor["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let names = access::names(namespace, name, actor, Some(transport));
        let state = QueueState::read(broker, &names).await?;
        found.push((format!("{namespace}/{name}"), state));
    }
    Ok(())
}

fn limit(timeout: Duration) -> Duration {
    (timeout / TIMEOUT_DIVISOR).min(MAX_TIMEOUT)
}

/// Names the command in a failure whose text mentions flags that only other commands have.
fn naming_the_command(why: &Failure) -> Failure {
    let text = why.to_string();
    let names_flags = ["--address", "--user"]
        .iter()
        .any(|flag| text.contains(flag));
    Failure::new(if names_flags {
        format!("{text} (flags of `kubectl asya queue NAME`)")
    } else {
        text
    })
}

fn silent(limit: Duration) -> Failure {
    Failure::new(format!(
        "the broker did not answer within {} s",
        limit.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::memory::Memory;
    use super::*;
    use crate::queue::access::DeadLetters;

    fn names(shared: bool) -> Names {
        Names {
            transport: "mq".to_owned(),
            queue: "asya-embed".to_owned(),
            dlq: Some(DeadLetters {
                queue: "dlq".to_owned(),
                shared,
            }),
            actor: "embed".to_owned(),
            happy_end: "asya-happy-end".to_owned(),
            error_end: "asya-error-end".to_owned(),
        }
    }

    fn found(state: &QueueState, status: &Value) -> Vec<String> {
        let findings = state.findings(&json!({"status": status}));
        let texts = findings.iter().map(|it| format!("{} {}", it.id, it.text));
        texts.collect()
    }

    #[tokio::test]
    async fn dead_letters_are_found_and_counted() {
        for (shared, text) in [
            (false, "ASYA-DeadLetters 2 in dlq."),
            (true, "ASYA-DeadLetters 2 in dlq, which actors share."),
        ] {
            let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &["a", "b"])]);
            let state = QueueState::read(&mut broker, &names(shared)).await.unwrap();
            assert_eq!(found(&state, &Value::Null), [text]);
        }
        let mut broker = Memory::with(&[("asya-embed", &["a"])]);
        let state = QueueState::read(&mut broker, &names(false)).await.unwrap();
        assert_eq!((state.waiting, state.dead_letters), (Some(1), None));
        assert_eq!(found(&state, &Value::Null), [""; 0]);
    }

    #[test]
    fn messages_without_consumers_are_found_while_pods_run() {
        let state = |waiting, consumers| QueueState {
            queue: "asya-embed".to_owned(),
            waiting: Some(waiting),
            consumers,
            ..QueueState::default()
        };
        let ready = json!({"readyReplicas": 1});
        let without = json!({"readyReplicas": 0, "pods": {"matched": 2, "injected": 0, "notInjected": 2, "outdated": 0}});
        let none = json!({"readyReplicas": 0});
        let text = "ASYA-NoConsumers 3 wait in asya-embed, which has no consumers.";
        for (state, status, expected) in [
            (state(3, Some(0)), &ready, &[text][..]),
            (state(3, Some(0)), &without, &[text]),
            (state(3, Some(0)), &none, &[]),
            (state(3, Some(1)), &ready, &[]),
            (state(3, None), &ready, &[]),
            (state(0, Some(0)), &ready, &[]),
        ] {
            assert_eq!(found(&state, status), expected, "{state:?} {status}");
        }
    }

    /// docs/cli.md: `status NAME`, `trace` and `check` have no broker flags.
    #[test]
    fn flags_of_another_command_are_named_with_it() {
        for (text, expected) in [
            (
                "no credentials for the broker: no; or pass --user and --password-file",
                "no credentials for the broker: no; or pass --user and --password-file (flags of `kubectl asya queue NAME`)",
            ),
            (
                "the broker did not answer within 5 s",
                "the broker did not answer within 5 s",
            ),
        ] {
            assert_eq!(
                naming_the_command(&Failure::new(text)).to_string(),
                expected
            );
        }
    }

    #[test]
    fn brokers_get_a_part_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(limit(seconds(3)), seconds(1));
        assert_eq!(limit(seconds(60)), seconds(5));
    }
}
