//! Message move tasks, by which SQS itself moves the messages of a dead letter queue.

use aws_sdk_sqs::types::ListMessageMoveTasksResultEntry as ListedTask;

/// A task that this program has started.
#[derive(Clone, Debug)]
pub struct MoveTask {
    /// SQS lists it of running tasks only.
    pub handle: Option<String>,
    /// ARN of the queue that it moves messages to.
    pub destination: String,
    /// When the last task of the dead letter queue before it began, in ms since 1970.
    pub predecessor: Option<i64>,
    /// When it began, once SQS has listed it.
    began: Option<i64>,
}

impl MoveTask {
    /// A task that was started after all that `listed` has.
    pub fn new(handle: Option<String>, destination: String, listed: &[ListedTask]) -> Self {
        Self {
            handle,
            destination,
            predecessor: listed.iter().map(|it| it.started_timestamp).max(),
            began: None,
        }
    }

    /// This task among those of its dead letter queue. SQS runs one at a time: of those that began later, others may
    /// have started all but the first.
    pub fn find<'a>(&mut self, listed: &'a [ListedTask]) -> Option<&'a ListedTask> {
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
