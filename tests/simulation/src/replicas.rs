//! The controller's replicas, which are restarted whenever they end.

use std::sync::Arc;

use asya_controller::{Connections, Ending, Replica, ReplicaConfig};
use asya_process::tasks::Tasks;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::connection::brokers;
use crate::connection::kubernetes;
use crate::installation::controller_args;
use crate::process::Process;
use crate::randomness::delay;
use crate::world::World;

/// The controller's replicas.
pub struct Replicas {
    current: Vec<Mutex<Arc<Process>>>,
}

impl Replicas {
    /// Creates this many replicas without starting them.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let process = |index| Mutex::new(Arc::new(Process::new(name(index, 0))));
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
            let process = Arc::new(Process::new(name(replica, incarnation)));
            *self.current[replica].lock() = Arc::clone(&process);
            world.trace.add(&process.name, "starts");
            let ending = run(Arc::clone(&world), Arc::clone(&process)).await;
            world
                .trace
                .add(&process.name, format_args!("has ended: {ending}"));
            process.death.cancel();
            let mut random = world.seed.rng_for(("restart", &process.name));
            sleep(delay(&mut random, 500..6_000)).await;
        }
    }
}

fn name(replica: usize, incarnation: u32) -> String {
    format!("r{replica}.{incarnation}")
}

async fn run(world: Arc<World>, process: Arc<Process>) -> &'static str {
    let client = kubernetes::client(&world, &process);
    let connections = Connections::in_process(client, brokers::clients(&world, &process));
    let replica = controller_args(&process, world.elects)
        .map_err(Into::into)
        .and_then(|args| {
            let configuration = ReplicaConfig::read(&args)?;
            Replica::new(&args, configuration, connections, Tasks::default())
        });
    let replica = match replica {
        Ok(replica) => replica,
        Err(error) => {
            world.violation(format!("{} does not start: {error}", process.name));
            return std::future::pending().await;
        }
    };
    let (mut requests, death) = (vec![process.stop.clone()], process.death.clone());
    // Request a stop only once: a second request would abort the process.
    let stop = async move || match requests.pop() {
        Some(request) => request.cancelled_owned().await,
        None => std::future::pending().await,
    };
    tokio::select! {
        biased;
        () = death.cancelled() => "crashed",
        ending = replica.run(stop) => match ending {
            Ok(Ending::LeaseLost) => "lost its lease",
            Ok(Ending::Stopped | Ending::Aborted) => "stopped",
            Err(error) => {
                world.violation(format!("{} fails: {error}", process.name));
                "failed"
            }
        },
    }
}
