//! The sidecar itself, between a real broker and the real `asya_runtime.py`.

mod rabbitmq;
mod rig;
mod shutdown;
mod sqs;
mod start;
