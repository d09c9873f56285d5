//! What the tests of scaling share.

pub mod fixtures;
