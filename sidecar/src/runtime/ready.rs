//! Readiness of the runtime: a ready file, and a process that accepts connections (SC-12, SC-13, SC-52).

use std::fs::Metadata;
use std::future::pending;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asya_wire::socket::{READY_FILE, SOCKET, concurrency_in};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::socket::Socket;
use super::{CallError, Identity, Readiness, Runtime};
use crate::config;

/// Poll interval while the runtime is not ready.
const POLL_UNTIL_READY: Duration = Duration::from_millis(40);
/// Poll interval while the runtime is ready; every dispatch checks as well.
const POLL_WHILE_READY: Duration = Duration::from_millis(250);
/// Delay before another check of a runtime that did not accept a message, or crashed, which prevents a hot loop
/// (SC-77).
const RECHECK_DELAY: Duration = Duration::from_millis(100);
/// How long the runtime may take to exit, or to answer, after a call timed out (SC-52).
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a runtime that was ready may take to accept a connection; if a call may take longer, as long as a call.
/// After that, no message waits for what the runtime is still doing (SC-52).
const ACCEPT_TIMEOUT: Duration = Duration::from_mins(2);

/// A runtime behind a socket and a ready file.
#[derive(Clone)]
pub struct SocketRuntime {
    socket: Arc<Socket>,
    file: Arc<PathBuf>,
    findings: mpsc::UnboundedSender<Finding>,
    identity: watch::Receiver<Option<Identity>>,
}

/// The runtime with this ready file does not accept connections.
struct Unanswered(Identity);

/// A problem reported by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Unreachable,
    /// A call to the runtime with this ready file timed out.
    CallTimedOut(Option<Identity>),
}

impl SocketRuntime {
    pub fn start(
        settings: &config::RuntimeConfig,
        largest: usize,
    ) -> (Self, watch::Receiver<Readiness>) {
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
        identity.is_some() && identity == self.ready_file()
    }

    fn ready_file(&self) -> Option<Identity> {
        identity_of(&self.file)
    }

    fn recheck(&self) {
        // The watcher runs until the process exits.
        let _ = self.findings.send(Finding::Unreachable);
    }

    fn call_timed_out(&self) {
        let _ = self.findings.send(Finding::CallTimedOut(self.ready_file()));
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
        let mut before = None;
        loop {
            let found = self.becomes_ready(before);
            let found = match deadline.filter(|_| before.is_none()) {
                Some(deadline) => timeout_at(deadline, found).await.ok(),
                None => Some(found.await),
            };
            let identity = match found {
                Some(Ok(identity)) => identity,
                Some(Err(Unanswered(identity))) => return self.give_up(identity),
                None => {
                    self.readiness.send_replace(Readiness::Never);
                    return;
                }
            };
            before = Some(identity);
            let finding = match self.earlier_timeout(identity) {
                Some(finding) => Some(finding),
                None => self.stays_ready(identity).await,
            };
            self.found.send_replace(None);
            self.readiness.send_replace(Readiness::Waiting);
            match finding {
                Some(Finding::CallTimedOut(_)) if !self.recovers(identity).await => {
                    return self.give_up(identity);
                }
                Some(Finding::Unreachable) => sleep(RECHECK_DELAY).await,
                Some(Finding::CallTimedOut(_)) | None => {}
            }
        }
    }

    /// Waits for the ready file and for the runtime to accept a connection. `before` is the ready file of the runtime
    /// that was ready last.
    async fn becomes_ready(&self, before: Option<Identity>) -> Result<Identity, Unanswered> {
        loop {
            if let Some(identity) = identity_of(&self.file)
                && self.accepts(identity, before).await?
            {
                let text = std::fs::read_to_string(&*self.file).unwrap_or_default();
                self.found.send_replace(Some(identity));
                self.readiness.send_replace(Readiness::Ready {
                    concurrency: concurrency_in(&text),
                });
                return Ok(identity);
            }
            sleep(POLL_UNTIL_READY).await;
        }
    }

    /// Whether the runtime accepts a connection before it withdraws its ready file. Uses a single connection, because
    /// the runtime would have to accept all earlier ones, closed ones included.
    async fn accepts(
        &self,
        identity: Identity,
        before: Option<Identity>,
    ) -> Result<bool, Unanswered> {
        let too_long = async {
            // A new runtime may still be loading a model without letting other threads run.
            if before != Some(identity) {
                pending::<()>().await;
            }
            sleep(self.socket.timeout.max(ACCEPT_TIMEOUT)).await;
        };
        tokio::select! {
            biased;
            answers = self.socket.answers() => Ok(answers),
            () = self.withdraws(identity) => Ok(false),
            () = too_long => Err(Unanswered(identity)),
        }
    }

    /// Waits until the ready file is removed or replaced.
    async fn withdraws(&self, identity: Identity) {
        while identity_of(&self.file) == Some(identity) {
            sleep(POLL_UNTIL_READY).await;
        }
    }

    /// Discards findings from before the runtime was ready, except a timed-out call of this instance.
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
                () = sleep(POLL_WHILE_READY) => {}
            }
        }
        None
    }

    /// Whether the runtime recovers after a call timed out. It exits if the handler is still running (RUN-20). If the
    /// handler had returned and only the reply was late, it does not exit, but answers.
    async fn recovers(&self, identity: Identity) -> bool {
        let answers = async {
            // Leaves it time to withdraw its ready file, since with several slots it also answers while it is about to
            // exit. A refused connection proves nothing.
            sleep(POLL_UNTIL_READY).await;
            while !self.socket.answers().await {
                sleep(POLL_UNTIL_READY).await;
            }
        };
        let recovers = async {
            tokio::select! {
                () = self.withdraws(identity) => {}
                () = answers => {}
            }
        };
        timeout(EXIT_TIMEOUT, recovers).await.is_ok()
    }

    /// Withdraws the ready file for a runtime that cannot, since a handler keeps its other threads from running. Its
    /// liveness probe then fails, and the kubelet restarts it. A runtime that is only slow loses nothing: it exits as
    /// soon as it notices that the sidecar has hung up (RUN-20).
    fn give_up(&self, identity: Identity) {
        if identity_of(&self.file) == Some(identity) {
            match std::fs::remove_file(&*self.file) {
                Ok(()) => tracing::error!(
                    "the runtime is stuck; its ready file was removed, so that its liveness probe fails"
                ),
                Err(error) => tracing::error!(
                    "the runtime is stuck, and its ready file cannot be removed: {error}"
                ),
            }
        }
        self.readiness.send_replace(Readiness::Stuck);
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
