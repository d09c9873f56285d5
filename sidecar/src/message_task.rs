//! The lifecycle of one message, from delivery to settlement (SC-72 to SC-77).

mod call;
mod publish;
mod report;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use asya_wire::envelope::code;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::publish::{Stall, may_stall, publish};
use crate::broker::{Broker, Delivery, Publication, Refusal, Settlement};
use crate::calls::{Calls, Permit, Suspect};
use crate::decide::{
    Action, Body, Decision, DeliveryState, Fault, Kind, Outcome, OutgoingMessage, Reason, Rules,
    Verdict, decide,
};
use crate::gateway::Gateway;
use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::runtime::{CallError, Readiness, Runtime};
use crate::slot::Slot;
use crate::trace::{Span, Tracer};

/// How long to wait for SIGTERM before a runtime crash fails the message. The runtime may get SIGTERM first, and always
/// does if the sidecar is a native one (SC-82).
const SIGTERM_DELAY: Duration = Duration::from_secs(2);

/// State shared by all messages.
pub struct Context<B, R> {
    pub broker: B,
    pub intake: Arc<Intake>,
    pub runtime: R,
    pub rules: Rules,
    /// Initial retry delay while a destination queue is missing.
    pub queue_backoff: Duration,
    pub metrics: Arc<Metrics>,
    pub gateway: Option<Gateway>,
    pub tracer: Option<Tracer>,
    pub readiness: watch::Receiver<Readiness>,
    /// Cancelled on shutdown.
    pub stopping: CancellationToken,
    /// Calls that have timed out so far (SC-52).
    pub timed_out_calls: AtomicU64,
    /// Open calls (SC-49).
    pub calls: Arc<Calls>,
}

/// The processing of one message.
pub struct MessageTask<B, R> {
    context: Arc<Context<B, R>>,
    delivery: Delivery,
    /// The request to the runtime.
    request: Bytes,
    state: DeliveryState,
    /// Set while publishing results is retried, until the message is settled.
    stall: Stall,
    /// The permit for the next call.
    permit: Option<Permit>,
    /// Set while the message may have caused a crash.
    suspect: Option<Suspect>,
    /// When the message stops waiting to be called alone.
    alone_until: Option<Instant>,
    since: Instant,
    span: Option<Span>,
}

enum CallResult {
    NotCalled,
    Reply(Bytes),
    Failed(CallError),
    ReportFailed,
}

/// How to continue once a decision has been executed.
enum NextStep {
    Settled,
    Call,
    Decide(CallResult),
    Retry,
}

impl<B: Broker, R: Runtime> MessageTask<B, R> {
    /// Starts the lifecycle of a delivered message.
    pub fn new(context: Arc<Context<B, R>>, delivery: Delivery) -> Self {
        let state = DeliveryState {
            deliveries: delivery.deliveries,
            size: Some(delivery.size).filter(|_| !delivery.is_whole()),
            ..DeliveryState::default()
        };
        let span = context
            .tracer
            .as_ref()
            .map(|tracer| tracer.consume(&delivery.body));
        let request = match &span {
            Some(span) if context.rules.end.is_none() => span.continued(&delivery.body),
            _ => delivery.body.clone(),
        };
        Self {
            context,
            delivery,
            request,
            state,
            stall: Stall::default(),
            permit: None,
            suspect: None,
            alone_until: None,
            since: Instant::now(),
            span,
        }
    }

    /// Processes the message to settlement, or abandons it when its delivery is lost. Even then, a running call is
    /// finished, because the runtime exits when its connection is closed (SC-21).
    pub async fn run(mut self, slot: Slot) {
        let receipt = self.delivery.receipt.clone();
        let mut slot = Some(slot);
        let mut answer = CallResult::NotCalled;
        loop {
            let mut decision = self.decide(&answer);
            let is_crash = matches!(answer, CallResult::Failed(CallError::Ended));
            if is_crash && matches!(decision.verdict, Verdict::Failed(_)) {
                slot.take();
                // In either case, the runtime is not called again for this message.
                let stopping = self.context.stopping.cancelled();
                let _ = timeout(SIGTERM_DELAY, stopping).await;
                decision = self.decide(&answer);
            }
            let next = tokio::select! {
                biased;
                () = receipt.lost() => {
                    tracing::debug!("connection lost before the message was settled; it will be redelivered");
                    return;
                }
                next = self.execute(decision, &answer, &mut slot) => next,
            };
            match next {
                NextStep::Settled => return,
                NextStep::Call => answer = self.call(slot.as_mut()).await,
                NextStep::Decide(next) => answer = next,
                NextStep::Retry => {}
            }
        }
    }

    fn decide(&mut self, answer: &CallResult) -> Decision {
        self.state.stopping = self.context.stopping.is_cancelled();
        decide(
            &self.context.rules,
            Body {
                received: &self.delivery.body,
                request: &self.request,
            },
            outcome(answer),
            &self.state,
        )
    }

    async fn execute(
        &mut self,
        decision: Decision,
        answer: &CallResult,
        slot: &mut Option<Slot>,
    ) -> NextStep {
        let Decision { actions, verdict } = decision;
        let mut messages = Vec::new();
        for action in actions {
            match action {
                Action::Call => return self.wait_to_call().await,
                Action::CallAlone => return self.wait_to_call_alone().await,
                Action::CallAgain(delay) => return self.wait_to_call_again(delay, answer).await,
                Action::Send(message) => messages.push(message),
                Action::Requeue(reason) => {
                    slot.take();
                    self.requeue(reason).await;
                    return NextStep::Settled;
                }
                Action::ReportFinal => {
                    if !self.report_final(answer, slot).await {
                        return NextStep::Decide(CallResult::ReportFailed);
                    }
                }
                Action::Acknowledge => {
                    if let Some(next) = self.send(std::mem::take(&mut messages), slot).await {
                        return next;
                    }
                    self.settle(Settlement::Acknowledge, &verdict).await;
                    return NextStep::Settled;
                }
                Action::Reject => {
                    // At SQS it may take as long as a visibility timeout (SC-40).
                    slot.take();
                    self.clear_suspect();
                    self.settle(Settlement::Reject, &verdict).await;
                    return NextStep::Settled;
                }
            }
        }
        NextStep::Settled
    }

