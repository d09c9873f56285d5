//! The way to a broker: through a port-forward if it is a Service of the cluster, otherwise directly.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::answer::Failure;
use crate::cluster::{Cluster, is_ready, resource};

/// A listener on the loopback address whose connections lead to a pod. Dropping it ends them.
pub struct Forward {
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards a port if the host is a Service of the cluster.
///
/// # Errors
/// If the Service has no ready pod, or may not be read.
pub async fn forward(
    cluster: &Arc<Cluster>,
    host: &str,
    port: u16,
) -> Result<Option<Forward>, Failure> {
    let namespaces = [&*cluster.operator_namespace, &*cluster.namespace];
    for (namespace, name) in services(host, namespaces) {
        let kind = resource::<Service>();
        let found = cluster.get(&kind, Some(&namespace), &name).await?;
        let Some(service) = found else {
            continue;
        };
        let Some(selector) = selector(&service) else {
            continue;
        };
        let params = ListParams::default().labels(&selector);
        let kind = resource::<Pod>();
        let pods = cluster.list_with(&kind, Some(&namespace), params).await?;
        let target = pods.iter().find_map(|pod| target(&service, port, pod));
        let Some((pod, port)) = target else {
            return Err(Failure::new(format!(
                "Service {namespace}/{name} has no ready pod with port {port}; check the broker, or pass --address"
            )));
        };
        return listen(cluster, namespace, pod, port).await.map(Some);
    }
    Ok(None)
}

async fn listen(
    cluster: &Arc<Cluster>,
    namespace: String,
    pod: String,
    port: u16,
) -> Result<Forward, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot listen: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // The first forward is opened here, so that a missing permission is the error.
    let mut first = Some(cluster.port_forward(&namespace, &pod, port).await?);
    let cluster = Arc::clone(cluster);
    let accepting = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let far = match first.take() {
                Some(far) => Ok(far),
                None => cluster.port_forward(&namespace, &pod, port).await,
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

/// Services that a host name may stand for, as (namespace, name): pods see Services of their own namespace by bare
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
}
