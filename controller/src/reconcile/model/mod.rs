//! Types shared by observe, plan, apply and status.

pub mod availability;
pub mod binding;
pub mod child;
pub mod condition_types;
pub mod drain;
pub mod known_queues;
pub mod observed;
pub mod outcome;
pub mod reported;
pub mod rollout;
pub mod target_pods;
pub mod template_handoff;
