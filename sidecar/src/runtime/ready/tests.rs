//! A runtime that starts and stops, simulated by files and a listener.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use asya_wire::socket::{READY_FILE, SOCKET};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::SocketRuntime;
use crate::config;
use crate::runtime::{Readiness, Runtime};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!(
            "asya-sidecar-ready-{}-{number}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A listener that accepts nothing unless told to.
    fn bind(&self) -> UnixListener {
        let _ = fs::remove_file(self.0.join(SOCKET));
        UnixListener::bind(self.0.join(SOCKET)).expect("a listener")
    }

    /// A runtime that accepts and closes connections until it is dropped.
    fn listen(&self) -> AbortOnDropHandle<()> {
        let listener = self.bind();
        AbortOnDropHandle::new(tokio::spawn(accept(listener)))
    }

    fn say_ready(&self, text: &str) {
        fs::write(self.0.join(READY_FILE), text).expect("a file");
    }

    fn withdraw(&self) {
        fs::remove_file(self.0.join(READY_FILE)).expect("a file");
    }

    fn is_ready(&self) -> bool {
        self.0.join(READY_FILE).exists()
    }

    fn start(
        &self,
        ready_timeout: Option<Duration>,
    ) -> (SocketRuntime, watch::Receiver<Readiness>) {
        let settings = config::RuntimeConfig {
            directory: self.0.clone(),
            timeout: Duration::from_secs(5),
            ready_timeout,
            concurrency: 1,
        };
        SocketRuntime::start(&settings, 1 << 20)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn accept(listener: UnixListener) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(stream);
    }
}

async fn becomes(readiness: &mut watch::Receiver<Readiness>, wanted: Readiness) -> Duration {
    becomes_within(readiness, wanted, Duration::from_secs(10)).await
}

async fn becomes_within(
    readiness: &mut watch::Receiver<Readiness>,
    wanted: Readiness,
    limit: Duration,
) -> Duration {
    let started = Instant::now();
    let found = timeout(limit, readiness.wait_for(|now| *now == wanted)).await;
    found.expect("in time").expect("a watch");
    started.elapsed()
}

/// SC-12, SC-13, SC-54
#[tokio::test]
async fn runtime_is_ready_only_with_its_file_and_a_listener() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let listener = folder.listen();
    assert!(!runtime.is_available());
    folder.say_ready("ready\nconcurrency=4\n");
    let took = becomes(&mut readiness, Readiness::Ready { concurrency: 4 }).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert!(runtime.is_available());
    folder.withdraw();
    assert!(!runtime.is_available(), "a dispatch checks the file");
    becomes(&mut readiness, Readiness::Waiting).await;
    drop(listener);
    folder.say_ready("ready");
    assert!(
        timeout(Duration::from_millis(300), readiness.changed())
            .await
            .is_err(),
        "nothing listens on the socket"
    );
    let _listener = folder.listen();
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
}

/// SC-12, SC-77
#[tokio::test]
async fn unreachable_runtime_is_rechecked_after_a_delay() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let _listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    runtime.recheck();
    becomes(&mut readiness, Readiness::Waiting).await;
    let took = becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    assert!(took >= Duration::from_millis(90), "{took:?}");
}

/// SC-12
#[tokio::test]
async fn runtime_that_is_not_ready_in_time_is_never_ready() {
    let folder = Folder::new();
    let (_runtime, mut readiness) = folder.start(Some(Duration::from_millis(100)));
    becomes(&mut readiness, Readiness::Never).await;
}

/// SC-52
#[tokio::test]
async fn runtime_that_neither_exits_nor_answers_after_a_timeout_is_stuck() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    drop(listener);
    let hanging = folder.bind();
    runtime.call_timed_out();
    becomes(&mut readiness, Readiness::Waiting).await;
    folder.withdraw();
    drop(hanging);
    let listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    drop(listener);
    let hanging = folder.bind();
    // A refused call in between must not mask the timeout.
    runtime.recheck();
    runtime.call_timed_out();
    let (probe, _) = hanging.accept().await.expect("the probe after the refusal");
    drop(probe);
    let took = becomes(&mut readiness, Readiness::Stuck).await;
    assert!(took >= Duration::from_secs(4), "{took:?}");
    assert!(
        !folder.is_ready(),
        "the liveness probe makes the kubelet restart it"
    );
}

/// SC-52: its handler returned just before the deadline, so its reply is late. It does not exit.
#[tokio::test]
async fn runtime_that_answers_after_a_timeout_keeps_its_file() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    drop(listener);
    let listener = folder.bind();
    runtime.call_timed_out();
    becomes(&mut readiness, Readiness::Waiting).await;
    // Meanwhile it writes the reply to a closed connection.
    let probe = timeout(Duration::from_secs(4), listener.accept()).await;
    let (probe, _) = probe.expect("in time").expect("a probe");
    assert_eq!(*readiness.borrow(), Readiness::Waiting);
    drop(probe);
    let _listener = AbortOnDropHandle::new(tokio::spawn(accept(listener)));
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    assert!(folder.is_ready() && runtime.is_available());
}

/// SC-52: the socket of a runtime that has just exited refuses connections, which proves nothing.
#[tokio::test]
async fn refused_connection_after_a_timeout_is_no_answer() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    drop(listener);
    fs::remove_file(folder.0.join(SOCKET)).expect("a socket");
    runtime.call_timed_out();
    becomes(&mut readiness, Readiness::Waiting).await;
    becomes(&mut readiness, Readiness::Stuck).await;
    assert!(!folder.is_ready());
}

/// SC-12: a connection alone proves nothing, since the kernel accepts it even for a process that is stuck.
#[tokio::test]
async fn runtime_that_accepts_no_connection_is_not_ready() {
    let folder = Folder::new();
    let listener = folder.bind();
    folder.say_ready("ready");
    let (runtime, mut readiness) = folder.start(Some(Duration::from_millis(300)));
    becomes(&mut readiness, Readiness::Never).await;
    assert!(!runtime.is_available());
    assert!(folder.is_ready(), "it may still load a model");

    let (_runtime, mut readiness) = folder.start(None);
    tokio::spawn(accept(listener));
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
}

/// SC-12
#[tokio::test]
async fn runtime_that_replaces_one_that_accepts_no_connection_is_ready() {
    let folder = Folder::new();
    let stuck = folder.bind();
    folder.say_ready("ready");
    let (_runtime, mut readiness) = folder.start(None);
    let (probe, _) = stuck.accept().await.expect("a probe");
    folder.withdraw();
    let _listener = folder.listen();
    folder.say_ready("ready\nconcurrency=2\n");
    becomes(&mut readiness, Readiness::Ready { concurrency: 2 }).await;
    drop(probe);
}

/// SC-48, SC-52
#[tokio::test]
async fn runtime_that_no_longer_accepts_connections_is_stuck() {
    let folder = Folder::new();
    let (runtime, mut readiness) = folder.start(None);
    let listener = folder.listen();
    folder.say_ready("ready");
    becomes(&mut readiness, Readiness::Ready { concurrency: 1 }).await;
    drop(listener);
    let _stuck = folder.bind();
    runtime.recheck();
    becomes(&mut readiness, Readiness::Waiting).await;
    tokio::time::pause();
    let took = becomes_within(&mut readiness, Readiness::Stuck, Duration::from_mins(3)).await;
    assert!(took >= Duration::from_mins(2), "{took:?}");
    assert!(!folder.is_ready());
}
