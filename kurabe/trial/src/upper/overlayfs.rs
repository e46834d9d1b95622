//! overlayfs, of the kernel and in user space: lower, upper and work directories on the layer below. The
//! lower one is empty, so everything is written to the upper one.

use super::{Rights, Upper, UpperLocation, words};
use crate::filesystem::LayerTool;

/// Of the kernel.
pub static OVERLAYFS: Upper = Upper {
    name: "overlayfs",
    summary: "the kernel's union of directories, as under containers; the lower one is empty",
    tools: &[],
    kernel_name: "overlay",
    options: &[],
    takes_number: false,
    rights: Rights::Roots,
    daemon: None,
    service: None,
    directories,
    prepare: |_, _| Ok(()),
    mount: |place| {
        let mut words = words(&["mount", "-n", "-t", "overlay", "-o"]);
        words.extend([options(place), "overlay".into(), place.point_text()]);
        words
    },
};

/// In user space, as under containers of users.
pub static FUSE_OVERLAYFS: Upper = Upper {
    name: "fuse-overlayfs",
    summary: "overlayfs in user space (package fuse-overlayfs), as under rootless containers",
    tools: &[LayerTool::new("fuse-overlayfs", "fuse-overlayfs", "--version")],
    kernel_name: "fuse",
    options: &[],
    takes_number: false,
    rights: Rights::Roots,
    daemon: Some("fuse-overlayfs"),
    service: None,
    directories,
    prepare: |_, _| Ok(()),
    mount: |place| {
        let options = options(place) + ",allow_other,nosuid,nodev";
        vec!["fuse-overlayfs".into(), "-o".into(), options, place.point_text()]
    },
};

fn directories(_: &UpperLocation<'_>) -> Vec<String> {
    words(&["lower", "upper", "work"])
}

fn options(place: &UpperLocation<'_>) -> String {
    let directory = |name| format!("{name}dir={}", place.below_text(name));
    let own = [directory("lower"), directory("upper"), directory("work")];
    place.mount_options(&own.each_ref().map(String::as_str))
}
