//! Byte streams to the broker: TCP, or TLS above it (SC-99).

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(5);

/// A stream to the broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How the broker's certificate is checked.
#[derive(Clone, Copy, Debug)]
pub enum Tls<'a> {
    /// There is none.
    Off,
    /// Against the roots that are built in.
    BuiltInRoots,
    /// Against this PEM bundle alone.
    Bundle(&'a Path),
}

/// Connects, at each address that the name has until one answers.
///
/// # Errors
/// That of the last address, or of the certificate.
pub async fn connect(host: &str, port: u16, tls: Tls<'_>) -> io::Result<Box<dyn Stream>> {
    let config = match tls {
        Tls::Off => None,
        Tls::BuiltInRoots => Some(tls::client(None)?),
        Tls::Bundle(path) => Some(tls::client(Some(path))?),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
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
