//! Binds listen addresses.

use tokio::net::TcpListener;

/// A listen address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address:?} ({flag}): {source}")]
pub struct BindError {
    address: String,
    flag: &'static str,
    source: std::io::Error,
}

/// Listens on `host:port`; `:port` means all interfaces. `flag` is the flag that set the address, for error messages.
///
/// # Errors
/// If the address is invalid or cannot be bound.
pub async fn bind(address: &str, flag: &'static str) -> Result<TcpListener, BindError> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // Without IPv6, fall back to IPv4.
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
