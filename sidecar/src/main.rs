//! Moves messages between an actor's queue and the runtime's Unix socket in the same pod.
//!
//! `config` reads the settings; `slots` runs the messages; `flow` is the life of one; `decide` says what becomes of it, and
//! is pure. `broker` and `runtime` are the two ends.

mod amqp;
mod broker;
mod compose;
mod config;
mod decide;
mod digest;
mod envelope;
mod flow;
mod gateway;
mod logs;
mod metrics;
mod pace;
mod probes;
mod runtime;
mod slot;
mod slots;
mod time;
mod tls;
mod trace;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::broker::Event;
use crate::broker::rabbitmq::{self, RabbitMq};
use crate::config::{Config, Transport};
use crate::flow::Context;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::runtime::Readiness;
use crate::runtime::ready::SocketRuntime;
use crate::slots::{End, Engine, Settings};
use crate::trace::Tracer;

/// Exit code where the configuration is wrong (SC-5).
const CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    let config = match Config::read(&environment) {
        Ok(config) => config,
        Err(invalid) => {
            eprintln!("asya-sidecar: {invalid}");
            return CONFIGURATION.into();
        }
    };
    logs::start(config.log_level, &config.rules.actor);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // One more thread, for DNS.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    match runtime.and_then(|runtime| runtime.block_on(run(config))) {
        Ok(End::Stopped) => ExitCode::SUCCESS,
        Ok(End::RuntimeNeverReady) => {
            tracing::error!("the runtime did not become ready in ASYA_RUNTIME_READY_TIMEOUT");
            ExitCode::FAILURE
        }
        Ok(End::RuntimeStuck) => {
            tracing::error!(
                "Runtime timeout exceeded, and the runtime did not end itself; exiting, so that the pod does"
            );
            ExitCode::FAILURE
        }
        Ok(End::Panics) => {
            tracing::error!("handling messages panicked too often; exiting");
            ExitCode::FAILURE
        }
        Err(error) => {
            tracing::error!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> io::Result<End> {
    let stopping = CancellationToken::new();
    stop_by_signal(&stopping)?;
    let transport = match config.transport {
        Transport::RabbitMq(_) => "rabbitmq",
        Transport::Sqs(_) => "sqs",
    };
    let metrics = Metrics::new(&config.metrics_namespace, &config.rules.actor, transport);
    let health = Arc::new(Health::default());
    if let Some(listen) = config.listen {
        tokio::spawn(probes::serve(listen, health.clone(), metrics.clone()));
    }
    let (events, told) = mpsc::unbounded_channel();
    let (runtime, readiness) = SocketRuntime::start(&config.runtime, config.rules.max_message_size);
    let parts = Parts {
        config,
        stopping,
        metrics,
        health,
        runtime,
        readiness,
    };
    match parts.config.transport.clone() {
        Transport::RabbitMq(broker) => {
            let settings = rabbitmq::Settings {
                broker,
                queue: parts.config.rules.queues.of(&parts.config.rules.actor),
                actor: parts.config.rules.actor.clone(),
                runtime_timeout: parts.config.runtime.timeout,
            };
            let broker = RabbitMq::start(&settings, events, parts.metrics.broker.clone());
            parts.run_with(broker, told).await
        }
        Transport::Sqs(settings) => {
            let broker = broker::sqs::Sqs::start(
                &settings,
                parts.config.rules.queues.of(&parts.config.rules.actor),
                events,
                parts.metrics.broker.clone(),
            );
            parts.run_with(broker, told).await
        }
    }
}

/// All but the broker.
struct Parts {
    config: Config,
    stopping: CancellationToken,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    runtime: SocketRuntime,
    readiness: watch::Receiver<Readiness>,
}

impl Parts {
    async fn run_with(
        self,
        broker: impl broker::Broker,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> io::Result<End> {
        let gateway = self.config.gateway.as_ref();
        let gateway = gateway
            .map(|gateway| Gateway::start(gateway, self.metrics.clone()))
            .transpose()?;
        let context = Arc::new(Context {
            broker,
            runtime: self.runtime,
            rules: self.config.rules,
            queue_backoff: self.config.queue_backoff,
            metrics: self.metrics,
            gateway,
            tracer: self.config.traces.as_ref().map(Tracer::start).transpose()?,
            readiness: self.readiness,
            stopping: self.stopping,
            hang_ups: AtomicU64::new(0),
        });
        let settings = Settings {
            concurrency: self.config.runtime.concurrency,
            lookahead: self.config.lookahead,
            grace_period: self.config.grace_period,
        };
        let end = Engine::new(context.clone(), settings, self.health, events)
            .run()
            .await;
        if let Some(gateway) = &context.gateway {
            gateway.finish().await;
        }
        Ok(end)
    }
}

/// SIGTERM and SIGINT end the process in order; further ones change nothing (SC-78).
fn stop_by_signal(stopping: &CancellationToken) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signals, stopping) = (signal(kind)?, stopping.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                stopping.cancel();
            }
        });
    }
    Ok(())
}
