//! dm-writecache: writes go to a cache first. The second device is the cache, or a part of the only one.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use super::{Lower, LowerLocation, MadeOf, members, words};
use crate::filesystem::LayerTool;
use crate::tool::{StepFailure, Toolbox, failed};

pub static WRITECACHE: Lower = Lower {
    name: "writecache",
    summary: "writes go to a cache first (dm-writecache): the second device, or an eighth of the only one",
    tools: &[LayerTool::new("dmsetup", "dmsetup", "--version")],
    modules: &["dm_writecache", members::MODULE],
    made_of: MadeOf::DataAndCache,
    options: &[],
    encrypts: false,
    shows_old_bytes: true,
    spares_one: true,
    works_here: false,
    on_file: false,
    leaves: |_, bytes| bytes - bytes / u64::from(members::CACHE_SHARE),
    make: |place, tools| {
        members::make(place, tools)?;
        // The kernel formats a cache that begins with zeros.
        let cache = members::paths(place).remove(1);
        let zeroed = OpenOptions::new().write(true).open(&cache).and_then(|mut cache| {
            cache.write_all(&[0; BLOCK_BYTES])?;
            cache.sync_all()
        });
        zeroed.map_err(failed(cache))?;
        map(place, tools)
    },
    open: |place, tools| {
        members::open(place, tools)?;
        map(place, tools)
    },
    is_syncing: |_| false,
    describe: |place| words(&["dmsetup", "status", &place.name]),
    close: |place| {
        let mut remove = words(&["dmsetup", "remove", &place.name]);
        remove.extend(members::WITHOUT_UDEV.map(String::from));
        [Some(remove), members::remove(place)].into_iter().flatten().collect()
    },
};

/// What it caches at a time.
const BLOCK_BYTES: usize = 4096;

fn map(place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
    let paths = members::paths(place);
    let (data, cache) = (&paths[0], &paths[1]);
    let sectors = members::shares(place)[0];
    let table = match place.lost {
        // What is left is a device like any other.
        Some(_) => format!("0 {sectors} linear {data} 0"),
        None => format!("0 {sectors} writecache s {data} {cache} {BLOCK_BYTES} 0"),
    };
    let mut create = words(&["dmsetup", "create", &place.name, "--table", &table]);
    create.extend(members::WITHOUT_UDEV.map(String::from));
    tools.expect(&create, "dm-writecache could not be set up")?;
    Ok(place.mapped())
}
