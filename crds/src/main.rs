//! Writes the CRD.
fn main() {}
