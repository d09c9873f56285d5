//! Polls the readiness endpoints of running processes, for `helm test`.

use std::time::Duration;

use axum::http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Timeout of a single request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of response bytes to read: the response is only shown to users.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

/// The endpoint that is not ready, and why.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct NotReady {
    url: String,
    reason: String,
}

/// Polls each URL (`http://host:port/path`) until it returns 200.
///
/// # Errors
/// If a URL does not return 200 within `deadline`; names its last response, or why there was none.
pub async fn ready(urls: &[String], deadline: Duration) -> Result<(), NotReady> {
    for url in urls {
        let started = Instant::now();
        loop {
            let result = timeout(REQUEST_TIMEOUT, get_ok(url)).await;
            let Err(reason) = result.unwrap_or_else(|_| Err("no answer".to_owned())) else {
                break;
            };
            if started.elapsed() >= deadline {
                let url = url.clone();
                return Err(NotReady { url, reason });
            }
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Uses HTTP/1.0, so that the end of the connection marks the end of the response.
async fn get_ok(url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|_| "not a URL".to_owned())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let host = host.ok_or("expected http://host:port/path")?;
    let port = uri.port_u16().unwrap_or(80);
    let exchange = async {
        let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        let request = format!("GET {} HTTP/1.0\r\nHost: {host}\r\n\r\n", uri.path());
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream
            .take(MAX_RESPONSE_BYTES)
            .read_to_end(&mut response)
            .await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&response).into_owned())
    };
    let response = exchange.await.map_err(|error| error.to_string())?;
    if response.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    let (head, text) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.lines().next().unwrap_or_default();
    Err(format!("{status}\n{text}").trim().to_owned())
}

#[cfg(test)]
mod tests;
