use std::net::Ipv4Addr;

use futures::FutureExt;

use super::*;

fn peer(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// ADM-22
#[tokio::test]
async fn heaviest_client_is_evicted_and_memory_is_counted_once() {
    let budget = BodyBudget::new(100);
    let (large, small) = (budget.register(peer(1)), budget.register(peer(1)));
    large.reserve(60).await.unwrap();
    small.reserve(30).await.unwrap();
    let review = budget.register(peer(2));
    let mut reservation = Box::pin(review.reserve(20));
    assert!(
        reservation.as_mut().now_or_never().is_none(),
        "the shed body still holds its memory"
    );
    assert!(large.wait_until_shed().now_or_never().is_some());
    assert_eq!(large.reserve(1).await, Err(Shed));
    assert!(small.wait_until_shed().now_or_never().is_none());
    drop(large);
    reservation.await.unwrap();
    assert_eq!(budget.used(), 50);
    drop((small, review));
    assert_eq!(budget.used(), 0);
}

/// ADM-22
#[tokio::test]
async fn large_reviews_of_a_client_are_evicted_before_its_small_ones() {
    let budget = BodyBudget::new(100);
    let (large, review) = (budget.register(peer(1)), budget.register(peer(1)));
    large.reserve(90).await.unwrap();
    review.reserve(10).await.unwrap();
    // The requesting body would itself be the largest.
    assert_eq!(large.reserve(1).await, Err(Shed));
    let mut reservation = Box::pin(review.reserve(10));
    assert!(reservation.as_mut().now_or_never().is_none());
    assert!(large.wait_until_shed().now_or_never().is_some());
    drop(large);
    reservation.await.unwrap();
    assert_eq!(budget.used(), 20);
}

/// ADM-22
#[tokio::test]
async fn released_memory_is_given_to_waiting_bodies() {
    let budget = BodyBudget::new(100);
    let (first, second, third) = (
        budget.register(peer(1)),
        budget.register(peer(2)),
        budget.register(peer(3)),
    );
    first.reserve(60).await.unwrap();
    second.reserve(30).await.unwrap();
    let mut second_reservation = Box::pin(second.reserve(20));
    assert!(second_reservation.as_mut().now_or_never().is_none());
    assert_eq!(
        third.reserve(80).await,
        Err(Shed),
        "the body itself is the largest"
    );
    let mut reservation = Box::pin(third.reserve(45));
    assert!(reservation.as_mut().now_or_never().is_none());
    drop(first);
    second_reservation.await.unwrap();
    reservation.await.unwrap();
    assert_eq!(budget.used(), 95);
}
