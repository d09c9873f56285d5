//! Opens the cluster of the user's kubeconfig.

use std::env;
use std::sync::OnceLock;

use kube::config::KubeConfigOptions;
use kube::{Client, Config};

use super::{Cluster, failure, kubeconfig, proxy};
use crate::answer::Failure;
use crate::args::ConnectionArgs;

/// How to reach the cluster. Only commands that need it connect.
pub struct Connection {
    args: ConnectionArgs,
    /// The client for requests, reused once created: each new client would run the user's credential plugin again.
    requests: OnceLock<Cluster>,
    /// The same for streams.
    streams: OnceLock<Cluster>,
}

/// What a connection to the API server is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Responses, which must begin and continue within the timeout.
    Requests,
    /// Also streams, which may be idle for any length of time.
    Streams,
}

impl Connection {
    pub fn new(args: ConnectionArgs) -> Self {
        Self {
            args,
            requests: OnceLock::new(),
            streams: OnceLock::new(),
        }
    }

    pub fn args(&self) -> &ConnectionArgs {
        &self.args
    }

    /// The value of `--namespace`, for commands that need no cluster.
    pub fn namespace(&self) -> Option<&str> {
        self.args.namespace.as_deref()
    }

    /// The value of `--operator-namespace`.
    pub fn operator_namespace(&self) -> &str {
        &self.args.operator_namespace
    }

    /// Reads the kubeconfig, and runs its credential plugin, which may wait for the user; sends no request. Later calls
    /// return the same cluster.
    ///
    /// # Errors
    /// If there is no usable kubeconfig.
    pub async fn open(&self) -> Result<Cluster, Failure> {
        self.kept(&self.requests, Traffic::Requests).await
    }

    /// Like [`Connection::open`], for streams: a watch is idle while nothing changes, and a port-forward while the user
    /// is asked. The caller must limit the time of all other requests.
    ///
    /// # Errors
    /// If there is no usable kubeconfig.
    pub async fn open_for_streams(&self) -> Result<Cluster, Failure> {
        self.kept(&self.streams, Traffic::Streams).await
    }

    async fn kept(&self, kept: &OnceLock<Cluster>, traffic: Traffic) -> Result<Cluster, Failure> {
        if let Some(cluster) = kept.get() {
            return Ok(cluster.clone());
        }
        let cluster = self.cluster(self.config().await?, traffic)?;
        Ok(kept.get_or_init(|| cluster).clone())
    }

    fn cluster(&self, mut config: Config, traffic: Traffic) -> Result<Cluster, Failure> {
        let args = &self.args;
        config.connect_timeout = Some(args.timeout);
        config.read_timeout = match traffic {
            Traffic::Requests => Some(args.timeout),
            Traffic::Streams => None,
        };
        // The timeout of a response starts with its request, since the connection may have been idle while the user was
        // asked.
        config.reset_reader_on_write = true;
        // A waiting user should see the error at once, and can repeat the command if it is worth it.
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| {
            Failure::new(format!(
                "kubeconfig: {error}; compare with `kubectl config view --minify`"
            ))
        })?;
        Ok(Cluster {
            client,
            namespace: args.namespace.clone().unwrap_or(namespace),
            operator_namespace: args.operator_namespace.clone(),
            server: server.trim_end_matches('/').to_owned(),
        })
    }

    async fn config(&self) -> Result<Config, Failure> {
        let args = &self.args;
        let unusable = |error| failure::unusable(&error, args.kubeconfig.as_deref());
        let kubeconfig = kubeconfig::read(args.kubeconfig.as_deref()).map_err(unusable)?;
        let proxy_url = kubeconfig::proxy_url(&kubeconfig, args.context.as_deref());
        let options = KubeConfigOptions {
            context: args.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(unusable)?;
        config.proxy_url = proxy::of(&config.cluster_url, proxy_url, |name| env::var(name).ok())?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use http::Request;
    use kube::client::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn connection(kubeconfig: Option<PathBuf>) -> Connection {
        Connection::new(ConnectionArgs {
            kubeconfig,
            context: None,
            namespace: None,
            operator_namespace: "asya-system".to_owned(),
            timeout: Duration::from_secs(15),
        })
    }

    /// docs/cli.md: a watch does not log in again for each answer.
    #[tokio::test]
    async fn kubeconfig_is_read_once_for_requests_and_once_for_streams() {
        let file = std::env::temp_dir().join(format!("asya-once-{}.yaml", std::process::id()));
        let text = "current-context: c
contexts: [{name: c, context: {cluster: c, namespace: models}}]
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
";
        std::fs::write(&file, text).unwrap();
        let connection = connection(Some(file.clone()));
        assert!(connection.open().await.is_ok());
        assert!(connection.open_for_streams().await.is_ok());
        std::fs::remove_file(&file).unwrap();
        let opened = [connection.open().await, connection.open_for_streams().await];
        assert!(
            opened
                .iter()
                .all(|it| it.as_ref().is_ok_and(|it| it.namespace == "models"))
        );
    }

    /// An API server that has sent only the first half of a body, `he`.
    async fn half_answered(traffic: Traffic) -> (TcpStream, http::Response<Body>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connection = connection(None);
        let config = Config::new(url.parse().unwrap());
        let cluster = connection.cluster(config, traffic).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe";
            stream.write_all(head).await.unwrap();
            stream
        };
        let request = Request::get("/").body(Body::empty()).unwrap();
        let (stream, response) = tokio::join!(server, cluster.client.send(request));
        (stream, response.unwrap())
    }

    /// Returns once all tasks wait for the server or the clock.
    async fn all_waiting() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// A prompt may wait for hours, and meanwhile a port-forward to a broker may be idle.
    #[tokio::test]
    async fn only_a_connection_for_streams_may_be_silent_for_longer_than_the_timeout() {
        for traffic in [Traffic::Streams, Traffic::Requests] {
            let (mut stream, response) = half_answered(traffic).await;
            let reading = tokio::spawn(response.into_body().collect_bytes());
            all_waiting().await;
            tokio::time::pause();
            tokio::time::advance(Duration::from_hours(1)).await;
            all_waiting().await;
            if traffic == Traffic::Streams {
                stream.write_all(b"re").await.unwrap();
            }
            let body = reading.await.unwrap();
            let body = body.ok().map(|body| body.to_vec());
            let expected = (traffic == Traffic::Streams).then(|| b"here".to_vec());
            assert_eq!(body, expected, "{traffic:?}");
            tokio::time::resume();
        }
    }
}
