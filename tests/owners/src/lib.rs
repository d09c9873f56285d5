//! The writes of the controllers of systems that actors bind to: the simulators SIM-1 to SIM-8 of
//! `docs/spec/binding.md`, section 9.
//!
//! Each [`Reconciler`] reverts exactly what its system reverts, and preserves what the system preserves. Scenarios run
//! them on a real API server (`asya_tests::owners`), and the simulation on one in memory.
//!
//! | file | system |
//! |---|---|
//! | [`kserve`] | KServe's `InferenceService`, deployment mode Standard (SIM-1) |
//! | [`llmisvc`] | KServe's `LLMInferenceService` (SIM-2) |
//! | [`kaito`] | KAITO's `Workspace` (SIM-3) |
//! | [`inference_set`] | KAITO's `InferenceSet`, which creates Workspaces |
//! | [`knative`] | Knative Serving, since 1.22 and up to 1.20, and its autoscaler (SIM-4) |
//! | [`leader_worker_set`] | `LeaderWorkerSet`, leaders without workers |
//! | [`seldon`], [`seldon2`], [`yatai`] | Seldon Core 1 and 2, Yatai (SIM-5) |
//! | [`ray`] | `KubeRay`'s `RayCluster`, `RayService` and `RayJob` (SIM-6) |
//! | [`argo`] | Argo CD with self-heal (SIM-7) |
//! | [`reverter`] | a tool that reverts restarts (SIM-8) |

pub mod argo;
pub mod error;
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
mod reconciler;
mod recording_client;
pub mod reverter;
pub mod seldon;
pub mod seldon2;
mod workload;
pub mod yatai;

pub use kind::Kind;
pub use reconciler::Reconciler;
pub use recording_client::{RecordingClient, Verb, Write};
