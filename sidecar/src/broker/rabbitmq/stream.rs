//! Byte streams to the broker: TCP or TLS (SC-99).

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asya_amqp::Stream;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;

/// Connect timeout per address.
const CONNECT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub enum Tls<'a> {
    /// No TLS.
    Off,
    /// Verify against the built-in roots.
    BuiltInRoots,
    /// Verify against this PEM bundle only.
    Bundle(&'a Path),
}

/// Connects, trying each resolved address in turn.
///
/// # Errors
/// The error of the last address, or of the TLS handshake.
pub async fn connect(host: &str, port: u16, tls: Tls<'_>) -> io::Result<Box<dyn Stream>> {
    let config = match tls {
        Tls::Off => None,
        Tls::BuiltInRoots => Some(tls::client(None)?),
        Tls::Bundle(path) => Some(tls::client(Some(path))?),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match one(address, host, config.clone()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn one(
    address: SocketAddr,
    host: &str,
    config: Option<Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(config) = config else {
            return Ok(Box::new(stream) as Box<dyn Stream>);
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?) as Box<dyn Stream>)
    };
    tokio::time::timeout(CONNECT, connecting).await?
}
