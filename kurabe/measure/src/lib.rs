//! What workloads share while they run: the recorder of latencies, acknowledgements for power failures, making
//! a whole file system durable, and its free space.
//!
//! Knows no workload, and nothing of contenders, statistics or results.

pub mod acknowledge;
pub mod durable;
pub mod latency;
pub mod space;
#[allow(unsafe_code)]
mod sys;
