//! Follows the changes of the Secret.

use std::time::Duration;

use asya_process::clock;
use kube::Client;

use super::Certificates;
use crate::watch::{Observation, SecretWatch};

/// How often the leaf is re-evaluated, because the wall clock may have moved.
const REEVALUATE_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn follow(
    certificates: Certificates,
    client: Client,
    namespace: &str,
    name: &str,
) {
    let mut watch = SecretWatch::new(client, namespace, name);
    let mut interval = tokio::time::interval(REEVALUATE_INTERVAL);
    loop {
        tokio::select! {
            // In a fixed order, so that a simulation can be repeated.
            biased;
            observation = watch.next() => match observation {
                Observation::Current(secret) => {
                    certificates.update_secret(secret.map(|secret| secret.data), clock::now());
                }
                Observation::Unavailable(reason) => certificates.record_read_error(&reason),
            },
            _ = interval.tick() => certificates.reevaluate(clock::now()),
        }
    }
}
