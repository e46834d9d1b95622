//! The one place of this crate with unsafe code: the C interface of a library that is opened at run
//! time.
#![allow(unsafe_code)]

pub mod rocksdb;
