//! Addresses that we listen on.

use tokio::net::TcpListener;

/// An address on which we cannot serve.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address:?} ({flag}): {source}")]
pub struct BindError {
    address: String,
    flag: &'static str,
    source: std::io::Error,
}

/// Listens on `host:port`; `:port` means all interfaces. `flag` is what set the address.
///
/// # Errors
/// When the address cannot be understood or is not to be had.
pub async fn bind(address: &str, flag: &'static str) -> Result<TcpListener, BindError> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // A machine without IPv6.
            Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    bound.map_err(|source| BindError {
        address: address.to_owned(),
        flag,
        source,
    })
}
