//! What people do with trees: copy an archive, unpack it, walk it, look at it, rewrite it,
//! delete it.
//!
//! [`synthetic`] makes a tree like that of the Linux kernel from a seed, [`archive`] writes and
//! inspects archives, [`run`] times the phases, [`hash`] proves that what was unpacked is the
//! same everywhere. Knows a directory; nothing of contenders. What the phases do and where the
//! synthetic tree's figures come from: docs/reference/tree.md.

pub mod archive;
pub mod durable;
pub mod hash;
pub mod run;
pub mod synthetic;

pub use archive::{ArchiveFacts, archive_facts, inspect, write_archive};
pub use hash::hash_tree;
pub use run::{Tree, TreePhase, TreeReport, run_tree};
pub use synthetic::SyntheticTree;
