//! HTTP client for one server: a single keep-alive connection, no redirects, short timeouts.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::Secret;
use crate::lookup::Lookup;
use crate::tls;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response body that is read, in bytes, and how long that may take.
const MAX_RESPONSE: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A server and the base path of requests.
#[derive(Clone)]
pub struct Endpoint {
    lookup: Lookup,
    authority: String,
    base: String,
    tls: Option<Arc<ClientConfig>>,
}

pub struct Client {
    endpoint: Endpoint,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Endpoint {
    /// Parses a URL that the configuration has validated.
    ///
    /// # Errors
    /// If the URL is invalid, or the TLS configuration cannot be built.
    pub fn parse(url: &str) -> io::Result<Self> {
        let uri: Uri = url.parse().map_err(io::Error::other)?;
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self {
            lookup: Lookup::new(host, port),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            base: uri.path().trim_end_matches('/').to_owned(),
            tls: if is_tls {
                Some(tls::client(None)?)
            } else {
                None
            },
        })
    }

    /// The request target, which must not be empty.
    fn target(&self, path: &str) -> String {
        let target = format!("{}{path}", self.base);
        if target.is_empty() {
            "/".to_owned()
        } else {
            target
        }
    }
}

impl Client {
    /// Creates a client, which connects with its first request.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connection: None,
        }
    }

    /// Posts JSON and returns the status of the response.
    ///
    /// # Errors
    /// If the server cannot be reached or does not respond in time; [`io::ErrorKind::InvalidInput`] if the request
    /// cannot be built, for example because its path is too long.
    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(String, Secret)],
        body: Bytes,
    ) -> io::Result<u16> {
        let uri = Uri::try_from(self.endpoint.target(path));
        let uri = uri.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let kept = self
            .connection
            .take_if(|connection| !connection.is_closed());
        let response = timeout(REQUEST_TIMEOUT, async {
            if let Some(mut connection) = kept
                && connection.ready().await.is_ok()
                && let Ok(response) = self
                    .request(&mut connection, &uri, headers, body.clone())
                    .await
            {
                return Ok((response, connection));
            }
            let mut connection = self.connect().await?;
            let response = self.request(&mut connection, &uri, headers, body).await?;
            Ok::<_, io::Error>((response, connection))
        });
        let (response, connection) = response.await??;
        let status = response.status().as_u16();
        // The server has answered, however long its body is, and however late it was. Once the whole response has been
        // read, the connection can be used again.
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect();
        let is_read = matches!(timeout(DRAIN_TIMEOUT, body).await, Ok(Ok(_)));
        self.connection = Some(connection).filter(|_| is_read);
        Ok(status)
    }

    async fn request(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        uri: &Uri,
        headers: &[(String, Secret)],
        body: Bytes,
    ) -> io::Result<Response<Incoming>> {
        let mut request = Request::post(uri)
            .header(HOST, &self.endpoint.authority)
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value.reveal());
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let response = connection.send_request(request).await;
        response.map_err(io::Error::other)
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let Endpoint { lookup, tls, .. } = &self.endpoint;
        let addresses = lookup.addresses().await?;
        if addresses.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        stream.set_nodelay(true)?;
        match tls {
            None => open(stream).await,
            Some(config) => {
                let name =
                    ServerName::try_from(lookup.host().to_owned()).map_err(io::Error::other)?;
                open(
                    TlsConnector::from(config.clone())
                        .connect(name, stream)
                        .await?,
                )
                .await
            }
        }
    }
}

async fn open<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::{Client, Endpoint, MAX_RESPONSE, REQUEST_TIMEOUT};

    /// SC-89, SC-90: as the next one, if the response is late, too.
    #[tokio::test(start_paused = true)]
    async fn late_response_counts_by_its_status_even_if_its_body_does_not_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"{}") && stream.read_buf(&mut request).await.is_ok() {}
            sleep(REQUEST_TIMEOUT.mul_f32(0.9)).await;
            let answer = "HTTP/1.1 201 x\r\ncontent-length: 10\r\n\r\nx";
            let _ = stream.write_all(answer.as_bytes()).await;
            // Neither the rest nor an end follows.
            pending::<()>().await;
        });
        let mut client = Client::new(Endpoint::parse(&url).expect("a URL"));
        let status = client.post("/", &[], "{}".into()).await;
        assert_eq!(status.expect("a response"), 201);
    }

    /// SC-89, SC-90: a report that was accepted must not be sent again.
    #[tokio::test]
    async fn response_counts_by_its_status_however_long_its_body_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = requests.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = Vec::new();
                while !request.ends_with(b"{}") && stream.read_buf(&mut request).await.is_ok() {}
                seen.fetch_add(1, Ordering::Relaxed);
                let body = "x".repeat(2 * MAX_RESPONSE);
                let length = body.len();
                let answer = format!("HTTP/1.1 201 x\r\ncontent-length: {length}\r\n\r\n{body}");
                // The client may hang up before it has read everything.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let mut client = Client::new(Endpoint::parse(&url).expect("a URL"));
        for count in 1..3 {
            let status = client.post("/", &[], "{}".into()).await;
            assert_eq!(status.expect("a response"), 201);
            assert_eq!(requests.load(Ordering::Relaxed), count);
        }
    }
}
