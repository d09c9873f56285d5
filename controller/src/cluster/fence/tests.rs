#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::{Response, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{advance, sleep};
use tower::service_fn;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn open_for(seconds: u32) -> Fence {
    let fence = Fence::closed();
    fence.extend_until(Instant::now() + seconds * SECOND);
    fence
}

/// Sends a request after `seconds`, and counts it.
async fn sends_after(seconds: u32, sent: &AtomicUsize) -> Result<(), Fenced> {
    if seconds > 0 {
        sleep(seconds * SECOND).await;
    }
    sent.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn closed_fence_makes_no_call() {
    let sent = AtomicUsize::new(0);
    let closed_later = Fence::unrestricted();
    closed_later.close();
    for fence in [Fence::closed(), closed_later] {
        assert_eq!(fence.guard(sends_after(0, &sent)).await, Err(Fenced));
        assert!(!fence.is_open());
    }
    assert_eq!(sent.into_inner(), 0);
}

/// FW-16
#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_writes_in_flight_and_admits_no_other() {
    for fence in [Fence::unrestricted(), open_for(7)] {
        let (start, sent) = (Instant::now(), AtomicUsize::new(0));
        let (first, ()) = tokio::join!(fence.guard(sends_after(3, &sent)), async {
            sleep(SECOND).await;
            fence.drain().await;
            assert_eq!(start.elapsed().as_secs(), 3);
            assert!(!fence.is_open());
            assert_eq!(fence.guard(sends_after(0, &sent)).await, Err(Fenced));
        });
        assert_eq!(first, Ok(()));
        assert_eq!(sent.into_inner(), 1);
    }
    let (start, fence) = (Instant::now(), open_for(7));
    let (late, ()) = tokio::join!(
        fence.guard(std::future::pending::<Result<(), Fenced>>()),
        fence.drain()
    );
    assert_eq!(late, Err(Fenced));
    assert_eq!(start.elapsed().as_secs(), 7, "the deadline holds");
    let never_led = Fence::closed();
    never_led.drain().await;
    never_led.extend_until(Instant::now() + SECOND);
    assert!(!never_led.is_open());
}

