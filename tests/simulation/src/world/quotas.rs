//! Quotas: the API server rejects pods that would exceed them.

use std::fmt;

use serde_json::{Value, json};

use super::writer;
use crate::api_server::deletion::Deletion;
use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::api_server::status::Failure;
use crate::api_server::store::{Objects, Store};

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The number of pods.
    Pods,
    /// The sum of the requests, in thousandths of a processor.
    Cpu,
    /// The sum of the requests, in Mi.
    Memory,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Cpu => "requests.cpu",
            Self::Memory => "requests.memory",
        })
    }
}

impl Limited {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pods, Self::Cpu, Self::Memory];

    fn quantity(self, amount: i64) -> String {
        match self {
            Self::Pods => amount.to_string(),
            Self::Cpu => format!("{amount}m"),
            Self::Memory => format!("{amount}Mi"),
        }
    }

    fn amount(self, quantity: &str) -> i64 {
        let number = |text: &str| text.parse().unwrap_or(0);
        match self {
            Self::Pods => number(quantity),
            Self::Cpu => match quantity.strip_suffix('m') {
                Some(thousandths) => number(thousandths),
                None => 1_000 * number(quantity),
            },
            Self::Memory => match quantity.strip_suffix("Gi") {
                Some(gibibytes) => 1_024 * number(gibibytes),
                None => number(quantity.strip_suffix("Mi").unwrap_or_default()),
            },
        }
    }

    /// What a pod uses.
    ///
    /// # Errors
    /// The names of the containers that must say what they request.
    pub fn of_pod(self, pod: &Value) -> Result<i64, String> {
        let requests = match self {
            Self::Pods => return Ok(1),
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        };
        let spec = &pod["spec"];
        let init = spec["initContainers"].as_array().into_iter().flatten();
        let native = init.filter(|it| it["restartPolicy"] == "Always");
        let containers = spec["containers"].as_array().into_iter().flatten();
        let mut silent = Vec::new();
        let mut sum = 0;
        for container in containers.chain(native) {
            match container["resources"]["requests"][requests].as_str() {
                Some(requested) => sum += self.amount(requested),
                None => silent.push(container["name"].as_str().unwrap_or_default()),
            }
        }
        if silent.is_empty() {
            Ok(sum)
        } else {
            Err(silent.join(","))
        }
    }

    /// What all pods of a namespace use.
    #[must_use]
    pub fn used(self, objects: &Objects, namespace: &str) -> i64 {
        let pods = objects.all(&resources::PODS);
        let own = pods.filter(|(id, _)| id.namespace == namespace);
        own.filter_map(|(_, pod)| self.of_pod(pod).ok()).sum()
    }
}

fn quota(namespace: &str) -> Id {
    Id::new(&resources::RESOURCE_QUOTAS, namespace, "team")
}

/// Limits a namespace to what its pods use now and `room` more; less than nothing overdraws the quota at once.
pub fn set(store: &mut Store, namespace: &str, limited: Limited, room: i64) {
    let id = quota(namespace);
    let hard = limited.used(store.objects(), namespace) + room;
    let hard = limited.quantity(hard.max(0));
    let object = json!({"metadata": {}, "spec": {"hard": {limited.to_string(): hard}}});
    remove(store, namespace);
    let _ = store.create(&id, object, &writer("user"));
}

/// What the quota of a namespace limits, and to how much; `None` without a quota.
#[must_use]
pub fn limit(objects: &Objects, namespace: &str) -> Option<(Limited, i64)> {
    let quota = objects.get(&quota(namespace))?;
    let hard = |limited: Limited| {
        let hard = quota["spec"]["hard"][limited.to_string()].as_str();
        hard.map(|hard| (limited, limited.amount(hard)))
    };
    Limited::ALL.into_iter().find_map(hard)
}

/// Removes the quota of a namespace.
pub fn remove(store: &mut Store, namespace: &str) {
    let _ = store.delete(&quota(namespace), &Deletion::default());
}

/// Removes all quotas. Returns whether there was any.
pub fn remove_all(store: &mut Store) -> bool {
    let all = store.all(&resources::RESOURCE_QUOTAS);
    let all: Vec<String> = all.map(|(id, _)| id.namespace.clone()).collect();
    for namespace in &all {
        remove(store, namespace);
    }
    !all.is_empty()
}

/// Rejects a pod that exceeds a quota of its namespace, in the API server's words.
///
/// # Errors
/// If the pod exceeds it, or does not say what it requests.
pub fn check(store: &Store, id: &Id, pod: &Value) -> Result<(), Failure> {
    let Some(quota) = store.get(&quota(&id.namespace)) else {
        return Ok(());
    };
    for limited in Limited::ALL {
        let name = limited.to_string();
        let Some(hard) = quota["spec"]["hard"][&name].as_str() else {
            continue;
        };
        let requested = limited.of_pod(pod).map_err(|silent| {
            let why = format!("failed quota: team: must specify {name} for: {silent}");
            Failure::rejected(id, &why)
        })?;
        let used = limited.used(store.objects(), &id.namespace);
        if used + requested > limited.amount(hard) {
            let amount = |amount| format!("{name}={}", limited.quantity(amount));
            let (requested, used) = (amount(requested), amount(used));
            let why = format!(
                "exceeded quota: team, requested: {requested}, used: {used}, limited: {name}={hard}"
            );
            return Err(Failure::rejected(id, &why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: Option<&str>) -> Value {
        let mut container = json!({"name": "model"});
        if let Some(cpu) = cpu {
            container["resources"]["requests"]["cpu"] = cpu.into();
        }
        json!({"metadata": {}, "spec": {"containers": [container]}})
    }

    /// As an API server of 1.36 words it.
    #[test]
    fn pod_beyond_a_quota_is_rejected_with_what_it_requests() {
        let mut store = Store::default();
        let id = |name| Id::new(&resources::PODS, "team-a", name);
        let _ = store.create(&id("first"), pod(Some("100m")), &writer("user"));
        let rejection = |store: &Store, pod: &Value| {
            check(store, &id("next"), pod).map_err(|it| (it.code, it.message))
        };
        set(&mut store, "team-a", Limited::Cpu, 50);
        assert_eq!(rejection(&store, &pod(Some("50m"))), Ok(()));
        let text = "pods \"next\" is forbidden: exceeded quota: team, requested: requests.cpu=1000m, used: \
                    requests.cpu=100m, limited: requests.cpu=150m";
        assert_eq!(
            rejection(&store, &pod(Some("1"))),
            Err((403, text.to_owned()))
        );
        let text =
            "pods \"next\" is forbidden: failed quota: team: must specify requests.cpu for: model";
        assert_eq!(rejection(&store, &pod(None)), Err((403, text.to_owned())));
        set(&mut store, "team-a", Limited::Pods, 0);
        let text = "pods \"next\" is forbidden: exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1";
        assert_eq!(rejection(&store, &pod(None)), Err((403, text.to_owned())));
        assert!(remove_all(&mut store));
        assert_eq!(rejection(&store, &pod(None)), Ok(()));
    }
}
