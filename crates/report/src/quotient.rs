//! What is said where fewer blocks have a trial of both than a ratio takes.

use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;

/// Stands in the place of a ratio that is withheld.
pub const WITHHELD: &str = "no ratio";

/// Why something is not told of fewer blocks.
pub fn too_few_explained() -> String {
    format!("fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both")
}
