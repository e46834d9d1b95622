//! The object language of CannylsBencher: parsing, planning and running its programs on stores.

#[cfg(test)]
mod arbitrary;
pub mod contents;
pub mod diagnostic;
pub mod live;
mod parse;
pub mod program;
pub mod random;
pub mod store;
pub mod stream;
mod token;
