//! The webhook's certificates (docs/spec/admission.md, section 5): a CA and a leaf, stored in Secrets. The leader
//! creates, renews and repairs them; every webhook replica serves the leaf and picks up a new one without a restart.
//!
//! [`decide`](decide::decide) chooses the next step as a pure function of the Secret's content and the time. Private
//! keys never appear in `Debug` output or in errors.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod ca_bundle;
pub mod certificate;
pub mod change;
pub mod data;
pub mod decide;
pub mod issuer;
pub mod parsed_secret;
pub mod secret;
pub mod serve;
pub mod store;
#[cfg(test)]
mod testing;
mod time;
pub mod watch;
