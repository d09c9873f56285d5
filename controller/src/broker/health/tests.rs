use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use asya_shared::api::TimeoutInForce;
use asya_shared::config::TransportsConfig;
use futures::FutureExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::*;
use crate::broker::Serving;
use crate::broker::depths::ReportedDepth;

/// Actors `ns/NAME`, on transport `mq` unless the name begins with that of another transport.
#[derive(Default)]
struct Fixture {
    names: Vec<&'static str>,
    woken: Mutex<Vec<(String, Finding)>>,
    told: Mutex<Vec<String>>,
    missing: Mutex<Vec<String>>,
}

impl Actors for Arc<Fixture> {
    fn queues(&self) -> Vec<OnTransport> {
        let on = |name: &str| {
            let transport = transport(name);
            let here = |actor: &&&str| actor.starts_with("other") == (name == "other");
            let queues = self.names.iter().filter(here).map(|actor| Checked {
                queue: queue_of(&transport, actor),
                at_work: !actor.ends_with("idle"),
                kept: !actor.ends_with("paused"),
            });
            OnTransport {
                queues: queues.collect(),
                transport: transport.clone(),
            }
        };
        vec![on("mq"), on("other")]
    }

    fn verify_again(&self, actor: &Key, finding: &Finding) {
        self.woken
            .lock()
            .push((actor.name.to_string(), finding.clone()));
    }

    fn is_missing(&self, actor: &Key) {
        self.missing.lock().push(actor.name.to_string());
    }

