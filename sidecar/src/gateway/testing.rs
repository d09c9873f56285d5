//! A scripted gateway.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

pub struct Fake {
    pub url: String,
    pub requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Fake {
    /// Starts a gateway that responds with these statuses, repeating the last one.
    pub async fn start(statuses: &[u16]) -> Self {
        let mut statuses = statuses.to_vec();
        statuses.reverse();
        Self::answering(move |_| {
            let status = if statuses.len() > 1 {
                statuses.pop()
            } else {
                statuses.first().copied()
            };
            status.unwrap_or(200)
        })
        .await
    }

    /// Starts a gateway whose status depends on the path.
    pub async fn answering(mut status: impl FnMut(&str) -> u16 + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let url = format!(
            "http://{}/base/",
            listener.local_addr().expect("an address")
        );
        let requests: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut buffer = Vec::new();
                while let Some((path, body)) = request(&mut stream, &mut buffer).await {
                    let status = status(&path);
                    seen.lock().push((path, body));
                    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nok");
                    stream
                        .write_all(answer.as_bytes())
                        .await
                        .expect("an answer");
                }
            }
        });
        Self { url, requests }
    }

    /// Waits for this many requests; returns the path and body of each so far.
    pub async fn saw(&self, count: usize) -> Vec<(String, Value)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.requests.lock().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.requests.lock());
            sleep(Duration::from_millis(5)).await;
        }
        self.requests.lock().clone()
    }
}

/// The next request of a connection.
async fn request(
    stream: &mut tokio::net::TcpStream,
    buffer: &mut Vec<u8>,
) -> Option<(String, Value)> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_ascii_lowercase()
                .split("content-length: ")
                .nth(1)?
                .lines()
                .next()?
                .parse()
                .ok()?;
            if body.len() >= length {
                buffer.drain(..head.len() + 4 + length);
                let path = head.split(' ').nth(1)?.to_owned();
                return Some((path, serde_json::from_str(&body[..length]).ok()?));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
