//! gocryptfs: names and contents of files encrypted in user space.

use super::{Rights, Upper, UpperLocation, words};
use crate::filesystem::LayerTool;

pub static GOCRYPTFS: Upper = Upper {
    name: "gocryptfs",
    summary: "encrypts each file in user space (package gocryptfs)",
    tools: &[LayerTool::new("gocryptfs", "gocryptfs", "-version")],
    kernel_name: "fuse",
    options: &[
        "-aessiv",
        "-deterministic-names",
        "-longnamemax=",
        "-noprealloc",
        "-openssl=",
        "-plaintextnames",
        "-raw64",
        "-scryptn=",
        "-serialize_reads",
        "-sharedstorage",
        "-xchacha",
    ],
    takes_number: false,
    rights: Rights::Roots,
    daemon: Some("gocryptfs"),
    service: None,
    directories: |_| vec![DIRECTORY.into()],
    prepare: |place, tools| {
        let mut words = begun(place, |option| !OF_MOUNT.contains(&option));
        words.extend(["-init".into(), place.below_text(DIRECTORY)]);
        tools.expect(&words, "making the encrypted directory failed").map(drop)
    },
    mount: |place| {
        let mut words = begun(place, |option| option == OF_BOTH || OF_MOUNT.contains(&option));
        words.push("-allow_other".into());
        let options = place.mount_options(&[]);
        if !options.is_empty() {
            words.extend(["-ko".into(), options]);
        }
        words.extend([place.below_text(DIRECTORY), place.point_text()]);
        words
    },
};

const DIRECTORY: &str = "encrypted";

/// What is said when it is mounted, and not when it is made.
const OF_MOUNT: [&str; 3] = ["-noprealloc", "-serialize_reads", "-sharedstorage"];
/// What is said both times.
const OF_BOTH: &str = "-openssl";

/// The command line up to the contender's own options that are wanted, by their names.
fn begun(place: &UpperLocation<'_>, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut words = words(&["gocryptfs", "-q", "-passfile"]);
    words.push(place.password_text());
    let name = |word: &str| word.split('=').next().unwrap_or(word).to_owned();
    words.extend(place.layer.options.iter().filter(|word| is_wanted(&name(word))).cloned());
    words
}
