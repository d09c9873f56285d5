mod failures;

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use asya_shared::api::EffectiveTimeout;
use asya_shared::config::TransportsConfig;
use futures::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::*;
use crate::broker::ReadyQueue;
use crate::broker::depths::ReportedDepth;

/// Actors `ns/NAME`, on transport `mq` unless the name starts with that of another transport.
#[derive(Default)]
struct Fixture {
    names: Vec<&'static str>,
    rechecks: Mutex<Vec<(String, RecheckReason)>>,
    depth_changes: Mutex<Vec<String>>,
    missing: Mutex<Vec<String>>,
}

impl QueueSource for Arc<Fixture> {
    fn queues(&self) -> Vec<TransportQueues> {
        let queues_on = |name: &str| {
            let transport = transport(name);
            let is_on = |actor: &&&str| actor.starts_with("other") == (name == "other");
            let queues = self.names.iter().filter(is_on).map(|actor| CheckedQueue {
                queue: queue_of(&transport, actor),
                counts_often: !actor.ends_with("idle"),
                is_paused: actor.ends_with("paused"),
            });
            TransportQueues {
                queues: queues.collect(),
                transport: transport.clone(),
            }
        };
        vec![queues_on("mq"), queues_on("other")]
    }

    fn enqueue_recheck(&self, actor: &Key, reason: &RecheckReason) {
        self.rechecks
            .lock()
            .push((actor.name.to_string(), reason.clone()));
    }

    fn enqueue_missing(&self, actor: &Key) {
        self.missing.lock().push(actor.name.to_string());
    }

    fn enqueue_depth_change(&self, actor: &Key) {
        self.depth_changes.lock().push(actor.name.to_string());
    }
}

fn transport(name: &str) -> Transport {
    let one = json!({"type": "rabbitmq", "enabled": true, "config": {"host": "h"}});
    let all = json!({"transports": {name: one}}).to_string();
    TransportsConfig::parse(&all)
        .unwrap()
        .usable(name)
        .unwrap()
        .clone()
}

fn queue_of(transport: &Transport, actor: &str) -> ActorQueue {
    ActorQueue {
        names: transport.names_of("ns", actor),
        namespace: "ns".to_owned(),
        actor: actor.to_owned(),
        uid: String::new(),
        timeout: EffectiveTimeout {
            processing: None,
            graceful_shutdown: 30,
            progress: None,
        },
        adopts: None,
    }
}

/// Responds according to the actor's name.
#[derive(Default)]
struct Brokers {
    hangs: Option<&'static str>,
    /// Whether every request fails.
    fails: AtomicBool,
    /// Whether no request is made after a failure.
    is_open: AtomicBool,
    /// Whether nothing is counted.
    is_uncounted: AtomicBool,
    /// Whether none is made in an outage.
    is_down: AtomicBool,
    counted: Mutex<Vec<String>>,
    checks: AtomicUsize,
}

fn unreachable() -> BrokerError {
    BrokerError::Unreachable("no response".to_owned())
}

fn outage() -> BrokerError {
    BrokerError::Outage {
        last: Box::new(unreachable()),
        wait: Duration::from_secs(1),
        rounds: 3,
    }
}

impl Brokers {
    fn observation_of(&self, actor: &str) -> Result<QueueObservation, BrokerError> {
        if self.is_open.load(SeqCst) {
            let (last, wait) = (Box::new(unreachable()), Duration::from_secs(1));
            return Err(BrokerError::CircuitOpen(last, wait));
        }
        if self.is_down.load(SeqCst) {
            return Err(outage());
        }
        if self.fails.load(SeqCst) {
            return Err(unreachable());
        }
        let mut observation = observation_of(actor)?;
        if self.is_uncounted.load(SeqCst) {
            observation.depth = None;
        }
        Ok(observation)
    }
}

fn observation_of(actor: &str) -> Result<QueueObservation, BrokerError> {
    let check = match actor.trim_end_matches("-paused") {
        "gone" => QueueCheck::NotFound,
        "drifted" => QueueCheck::Drifted,
        "untagged" => QueueCheck::NotTaggedYet,
        "differs" => QueueCheck::Mismatch {
            desired: String::new(),
            found: String::new(),
        },
        "lost" => return Err(unreachable()),
        "denied" => return Err(BrokerError::AuthFailed("tags".to_owned())),
        "taken" => return Err(BrokerError::QueueNameTaken("by another cluster".to_owned())),
        "busy" => return Err(BrokerError::TooManyCalls("later".to_owned())),
        _ => QueueCheck::Ready(ReadyQueue::default()),
    };
    let depth = Some(Depth {
        queued: 7,
        processing: 1,
    });
    Ok(QueueObservation { check, depth })
}

