//! What survives a power failure: `kurabe crash`, `kurabe promises` and the power cuts of a study.

pub mod crash;
mod crash_result;
pub mod crash_shards;
mod crash_text;
pub mod durability;
mod node_death;
pub mod promises;
