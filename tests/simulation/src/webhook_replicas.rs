//! The webhook's replicas, which are restarted whenever they end.

use std::sync::Arc;

use asya_process::tasks::Tasks;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::connection::kubernetes;
use crate::installation::webhook_args;
use crate::process::Process;
use crate::randomness::delay;
use crate::world::World;
use crate::world::webhooks::Endpoint;

/// The webhook's replicas.
pub struct WebhookReplicas {
    current: Vec<Mutex<Arc<Process>>>,
}

impl WebhookReplicas {
    /// Creates this many replicas without starting them.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let process = |index| Mutex::new(Arc::new(Process::webhook(name(index, 0))));
        Self {
            current: (0..count).map(process).collect(),
        }
    }

    /// The latest process of a replica.
    #[must_use]
    pub fn current(&self, replica: usize) -> Arc<Process> {
        Arc::clone(&self.current[replica].lock())
    }

    /// Starts all replicas.
    pub fn start(self: &Arc<Self>, world: &Arc<World>) {
        for replica in 0..self.current.len() {
            tokio::spawn(Arc::clone(self).keep_running(Arc::clone(world), replica));
        }
    }

    /// Runs a replica, and restarts it a while after it ends.
    async fn keep_running(self: Arc<Self>, world: Arc<World>, replica: usize) {
        for incarnation in 1_u32.. {
            let process = Arc::new(Process::webhook(name(replica, incarnation)));
            *self.current[replica].lock() = Arc::clone(&process);
            world.trace.add(&process.name, "starts");
            let ending = run(&world, &process).await;
            process.death.cancel();
            world.webhooks.remove(&process);
            world
                .trace
                .add(&process.name, format_args!("has ended: {ending}"));
            let mut random = world.seed.rng_for(("restart", &process.name));
            sleep(delay(&mut random, 500..20_000)).await;
        }
    }
}

fn name(replica: usize, incarnation: u32) -> String {
    format!("w{replica}.{incarnation}")
}

async fn run(world: &Arc<World>, process: &Arc<Process>) -> &'static str {
    let tasks = Tasks::default();
    let endpoint = webhook_args(&process.name)
        .map_err(Into::into)
        .and_then(|args| {
            let replica = asya_webhook::Replica::new(&args)?;
            let clients = replica.clients_in_process(kubernetes::client(world, process));
            let routes = replica.start(&args, clients, &tasks);
            Ok::<_, asya_process::BoxError>(Endpoint {
                process: Arc::clone(process),
                replica,
                routes,
            })
        });
    match endpoint {
        Ok(endpoint) => world.webhooks.add(endpoint),
        Err(error) => {
            world.violation(format!("{} does not start: {error}", process.name));
            return std::future::pending().await;
        }
    }
    tokio::select! {
        biased;
        () = process.death.cancelled() => "crashed",
        () = process.stop.cancelled() => "stopped",
        failure = tasks.first_failure() => {
            world.violation(format!("{} fails: {failure}", process.name));
            "failed"
        }
    }
}
