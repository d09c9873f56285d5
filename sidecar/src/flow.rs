//! One message's life, from its receipt until it is settled (SC-72 to SC-77).

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asya_wire::envelope::code;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::store::store;
use crate::broker::{Broker, Delivery, Publication, Refusal, Settlement};
use crate::decide::{
    Action, Decision, Facts, Fault, Kind, Letter, Outcome, Reason, Rules, Verdict, decide,
};
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::runtime::{CallError, Readiness, Runtime};
use crate::slot::Slot;
use crate::trace::{Span, Tracer};

/// What all messages share.
pub struct Context<B, R> {
    /// The broker.
    pub broker: B,
    /// The runtime.
    pub runtime: R,
    /// What decides about messages.
    pub rules: Rules,
    /// First pause where a queue is missing.
    pub queue_backoff: Duration,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Who hears of progress.
    pub gateway: Option<Gateway>,
    /// Where spans go.
    pub tracer: Option<Tracer>,
    /// Whether the runtime takes messages.
    pub readiness: watch::Receiver<Readiness>,
    /// Cancelled when the process is to end.
    pub stopping: CancellationToken,
    /// Calls that were hung up so far (SC-52).
    pub hang_ups: AtomicU64,
}

/// A message on its way.
pub struct Flow<B, R> {
    context: Arc<Context<B, R>>,
    delivery: Delivery,
    /// The request, as the runtime gets it.
    request: Bytes,
    facts: Facts,
    since: Instant,
    span: Option<Span>,
}

/// What the runtime did with a message.
enum Answer {
    None,
    Reply(Bytes),
    Error(CallError),
    NotReported,
}

/// What is to happen after a decision was carried out.
enum Next {
    Settled,
    Call,
    Decide(Answer),
    Again,
}

impl<B: Broker, R: Runtime> Flow<B, R> {
    /// A message that came.
    pub fn new(context: Arc<Context<B, R>>, delivery: Delivery) -> Self {
        let facts = Facts {
            deliveries: delivery.deliveries,
            ..Facts::default()
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
            facts,
            since: Instant::now(),
            span,
        }
    }

    /// Brings the message to its end, or drops it when it is known to come again. A call that has begun is finished even
    /// then: the runtime ends itself when it is hung up (SC-21).
    pub async fn run(mut self, slot: Slot) {
        let receipt = self.delivery.receipt.clone();
        let mut slot = Some(slot);
        let mut answer = Answer::None;
        loop {
            self.facts.stopping = self.context.stopping.is_cancelled();
            let decision = decide(
                &self.context.rules,
                &self.request,
                outcome(&answer),
                &self.facts,
            );
            let next = tokio::select! {
                biased;
                () = receipt.lost() => {
                    tracing::debug!("the connection of a message is lost, so it comes again");
                    return;
                }
                next = self.carry_out(decision, &answer, &mut slot) => next,
            };
            match next {
                Next::Settled => return,
                Next::Call => answer = self.call(slot.as_mut()).await,
                Next::Decide(next) => answer = next,
                Next::Again => {}
            }
        }
    }

    async fn carry_out(
        &mut self,
        decision: Decision,
        answer: &Answer,
        slot: &mut Option<Slot>,
    ) -> Next {
        let Decision { actions, verdict } = decision;
        let mut letters = Vec::new();
        for action in actions {
            match action {
                Action::Call => return Next::Call,
                Action::CallAgain(pause) => return self.wait_to_call_again(pause).await,
                Action::Send(letter) => letters.push(letter),
                Action::GiveBack(reason) => {
                    slot.take();
                    self.give_back(reason).await;
                    return Next::Settled;
                }
                Action::ReportFinal => {
                    if !self.report_final(answer).await {
                        return Next::Decide(Answer::NotReported);
                    }
                }
                Action::Acknowledge => {
                    if let Some(next) = self.send(std::mem::take(&mut letters), slot).await {
                        return next;
                    }
                    self.settle(Settlement::Acknowledge, &verdict).await;
                    return Next::Settled;
                }
                Action::Reject => {
                    self.settle(Settlement::Reject, &verdict).await;
                    return Next::Settled;
                }
            }
        }
        Next::Settled
    }

    /// Calls the runtime.
    async fn call(&mut self, slot: Option<&mut Slot>) -> Answer {
        let context = self.context.clone();
        if let Some(gateway) = context
            .gateway
            .as_ref()
            .filter(|_| context.rules.end.is_none())
        {
            gateway.received(&context.rules, &self.delivery.body);
        }
        let hang_ups = context.hang_ups.load(Ordering::Relaxed);
        let started = Instant::now();
        if let Some(slot) = slot {
            slot.call_begins();
        }
        let result = context.runtime.call(self.request.clone()).await;
        let took = started.elapsed();
        context.metrics.called(took);
        if let Some(span) = &mut self.span {
            span.called(started.into_std(), result.is_ok());
        }
        self.facts.hung_up_another = context.hang_ups.load(Ordering::Relaxed) != hang_ups;
        match result {
            Ok(reply) => {
                if let Some(gateway) = context
                    .gateway
                    .as_ref()
                    .filter(|_| context.rules.end.is_none())
                {
                    gateway.completed(&self.delivery.body, &reply, took);
                }
                Answer::Reply(reply)
            }
            Err(error) => {
                match error {
                    CallError::NotRead => {
                        context.metrics.not_read();
                        context.runtime.doubt();
                    }
                    CallError::TimedOut => {
                        tracing::error!(
                            id = self.id(),
                            "Runtime timeout exceeded; the runtime has to end itself"
                        );
                        context.hang_ups.fetch_add(1, Ordering::Relaxed);
                        context.runtime.hung_up();
                    }
                    CallError::Ended | CallError::TooLarge(_) => {}
                }
                Answer::Error(error)
            }
        }
    }

