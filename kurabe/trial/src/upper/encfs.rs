//! EncFS: names and contents of files encrypted in user space.

use super::{Rights, Upper, words};
use crate::filesystem::LayerTool;

/// EncFS with its standard settings.
pub static ENCFS: Upper = Upper {
    name: "encfs",
    summary: "encrypts each file in user space (package encfs), with its standard settings",
    tools: &[LayerTool::new("encfs", "encfs", "--version")],
    kernel_name: "fuse",
    options: &["--nocache", "--noattrcache", "--nodatacache"],
    takes_number: false,
    rights: Rights::NotForUsers,
    daemon: Some("encfs"),
    service: None,
    directories: |_| vec![DIRECTORY.into()],
    prepare: |_, _| Ok(()),
    mount: |place| {
        let mut words = words(&["encfs", "--standard"]);
        // The program that it asks for the password; its path has no character of a shell's.
        words.push(format!("--extpass=cat {}", place.password_text()));
        words.extend(place.layer.options.iter().cloned());
        words.extend([place.below_text(DIRECTORY), place.point_text()]);
        words.extend(["-o".into(), place.mount_options(&["allow_other", "nosuid", "nodev"])]);
        words
    },
};

const DIRECTORY: &str = "encrypted";
