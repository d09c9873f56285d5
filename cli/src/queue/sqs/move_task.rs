//! Message move tasks, with which SQS itself moves the messages of a dead letter queue.

use std::time::Duration;

use aws_sdk_sqs::error::SdkError;
use aws_sdk_sqs::operation::list_message_move_tasks::ListMessageMoveTasksError;
use aws_sdk_sqs::types::ListMessageMoveTasksResultEntry as ListedTask;

use super::super::broker::Moved;
use super::{Sqs, failure};
use crate::answer::Failure;
use crate::interrupt::Interrupt;

const POLL: Duration = Duration::from_millis(500);
/// How many tasks SQS lists.
const LISTED: i32 = 10;
/// How often a task may be missing from that list before this program gives up on it.
const MAX_MISSING: u32 = 20;

/// A task that this program has started.
#[derive(Clone, Debug)]
struct MoveTask {
    /// SQS lists it only for running tasks.
    handle: Option<String>,
    /// ARN of the queue that it moves messages to.
    destination: String,
    /// When the previous task of the dead letter queue began, in ms since 1970.
    predecessor: Option<i64>,
    /// When this task began, once SQS has listed it.
    began: Option<i64>,
}

impl MoveTask {
    /// A task that was started after all tasks in `listed`.
    fn new(handle: Option<String>, destination: String, listed: &[ListedTask]) -> Self {
        Self {
            handle,
            destination,
            predecessor: listed.iter().map(|it| it.started_timestamp).max(),
            began: None,
        }
    }

    /// This task among those of its dead letter queue. SQS runs one at a time, so of those that began after the
    /// predecessor, others may have started all but the first.
    fn find<'a>(&mut self, listed: &'a [ListedTask]) -> Option<&'a ListedTask> {
        let handle = self.handle.as_deref();
        let by_handle = handle.and_then(|_| listed.iter().find(|it| it.task_handle() == handle));
        let found = by_handle.or_else(|| match self.began {
            Some(began) => listed.iter().find(|it| it.started_timestamp == began),
            None => listed
                .iter()
                .filter(|it| Some(it.started_timestamp) > self.predecessor)
                .filter(|it| it.destination_arn() == Some(&*self.destination))
                .min_by_key(|it| it.started_timestamp),
        });
        self.began = self.began.or(found.map(|it| it.started_timestamp));
        found
    }
}

impl Sqs {
    /// Lets SQS move the messages of a dead letter queue; `None` if the server cannot.
    pub(super) async fn move_by_task(
        &mut self,
        dlq: &str,
        queue: &str,
        interrupt: &Interrupt,
    ) -> Result<Option<Moved>, Failure> {
        let (source, destination) = (self.arn(dlq).await?, self.arn(queue).await?);
        // Servers without these calls report that in different ways; if this was another error, moving one by one
        // fails, too.
        let listed = match self.move_tasks(&source).await {
            Err(SdkError::ServiceError(_)) => return Ok(None),
            listed => listed.map_err(|error| failure(dlq, &error))?,
        };
        let request = self.client.start_message_move_task();
        let request = request.source_arn(&source).destination_arn(&destination);
        match request.send().await {
            Ok(started) => {
                let task = MoveTask::new(started.task_handle, destination, &listed);
                self.moved(dlq, &source, task, interrupt).await.map(Some)
            }
            Err(SdkError::ServiceError(_)) => Ok(None),
            Err(error) => Err(failure(dlq, &error)),
        }
    }

    /// The latest move tasks of a queue.
    async fn move_tasks(
        &self,
        arn: &str,
    ) -> Result<Vec<ListedTask>, SdkError<ListMessageMoveTasksError>> {
        let request = self.client.list_message_move_tasks().source_arn(arn);
        let found = request.max_results(LISTED).send().await?;
        Ok(found.results.unwrap_or_default())
    }

