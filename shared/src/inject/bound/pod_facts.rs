//! Derives from a pod what our containers must know of it.

use super::facts::{Facts, METRICS_PORT, USER};
use super::names::{HANDLER, METRICS_ADDR, TARGET_URL};
use super::ours::{Ours, variable};
use super::plan::BoundPlan;
use super::pod::PodView;
use super::resources::quality;
use crate::names::{ADAPTERS, RUNTIME_CONTAINER, SIDECAR_CONTAINER};
use crate::resolve::{ContainerShape, DEFAULT_CONTAINER};

impl Facts {
    /// Derives the facts from a pod. Values that an earlier injection has set (`standing`) are kept where possible,
    /// because other controllers may since have put containers before the model's. `None` if the model's URL cannot be
    /// determined.
    pub(super) fn of(pod: &PodView<'_>, plan: &BoundPlan, standing: Option<&Ours>) -> Option<Self> {
        let told = |container: &str, name: &str| {
            standing
                .and_then(|ours| variable(&ours.first(container)?.value, name))
                .filter(|value| !value.is_empty())
        };
        let told_url = told(RUNTIME_CONTAINER, TARGET_URL);
        let told_handler = told(RUNTIME_CONTAINER, HANDLER);
        let (target_url, handler) = match (&plan.target_url, &plan.handler, told_url, told_handler)
        {
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
        let told_port =
            told(SIDECAR_CONTAINER, METRICS_ADDR).and_then(|it| it.strip_prefix(':')?.parse().ok());
        Some(Self {
            target_url,
            handler,
            metrics_port: (!plan.metrics_given).then(|| metrics_port(pod, told_port)),
            user: user(pod, plan),
            quality: quality(pod),
        })
    }
}

fn metrics_port(pod: &PodView<'_>, told: Option<u16>) -> u16 {
    let free = |port: &u16| !pod.declares(*port);
    told.filter(|port| *port >= METRICS_PORT && free(port))
        .or_else(|| (METRICS_PORT..=u16::MAX).find(free))
        .unwrap_or(METRICS_PORT)
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
