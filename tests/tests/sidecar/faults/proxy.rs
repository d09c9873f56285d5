//! A TCP proxy between a sidecar and its broker that can cut, delay, throttle or drop traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asya_tests::error::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Direction of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// How the proxy handles connections.
#[derive(Clone, Debug)]
pub enum Mode {
    Pass,
    /// Closes all connections, including new ones.
    Refuse,
    /// Closes one connection after this many more bytes in this direction.
    Cut(Direction, Arc<AtomicU64>),
    /// Forwards everything to the server and nothing to the client.
    Mute,
    /// Forwards each read with this delay.
    Delay(Duration),
    /// Limits the bytes per second in each direction.
    Rate(u32),
    /// Forwards nothing in either direction.
    Stall,
    /// Closes connections, and directs new ones to another port.
    Elsewhere(u16),
}

impl Mode {
    pub fn cut(direction: Direction, after: u64) -> Self {
        Self::Cut(direction, Arc::new(AtomicU64::new(after)))
    }

    fn closes_connections(&self) -> bool {
        matches!(self, Self::Refuse | Self::Elsewhere(_))
    }
}

/// The proxy; stops, with its connections, when dropped.
pub struct Proxy {
    pub port: u16,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of a loopback port.
    pub async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(Error::other)?;
        let port = listener.local_addr().map_err(Error::other)?.port();
        let (mode, modes) = watch::channel(Mode::Pass);
        let task = tokio::spawn(accept(listener, server, modes));
        Ok(Self { port, mode, task })
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Connections end when the sender of modes is dropped.
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: u16, modes: watch::Receiver<Mode>) {
    while let Ok((client, _)) = listener.accept().await {
        let (mode, elsewhere) = match *modes.borrow() {
            Mode::Refuse => continue,
            Mode::Elsewhere(port) => (port, true),
            _ => (server, false),
        };
        tokio::spawn(connection(client, mode, elsewhere, modes.clone()));
    }
}

/// Forwards until either side closes, or the mode ends the connection.
async fn connection(
    client: TcpStream,
    port: u16,
    elsewhere: bool,
    modes: watch::Receiver<Mode>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let pump = |direction| Pump {
        direction,
        elsewhere,
        modes: modes.clone(),
    };
    tokio::select! {
        done = pump(Direction::ToServer).run(from_client, to_server) => done,
        done = pump(Direction::ToClient).run(from_server, to_client) => done,
    }
}

/// One direction of a connection.
struct Pump {
    direction: Direction,
    elsewhere: bool,
    modes: watch::Receiver<Mode>,
}

impl Pump {
    async fn run(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        // Once bytes have been dropped, nothing more can be forwarded.
        let mut incomplete = self.elsewhere;
        self.modes.mark_unchanged();
        loop {
            let count = tokio::select! {
                biased;
                changed = self.modes.changed() => {
                    if changed.is_err() || incomplete || self.modes.borrow().closes_connections() {
                        return Ok(());
                    }
                    continue;
                }
                count = from.read(&mut buffer) => count?,
            };
            if count == 0 {
                return Ok(());
            }
            let mode = self.modes.borrow().clone();
            let Some(forwarded) = self.forwarded(&mode, count).await else {
                incomplete = true;
                continue;
            };
            if self.modes.borrow().closes_connections() && !self.elsewhere {
                return Ok(());
            }
            to.write_all(&buffer[..forwarded]).await?;
            if forwarded < count {
                return Ok(());
            }
        }
    }

    /// How many of these bytes to forward, once allowed: fewer than all cut the connection, `None` drops them.
    async fn forwarded(&mut self, mode: &Mode, count: usize) -> Option<usize> {
        match mode {
            Mode::Delay(pause) => self.wait(*pause).await,
            Mode::Rate(rate) => {
                let bytes = u32::try_from(count).unwrap_or(u32::MAX);
                self.wait(Duration::from_secs(1) * bytes / *rate).await;
            }
            // Ends with the mode or the proxy.
            Mode::Stall => drop(self.modes.changed().await),
            Mode::Mute if self.direction == Direction::ToClient => return None,
            Mode::Cut(direction, left) if *direction == self.direction => {
                return Some(take(left, count));
            }
            _ => {}
        }
        Some(count)
    }

    /// Waits, but not beyond the end of the mode.
    async fn wait(&mut self, pause: Duration) {
        let _ = timeout(pause, self.modes.changed()).await;
    }
}

/// How many of these bytes may pass before a cut after `left` bytes; all of them once the cut has happened.
fn take(left: &AtomicU64, count: usize) -> usize {
    let bytes = count as u64;
    let before = left.load(Ordering::Relaxed);
    left.store(before.saturating_sub(bytes), Ordering::Relaxed);
    if before == 0 {
        count
    } else {
        usize::try_from(before.min(bytes)).unwrap_or(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_is_cut_after_the_nth_byte() {
        let left = AtomicU64::new(5);
        assert_eq!(take(&left, 3), 3);
        assert_eq!(take(&left, 3), 2, "the sixth byte is not forwarded");
        assert_eq!(take(&left, 3), 3, "the next connection lives");
    }
}