    /// Publishes all results concurrently and waits for their confirms; `None` once all are confirmed. Releases the
    /// slot as soon as all are queued.
    async fn send(
        &mut self,
        messages: Vec<OutgoingMessage>,
        slot: &mut Option<Slot>,
    ) -> Option<NextStep> {
        self.clear_suspect();
        let context = self.context.clone();
        let stall = may_stall(self.delivery.body.len(), &messages).then(|| self.stall.clone());
        let sending: Vec<_> = messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| {
                if let Some(gateway) = context.gateway.as_ref().filter(|_| index > 0) {
                    gateway.child(&message.body);
                }
                let publication = Publication {
                    queue: context.rules.queues.of(&message.actor),
                    id: message.id,
                    body: message.body.into(),
                    origin: self.delivery.origin.clone(),
                    index,
                };
                let first = context.broker.publish(publication.clone());
                publish(
                    context.clone(),
                    message.kind,
                    message.actor,
                    publication,
                    first,
                    stall.clone(),
                )
            })
            .collect();
        slot.take();
        let started_publishing = std::time::Instant::now();
        let mut refused = None;
        for (kind, size, result) in publish::all(sending).await {
            if let Err(refusal) = result {
                refused.get_or_insert((kind, size, refusal));
            }
        }
        if let Some(span) = &mut self.span {
            span.published(started_publishing, refused.is_none());
        }
        match refused? {
            (kind, size, Refusal::TooLarge) => match self.state.refused.and(kind, size) {
                Some(refused) => {
                    self.state.refused = refused;
                    Some(NextStep::Retry)
                }
                None => Some(self.publish_failed(kind, &Refusal::TooLarge).await),
            },
            (_, _, Refusal::Closing) => Some(NextStep::Settled),
            (kind, _, refusal) => Some(self.publish_failed(kind, &refusal).await),
        }
    }

    async fn publish_failed(&mut self, kind: Kind, refusal: &Refusal) -> NextStep {
        let reason = match kind {
            Kind::ErrorEnd => code::ERROR_QUEUE_SEND_FAILED,
            Kind::Routing | Kind::HappyEnd => code::ROUTING_ERROR,
        };
        self.context.metrics.publish_failed(reason);
        tracing::warn!(
            id = self.id(),
            reason,
            "publish failed, message requeued: {refusal}"
        );
        self.requeue(Reason::NotStored).await;
        NextStep::Settled
    }

    async fn requeue(&mut self, reason: Reason) {
        self.clear_suspect();
        let context = self.context.clone();
        if reason != Reason::Shutdown {
            tokio::select! {
                () = sleep(context.broker.requeue_delay()) => {}
                () = context.stopping.cancelled() => {}
            }
        }
        context.metrics.requeued(reason);
        self.stall = Stall::default();
        let (broker, receipt) = (&context.broker, &self.delivery.receipt);
        let is_stopping = reason == Reason::Shutdown || context.stopping.is_cancelled();
        if is_stopping && reason != Reason::TimedOut {
            broker.settle(receipt, Settlement::RequeueNow).await;
        } else if matches!(reason, Reason::NotStored | Reason::NotReported) {
            broker.defer(&self.delivery).await;
        } else if reason.is_failure() {
            broker.settle(receipt, Settlement::RequeueFailed).await;
        } else {
            broker.settle(receipt, Settlement::Requeue).await;
        }
        if let Some(span) = self.span.take() {
            span.end(false);
        }
    }

    async fn settle(&mut self, settlement: Settlement, verdict: &Verdict) {
        self.stall = Stall::default();
        let context = &self.context;
        if let Verdict::Failed(Fault { reason, text, .. }) = verdict {
            tracing::info!(
                id = self.id(),
                reason,
                "message failed: {}",
                shortened(text)
            );
        }
        context
            .broker
            .settle(&self.delivery.receipt, settlement)
            .await;
        context.metrics.ended(verdict, self.since.elapsed());
        if let Some(span) = self.span.take() {
            span.end(!matches!(verdict, Verdict::Failed(_)));
        }
    }

    /// The message id, truncated for the log.
    fn id(&self) -> String {
        let message = crate::envelope::Message::read(&self.delivery.body).ok();
        let id = message
            .and_then(|message| message.id_text())
            .unwrap_or_default();
        shortened(&id).to_owned()
    }
}

fn outcome(answer: &CallResult) -> Outcome<'_> {
    match answer {
        CallResult::NotCalled => Outcome::Received,
        CallResult::Reply(reply) => Outcome::Replied(reply),
        CallResult::Failed(CallError::NotRead) => Outcome::NotRead,
        CallResult::Failed(CallError::Ended) => Outcome::Ended,
        CallResult::Failed(CallError::TimedOut) => Outcome::TimedOut,
        CallResult::Failed(CallError::TooLarge(size)) => Outcome::ReplyTooLarge(*size),
        CallResult::ReportFailed => Outcome::NotReported,
    }
}

/// Truncates a value for the log.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}
