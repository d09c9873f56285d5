//! Derives the properties of a pod that the injected containers depend on.

use super::existing::{ExistingItems, variable};
use super::names::{HANDLER, METRICS_ADDR, TARGET_URL};
use super::plan::BoundPlan;
use super::pod::PodView;
use super::pod_properties::{PodProperties, USER};
use super::resources::qos_class;
use crate::inject::sidecar::{DEFAULT_GRACE_SECONDS, OTHER_METRICS_PORT, free_metrics_port};
use crate::names::{ADAPTERS, RUNTIME_CONTAINER, SIDECAR_CONTAINER};
use crate::resolve::{ContainerShape, DEFAULT_CONTAINER};

impl PodProperties {
    /// Derives the properties from a pod. Values that an earlier injection has set (`existing`) are kept where
    /// possible, because other controllers may since have put containers before the model's. `None` if the model's URL
    /// cannot be determined.
    pub(super) fn from_pod(
        pod: &PodView<'_>,
        plan: &BoundPlan,
        existing: Option<&ExistingItems>,
    ) -> Option<Self> {
        let existing_env = |container: &str, name: &str| {
            existing
                .and_then(|items| variable(&items.first(container)?.value, name))
                .filter(|value| !value.is_empty())
        };
        let existing_url = existing_env(RUNTIME_CONTAINER, TARGET_URL);
        let existing_handler = existing_env(RUNTIME_CONTAINER, HANDLER);
        let (target_url, handler) = match (
            &plan.target_url,
            &plan.handler,
            existing_url,
            existing_handler,
        ) {
            (Some(url), Some(handler), ..) => (url.clone(), handler.clone()),
            (given_url, given_handler, Some(url), Some(handler)) => (
                given_url.clone().unwrap_or(url),
                given_handler.clone().unwrap_or(handler),
            ),
            (given_url, given_handler, ..) => {
                let shapes: Vec<ContainerShape<'_>> = pod
                    .spec
                    .containers
                    .iter()
                    .map(super::pod::Container::shape)
                    .filter(|it| ![RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&it.name))
                    .collect();
                let server = plan
                    .resolver
                    .server(&shapes, pod.annotation(DEFAULT_CONTAINER));
                let url = given_url.clone().or(server.url)?;
                let handler = given_handler.clone();
                let adapter = plan.adapter.unwrap_or(server.adapter);
                (
                    url,
                    handler.unwrap_or_else(|| format!("{ADAPTERS}.{adapter}")),
                )
            }
        };
        let existing_port = existing_env(SIDECAR_CONTAINER, METRICS_ADDR)
            .and_then(|it| it.strip_prefix(':')?.parse().ok());
        Some(Self {
            target_url,
            handler,
            metrics_port: (!plan.metrics_given).then(|| metrics_port(pod, existing_port)),
            user: user(pod, plan),
            qos_class: qos_class(pod),
            grace_seconds: pod
                .spec
                .termination_grace_period_seconds
                .unwrap_or(DEFAULT_GRACE_SECONDS),
        })
    }
}

/// The sidecar's own default is the model's port in `KServe` and Knative (BIND-24).
fn metrics_port(pod: &PodView<'_>, existing: Option<u16>) -> u16 {
    existing
        .filter(|port| *port >= OTHER_METRICS_PORT && !pod.declares(*port))
        .unwrap_or_else(|| free_metrics_port(|port| pod.declares(port)))
}

/// Both containers run as the same user, because only the socket's owner can use it. They never run as root.
fn user(pod: &PodView<'_>, plan: &BoundPlan) -> Option<i64> {
    let of_pod = pod.run_as_user().filter(|user| *user != 0);
    match (plan.user, of_pod) {
        (Some(user), _) => Some(user),
        _ if plan.openshift => None,
        (None, of_pod) => Some(of_pod.unwrap_or(USER)),
    }
}
