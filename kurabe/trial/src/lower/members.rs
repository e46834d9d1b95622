//! The members of a layer that is made of several: parts of the device below, as linear maps.

use std::path::Path;

use super::{Place, wipe, words};
use crate::device::part_bytes;
use crate::tool::{Failure, Toolbox};

/// No udev runs in a guest, so dmsetup is to make and remove the nodes itself.
pub(super) const WITHOUT_UDEV: [&str; 3] = ["--noudevsync", "--noudevrules", "--verifyudev"];

/// What divides a device.
pub(super) const MODULE: &str = "dm_mod";

/// Of a device with a cache, which share of it is the cache.
const CACHE_SHARE: u32 = 8;

/// The sizes of the members, in sectors of 512 bytes: equal parts, or what is cached and its cache.
pub(super) fn shares(place: &Place) -> Vec<u64> {
    let part = |count| part_bytes(place.size_bytes, count) / 512;
    match place.layer.argument {
        Some(_) => vec![part(place.members()); place.members() as usize],
        None => vec![part(CACHE_SHARE) * u64::from(CACHE_SHARE - 1), part(CACHE_SHARE)],
    }
}

/// The table of each member (dmsetup(8)).
pub(super) fn tables(place: &Place) -> Vec<String> {
    let mut begins = 0;
    let table = |sectors: u64| {
        let table = format!("0 {sectors} linear {} {begins}", place.node_text());
        begins += sectors;
        table
    };
    shares(place).into_iter().map(table).collect()
}

fn names(place: &Place) -> impl Iterator<Item = String> {
    (0..shares(place).len()).map(|number| format!("{}-member{number}", place.name))
}

/// Their paths.
pub(super) fn paths(place: &Place) -> Vec<String> {
    names(place).map(|name| format!("/dev/mapper/{name}")).collect()
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
    let one = |(name, table)| format!("{name},,,rw,{table}");
    let all: Vec<String> = names(place).zip(tables(place)).map(one).collect();
    let mut words = words(&["dmsetup", "create", "--concise", &all.join(";")]);
    words.extend(WITHOUT_UDEV.map(String::from));
    tools.expect(&words, "dividing the device failed").map(drop)
}

/// The command that removes them.
pub(super) fn remove(place: &Place) -> Vec<String> {
    let mut remove = words(&["dmsetup", "remove"]);
    remove.extend(names(place));
    remove.extend(words(&WITHOUT_UDEV));
    remove
}
