//! Tasks without which the process is blind or mute. One that ends, by a panic or otherwise, ends the process: it is
//! started again, while what is left of it would be ready and healthy for ever (ADM-28).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::watch;
use tracing::error;

/// The tasks of a process. A clone is another handle to the same ones.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<watch::Sender<Option<String>>>);

impl Tasks {
    /// A task that goes on until it is aborted.
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

    /// A task that ends when it is done.
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
        error!(task = name, "{how}: the process ends, to be started again");
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(format!("{name} {how}"));
            }
            is_first
        });
    }

    /// Which task ended first, and how, as soon as one has.
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
    async fn a_task_that_panics_or_ends_is_told_and_one_that_is_aborted_is_not() {
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
