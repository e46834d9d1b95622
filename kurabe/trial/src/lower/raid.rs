//! md arrays: mdadm, metadata 1.2. A mirror or parity array has finished its first resync before anything is
//! measured on it.

use std::fs;
use std::path::PathBuf;

use lab::contender::Layer;

use super::{Lower, LowerLocation, MadeOf, members, members_of, words};
use crate::filesystem::LayerTool;

/// Striping.
pub static RAID0: Lower = raid(
    "raid0",
    "md striping over N devices, or parts of one",
    2,
    &["raid0", members::MODULE],
    &["chunk="],
);

/// Mirrors.
pub static RAID1: Lower = raid(
    "raid1",
    "md mirrors on N devices, or parts of one",
    2,
    &["raid1", members::MODULE],
    &["bitmap=", "consistency-policy="],
);

/// One parity.
pub static RAID5: Lower = raid(
    "raid5",
    "md with one parity over N devices, or parts of one",
    3,
    &["raid456", members::MODULE],
    PARITY_OPTIONS,
);

/// Two parities.
pub static RAID6: Lower = raid(
    "raid6",
    "md with two parities over N devices, or parts of one",
    4,
    &["raid456", members::MODULE],
    PARITY_OPTIONS,
);

/// Striped mirrors.
pub static RAID10: Lower = raid(
    "raid10",
    "md striped mirrors over N devices, or parts of one",
    2,
    &["raid10", members::MODULE],
    &["chunk=", "layout=", "bitmap=", "consistency-policy="],
);

const PARITY_OPTIONS: &[&str] = &["chunk=", "layout=", "bitmap=", "consistency-policy="];

const TOOLS: &[LayerTool] = &[
    LayerTool::new("mdadm", "mdadm", "--version"),
    LayerTool::new("dmsetup", "dmsetup", "--version"),
];

const fn raid(
    name: &'static str,
    summary: &'static str,
    members_min: u32,
    modules: &'static [&'static str],
    options: &'static [&'static str],
) -> Lower {
    Lower {
        name,
        summary,
        tools: TOOLS,
        modules,
        made_of: MadeOf::Members(members_min),
        options,
        encrypts: false,
        shows_old_bytes: true,
        spares_one: !matches!(name.as_bytes(), b"raid0"),
        works_here: false,
        on_file: false,
        leaves,
        make: |place, tools| {
            members::make(place, tools)?;
            // It would leave room for other work of this machine, which a guest does not have.
            limit_resync("10000000");
            let path = path(place);
            let level = place.layer.name.trim_start_matches("raid");
            let create = ["mdadm", "--create", &path, "--run", "--metadata=1.2"];
            let mut create = words(&create);
            create.push(format!("--level={level}"));
            create.push(format!("--raid-devices={}", place.members()));
            create.extend(place.options(ALL_OPTIONS));
            create.extend(members::paths(place));
            tools.expect(&create, "mdadm --create failed")?;
            Ok(path.into())
        },
        open: |place, tools| {
            members::open(place, tools)?;
            // It changes nothing of what is read, and there may be hundreds of arrays to open.
            limit_resync("1");
            let path = path(place);
            let mut assemble = words(&["mdadm", "--assemble", "--run", &path]);
            let has_log = place.options(ALL_OPTIONS).any(|word| word.ends_with("=ppl"));
            if place.lost.is_some() && !has_log {
                // The kernel starts none by itself that lacks a member and was being written. One with a
                // partial parity log it does; forced, it would be marked clean, and the log not replayed.
                assemble.push("--force".into());
            }
            assemble.extend(members::left(place));
            tools.expect(&assemble, "mdadm --assemble failed")?;
            Ok(path.into())
        },
        is_syncing: |place| {
            let action = sysfs(place).join("sync_action");
            fs::read_to_string(action).is_ok_and(|action| action.trim() != "idle")
        },
        describe: |place| words(&["mdadm", "--detail", &path(place)]),
        close: |place| {
            let mut all = vec![words(&["mdadm", "--stop", &path(place)])];
            all.extend(members::remove(place));
            all
        },
    }
}

/// What redundancy leaves.
fn leaves(layer: &Layer, bytes: u64) -> u64 {
    let members = members_of(layer).map_or(1, u64::from);
    let of_data = match layer.name.as_str() {
        "raid1" => 1,
        "raid5" => members.saturating_sub(1),
        "raid6" => members.saturating_sub(2),
        "raid10" => return bytes / 2,
        _ => members,
    };
    bytes / members * of_data
}

/// Bounds on the speed of a resync, in KiB/s.
fn limit_resync(speed: &str) {
    let _ = fs::write("/proc/sys/dev/raid/speed_limit_min", speed);
    let _ = fs::write("/proc/sys/dev/raid/speed_limit_max", speed);
}

const ALL_OPTIONS: &[&str] = &["chunk=", "layout=", "bitmap=", "consistency-policy="];

fn number(place: &LowerLocation) -> usize {
    100 + place.index
}

fn path(place: &LowerLocation) -> String {
    format!("/dev/md{}", number(place))
}

fn sysfs(place: &LowerLocation) -> PathBuf {
    format!("/sys/block/md{}/md", number(place)).into()
}
