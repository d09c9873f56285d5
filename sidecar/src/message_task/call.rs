//! Calls of the runtime for one message, and the waits before them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{CallResult, Context, MessageTask, NextStep};
use crate::broker::Broker;
use crate::calls::Permit;
use crate::decide::{OtherCalls, Reason};
use crate::runtime::{CallError, Readiness, Runtime};
use crate::slot::Slot;

/// How long a suspected message waits to be called alone, while the runtime restarts and others are called (SC-49). The
/// margin of the consumer timeout covers it (SC-32).
const MAX_WAIT_TO_BE_ALONE: Duration = Duration::from_mins(5);
/// Delay before a suspected message is called again, so that no failure repeats in a hot loop (SC-77).
const CALL_ALONE_DELAY: Duration = Duration::from_secs(1);
/// Delay before an unavailable runtime is checked again.
const CHECK_DELAY: Duration = Duration::from_millis(100);

impl<B: Broker, R: Runtime> MessageTask<B, R> {
    /// Waits for permission for the first call, which other messages can delay only after a crash.
    pub(super) async fn wait_to_call(&mut self) -> NextStep {
        let context = self.context.clone();
        tokio::select! {
            biased;
            permit = context.calls.permit(false) => self.permit = Some(permit),
            () = context.stopping.cancelled() => {
                self.requeue(Reason::Shutdown).await;
                return NextStep::Settled;
            }
        }
        NextStep::Call
    }

    /// Waits to call the runtime again after the handler or the runtime failed (SC-70).
    pub(super) async fn wait_to_call_again(
        &mut self,
        delay: Duration,
        answer: &CallResult,
    ) -> NextStep {
        self.state.attempt += 1;
        let if_stopped = match answer {
            CallResult::Failed(CallError::TimedOut) => Reason::TimedOut,
            _ => Reason::Shutdown,
        };
        self.wait_for_runtime(delay, if_stopped).await
    }

    /// Waits to call the runtime while no other call is open (SC-49).
    pub(super) async fn wait_to_call_alone(&mut self) -> NextStep {
        if !self.state.alone {
            tracing::info!(
                id = self.id(),
                "the runtime terminated while it processed this and other messages; it is tried again alone"
            );
        }
        self.state.alone = true;
        self.alone_until
            .get_or_insert_with(|| Instant::now() + MAX_WAIT_TO_BE_ALONE);
        self.suspect
            .get_or_insert_with(|| self.context.calls.suspect());
        self.wait_for_runtime(CALL_ALONE_DELAY, Reason::Shutdown)
            .await
    }

    async fn wait_for_runtime(&mut self, delay: Duration, if_stopped: Reason) -> NextStep {
        let (context, alone) = (self.context.clone(), self.state.alone);
        let deadline = self.alone_until.filter(|_| alone);
        let waited = async {
            sleep_until(deadline?).await;
            Some(())
        };
        tokio::select! {
            biased;
            () = context.stopping.cancelled() => {
                self.requeue(if_stopped).await;
                NextStep::Settled
            }
            permit = permit_when_ready(&context, delay, alone) => {
                self.permit = Some(permit);
                NextStep::Call
            }
            Some(()) = waited => {
                // Counts the crash as its own after all, before the broker takes the message back.
                self.clear_suspect();
                self.state.others = OtherCalls::None;
                NextStep::Decide(CallResult::Failed(CallError::Ended))
            }
        }
    }

    /// Clears the suspicion, so that other messages may be passed to the runtime again.
    pub(super) fn clear_suspect(&mut self) {
        self.suspect = None;
        self.state.alone = false;
    }

    /// Calls the runtime.
    pub(super) async fn call(&mut self, slot: Option<&mut Slot>) -> CallResult {
        let context = self.context.clone();
        let _permit = self.permit.take();
        if let Some(gateway) = context
            .gateway
            .as_ref()
            .filter(|_| context.rules.end.is_none())
        {
            gateway.received(&context.rules, &self.delivery.body);
        }
        let timed_out_calls = context.timed_out_calls.load(Ordering::Relaxed);
        let is_end = context.rules.end.is_some();
        let ready_file = is_end.then(|| context.runtime.ready_file()).flatten();
        let started = Instant::now();
        if let Some(slot) = slot {
            slot.start_call();
        }
        let open = context.calls.begin();
        let result = context.runtime.call(self.request.clone()).await;
        let took = started.elapsed();
        context.metrics.called(took);
        if let Some(span) = &mut self.span {
            span.called(started.into_std(), result.is_ok());
        }
        // If this process was suspended meanwhile, the next runtime may be there already.
        let has_ended = || ready_file.is_none() || context.runtime.ready_file() != ready_file;
        self.state.runtime_ends = is_end && has_ended();
        let others_were_open = result == Err(CallError::Ended) && open.crashed();
        self.state.others = if context.timed_out_calls.load(Ordering::Relaxed) != timed_out_calls {
            OtherCalls::TimedOut
        } else if others_were_open {
            OtherCalls::Open
        } else {
            OtherCalls::None
        };
        if !matches!(result, Err(CallError::Ended | CallError::NotRead)) {
            self.clear_suspect();
        }
        match result {
            Ok(reply) => {
                if let Some(gateway) = context
                    .gateway
                    .as_ref()
                    .filter(|_| context.rules.end.is_none())
                {
                    gateway.completed(&self.delivery.body, &reply, took);
                }
                CallResult::Reply(reply)
            }
            Err(error) => {
                self.call_failed(error);
                CallResult::Failed(error)
            }
        }
    }

    fn call_failed(&self, error: CallError) {
        let context = &self.context;
        match error {
            CallError::NotRead => {
                context.metrics.not_read();
                context.runtime.recheck();
            }
            CallError::TimedOut => {
                tracing::error!(
                    id = self.id(),
                    "Runtime timeout exceeded; waiting for the runtime to exit"
                );
                context.timed_out_calls.fetch_add(1, Ordering::Relaxed);
                context.runtime.call_timed_out();
            }
            // Makes the next call, or a retry of this one, wait until the runtime is back.
            CallError::Ended => context.runtime.recheck(),
            CallError::TooLarge(_) => {}
        }
    }
}

/// Waits for the runtime, and for permission to call it.
async fn permit_when_ready<B: Broker, R: Runtime>(
    context: &Context<B, R>,
    delay: Duration,
    alone: bool,
) -> Permit {
    let mut readiness = context.readiness.clone();
    sleep(delay).await;
    loop {
        // The sender lives as long as the process.
        let _ = readiness
            .wait_for(|now| matches!(now, Readiness::Ready { .. }))
            .await;
        let permit = context.calls.permit(alone).await;
        // Meanwhile, the call of another message may have ended the runtime.
        if context.runtime.is_available() {
            return permit;
        }
        drop(permit);
        context.runtime.recheck();
        sleep(CHECK_DELAY).await;
    }
}