    /// Sends all that came of the message at once, and waits until all of it is stored. The slot is free as soon as all is
    /// on its way. `None`: all is stored.
    async fn send(&mut self, letters: Vec<Letter>, slot: &mut Option<Slot>) -> Option<Next> {
        let context = self.context.clone();
        let sending: Vec<_> = letters
            .into_iter()
            .enumerate()
            .map(|(index, letter)| {
                if let Some(gateway) = context.gateway.as_ref().filter(|_| index > 0) {
                    gateway.child(&letter.body);
                }
                let publication = Publication {
                    queue: context.rules.queues.of(&letter.actor),
                    id: letter.id,
                    body: letter.body.into(),
                    origin: self.delivery.origin.clone(),
                    index,
                };
                let first = context.broker.publish(publication.clone());
                store(
                    context.clone(),
                    letter.kind,
                    letter.actor,
                    publication,
                    first,
                )
            })
            .collect();
        slot.take();
        let begun = std::time::Instant::now();
        let mut refused = None;
        for (kind, size, result) in store::all(sending).await {
            if let Err(refusal) = result {
                refused.get_or_insert((kind, size, refusal));
            }
        }
        if let Some(span) = &mut self.span {
            span.published(begun, refused.is_none());
        }
        match refused? {
            (kind, size, Refusal::TooLarge) => match self.facts.refused.and(kind, size) {
                Some(refused) => {
                    self.facts.refused = refused;
                    Some(Next::Again)
                }
                None => Some(self.not_stored(kind, &Refusal::TooLarge).await),
            },
            (_, _, Refusal::Closing) => Some(Next::Settled),
            (kind, _, refusal) => Some(self.not_stored(kind, &refusal).await),
        }
    }

    async fn not_stored(&mut self, kind: Kind, refusal: &Refusal) -> Next {
        let reason = match kind {
            Kind::ErrorEnd => code::ERROR_QUEUE_SEND_FAILED,
            Kind::Routing | Kind::HappyEnd => code::ROUTING_ERROR,
        };
        self.context.metrics.not_stored(reason);
        tracing::warn!(
            id = self.id(),
            reason,
            "what came of a message was not stored, so it is given back: {refusal}"
        );
        self.give_back(Reason::NotStored).await;
        Next::Settled
    }

    /// Whether the gateway was told, or need not be.
    async fn report_final(&self, answer: &Answer) -> bool {
        let Some(gateway) = &self.context.gateway else {
            return true;
        };
        let reply: &[u8] = if let Answer::Reply(reply) = answer {
            reply
        } else {
            b"[]"
        };
        gateway
            .ended(&self.context.rules, &self.delivery.body, reply)
            .await
    }

    async fn wait_to_call_again(&mut self, pause: Duration) -> Next {
        let context = self.context.clone();
        let mut readiness = context.readiness.clone();
        let ready = async {
            sleep(pause).await;
            // Without a watch there is no process.
            let _ = readiness
                .wait_for(|now| matches!(now, Readiness::Ready { .. }))
                .await;
        };
        self.facts.attempt += 1;
        tokio::select! {
            () = ready => Next::Call,
            () = context.stopping.cancelled() => {
                self.give_back(Reason::Shutdown).await;
                Next::Settled
            }
        }
    }

    async fn give_back(&mut self, reason: Reason) {
        let context = &self.context;
        if reason != Reason::Shutdown {
            tokio::select! {
                () = sleep(context.broker.pause_before_giving_back()) => {}
                () = context.stopping.cancelled() => {}
            }
        }
        context.metrics.given_back(reason);
        let now = reason == Reason::Shutdown || context.stopping.is_cancelled();
        let settlement = if now {
            Settlement::GiveBackNow
        } else {
            Settlement::GiveBack
        };
        context
            .broker
            .settle(&self.delivery.receipt, settlement)
            .await;
        if let Some(span) = self.span.take() {
            span.end(false);
        }
    }

    async fn settle(&mut self, settlement: Settlement, verdict: &Verdict) {
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

    /// The message's id, for log lines.
    fn id(&self) -> String {
        let message = crate::envelope::Message::read(&self.delivery.body).ok();
        let id = message
            .and_then(|message| message.id_text())
            .unwrap_or_default();
        shortened(&id).to_owned()
    }
}

fn outcome(answer: &Answer) -> Outcome<'_> {
    match answer {
        Answer::None => Outcome::Received,
        Answer::Reply(reply) => Outcome::Replied(reply),
        Answer::Error(CallError::NotRead) => Outcome::NotRead,
        Answer::Error(CallError::Ended) => Outcome::Ended,
        Answer::Error(CallError::TimedOut) => Outcome::TimedOut,
        Answer::Error(CallError::TooLarge(size)) => Outcome::ReplyTooLarge(*size),
        Answer::NotReported => Outcome::NotReported,
    }
}

/// What a log line quotes at most.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}
