//! Connects again and again (SC-20).

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::amqp::{Connection, Login, OpenError, Purpose, Tls, connect};
use crate::broker::pause::Pauses;
use crate::config::{Password, RabbitMq, Secret};
use crate::metrics::BrokerMetrics;

/// Opens connections for one purpose.
pub(super) struct Connector {
    settings: RabbitMq,
    actor: String,
    pauses: Pauses,
    /// What was told last; the same is told once.
    told: Option<String>,
    since: Option<Instant>,
    closing: CancellationToken,
    metrics: BrokerMetrics,
}

impl Connector {
    pub(super) fn new(
        settings: RabbitMq,
        actor: &str,
        closing: CancellationToken,
        metrics: BrokerMetrics,
    ) -> Self {
        let actor = actor.to_owned();
        Self {
            settings,
            actor,
            pauses: Pauses::default(),
            told: None,
            since: None,
            closing,
            metrics,
        }
    }

    /// Ends when this process is to close its connections.
    pub(super) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// The next connection, however long it takes. `None`: there is to be none any more.
    pub(super) async fn connection(&mut self, purpose: Purpose) -> Option<Connection> {
        if let Some(since) = self.since.take() {
            self.metrics.reconnects.inc();
            self.pause(since.elapsed()).await?;
        }
        loop {
            let closing = self.closing.clone();
            let attempt = tokio::select! {
                () = closing.cancelled() => return None,
                attempt = self.attempt(purpose) => attempt,
            };
            match attempt {
                Ok(connection) => {
                    self.since = Some(Instant::now());
                    if self.told.take().is_some() {
                        tracing::info!(connection = name(purpose), "connected to RabbitMQ again");
                    }
                    return Some(connection);
                }
                Err(error) => self.tell(purpose, &error.to_string()),
            }
            self.pause(Duration::ZERO).await?;
        }
    }

    /// Says why a connection was lost or refused: once for each reason.
    pub(super) fn tell(&mut self, purpose: Purpose, why: &str) {
        if self.told.as_deref() != Some(why) && !self.closing.is_cancelled() {
            tracing::warn!(connection = name(purpose), "RabbitMQ: {why}; trying again");
            self.told = Some(why.to_owned());
        }
    }

    async fn pause(&mut self, service: Duration) -> Option<()> {
        let pause = self.pauses.after(service);
        tokio::select! {
            () = self.closing.cancelled() => None,
            () = sleep(pause) => Some(()),
        }
    }

    async fn attempt(&self, purpose: Purpose) -> Result<Connection, OpenError> {
        let settings = &self.settings;
        let password = password(&settings.password)?;
        let tls = match &settings.ca_file {
            _ if !settings.tls => Tls::Off,
            Some(bundle) => Tls::Bundle(bundle),
            None => Tls::BuiltInRoots,
        };
        let pod = std::env::var("HOSTNAME").unwrap_or_default();
        let connection_name = format!("asya-sidecar {} {pod} {}", self.actor, name(purpose));
        let stream = connect(&settings.host, settings.port, tls).await?;
        let login = Login {
            user: &settings.user,
            password: password.reveal(),
            vhost: &settings.vhost,
            name: &connection_name,
        };
        Connection::open(stream, &login, purpose).await
    }
}

/// The password as it is now: files change when Secrets are rotated.
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

/// The purpose in names of connections, log lines and labels.
pub(super) fn name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Consume => "consume",
        Purpose::Publish => "publish",
    }
}
