//! `queue`, `dlq` and `send`: an actor's messages at the broker. No message is lost: if this program ends, the broker
//! takes back what it holds, and a moved message is removed only after its copy is stored.

mod access;
mod broker;
mod dlq;
mod forward;
mod guard;
#[cfg(test)]
mod memory;
mod message;
mod open;
mod peek;
mod rabbitmq;
mod render;
mod secret;
mod send;
mod sqs;
mod state;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::sync::Arc;

use serde_json::Value;

use access::{Access, DeadLetters, Names};
use broker::QueueClient;
use guard::QueueUse;
use open::Open;
use render::{DlqReport, QueuePage};
use send::{SendOutcome, Wait};

use crate::actor::status_of;
use crate::answer::{Answer, Failure, Report, within};
use crate::args::queue::{BrokerArgs, DlqAction, DlqArgs, QueueArgs, SendArgs};
use crate::cluster::Connection;
use crate::consent::{confirmed, refused};
use crate::interrupt::Interrupt;
use crate::output::{print_error, terminal_width};
use crate::watch::Watched;

pub use state::{ActorQueueState, QueueFinding, QueueState, state, states};

/// How many dead letters are listed by default.
const LISTED: usize = 20;

/// An actor, and the connection to its broker.
struct Reached {
    actor: Value,
    namespace: String,
    access: Access,
    open: Open,
}

async fn reach(
    connection: &Connection,
    name: &str,
    args: &BrokerArgs,
    intent: QueueUse,
) -> Result<Reached, Failure> {
    // The port-forward outlasts every prompt.
    let cluster = Arc::new(connection.open_for_streams().await?);
    let timeout = connection.args().timeout;
    let actor = within(timeout, cluster.actor(name)).await?;
    let access = access::access(&cluster, name, &actor, args, intent);
    let access = within(timeout, access).await?;
    let open = open::open(&cluster, &access.server, access.limit, timeout).await?;
    Ok(Reached {
        namespace: cluster.namespace.clone(),
        actor,
        access,
        open,
    })
}

/// Shows an actor's queue, and its next messages if requested.
///
/// # Errors
/// If the broker cannot be reached, or the queue does not exist.
pub async fn show(connection: &Connection, args: &QueueArgs) -> Result<Report, Failure> {
    let reached = reach(connection, &args.name, &args.broker, args.into()).await?;
    let Reached {
        actor,
        namespace,
        access,
        open,
    } = reached;
    let title = format!("{namespace}/{}", args.name);
    let result = match open {
        Open::RabbitMq(mut broker, _forward) => {
            let result = page(&mut broker, &access.names, title, args).await;
            broker.close().await;
            result
        }
        Open::Sqs(mut broker, _forward) => page(&mut broker, &access.names, title, args).await,
    };
    let (mut page, mut notes) = result?;
    if page.processing.is_none() {
        page.processing = status_of(&actor).processing_messages;
    }
    notes.extend(access.notes);
    let format = args.output.output;
    page.messages.iter_mut().for_each(|it| it.prepare(format));
    let text = format.write(&page, || render::page(&page, terminal_width()))?;
    Ok(Report::new(text, Answer::Fine).with_notes(notes))
}

/// What `--watch` watches: the actor, since brokers report no changes, but the operator writes message counts into its
/// status.
pub fn watched(args: &QueueArgs) -> Vec<Watched> {
    vec![Watched::actor(&args.name)]
}

async fn page<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    actor: String,
    args: &QueueArgs,
) -> Result<(QueuePage, Vec<String>), Failure> {
    let queue = &names.queue;
    let size = broker.size(queue).await?.ok_or_else(|| missing(queue))?;
    let peeked = match args.peek {
        Some(count) => peek::peek(broker, queue, count, args.payload).await?,
        None => peek::Peek::default(),
    };
    let dead_letters = match &names.dlq {
        Some(dlq) => broker.size(&dlq.queue).await?.map(|size| size.waiting),
        None => None,
    };
    let notes = peeked.notes(queue);
    let page = QueuePage::new(actor, names, size, dead_letters, peeked.rows);
    Ok((page, notes))
}

/// Lists, redrives or purges an actor's dead letters.
///
/// # Errors
/// If the broker cannot be reached, there is no dead letter queue, or the user does not consent.
pub async fn dead_letters(connection: &Connection, args: &DlqArgs) -> Result<Report, Failure> {
    let Reached { access, open, .. } =
        reach(connection, &args.name, &args.broker, args.action.into()).await?;
    let dlq = access.names.dlq.clone().ok_or_else(|| {
        Failure::new(format!(
            "AsyncActor {} has no dead letter queue; transport {} configures none (queues.dlq.enabled)",
            args.name, access.names.transport
        ))
    })?;
    let result = match open {
        Open::RabbitMq(mut broker, _forward) => {
            let result = act(&mut broker, &access.names, &dlq, args, Interrupt::listen).await;
            broker.close().await;
            result
        }
        Open::Sqs(mut broker, _forward) => {
            act(&mut broker, &access.names, &dlq, args, Interrupt::listen).await
        }
    };
    let (mut report, mut notes) = result?;
    notes.extend(access.notes);
    let format = args.output.output;
    let rows = report.messages.iter_mut().flatten();
    rows.for_each(|it| it.prepare(format));
    let interrupted = report.outcome.is_some_and(|it| it.interrupted);
    if interrupted {
        notes.push(render::interrupted(&report));
        let text = format.write(&report, String::new)?;
        return Ok(Report::new(text, Answer::Interrupted).with_notes(notes));
    }
    let text = format.write(&report, || render::dead_letters(&report, terminal_width()))?;
    Ok(Report::new(text, Answer::Fine).with_notes(notes))
}

