//! What the laboratory itself costs: nanoseconds a recorded sample, and of these the clock.
//!
//! `cargo run --release -p kurabe-loads --example objects-speed`. The figures that
//! `docs/object-language.md` quotes were printed by this program.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kurabe_loads::latency::{Clock, Recorder};

/// Runs `body` this often, five times over, and returns the best nanoseconds a turn: a disturbed
/// run is slower, never faster.
fn best_ns(turns: u64, mut body: impl FnMut(u64)) -> f64 {
    (0..5)
        .map(|_| {
            let start = Instant::now();
            for turn in 0..turns {
                body(turn);
            }
            start.elapsed().as_nanos() as f64 / turns as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn sample_costs() {
    const TURNS: u64 = 5_000_000;
    for clock in [Clock::start(), Clock::start_monotonic()] {
        let source = clock.source();
        let read_ns = best_ns(TURNS, |_| {
            black_box(clock.now_ns());
        });
        println!("clock read ({source}): {read_ns:.1} ns");

        let mut recorder = Recorder::with_intervals(Duration::from_secs(1));
        let kinds = [recorder.kind("Put(262144)"), recorder.kind("Get(262144)")];
        let sample_ns = best_ns(TURNS, |turn| {
            let started_ns = clock.now_ns();
            black_box(turn);
            let ended_ns = clock.now_ns();
            let latency_ns = ended_ns.saturating_sub(started_ns) + (turn & 0xf_ffff);
            recorder.record_at(kinds[(turn & 1) as usize], ended_ns, latency_ns, 262_144);
        });
        println!("sample: two clock reads and a record ({source}): {sample_ns:.1} ns");
        black_box(recorder.finish());
    }
    let mut recorder = Recorder::with_intervals(Duration::from_secs(1));
    let kinds = [recorder.kind("Put(262144)"), recorder.kind("Get(262144)")];
    let record_ns = best_ns(TURNS, |turn| {
        recorder.record_at(kinds[(turn & 1) as usize], turn, turn & 0xf_ffff, 262_144);
    });
    println!("record alone: {record_ns:.1} ns");
    black_box(recorder.finish());
}

fn main() {
    sample_costs();
}
