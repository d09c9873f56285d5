//! Fixtures shared by the tests of scaling.

pub mod fixtures;
