//! `status`: what actors do, and what needs attention.

mod decide;
mod page;
mod render;

use asya_shared::api::AsyncActor;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use serde_json::Value;

pub use decide::{ActorSummary, condition, status_of, summary};

use crate::answer::{Answer, Failure, Report};
use crate::args::StatusArgs;
use crate::cluster::{Cluster, Connection, resource};
use crate::output::{self, Format};
use crate::watch::Watched;

/// Events of an actor that its page shows.
const EVENTS: usize = 8;

/// Shows one actor, or all of a namespace. Exit code 1: an actor needs attention.
///
/// # Errors
/// If the actors cannot be read, or there is none of that name.
pub async fn run(connection: &Connection, args: &StatusArgs) -> Result<Report, Failure> {
    let cluster = connection.open().await?;
    match &args.name {
        Some(name) => one(&cluster, name, args.output.output).await,
        None => all(&cluster, args).await,
    }
}

/// What `--watch` watches.
pub fn watched(args: &StatusArgs) -> Vec<Watched> {
    match &args.name {
        Some(name) => {
            let about = Watched::kind(resource::<Event>()).with_fields(about(name));
            vec![Watched::actor(name), about]
        }
        None if args.all_namespaces => {
            vec![Watched::kind(resource::<AsyncActor>()).in_all_namespaces()]
        }
        None => vec![Watched::kind(resource::<AsyncActor>())],
    }
}

async fn all(cluster: &Cluster, args: &StatusArgs) -> Result<Report, Failure> {
    let namespace = Some(&*cluster.namespace).filter(|_| !args.all_namespaces);
    let actors = cluster.list(&resource::<AsyncActor>(), namespace).await?;
    let now = Timestamp::now();
    let mut rows: Vec<ActorSummary> = actors.iter().map(|actor| summary(actor, now)).collect();
    rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let format = args.output.output;
    let columns = render::Columns {
        namespace: args.all_namespaces,
        wide: format == Format::Wide,
    };
    let text = format.write(&rows, || {
        render::list(&rows, columns, output::terminal_width())
    })?;
    let notes = match (rows.is_empty(), namespace) {
        (false, _) => Vec::new(),
        (true, Some(namespace)) => vec![format!(
            "no AsyncActors in namespace {namespace}; -A shows all namespaces"
        )],
        (true, None) => vec!["no AsyncActors".to_owned()],
    };
    let needs_attention = rows.iter().any(|row| row.attention.is_some());
    Ok(Report::new(text, answer(needs_attention)).with_notes(notes))
}

async fn one(cluster: &Cluster, name: &str, format: Format) -> Result<Report, Failure> {
    let actor = cluster.actor(name).await?;
    let (events, notes) = match events(cluster, name).await {
        Ok(events) => (events, Vec::new()),
        Err(failure) => (Vec::new(), vec![format!("Events are missing: {failure}")]),
    };
    let now = Timestamp::now();
    let page = page::page(&actor, &events, now);
    let text = format.write(&page, || render::page(&page, output::terminal_width()))?;
    Ok(Report::new(text, answer(page.summary.attention.is_some())).with_notes(notes))
}

fn answer(needs_attention: bool) -> Answer {
    if needs_attention {
        Answer::Findings
    } else {
        Answer::Fine
    }
}

/// The field selector of Events about an actor.
fn about(name: &str) -> String {
    format!("involvedObject.kind=AsyncActor,involvedObject.name={name}")
}

/// The latest Events about an actor.
async fn events(cluster: &Cluster, name: &str) -> Result<Vec<Value>, Failure> {
    let params = ListParams::default().fields(&about(name));
    let mut events = cluster
        .list_with(&resource::<Event>(), Some(&cluster.namespace), params)
        .await?;
    events.sort_by_key(|event| std::cmp::Reverse(page::event_time(event)));
    events.truncate(EVENTS);
    Ok(events)
}
