//! The gateway, and fakes of a broker that rejects requests.

use asya_tests::error::{Error, Result};
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::proxy::Proxy;

const THROTTLED: &str = r#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow down"}"#;
const JSON: [(axum::http::HeaderName, &str); 1] = [(CONTENT_TYPE, "application/x-amz-json-1.0")];

/// Servers that stop when dropped.
pub struct Servers {
    /// A proxy in front of a gateway that accepts every report.
    pub gateway: Proxy,
    /// The port of a server that returns 503.
    pub unavailable: u16,
    /// The port of an SQS server that throttles.
    pub throttling: u16,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    pub async fn start() -> Result<Self> {
        let (gateway, accepting) = serve(StatusCode::OK, "{}").await?;
        let (unavailable, failing) = serve(StatusCode::SERVICE_UNAVAILABLE, "").await?;
        let (throttling, refusing) = serve(StatusCode::BAD_REQUEST, THROTTLED).await?;
        Ok(Self {
            gateway: Proxy::start(gateway).await?,
            unavailable,
            throttling,
            tasks: vec![accepting, failing, refusing],
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Starts a server that always returns the same response; returns its port.
async fn serve(status: StatusCode, body: &'static str) -> Result<(u16, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(Error::other)?;
    let port = listener.local_addr().map_err(Error::other)?.port();
    let app = Router::new().fallback(async move || (status, JSON, body));
    let task = tokio::spawn(async move {
        let _ = axum::serve(listener, app).await;
    });
    Ok((port, task))
}
