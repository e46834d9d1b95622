//! Shows a result: terminal tables and the sentence, Markdown, CSV, JSON. Reads the plan, the
//! records and their analysis, and knows nothing of how they were measured.

pub mod export;
pub mod table;
pub mod tables;
pub mod text;
