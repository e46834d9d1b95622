//! The members of a layer that is made of several: devices of their own, or parts of the one below, as linear maps.

use std::path::Path;

use lab::contender::Layer;

use super::{LowerLocation, MadeOf, by_name, members_of, wipe, words};
use crate::device::part_bytes;
use crate::tool::{StepFailure, Toolbox};

/// No udev runs in a guest, so dmsetup is to make and remove the nodes itself.
pub(super) const WITHOUT_UDEV: [&str; 3] = ["--noudevsync", "--noudevrules", "--verifyudev"];

/// What divides a device.
pub(super) const MODULE: &str = "dm_mod";

/// Of a device with a cache, which share of it is the cache.
pub(super) const CACHE_SHARE: u32 = 8;

/// The sizes of the members, in sectors of 512 bytes: of devices their own; else equal parts, or what is cached and
/// its cache.
pub(super) fn shares(place: &LowerLocation) -> Vec<u64> {
    if !place.devices.is_empty() {
        return place.devices.iter().map(|(_, bytes)| part_bytes(*bytes, 1) / 512).collect();
    }
    let parts = parts(&place.layer, place.size_bytes).unwrap_or_default();
    parts.into_iter().map(|bytes| bytes / 512).collect()
}

/// The sizes in bytes of the parts of a device for a layer that is made of several.
pub(super) fn parts(layer: &Layer, size_bytes: u64) -> Option<Vec<u64>> {
    let part = |count| part_bytes(size_bytes, count);
    Some(match by_name(&layer.name)?.made_of {
        MadeOf::One => return None,
        MadeOf::Members(_) => {
            let members = members_of(layer)?;
            vec![part(members); members as usize]
        }
        MadeOf::DataAndCache => {
            vec![part(CACHE_SHARE) * u64::from(CACHE_SHARE - 1), part(CACHE_SHARE)]
        }
    })
}

/// The table of each member (dmsetup(8)).
pub(super) fn tables(place: &LowerLocation) -> Vec<String> {
    let mut begins = 0;
    let table = |sectors: u64| {
        let table = format!("0 {sectors} linear {} {begins}", place.node_text());
        begins += sectors;
        table
    };
    shares(place).into_iter().map(table).collect()
}

fn names(place: &LowerLocation) -> impl Iterator<Item = String> {
    (0..shares(place).len()).map(|number| format!("{}-member{number}", place.name))
}

pub(super) fn paths(place: &LowerLocation) -> Vec<String> {
    if !place.devices.is_empty() {
        return place.devices.iter().map(|(node, _)| LowerLocation::dev_text(node)).collect();
    }
    names(place).map(|name| format!("/dev/mapper/{name}")).collect()
}

/// The paths of those that are not lost.
pub(super) fn left(place: &LowerLocation) -> Vec<String> {
    let numbered = (0..).zip(paths(place));
    numbered.filter(|(number, _)| Some(*number) != place.lost).map(|(_, path)| path).collect()
}

pub(super) fn make(place: &LowerLocation, tools: &mut Toolbox) -> Result<(), StepFailure> {
    open(place, tools)?;
    // Whatever was at the same places in an earlier run.
    paths(place).iter().try_for_each(|path| wipe(Path::new(path)))
}

/// Divides the device as it was divided before.
pub(super) fn open(place: &LowerLocation, tools: &mut Toolbox) -> Result<(), StepFailure> {
    if !place.devices.is_empty() {
        return Ok(());
    }
    // One process makes all: there may be hundreds of times to do so.
    let one = |(name, table)| format!("{name},,,rw,{table}");
    let all: Vec<String> = names(place).zip(tables(place)).map(one).collect();
    let mut words = words(&["dmsetup", "create", "--concise", &all.join(";")]);
    words.extend(WITHOUT_UDEV.map(String::from));
    tools.expect(&words, "dividing the device failed").map(drop)
}

/// The command that removes parts.
pub(super) fn remove(place: &LowerLocation) -> Option<Vec<String>> {
    if !place.devices.is_empty() {
        return None;
    }
    let mut remove = words(&["dmsetup", "remove"]);
    remove.extend(names(place));
    remove.extend(words(&WITHOUT_UDEV));
    Some(remove)
}
