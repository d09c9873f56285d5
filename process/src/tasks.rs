//! Tasks that the process cannot work without. When one panics or ends unexpectedly, the process exits and is
//! restarted, because what is left of it would stay ready and healthy forever (ADM-28).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::watch;
use tracing::error;

/// The tasks of a process. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<watch::Sender<Option<String>>>);

impl Tasks {
    /// Wraps a task that must run until it is aborted; its end is a failure.
    pub fn unending<F>(&self, name: &str, task: F) -> impl Future<Output = ()> + use<F>
    where
        F: Future,
    {
        let (tasks, name) = (self.clone(), name.to_owned());
        async move {
            let ended = AssertUnwindSafe(task).catch_unwind().await;
            tasks.report(&name, if ended.is_ok() { "ended" } else { "panicked" });
        }
    }

    /// Wraps a task that may complete; only a panic is a failure.
    pub fn ending<F>(&self, name: &str, task: F) -> impl Future<Output = ()> + use<F>
    where
        F: Future,
    {
        let (tasks, name) = (self.clone(), name.to_owned());
        async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tasks.report(&name, "panicked");
            }
        }
    }

    fn report(&self, name: &str, how: &str) {
        error!(
            task = name,
            "{how}: exiting, so that the process is restarted"
        );
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(format!("{name} {how}"));
            }
            is_first
        });
    }

    /// Waits until the first task fails; returns its name and how it ended.
    pub async fn ended(&self) -> String {
        let mut first = self.0.subscribe();
        let ended = first.wait_for(Option::is_some).await;
        ended.map_or_else(|_| String::new(), |ended| ended.clone().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// ADM-28
    #[tokio::test(start_paused = true)]
    async fn panicked_and_ended_tasks_are_reported_and_aborted_ones_are_not() {
        let tasks = Tasks::default();
        tokio::spawn(tasks.ending("the CRD", async {}));
        let aborted = tokio::spawn(tasks.unending("a namespace", std::future::pending::<()>()));
        aborted.abort();
        assert!(timeout(LONG, tasks.ended()).await.is_err());

        tokio::spawn(tasks.unending("watch Pod", async { panic!("a fault") }));
        assert_eq!(tasks.ended().await, "watch Pod panicked");
        tokio::spawn(tasks.unending("watch AsyncActor", async {}));
        tokio::task::yield_now().await;
        assert_eq!(tasks.ended().await, "watch Pod panicked", "the first");

        let tasks = Tasks::default();
        tokio::spawn(tasks.unending("watch AsyncActor", async {}));
        assert_eq!(tasks.ended().await, "watch AsyncActor ended");
        let tasks = Tasks::default();
        tokio::spawn(tasks.ending("the CRD", async { panic!("a fault") }));
        assert_eq!(tasks.ended().await, "the CRD panicked");
    }
}
