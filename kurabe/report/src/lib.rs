//! Shows a result: terminal tables and the sentence, Markdown, CSV, JSON, an HTML page and SVG
//! pictures. Reads what a result directory holds, and knows nothing of how it was measured.

pub mod across;
pub mod age;
pub mod answer;
pub mod chart;
pub mod charts;
mod checks;
mod choice;
pub mod costs;
pub mod details;
pub mod document;
pub mod environment;
pub mod export;
pub mod heat;
pub mod histograms;
pub mod html;
mod layers;
pub mod machines;
mod nodes;
mod overview;
pub mod page;
pub mod profile;
pub mod quotient;
pub mod sessions;
pub mod source;
mod standings;
mod stores;
pub mod svg;
pub mod table;
pub mod tables;
pub mod text;
