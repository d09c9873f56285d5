//! `status`: the state of actors, and what needs attention.

mod decide;
mod page;
mod render;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::AsyncActor;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use serde_json::Value;

pub use decide::{ActorSummary, is_transient, summary};

use crate::answer::{Answer, Failure, Report};
use crate::args::StatusArgs;
use crate::cluster::{Cluster, Connection, resource};
use crate::output::{self, Format};
use crate::queue;
use crate::watch::Watched;

use page::Around;

/// How many Events an actor's page shows.
const EVENTS: usize = 8;

/// Shows one actor, or all in a namespace. Exit code 1: an actor needs attention.
///
/// # Errors
/// If the actors cannot be read, or none has that name.
pub async fn run(connection: &Connection, args: &StatusArgs) -> Result<Report, Failure> {
    let mut cluster = connection.open().await?;
    if let Some(name) = args.name.as_ref().filter(|_| args.all_namespaces) {
        cluster.namespace = namespace_of(&cluster, name).await?;
    }
    let cluster = Arc::new(cluster);
    match &args.name {
        Some(name) => {
            one(
                &cluster,
                name,
                args.output.output,
                connection.args().timeout,
            )
            .await
        }
        None => all(&cluster, args).await,
    }
}

/// The namespace of the only actor with this name.
async fn namespace_of(cluster: &Cluster, name: &str) -> Result<String, Failure> {
    let mut found = cluster
        .namespaces_with(&resource::<AsyncActor>(), name)
        .await?;
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(Failure::new(format!(
            "no AsyncActor {name} in any namespace; `kubectl asya status -A` lists all"
        ))),
        (Some(namespace), true) => Ok(namespace),
        (Some(last), false) => Err(Failure::new(format!(
            "AsyncActors {name} are in namespaces {} and {last}; choose one with -n",
            found.join(", ")
        ))),
    }
}

/// What `--watch` watches.
pub fn watched(args: &StatusArgs) -> Vec<Watched> {
    match &args.name {
        Some(name) if args.all_namespaces => vec![Watched::actor(name).in_all_namespaces()],
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
    if rows.is_empty()
        && namespace.is_some()
        && let Some(missing) = cluster.missing_namespace().await
    {
        return Err(missing);
    }
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

async fn one(
    cluster: &Arc<Cluster>,
    name: &str,
    format: Format,
    timeout: Duration,
) -> Result<Report, Failure> {
    let actor = cluster.actor(name).await?;
    let (events, pods, queue) = futures::join!(
        events(cluster, name),
        pods(cluster, &actor),
        queue::state(cluster, &actor, timeout),
    );
    let mut notes = Vec::new();
    let mut note =
        |what: &str, failure: Failure| notes.push(format!("{what} are missing: {failure}"));
    let around = Around {
        events: events
            .map_err(|failure| note("Events", failure))
            .unwrap_or_default(),
        pods: pods
            .map_err(|failure| note("pods", failure))
            .unwrap_or_default(),
        queue: queue
            .map_err(|failure| note("consumers and dead letters", failure))
            .unwrap_or_default(),
    };
    let page = page::page(&actor, around, Timestamp::now());
    let text = format.write(&page, || render::page(&page, output::terminal_width()))?;
    Ok(Report::new(text, answer(page.needs_attention())).with_notes(notes))
}

/// The target's pods, if some of them have no sidecar.
async fn pods(cluster: &Cluster, actor: &Value) -> Result<Option<Vec<Value>>, Failure> {
    let selector = actor["status"]["resolvedTarget"]["podSelector"].as_str();
    let Some(selector) = selector.filter(|_| page::has_pods_without_sidecar(actor)) else {
        return Ok(None);
    };
    let params = ListParams::default().labels(selector);
    let namespace = Some(&*cluster.namespace);
    let pods = cluster
        .list_with(&resource::<Pod>(), namespace, params)
        .await;
    Ok(Some(pods?))
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
