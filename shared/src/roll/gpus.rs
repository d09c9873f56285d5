//! GPUs and other accelerators that pods hold (ROLL-7).

use serde_json::Value;

use crate::quantity::Quantity;

/// Parts of the names of resources that are accelerators.
const ACCELERATORS: [&str; 5] = ["gpu", "nvidia.com/", "gaudi", "neuron", "tpu"];

/// Whether pods of this template request accelerators.
#[must_use]
pub fn requests_gpus(template: &Value) -> bool {
    limits(template).next().is_some()
}

/// Number of accelerators that one pod of this template holds. Parts of one are not counted.
#[must_use]
pub fn gpus(template: &Value) -> i64 {
    let quantities = limits(template).filter_map(Quantity::of);
    quantities.fold(0, |sum, quantity| sum.saturating_add(quantity.whole()))
}

fn limits(template: &Value) -> impl Iterator<Item = &Value> {
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    let limits = containers.into_iter().flatten().flat_map(|container| {
        let limits = container.pointer("/resources/limits");
        limits.and_then(Value::as_object).into_iter().flatten()
    });
    let is_accelerator = |name: &str| ACCELERATORS.iter().any(|it| name.contains(it));
    limits.filter_map(move |(name, quantity)| is_accelerator(name).then_some(quantity))
}