impl QueueObserver for Arc<Brokers> {
    fn observe_many<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<QueueObservation>> {
        self.checks.fetch_add(1, SeqCst);
        if self.hangs == Some(&*transport.name) {
            return pending().boxed();
        }
        let results = queues.into_iter().map(|queue| {
            let observation = self.observation_of(&queue.actor);
            (queue, observation)
        });
        std::future::ready(results.collect()).boxed()
    }

    fn depths<'a>(
        &'a self,
        _transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<Count>> {
        let results = queues.into_iter().map(|queue| {
            self.counted.lock().push(queue.actor.clone());
            // A count reads neither tags nor owners.
            let read = match &*queue.actor {
                "denied" | "taken" => "fine",
                actor => actor,
            };
            let count = self.observation_of(read).map(|observation| {
                match (observation.check, observation.depth) {
                    (QueueCheck::NotFound, _) => Count::NotFound,
                    (_, None) => Count::Unknown,
                    (_, Some(depth)) => Count::Messages(depth),
                }
            });
            (queue, count)
        });
        std::future::ready(results.collect()).boxed()
    }
}

type Check = HealthCheck<Arc<Fixture>, Arc<Brokers>>;

fn health_check(
    names: &[&'static str],
    hangs: Option<&'static str>,
    check: u64,
    count: u64,
) -> Check {
    HealthCheck {
        source: Arc::new(Fixture {
            names: names.to_vec(),
            ..Fixture::default()
        }),
        observer: Arc::new(Brokers {
            hangs,
            ..Brokers::default()
        }),
        depths: Arc::default(),
        failures: CheckFailures::default(),
        intervals: CheckIntervals {
            check: Duration::from_secs(check),
            count: Duration::from_secs(count),
        },
    }
}

/// Number of queues whose message count is known.
fn known(health: &Check) -> usize {
    let reported = health
        .source
        .names
        .iter()
        .map(|name| health.depths.reported(&Key::new("ns", name)));
    reported
        .filter(|reported| matches!(reported, ReportedDepth::Depth(_)))
        .count()
}

/// QUE-22, FW-33
#[tokio::test(start_paused = true)]
async fn changed_queue_enqueues_only_its_actor() {
    let health = health_check(
        &["fine", "gone", "drifted", "differs", "lost", "busy"],
        None,
        0,
        0,
    );
    health.check().await;
    let expected = [
        ("gone", RecheckReason::Missing),
        ("drifted", RecheckReason::Changed),
        ("differs", RecheckReason::Changed),
    ];
    let expected = expected.map(|(name, reason)| (name.to_owned(), reason));
    assert_eq!(*health.source.rechecks.lock(), expected);
}

/// QUE-10, QUE-32: while the messages of the queue can be counted, and at the first check if the queue is another's.
#[tokio::test(start_paused = true)]
async fn what_only_a_check_sees_is_not_refuted_by_counts() {
    let health = health_check(&["denied", "taken"], None, 300, 30);
    let all = || health.source.rechecks.lock().clone();
    let names = || all().into_iter().map(|it| it.0).collect::<Vec<_>>();
    health.check().await;
    for expected in [&["taken"][..], &["taken", "denied"]] {
        health.count().await;
        health.repeat().await;
        assert_eq!(names(), expected);
    }
}

/// QUE-20
#[tokio::test(start_paused = true)]
async fn checks_count_all_queues_and_counts_only_those_with_replicas() {
    let health = health_check(&["fine", "idle", "lost", "busy"], None, 0, 0);
    health.count().await;
    assert_eq!(*health.observer.counted.lock(), ["fine", "lost", "busy"]);
    assert_eq!(known(&health), 1);
    health.check().await;
    assert_eq!(known(&health), 2, "fine and idle");
    let reported = |name| health.depths.reported(&Key::new("ns", name));
    assert_eq!(
        (reported("lost"), reported("busy")),
        (ReportedDepth::Unchanged, ReportedDepth::Unchanged)
    );
    assert_eq!(
        *health.source.depth_changes.lock(),
        ["fine", "idle"],
        "the first reading of each"
    );
}

/// QUE-37
#[tokio::test(start_paused = true)]
async fn queue_missing_in_a_count_is_checked_at_once() {
    let health = health_check(&["fine", "gone", "lost", "busy", "gone-paused"], None, 0, 0);
    health.count().await;
    assert_eq!(*health.source.missing.lock(), ["gone"]);
}

/// QUE-20, QUE-40: messages of a queue that is gone would keep its actor from being deleted.
#[tokio::test(start_paused = true)]
async fn messages_of_a_queue_that_is_gone_are_not_reported() {
    for checks in [true, false] {
        let health = health_check(&["gone", "gone-paused"], None, 0, 0);
        for name in ["gone", "gone-paused"] {
            health.depths.record(
                &Key::new("ns", name),
                Some(Depth {
                    queued: 7,
                    processing: 0,
                }),
            );
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        if checks {
            health.check().await;
        } else {
            health.count().await;
        }
        assert_eq!(known(&health), 0, "checks: {checks}");
    }
}

/// QUE-35
#[tokio::test(start_paused = true)]
async fn unmarked_queues_are_marked_in_batches() {
    let names: Vec<&str> = std::iter::repeat_n("untagged", TAGGED_PER_CHECK + 1).collect();
    let health = health_check(&[&names[..], &["drifted"]].concat(), None, 0, 0);
    health.check().await;
    let rechecks = health.source.rechecks.lock();
    assert_eq!(rechecks.len(), TAGGED_PER_CHECK + 1);
    assert_eq!(
        rechecks.last().unwrap().0,
        "drifted",
        "drift is not delayed by tagging"
    );
}

/// QUE-20, API-3
#[tokio::test(start_paused = true)]
async fn queue_of_a_paused_actor_is_only_counted() {
    let health = health_check(&["fine-paused", "gone-paused", "lost-paused"], None, 0, 0);
    for _ in 0..3 {
        health.check().await;
    }
    assert_eq!(*health.source.rechecks.lock(), []);
    let reported = |name| health.depths.reported(&Key::new("ns", name));
    assert!(matches!(reported("fine-paused"), ReportedDepth::Depth(_)));
    assert_eq!(reported("lost-paused"), ReportedDepth::Unknown);
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn hanging_transport_does_not_delay_others() {
    let health = health_check(&["fine", "gone", "other-one"], Some("other"), 0, 0);
    assert!(
        timeout(Duration::from_secs(1), health.check())
            .await
            .is_err()
    );
    assert_eq!(health.source.rechecks.lock().len(), 1);
}

/// QUE-21 (a, d)
#[tokio::test(start_paused = true)]
async fn check_runs_every_interval_with_jitter_and_never_for_zero() {
    let regular = health_check(&["fine"], None, 300, 0);
    let started = Instant::now();
    assert!(
        timeout(Duration::from_mins(50), regular.run())
            .await
            .is_err()
    );
    assert!(started.elapsed() >= Duration::from_mins(50));
    // Each check observes both transports.
    let runs = regular.observer.checks.load(SeqCst) / 2;
    assert!((9..=11).contains(&runs), "{runs}");
    assert!(regular.observer.counted.lock().is_empty());

    let disabled = health_check(&["fine"], None, 0, 0);
    timeout(Duration::from_hours(24), disabled.run())
        .await
        .unwrap_err();
    assert_eq!(disabled.observer.checks.load(SeqCst), 0);
}

/// QUE-21 (a)
#[tokio::test(start_paused = true)]
async fn checks_of_several_operators_do_not_coincide() {
    let mut delays = Vec::new();
    for _ in 0..100 {
        delays.push(jittered(Duration::from_secs(100)).as_secs());
    }
    assert!(delays.iter().all(|delay| (90..=110).contains(delay)));
    assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
    let mut first = Vec::new();
    for _ in 0..100 {
        let started = Instant::now();
        super::initial_delay(Duration::from_secs(100)).await;
        first.push(started.elapsed().as_secs());
    }
    assert!(first.iter().any(|delay| *delay < 50) && first.iter().any(|delay| *delay >= 50));
    assert!(first.iter().all(|delay| *delay <= 100), "{first:?}");
}
