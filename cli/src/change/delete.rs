//! Deletes an actor as the user has seen it: with another spec or annotation, its queue might be affected differently.

use asya_shared::api::AsyncActor;
use kube::api::Preconditions;
use serde_json::Value;

use crate::answer::Failure;
use crate::cluster::{Cluster, resource};

/// The operator may write the actor's status between each read and the deletion.
const ATTEMPTS: u32 = 5;

/// Deletes an actor if it is still as `expected`.
///
/// # Errors
/// If it has changed, or the API server refuses the deletion.
pub async fn delete(
    cluster: &Cluster,
    name: &str,
    expected: &Value,
    dry_run: bool,
) -> Result<(), Failure> {
    let mut attempts = 1;
    loop {
        let current = cluster.actor(name).await?;
        must_be_as_shown(name, expected, &current)?;
        let text = |field: &str| current["metadata"][field].as_str().map(str::to_owned);
        let preconditions = Preconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        };
        let kind = resource::<AsyncActor>();
        let deleted = cluster.delete(&kind, name, preconditions, dry_run).await;
        match deleted {
            Err(why) if why.is_conflict && attempts < ATTEMPTS => attempts += 1,
            result => return Ok(result?),
        }
    }
}

fn must_be_as_shown(name: &str, expected: &Value, current: &Value) -> Result<(), Failure> {
    let what = |actor: &Value| {
        let metadata = &actor["metadata"];
        [
            metadata["uid"].clone(),
            metadata["annotations"].clone(),
            actor["spec"].clone(),
        ]
    };
    if what(expected) == what(current) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "AsyncActor {name} has changed since this was shown, and is not deleted; run the command again"
    )))
}

/// Applies a merge patch to an object, as the API server does.
pub fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        patch.clone_into(object);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (name, change) in changes {
        match (object.as_object_mut(), change) {
            (Some(fields), Value::Null) => drop(fields.remove(name)),
            (Some(fields), change) => {
                merge(fields.entry(name).or_insert(Value::Null), change);
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::super::{RequestedChange, carry_out};
    use super::*;
    use crate::args::{ConsentArgs, DryRun};
    use crate::output::Format;

    /// An API server with one actor, which other clients write before it receives a deletion.
    struct Server {
        actor: Value,
        /// The writes of other clients, one before each deletion.
        others: Vec<Value>,
        /// The status code with which it refuses deletions.
        refuses: Option<u16>,
        is_deleted: bool,
    }

    impl Server {
        fn write(&mut self, patch: &Value) {
            merge(&mut self.actor, patch);
            let version = &self.actor["metadata"]["resourceVersion"];
            let version: u32 = version.as_str().unwrap().parse().unwrap();
            self.actor["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        }

        fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, Value) {
            let failure = |code: u16| json!({"kind": "Status", "status": "Failure", "code": code, "message": "refused"});
            match *method {
                Method::PATCH => self.write(&serde_json::from_slice(body).unwrap()),
                Method::DELETE => {
                    if let Some(code) = self.refuses {
                        return (code, failure(code));
                    }
                    if let Some(other) = self.others.pop() {
                        self.write(&other);
                    }
                    let params: Value = serde_json::from_slice(body).unwrap();
                    let metadata = &self.actor["metadata"];
                    for field in ["uid", "resourceVersion"] {
                        if params["preconditions"][field] != metadata[field] {
                            return (409, failure(409));
                        }
                    }
                    self.is_deleted = true;
                }
                _ => {}
            }
            (200, self.actor.clone())
        }
    }

    /// Runs `unbind --keep-queue`; returns the failure, if any, and whether the actor was deleted.
    async fn unbound(others: Vec<Value>, refuses: Option<u16>) -> (Option<String>, bool) {
        let actor = json!({
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
            "metadata": {"name": "e", "namespace": "m", "uid": "u", "resourceVersion": "1"},
            "spec": {"transport": "mq", "workloadRef": {"kind": "Deployment", "name": "e"}},
        });
        let server = Arc::new(Mutex::new(Server {
            actor: actor.clone(),
            others,
            refuses,
            is_deleted: false,
        }));
        let shared = server.clone();
        let answer = move |request: Request<Body>| {
            let server = shared.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (code, answer) = server.lock().unwrap().answer(&head.method, &body);
                let response = Response::builder().status(code);
                response
                    .body(Body::from(answer.to_string().into_bytes()))
                    .map_err(tower::BoxError::from)
            }
        };
        let cluster = Cluster::of(Client::new(tower::service_fn(answer), "m"));
        let consent = ConsentArgs {
            yes: true,
            dry_run: DryRun::None,
        };
        let action = RequestedChange::Unbind { keep_queue: true };
        let result = carry_out(&cluster, "e", &actor, action, consent, Format::Table).await;
        let is_deleted = server.lock().unwrap().is_deleted;
        (result.err().map(|why| why.to_string()), is_deleted)
    }

    const WRITTEN: &str = "; written before that: spec.queue.deletionPolicy: absent -> \"Retain\"";

    /// QUE-30: the operator may write the status at any time.
    #[tokio::test]
    async fn actor_whose_status_is_written_meanwhile_is_deleted_all_the_same() {
        let status = json!({"status": {"queuedMessages": 1}});
        assert_eq!(
            unbound(vec![status.clone(), status], None).await,
            (None, true)
        );
    }

    /// QUE-30: someone sets another deletion policy after this program has set Retain.
    #[tokio::test]
    async fn actor_that_has_changed_since_it_was_shown_is_not_deleted() {
        for change in [
            json!({"spec": {"queue": {"deletionPolicy": "Delete"}}}),
            json!({"metadata": {"annotations": {"asya.sh/skip-unbind": "true"}}}),
        ] {
            let expected = format!(
                "AsyncActor e has changed since this was shown, and is not deleted; run the command again{WRITTEN}"
            );
            let found = unbound(vec![change], None).await;
            assert_eq!(found, (Some(expected), false));
        }
    }

    #[tokio::test]
    async fn failed_deletion_says_what_was_written_before() {
        let (failed, is_deleted) = unbound(Vec::new(), Some(403)).await;
        let failed = failed.unwrap();
        assert!(failed.ends_with(WRITTEN), "{failed}");
        assert!(!is_deleted);
    }
}
