//! The broker of a run. Each run starts its own server, because faults kill it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::process::{Folder, Process, Signal};
use asya_tests::rabbitmq::{self, OPERATOR_PASSWORD, RabbitMq};
use asya_tests::sqs::{self, Sqs};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::setup::{Queues, Setup};
use crate::rig::{Actor, log_in};

/// A publication not confirmed within this time may or may not have been stored.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum age of the queue depths reported by RabbitMQ's management API.
const STATISTICS_AGE: Duration = Duration::from_millis(2500);
/// Number of messages fetched per request.
const AT_ONCE: usize = 500;

enum Client {
    RabbitMq(RabbitMq),
    Sqs(String, Sqs),
}

/// Direct access to the broker, so that faults of proxies do not affect the test itself.
pub struct Broker {
    client: Client,
    setup: Setup,
    server: Mutex<Arc<Process>>,
    _parts: Vec<Process>,
    folder: Folder,
}

impl Broker {
    pub async fn start(setup: Setup) -> Result<Self> {
        let folder = Folder::create("faults-broker")?;
        let (client, server, parts) = if setup.is_rabbitmq() {
            let (client, mut parts) = rabbitmq::serve(folder.path()).await?;
            let server = parts.pop().ok_or_else(|| Error::other("no server"))?;
            (Client::RabbitMq(client), server, parts)
        } else {
            let (url, server) = sqs::serve(folder.path()).await?;
            let client = sqs::client(&url)?;
            (Client::Sqs(url, client), server, Vec::new())
        };
        Ok(Self {
            client,
            setup,
            server: Mutex::new(Arc::new(server)),
            _parts: parts,
            folder,
        })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The port that sidecars use.
    pub fn port(&self) -> u16 {
        match &self.client {
            Client::RabbitMq(rabbitmq) => rabbitmq.state().port,
            Client::Sqs(url, _) => url
                .rsplit(':')
                .next()
                .and_then(|port| port.parse().ok())
                .unwrap_or_default(),
        }
    }

    /// An actor that connects to the broker through a proxy.
    pub fn actor(&self, name: &str, proxy: u16) -> Result<Actor> {
        match &self.client {
            Client::RabbitMq(rabbitmq) => Ok(Actor::on_rabbitmq(rabbitmq, name)?
                .with(&[("ASYA_RABBITMQ_PORT", &proxy.to_string())])),
            Client::Sqs(..) => Actor::on_sqs(&format!("http://127.0.0.1:{proxy}"), name),
        }
    }

    fn rabbitmq(&self) -> Result<&RabbitMq> {
        match &self.client {
            Client::RabbitMq(rabbitmq) => Ok(rabbitmq),
            Client::Sqs(..) => Err(Error::other("SQS has no such fault")),
        }
    }

    pub async fn create_queue(&self, actor: &str) -> Result<()> {
        let queue = queue(actor);
        match &self.client {
            Client::RabbitMq(rabbitmq) => {
                let kind = match self.setup.queues {
                    Queues::Quorum => "quorum",
                    Queues::Classic | Queues::Sqs => "classic",
                };
                rabbitmq
                    .declare(&queue, json!({"x-queue-type": kind}))
                    .await
            }
            Client::Sqs(_, sqs) => sqs.create(&queue).await,
        }
    }

    /// Publishes a message. After an error, it may or may not have been stored.
    pub async fn publish(&self, actor: &str, message: &str) -> Result<()> {
        let publishing = async {
            let queue = queue(actor);
            match &self.client {
                Client::RabbitMq(rabbitmq) => {
                    if rabbitmq.publish("", &queue, message).await? {
                        Ok(())
                    } else {
                        Err(Error::other(format!("{queue} is not there")))
                    }
                }
                Client::Sqs(_, sqs) => sqs.send(&queue, &[message.to_owned()]).await,
            }
        };
        timeout(PATIENCE, publishing)
            .await
            .map_err(|_| Error::other("the publication is not answered"))?
    }

    /// Fetches all messages of a queue.
    pub async fn take(&self, actor: &str) -> Result<Vec<Value>> {
        let queue = queue(actor);
        let bodies = match &self.client {
            Client::RabbitMq(rabbitmq) => {
                let mut all = Vec::new();
                loop {
                    let some = rabbitmq.messages(&queue, AT_ONCE, false).await?;
                    if some.is_empty() {
                        break all;
                    }
                    all.extend(some);
                }
            }
            Client::Sqs(_, sqs) => sqs.receive_all(&queue).await?,
        };
        bodies
            .iter()
            .map(|body| Ok(serde_json::from_str(body)?))
            .collect()
    }

    /// Number of an actor's messages that are ready or in flight; on RabbitMQ with a short delay.
    async fn left(&self, actor: &str) -> Result<u64> {
        let queue = queue(actor);
        match &self.client {
            Client::RabbitMq(rabbitmq) => {
                let found = rabbitmq.queue(&queue).await?;
                let counts = found
                    .and_then(|queue| Some(queue.messages_ready? + queue.messages_unacknowledged?));
                counts.ok_or_else(|| Error::other(format!("{queue} has no counts yet")))
            }
            Client::Sqs(_, sqs) => {
                let attributes = sqs.attributes(&queue).await?;
                let count = |name: &str| -> Option<u64> { attributes.get(name)?.parse().ok() };
                let counts = count("ApproximateNumberOfMessages")
                    .zip(count("ApproximateNumberOfMessagesNotVisible"));
                let (visible, hidden) =
                    counts.ok_or_else(|| Error::other(format!("{queue} has no counts")))?;
                Ok(visible + hidden)
            }
        }
    }

    /// Waits until these queues are empty, with nothing in flight.
    pub async fn are_empty(&self, actors: &[&str], within: Duration) -> Result<()> {
        let mut since: Option<Instant> = None;
        eventually(format!("{actors:?} are empty"), within, async || {
            for actor in actors {
                let left = self.left(actor).await.map_err(NotYet::new)?;
                if left > 0 {
                    since = None;
                    return Err(NotYet::new(format!("{actor}: {left} messages")));
                }
            }
            let empty = since.get_or_insert_with(Instant::now).elapsed();
            let age = if self.setup.is_rabbitmq() {
                STATISTICS_AGE
            } else {
                Duration::ZERO
            };
            check(empty >= age, "only just")
        })
        .await
    }

    pub async fn delete_queue(&self, actor: &str) -> Result<()> {
        self.rabbitmq()?.delete_queue(&queue(actor)).await.map(drop)
    }

    pub async fn signal(&self, signal: Signal) {
        self.server.lock().await.signal(signal);
    }

    /// Kills the server and restarts it after a while. Returns once the management API responds and logins are
    /// accepted.
    pub async fn kill(&self, down: Duration) -> Result<()> {
        let rabbitmq = self.rabbitmq()?;
        let mut server = self.server.lock().await;
        let spec = server.spec().clone();
        server.kill().await;
        sleep(down).await;
        *server = Arc::new(Process::start(spec).await?);
        eventually("RabbitMQ answers", Duration::from_mins(2), async || {
            rabbitmq.queues().await?;
            Ok(log_in(rabbitmq).await?)
        })
        .await
    }

    /// `rabbitmqctl`
    pub async fn control(&self, args: &[&str]) -> Result<()> {
        let server = self.server.lock().await.clone();
        rabbitmq::control(&server, args).await
    }

    /// Limits a queue to one message, or removes the limit.
    pub async fn set_full(&self, actor: &str, full: bool) -> Result<()> {
        let rabbitmq = self.rabbitmq()?;
        let path = ["policies", rabbitmq.state().vhost.as_str(), "full"];
        let request = if full {
            let body = json!({
                "pattern": format!("^{}$", queue(actor)), "apply-to": "queues",
                "definition": {"max-length": 1, "overflow": "reject-publish"},
            });
            rabbitmq.request(Method::PUT, &path)?.json(&body)
        } else {
            rabbitmq.request(Method::DELETE, &path)?
        };
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// Changes the password of the sidecars' user, or restores it.
    pub async fn refuse_logins(&self, refused: bool) -> Result<()> {
        let rabbitmq = self.rabbitmq()?;
        let password = if refused {
            "another"
        } else {
            OPERATOR_PASSWORD
        };
        rabbitmq
            .add_user(rabbitmq.user(), password, "management")
            .await
    }
}

fn queue(actor: &str) -> String {
    format!("asya-{actor}")
}
