//! What the tests of a reconcile share.

pub mod fixtures;
