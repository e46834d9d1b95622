//! The processor's counter.
//!
//! The one module of this crate with unsafe code.

/// Reads the processor's time-stamp counter, in ticks of a rate that the caller must calibrate.
///
/// The read is not ordered against the instructions around it: it may be off by some tens of
/// nanoseconds, which is below what a call into a file system or a store takes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn time_stamp_ticks() -> u64 {
    // SAFETY: RDTSC has no preconditions on x86-64; it reads a register and touches no memory. A
    // kernel that forbids it to user space (PR_TSC_SIGV) would not name "tsc" as its clock source
    // to this process's users, and the caller asks for that first.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Processors without a counter that is read alike everywhere: the caller never gets here, because
/// [`measure::latency::Clock`] takes the counter on x86-64 only.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn time_stamp_ticks() -> u64 {
    0
}
