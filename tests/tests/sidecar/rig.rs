//! Fixtures: brokers, sidecars and runtimes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use asya_amqp::{Connection, Login, Purpose};
use asya_tests::error::{Error, Result};
use asya_tests::eventually::{check, eventually};
use asya_tests::metrics::Metrics;
use asya_tests::process::{Folder, Process, Spec};
use asya_tests::rabbitmq::{self, OPERATOR_PASSWORD, RabbitMq};
use asya_tests::{install_crypto_provider, ports, sqs};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

/// Timeout for fast operations on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
/// Timeout for thousands of messages, or for a hundred megabytes.
pub const LATER: Duration = Duration::from_mins(2);
/// Quorum queues count deliveries.
pub const QUORUM: &str = "quorum";

/// A broker that all tests share, with its folder. Never dropped: the broker ends with the test process, and a later
/// run removes the folder.
struct Shared<T> {
    broker: T,
    _parts: Vec<Process>,
    _folder: Folder,
}

/// A virtual host of the shared RabbitMQ.
pub async fn shared_rabbitmq() -> Result<RabbitMq> {
    static SERVER: OnceCell<Shared<u16>> = OnceCell::const_new();
    static STATE: OnceCell<RabbitMq> = OnceCell::const_new();
    install_crypto_provider();
    let server = SERVER.get_or_try_init(|| async {
        let folder = Folder::create("sidecar-rabbitmq")?;
        let (broker, parts) = rabbitmq::serve(folder.path()).await?;
        let port = broker.state().management_port;
        STATE.set(broker).map_err(Error::other)?;
        Ok::<_, Error>(Shared {
            broker: port,
            _parts: parts,
            _folder: folder,
        })
    });
    let port = server.await?.broker;
    let server = STATE.get().ok_or_else(|| Error::other("no server"))?;
    // Its own client: another test's client ends with that test's tokio runtime.
    rabbitmq::add_virtual_host(&server.through(port)?).await
}

/// The URL of the shared SQS server.
pub async fn shared_sqs() -> Result<String> {
    static SERVER: OnceCell<Shared<String>> = OnceCell::const_new();
    install_crypto_provider();
    let server = SERVER.get_or_try_init(|| async {
        let folder = Folder::create("sidecar-sqs")?;
        let (url, server) = sqs::serve(folder.path()).await?;
        Ok::<_, Error>(Shared {
            broker: url,
            _parts: vec![server],
            _folder: folder,
        })
    });
    Ok(server.await?.broker.clone())
}

/// An actor: its folder, and the settings of its two containers.
pub struct Actor {
    pub name: String,
    folder: Folder,
    env: Vec<(String, String)>,
    starts: AtomicU32,
    port: u16,
    client: reqwest::Client,
}

impl Actor {
    /// An actor on RabbitMQ.
    pub fn on_rabbitmq(broker: &RabbitMq, name: &str) -> Result<Self> {
        let state = broker.state();
        Ok(Self::new(name)?.with(&[
            ("ASYA_TRANSPORT", "rabbitmq"),
            ("ASYA_RABBITMQ_HOST", &state.host),
            ("ASYA_RABBITMQ_PORT", &state.port.to_string()),
            ("ASYA_RABBITMQ_USERNAME", &state.user),
            ("ASYA_RABBITMQ_PASSWORD", OPERATOR_PASSWORD),
            ("ASYA_RABBITMQ_VHOST", &state.vhost),
        ]))
    }

    /// An actor on SQS.
    pub fn on_sqs(url: &str, name: &str) -> Result<Self> {
        Ok(Self::new(name)?.with(&[
            ("ASYA_TRANSPORT", "sqs"),
            ("ASYA_SQS_ENDPOINT", url),
            ("ASYA_AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", OPERATOR_PASSWORD),
            ("ASYA_SQS_WAIT_TIME_SECONDS", "1"),
        ]))
    }

    /// An actor without a broker.
    pub fn new(name: &str) -> Result<Self> {
        install_crypto_provider();
        let port = ports::free()?;
        // Do not pool connections: a restarted sidecar has closed them.
        let client = reqwest::Client::builder().pool_max_idle_per_host(0);
        let actor = Self {
            name: name.to_owned(),
            folder: Folder::create("sidecar-actor")?,
            env: Vec::new(),
            starts: AtomicU32::new(0),
            port,
            client: client.build()?,
        };
        std::fs::write(actor.calls_file(), "").map_err(Error::other)?;
        let folder = actor.folder.path().display().to_string();
        let calls = actor.calls_file().display().to_string();
        Ok(actor.with(&[
            ("ASYA_ACTOR_NAME", name),
            ("ASYA_SOCKET_DIR", &folder),
            ("ASYA_METRICS_ADDR", &format!("127.0.0.1:{port}")),
            // At debug level, so that a leaked secret would show (SC-9).
            ("ASYA_LOG_LEVEL", "debug"),
            ("CALLS", &calls),
        ]))
    }

    /// The same actor with other settings.
    pub fn with(mut self, variables: &[(&str, &str)]) -> Self {
        for (name, value) in variables {
            self.env.retain(|(known, _)| known != name);
            self.env.push(((*name).to_owned(), (*value).to_owned()));
        }
        self
    }

    /// A program with the actor's settings and its own log.
    pub fn spec(&self, name: &str, program: impl Into<PathBuf>) -> Spec {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let spec =
            Spec::new(name, program).log(self.folder.path().join(format!("{name}-{number}.log")));
        let path = std::env::var("PATH").unwrap_or_default();
        self.env
            .iter()
            .fold(spec.env("PATH", path), |spec, (name, value)| {
                spec.env(name, value)
            })
    }

