use std::net::Ipv4Addr;

use futures::FutureExt;

use super::*;

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// ADM-22
#[tokio::test]
async fn heaviest_client_gives_way_and_memory_is_counted_once() {
    let all = Bodies::new(100);
    let (large, small) = (all.begin(peer(1)), all.begin(peer(1)));
    large.take(60).await.unwrap();
    small.take(30).await.unwrap();
    let review = all.begin(peer(2));
    let mut taking = Box::pin(review.take(20));
    assert!(
        taking.as_mut().now_or_never().is_none(),
        "there is no room yet"
    );
    assert!(large.given_up().now_or_never().is_some());
    assert_eq!(large.take(1).await, Err(GivenUp));
    assert!(small.given_up().now_or_never().is_none());
    drop(large);
    taking.await.unwrap();
    assert_eq!(all.taken(), 50);
    drop((small, review));
    assert_eq!(all.taken(), 0);
}

/// ADM-22
#[tokio::test]
async fn small_reviews_of_a_client_outlive_its_large_ones() {
    let all = Bodies::new(100);
    let (large, review) = (all.begin(peer(1)), all.begin(peer(1)));
    large.take(90).await.unwrap();
    review.take(10).await.unwrap();
    // It would be the largest body itself.
    assert_eq!(large.take(1).await, Err(GivenUp));
    let mut taking = Box::pin(review.take(10));
    assert!(taking.as_mut().now_or_never().is_none());
    assert!(large.given_up().now_or_never().is_some());
    drop(large);
    taking.await.unwrap();
    assert_eq!(all.taken(), 20);
}

/// ADM-22
#[tokio::test]
async fn released_memory_goes_to_waiting_bodies() {
    let all = Bodies::new(100);
    let (first, waits, other) = (all.begin(peer(1)), all.begin(peer(2)), all.begin(peer(3)));
    first.take(60).await.unwrap();
    waits.take(30).await.unwrap();
    let mut waiting = Box::pin(waits.take(20));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(other.take(80).await, Err(GivenUp), "it is the largest");
    let mut taking = Box::pin(other.take(45));
    assert!(taking.as_mut().now_or_never().is_none());
    drop(first);
    waiting.await.unwrap();
    taking.await.unwrap();
    assert_eq!(all.taken(), 95);
}
