//! Prefetched messages that the broker redelivers, because their leases have expired.

use std::time::Duration;

use tokio::time::sleep;

use super::bench::{Bench, Script, message};
use super::{NEXT, OWN};
use crate::config::Lookahead;

/// SC-37, SC-73: what has begun is finished; the rest is left to its next delivery.
#[tokio::test(start_paused = true)]
async fn message_whose_lease_expired_while_it_waited_is_not_started() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(2);
    bench
        .runtime
        .script("0", Script::Takes(Duration::from_secs(10)));
    bench.broker.put(OWN, (0..3).map(message));
    let scheduler = bench.start();
    sleep(Duration::from_secs(1)).await;
    assert!(bench.broker.messages(OWN).is_empty(), "all are in flight");
    bench.broker.expire();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(
        (ids, bench.runtime.calls()),
        (["0", "1", "2"].map(str::to_owned).to_vec(), 3)
    );
    assert_eq!(bench.broker.deliveries(), 5, "two of them twice");
    bench.stop(scheduler).await;
}
