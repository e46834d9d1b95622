//! The object language of CannylsBencher: parsing, planning and running its programs on stores.

pub mod diagnostic;
pub mod live;
mod parse;
pub mod program;
pub mod random;
mod token;
