//! `--watch`: prints an answer again after each change of the objects that it depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use asya_shared::api::AsyncActor;
use futures::stream::{self, BoxStream, StreamExt};
use kube::api::ApiResource;
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt, watcher};

use crate::answer::{Answer, Failure, Report, within};
use crate::cluster::{Cluster, Connection, resource};
use crate::output::{self, clear_screen, print, print_error};

/// Changes often come in groups, which are answered together.
const SETTLE: Duration = Duration::from_millis(200);
/// How long the first answer waits for the watches to start; after that, a newer answer replaces it at once.
const BEGIN: Duration = Duration::from_secs(1);
/// Lifetime of a watch, in seconds. A dead connection is noticed after it, rather than after kube's 5 minutes.
const RENEWAL: u32 = 60;

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
/// If there is no first answer, or standard output cannot be written. Later failures become notes.
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
    // Reports a missing name or permission before the first watch does.
    let first = limited().await?;
    let cluster = connection.open_for_streams().await?;
    let changes = Changes::of(events(&cluster, watched));
    let mut screen = Screen::default();
    let unwritten = tokio::select! {
        ended = repeated(first, changes, limited, |report| screen.show(report)) => ended.err(),
        _ = tokio::signal::ctrl_c() => None,
    };
    match unwritten.and_then(|error| output::failure(&error)) {
        Some(failure) => Err(failure),
        None => Ok(Report::new(String::new(), Answer::Fine)),
    }
}

/// Prints the first answer, and another one after each change.
///
/// # Errors
/// If standard output cannot be written; it never ends otherwise.
async fn repeated(
    first: Report,
    mut changes: Changes<'_>,
    answer: impl AsyncFn() -> Result<Report, Failure>,
    mut show: impl FnMut(&Report) -> io::Result<()>,
) -> io::Result<()> {
    let mut unshown = Some(first);
    let mut is_due = {
        let mut next = pin!(changes.next());
        if let Ok(is_due) = tokio::time::timeout(BEGIN, &mut next).await {
            is_due
        } else {
            if let Some(first) = unshown.take() {
                show(&first)?;
            }
            next.await
        }
    };
    loop {
        let mut failed = None;
        if is_due {
            match answer().await {
                Ok(report) => unshown = Some(report),
                Err(failure) => failed = Some(failure.to_string()),
            }
        }
        // Before the notes: a terminal is cleared for it.
        if let Some(report) = unshown.take() {
            show(&report)?;
        }
        for failure in changes.failures.drain(..).chain(failed) {
            print_error(&format!("note: {failure}"));
        }
        is_due = changes.next().await;
    }
}

fn events<'a>(cluster: &Cluster, watched: Vec<Watched>) -> BoxStream<'a, (usize, WatchChange)> {
    let streams = watched.into_iter().enumerate().map(|(watch, it)| {
        let namespace = match it.scope {
            Scope::ChosenNamespace => Some(&*cluster.namespace),
            Scope::AllNamespaces => None,
        };
        let config = Config {
            field_selector: it.fields,
            ..Config::default().timeout(RENEWAL)
        };
        let events = watcher(cluster.metadata(&it.kind, namespace), config).default_backoff();
        let plural = it.kind.plural;
        events
            .filter_map(move |event| {
                let change = match event {
                    Ok(Event::Init | Event::InitApply(_)) => None,
                    Ok(Event::InitDone) => Some(WatchChange::Listed),
                    Ok(Event::Apply(_) | Event::Delete(_)) => Some(WatchChange::Changed),
                    // The API server has dropped the resource versions since the last event; the objects are listed
                    // again.
                    Err(Error::WatchError(status)) if status.code == 410 => None,
                    Err(error) => Some(WatchChange::Failed(format!(
                        "cannot watch {plural}: {error}"
                    ))),
                };
                std::future::ready(change.map(|change| (watch, change)))
            })
            .boxed()
    });
    stream::select_all(streams).boxed()
}

/// What the watches report.
struct Changes<'a> {
    /// Events, each with the number of its watch.
    events: BoxStream<'a, (usize, WatchChange)>,
    /// What failing watches have reported since they last worked.
    outages: BTreeMap<usize, BTreeSet<String>>,
    /// Failures that the user has not seen yet.
    failures: Vec<String>,
}

impl<'a> Changes<'a> {
    fn of(events: BoxStream<'a, (usize, WatchChange)>) -> Self {
        Self {
            events,
            outages: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Waits for a change and then until no more follow at once, or for a failure that was not reported yet. A failing
    /// watch is retried, and each of its failures reported once until it works. Returns whether something has changed.
    async fn next(&mut self) -> bool {
        let mut is_due = false;
        loop {
            let next = if is_due {
                let next = tokio::time::timeout(SETTLE, self.events.next()).await;
                let Ok(next) = next else { return true };
                next
            } else {
                self.events.next().await
            };
            match next {
                Some((watch, WatchChange::Listed | WatchChange::Changed)) => {
                    self.outages.remove(&watch);
                    is_due = true;
                }
                Some((watch, WatchChange::Failed(text))) => {
                    let told = self.outages.entry(watch).or_default();
                    if told.insert(text.clone()) {
                        self.failures.push(text);
                        if !is_due {
                            return false;
                        }
                    }
                }
                // A watch never ends.
                None => std::future::pending().await,
            }
        }
    }
}

/// The output on the screen.
#[derive(Default)]
struct Screen {
    last: Option<String>,
}

impl Screen {
    /// Prints a report unless it equals the last one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(watch: usize, text: &str) -> (usize, WatchChange) {
        (watch, WatchChange::Failed(text.to_owned()))
    }

    /// docs/cli.md: `--watch` says what it cannot watch.
    #[tokio::test(start_paused = true)]
    async fn failure_of_a_watch_is_told_at_once_and_once_until_it_works() {
        let events = [
            failed(0, "refused"),
            failed(0, "refused"),
            failed(1, "forbidden"),
            failed(0, "timed out"),
            failed(1, "forbidden"),
            failed(0, "refused"),
            (0, WatchChange::Listed),
            failed(0, "refused"),
        ];
        let events = stream::iter(events).chain(stream::pending());
        let mut changes = Changes::of(events.boxed());
        let mut told = Vec::new();
        for _ in 0..4 {
            let next = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
            let is_due = next.unwrap();
            told.push((is_due, std::mem::take(&mut changes.failures).join(",")));
        }
        let expected = [
            (false, "refused"),
            (false, "forbidden"),
            (false, "timed out"),
            (true, "refused"),
        ];
        assert_eq!(told, expected.map(|(is_due, it)| (is_due, it.to_owned())));
    }
    /// docs/cli.md: `--watch` prints its first answer also if no other one follows.
    #[tokio::test(start_paused = true)]
    async fn first_answer_is_shown_if_the_next_one_fails() {
        let first = Report::new("first".to_owned(), Answer::Fine);
        let events = stream::iter([(0, WatchChange::Listed)]).chain(stream::pending());
        let failing = async || Err(Failure::new("refused"));
        let mut shown = Vec::new();
        let show = |report: &Report| {
            shown.push(report.text.clone());
            Ok(())
        };
        let watch = repeated(first, Changes::of(events.boxed()), failing, show);
        let ended = tokio::time::timeout(Duration::from_mins(1), watch).await;
        assert!(ended.is_err());
        assert_eq!(shown, ["first"]);
    }
}