/// `listen` starts listening for an interrupt once something may be half done; before that, Ctrl-C ends the program.
async fn act<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    args: &DlqArgs,
    listen: impl FnOnce() -> Interrupt,
) -> Result<(DlqReport, Vec<String>), Failure> {
    let size = broker.size(&dlq.queue).await?;
    let size = size.ok_or_else(|| missing(&dlq.queue))?;
    let max = args.max.map(|max| max as u64);
    let mut report = DlqReport::new(args.action, names, dlq);
    report.held = size.processing.unwrap_or_default();
    match args.action {
        DlqAction::List => {
            let count = args.max.unwrap_or(LISTED);
            let peeked = peek::peek(broker, &dlq.queue, count, args.payload).await?;
            let notes = peeked.notes(&dlq.queue);
            report.waiting = Some(size.waiting);
            report.messages = Some(peeked.rows);
            Ok((report, notes))
        }
        DlqAction::Redrive => {
            let done = dlq::redrive(broker, names, dlq, max, &listen()).await?;
            report.outcome = Some(done);
            Ok((report, Vec::new()))
        }
        DlqAction::Purge => {
            let waiting = size.waiting;
            report.outcome = Some(if waiting == 0 {
                dlq::DlqOutcome::default()
            } else {
                consent(names, dlq, waiting, args).await?;
                dlq::purge(broker, names, dlq, max, waiting, &listen()).await?
            });
            Ok((report, Vec::new()))
        }
    }
}

/// Says what will be deleted, and asks.
async fn consent(
    names: &Names,
    dlq: &DeadLetters,
    waiting: u64,
    args: &DlqArgs,
) -> Result<(), Failure> {
    let (actor, queue) = (&names.actor, &dlq.queue);
    let at_most = args
        .max
        .map_or(String::new(), |max| format!(", at most {max}"));
    let what = if dlq.shared {
        format!(
            "messages in {queue}, which actors share: {waiting}; those of {actor} are DELETED{at_most}"
        )
    } else {
        format!("messages in {queue}: {waiting}; they are DELETED{at_most}")
    };
    print_error(&what);
    if args.yes || confirmed("Delete them?").await {
        return Ok(());
    }
    Err(refused("deleted"))
}

/// Sends a message to an actor. Exit code 1: it failed; 2: it was not seen at its end, or may not be stored; 130: the
/// user ended the wait.
///
/// # Errors
/// If the payload is not JSON, or the broker cannot be reached.
pub async fn send(connection: &Connection, args: &SendArgs) -> Result<Report, Failure> {
    let payload = match &*args.text {
        "-" => standard_input()?,
        text => text.to_owned(),
    };
    let id = args.id.clone().unwrap_or_else(message::random_id);
    if id.is_empty() {
        return Err(Failure::new("--id must not be empty"));
    }
    // Before connecting, so that bad input is reported without a cluster.
    message::compose(&id, &args.name, &payload)?;
    let Reached { access, open, .. } =
        reach(connection, &args.name, &args.broker, QueueUse::Fill).await?;
    let names = &access.names;
    let body = message::compose(&id, &names.actor, &payload)?;
    let wait = args.wait.map(|limit| Wait {
        limit,
        with_payload: args.payload,
    });
    let mut sent = match open {
        Open::RabbitMq(mut broker, _forward) => {
            let sent = send::send(&mut broker, names, &id, body, wait, Interrupt::listen).await;
            broker.close().await;
            sent
        }
        Open::Sqs(mut broker, _forward) => {
            send::send(&mut broker, names, &id, body, wait, Interrupt::listen).await
        }
    }?;
    let format = args.output.output;
    sent.message.iter_mut().for_each(|it| it.prepare(format));
    let text = format.write(&sent, || match sent.outcome {
        SendOutcome::Interrupted => String::new(),
        _ => render::sent(&sent, terminal_width()),
    })?;
    let mut notes = access.notes;
    if matches!(
        sent.outcome,
        SendOutcome::NotSeen | SendOutcome::Unknown | SendOutcome::Interrupted
    ) {
        notes.extend(sent.notes);
    }
    Ok(Report::new(text, sent.outcome.answer()).with_notes(notes))
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::new(format!("standard input: {error}")))?;
    Ok(text)
}

fn missing(queue: &str) -> Failure {
    Failure::new(format!(
        "the broker has no queue {queue}; `kubectl asya status` says why"
    ))
}
