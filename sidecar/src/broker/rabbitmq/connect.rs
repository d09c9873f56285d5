//! Connects and reconnects (SC-20).

use std::io;
use std::time::Duration;

use asya_amqp::{Connection, Event, Login, OpenError, Purpose};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::stream::{Tls, connect};
use crate::broker::backoff::ReconnectBackoff;
use crate::config::{Password, RabbitMqConfig, Secret};
use crate::metrics::BrokerMetrics;

/// Reply code for a missing queue.
const NOT_FOUND: u16 = 404;

/// Opens connections for one purpose.
pub(super) struct Connector {
    settings: RabbitMqConfig,
    actor: String,
    /// Larger deliveries are received only in part; `None`: no limit.
    largest: Option<usize>,
    backoff: ReconnectBackoff,
    /// The last reason that was logged, so that a repeated failure is logged once.
    last_logged: Option<String>,
    since: Option<Instant>,
    closing: CancellationToken,
    metrics: BrokerMetrics,
}

impl Connector {
    pub(super) fn new(
        settings: RabbitMqConfig,
        actor: &str,
        largest: Option<usize>,
        closing: CancellationToken,
        metrics: BrokerMetrics,
    ) -> Self {
        let actor = actor.to_owned();
        Self {
            settings,
            actor,
            largest,
            backoff: ReconnectBackoff::default(),
            last_logged: None,
            since: None,
            closing,
            metrics,
        }
    }

    /// Resolves when the process shuts down.
    pub(super) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Connects, retrying until it succeeds; `None` on shutdown.
    pub(super) async fn connection(&mut self, purpose: Purpose) -> Option<Connection> {
        if let Some(since) = self.since.take() {
            self.metrics.reconnects.inc();
            self.back_off(since.elapsed()).await?;
        }
        loop {
            let closing = self.closing.clone();
            let attempt = tokio::select! {
                () = closing.cancelled() => return None,
                attempt = open(&self.settings, &self.actor, purpose, self.largest) => attempt,
            };
            match attempt {
                Ok(connection) => {
                    self.since = Some(Instant::now());
                    return Some(connection);
                }
                Err(error) => self.log_once(purpose, &error.to_string()),
            }
            self.back_off(Duration::ZERO).await?;
        }
    }

    /// Called when a connection is in service: from now on, failures are logged again.
    pub(super) fn log_service(&mut self, purpose: Purpose) {
        if self.last_logged.take().is_some() {
            tracing::info!(connection = name(purpose), "reconnected to RabbitMQ");
        }
    }

    /// Logs why a connection was lost or refused, once per reason.
    pub(super) fn log_once(&mut self, purpose: Purpose, why: &str) {
        if self.last_logged.as_deref() != Some(why) && !self.closing.is_cancelled() {
            tracing::warn!(connection = name(purpose), "RabbitMQ: {why}; reconnecting");
            self.last_logged = Some(why.to_owned());
        }
    }

    async fn back_off(&mut self, uptime: Duration) -> Option<()> {
        let delay = self.backoff.after(uptime);
        tokio::select! {
            () = self.closing.cancelled() => None,
            () = sleep(delay) => Some(()),
        }
    }

    /// Whether a queue exists; `None` if the broker does not answer. Uses its own connection, because the broker closes
    /// the channel on which a missing queue is declared passively.
    pub(super) fn has_queue(&self, queue: &str) -> impl Future<Output = Option<bool>> + use<> {
        let (settings, actor, queue) =
            (self.settings.clone(), self.actor.clone(), queue.to_owned());
        async move {
            let connection = open(&settings, &actor, Purpose::Consume, None).await;
            let mut connection = connection.ok()?;
            connection.count(&queue);
            match connection.event().await {
                Event::Counted { .. } => {
                    tokio::spawn(connection.close());
                    Some(true)
                }
                Event::ChannelClosed {
                    code: NOT_FOUND, ..
                } => Some(false),
                _ => None,
            }
        }
    }
}

async fn open(
    settings: &RabbitMqConfig,
    actor: &str,
    purpose: Purpose,
    largest: Option<usize>,
) -> Result<Connection, OpenError> {
    let password = password(&settings.password)?;
    let tls = match &settings.ca_file {
        _ if !settings.tls => Tls::Off,
        Some(bundle) => Tls::Bundle(bundle),
        None => Tls::BuiltInRoots,
    };
    let pod = std::env::var("HOSTNAME").unwrap_or_default();
    let connection_name = format!("asya-sidecar {actor} {pod} {}", name(purpose));
    let stream = connect(&settings.host, settings.port, tls).await?;
    let login = Login {
        user: &settings.user,
        password: password.reveal(),
        vhost: &settings.vhost,
        product: "asya-sidecar",
        name: &connection_name,
    };
    match largest {
        Some(largest) => Connection::open_limited(stream, &login, purpose, largest).await,
        None => Connection::open(stream, &login, purpose).await,
    }
}

/// Rereads the password at each attempt, since Secrets are rotated.
fn password(password: &Password) -> io::Result<Secret> {
    match password {
        Password::Value(value) => Ok(value.clone()),
        Password::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned().into())
        }
    }
}

/// The purpose as used in connection names, log fields and metric labels.
pub(super) fn name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Consume => "consume",
        Purpose::Publish => "publish",
    }
}
