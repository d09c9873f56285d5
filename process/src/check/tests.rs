use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;

use super::ready;
use crate::probes;

/// Starts a process whose readiness the test controls; returns its URL.
async fn process(is_ready: &Arc<AtomicBool>) -> String {
    let is_ready = Arc::clone(is_ready);
    let pending = move || {
        let missing = (!is_ready.load(Ordering::Relaxed)).then(|| "caches: not listed".to_owned());
        Vec::from_iter(missing)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, probes::routes(pending)).await });
    format!("http://{address}/readyz")
}

/// CFG-11
#[tokio::test]
async fn processes_are_polled_until_all_are_ready_or_the_deadline_passes() {
    let (first, second) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let urls = [process(&first).await, process(&second).await];
    ready(&urls[..1], Duration::ZERO).await.unwrap();
    let error = ready(&urls, Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.starts_with(&urls[1]), "{error}");
    assert!(
        error.contains("503") && error.ends_with("caches: not listed"),
        "{error}"
    );
    let later = tokio::spawn(async move { ready(&urls, Duration::from_mins(1)).await });
    tokio::task::yield_now().await;
    second.store(true, Ordering::Relaxed);
    later.await.unwrap().unwrap();
}

#[tokio::test]
async fn unreachable_and_invalid_urls_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/readyz", listener.local_addr().unwrap());
    drop(listener);
    for (url, reason) in [
        (&*closed, "refused"),
        ("https://a/readyz", "expected http"),
        ("a b", "not a URL"),
    ] {
        let error = ready(&[url.to_owned()], Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}
