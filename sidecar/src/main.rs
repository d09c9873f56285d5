//! Moves messages between an actor's queue and the runtime's Unix socket in the same pod.
//!
//! `config` reads the settings, `scheduler` schedules messages, `message_task` is the lifecycle of one message, and
//! `decide` makes its decisions as a pure function. `broker` and `runtime` are the two ends.

mod broker;
mod calls;
mod compose;
mod config;
mod decide;
mod digest;
mod envelope;
mod gateway;
mod http;
mod intake;
mod logs;
mod lookahead;
mod lookup;
mod message_task;
mod metrics;
mod probes;
mod runtime;
mod scheduler;
mod slot;
mod time;
mod tls;
mod trace;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::broker::Event;
use crate::broker::rabbitmq::{self, RabbitMq};
use crate::config::{Config, Transport};
use crate::gateway::Gateway;
use crate::intake::Intake;
use crate::message_task::Context;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::runtime::Readiness;
use crate::runtime::ready::SocketRuntime;
use crate::scheduler::{Exit, Scheduler, SchedulerSettings};
use crate::trace::Tracer;

/// Exit code for an invalid configuration (SC-5).
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
    // For DNS lookups: one thread each for the broker, the gateway and the span collector, so that none waits behind an
    // unanswered lookup of another. They exist only while they are needed.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(3)
        .build();
    match runtime.and_then(|runtime| run_to_end(runtime, run(config))) {
        Ok(Exit::Stopped) => ExitCode::SUCCESS,
        Ok(Exit::RuntimeNeverReady) => {
            tracing::error!(
                "the runtime did not become ready within ASYA_RUNTIME_READY_TIMEOUT; exiting"
            );
            ExitCode::FAILURE
        }
        Ok(Exit::RuntimeStuck) => {
            tracing::error!("Runtime timeout exceeded, and the runtime did not exit; exiting");
            ExitCode::FAILURE
        }
        Ok(Exit::Panics) => {
            tracing::error!("message processing panicked too often; exiting");
            ExitCode::FAILURE
        }
        Err(error) => {
            tracing::error!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs to completion without waiting for a pending DNS lookup, which would delay the exit (SC-79).
///
/// Runs as a task, because the future of `block_on` itself is polled only after all tasks and a check for I/O, so a
/// free slot would wait for that.
fn run_to_end<T: Send + 'static>(
    runtime: Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let result = runtime.block_on(runtime.spawn(work));
    runtime.shutdown_background();
    result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn run(config: Config) -> io::Result<Exit> {
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
    let (events, received) = mpsc::unbounded_channel();
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
            let settings = rabbitmq::ConnectionSettings {
                broker,
                queue: parts.config.rules.queues.of(&parts.config.rules.actor),
                actor: parts.config.rules.actor.clone(),
                consumer_timeout: parts.config.delivery_time().consumer_timeout(),
                max_message_size: parts.max_delivery(),
                stopping: parts.stopping.clone(),
            };
            let broker = RabbitMq::start(&settings, events, parts.metrics.broker.clone());
            parts.run_with(broker, received).await
        }
        Transport::Sqs(settings) => {
            let broker = broker::sqs::Sqs::start(
                &settings,
                parts.config.rules.queues.of(&parts.config.rules.actor),
                events,
                parts.metrics.broker.clone(),
                parts.stopping.clone(),
            );
            parts.run_with(broker, received).await
        }
    }
}

struct Parts {
    config: Config,
    stopping: CancellationToken,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    runtime: SocketRuntime,
    readiness: watch::Receiver<Readiness>,
}

impl Parts {
    /// The limit on received messages. An end actor has none: it cannot send a message to error-end, so it must handle
    /// any size (SC-68, SC-83).
    fn max_delivery(&self) -> Option<usize> {
        let rules = &self.config.rules;
        rules.end.is_none().then_some(rules.max_message_size)
    }

    async fn run_with(
        self,
        broker: impl broker::Broker,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> io::Result<Exit> {
        let gateway = self.config.gateway.as_ref();
        let gateway = gateway
            .map(|gateway| Gateway::start(gateway, self.metrics.clone()))
            .transpose()?;
        let context = Arc::new(Context {
            intake: Intake::new(&broker),
            broker,
            runtime: self.runtime,
            rules: self.config.rules,
            queue_backoff: self.config.queue_backoff,
            metrics: self.metrics,
            gateway,
            tracer: self.config.traces.as_ref().map(Tracer::start).transpose()?,
            readiness: self.readiness,
            stopping: self.stopping,
            timed_out_calls: AtomicU64::new(0),
            calls: Arc::default(),
        });
        let settings = SchedulerSettings {
            concurrency: self.config.runtime.concurrency,
            lookahead: self.config.lookahead,
            grace_period: self.config.grace_period,
        };
        let end = Scheduler::new(context.clone(), settings, self.health, events)
            .run()
            .await;
        let reports = async {
            if let Some(gateway) = &context.gateway {
                gateway.finish().await;
            }
        };
        let spans = async {
            if let Some(tracer) = &context.tracer {
                tracer.finish().await;
            }
        };
        tokio::join!(reports, spans);
        Ok(end)
    }
}

/// SIGTERM and SIGINT start a graceful shutdown; further signals have no effect (SC-78).
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::run_to_end;

    /// SC-79
    #[test]
    fn hanging_lookup_does_not_delay_the_exit() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (started, is_started) = std::sync::mpsc::channel();
        let begun = Instant::now();
        run_to_end(runtime.expect("a runtime"), async move {
            tokio::task::spawn_blocking(move || {
                let _ = started.send(());
                std::thread::sleep(Duration::from_secs(30));
            });
        });
        is_started.recv().expect("it runs");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
