//! LVM: a linear volume, a striped one, and a thin one whose pool's blocks are allocated as they are written.

use std::path::PathBuf;

use super::{Lower, LowerLocation, MadeOf, members, words};
use crate::filesystem::LayerTool;
use crate::tool::{StepFailure, Toolbox};

const LVM_PACKAGE: LayerTool = LayerTool::new("lvm", "lvm2", "version");

/// A linear volume.
pub static LVM: Lower = LINEAR;

const LINEAR: Lower = Lower {
    name: "lvm",
    summary: "a linear volume of LVM over the whole device",
    tools: &[LVM_PACKAGE],
    modules: &[members::MODULE],
    made_of: MadeOf::One,
    options: &[],
    encrypts: false,
    shows_old_bytes: true,
    spares_one: false,
    works_here: false,
    on_file: false,
    leaves: |_, bytes| bytes,
    make: |place, tools| {
        group(place, tools)?;
        volume(place, tools, &["--extents=100%FREE"], &[])
    },
    open,
    is_syncing: |_| false,
    describe,
    close,
};

/// A striped volume.
pub static STRIPE: Lower = Lower {
    name: "lvm-stripe",
    summary: "a volume of LVM that is striped over N devices, or parts of one",
    tools: &[LVM_PACKAGE, LayerTool::new("dmsetup", "dmsetup", "--version")],
    made_of: MadeOf::Members(2),
    options: &["stripesize="],
    make: |place, tools| {
        members::make(place, tools)?;
        group(place, tools)?;
        let stripes = format!("--stripes={}", place.members());
        volume(place, tools, &["--type=striped", "--extents=100%FREE", &stripes], &["stripesize="])
    },
    open: |place, tools| {
        members::open(place, tools)?;
        open(place, tools)
    },
    close: |place| {
        let mut all = close(place);
        all.extend(members::remove(place));
        all
    },
    ..LINEAR
};

pub static THIN: Lower = Lower {
    name: "lvm-thin",
    summary: "a thin volume of LVM, whose pool's blocks are allocated when they are first written",
    modules: &["dm_thin_pool", members::MODULE],
    options: &["chunksize=", "zero="],
    shows_old_bytes: false,
    leaves: |_, bytes| bytes / 10 * 9,
    make: |place, tools| {
        group(place, tools)?;
        let pool = ["--type=thin-pool", "--extents=90%FREE", "--name=pool"];
        let mut make = lvm(place, "lvcreate", &pool);
        make.extend(place.options(&["chunksize=", "zero="]));
        make.push(place.name.clone());
        tools.expect(&make, "making the thin pool failed")?;
        let ask = ["--noheadings", "--nosuffix", "--units=b", "--options=lv_size"];
        let mut ask = lvm(place, "lvs", &ask);
        ask.push(format!("{}/pool", place.name));
        let bytes = tools.look(&ask, "the thin pool has no size")?;
        let size = format!("--virtualsize={}b", bytes.trim());
        volume(place, tools, &["--type=thin", &size, "--thinpool=pool"], &[])
    },
    ..LINEAR
};

/// What of the device's parts the group is made of.
fn devices(place: &LowerLocation) -> Vec<String> {
    match place.layer.argument {
        Some(_) => members::paths(place),
        None => vec![LowerLocation::dev_text(&place.node)],
    }
}

/// A command of LVM that sees the group's devices and no others.
fn lvm(place: &LowerLocation, command: &str, arguments: &[&str]) -> Vec<String> {
    // No udev runs in a guest. What checks thin pools is in a package of its own, and a new pool is sound.
    const SETTINGS: &str = "activation { udev_sync=0 udev_rules=0 monitoring=0 } \
                            global { thin_check_executable=\"\" } \
                            backup { backup=0 archive=0 }";
    let devices = devices(place).join(",");
    let mut words = words(&["lvm", command, "--config", SETTINGS, "--devices", &devices]);
    words.extend(arguments.iter().map(ToString::to_string));
    words
}

fn group(place: &LowerLocation, tools: &mut Toolbox) -> Result<(), StepFailure> {
    let mut make = lvm(place, "pvcreate", &["--yes"]);
    make.extend(devices(place));
    tools.expect(&make, "pvcreate failed")?;
    let mut make = lvm(place, "vgcreate", &["--yes", &place.name]);
    make.extend(devices(place));
    tools.expect(&make, "vgcreate failed").map(drop)
}

/// Makes the volume, which is called `disk`.
fn volume(
    place: &LowerLocation,
    tools: &mut Toolbox,
    arguments: &[&str],
    options: &[&str],
) -> Result<PathBuf, StepFailure> {
    let mut make = lvm(place, "lvcreate", &["--yes", "--wipesignatures=n", "--zero=n"]);
    // A thin volume has nothing to be wiped, and takes no word for it.
    if arguments.contains(&"--type=thin") {
        make.truncate(make.len() - 2);
    }
    make.extend(arguments.iter().map(ToString::to_string));
    make.extend(place.options(options));
    make.extend(["--name=disk".into(), place.name.clone()]);
    tools.expect(&make, "lvcreate failed")?;
    Ok(path(place))
}

fn path(place: &LowerLocation) -> PathBuf {
    format!("/dev/mapper/{}-disk", place.name).into()
}

fn open(place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
    tools.expect(&lvm(place, "vgchange", &["--activate=y", &place.name]), "vgchange failed")?;
    Ok(path(place))
}

fn describe(place: &LowerLocation) -> Vec<String> {
    let mut ask = lvm(place, "lvs", &["--all", "--options=+stripes,stripe_size,chunk_size,zero"]);
    ask.push(place.name.clone());
    ask
}

fn close(place: &LowerLocation) -> Vec<Vec<String>> {
    vec![lvm(place, "vgchange", &["--activate=n", &place.name])]
}
