//! Reaches a broker: through a port-forward if it is a Service in the cluster, otherwise directly.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::answer::{Failure, within};
use crate::cluster::{ApiFailure, Cluster, is_ready, resource};

/// A listener on the loopback address whose connections lead to a pod. Dropping it closes them.
pub struct Forward {
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A port-forward to a host, or why there is none.
#[derive(Default)]
pub struct ForwardAttempt {
    /// `None`: connect directly.
    pub forward: Option<Forward>,
    /// Permissions that were missing for port-forwards.
    denied: Vec<String>,
}

impl ForwardAttempt {
    /// Adds the reason why there is no port-forward to the reason why the host could not be reached.
    pub fn explained(&self, why: Failure) -> Failure {
        if self.denied.is_empty() {
            return why;
        }
        let denied = self.denied.join("; ");
        Failure::new(format!("{why}; there was no port-forward: {denied}"))
    }
}

/// Why a Service is not reached through a port-forward.
enum Obstacle {
    /// The user lacks a permission. The broker may be reachable nevertheless.
    Denied(String),
    Failed(Failure),
}

impl From<Failure> for Obstacle {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<ApiFailure> for Obstacle {
    fn from(failure: ApiFailure) -> Self {
        if failure.is_forbidden {
            Self::Denied(failure.text)
        } else {
            Self::Failed(failure.into())
        }
    }
}

/// Forwards a port if the host is a Service in the cluster to which the user may open a port-forward. `timeout` limits
/// each attempt to open one, but not the traffic through it.
///
/// # Errors
/// If the Service has no ready pod, or the API server fails.
pub async fn forward(
    cluster: &Arc<Cluster>,
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<ForwardAttempt, Failure> {
    let namespaces = [&*cluster.operator_namespace, &*cluster.namespace];
    let mut attempt = ForwardAttempt::default();
    for (namespace, name) in services(host, namespaces) {
        let opening = to_service(cluster, &namespace, &name, port, timeout);
        match within(timeout, opening).await {
            Ok(None) => {}
            Ok(forward) => {
                attempt.forward = forward;
                break;
            }
            Err(Obstacle::Denied(why)) => attempt.denied.push(why),
            Err(Obstacle::Failed(why)) => return Err(why),
        }
    }
    Ok(attempt)
}

/// Forwards a port of a Service; `None` if it does not exist or selects no pods.
async fn to_service(
    cluster: &Arc<Cluster>,
    namespace: &str,
    name: &str,
    port: u16,
    timeout: Duration,
) -> Result<Option<Forward>, Obstacle> {
    let kind = resource::<Service>();
    let Some(service) = cluster.get(&kind, Some(namespace), name).await? else {
        return Ok(None);
    };
    let Some(selector) = selector(&service) else {
        return Ok(None);
    };
    let params = ListParams::default().labels(&selector);
    let kind = resource::<Pod>();
    let pods = cluster.list_with(&kind, Some(namespace), params).await?;
    let target = pods.iter().find_map(|pod| target(&service, port, pod));
    let Some((pod, port)) = target else {
        return Err(Obstacle::Failed(Failure::new(format!(
            "Service {namespace}/{name} has no ready pod with port {port}; check the broker, or pass --address"
        ))));
    };
    listen(cluster, namespace.to_owned(), pod, port, timeout)
        .await
        .map(Some)
}

async fn listen(
    cluster: &Arc<Cluster>,
    namespace: String,
    pod: String,
    port: u16,
    timeout: Duration,
) -> Result<Forward, Obstacle> {
    let failed =
        |error: std::io::Error| Obstacle::Failed(Failure::new(format!("cannot listen: {error}")));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // The first forward is opened now, so that a missing permission is noticed before anything connects.
    let mut first = Some(cluster.port_forward(&namespace, &pod, port).await?);
    let cluster = Arc::clone(cluster);
    let accepting = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let far = if let Some(far) = first.take() {
                Ok(far)
            } else {
                let opening = cluster.port_forward(&namespace, &pod, port);
                within(timeout, async { Ok::<_, Failure>(opening.await?) }).await
            };
            // The client sees its connection closed.
            let Ok(mut far) = far else { continue };
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    Ok(Forward { address, accepting })
}

/// Services that a host name may stand for, as (namespace, name). Pods address Services in their own namespace by bare
/// names.
fn services(host: &str, namespaces: [&str; 2]) -> Vec<(String, String)> {
    let address = host.trim_matches(['[', ']']);
    if address.parse::<IpAddr>().is_ok() || host == "localhost" {
        return Vec::new();
    }
    let of = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    match host.split('.').collect::<Vec<_>>()[..] {
        [name] => namespaces.map(|namespace| of(namespace, name)).to_vec(),
        [name, namespace] | [name, namespace, "svc", ..] => vec![of(namespace, name)],
        _ => Vec::new(),
    }
}

fn selector(service: &Value) -> Option<String> {
    let labels = service["spec"]["selector"].as_object()?;
    let labels = labels.iter();
    let pairs: Vec<String> = labels
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    Some(pairs.join(",")).filter(|selector| !selector.is_empty())
}

/// Name and port of a ready pod behind a Service's port.
fn target(service: &Value, port: u16, pod: &Value) -> Option<(String, u16)> {
    if !is_ready(pod) {
        return None;
    }
    let ports = service["spec"]["ports"].as_array()?;
    let forwarded = ports.iter().find(|it| it["port"] == port)?;
    let port = match &forwarded["targetPort"] {
        Value::String(name) => named_port(pod, name)?,
        Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
        _ => port,
    };
    Some((pod["metadata"]["name"].as_str()?.to_owned(), port))
}

fn named_port(pod: &Value, name: &str) -> Option<u16> {
    let containers = pod["spec"]["containers"].as_array()?.iter();
    let mut ports = containers.flat_map(|it| it["ports"].as_array().into_iter().flatten());
    let port = ports.find(|port| port["name"] == *name)?;
    u16::try_from(port["containerPort"].as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[test]
    fn host_names_of_services_are_told_from_others() {
        let all = |host| services(host, ["asya-system", "models"]);
        let pair = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        assert_eq!(
            all("rabbitmq"),
            [pair("asya-system", "rabbitmq"), pair("models", "rabbitmq")]
        );
        for host in [
            "rabbitmq.mq",
            "rabbitmq.mq.svc",
            "rabbitmq.mq.svc.cluster.local",
        ] {
            assert_eq!(all(host), [pair("mq", "rabbitmq")], "{host}");
        }
        for host in [
            "127.0.0.1",
            "[::1]",
            "localhost",
            "b-1.mq.eu-west-1.amazonaws.com",
        ] {
            assert_eq!(all(host), [], "{host}");
        }
    }

    #[test]
    fn target_is_a_ready_pod_and_the_port_of_its_container() {
        let service = json!({"spec": {
            "selector": {"app": "mq", "tier": "data"},
            "ports": [{"port": 5672, "targetPort": "amqp"}, {"port": 15672, "targetPort": 9000}, {"port": 80}],
        }});
        let pod = |ready: &str| {
            json!({
                "metadata": {"name": "mq-0"},
                "spec": {"containers": [{"ports": [{"name": "amqp", "containerPort": 5673}]}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        assert_eq!(selector(&service).as_deref(), Some("app=mq,tier=data"));
        for (port, found) in [
            (5672, Some(5673)),
            (15672, Some(9000)),
            (80, Some(80)),
            (1, None),
        ] {
            let target = target(&service, port, &pod("True"));
            assert_eq!(
                target,
                found.map(|port| ("mq-0".to_owned(), port)),
                "{port}"
            );
        }
        assert_eq!(target(&service, 5672, &pod("False")), None);
    }

    const SOON: Duration = Duration::from_secs(15);

    /// A cluster that responds to each read with this status, and records its path.
    fn answering(code: u16, asked: &Arc<Mutex<Vec<String>>>) -> Arc<Cluster> {
        let asked = Arc::clone(asked);
        let answer = move |request: Request<Body>| {
            asked.lock().unwrap().push(request.uri().path().to_owned());
            let status = json!({
                "kind": "Status", "status": "Failure", "code": code,
                "message": "services \"mq\" is forbidden: User \"a\" cannot get resource \"services\"",
            });
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(code).body(body);
            async move { response.map_err(tower::BoxError::from) }
        };
        Arc::new(Cluster::of(Client::new(
            tower::service_fn(answer),
            "models",
        )))
    }

    #[tokio::test]
    async fn missing_permission_for_a_service_leaves_the_other_candidates_and_a_direct_connection()
    {
        let asked = Arc::default();
        let cluster = answering(403, &asked);
        let attempt = forward(&cluster, "mq", 5672, SOON).await.unwrap();
        assert!(attempt.forward.is_none());
        let paths = ["asya-system", "models"]
            .map(|namespace| format!("/api/v1/namespaces/{namespace}/services/mq"));
        assert_eq!(*asked.lock().unwrap(), paths);
        let text = attempt
            .explained(Failure::new("cannot reach it"))
            .to_string();
        assert!(
            text.starts_with(
                "cannot reach it; there was no port-forward: you may not get services"
            ),
            "{text}"
        );
    }

    #[tokio::test]
    async fn api_server_that_fails_is_an_error() {
        let cluster = answering(500, &Arc::default());
        assert!(forward(&cluster, "mq", 5672, SOON).await.is_err());
    }
}
