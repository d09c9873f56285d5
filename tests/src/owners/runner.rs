//! Runs a simulated controller: it reconciles on watch events, at its ticks, and on request of a scenario.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::WatchParams;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::error::{Error, Result};
use crate::scenario::Scenario;
use asya_owners::error::Error as OwnerError;
use asya_owners::{Kind, Reconciler, RecordingClient, Write};

/// Events come in bursts: wait this long, so that a burst causes a single reconcile.
const DEBOUNCE: Duration = Duration::from_millis(40);
/// Backoff after the first failure, doubled with each further one up to [`LONGEST_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How many conflicts in a row a requested reconcile tolerates.
const MOST_CONFLICTS: u32 = 50;
/// Pause before a broken watch is restarted.
const REWATCH: Duration = Duration::from_millis(500);

/// A simulated controller that runs in a scenario's namespace; it stops when dropped.
pub struct Owner {
    client: RecordingClient,
    request: mpsc::Sender<Request>,
    task: JoinHandle<()>,
}

/// Reconciles requested by a scenario, and the channel for their result.
struct Request {
    rounds: usize,
    answer: oneshot::Sender<Result<()>>,
}

impl Owner {
    /// Starts an owner in the scenario's namespace.
    #[must_use]
    pub fn start(scenario: &Scenario, reconciler: impl Reconciler) -> Self {
        let client = RecordingClient::new(
            scenario.client(),
            scenario.namespace(),
            reconciler.manager(),
        );
        Self::with(client, reconciler)
    }

    /// Starts an owner in any namespace; its writes are not printed.
    #[must_use]
    pub fn of(client: Client, namespace: &str, reconciler: impl Reconciler) -> Self {
        let client = RecordingClient::new(client, namespace, reconciler.manager());
        Self::with(client.silent(), reconciler)
    }

    fn with(client: RecordingClient, reconciler: impl Reconciler) -> Self {
        let (request, requests) = mpsc::channel(1);
        let task = tokio::spawn(run(reconciler, client.clone(), requests));
        Self {
            client,
            request,
            task,
        }
    }

    /// Reconciles this many times, one after the other, and waits for the last. A reconcile that fails with a conflict
    /// is retried.
    ///
    /// # Errors
    /// When the API server rejects a write, or conflicts persist.
    pub async fn rounds(&self, rounds: usize) -> Result<()> {
        let (answer, end) = oneshot::channel();
        let gone = |_| Error::other("the owner has ended");
        let request = self.request.send(Request { rounds, answer }).await;
        request.map_err(|_| Error::other("the owner has ended"))?;
        end.await.map_err(gone)?
    }

    /// The owner's client, which scenarios may use to read objects.
    #[must_use]
    pub fn client(&self) -> &RecordingClient {
        &self.client
    }

    /// The owner's writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.client.writes()
    }

    /// The number of writes that changed an object of this kind.
    #[must_use]
    pub fn changes(&self, kind: Kind) -> usize {
        let writes = self.writes();
        let of_kind = writes.iter().filter(|it| it.kind == kind.kind);
        of_kind.filter(|it| it.changed).count()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    reconciler: impl Reconciler,
    client: RecordingClient,
    mut requests: mpsc::Receiver<Request>,
) {
    let changed = Arc::new(Notify::new());
    // The watches end with this task.
    let mut watches = JoinSet::new();
    for kind in reconciler.watches() {
        watches.spawn(watch(client.clone(), kind, Arc::clone(&changed)));
    }
    let mut ticks = interval_at(Instant::now() + reconciler.tick(), reconciler.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(Request { rounds, answer }) = request else { return };
                let _ = answer.send(reconcile_rounds(&reconciler, &client, rounds).await);
                continue;
            }
            () = changed.notified() => sleep(DEBOUNCE).await,
            _ = ticks.tick() => {}
        }
        match reconciler.reconcile(&client).await {
            Ok(()) => failures = 0,
            Err(error) => {
                if !is_conflict(&error) {
                    println!("{}: {error}", reconciler.manager());
                }
                sleep(LONGEST_BACKOFF.min(FIRST_BACKOFF * (1 << failures.min(7)))).await;
                failures += 1;
                changed.notify_one();
            }
        }
    }
}

/// A conflict with another writer: like controllers, reconcile again without reporting an error.
fn is_conflict(error: &OwnerError) -> bool {
    matches!(error, OwnerError::Kubernetes(kube::Error::Api(status)) if status.is_conflict())
}

async fn reconcile_rounds(
    reconciler: &impl Reconciler,
    client: &RecordingClient,
    rounds: usize,
) -> Result<()> {
    for _ in 0..rounds {
        let mut conflicts = 0;
        while let Err(error) = reconciler.reconcile(client).await {
            conflicts += 1;
            if !is_conflict(&error) || conflicts >= MOST_CONFLICTS {
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// Notifies about every event of a kind.
async fn watch(client: RecordingClient, kind: Kind, changed: Arc<Notify>) {
    let (api, params) = (client.api(kind), WatchParams::default());
    loop {
        if let Ok(events) = api.watch_metadata(&params, "0").await {
            let mut events = events.boxed();
            while let Ok(Some(_)) = events.try_next().await {
                changed.notify_one();
            }
        }
        sleep(REWATCH).await;
        // Covers events missed between two watches.
        changed.notify_one();
    }
}
