use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use asya_shared::api::TimeoutInForce;
use asya_shared::config::TransportsConfig;
use futures::FutureExt;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::*;
use crate::broker::Serving;
use crate::broker::depths::Told;

/// Actors `ns/NAME`, each on the transport `mq` unless its name begins with another's.
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
            .unwrap()
            .push((actor.name.to_string(), finding.clone()));
    }

    fn is_missing(&self, actor: &Key) {
        self.missing.lock().unwrap().push(actor.name.to_string());
    }

    fn tell_depth(&self, actor: &Key) {
        self.told.lock().unwrap().push(actor.name.to_string());
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

/// Answers by the actor's name.
#[derive(Default)]
struct Brokers {
    hangs: Option<&'static str>,
    counted: Mutex<Vec<String>>,
    surveys: AtomicUsize,
}

fn answer(actor: &str) -> Result<Seen, BrokerError> {
    let standing = match actor.trim_end_matches("-paused") {
        "gone" => Standing::Absent,
        "drifted" => Standing::Drifted,
        "unmarked" => Standing::Unmarked,
        "differs" => Standing::Differs {
            wanted: String::new(),
            found: String::new(),
        },
        "lost" => return Err(BrokerError::Unreachable("no answer".to_owned())),
        "busy" => return Err(BrokerError::Busy("later".to_owned())),
        _ => Standing::Serves(Serving::default()),
    };
    let depth = Some(Depth {
        queued: 7,
        processing: 1,
    });
    Ok(Seen { standing, depth })
}

impl Surveyor for Arc<Brokers> {
    fn survey<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Seen>> {
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
            self.counted.lock().unwrap().push(queue.actor.clone());
            let count = answer(&queue.actor).map(|seen| match (seen.standing, seen.depth) {
                (Standing::Absent, _) => Count::Absent,
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

/// How many queues' messages are known.
fn known(pass: &Pass) -> usize {
    let told = pass
        .actors
        .names
        .iter()
        .map(|name| pass.depths.told(&Key::new("ns", name)));
    told.filter(|told| matches!(told, Told::Depth(_))).count()
}

/// QUE-22, FW-33
#[tokio::test(start_paused = true)]
async fn what_is_not_as_it_was_verified_wakes_its_actor_and_nobody_else() {
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
    assert_eq!(*pass.actors.woken.lock().unwrap(), wanted);
}

/// QUE-20
#[tokio::test(start_paused = true)]
async fn depths_are_counted_of_all_in_the_pass_and_of_those_at_work_between() {
    let pass = pass(&["fine", "idle", "lost", "busy"], None, 0, 0);
    pass.count().await;
    assert_eq!(
        *pass.brokers.counted.lock().unwrap(),
        ["fine", "lost", "busy"]
    );
    assert_eq!(known(&pass), 1);
    pass.check().await;
    assert_eq!(known(&pass), 2, "fine and idle");
    let told = |name| pass.depths.told(&Key::new("ns", name));
    assert_eq!(
        (told("lost"), told("busy")),
        (Told::Nothing, Told::AsBefore)
    );
    assert_eq!(
        *pass.actors.told.lock().unwrap(),
        ["fine", "lost", "idle"],
        "each first reading"
    );
}

/// QUE-37
#[tokio::test(start_paused = true)]
async fn queue_that_a_count_does_not_find_is_looked_for_at_once() {
    let pass = pass(&["fine", "gone", "lost", "busy", "gone-paused"], None, 0, 0);
    pass.count().await;
    assert_eq!(*pass.actors.missing.lock().unwrap(), ["gone"]);
}

/// QUE-35
#[tokio::test(start_paused = true)]
async fn queues_from_before_get_their_mark_a_few_with_each_check() {
    let names: Vec<&str> = std::iter::repeat_n("unmarked", MARKED_PER_CHECK + 1).collect();
    let pass = pass(&[&names[..], &["drifted"]].concat(), None, 0, 0);
    pass.check().await;
    let woken = pass.actors.woken.lock().unwrap();
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
    assert_eq!(*pass.actors.woken.lock().unwrap(), []);
    let told = |name| pass.depths.told(&Key::new("ns", name));
    assert!(matches!(told("fine-paused"), Told::Depth(_)));
    assert_eq!(told("lost-paused"), Told::Nothing);
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn a_transport_that_hangs_holds_up_no_other() {
    let pass = pass(&["fine", "gone", "other-one"], Some("other"), 0, 0);
    assert!(timeout(Duration::from_secs(1), pass.check()).await.is_err());
    assert_eq!(pass.actors.woken.lock().unwrap().len(), 1);
}

/// QUE-21
#[tokio::test(start_paused = true)]
async fn the_pass_comes_each_interval_give_or_take_a_tenth_and_zero_is_never() {
    let regular = pass(&["fine"], None, 300, 0);
    let began = Instant::now();
    assert!(
        timeout(Duration::from_mins(50), regular.run())
            .await
            .is_err()
    );
    assert!(began.elapsed() >= Duration::from_mins(50));
    // each looks at both transports
    let passes = regular.brokers.surveys.load(SeqCst) / 2;
    assert!((9..=11).contains(&passes), "{passes}");
    assert!(regular.brokers.counted.lock().unwrap().is_empty());

    let never = pass(&["fine"], None, 0, 0);
    timeout(Duration::from_hours(24), never.run())
        .await
        .unwrap_err();
    assert_eq!(never.brokers.surveys.load(SeqCst), 0);
}

#[test]
fn a_doubt_stays_until_it_is_settled() {
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