    /// Waits for the end of a move. An interrupt cancels the move.
    async fn moved(
        &self,
        dlq: &str,
        arn: &str,
        mut task: MoveTask,
        interrupt: &Interrupt,
    ) -> Result<Moved, Failure> {
        let mut missing = 0;
        let mut interrupted = false;
        let mut refusal = None;
        loop {
            let listed = self.move_tasks(arn).await;
            let listed = listed.map_err(|error| failure(dlq, &error))?;
            match progress(dlq, task.find(&listed))? {
                Progress::Ended(count) => return Ok(Moved { count, interrupted }),
                Progress::Cancelled(count) if interrupted => {
                    return Ok(Moved { count, interrupted });
                }
                Progress::Cancelled(count) => return Err(stopped(dlq, count, "CANCELLED", "")),
                Progress::Running => {
                    // The task might have ended just before it was cancelled, but this one is still running.
                    if let Some(why) = refusal.take() {
                        return Err(why);
                    }
                }
                Progress::Missing if missing < MAX_MISSING => missing += 1,
                Progress::Missing => {
                    return Err(Failure::new(format!(
                        "SQS moves the messages of {dlq}, but does not list that move; `kubectl asya queue` shows \
                         what has arrived"
                    )));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = interrupt.come(), if !interrupted => {
                    interrupted = true;
                    refusal = self.cancel(dlq, &task).await.err();
                }
            }
        }
    }

    async fn cancel(&self, dlq: &str, task: &MoveTask) -> Result<(), Failure> {
        let request = self.client.cancel_message_move_task();
        let request = request.set_task_handle(task.handle.clone());
        let cancelled = request.send().await;
        cancelled.map(drop).map_err(|error| {
            let why = failure(dlq, &error);
            Failure::new(format!("{why}; SQS goes on moving the messages of {dlq}"))
        })
    }
}

/// SQS' report on a task, with the number of messages moved.
enum Progress {
    Ended(u64),
    Cancelled(u64),
    Running,
    Missing,
}

fn progress(dlq: &str, task: Option<&ListedTask>) -> Result<Progress, Failure> {
    let Some(task) = task else {
        return Ok(Progress::Missing);
    };
    let count = u64::try_from(task.approximate_number_of_messages_moved).unwrap_or_default();
    match task.status() {
        Some("COMPLETED") => Ok(Progress::Ended(count)),
        Some("CANCELLED") => Ok(Progress::Cancelled(count)),
        Some("RUNNING" | "CANCELLING") => Ok(Progress::Running),
        other => {
            let reason = task.failure_reason().unwrap_or_default();
            Err(stopped(dlq, count, other.unwrap_or("unknown"), reason))
        }
    }
}

fn stopped(dlq: &str, count: u64, state: &str, reason: &str) -> Failure {
    Failure::new(format!(
        "SQS moved about {count} messages of {dlq}, then stopped: {state} {reason}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(began: i64, status: &str, handle: Option<&str>) -> ListedTask {
        ListedTask::builder()
            .started_timestamp(began)
            .status(status)
            .set_task_handle(handle.map(str::to_owned))
            .destination_arn("to")
            .build()
    }

    fn found(task: &mut MoveTask, listed: &[ListedTask]) -> Option<i64> {
        task.find(listed).map(|it| it.started_timestamp)
    }

    #[test]
    fn task_is_told_from_those_that_others_start_before_and_after_it() {
        let before = [task(3, "COMPLETED", None), task(1, "FAILED", None)];
        let ours = || MoveTask::new(Some("h".to_owned()), "to".to_owned(), &before);
        let with = |later: &[ListedTask]| [later, &before].concat();
        let ended = task(5, "COMPLETED", None);
        // It is not listed yet.
        assert_eq!(found(&mut ours(), &before), None);
        // It ended before it was seen.
        assert_eq!(
            found(&mut ours(), &with(std::slice::from_ref(&ended))),
            Some(5)
        );
        // Meanwhile, another one was started.
        let other = task(8, "RUNNING", Some("other"));
        assert_eq!(
            found(&mut ours(), &with(&[other.clone(), ended.clone()])),
            Some(5)
        );
        let mut elsewhere = task(4, "COMPLETED", None);
        elsewhere.destination_arn = Some("elsewhere".to_owned());
        assert_eq!(
            found(&mut ours(), &with(&[ended.clone(), elsewhere])),
            Some(5)
        );
        // It was seen while it ran.
        let mut seen = ours();
        let running = task(5, "RUNNING", Some("h"));
        assert_eq!(found(&mut seen, &with(&[running])), Some(5));
        assert_eq!(found(&mut seen, &with(&[other.clone(), ended])), Some(5));
        // SQS lists only the last ten.
        assert_eq!(found(&mut seen, &[other]), None);
    }
}
