//! Tests of the drift verdict on synthetic runs, one for each cause and for none.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;

/// What happens in one second of a synthetic run.
#[derive(Clone, Copy)]
struct Tick {
    application_mb: u64,
    written_mb: u64,
    read_mb: u64,
    busy_percent: u64,
    dirty_mb: u64,
    free_percent: u64,
}

const CALM: Tick = Tick {
    application_mb: 100,
    written_mb: 50,
    read_mb: 0,
    busy_percent: 90,
    dirty_mb: 200,
    free_percent: 60,
};

/// A run of 120 seconds with 5 % of noise on the application's bytes.
fn run(tick: impl Fn(u64) -> Tick) -> (Vec<IntervalBytes>, Vec<CounterSample>) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut device = DeviceDelta::default();
    let mut intervals = Vec::new();
    let mut counters = vec![sample(0, tick(0), device)];
    for second in 0..120 {
        let now = tick(second);
        let noise = random.random_range(0.95..1.05);
        intervals.push(IntervalBytes {
            start_ns: second * SECOND_NS,
            duration_ns: SECOND_NS,
            bytes: ((now.application_mb * MB) as f64 * noise) as u64,
        });
        device.written_bytes += now.written_mb * MB;
        device.read_bytes += now.read_mb * MB;
        device.writes += now.written_mb * 10;
        device.reads += now.read_mb * 10;
        device.busy_ms += now.busy_percent * 10;
        counters.push(sample((second + 1) * SECOND_NS, now, device));
    }
    (intervals, counters)
}

fn sample(elapsed_ns: u64, tick: Tick, device: DeviceDelta) -> CounterSample {
    CounterSample {
        elapsed_ns,
        dirty_bytes: Some(tick.dirty_mb * MB),
        free_part: Some(tick.free_percent as f64 / 100.0),
        device: Some(device),
    }
}

fn drift(tick: impl Fn(u64) -> Tick) -> Drift {
    let (intervals, counters) = run(tick);
    drift_of(&intervals, &counters).expect("the drift was not seen")
}

#[test]
fn a_level_run_is_steady() {
    let (intervals, counters) = run(|_| CALM);
    assert_eq!(drift_of(&intervals, &counters), None);
}

#[test]
fn a_certain_but_small_change_is_steady() {
    let (intervals, counters) =
        run(|second| Tick { application_mb: if second < 60 { 100 } else { 94 }, ..CALM });
    assert_eq!(drift_of(&intervals, &counters), None);
}

#[test]
fn a_short_run_is_not_judged() {
    let (intervals, counters) = run(|second| Tick { application_mb: 200 - second, ..CALM });
    assert!(drift_of(&intervals, &counters).is_some());
    assert_eq!(drift_of(&intervals[..19], &counters), None);
}

#[test]
fn a_cache_that_fills_is_told_by_its_dirty_part() {
    // The device writes 50 MB/s throughout. Until the dirty part is full the application
    // writes 100 MB/s beside it.
    let drift = drift(|second| {
        let early = second < 40;
        Tick {
            application_mb: if early { 150 } else { 50 },
            dirty_mb: 10 + 100 * second.min(40),
            ..CALM
        }
    });
    assert_eq!(drift.cause, DriftCause::CacheFilling);
    assert!(drift.changed_at_ns.abs_diff(40 * SECOND_NS) <= SECOND_NS);
    assert!((drift.change + 2.0 / 3.0).abs() < 0.05, "{}", drift.change);
    assert!(drift.evidence.iter().any(|line| line.contains("shares in the change: cache ")));
}

#[test]
fn a_cache_that_begins_to_miss_reads_is_told_by_the_devices_reads() {
    let drift = drift(|second| {
        let early = second < 70;
        Tick {
            application_mb: if early { 200 } else { 100 },
            written_mb: 25,
            read_mb: if early { 0 } else { 75 },
            ..CALM
        }
    });
    assert_eq!(drift.cause, DriftCause::CacheFilling);
}

#[test]
fn files_that_die_in_the_cache_until_it_is_full_are_a_full_cache() {
    // Half of what is written is deleted before it is due, until the dirty part is full.
    let drift = drift(|second| {
        let early = second < 60;
        Tick {
            application_mb: if early { 200 } else { 60 },
            written_mb: if early { 40 } else { 60 },
            dirty_mb: 10 + 20 * second.min(60),
            ..CALM
        }
    });
    assert_eq!(drift.cause, DriftCause::CacheFilling);
}

#[test]
fn a_device_that_gets_slower_is_told_by_its_busy_time() {
    let drift = drift(|second| {
        let early = second < 80;
        Tick {
            application_mb: if early { 100 } else { 60 },
            written_mb: if early { 50 } else { 30 },
            busy_percent: 95,
            ..CALM
        }
    });
    assert_eq!(drift.cause, DriftCause::Device);
}

