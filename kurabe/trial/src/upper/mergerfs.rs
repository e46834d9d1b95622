//! mergerfs: a union of several directories in user space.

use super::{Rights, Upper, UpperLocation};
use crate::filesystem::LayerTool;

/// mergerfs. All directories are on the layer below.
pub static MERGERFS: Upper = Upper {
    name: "mergerfs",
    summary: "a pool of directories in user space (package mergerfs); mergerfs:3 has three of them",
    tools: &[LayerTool::new("mergerfs", "mergerfs", "--version")],
    kernel_name: "fuse",
    options: &[],
    takes_number: true,
    rights: Rights::NotForUsers,
    daemon: Some("mergerfs"),
    service: None,
    directories: names,
    prepare: |_, _| Ok(()),
    mount: |place| {
        let branches: Vec<String> =
            names(place).iter().map(|name| place.below_text(name)).collect();
        let options = place.mount_options(&["allow_other", "nosuid", "nodev", NO_RESERVE]);
        vec!["mergerfs".into(), "-o".into(), options, branches.join(":"), place.point_text()]
    },
};

/// By default it writes to no directory with less than 4 GiB free, which is all of a small device.
const NO_RESERVE: &str = "minfreespace=0";

/// Directories where no number is written.
const BRANCHES: u32 = 2;

fn names(place: &UpperLocation<'_>) -> Vec<String> {
    (1..=place.number(BRANCHES)).map(|number| format!("branch-{number}")).collect()
}
