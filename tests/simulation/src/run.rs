//! Runs one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::actions::{CONVERGENCE_TIMEOUT, act, delete_all, resume_all};
use crate::api_server::resources;
use crate::clock;
use crate::convergence;
use crate::faults::{Fault, Faults};
use crate::randomness::Seed;
use crate::replicas::Replicas;
use crate::schedule::action::Action;
use crate::schedule::{MAX_CLOCK_SKEW, Schedule};
use crate::webhook_replicas::WebhookReplicas;
use crate::world::{World, quotas};

/// The seed to run, and what to leave out.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// Indexes of the actions that are left out of the schedule.
    pub without_actions: BTreeSet<usize>,
    /// Calls that must not fail.
    pub without_faults: BTreeSet<String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Violated invariants.
    pub violations: Vec<String>,
    /// What happened, one line per event.
    pub trace: Vec<String>,
    /// A hash of the trace.
    pub hash: u64,
    /// Number of actions in the schedule.
    pub actions: usize,
    /// The calls that failed, with their faults.
    pub faults: BTreeMap<String, Fault>,
}

/// Runs a seed, blocking this thread.
///
/// # Panics
/// If no runtime can be built.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "a runtime without I/O needs nothing that could be missing"
)]
pub fn run(options: &Options) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    // Seeds the controller's jitter.
    fastrand::seed(options.seed);
    runtime.block_on(run_schedule(options))
}

async fn run_schedule(options: &Options) -> Report {
    clock::start();
    let seed = Seed(options.seed);
    let schedule = Schedule::new(seed);
    let faults = Faults::new(
        seed,
        schedule.fault_rate,
        options.without_faults.clone(),
        schedule.end,
    );
    let world = Arc::new(World::new(seed, schedule.replicas > 1, faults));
    world.start_owners(&schedule.owners);
    let controllers = tokio::spawn(Arc::clone(&world).run_controllers());
    let replicas = Arc::new(Replicas::new(schedule.replicas));
    replicas.start(&world);
    let webhooks = Arc::new(WebhookReplicas::new(2));
    webhooks.start(&world);
    let began = Instant::now();
    for (number, (at, action)) in schedule.actions.iter().enumerate() {
        sleep_until(began + *at).await;
        if !options.without_actions.contains(&number) {
            act(&world, &replicas, &webhooks, action);
        }
    }
    sleep_until(began + schedule.end).await;
    world.trace.add("ACTION", "no more actions and faults");
    world.forbidden.lock().clear();
    resume_all(&world);
    if !schedule.owners.is_empty() {
        // Wait until the last owner that was cut off or crashed writes again.
        sleep(Duration::from_mins(1)).await;
    }
    let lost_rights = |(_, action): &(_, Action)| matches!(action, Action::Forbid(_));
    if schedule.actions.iter().any(lost_rights) {
        // The operator checks every five minutes whether it may read the kind again.
        sleep(Duration::from_mins(6)).await;
    }
    let problem = match check_quotas(&world).await {
        None => check(&world).await,
        problem => problem,
    };
    if let Some(problem) = problem {
        world.violation(problem);
    }
    controllers.abort();
    let report = Report {
        violations: world.violations(),
        trace: world.trace.lines(),
        hash: world.trace.hash(),
        actions: schedule.actions.len(),
        faults: world.faults.injected(),
    };
    world.clear();
    report
}

/// For how many seconds, of six minutes, a target may lack a pod because of the sidecar.
const NOTICED: u32 = 60;

/// Quotas stay until it is clear that no target lacks a pod because of the sidecar, and then go.
async fn check_quotas(world: &World) -> Option<String> {
    let any = world
        .server
        .lock()
        .store
        .all(&resources::RESOURCE_QUOTAS)
        .next()
        .is_some();
    if !any {
        return None;
    }
    let wrong = || {
        let mut wrong = convergence::quotas::lacking_pods(world);
        wrong.extend(convergence::quotas::false_reports(world));
        wrong
    };
    if let Some(wrong) = eventually(wrong).await {
        return Some(wrong);
    }
    let mut seconds = 0;
    for _ in 0..6 * 60 {
        sleep(Duration::from_secs(1)).await;
        let lacking = convergence::quotas::lacking_pods(world);
        if !lacking.is_empty() {
            seconds += 1;
        }
        if seconds > NOTICED {
            return Some(format!("for {seconds} s: {}", lacking.join("; ")));
        }
    }
    world.trace.add("ACTION", "no more quotas");
    quotas::remove_all(&mut world.server.lock().store);
    None
}

/// Waits for convergence of a cluster that is left alone, and then of one without actors.
async fn check(world: &World) -> Option<String> {
    loop {
        if let Some(unmet) = eventually(|| convergence::unmet(world)).await {
            return Some(format!("does not converge: {unmet}"));
        }
        let waiting = convergence::waiting_deletions(world);
        wait_until_reported(world).await;
        if convergence::waiting_deletions(world) == waiting {
            break;
        }
        // Pods of its target have begun to consume the messages for which a deletion waited.
    }
    if let Some(problem) = settled(world).await {
        return Some(problem);
    }
    delete_all(world);
    let left = eventually(|| convergence::left_behind(world)).await;
    left.map(|left| format!("left behind: {left}"))
}

async fn eventually<P: Display>(unmet: impl Fn() -> Vec<P>) -> Option<String> {
    let end = Instant::now() + CONVERGENCE_TIMEOUT;
    loop {
        let unmet = unmet();
        if unmet.is_empty() {
            return None;
        }
        if Instant::now() > end {
            let unmet: Vec<String> = unmet.iter().map(P::to_string).collect();
            return Some(unmet.join("; "));
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until status reports that depend on time are written. One of them may begin another wait: a field that was
/// reverted once more.
async fn wait_until_reported(world: &World) {
    let start = Instant::now();
    loop {
        let rest = until_reported(world).saturating_sub(start.elapsed());
        if rest.is_zero() {
            return;
        }
        sleep(rest).await;
    }
}

/// How long to wait until status reports that depend on time are written.
fn until_reported(world: &World) -> Duration {
    // A binding whose pods are not restarted is reported as not ready after five and after ten minutes, by a clock that
    // may have been set back since. A field that another manager reverts is forgotten after fifteen.
    let seconds = match (world.has_conflicts(), world.has_bindings_on_restart()) {
        (true, _) => 1_000,
        (false, true) => 660,
        (false, false) => 150,
    };
    let set_back = if clock::was_skewed() {
        2 * MAX_CLOCK_SKEW
    } else {
        0
    };
    Duration::from_secs(seconds + u64::from(set_back.unsigned_abs()))
}

/// Checks that every actor is reconciled at least twice without a write.
async fn settled(world: &World) -> Option<String> {
    let before = world.writes().len();
    world
        .trace
        .add("ACTION", "nothing should be written any more");
    sleep(Duration::from_secs(140)).await;
    let written = world.writes().split_off(before);
    let unmet = convergence::unmet(world);
    if !unmet.is_empty() {
        return Some(format!("was right, and no longer is: {}", unmet.join("; ")));
    }
    (!written.is_empty())
        .then(|| format!("writes although nothing changed: {}", written.join(", ")))
}
