//! Owners that remember on a workload what they wrote last, and compare with that (SIM-5).
//!
//! What others added makes no difference to them. Once a field of their own differs, they replace the whole spec, all
//! labels and all annotations by a PUT; replicas that they do not set are kept.

use serde_json::{Value, json};

use super::hand::name;
use super::merge::three_way;
use super::workload::annotation;
use super::{Hand, Kind};
use crate::error::Result;

/// Keeps a workload as wished; `key` names the annotation that remembers.
pub(super) async fn keep(hand: &Hand, kind: Kind, key: &str, wanted: &Value) -> Result<()> {
    let mut next = wanted.clone();
    if !next["metadata"]["annotations"].is_object() {
        next["metadata"]["annotations"] = json!({});
    }
    next["metadata"]["annotations"][key] = json!(json!({"spec": wanted["spec"]}).to_string());
    let Some(live) = hand.get(kind, name(wanted)).await? else {
        hand.create(kind, &next).await?;
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
    hand.put(kind, &next).await.map(drop)
}
