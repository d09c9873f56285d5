//! The webhook's certificates (docs/spec/admission.md, section 5): an authority and a leaf in one Secret, which the
//! leader mints, renews and repairs, and which every replica of the webhook serves by without a restart.
//!
//! What is to be done is decided by [`decide`](decide::decide), a pure function of the Secret's content and the time.
//! Private keys are in no `Debug` output and in no error.

pub mod bundle;
pub mod ca_bundle;
pub mod certificate;
pub mod change;
pub mod data;
pub mod decide;
pub mod mint;
pub mod secret;
pub mod serve;
pub mod store;
#[cfg(test)]
mod testing;
mod time;
pub mod watch;
