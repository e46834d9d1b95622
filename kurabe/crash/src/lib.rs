//! What a power cut leaves: a [`RequestRecorder`] under whatever is tested, the [`CrashedDisk`]s that could be
//! left of its [`Recording`], and the fewest lost writes that still break what was promised.
//!
//! The model of the medium. A write is durable once a flush that arrived after the write's reply has
//! been replied to. Whatever else arrived may be there or not, each write for itself, and a write can
//! be torn between sectors of [`SECTOR_BYTES`]. Of several writes to one sector the last that is
//! there counts. A sector itself is whole. No order is assumed that a flush does not enforce.
//! A disk with a model of its cache says besides which writes it had made durable by then ([`RequestRecorder::let_destage`]).
//!
//! Knows nothing of file systems, of what the bytes mean, of how a state is judged, and nothing of
//! the laboratory.

mod disk;
mod line;
mod recording;
mod reduce;
mod states;

pub use disk::{CrashedDisk, Stale};
pub use line::Line;
pub use recording::{
    Acknowledgement, Instant, Log, RecordedRequest, Recording, RequestKind, RequestRecorder,
};
pub use reduce::{Reduction, reduce};
pub use states::{CrashState, FlushPolicy, Lost, LostWrites, StateOptions, States};

/// What a medium writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// With `tried` states of which none was violated: the largest share of violated states that
/// would still leave none with a chance of 5 % (the exact bound, "rule of three").
pub fn share_at_most(tried: u64) -> f64 {
    match tried {
        0 => 1.0,
        tried => 1.0 - 0.05_f64.powf(1.0 / tried as f64),
    }
}
