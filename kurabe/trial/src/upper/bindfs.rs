//! bindfs: a directory shown elsewhere, in user space. What it costs is what FUSE costs.

use super::{Rights, Upper};
use crate::filesystem::LayerTool;

pub static BINDFS: Upper = Upper {
    name: "bindfs",
    summary: "hands everything on to a directory, in user space (package bindfs): the cost of FUSE alone",
    tools: &[LayerTool::new("bindfs", "bindfs", "--version")],
    kernel_name: "fuse",
    options: &["--multithreaded", "--direct-io", "--no-allow-other"],
    takes_number: false,
    rights: Rights::Roots,
    daemon: Some("bindfs"),
    service: None,
    directories: |_| vec!["bound".into()],
    prepare: |_, _| Ok(()),
    mount: |place| {
        let mut words = vec!["bindfs".to_owned()];
        words.extend(place.layer.options.iter().cloned());
        words.extend(["-o".into(), place.mount_options(&["allow_other", "nosuid", "nodev"])]);
        words.extend([place.below_text("bound"), place.point_text()]);
        words
    },
};
