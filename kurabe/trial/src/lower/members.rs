//! The members of a layer that is made of several: equal parts of the device below, as linear maps.

use std::path::Path;

use super::{Place, wipe, words};
use crate::device::part_bytes;
use crate::tool::{Failure, Toolbox};

/// No udev runs in a guest, so dmsetup is to make and remove the nodes itself.
const WITHOUT_UDEV: [&str; 3] = ["--noudevsync", "--noudevrules", "--verifyudev"];

/// What divides a device.
pub(super) const MODULE: &str = "dm_mod";

/// The table of each member (dmsetup(8)), in sectors of 512 bytes.
pub(super) fn tables(place: &Place) -> Vec<String> {
    let count = place.members();
    let sectors = part_bytes(place.size_bytes, count) / 512;
    let table = |number: u32| {
        format!("0 {sectors} linear {} {}", place.node_text(), u64::from(number) * sectors)
    };
    (0..count).map(table).collect()
}

fn name(place: &Place, number: u32) -> String {
    format!("{}-member{number}", place.name)
}

/// Their paths.
pub(super) fn paths(place: &Place) -> Vec<String> {
    (0..place.members()).map(|number| format!("/dev/mapper/{}", name(place, number))).collect()
}

/// The paths of those that are not lost.
pub(super) fn left(place: &Place) -> Vec<String> {
    let numbered = (0..).zip(paths(place));
    numbered.filter(|(number, _)| Some(*number) != place.lost).map(|(_, path)| path).collect()
}

/// Makes them.
pub(super) fn make(place: &Place, tools: &mut Toolbox) -> Result<(), Failure> {
    open(place, tools)?;
    // Whatever was at the same places in an earlier run.
    paths(place).iter().try_for_each(|path| wipe(Path::new(path)))
}

/// Divides the device as it was divided before.
pub(super) fn open(place: &Place, tools: &mut Toolbox) -> Result<(), Failure> {
    // One process makes all: there may be hundreds of times to do so.
    let one = |(number, table)| format!("{},,,rw,{table}", name(place, number));
    let all: Vec<String> = (0..).zip(tables(place)).map(one).collect();
    let mut words = words(&["dmsetup", "create", "--concise", &all.join(";")]);
    words.extend(WITHOUT_UDEV.map(String::from));
    tools.expect(&words, "dividing the device failed").map(drop)
}

/// The command that removes them.
pub(super) fn remove(place: &Place) -> Vec<String> {
    let mut remove = words(&["dmsetup", "remove"]);
    remove.extend((0..place.members()).map(|number| name(place, number)));
    remove.extend(words(&WITHOUT_UDEV));
    remove
}
