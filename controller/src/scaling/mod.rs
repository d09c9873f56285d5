//! Whether and how an actor's queue scales its workload: pure decisions from the cached objects of KEDA (KEDA-7 to
//! KEDA-11).

pub mod autoscalers;
pub mod ready;
pub mod replicas;
#[cfg(test)]
pub mod tests;
