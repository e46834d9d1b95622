//! The clock that latencies are measured with: the processor's counter where that can be trusted.
//!
//! Must not know: histograms, loads.

use std::sync::OnceLock;
#[cfg(any(test, feature = "clock-by-hand"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sys;

/// Nanoseconds since the clock was started, read from any thread.
///
/// Where the kernel itself keeps time by the processor's counter (it has then proved the counter
/// constant in rate and equal on all processors), the clock reads that counter and scales it by a
/// rate measured once a process against `CLOCK_MONOTONIC`, to about 2 parts in a million. Elsewhere
/// it reads `CLOCK_MONOTONIC`. The difference is the cost of a read: see
/// `docs/evidence/objects.md`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds a tick, times 2^32; zero when the clock is `CLOCK_MONOTONIC`.
    nanoseconds_per_tick: u64,
    /// Ticks, or nanoseconds of `CLOCK_MONOTONIC`, at the start.
    origin: u64,
    /// What it reads instead, in a test that must not depend on how busy the machine is.
    #[cfg(any(test, feature = "clock-by-hand"))]
    hand: Option<&'static AtomicU64>,
}

/// A sleep is left this long before the moment that is waited for and the rest spent looking at the
/// clock, because a thread is woken some tens of microseconds late.
const SPIN_NS: u64 = 60_000;

impl Clock {
    /// Starts a clock at zero. The first call of a process takes about 20 ms to calibrate.
    pub fn start() -> Clock {
        let nanoseconds_per_tick = *tick_rate();
        let origin =
            if nanoseconds_per_tick == 0 { monotonic_ns() } else { sys::time_stamp_ticks() };
        Clock {
            nanoseconds_per_tick,
            origin,
            #[cfg(any(test, feature = "clock-by-hand"))]
            hand: None,
        }
    }

    /// Starts a clock at zero that reads `CLOCK_MONOTONIC` whatever the processor offers.
    #[cfg(any(test, feature = "clock-by-hand"))]
    pub fn start_monotonic() -> Clock {
        Clock {
            nanoseconds_per_tick: 0,
            origin: monotonic_ns(),
            #[cfg(any(test, feature = "clock-by-hand"))]
            hand: None,
        }
    }

    /// A clock at zero that stands still until somebody moves its hand or waits for a moment.
    #[cfg(any(test, feature = "clock-by-hand"))]
    pub fn by_hand() -> (Clock, &'static AtomicU64) {
        let hand: &AtomicU64 = Box::leak(Box::default());
        (Clock { hand: Some(hand), ..Clock::start_monotonic() }, hand)
    }

    /// Nanoseconds since the start. Never decreases on one thread by more than the counter's own
    /// reordering (some nanoseconds); subtract with saturation.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        #[cfg(any(test, feature = "clock-by-hand"))]
        if let Some(hand) = self.hand {
            return hand.load(Ordering::Relaxed);
        }
        if self.nanoseconds_per_tick != 0 {
            let ticks = sys::time_stamp_ticks().saturating_sub(self.origin);
            ((u128::from(ticks) * u128::from(self.nanoseconds_per_tick)) >> 32) as u64
        } else {
            monotonic_ns().saturating_sub(self.origin)
        }
    }

    /// Sleeps until shortly before the moment, and looks at the clock from then on.
    pub fn wait_until(&self, moment_ns: u64) {
        #[cfg(any(test, feature = "clock-by-hand"))]
        if let Some(hand) = self.hand {
            hand.fetch_max(moment_ns, Ordering::Relaxed);
        }
        loop {
            let left_ns = moment_ns.saturating_sub(self.now_ns());
            if left_ns == 0 {
                return;
            }
            if left_ns > SPIN_NS {
                std::thread::sleep(Duration::from_nanos(left_ns - SPIN_NS));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// What the clock reads, for the facts of a result: `tsc` or `clock_monotonic`.
    pub fn source(&self) -> &'static str {
        if self.nanoseconds_per_tick == 0 { "clock_monotonic" } else { "tsc" }
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds a tick times 2^32, or zero when the counter cannot be trusted.
fn tick_rate() -> &'static u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    RATE.get_or_init(|| {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let kernel_uses_counter =
            std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc");
        if cfg!(target_arch = "x86_64") && kernel_uses_counter { measure_tick_rate() } else { 0 }
    })
}

/// Measures the counter against `CLOCK_MONOTONIC` over 20 ms.
fn measure_tick_rate() -> u64 {
    let (first_ns, first_ticks) = tightest_pair();
    std::thread::sleep(Duration::from_millis(20));
    let (last_ns, last_ticks) = tightest_pair();
    let ticks = last_ticks.saturating_sub(first_ticks);
    let elapsed_ns = last_ns.saturating_sub(first_ns);
    if ticks == 0 || elapsed_ns == 0 {
        return 0;
    }
    u64::try_from((u128::from(elapsed_ns) << 32) / u128::from(ticks)).unwrap_or(0)
}

/// One reading of both clocks at nearly the same moment: of several tries the one in which the
/// counter moved least around the reading of `CLOCK_MONOTONIC`, so that an interruption between
/// the reads does not end up in the rate.
fn tightest_pair() -> (u64, u64) {
    (0..32)
        .map(|_| {
            let before = sys::time_stamp_ticks();
            let now_ns = monotonic_ns();
            let after = sys::time_stamp_ticks();
            let width = after.saturating_sub(before);
            (width, now_ns, before.wrapping_add(width / 2))
        })
        .min()
        .map(|(_, now_ns, ticks)| (now_ns, ticks))
        .expect("thirty-two tries were made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_kernel() {
        // The first start of a process takes the time to calibrate.
        Clock::start();
        let reference = Clock::start_monotonic();
        // Each reading lies between two of the reference, so that it does not matter where a busy
        // machine stops us.
        let before_start_ns = reference.now_ns();
        let clock = Clock::start();
        let after_start_ns = reference.now_ns();
        std::thread::sleep(Duration::from_millis(100));
        let before_end_ns = reference.now_ns();
        let elapsed_ns = clock.now_ns() as f64;
        let after_end_ns = reference.now_ns();
        let least_ns = (before_end_ns - after_start_ns) as f64;
        let most_ns = (after_end_ns - before_start_ns) as f64;
        // A thousandth is what a histogram can show.
        assert!(
            (least_ns * 0.999..=most_ns * 1.001).contains(&elapsed_ns),
            "{elapsed_ns} ns is not within {least_ns} to {most_ns} ns ({})",
            clock.source()
        );
    }
}
