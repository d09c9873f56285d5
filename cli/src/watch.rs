//! `--watch`: an answer is printed again after each change of what it is about.

use std::io::{self, IsTerminal};
use std::time::Duration;

use asya_shared::api::AsyncActor;
use futures::stream::{self, BoxStream, StreamExt};
use kube::api::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};

use crate::answer::{Answer, Failure, Report, within};
use crate::cluster::{Cluster, Connection, resource};
use crate::output::{self, clear_screen, print, print_error};

/// Several objects often change together: they are answered together.
const SETTLE: Duration = Duration::from_millis(200);

/// Objects that the answer depends on.
pub struct Watched {
    kind: ApiResource,
    scope: Scope,
    fields: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    ChosenNamespace,
    AllNamespaces,
}

impl Watched {
    /// Objects of a kind in the chosen namespace.
    pub fn kind(kind: ApiResource) -> Self {
        Self {
            kind,
            scope: Scope::ChosenNamespace,
            fields: None,
        }
    }

    /// The actor of this name.
    pub fn actor(name: &str) -> Self {
        Self::kind(resource::<AsyncActor>()).with_fields(format!("metadata.name={name}"))
    }

    #[must_use]
    pub fn in_all_namespaces(mut self) -> Self {
        self.scope = Scope::AllNamespaces;
        self
    }

    /// Only objects that this field selector selects.
    #[must_use]
    pub fn with_fields(mut self, fields: String) -> Self {
        self.fields = Some(fields);
        self
    }
}

/// An event of a watch.
enum WatchChange {
    /// All existing objects are known.
    Listed,
    Changed,
    Failed(String),
}

/// Prints what `answer` returns, and again after each change of `watched`, until Ctrl-C or until standard output is
/// closed. Without `watched`, returns it.
///
/// # Errors
/// If there is no first answer, or standard output cannot be written. Later failures to answer are notes.
pub async fn run(
    connection: &Connection,
    watched: Option<Vec<Watched>>,
    answer: impl AsyncFn() -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    let Some(watched) = watched else {
        return answer().await;
    };
    let timeout = connection.args().timeout;
    let limited = async || within(timeout, answer()).await;
    // Tells a missing name and missing permissions before the first watch does.
    limited().await?;
    let cluster = connection.open_for_streams().await?;
    let mut changes = changes(&cluster, watched);
    let ended = async {
        let mut screen = Screen::default();
        let mut failures = Vec::new();
        loop {
            settled(&mut changes, &mut failures).await;
            for failure in failures.drain(..) {
                print_error(&format!("note: {failure}"));
            }
            match limited().await {
                Ok(report) => {
                    if let Err(error) = screen.show(&report) {
                        return output::failure(&error);
                    }
                }
                Err(failure) => print_error(&format!("note: {failure}")),
            }
        }
    };
    let failure = tokio::select! {
        failure = ended => failure,
        _ = tokio::signal::ctrl_c() => None,
    };
    match failure {
        Some(failure) => Err(failure),
        None => Ok(Report::new(String::new(), Answer::Fine)),
    }
}

fn changes<'a>(cluster: &Cluster, watched: Vec<Watched>) -> BoxStream<'a, WatchChange> {
    let streams = watched.into_iter().map(|it| {
        let namespace = match it.scope {
            Scope::ChosenNamespace => Some(&*cluster.namespace),
            Scope::AllNamespaces => None,
        };
        let config = Config {
            field_selector: it.fields,
            ..Config::default()
        };
        let events = watcher(cluster.metadata(&it.kind, namespace), config).default_backoff();
        let plural = it.kind.plural;
        events
            .filter_map(move |event| {
                let change = match event {
                    Ok(Event::Init | Event::InitApply(_)) => None,
                    Ok(Event::InitDone) => Some(WatchChange::Listed),
                    Ok(Event::Apply(_) | Event::Delete(_)) => Some(WatchChange::Changed),
                    Err(error) => Some(WatchChange::Failed(format!(
                        "cannot watch {plural}: {error}"
                    ))),
                };
                std::future::ready(change)
            })
            .boxed()
    });
    stream::select_all(streams).boxed()
}

/// Waits for a change, and until no more follow immediately. Keeps the first failure: a watch that fails is tried
/// again.
async fn settled(changes: &mut BoxStream<'_, WatchChange>, failures: &mut Vec<String>) {
    let mut is_due = false;
    loop {
        let next = if is_due {
            let next = tokio::time::timeout(SETTLE, changes.next()).await;
            let Ok(next) = next else { return };
            next
        } else {
            changes.next().await
        };
        match next {
            Some(WatchChange::Listed | WatchChange::Changed) => is_due = true,
            Some(WatchChange::Failed(text)) if failures.is_empty() => failures.push(text),
            Some(WatchChange::Failed(_)) => {}
            // A watch has no end.
            None => std::future::pending().await,
        }
    }
}

/// The output printed so far.
#[derive(Default)]
struct Screen {
    last: Option<String>,
}

impl Screen {
    /// Prints a report unless it is what was printed last.
    fn show(&mut self, report: &Report) -> io::Result<()> {
        if self.last.as_ref() == Some(&report.text) {
            return Ok(());
        }
        let prefix = match self.last {
            _ if io::stdout().is_terminal() => {
                clear_screen()?;
                ""
            }
            Some(_) => "\n",
            None => "",
        };
        let shown = Report::new(format!("{prefix}{}", report.text), report.answer);
        self.last = Some(report.text.clone());
        print(&shown.with_notes(report.notes.clone()))
    }
}
