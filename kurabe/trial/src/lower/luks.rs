//! LUKS: cryptsetup and dm-crypt, with cryptsetup's defaults. The passphrase is random, so it is stretched as
//! little as possible unless the contender says otherwise; that concerns the opening only.

use std::path::PathBuf;

use super::{Lower, LowerLocation, MadeOf, words};
use crate::filesystem::LayerTool;
use crate::tool::{StepFailure, Toolbox};

/// What LUKS2 keeps for itself before the data.
const HEADER_BYTES: u64 = 16 << 20;

pub static LUKS: Lower = Lower {
    name: "luks",
    summary: "an encrypted block device, with cryptsetup's defaults; the key is random and kept nowhere",
    tools: &[LayerTool::new("cryptsetup", "cryptsetup-bin", "--version")],
    modules: &[
        "dm_crypt",
        "xts",
        "aesni_intel",
        "aes_generic",
        "algif_skcipher",
        "essiv",
        "adiantum",
    ],
    made_of: MadeOf::One,
    options: &[
        "cipher=",
        "key-size=",
        "hash=",
        "type=",
        "sector-size=",
        "pbkdf=",
        "iter-time=",
        "perf-no_read_workqueue",
        "perf-no_write_workqueue",
        "perf-same_cpu_crypt",
        "perf-submit_from_crypt_cpus",
        "allow-discards",
    ],
    encrypts: true,
    shows_old_bytes: false,
    spares_one: false,
    works_here: false,
    on_file: false,
    leaves: |_, bytes| bytes.saturating_sub(HEADER_BYTES),
    make: |place, tools| {
        let key = key_file(place);
        let mut format = words(&["cryptsetup", "luksFormat", "--batch-mode", &key]);
        format.extend(place.options(FORMAT));
        if place.options(STRETCHING).next().is_none() {
            format.extend(words(&["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]));
        }
        format.push(place.node_text());
        tools.expect(&format, "luksFormat failed")?;
        open(place, tools)
    },
    open,
    is_syncing: |_| false,
    describe: |place| words(&["cryptsetup", "status", &place.name]),
    close: |place| vec![words(&["cryptsetup", "close", &place.name])],
};

fn key_file(place: &LowerLocation) -> String {
    format!("--key-file={}", place.key_path())
}

fn open(place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
    let mut open = words(&["cryptsetup", "open", &key_file(place)]);
    open.extend(place.options(OPEN));
    open.extend([place.node_text(), place.name.clone()]);
    tools.expect(&open, "opening the encrypted device failed")?;
    Ok(place.mapped())
}

const FORMAT: &[&str] =
    &["cipher=", "key-size=", "hash=", "type=", "sector-size=", "pbkdf=", "iter-time="];
const STRETCHING: &[&str] = &["pbkdf=", "iter-time="];
const OPEN: &[&str] = &[
    "perf-no_read_workqueue",
    "perf-no_write_workqueue",
    "perf-same_cpu_crypt",
    "perf-submit_from_crypt_cpus",
    "allow-discards",
];
