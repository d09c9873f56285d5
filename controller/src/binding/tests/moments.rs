//! Coalescing of changes in quick succession.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asya_process::clock;
use asya_shared::resolve::GroupKind;
use tokio::time::{Instant, sleep, sleep_until};

use super::{EARLY, bind, deployment, key, server};
use crate::app::operator;
use crate::binding::TargetState;
use crate::binding::kinds::Kind;
use crate::binding::objects::ObjectWatch;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::reconcile::work_item::WorkItem;
use crate::work_queue::RunOutcome;

/// BIND-61
#[tokio::test(start_paused = true)]
async fn changes_within_a_quarter_second_cause_one_read() {
    let reads = Arc::default();
    let version = Arc::new(Mutex::new(Some(7)));
    let client = server(&reads, &version);
    let operator = operator::tests::operator();
    operator.context.leading_since.get_or_init(clock::now);
    let bindings = Arc::clone(&operator.context.bindings);
    bind(&bindings, &key("a"), "web", EARLY);
    let target = bindings.target_of(&key("a")).unwrap();
    let deployments = Kind::from(GroupKind {
        group: "apps",
        kind: "Deployment",
    });
    let mut availability = bindings.kinds.subscribe(&deployments);
    tokio::select! {
        () = bindings.kinds.follow(&client, |_| {}) => {}
        changed = availability.changed() => changed.unwrap(),
    }
    let watch = ObjectWatch::new(&bindings, &target.kind);
    let scope = WatchScope::Namespace("ns".into());
    let work = {
        let bindings = Arc::clone(&bindings);
        move |_: WorkItem, _| {
            let bindings = bindings.clone();
            let client = client.clone();
            let target = target.clone();
            async move {
                let state = bindings.read_target(&client, &target).await.unwrap();
                assert!(matches!(state, TargetState::Present(_)));
                RunOutcome::Done
            }
        }
    };
    let running = operator.queue.clone();
    tokio::spawn(async move { running.run(work).await });

    let start = Instant::now();
    for version in 8..18 {
        for affected in watch.apply(&scope, &deployment("web", version)) {
            operator.on_bound_object_change(affected);
        }
        sleep(Duration::from_millis(20)).await;
    }
    let calls = || reads.load(Ordering::Relaxed);
    sleep_until(start + Duration::from_millis(249)).await;
    assert_eq!(calls(), 0, "the delay is not over");
    sleep_until(start + Duration::from_millis(260)).await;
    assert_eq!(calls(), 1);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(calls(), 1, "ten changes, one read");
}
