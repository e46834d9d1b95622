//! LUKS: cryptsetup and dm-crypt, with cryptsetup's defaults. The passphrase is random, so it is stretched as
//! little as possible unless the contender says otherwise; that concerns the opening only.

use super::{Lower, words};
use crate::filesystem::Tool;

/// LUKS.
pub static LUKS: Lower = Lower {
    name: "luks",
    summary: "an encrypted block device, with cryptsetup's defaults; the key is random and kept nowhere",
    tools: &[Tool::new("cryptsetup", "cryptsetup-bin", "--version")],
    modules: &[
        "dm_crypt",
        "xts",
        "aesni_intel",
        "aes_generic",
        "algif_skcipher",
        "essiv",
        "adiantum",
    ],
    members_min: None,
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
    make: |place, tools| {
        let (node, key) = (place.node_text(), format!("--key-file={}", place.key_path()));
        let mut format = words(&["cryptsetup", "luksFormat", "--batch-mode", &key]);
        format.extend(place.options(FORMAT));
        if place.options(STRETCHING).next().is_none() {
            format.extend(words(&["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"]));
        }
        format.push(node.clone());
        tools.expect(&format, "luksFormat failed")?;
        let mut open = words(&["cryptsetup", "open", &key]);
        open.extend(place.options(OPEN));
        open.extend([node, place.name.clone()]);
        tools.expect(&open, "opening the encrypted device failed")?;
        Ok(place.mapped())
    },
    is_syncing: |_| false,
    describe: |place| words(&["cryptsetup", "status", &place.name]),
    close: |place| vec![words(&["cryptsetup", "close", &place.name])],
};

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