    /// Starts the sidecar.
    pub async fn sidecar(&self) -> Result<Process> {
        Process::start(self.spec("sidecar", bin_folder().join("asya-sidecar"))).await
    }

    /// Starts the runtime with a handler of `handlers.py`.
    pub async fn runtime(&self, handler: &str) -> Result<Process> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = top.join("../controller/runtime/asya_runtime.py");
        let spec = self
            .spec("runtime", "python3")
            .arg(script.display())
            .env("PYTHONPATH", top.join("tests/sidecar").display())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("ASYA_HANDLER", format!("handlers.{handler}"));
        Process::start(spec).await
    }

    /// The payloads of the handler's calls.
    pub fn calls(&self) -> Result<Vec<String>> {
        Ok(std::fs::read_to_string(self.calls_file())
            .map_err(Error::other)?
            .lines()
            .map(str::to_owned)
            .collect())
    }

    /// The file to which the handler appends a line for each call.
    pub fn calls_file(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// All output of sidecars and runtimes.
    pub fn logs(&self) -> Result<String> {
        let mut all = String::new();
        for entry in std::fs::read_dir(self.folder.path()).map_err(Error::other)? {
            let path = entry.map_err(Error::other)?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                all.push_str(&std::fs::read_to_string(path).map_err(Error::other)?);
            }
        }
        Ok(all)
    }

    /// The folder that contains the socket and the ready file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Status and body of one of the sidecar's HTTP pages.
    pub async fn page(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let answer = self.client.get(url).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The sidecar's metrics.
    pub async fn metrics(&self) -> Result<Metrics> {
        Metrics::parse(&self.page("/metrics").await?.1)
    }

    /// Waits until the sidecar consumes messages.
    pub async fn is_ready(&self) -> Result<()> {
        eventually(format!("{} is ready", self.name), SOON, async || {
            let (status, words) = self.page("/readyz").await?;
            check(status == 200, words)
        })
        .await
    }

    /// Waits until the handler was called this many times.
    pub async fn is_called(&self, times: usize) -> Result<()> {
        eventually(
            format!("{} is called {times} times", self.name),
            SOON,
            async || {
                let calls = self.calls()?;
                check(calls.len() >= times, format!("{calls:?}"))
            },
        )
        .await
    }

    /// SC-9: no log line contains a secret.
    pub fn logs_no_secret(&self) -> Result<()> {
        let logs = self.logs()?;
        for secret in [OPERATOR_PASSWORD, "p%40ss%2Fw%3Ard"] {
            if logs.contains(secret) {
                return Err(Error::other(format!(
                    "{} logs the password:\n{logs}",
                    self.name
                )));
            }
        }
        Ok(())
    }
}

/// The folder of the programs.
pub fn bin_folder() -> PathBuf {
    std::env::var_os("ASYA_BIN_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_asya-cluster")).with_file_name(""),
        PathBuf::from,
    )
}

/// A message.
pub fn message(id: &str, actors: &[&str], payload: Value) -> String {
    let mut message = json!({"id": id, "route": {"actors": actors, "current": 0}});
    message["payload"] = payload;
    message.to_string()
}

/// Declares durable queues for actors.
pub async fn declare(broker: &RabbitMq, kind: &str, actors: &[&str]) -> Result<()> {
    for actor in actors {
        broker
            .declare(&format!("asya-{actor}"), json!({"x-queue-type": kind}))
            .await?;
    }
    Ok(())
}

/// Publishes messages to an actor's queue.
pub async fn put(
    broker: &RabbitMq,
    actor: &str,
    messages: impl IntoIterator<Item = String>,
) -> Result<()> {
    for message in messages {
        if !broker
            .publish("", &format!("asya-{actor}"), &message)
            .await?
        {
            return Err(Error::other(format!("{actor} has no queue")));
        }
    }
    Ok(())
}

/// Waits for this many messages in an actor's queue, and removes them.
pub async fn take(broker: &RabbitMq, actor: &str, count: usize) -> Result<Vec<Value>> {
    broker.take(&format!("asya-{actor}"), count, SOON).await
}

/// Checks that an actor's queue has no messages. The management API's counts would be seconds old.
pub async fn has_none(broker: &RabbitMq, actor: &str) -> Result<()> {
    let found = broker.messages(&format!("asya-{actor}"), 10, true).await?;
    assert_eq!(found, [""; 0], "{actor}");
    Ok(())
}

/// Stops a sidecar, and checks that it has acknowledged every message: the broker would requeue the others.
pub async fn leaves_none(sidecar: &Process, broker: &RabbitMq, actor: &str) -> Result<()> {
    assert_eq!(sidecar.stop(SOON).await?.code(), Some(0), "{actor}");
    has_none(broker, actor).await
}

/// The ids of messages.
pub fn ids(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| message["id"].as_str())
        .collect()
}

/// Logs in over AMQP, which a server may allow only after its management API responds.
pub async fn log_in(broker: &RabbitMq) -> Result<()> {
    let state = broker.state();
    let stream = TcpStream::connect((state.host.as_str(), state.port))
        .await
        .map_err(Error::other)?;
    let login = Login {
        user: &state.user,
        password: OPERATOR_PASSWORD,
        vhost: &state.vhost,
        product: "asya-tests",
        name: "test",
    };
    let opened = Connection::open(Box::new(stream), &login, Purpose::Publish);
    opened.await.map_err(Error::other)?.close().await;
    Ok(())
}
