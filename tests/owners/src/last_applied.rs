//! Owners that store the last applied spec in an annotation on the workload, and compare with it (SIM-5).
//!
//! They ignore fields that others added. Once one of their own fields differs, a PUT replaces the whole spec, all
//! labels and all annotations. Replicas that they do not set are kept.

use serde_json::{Value, json};

use super::merge::three_way;
use super::recording_client::name;
use super::workload::annotation;
use super::{Kind, RecordingClient};
use crate::error::Result;

/// Reconciles a workload; `key` names the annotation with the last applied spec.
pub(super) async fn keep(
    client: &RecordingClient,
    kind: Kind,
    key: &str,
    wanted: &Value,
) -> Result<()> {
    let mut next = wanted.clone();
    if !next["metadata"]["annotations"].is_object() {
        next["metadata"]["annotations"] = json!({});
    }
    next["metadata"]["annotations"][key] = json!(json!({"spec": wanted["spec"]}).to_string());
    let Some(live) = client.get(kind, name(wanted)).await? else {
        client.create(kind, &next).await?;
        return Ok(());
    };
    let last = annotation(&live, key).map(serde_json::from_str);
    let last: Value = last.transpose()?.unwrap_or_default();
    if three_way(&last["spec"], &wanted["spec"], &live["spec"]).is_none() {
        return Ok(());
    }
    next["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    if wanted["spec"].get("replicas").is_none() {
        next["spec"]["replicas"] = live["spec"]["replicas"].clone();
    }
    client.put(kind, &next).await.map(drop)
}
