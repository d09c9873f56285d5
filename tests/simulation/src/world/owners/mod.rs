//! Owners of targets: controllers of other systems, with the same reconcilers that scenarios run on a real API server
//! (`asya-owners`, SIM-1, SIM-3, SIM-6, SIM-7). Their calls fail, and they crash, as the operator's do.

pub mod crds;
mod git;
pub mod kind;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asya_owners::argo::Sync;
use asya_owners::kaito::Kaito;
use asya_owners::kserve::Kserve;
use asya_owners::ray::RayClusters;
use asya_owners::{Reconciler, RecordingClient};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::World;
use crate::api_server::id::Id;
use crate::connection::kubernetes;
use crate::process::Process;
use crate::randomness::delay;
use git::GitOps;
pub use kind::OwnerKind;

/// How often an owner reconciles without a change.
const RESYNC: Duration = Duration::from_mins(1);

/// The owners of a run.
#[derive(Default)]
pub struct Owners {
    /// The latest process of each owner.
    current: Mutex<BTreeMap<OwnerKind, Arc<Process>>>,
    /// The manifests that users have committed for Argo CD.
    pub manifests: Mutex<BTreeMap<Id, Value>>,
    /// Notified of each commit.
    pub committed: Notify,
}

impl Owners {
    /// The latest process of an owner, if it runs in this simulation.
    #[must_use]
    pub fn current(&self, kind: OwnerKind) -> Option<Arc<Process>> {
        self.current.lock().get(&kind).cloned()
    }
}

impl World {
    /// Starts these owners, each for one namespace.
    pub fn start_owners(self: &Arc<Self>, owners: &BTreeSet<(OwnerKind, &'static str)>) {
        for (kind, _) in owners {
            crds::install(&mut self.server.lock().store, *kind);
        }
        for (kind, namespace) in owners {
            let (world, namespace) = (Arc::clone(self), *namespace);
            match kind {
                OwnerKind::Kserve => tokio::spawn(world.run_owner(*kind, namespace, Kserve)),
                OwnerKind::Kaito => tokio::spawn(world.run_owner(*kind, namespace, Kaito)),
                OwnerKind::Ray => tokio::spawn(world.run_owner(*kind, namespace, RayClusters)),
                OwnerKind::Argo | OwnerKind::Replace => {
                    let replaces = *kind == OwnerKind::Replace;
                    let how = if replaces { Sync::Replace } else { Sync::Apply };
                    let reconciler = GitOps::new(&world, namespace, how);
                    tokio::spawn(world.run_owner(*kind, namespace, reconciler))
                }
            };
        }
    }

    /// Runs an owner, and restarts it a while after it crashes.
    async fn run_owner(
        self: Arc<Self>,
        kind: OwnerKind,
        namespace: &'static str,
        reconciler: impl Reconciler,
    ) {
        for incarnation in 1_u32.. {
            let process = Arc::new(Process::target_controller(format!(
                "{kind:?}.{incarnation}"
            )));
            let current = Arc::clone(&process);
            self.owners.current.lock().insert(kind, current);
            self.trace.add(&process.name, "starts");
            tokio::select! {
                biased;
                () = process.death.cancelled() => {}
                () = self.reconcile_forever(&process, namespace, &reconciler) => {}
            }
            self.trace.add(&process.name, "has ended: crashed");
            let mut random = self.seed.rng_for(("restart", &process.name));
            sleep(delay(&mut random, 500..20_000)).await;
        }
    }

    async fn reconcile_forever(
        self: &Arc<Self>,
        process: &Arc<Process>,
        namespace: &str,
        reconciler: &impl Reconciler,
    ) {
        let client = kubernetes::client(self, process);
        let client = RecordingClient::new(client, namespace, reconciler.manager()).silent();
        let changed = self.server.lock().store.subscribe(None);
        let mut seen = 0;
        let mut failures = 0_u32;
        for round in 0_u64.. {
            let mut random = self.seed.rng_for(("owner", &process.name, round));
            // Occasionally an owner is slow.
            let is_slow = self.faults.active() && random.u8(..8) == 0;
            sleep(delay(
                &mut random,
                if is_slow { 500..9_000 } else { 40..400 },
            ))
            .await;
            let version = self.server.lock().store.version();
            if let Err(error) = reconciler.reconcile(&client).await {
                self.trace
                    .add(&process.name, format_args!("failed: {error}"));
                failures += 1;
                sleep(Duration::from_millis(500) * failures.min(8)).await;
                continue;
            }
            (failures, seen) = (0, seen.max(version));
            seen = self
                .next_change(&changed, reconciler, namespace, seen)
                .await;
        }
    }

    /// Waits for a change to a watched object after this version, a commit, or the next resync.
    async fn next_change(
        &self,
        changed: &Notify,
        reconciler: &impl Reconciler,
        namespace: &str,
        mut seen: u64,
    ) -> u64 {
        let resync = sleep(RESYNC);
        tokio::pin!(resync);
        loop {
            let (version, is_watched) = {
                let server = self.server.lock();
                let kinds = reconciler.watches();
                let of_rule = |id: &Id| {
                    id.namespace == namespace
                        && kinds.iter().any(|it| it.plural == id.resource.plural)
                };
                let since = server.store.changes_after(seen);
                let is_watched = since.map_or(true, |all| all.iter().any(|it| of_rule(&it.id)));
                (server.store.version(), is_watched)
            };
            seen = version;
            if is_watched {
                return seen;
            }
            tokio::select! {
                biased;
                () = &mut resync => return seen,
                () = changed.notified() => {}
                () = self.owners.committed.notified() => return seen,
            }
        }
    }
}