#[tokio::test(start_paused = true)]
async fn without_leader_election_everything_passes() {
    let sent = AtomicUsize::new(0);
    let fence = Fence::unrestricted();
    assert_eq!(fence.guard(sends_after(3600, &sent)).await, Ok(()));
    assert_eq!(sent.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn call_ends_at_the_deadline() {
    let start = Instant::now();
    let result = open_for(7)
        .guard(std::future::pending::<Result<(), Fenced>>())
        .await;
    assert_eq!(result, Err(Fenced));
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn call_continues_when_the_lease_is_renewed() {
    let sent = AtomicUsize::new(0);
    let fence = open_for(7);
    let renew = async {
        for _ in 0..6 {
            sleep(2 * SECOND).await;
            fence.extend_until(Instant::now() + 7 * SECOND);
        }
    };
    let (result, ()) = tokio::join!(fence.guard(sends_after(15, &sent)), renew);
    assert_eq!(result, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn process_suspended_past_the_deadline_sends_nothing() {
    let sent = AtomicUsize::new(0);
    let fence = open_for(7);
    let suspend = async {
        sleep(Duration::from_millis(500)).await;
        advance(8 * SECOND).await; // both the call's own timer (1 s) and the deadline have passed
    };
    let (result, ()) = tokio::join!(fence.guard(sends_after(1, &sent)), suspend);
    assert_eq!(result, Err(Fenced));
    assert_eq!(sent.into_inner(), 0);
}

/// Writes a request to a connection after `seconds`: what a call that was admitted has buffered. Returns what the
/// server received.
async fn buffered_for(seconds: u32, fence: Fence) -> (io::Result<()>, Vec<u8>) {
    let (client, mut server) = tokio::io::duplex(64);
    let mut client = Some(TokioIo::new(client));
    let connect = service_fn(|_: Uri| ready(client.take().ok_or("one connection")));
    let mut connector = FencedConnector::new(connect, fence);
    let mut connection = TokioIo::new(connector.call(Uri::default()).await.unwrap());
    sleep(seconds * SECOND).await;
    let sent = connection.write_all(b"PATCH").await;
    drop(connection);
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    (sent, received)
}

/// FW-11
#[tokio::test(start_paused = true)]
async fn connection_sends_nothing_after_the_deadline() {
    let closed = Fence::unrestricted();
    closed.close();
    for fence in [open_for(7), closed] {
        let (sent, received) = buffered_for(8, fence).await;
        assert!(sent.is_err());
        assert_eq!(received, b"");
    }
    let draining = open_for(7);
    draining.drain().await;
    let open = [
        open_for(7),
        draining,
        Fence::unrestricted(),
        Fence::closed(),
    ];
    for (sent, received) in join_all(open.map(|fence| buffered_for(6, fence))).await {
        sent.expect("the leader writes, a follower reads");
        assert_eq!(received, b"PATCH");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_permanently_ends_calls_in_flight() {
    let start = Instant::now();
    let (fence, other) = (Fence::unrestricted(), Fence::closed());
    other.extend_until(start + 7 * SECOND);
    let calls = [&fence, &other].map(|fence| {
        let fence = fence.clone();
        tokio::spawn(async move {
            fence
                .guard(std::future::pending::<Result<(), Fenced>>())
                .await
        })
    });
    sleep(SECOND).await;
    for fence in [fence, other] {
        fence.close();
        fence.extend_until(start + 7 * SECOND); // a late response to a renewal
        assert!(!fence.is_open());
    }
    for call in calls {
        assert_eq!(call.await.unwrap(), Err(Fenced));
    }
    assert_eq!(start.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_is_never_moved_earlier() {
    let fence = open_for(7);
    fence.extend_until(Instant::now() + SECOND);
    advance(6 * SECOND).await;
    assert!(fence.is_open());
    advance(SECOND).await;
    assert!(!fence.is_open());
}

/// A fenced client of a server that accepts every request, with counters of the requests that reached the server and of
/// the writes.
fn client(fence: Fence) -> (Api<ConfigMap>, Arc<AtomicUsize>, Counter) {
    let (reached, writes) = (Arc::new(AtomicUsize::new(0)), Counter::default());
    let count = Arc::clone(&reached);
    let server = service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        let body = Body::from(br#"{"metadata":{"name":"c","resourceVersion":"1"}}"#.to_vec());
        ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let layer = FenceLayer::new(fence, writes.clone());
    let client: Client = ClientBuilder::new(server, "default")
        .with_layer(&layer)
        .build();
    (Api::default_namespaced(client), reached, writes)
}

/// Writes with every method, and returns the results.
async fn write_with_every_method(api: &Api<ConfigMap>) -> Vec<Result<(), kube::Error>> {
    let object = ConfigMap::default();
    let (apply, merge) = (PatchParams::apply("test"), PatchParams::default());
    vec![
        api.create(&PostParams::default(), &object).await.map(drop),
        api.replace("c", &PostParams::default(), &object)
            .await
            .map(drop),
        api.patch("c", &apply, &Patch::Apply(&object))
            .await
            .map(drop),
        api.patch("c", &merge, &Patch::Merge(&object))
            .await
            .map(drop),
        api.delete("c", &DeleteParams::default()).await.map(drop),
    ]
}

#[tokio::test]
async fn follower_reads_but_does_not_write() {
    let (api, reached, writes) = client(Fence::closed());
    for result in write_with_every_method(&api).await {
        assert!(Fenced::is_cause_of(&result.unwrap_err()));
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0);
    api.get("c").await.expect("reads pass");
    assert_eq!((reached.load(Ordering::Relaxed), writes.get()), (1, 0));
}

/// FW-11
#[tokio::test(start_paused = true)]
async fn fence_opens_again_only_if_all_writes_ended_before_the_deadline() {
    let fence = open_for(7);
    assert!(!fence.reset(), "it is not drained");
    fence.drain().await;
    assert!(fence.reset() && !fence.is_open());
    fence.extend_until(Instant::now() + Duration::from_secs(7));
    assert!(fence.is_open());
    fence.drain().await;
    sleep(Duration::from_secs(7)).await;
    assert!(!fence.reset(), "calls may have been aborted");
    fence.extend_until(Instant::now() + Duration::from_secs(7));
    assert!(!fence.is_open());
}

#[tokio::test]
async fn writes_of_the_leader_are_counted() {
    let (api, reached, writes) = client(open_for(7));
    for result in write_with_every_method(&api).await {
        result.expect("this process leads");
    }
    api.get("c").await.expect("reads pass");
    assert_eq!((reached.load(Ordering::Relaxed), writes.get()), (6, 5));
}

#[tokio::test]
async fn connection_error_is_not_mistaken_for_the_fence() {
    let broken = service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, BoxError>("connection reset".into())
    });
    let layer = FenceLayer::new(Fence::unrestricted(), Counter::default());
    let client: Client = ClientBuilder::new(broken, "default")
        .with_layer(&layer)
        .build();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let error = api
        .create(&PostParams::default(), &ConfigMap::default())
        .await
        .unwrap_err();
    assert!(!Fenced::is_cause_of(&error));
}
