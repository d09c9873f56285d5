//! Polls the readiness endpoints of running processes; `helm test` does so from its own pod.

use std::time::Duration;

use axum::http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Timeout of a single request.
const ANSWER: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of response bytes read: the response is only shown to people.
const LONGEST: u64 = 64 * 1024;

/// The endpoint that is not ready, and why.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {why}")]
pub struct NotReady {
    url: String,
    why: String,
}

/// Polls each URL (`http://host:port/path`) until it returns 200.
///
/// # Errors
/// When a URL does not return 200 within `patience`; names its last response, or why there was none.
pub async fn ready(urls: &[String], patience: Duration) -> Result<(), NotReady> {
    for url in urls {
        let started = Instant::now();
        loop {
            let asked = timeout(ANSWER, ask(url)).await;
            let Err(why) = asked.unwrap_or_else(|_| Err("no answer".to_owned())) else {
                break;
            };
            if started.elapsed() >= patience {
                let url = url.clone();
                return Err(NotReady { url, why });
            }
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Speaks HTTP/1.0, so that the end of the connection marks the end of the response.
async fn ask(url: &str) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|_| "not a URL".to_owned())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let host = host.ok_or("expected http://host:port/path")?;
    let port = uri.port_u16().unwrap_or(80);
    let talk = async {
        let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        let request = format!("GET {} HTTP/1.0\r\nHost: {host}\r\n\r\n", uri.path());
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = talk.await.map_err(|error| error.to_string())?;
    if answer.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    Err(format!("{status}\n{text}").trim().to_owned())
}

#[cfg(test)]
mod tests;
