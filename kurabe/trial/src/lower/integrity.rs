//! dm-integrity: a checksum for each sector, with integritysetup's defaults. What is read and does not fit its
//! checksum is an error.

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
    why_not_cut: Some(
        "Linux 6.1 panics in the guest with dm-integrity on a recorded device (seen twice)",
    ),
    make: |place, tools| {
        // It writes the whole device, since nothing could be read before.
        let mut format = words(&["integritysetup", "format", "--batch-mode"]);
        format.extend(place.options(FORMAT));
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
    open.extend([place.node_text(), place.name.clone()]);
    tools.expect(&open, "integritysetup open failed")?;
    Ok(place.mapped())
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
