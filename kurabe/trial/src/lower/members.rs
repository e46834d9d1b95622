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

/// Makes them.
pub(super) fn make(place: &Place, tools: &mut Toolbox) -> Result<(), Failure> {
    for (number, table) in (0..).zip(tables(place)) {
        let name = name(place, number);
        let words = ["dmsetup", "create", &name, "--table", &table];
        let words: Vec<&str> = words.into_iter().chain(WITHOUT_UDEV).collect();
        tools.expect(&words, "dividing the device failed")?;
    }
    // Whatever was at the same places in an earlier run.
    paths(place).iter().try_for_each(|path| wipe(Path::new(path)))
}

/// The commands that remove them.
pub(super) fn remove(place: &Place) -> Vec<Vec<String>> {
    let remove = |number| {
        let mut remove = words(&["dmsetup", "remove", &name(place, number)]);
        remove.extend(words(&WITHOUT_UDEV));
        remove
    };
    (0..place.members()).map(remove).collect()
}
