//! Readiness of the processes behind Services, as a kubelet and the endpoints controller would report it: a process
//! whose probe hangs is not ready, and does not delay connections to others.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use tokio::time::timeout;

use super::{LAG, append};

/// Long, because a kubelet retries twice before it considers a probe failed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection waits for a probe if an earlier result is known, which then counts.
const PATIENCE: Duration = Duration::from_secs(1);

/// The known state of a process.
#[derive(Default)]
struct Known {
    last: Option<(Instant, bool)>,
    /// The probe in flight. All connections share it: a burst would exceed what the probed port admits.
    probe: Option<Shared<BoxFuture<'static, bool>>>,
}

static KNOWN: LazyLock<Mutex<HashMap<String, Known>>> = LazyLock::new(Mutex::default);

fn with<T>(url: &str, look: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    look(known.entry(url.to_owned()).or_default())
}

/// Whether the process with this readiness URL is ready. Probes it if the last result is older than [`LAG`]; failed and
/// slow probes are logged in `folder`.
pub(super) async fn is_ready(url: &str, folder: &Path) -> bool {
    let (probe, last) = with(url, |known| match known.last {
        Some((since, true)) if since.elapsed() < LAG => (None, Some(true)),
        last => {
            let probe = known.probe.get_or_insert_with(|| start(url, folder));
            (Some(probe.clone()), last.map(|(_, ready)| ready))
        }
    });
    match (probe, last) {
        (None, last) => last.unwrap_or(false),
        (Some(probe), None) => probe.await,
        (Some(probe), Some(last)) => timeout(PATIENCE, probe).await.unwrap_or(last),
    }
}

/// Starts a probe, which continues if the connection that needs it is closed.
fn start(url: &str, folder: &Path) -> Shared<BoxFuture<'static, bool>> {
    let (target, log) = (url.to_owned(), folder.join("egress.log"));
    let probe = tokio::spawn(async move {
        let started = Instant::now();
        let answer = probe(&target).await;
        let ready = answer.as_ref().is_ok_and(|status| *status == 200);
        with(&target, |known| {
            let changed = known.last.is_some_and(|(_, was)| was != ready);
            if changed || started.elapsed() > PATIENCE {
                let (now, elapsed) = (Timestamp::now(), started.elapsed());
                append(
                    &log,
                    &format!("{now} probe of {target}: {answer:?} after {elapsed:?}\n"),
                );
            }
            *known = Known {
                last: Some((Instant::now(), ready)),
                probe: None,
            };
        });
        ready
    });
    // A probe ends with its runtime, which may be another scenario's.
    let url = url.to_owned();
    let ended = async move {
        let ready = probe.await;
        if ready.is_err() {
            with(&url, |known| known.probe = None);
        }
        ready.unwrap_or(false)
    };
    ended.boxed().shared()
}

async fn probe(url: &str) -> Result<u16, String> {
    // A client per probe: a pooled connection would end with the runtime that opened it.
    let client = crate::http_client().map_err(|error| error.to_string())?;
    let sent = client.get(url).timeout(TIMEOUT).send().await;
    sent.map(|answer| answer.status().as_u16())
        .map_err(|error| format!("{error:?}"))
}
