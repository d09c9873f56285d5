//! The sidecar with `asya_runtime.py`, compared with the bare mover and a client that only calls this runtime (SC-102).

use std::path::Path;
use std::time::{Duration, Instant};

use asya_tests::eventually::{check, eventually};
use asya_tests::process::{Folder, Process, Spec};
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result};
use asya_wire::socket::{READY_FILE, SOCKET};

use crate::amqp::Login;
use crate::bare::result_of;
use crate::figures::{many, median};
use crate::messages::message;
use crate::mover::{KINDS, Settings};
use crate::throughput::{GOALS, one, rows_of, table_of};

const RUNTIME_READY: Duration = Duration::from_secs(20);

/// Runs the client, the bare mover and the sidecar in turn. No mover reaches the client's rate, since this runtime is
/// faster than a broker; the comparison with the bare mover shows the cost of the sidecar.
pub async fn compare(broker: &RabbitMq, rounds: usize, count: usize) -> Result<String> {
    let folder = Folder::create("bench-runtime")?;
    let runtime = start(folder.path()).await?;
    let settings = Settings::rabbitmq(&Login::to(broker), folder.path());
    let (mut alone, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(runtime.alive_while(direct(folder.path(), count)).await?);
        for kind in KINDS {
            let moving = one(broker, &settings, kind, "classic", count);
            runs.push((kind, runtime.alive_while(moving).await?));
        }
    }
    let client = "one client of the runtime, no broker".to_owned();
    let mut client = vec![
        "classic".to_owned(),
        client,
        format!("{:.0}", median(&alone)),
    ];
    client.resize(5, String::new());
    let rows = rows_of("", &runs, &GOALS);
    Ok(table_of(
        "asya_runtime.py",
        &[&[client], rows.as_slice()].concat(),
    ))
}

/// A runtime whose handler returns its payload.
async fn start(folder: &Path) -> Result<Process> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let spec = Spec::new("runtime", "python3")
        .arg(top.join("../controller/runtime/asya_runtime.py").display())
        .log(folder.join("runtime.log"))
        .env("ASYA_SOCKET_DIR", folder.display())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ASYA_HANDLER", "copy.copy");
    let runtime = Process::start(spec).await?;
    let ready = eventually("the runtime is ready", RUNTIME_READY, async || {
        check(folder.join(READY_FILE).exists(), "not yet")
    });
    runtime.alive_while(ready).await?;
    Ok(runtime)
}

/// Calls the runtime with one message after the other; returns the messages per second.
async fn direct(folder: &Path, count: usize) -> Result<f64> {
    let socket = folder.join(SOCKET);
    let calling = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        for number in 0..count {
            result_of(&socket, message(number).as_bytes())?;
        }
        Ok(many(count) / started.elapsed().as_secs_f64())
    });
    calling.await.map_err(Error::other)?
}
