//! Readiness of the runtime: its ready file, and a listener on its socket (SC-12, SC-13, SC-52).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asya_wire::socket::{READY_FILE, SOCKET, concurrency_in};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::socket::Socket;
use super::{CallError, Readiness, Runtime};
use crate::config;

/// Poll interval while not ready.
const WAITING: Duration = Duration::from_millis(40);
/// Poll interval while ready; every dispatch checks as well.
const READY: Duration = Duration::from_millis(250);
/// Delay before a runtime that did not accept a message or crashed is checked again, which prevents a hot loop (SC-77).
const RECHECK_DELAY: Duration = Duration::from_millis(100);
/// How long the runtime may take to exit after a call timed out (SC-52).
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The runtime behind a socket and a ready file.
#[derive(Clone)]
pub struct SocketRuntime {
    socket: Arc<Socket>,
    file: Arc<PathBuf>,
    findings: mpsc::UnboundedSender<Finding>,
    identity: watch::Receiver<Option<Identity>>,
}

/// Distinguishes successive ready files of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    inode: u64,
    changed: (i64, i64),
}

/// A problem reported by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Unreachable,
    /// A call to the runtime with this ready file timed out.
    CallTimedOut(Option<Identity>),
}

impl SocketRuntime {
    pub fn start(settings: &config::Runtime, largest: usize) -> (Self, watch::Receiver<Readiness>) {
        let socket = Socket {
            path: settings.directory.join(SOCKET),
            timeout: settings.timeout,
            largest,
        };
        let (findings, found_by_calls) = mpsc::unbounded_channel();
        let (readiness, ready) = watch::channel(Readiness::Waiting);
        let (found, identity) = watch::channel(None);
        let runtime = Self {
            socket: Arc::new(socket),
            file: Arc::new(settings.directory.join(READY_FILE)),
            findings,
            identity,
        };
        let watching = Watching {
            socket: runtime.socket.clone(),
            file: runtime.file.clone(),
            findings: found_by_calls,
            readiness,
            found,
        };
        tokio::spawn(watching.run(settings.ready_timeout));
        (runtime, ready)
    }
}

impl Runtime for SocketRuntime {
    async fn call(&self, request: Bytes) -> Result<Bytes, CallError> {
        self.socket.call(&request).await
    }

    fn is_available(&self) -> bool {
        let identity = *self.identity.borrow();
        identity.is_some() && identity == identity_of(&self.file)
    }

    fn recheck(&self) {
        // The watcher runs until the process exits.
        let _ = self.findings.send(Finding::Unreachable);
    }

    fn call_timed_out(&self) {
        let _ = self
            .findings
            .send(Finding::CallTimedOut(identity_of(&self.file)));
    }
}

struct Watching {
    socket: Arc<Socket>,
    file: Arc<PathBuf>,
    findings: mpsc::UnboundedReceiver<Finding>,
    readiness: watch::Sender<Readiness>,
    found: watch::Sender<Option<Identity>>,
}

impl Watching {
    async fn run(mut self, timeout: Option<Duration>) {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut is_first = true;
        loop {
            let found = self.becomes_ready();
            let identity = match deadline.filter(|_| is_first) {
                Some(deadline) => timeout_at(deadline, found).await.ok(),
                None => Some(found.await),
            };
            let Some(identity) = identity else {
                self.readiness.send_replace(Readiness::Never);
                return;
            };
            is_first = false;
            let finding = match self.earlier_timeout(identity) {
                Some(finding) => Some(finding),
                None => self.stays_ready(identity).await,
            };
            self.found.send_replace(None);
            self.readiness.send_replace(Readiness::Waiting);
            match finding {
                Some(Finding::CallTimedOut(_)) if !self.ends(identity).await => {
                    self.readiness.send_replace(Readiness::Stuck);
                    return;
                }
                Some(Finding::Unreachable) => sleep(RECHECK_DELAY).await,
                Some(Finding::CallTimedOut(_)) | None => {}
            }
        }
    }

    /// Waits for the ready file and a successful connection.
    async fn becomes_ready(&self) -> Identity {
        loop {
            if let Some(identity) = identity_of(&self.file)
                && self.socket.answers().await
            {
                let text = std::fs::read_to_string(&*self.file).unwrap_or_default();
                self.found.send_replace(Some(identity));
                self.readiness.send_replace(Readiness::Ready {
                    concurrency: concurrency_in(&text),
                });
                return identity;
            }
            sleep(WAITING).await;
        }
    }

    /// Drains findings from before it was ready: only a timed-out call to this instance still counts.
    fn earlier_timeout(&mut self, identity: Identity) -> Option<Finding> {
        let mut call_timed_out = None;
        while let Ok(finding) = self.findings.try_recv() {
            if finding == Finding::CallTimedOut(Some(identity)) {
                call_timed_out = Some(finding);
            }
        }
        call_timed_out
    }

    /// Waits until the ready file is removed or replaced, or a call reports a problem.
    async fn stays_ready(&mut self, identity: Identity) -> Option<Finding> {
        while identity_of(&self.file) == Some(identity) {
            tokio::select! {
                Some(finding) = self.findings.recv() => match finding {
                    Finding::CallTimedOut(of) if of != Some(identity) => {}
                    finding => return Some(finding),
                },
                () = sleep(READY) => {}
            }
        }
        None
    }

    /// Whether the runtime withdraws its ready file in time after a call timed out.
    async fn ends(&self, identity: Identity) -> bool {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while identity_of(&self.file) == Some(identity) {
            if Instant::now() >= deadline {
                return false;
            }
            sleep_until(deadline.min(Instant::now() + WAITING)).await;
        }
        true
    }
}

fn identity_of(file: &PathBuf) -> Option<Identity> {
    let of = |metadata: Metadata| Identity {
        inode: metadata.ino(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    std::fs::metadata(file).ok().map(of)
}

#[cfg(test)]
mod tests;
