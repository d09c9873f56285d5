//! Services without a network: the API server dials a Service with `CONNECT` on our Unix socket, and we connect it to
//! the backend's loopback port.
//!
//! Routes are files in `routes/`, so that a scenario can set them from a process other than the one that runs the
//! cluster.

mod readiness;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::error::{Context, Error, Result};

/// How long endpoints lag behind pod readiness.
const LAG: Duration = Duration::from_secs(1);

/// A process behind a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// Readiness URL: like an endpoint, a backend is used only while this URL returns 200, and for [`LAG`] after that.
    /// Without it, the backend is always used.
    pub ready: Option<String>,
}

/// Routes a Service port to our processes.
///
/// # Errors
/// When the route cannot be written.
pub fn set_route(
    folder: &Path,
    namespace: &str,
    service: &str,
    port: u16,
    backends: &[Backend],
) -> Result<()> {
    let path = route_file(folder, namespace, service, port);
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, serde_json::to_vec(backends)?)
        .context(format_args!("write {}", unfinished.display()))?;
    std::fs::rename(&unfinished, &path).context(format_args!("write {}", path.display()))
}

fn route_file(folder: &Path, namespace: &str, service: &str, port: u16) -> PathBuf {
    folder.join(format!("routes/{namespace}.{service}.{port}.json"))
}

/// The proxy; stops when dropped.
pub(crate) struct Egress(tokio::task::JoinHandle<()>);

impl Drop for Egress {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens on `folder/egress.sock`. The client is sent later, because the API server needs the socket first. With a
/// real node there is a network, and targets without a route are dialed directly.
pub(crate) fn listen(
    folder: &Path,
    client: tokio::sync::watch::Receiver<Option<Client>>,
    real: bool,
) -> Result<Egress> {
    let routes = folder.join("routes");
    std::fs::create_dir_all(&routes).context(format_args!("make {}", routes.display()))?;
    let socket = folder.join("egress.sock");
    let listener =
        UnixListener::bind(&socket).context(format_args!("listen on {}", socket.display()))?;
    let folder = folder.to_owned();
    Ok(Egress(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (folder, client) = (folder.clone(), client.borrow().clone());
            tokio::spawn(async move {
                if let Err(error) = serve(stream, &folder, client, real).await {
                    let line = format!("{error}\n");
                    append(&folder.join("egress.log"), &line);
                }
            });
        }
    })))
}

fn append(log: &Path, line: &str) {
    use std::io::Write;
    if let Ok(mut file) = std::fs::File::options().create(true).append(true).open(log) {
        let _ = file.write_all(line.as_bytes());
    }
}

async fn serve(
    mut stream: UnixStream,
    folder: &Path,
    client: Option<Client>,
    real: bool,
) -> Result<()> {
    let head = read_head(&mut stream)
        .await
        .context("read a CONNECT request")?;
    let target = head
        .strip_prefix("CONNECT ")
        .and_then(|rest| rest.split(' ').next())
        .ok_or_else(|| Error::Other(format!("not a CONNECT request: {head}")))?;
    let connected = async {
        let address = match resolve(target, folder, client).await {
            Err(Error::Other(_)) if real => in_network(target),
            other => other?,
        };
        TcpStream::connect(&address)
            .await
            .context(format_args!("connect {target} to {address}"))
    };
    match connected.await {
        Ok(mut backend) => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                .await
                .context("answer a CONNECT request")?;
            // Either side may disconnect at any time.
            let _ = copy_bidirectional(&mut stream, &mut backend).await;
            Ok(())
        }
        Err(error) => {
            let _ = stream
                .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
                .await;
            Err(error)
        }
    }
}

async fn read_head(stream: &mut UnixStream) -> io::Result<String> {
    let mut head = Vec::new();
    // Byte by byte, because everything after the head belongs to the tunneled connection.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8192 {
            return Err(io::Error::other("the head is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Resolves `host:port` to the address of one of our processes. The host is a cluster IP, `name.namespace.svc` or a
/// loopback address.
async fn resolve(target: &str, folder: &Path, client: Option<Client>) -> Result<String> {
    let unknown = || Error::Other(format!("nothing is routed to {target}"));
    let (host, port) = target.rsplit_once(':').ok_or_else(unknown)?;
    if host == "127.0.0.1" || host == "localhost" {
        return Ok(target.to_owned());
    }
    let port: u16 = port.parse().map_err(|_| unknown())?;
    let (namespace, service) = match host.split('.').collect::<Vec<_>>().as_slice() {
        [name, namespace, "svc", ..] => ((*namespace).to_owned(), (*name).to_owned()),
        _ => by_cluster_ip(client.ok_or_else(unknown)?, folder, host)
            .await?
            .ok_or_else(unknown)?,
    };
    let route =
        std::fs::read(route_file(folder, &namespace, &service, port)).map_err(|_| unknown())?;
    let backends: Vec<Backend> = serde_json::from_slice(&route)?;
    let probes = backends.iter().map(|backend| async {
        let ready = match &backend.ready {
            Some(url) => readiness::is_ready(url, folder).await,
            None => true,
        };
        ready.then(|| backend.address.clone())
    });
    let mut ready: Vec<_> = join_all(probes).await.into_iter().flatten().collect();
    if ready.is_empty() {
        return Err(Error::Other(format!("no process behind {target} is ready")));
    }
    Ok(ready.swap_remove(turn() % ready.len()))
}

/// `host:port` in a form that the node's resolver can resolve.
fn in_network(target: &str) -> String {
    match target.rsplit_once(".svc:") {
        Some((host, port)) => format!("{host}.svc.cluster.local:{port}"),
        None => target.to_owned(),
    }
}

/// A counter for round-robin among backends.
fn turn() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static TURN: AtomicUsize = AtomicUsize::new(0);
    TURN.fetch_add(1, Ordering::Relaxed)
}

async fn by_cluster_ip(
    client: Client,
    folder: &Path,
    address: &str,
) -> Result<Option<(String, String)>> {
    static KNOWN: Recent<(String, String)> = Recent::new();
    // The key contains the folder, because one process may run several clusters.
    let name = format!("{address} of {}", folder.display());
    if let Some(known) = KNOWN.get(&name) {
        return Ok(Some(known));
    }
    let services = Api::<Service>::all(client)
        .list(&ListParams::default())
        .await?;
    let found = services.into_iter().find_map(|service| {
        (service.spec?.cluster_ip.as_deref() == Some(address)).then_some(())?;
        Some((service.metadata.namespace?, service.metadata.name?))
    });
    if let Some(found) = &found {
        KNOWN.put(&name, found.clone());
    }
    Ok(found)
}

/// A cache of results that are younger than [`LAG`].
struct Recent<T>(Mutex<Option<HashMap<String, (Instant, T)>>>);

impl<T: Clone> Recent<T> {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn get(&self, name: &str) -> Option<T> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, found) = all.as_ref()?.get(name)?;
        (since.elapsed() < LAG).then(|| found.clone())
    }

    fn put(&self, name: &str, found: T) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        all.insert(name.to_owned(), (Instant::now(), found));
    }
}

#[cfg(test)]
mod tests;
