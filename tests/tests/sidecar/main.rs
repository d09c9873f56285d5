//! Tests of the real sidecar, between a real broker and the real `asya_runtime.py`.

mod faults;
mod image;
mod rabbitmq;
mod rig;
mod shutdown;
mod sqs;
mod start;
mod timed;
mod traces;