    fn tell_depth(&self, actor: &Key) {
        self.told.lock().push(actor.name.to_string());
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

fn queue_of(transport: &Transport, actor: &str) -> QueueOf {
    QueueOf {
        names: transport.names_of("ns", actor),
        namespace: "ns".to_owned(),
        actor: actor.to_owned(),
        uid: String::new(),
        timeout: TimeoutInForce {
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
    counted: Mutex<Vec<String>>,
    surveys: AtomicUsize,
}

fn answer(actor: &str) -> Result<QueueObservation, BrokerError> {
    let standing = match actor.trim_end_matches("-paused") {
        "gone" => QueueCheck::Absent,
        "drifted" => QueueCheck::Drifted,
        "unmarked" => QueueCheck::Unmarked,
        "differs" => QueueCheck::Differs {
            wanted: String::new(),
            found: String::new(),
        },
        "lost" => return Err(BrokerError::Unreachable("no answer".to_owned())),
        "busy" => return Err(BrokerError::Busy("later".to_owned())),
        _ => QueueCheck::Serves(Serving::default()),
    };
    let depth = Some(Depth {
        queued: 7,
        processing: 1,
    });
    Ok(QueueObservation { standing, depth })
}

impl Surveyor for Arc<Brokers> {
    fn survey<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<QueueObservation>> {
        self.surveys.fetch_add(1, SeqCst);
        if self.hangs == Some(&*transport.name) {
            return pending().boxed();
        }
        let answered = queues.into_iter().map(|queue| {
            let seen = answer(&queue.actor);
            (queue, seen)
        });
        std::future::ready(answered.collect()).boxed()
    }

    fn depths<'a>(
        &'a self,
        _transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Count>> {
        let answered = queues.into_iter().map(|queue| {
            self.counted.lock().push(queue.actor.clone());
            let count = answer(&queue.actor).map(|seen| match (seen.standing, seen.depth) {
                (QueueCheck::Absent, _) => Count::Absent,
                (_, None) => Count::Unknown,
                (_, Some(depth)) => Count::Messages(depth),
            });
            (queue, count)
        });
        std::future::ready(answered.collect()).boxed()
    }
}

type Pass = HealthPass<Arc<Fixture>, Arc<Brokers>>;

fn pass(names: &[&'static str], hangs: Option<&'static str>, check: u64, count: u64) -> Pass {
    HealthPass {
        actors: Arc::new(Fixture {
            names: names.to_vec(),
            ..Fixture::default()
        }),
        brokers: Arc::new(Brokers {
            hangs,
            ..Brokers::default()
        }),
        depths: Arc::default(),
        schedule: Schedule {
            check: Duration::from_secs(check),
            count: Duration::from_secs(count),
        },
    }
}

/// Number of queues whose message count is known.
fn known(pass: &Pass) -> usize {
    let told = pass
        .actors
        .names
        .iter()
        .map(|name| pass.depths.told(&Key::new("ns", name)));
    told.filter(|told| matches!(told, ReportedDepth::Depth(_)))
        .count()
}

/// QUE-22, FW-33
#[tokio::test(start_paused = true)]
async fn changed_queue_enqueues_only_its_actor() {
    let pass = pass(
        &["fine", "gone", "drifted", "differs", "lost", "busy"],
        None,
        0,
        0,
    );
    pass.check().await;
    let unreachable = BrokerError::Unreachable("no answer".to_owned());
    let wanted = [
        ("gone", Finding::Vanished),
        ("drifted", Finding::Changed),
        ("differs", Finding::Changed),
        ("lost", Finding::Unknown(unreachable)),
    ];
    let wanted = wanted.map(|(name, finding)| (name.to_owned(), finding));
    assert_eq!(*pass.actors.woken.lock(), wanted);
}

/// QUE-20
#[tokio::test(start_paused = true)]
async fn checks_count_all_queues_and_counts_only_those_at_work() {
    let pass = pass(&["fine", "idle", "lost", "busy"], None, 0, 0);
    pass.count().await;
    assert_eq!(*pass.brokers.counted.lock(), ["fine", "lost", "busy"]);
    assert_eq!(known(&pass), 1);
    pass.check().await;
    assert_eq!(known(&pass), 2, "fine and idle");
    let told = |name| pass.depths.told(&Key::new("ns", name));
    assert_eq!(
        (told("lost"), told("busy")),
        (ReportedDepth::Nothing, ReportedDepth::AsBefore)
    );
    assert_eq!(
        *pass.actors.told.lock(),
        ["fine", "lost", "idle"],
        "each first reading"
    );
}

/// QUE-37
#[tokio::test(start_paused = true)]
async fn queue_missing_in_a_count_is_checked_at_once() {
    let pass = pass(&["fine", "gone", "lost", "busy", "gone-paused"], None, 0, 0);
    pass.count().await;
    assert_eq!(*pass.actors.missing.lock(), ["gone"]);
}

/// QUE-35
#[tokio::test(start_paused = true)]
async fn unmarked_queues_are_marked_in_batches() {
    let names: Vec<&str> = std::iter::repeat_n("unmarked", MARKED_PER_CHECK + 1).collect();
    let pass = pass(&[&names[..], &["drifted"]].concat(), None, 0, 0);
    pass.check().await;
    let woken = pass.actors.woken.lock();
    assert_eq!(woken.len(), MARKED_PER_CHECK + 1);
    assert_eq!(
        woken.last().unwrap().0,
        "drifted",
        "what is wrong waits for nothing"
    );
}

/// QUE-20, API-3
#[tokio::test(start_paused = true)]
async fn queue_of_a_paused_actor_is_counted_and_otherwise_left_alone() {
    let pass = pass(&["fine-paused", "gone-paused", "lost-paused"], None, 0, 0);
    pass.check().await;
    assert_eq!(*pass.actors.woken.lock(), []);
    let told = |name| pass.depths.told(&Key::new("ns", name));
    assert!(matches!(told("fine-paused"), ReportedDepth::Depth(_)));
    assert_eq!(told("lost-paused"), ReportedDepth::Nothing);
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn hanging_transport_does_not_delay_others() {
    let pass = pass(&["fine", "gone", "other-one"], Some("other"), 0, 0);
    assert!(timeout(Duration::from_secs(1), pass.check()).await.is_err());
    assert_eq!(pass.actors.woken.lock().len(), 1);
}

/// QUE-21
#[tokio::test(start_paused = true)]
async fn check_runs_every_interval_with_jitter_and_never_for_zero() {
    let regular = pass(&["fine"], None, 300, 0);
    let began = Instant::now();
    assert!(
        timeout(Duration::from_mins(50), regular.run())
            .await
            .is_err()
    );
    assert!(began.elapsed() >= Duration::from_mins(50));
    // Each check surveys both transports.
    let passes = regular.brokers.surveys.load(SeqCst) / 2;
    assert!((9..=11).contains(&passes), "{passes}");
    assert!(regular.brokers.counted.lock().is_empty());

    let never = pass(&["fine"], None, 0, 0);
    timeout(Duration::from_hours(24), never.run())
        .await
        .unwrap_err();
    assert_eq!(never.brokers.surveys.load(SeqCst), 0);
}

#[test]
fn finding_stays_open_until_settled() {
    let (doubts, key) = (QueueRechecks::default(), Key::new("ns", "a"));
    assert_eq!(doubts.about(&key), None);
    doubts.raise(&key, Finding::Vanished);
    assert_eq!(doubts.about(&key), Some(Finding::Vanished));
    assert_eq!(doubts.about(&key), Some(Finding::Vanished));
    let began = doubts.now();
    doubts.raise(&key, Finding::Changed);
    doubts.settle(&key, began);
    let since = Some(Finding::Changed);
    assert_eq!(doubts.about(&key), since, "raised while a pass looked");
    doubts.settle(&key, doubts.now());
    assert_eq!(doubts.about(&key), None);
}
