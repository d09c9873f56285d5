//! Concurrent calls of the runtime. A crash ends all of them without showing which message caused it, so their messages
//! are tried again alone, one after the other (SC-49).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// The open calls of this process.
#[derive(Default)]
pub struct Calls {
    open: AtomicUsize,
    /// Number of calls that have ended in a crash.
    crashed: AtomicU64,
    /// Shared by concurrent calls; exclusive to a call that must be alone. The lock is fair: a call that waits to run
    /// alone goes before later calls.
    gate: Arc<RwLock<()>>,
    suspects: watch::Sender<usize>,
}

/// Permission to call the runtime, with or without others, until it is dropped.
pub enum Permit {
    Shared(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Alone(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
}

/// An open call, until this is dropped.
pub struct OpenCall {
    calls: Arc<Calls>,
    crashed_before: u64,
}

/// A message that may have caused a crash, until this is dropped.
pub struct Suspect(Arc<Calls>);

impl Calls {
    /// Waits until the runtime may be called; if `alone`, until no other call is open.
    pub async fn permit(&self, alone: bool) -> Permit {
        let gate = self.gate.clone();
        if alone {
            Permit::Alone(gate.write_owned().await)
        } else {
            Permit::Shared(gate.read_owned().await)
        }
    }

    /// Opens a call.
    pub fn begin(self: &Arc<Self>) -> OpenCall {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenCall {
            calls: self.clone(),
            crashed_before: self.crashed.load(Ordering::Relaxed),
        }
    }

    /// Marks a message as a suspect, because its call and others were open at a crash.
    pub fn suspect(self: &Arc<Self>) -> Suspect {
        self.suspects.send_modify(|count| *count += 1);
        Suspect(self.clone())
    }

    /// The number of suspects. While there are any, no other message is passed to the runtime.
    pub fn suspects(&self) -> watch::Receiver<usize> {
        self.suspects.subscribe()
    }
}

impl OpenCall {
    /// Records that a call ended because the runtime crashed. Returns whether other calls were open at that moment:
    /// those that still are, and those that the same crash has ended meanwhile.
    pub fn crashed(&self) -> bool {
        let crashed = self.calls.crashed.fetch_add(1, Ordering::Relaxed);
        self.calls.open.load(Ordering::Relaxed) > 1 || crashed != self.crashed_before
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.calls.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Suspect {
    fn drop(&mut self) {
        self.0.suspects.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Calls;

    /// SC-49
    #[test]
    fn crash_is_of_one_call_only_if_no_other_was_open() {
        let calls = Arc::new(Calls::default());
        let (first, second, done) = (calls.begin(), calls.begin(), calls.begin());
        drop(done);
        assert!(first.crashed());
        drop(first);
        assert!(second.crashed(), "the last of several that a crash ends");
        drop(second);
        let (third, done) = (calls.begin(), calls.begin());
        drop(done);
        assert!(!third.crashed(), "the other had ended before");
        drop(third);
        assert!(!calls.begin().crashed(), "the crash before was another one");
    }

    /// SC-49
    #[tokio::test]
    async fn who_waits_to_be_alone_comes_before_later_calls() {
        let calls = Arc::new(Calls::default());
        let shared = calls.permit(false).await;
        let other = calls.permit(false).await;
        let mut alone = waiting(calls.clone(), true);
        let mut later = waiting(calls.clone(), false);
        drop(shared);
        tokio::task::yield_now().await;
        assert!(!alone.is_finished() && !later.is_finished());
        drop(other);
        let permit = (&mut alone).await.expect("a permit");
        tokio::task::yield_now().await;
        assert!(!later.is_finished());
        drop(permit);
        (&mut later).await.expect("a permit");
    }

    fn waiting(calls: Arc<Calls>, alone: bool) -> tokio::task::JoinHandle<super::Permit> {
        tokio::spawn(async move { calls.permit(alone).await })
    }
}
