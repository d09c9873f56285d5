//! End actors that acknowledge messages only once the gateway has accepted their final reports.

use std::time::Duration;

use tokio::time::sleep;

use super::OWN;
use super::bench::{Bench, message};
use crate::decide::EndActor;
use crate::gateway::testing::Fake;

/// An end actor, and a gateway that responds with these statuses, repeating the last one.
async fn bench(statuses: &[u16]) -> (Bench, Fake) {
    let fake = Fake::start(statuses).await;
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Happy);
    bench.gateway = Some(fake.url.clone());
    (bench, fake)
}

/// SC-72, SC-90: the handler has succeeded, so only the report is sent again.
#[tokio::test]
async fn handler_runs_once_while_the_gateway_is_unavailable() {
    let (bench, fake) = bench(&[503, 429, 408, 500, 200]).await;
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    fake.saw(4).await;
    assert_eq!(bench.broker.left(), 1, "not acknowledged yet");
    bench.emptied().await;
    assert_eq!((bench.runtime.calls(), fake.requests.lock().len()), (1, 5));
    let ended = (bench.broker.rejected().len(), bench.broker.failed());
    assert_eq!(ended, (0, 0));
    bench.stop(scheduler).await;
}

/// SC-76, SC-79, SC-90
#[tokio::test]
async fn message_that_waits_for_the_gateway_is_given_back_at_shutdown() {
    let (bench, fake) = bench(&[503]).await;
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    fake.saw(2).await;
    bench.stop(scheduler).await;
    let ended = (bench.broker.rejected().len(), bench.broker.failed());
    assert_eq!((bench.broker.left(), ended), (1, (0, 0)));
    assert_eq!(bench.runtime.calls(), 1);
}

/// SC-26, SC-31, SC-90: a delivery limit, not the sidecar, moves it to its DLQ; meanwhile, others are delivered.
#[tokio::test]
async fn message_whose_report_is_refused_is_held_and_given_back_as_failed() {
    let fake = Fake::answering(|path| if path.contains("/1/") { 400 } else { 200 }).await;
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Happy);
    bench.gateway = Some(fake.url.clone());
    bench.broker.put(OWN, [message(1), message(2)]);
    let scheduler = bench.start();
    fake.saw(2).await;
    tokio::time::pause();
    sleep(Duration::from_secs(9)).await;
    assert_eq!((bench.runtime.calls(), bench.broker.failed()), (2, 0));
    assert_eq!(bench.broker.left(), 1, "the other is acknowledged");
    while bench.broker.failed() == 0 {
        sleep(Duration::from_millis(100)).await;
    }
    tokio::time::resume();
    bench.stop(scheduler).await;
    assert_eq!(bench.broker.rejected().len(), 0);
    assert_eq!(bench.broker.left(), 1, "it is still in the queue");
}
