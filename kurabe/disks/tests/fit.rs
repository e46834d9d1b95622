//! A profile that was fitted to a modelled disk has that disk's parameters, or answers as it does.

use disks::fit::fit;
use disks::virtual_host::VirtualHost;
use disks::{DiskKind, DiskProfile};

/// How far a parameter may be off: by itself, or as a share of the true one.
const BOUNDS: &[(&str, f64, f64)] = &[
    ("rpm", 0.0, 0.03),
    ("access_ms", 0.15, 0.0),
    ("command_read_ms", 0.05, 0.0),
    ("command_write_ms", 0.05, 0.0),
    ("interface_mb_s", 0.0, 0.1),
    ("read_ahead_mib", 0.0, 0.0),
    ("write_cache_mib", 0.0, 0.15),
    ("write_slip", 0.03, 0.0),
    ("write_miss_chance", 0.1, 0.0),
    ("miss_chance", 0.1, 0.0),
    ("flush_ms", 0.05, 0.0),
];

fn fitted(words: &str) {
    let disk = DiskProfile::read(DiskKind::Hard, words).unwrap();
    let size = disk.parameters.capacity_bytes() >> 20 << 20;
    let mut target = (VirtualHost::of(&disk, size).unwrap(), size);
    let found = fit(&mut target, "found", 4096, &mut |_| {}).unwrap();
    eprintln!("{words}");
    let (is, was) = (&found.profile.parameters, &disk.parameters);
    for (name, alone, share) in BOUNDS {
        let (is, was) = (is.get(name), was.get(name));
        eprintln!("  {name}: {is} for {was}");
        assert!((is - was).abs() <= alone.max(share * was), "{words}: {name} is {is} for {was}");
    }
    for (at, rate) in is.rates() {
        let after = was.rates().partition_point(|point| point.0 < *at).max(1);
        let [(from, here), (to, there)] = [was.rates()[after - 1], was.rates()[after]];
        let true_rate = here + (there - here) * (at - from) / (to - from);
        assert!((rate / true_rate - 1.0).abs() < 0.03, "{words}: {rate} for {true_rate} at {at}");
    }
    // The arm's parameters take each other's place; its times do not.
    let seek = |of: &disks::profile::Parameters, distance: f64| {
        let knee = of.get("seek_knee");
        of.get("seek_settle_ms")
            + of.get("seek_root_ms") * distance.min(knee).sqrt()
            + of.get("seek_linear_ms") * (distance - knee).max(0.0)
    };
    for distance in [0.001, 0.01, 0.05, 0.1, 0.2, 0.33, 0.5, 0.8] {
        let (is, was) = (seek(is, distance), seek(was, distance));
        eprintln!("  seek over {distance}: {is:.2} ms for {was:.2}");
        assert!((is - was).abs() < 0.3 + 0.05 * was, "{words}: {is} ms for {was} over {distance}");
    }
    for figure in &found.figures {
        eprintln!("  {}: {:.2}, fitted {:.2}", figure.name, figure.measured, figure.modelled);
        assert!(figure.off() < 0.08, "{words}: {figure:?}");
    }
}

#[test]
fn a_fitted_profile_is_the_disk_s() {
    fitted("st1000dm003");
    // One that turns at no usual speed, with another arm, cache and queue.
    fitted(
        "7200rpm,rpm=6500,seek_root_ms=20,seek_settle_ms=2,write_cache_mib=48,queue_depth=4,read_ahead_mib=1",
    );
}

#[test]
fn what_does_not_turn_is_refused() {
    let disk = DiskProfile::read(DiskKind::Flash, "nvme").unwrap();
    let mut target = (VirtualHost::of(&disk, 4 << 30).unwrap(), 4 << 30);
    let refused = fit(&mut target, "found", 4096, &mut |_| {}).unwrap_err();
    assert!(format!("{refused:?}").contains("too little for a hard disk"), "{refused:?}");
}
