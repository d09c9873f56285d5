//! The controllers of systems that actors bind to, as scenarios run them.
//!
//! Each of them is a [`Reconciler`] of the crate `asya-owners` (SIM-1 to SIM-8 of `docs/spec/binding.md`, section 9),
//! which the simulation runs as well. [`Owner`] runs it in a namespace, under its own field manager, at every watch
//! event and every tick, and records its writes. It reads objects of the system's own kinds, whose CRDs
//! [`crds::install`] installs. [`sidecar_remover`] is a webhook that removes the sidecar (SIM-9).

pub mod crds;
mod runner;
pub mod sidecar_remover;

pub use asya_owners::error::{Error, Result};
pub use asya_owners::{
    Kind, Reconciler, RecordingClient, Verb, Write, argo, inference_set, kaito, knative, kserve,
    leader_worker_set, llmisvc, ray, reverter, seldon, seldon2, yatai,
};
pub use runner::Owner;
