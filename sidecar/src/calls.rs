//! Calls that are open at the runtime at the same time. A crash ends all of them, and nothing shows which message
//! caused it. So the messages of these calls are tried again alone, one after the other (SC-49).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

/// The open calls of this process.
#[derive(Default)]
pub struct Calls {
    open: AtomicUsize,
    /// How many calls have ended in a crash.
    crashed: AtomicU64,
    /// Shared by calls, owned by one that must be alone. It is fair: a call that waits to run alone precedes later
    /// calls.
    gate: Arc<RwLock<()>>,
    suspects: watch::Sender<usize>,
}

/// Permission to call the runtime, with or without others, until it is dropped.
pub enum Permit {
    Shared(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Alone(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
}

/// A call that is open until this is dropped.
pub struct OpenCall {
    calls: Arc<Calls>,
    crashed_before: u64,
}

/// A message that may have caused a crash, until this is dropped.
pub struct Suspect(Arc<Calls>);

impl Calls {
    /// Waits until the runtime may be called; `alone`: until no other call is open.
    pub async fn permit(&self, alone: bool) -> Permit {
        let gate = self.gate.clone();
        if alone {
            Permit::Alone(gate.write_owned().await)
        } else {
            Permit::Shared(gate.read_owned().await)
        }
    }

    /// A call begins.
    pub fn begin(self: &Arc<Self>) -> OpenCall {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenCall {
            calls: self.clone(),
            crashed_before: self.crashed.load(Ordering::Relaxed),
        }
    }

    /// A message was open in a crash, and others with it.
    pub fn suspect(self: &Arc<Self>) -> Suspect {
        self.suspects.send_modify(|count| *count += 1);
        Suspect(self.clone())
    }

    /// How many messages are suspects. While there are any, no other message is passed to the runtime.
    pub fn suspects(&self) -> watch::Receiver<usize> {
        self.suspects.subscribe()
    }
}

impl OpenCall {
    /// The call ended because the runtime crashed. Returns whether other calls were open at that moment: those that
    /// still are, and those that ended meanwhile, by the same crash.
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
