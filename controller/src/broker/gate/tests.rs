use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use asya_process::metrics::Exposed;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

struct Yes;

impl Labelled for Yes {
    fn label(&self) -> String {
        "yes".to_owned()
    }
}

const READ: Operation = Operation::read("look");

fn gate() -> Arc<BrokerLimiter> {
    Arc::new(BrokerLimiter::new("t", Fence::open(), Arc::default()))
}

fn no_answer() -> BrokerError {
    BrokerError::Unreachable("no answer".to_owned())
}

async fn unanswered(gate: &BrokerLimiter) -> Result<Yes, BrokerError> {
    gate.call(READ, async { Err(no_answer()) }).await
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn ten_calls_run_at_once_and_the_others_wait_their_turn() {
    let (gate, running, most) = (
        gate(),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (gate, running, most) = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&most));
        calls.spawn(async move {
            let call = async {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(Duration::from_millis(400)).await;
                running.fetch_sub(1, SeqCst);
                Ok(Yes)
            };
            gate.call(READ, call).await.is_ok()
        });
    }
    let answered = calls.join_all().await;
    assert!(
        answered.into_iter().all(|answered| answered),
        "a slow broker serves everybody in the end"
    );
    assert_eq!(most.load(SeqCst), 10);
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_behind_hanging_calls() {
    let gate = gate();
    let mut hanging = JoinSet::new();
    for _ in 0..10 {
        let gate = Arc::clone(&gate);
        hanging.spawn(async move {
            gate.call(READ, pending::<Result<Yes, BrokerError>>())
                .await
                .is_ok()
        });
    }
    tokio::task::yield_now().await;
    let began = Instant::now();
    let waited = gate.call(READ, async { Ok(Yes) }).await.err();
    assert!(matches!(waited, Some(BrokerError::Busy(_))), "{waited:?}");
    assert!(
        began.elapsed() <= Duration::from_millis(501),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_err());
    assert_eq!(
        began.elapsed(),
        Duration::ZERO,
        "the next one does not wait at all"
    );
    hanging.abort_all();
    while hanging.join_next().await.is_some() {}
    assert!(
        gate.call(READ, async { Ok(Yes) }).await.is_ok(),
        "calls that were given up leave room"
    );
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_is_not_called_for_thirty_seconds() {
    let gate = gate();
    for _ in 0..5 {
        assert!(unanswered(&gate).await.is_err());
    }
    let called = async { panic!("called") };
    let refused = gate.call::<Yes>(READ, called).await.err();
    assert_eq!(refused, Some(no_answer()), "the same is told again");
    sleep(Duration::from_secs(30)).await;
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn missing_credentials_say_nothing_about_the_broker() {
    let metrics: Arc<Metrics> = Arc::default();
    let gate = BrokerLimiter::new("t", Fence::open(), Arc::clone(&metrics));
    for _ in 0..4 {
        assert!(unanswered(&gate).await.is_err());
    }
    let missing = BrokerError::CredentialsMissing("none".to_owned());
    let failed = gate.call::<Yes>(READ, async { Err(missing.clone()) }).await;
    assert_eq!(failed.err(), Some(missing));
    assert!(unanswered(&gate).await.is_err());
    let refused = gate.call::<Yes>(READ, async { panic!("called") }).await;
    assert_eq!(refused.err(), Some(no_answer()), "five without an answer");
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"transport_up{transport="t"} 0"#), "{text}");
}

/// QUE-9
#[tokio::test(start_paused = true)]
async fn refusal_does_not_open_the_circuit() {
    let gate = gate();
    for _ in 0..4 {
        assert!(unanswered(&gate).await.is_err());
    }
    let refusal = BrokerError::Throttled("slow down".to_owned());
    let refused = gate.call::<Yes>(READ, async { Err(refusal.clone()) }).await;
    assert_eq!(refused.err(), Some(refusal));
    assert!(unanswered(&gate).await.is_err());
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
}

/// FW-28
#[tokio::test(start_paused = true)]
async fn broker_is_not_called_for_as_long_as_it_asks() {
    let gate = gate();
    let seconds = Duration::from_secs;
    let asks = BrokerError::Resting("slow down".to_owned(), seconds(90));
    let refused = gate.call::<Yes>(READ, async { Err(asks.clone()) }).await;
    assert_eq!(refused.err().as_ref(), Some(&asks));
    sleep(seconds(89)).await;
    let refused = gate.call::<Yes>(READ, async { panic!("called") }).await;
    assert_eq!(refused.err(), Some(asks), "whoever asks");
    sleep(seconds(1)).await;
    for _ in 0..2 {
        assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
    }
}

/// OPS-22
#[tokio::test(start_paused = true)]
async fn slow_broker_holds_few_reconciles_and_requeues_the_rest() {
    let gate = gate();
    let taking = |duration: Duration| {
        let gate = Arc::clone(&gate);
        async move {
            let call = async {
                sleep(duration).await;
                Ok(Yes)
            };
            gate.call(READ, call).await.is_ok()
        }
    };
    let enter_all = |entry| (0..20).map(|_| gate.enter(entry)).collect::<Vec<_>>();
    let fast = enter_all(Entry::First);
    assert!(
        fast.iter().all(Result::is_ok),
        "nobody knows of a slow broker"
    );
    drop(fast);
    for _ in 0..5 {
        assert!(taking(Duration::from_secs(2)).await);
    }
    let mut inside = enter_all(Entry::First);
    let refused = inside.split_off(12);
    assert!(inside.iter().all(Result::is_ok));
    for one in &refused {
        let Err(BrokerError::Crowded(_, wait)) = one else {
            panic!("let in")
        };
        assert!(*wait >= Duration::from_millis(500), "{wait:?}");
    }
    assert!(gate.enter(Entry::Again).is_ok(), "who began goes on");
    inside.truncate(11);
    let entered = gate.enter(Entry::First);
    assert!(entered.is_ok(), "there is room again");
    for _ in 0..20 {
        assert!(taking(Duration::from_millis(20)).await);
    }
    assert!(gate.enter(Entry::First).is_ok(), "it is not slow any more");
}

/// OPS-22
#[tokio::test]
async fn one_slow_broker_never_has_more_than_half_of_the_workers() {
    for (workers, wanted) in [(1, 1), (2, 1), (8, 4), (20, 10), (32, 12), (50, 12)] {
        let gate = BrokerLimiter::new("t", Fence::open(), Arc::default()).for_workers(workers);
        assert_eq!(gate.seats, wanted, "{workers}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_writes_need_the_lease() {
    let gate = BrokerLimiter::new("t", Fence::closed(), Arc::default());
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
    let write = gate.call::<Yes>(Operation::write("create"), async { panic!("called") });
    let refused = timeout(Duration::from_secs(1), write).await.unwrap();
    assert!(matches!(refused, Err(BrokerError::Fenced(_))));
}

/// OPS-4
#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_operation_and_result() {
    let metrics: Arc<Metrics> = Arc::default();
    let gate = BrokerLimiter::new("t", Fence::open(), Arc::clone(&metrics));
    assert!(gate.call(READ, async { Ok(Yes) }).await.is_ok());
    assert!(unanswered(&gate).await.is_err());
    let text = metrics.text().unwrap();
    for line in [
        r#"broker_requests_total{transport="t",operation="look",result="yes"} 1"#,
        r#"broker_requests_total{transport="t",operation="look",result="BrokerUnreachable"} 1"#,
        r#"transport_up{transport="t"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}
