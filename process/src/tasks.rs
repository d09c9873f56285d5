//! Essential tasks. If one panics or ends unexpectedly, the process exits and is restarted, because it would otherwise
//! stay ready and healthy without that task (ADM-28).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::watch;
use tracing::error;

/// The tasks of a process. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<watch::Sender<Option<String>>>);

impl Tasks {
    /// Wraps a task that must run until it is aborted: if it ends, that is a failure.
    pub fn run_forever<F>(&self, name: &str, task: F) -> impl Future<Output = ()> + use<F>
    where
        F: Future,
    {
        let (tasks, name) = (self.clone(), name.to_owned());
        async move {
            let result = AssertUnwindSafe(task).catch_unwind().await;
            tasks.report(&name, if result.is_ok() { "ended" } else { "panicked" });
        }
    }

    /// Wraps a task that may complete; only a panic is a failure.
    pub fn run_to_completion<F>(&self, name: &str, task: F) -> impl Future<Output = ()> + use<F>
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

    fn report(&self, name: &str, failure: &str) {
        error!(
            task = name,
            "{failure}: exiting, so that the process is restarted"
        );
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(format!("{name} {failure}"));
            }
            is_first
        });
    }

    /// Waits until a task fails; returns its name and whether it ended or panicked.
    pub async fn first_failure(&self) -> String {
        let mut first = self.0.subscribe();
        let failure = first.wait_for(Option::is_some).await;
        failure.map_or_else(
            |_| String::new(),
            |failure| failure.clone().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// Fails instead of hanging if nothing is reported.
    async fn first_failure(tasks: &Tasks) -> String {
        let first = timeout(LONG, tasks.first_failure());
        first.await.expect("a failure is reported")
    }

    /// ADM-28
    #[tokio::test(start_paused = true)]
    async fn panicked_and_ended_tasks_are_reported_and_aborted_ones_are_not() {
        let tasks = Tasks::default();
        tokio::spawn(tasks.run_to_completion("the CRD", async {}));
        let aborted = tokio::spawn(tasks.run_forever("a namespace", std::future::pending::<()>()));
        aborted.abort();
        assert!(timeout(LONG, tasks.first_failure()).await.is_err());

        tokio::spawn(tasks.run_forever("watch Pod", async { panic!("a fault") }));
        assert_eq!(first_failure(&tasks).await, "watch Pod panicked");
        tokio::spawn(tasks.run_forever("watch AsyncActor", async {}));
        tokio::task::yield_now().await;
        assert_eq!(
            first_failure(&tasks).await,
            "watch Pod panicked",
            "the first failure"
        );

        let tasks = Tasks::default();
        tokio::spawn(tasks.run_forever("watch AsyncActor", async {}));
        assert_eq!(first_failure(&tasks).await, "watch AsyncActor ended");
        let tasks = Tasks::default();
        tokio::spawn(tasks.run_to_completion("the CRD", async { panic!("a fault") }));
        assert_eq!(first_failure(&tasks).await, "the CRD panicked");
    }
}
