//! Whether the runtime takes messages: its ready file, and an answer at its socket (SC-12, SC-13, SC-52).

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

/// Pause between two looks while it is not ready.
const WAITING: Duration = Duration::from_millis(40);
/// Pause between two looks while it is ready; each hand-over looks, too.
const READY: Duration = Duration::from_millis(250);
/// Pause before a runtime that did not take a message is asked again: no loop is faster (SC-77).
const DOUBT: Duration = Duration::from_millis(100);
/// How long the runtime may take to end itself after it was hung up (SC-52).
const END_OF_RUNTIME: Duration = Duration::from_secs(5);

/// The runtime, as it is found in its directory.
#[derive(Clone)]
pub struct SocketRuntime {
    socket: Arc<Socket>,
    file: Arc<PathBuf>,
    told: mpsc::UnboundedSender<Told>,
    identity: watch::Receiver<Option<Identity>>,
}

/// Tells one ready file from the next of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    inode: u64,
    changed: (i64, i64),
}

/// What calls found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    NotTaken,
    /// The runtime with this ready file was hung up.
    HungUp(Option<Identity>),
}

impl SocketRuntime {
    /// Starts to watch.
    pub fn start(settings: &config::Runtime, largest: usize) -> (Self, watch::Receiver<Readiness>) {
        let socket = Socket {
            path: settings.directory.join(SOCKET),
            timeout: settings.timeout,
            largest,
        };
        let (told, to_hear) = mpsc::unbounded_channel();
        let (readiness, ready) = watch::channel(Readiness::Waiting);
        let (found, identity) = watch::channel(None);
        let runtime = Self {
            socket: Arc::new(socket),
            file: Arc::new(settings.directory.join(READY_FILE)),
            told,
            identity,
        };
        let watching = Watching {
            socket: runtime.socket.clone(),
            file: runtime.file.clone(),
            told: to_hear,
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

    fn is_there(&self) -> bool {
        let identity = *self.identity.borrow();
        identity.is_some() && identity == identity_of(&self.file)
    }

    fn doubt(&self) {
        // The watch ends with the process.
        let _ = self.told.send(Told::NotTaken);
    }

    fn hung_up(&self) {
        let _ = self.told.send(Told::HungUp(identity_of(&self.file)));
    }
}

struct Watching {
    socket: Arc<Socket>,
    file: Arc<PathBuf>,
    told: mpsc::UnboundedReceiver<Told>,
    readiness: watch::Sender<Readiness>,
    found: watch::Sender<Option<Identity>>,
}

impl Watching {
    async fn run(mut self, patience: Option<Duration>) {
        let deadline = patience.map(|patience| Instant::now() + patience);
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
            let told = match self.told_before(identity) {
                Some(told) => Some(told),
                None => self.stays_ready(identity).await,
            };
            self.found.send_replace(None);
            self.readiness.send_replace(Readiness::Waiting);
            match told {
                Some(Told::HungUp(_)) if !self.ends(identity).await => {
                    self.readiness.send_replace(Readiness::Stuck);
                    return;
                }
                Some(Told::NotTaken) => sleep(DOUBT).await,
                Some(Told::HungUp(_)) | None => {}
            }
        }
    }

    /// Waits for the file, and for an answer at the socket.
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

    /// What was told while it was not ready: only a hang-up of this very runtime still counts.
    fn told_before(&mut self, identity: Identity) -> Option<Told> {
        let mut hung_up = None;
        while let Ok(told) = self.told.try_recv() {
            if told == Told::HungUp(Some(identity)) {
                hung_up = Some(told);
            }
        }
        hung_up
    }

    /// Waits until the file is gone or another one, or a call found out that the runtime is not there.
    async fn stays_ready(&mut self, identity: Identity) -> Option<Told> {
        while identity_of(&self.file) == Some(identity) {
            tokio::select! {
                Some(told) = self.told.recv() => match told {
                    Told::HungUp(of) if of != Some(identity) => {}
                    told => return Some(told),
                },
                () = sleep(READY) => {}
            }
        }
        None
    }

    /// Whether a runtime that was hung up takes its file away in time.
    async fn ends(&self, identity: Identity) -> bool {
        let deadline = Instant::now() + END_OF_RUNTIME;
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
