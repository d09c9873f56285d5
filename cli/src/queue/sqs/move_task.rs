//! Message move tasks, by which SQS itself moves the messages of a dead letter queue.

use std::time::Duration;

use aws_sdk_sqs::error::SdkError;
use aws_sdk_sqs::operation::list_message_move_tasks::ListMessageMoveTasksError;
use aws_sdk_sqs::types::ListMessageMoveTasksResultEntry as ListedTask;

use super::{Sqs, failure};
use crate::answer::Failure;

const POLL: Duration = Duration::from_millis(500);
/// Tasks that SQS lists.
const LISTED: i32 = 10;
/// How often a task may be missing in that list before it is given up.
const MAX_MISSING: u32 = 20;

/// A task that this program has started.
#[derive(Clone, Debug)]
struct MoveTask {
    /// SQS lists it of running tasks only.
    handle: Option<String>,
    /// ARN of the queue that it moves messages to.
    destination: String,
    /// When the last task of the dead letter queue before it began, in ms since 1970.
    predecessor: Option<i64>,
    /// When it began, once SQS has listed it.
    began: Option<i64>,
}

impl MoveTask {
    /// A task that was started after all that `listed` has.
    fn new(handle: Option<String>, destination: String, listed: &[ListedTask]) -> Self {
        Self {
            handle,
            destination,
            predecessor: listed.iter().map(|it| it.started_timestamp).max(),
            began: None,
        }
    }

    /// This task among those of its dead letter queue. SQS runs one at a time: of those that began later, others may
    /// have started all but the first.
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
    /// Lets SQS move the messages of a dead letter queue; `None` if the server cannot, otherwise how many it moved.
    pub(super) async fn move_by_task(
        &mut self,
        dlq: &str,
        queue: &str,
    ) -> Result<Option<u64>, Failure> {
        let (source, destination) = (self.arn(dlq).await?, self.arn(queue).await?);
        // Servers that do not know these calls differ in how they say so; moving one by one fails if this was another
        // error.
        let listed = match self.move_tasks(&source).await {
            Err(SdkError::ServiceError(_)) => return Ok(None),
            listed => listed.map_err(|error| failure(dlq, &error))?,
        };
        let request = self.client.start_message_move_task();
        let request = request.source_arn(&source).destination_arn(&destination);
        match request.send().await {
            Ok(started) => {
                let task = MoveTask::new(started.task_handle, destination, &listed);
                self.moved(dlq, &source, task).await.map(Some)
            }
            Err(SdkError::ServiceError(_)) => Ok(None),
            Err(error) => Err(failure(dlq, &error)),
        }
    }

    /// The last move tasks of a queue.
    async fn move_tasks(
        &self,
        arn: &str,
    ) -> Result<Vec<ListedTask>, SdkError<ListMessageMoveTasksError>> {
        let request = self.client.list_message_move_tasks().source_arn(arn);
        let found = request.max_results(LISTED).send().await?;
        Ok(found.results.unwrap_or_default())
    }

    /// Follows a move of a queue's messages to its end.
    async fn moved(&self, dlq: &str, arn: &str, mut task: MoveTask) -> Result<u64, Failure> {
        let mut missing = 0;
        loop {
            let listed = self.move_tasks(arn).await;
            let listed = listed.map_err(|error| failure(dlq, &error))?;
            match task.find(&listed) {
                Some(found) => {
                    let count = found.approximate_number_of_messages_moved;
                    match found.status() {
                        Some("COMPLETED") => return Ok(u64::try_from(count).unwrap_or_default()),
                        Some("RUNNING" | "CANCELLING") => {}
                        other => {
                            let reason = found.failure_reason().unwrap_or_default();
                            let state = other.unwrap_or("unknown");
                            return Err(Failure::new(format!(
                                "SQS moved about {count} messages of {dlq}, then stopped: {state} {reason}"
                            )));
                        }
                    }
                }
                None if missing < MAX_MISSING => missing += 1,
                None => {
                    return Err(Failure::new(format!(
                        "SQS moves the messages of {dlq}, but does not list that move; `kubectl asya queue` shows \
                         what has arrived"
                    )));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
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
        assert_eq!(found(&mut ours(), &with(&[ended.clone()])), Some(5));
        // Another one was started meanwhile.
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
        // SQS lists the last ten.
        assert_eq!(found(&mut seen, &[other]), None);
    }
}
