//! dm-integrity: a checksum for each sector, with integritysetup's defaults. What is read and does not fit its
//! checksum is an error.

use std::fs;
use std::path::PathBuf;

use super::{Lower, LowerLocation, MadeOf, words};
use crate::filesystem::LayerTool;
use crate::tool::{StepFailure, Toolbox};

pub static INTEGRITY: Lower = Lower {
    name: "integrity",
    summary: "a checksum for each sector, with integritysetup's defaults: a journal of all data",
    tools: &[LayerTool::new("integritysetup", "cryptsetup-bin", "--version")],
    modules: &["dm_integrity", "crc32c_generic", "sha256_generic", "xxhash_generic"],
    made_of: MadeOf::One,
    options: &[
        "integrity=",
        "sector-size=",
        "tag-size=",
        "journal-size=",
        "interleave-sectors=",
        "journal-watermark=",
        "journal-commit-time=",
        "integrity-no-journal",
        "integrity-bitmap-mode",
    ],
    encrypts: false,
    shows_old_bytes: false,
    spares_one: false,
    works_here: false,
    on_file: false,
    leaves: |_, bytes| bytes,
    make: |place, tools| {
        // It writes the whole device, since nothing could be read before.
        let mut format = words(&["integritysetup", "format", "--batch-mode"]);
        format.extend(place.options(FORMAT));
        format.extend(small_buffers());
        format.push(place.node_text());
        tools.expect(&format, "integritysetup format failed")?;
        open(place, tools)
    },
    open,
    is_syncing: |_| false,
    describe: |place| words(&["integritysetup", "status", &place.name]),
    close: |place| vec![words(&["integritysetup", "close", &place.name])],
};

fn open(place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
    let mut open = words(&["integritysetup", "open"]);
    open.extend(place.options(OPEN));
    open.extend(small_buffers());
    open.extend([place.node_text(), place.name.clone()]);
    tools.expect(&open, "integritysetup open failed")?;
    Ok(place.mapped())
}

/// Buffers of one page where a device of this guest is served past the page cache. Of a larger one, Linux 6.1 frees
/// all pages but the first once FUSE has read or written them: they have no count of their own.
fn small_buffers() -> Option<String> {
    let is_direct = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let mut devices = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
    let found = devices.any(|device| is_direct(device.path().join("loop/dio")));
    found.then(|| "--buffer-sectors=8".into())
}

const FORMAT: &[&str] =
    &["integrity=", "sector-size=", "tag-size=", "journal-size=", "interleave-sectors="];
const OPEN: &[&str] = &[
    "integrity=",
    "journal-watermark=",
    "journal-commit-time=",
    "integrity-no-journal",
    "integrity-bitmap-mode",
];
