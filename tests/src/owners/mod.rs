//! The controllers of the systems that actors bind to, as far as they write: simulators SIM-1 to SIM-9 of
//! `docs/spec/binding.md`, section 9.
//!
//! Each [`Rule`] takes back exactly what its system takes back, and leaves what that leaves. [`Owner`] runs one in a
//! namespace, under a field manager of its own, whenever something that it watches changes and at every tick, and
//! keeps a log of its writes. The objects that they read are of the systems' own kinds: [`crds::install`] gives them to
//! a cluster.
//!
//! | file | system |
//! |---|---|
//! | [`kserve`] | KServe's `InferenceService`, deployment mode Standard (SIM-1) |
//! | [`llmisvc`] | KServe's `LLMInferenceService` (SIM-2) |
//! | [`kaito`] | KAITO's `Workspace` (SIM-3) |
//! | [`inference_set`] | KAITO's `InferenceSet`, which makes Workspaces |
//! | [`knative`] | Knative Serving, since 1.22 and up to 1.20, and its autoscaler (SIM-4) |
//! | [`leader_worker_set`] | `LeaderWorkerSet`, leaders without workers |
//! | [`seldon`], [`seldon2`], [`yatai`] | Seldon Core 1 and 2, Yatai (SIM-5) |
//! | [`ray`] | `KubeRay`'s `RayCluster` and `RayService` (SIM-6) |
//! | [`argo`] | Argo CD that heals (SIM-7) |
//! | [`reverter`] | what takes back restarts (SIM-8) |
//! | [`stripper`] | a webhook that removes the sidecar (SIM-9) |

pub mod argo;
pub mod crds;
mod engine;
mod hand;
pub mod inference_set;
pub mod kaito;
mod kind;
pub mod knative;
pub mod kserve;
mod last_applied;
pub mod leader_worker_set;
pub mod llmisvc;
mod merge;
pub mod ray;
pub mod reverter;
pub mod seldon;
pub mod seldon2;
pub mod stripper;
mod workload;
pub mod yatai;

pub use engine::{Owner, Rule};
pub use hand::{Hand, Verb, Write};
pub use kind::Kind;
