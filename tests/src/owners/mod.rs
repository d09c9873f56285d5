//! The controllers of systems that actors bind to, as scenarios run them.
//!
//! What each of them writes is a [`Rule`] of the crate `asya-owners` (SIM-1 to SIM-8 of `docs/spec/binding.md`, section
//! 9), which the simulation runs, too. [`Owner`] runs a rule in a namespace, under its own field manager, at every
//! watch event and every tick, and records its writes. The objects that the rules read are of the systems' own kinds;
//! [`crds::install`] installs their CRDs. [`stripper`] is a webhook that removes the sidecar (SIM-9).

pub mod crds;
mod engine;
pub mod stripper;

pub use asya_owners::error::{Error, Result};
pub use asya_owners::{
    Hand, Kind, Rule, Verb, Write, argo, inference_set, kaito, knative, kserve, leader_worker_set,
    llmisvc, ray, reverter, seldon, seldon2, yatai,
};
pub use engine::Owner;
