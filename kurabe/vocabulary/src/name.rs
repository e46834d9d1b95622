//! Names: labels of contenders, names of workloads, studies and figures.
//!
//! Invariant: a name is one line, wherever it came from. A line break in one could pass for a line
//! of kurabe's own in a terminal; it is shown by its number instead.

use serde::{Deserialize, Deserializer};

/// The name that `text` stands for.
pub fn of(text: &str) -> String {
    trust::text::line(text).into_owned()
}

pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| of(&text))
}
