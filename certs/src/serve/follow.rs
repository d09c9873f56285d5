//! Follows the changes of the Secret.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use super::Certificates;
use crate::watch::{SecretWatch, Seen};

/// How often the leaf is re-evaluated, because the wall clock may have moved.
const LOOK: Duration = Duration::from_secs(30);

pub(super) async fn follow(
    certificates: Certificates,
    client: Client,
    namespace: &str,
    name: &str,
) {
    let mut watch = SecretWatch::new(client, namespace, name);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            seen = watch.next() => match seen {
                Seen::Now(secret) => {
                    certificates.offer(secret.map(|secret| secret.data), Timestamp::now());
                }
                Seen::Blind(reason) => certificates.unread(&reason),
            },
            _ = look.tick() => certificates.look(Timestamp::now()),
        }
    }
}
