//! The program `lump`.
fn main() {}
