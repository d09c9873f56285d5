//! Whether and how an actor's workload is scaled by its queue: pure decisions over what the watches
//! show of KEDA's objects (KEDA-7 to KEDA-11).

pub mod autoscalers;
pub mod ready;
pub mod replicas;
#[cfg(test)]
pub mod tests;
