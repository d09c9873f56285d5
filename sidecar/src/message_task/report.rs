//! Final reports that must be accepted before a message is acknowledged (SC-90).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{CallResult, MessageTask};
use crate::broker::{Broker, MAX_STALLED_SIZE};
use crate::config::FINAL_RETRY_PERIOD;
use crate::gateway::SendResult;
use crate::runtime::Runtime;
use crate::slot::Slot;

/// Delays between attempts while the gateway is unavailable.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// How long to hold a message after the gateway has refused its report, so that its handler does not run in a hot loop.
/// Meanwhile, another message may be delivered.
const REFUSED_DELAY: Duration = Duration::from_secs(10);

impl<B: Broker, R: Runtime> MessageTask<B, R> {
    /// Sends the final report. If the gateway must accept it but is unavailable, keeps the reply and retries, since the
    /// handler has already run. Returns whether the message may be acknowledged.
    pub(super) async fn report_final(
        &mut self,
        answer: &CallResult,
        slot: &mut Option<Slot>,
    ) -> bool {
        let context = self.context.clone();
        let Some(gateway) = &context.gateway else {
            return true;
        };
        let reply: &[u8] = if let CallResult::Reply(reply) = answer {
            reply
        } else {
            b"[]"
        };
        let Some(mut report) = gateway.ended(&context.rules, &self.delivery.body, reply) else {
            return true;
        };
        let until = Instant::now() + FINAL_RETRY_PERIOD;
        let mut delay = FIRST_DELAY;
        let sent = loop {
            let sent = report.attempt().await;
            if sent != SendResult::Failed {
                break sent;
            }
            slot.take();
            tracing::warn!("the gateway does not accept final reports; their messages wait");
            tokio::select! {
                biased;
                () = context.stopping.cancelled() => break sent,
                () = sleep(delay) => {}
            }
            if Instant::now() >= until {
                break sent;
            }
            delay = (delay * 2).min(MAX_DELAY);
        };
        report.end(sent);
        if sent == SendResult::Refused {
            slot.take();
            self.hold_refused(reply.len()).await;
        }
        sent == SendResult::Accepted
    }

    /// Holds a message whose report was refused before it is requeued.
    async fn hold_refused(&mut self, reply: usize) {
        tracing::warn!(
            id = self.id(),
            "the gateway refused a required final report; its message goes back to the queue"
        );
        let context = self.context.clone();
        if self.delivery.body.len() + reply <= MAX_STALLED_SIZE {
            self.stall.get_or_init(|| context.intake.stalled());
        }
        tokio::select! {
            () = context.stopping.cancelled() => {}
            () = sleep(REFUSED_DELAY) => {}
        }
    }
}