#[test]
fn more_device_work_for_the_same_workload_is_told_by_the_bytes() {
    let drift = drift(|second| {
        let early = second < 60;
        Tick { application_mb: if early { 100 } else { 50 }, ..CALM }
    });
    assert_eq!(drift.cause, DriftCause::MoreDeviceWork);
}

#[test]
fn an_idle_device_puts_the_cause_above_it() {
    let drift = drift(|second| {
        let early = second < 60;
        Tick {
            application_mb: if early { 100 } else { 50 },
            written_mb: if early { 50 } else { 25 },
            busy_percent: if early { 90 } else { 45 },
            ..CALM
        }
    });
    assert_eq!(drift.cause, DriftCause::AboveDevice);
}

#[test]
fn a_file_system_that_fills_up_is_told_by_its_free_space() {
    // The rate falls slowly as the file system has to search for space and writes more.
    let drift = drift(|second| Tick {
        application_mb: 100 - second / 2,
        free_percent: 60 - second * 55 / 120,
        ..CALM
    });
    assert_eq!(drift.cause, DriftCause::Space);
}

#[test]
fn a_rise_is_a_drift_too_and_is_not_blamed_on_space() {
    let drift = drift(|second| Tick {
        application_mb: if second < 60 { 50 } else { 100 },
        written_mb: if second < 60 { 25 } else { 50 },
        free_percent: if second < 60 { 30 } else { 10 },
        ..CALM
    });
    assert!(drift.change > 0.9);
    assert_eq!(drift.cause, DriftCause::Device);
}

#[test]
fn without_counters_a_drift_is_seen_and_left_unexplained() {
    let (intervals, _) =
        run(|second| Tick { application_mb: if second < 60 { 100 } else { 50 }, ..CALM });
    let drift = drift_of(&intervals, &[]).expect("a halving was not seen");
    assert_eq!(drift.cause, DriftCause::Unexplained);
}

#[test]
fn without_a_device_the_cache_is_still_told() {
    let (intervals, mut counters) = run(|second| Tick {
        application_mb: if second < 40 { 150 } else { 50 },
        dirty_mb: 10 + 100 * second.min(40),
        ..CALM
    });
    for sample in &mut counters {
        sample.device = None;
    }
    let drift = drift_of(&intervals, &counters).expect("the drift was not seen");
    assert_eq!(drift.cause, DriftCause::CacheFilling);
}

#[test]
fn a_memory_only_run_has_its_cause_above_the_device() {
    let drift = drift(|second| Tick {
        application_mb: if second < 60 { 100 } else { 50 },
        written_mb: 0,
        busy_percent: 0,
        ..CALM
    });
    assert_eq!(drift.cause, DriftCause::AboveDevice);
}

/// The first-order autoregression `x' = rho x + noise` around a level, as seconds of a run.
fn autocorrelated(random: &mut ChaCha8Rng, count: u64, rho: f64) -> Vec<IntervalBytes> {
    let mut deviation = 0.0;
    (0..count)
        .map(|second| {
            let noise: f64 = (0..12).map(|_| random.random_range(-0.5..0.5)).sum();
            deviation = rho * deviation + noise;
            IntervalBytes {
                start_ns: second * SECOND_NS,
                duration_ns: SECOND_NS,
                bytes: (100e6 * (1.0 + 0.15 * deviation)).max(0.0) as u64,
            }
        })
        .collect()
}

#[test]
fn noise_is_seldom_taken_for_drift() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    for (rho, false_alarms_max) in [(0.0, 10), (0.5, 20)] {
        let alarms = (0..400)
            .filter(|_| {
                let intervals = autocorrelated(&mut random, 120, rho);
                drift_of(&intervals, &[]).is_some()
            })
            .count();
        assert!(alarms <= false_alarms_max, "{alarms} of 400 with rho {rho}");
    }
}

#[test]
fn a_loss_of_a_third_is_found_in_noise() {
    let mut random = ChaCha8Rng::seed_from_u64(12);
    let found = (0..100)
        .filter(|_| {
            let mut intervals = autocorrelated(&mut random, 240, 0.3);
            for interval in &mut intervals[80..] {
                interval.bytes = interval.bytes * 2 / 3;
            }
            drift_of(&intervals, &[]).is_some()
        })
        .count();
    assert!(found >= 95, "{found} of 100");
}

#[test]
fn odd_series_do_not_panic() {
    let interval = |bytes| IntervalBytes { start_ns: 0, duration_ns: 0, bytes };
    for series in [vec![], vec![interval(0); 50], vec![interval(u64::MAX); 50]] {
        let _ = drift_of(&series, &[]);
        let _ = drift_of(&series, &[CounterSample::default(); 3]);
    }
}
