//! bcache: reads and writes are cached. The second device is the cache, or a part of the only one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Lower, LowerLocation, MadeOf, members, words};
use crate::filesystem::LayerTool;
use crate::tool::{StepFailure, Toolbox, failed};

pub static BCACHE: Lower = Lower {
    name: "bcache",
    summary: "a cache, writethrough unless 'writeback' is said (bcache): the second device, or an eighth of the only one",
    tools: &[
        LayerTool { name: "make-bcache", package: "bcache-tools", version: None },
        LayerTool::new("dmsetup", "dmsetup", "--version"),
    ],
    modules: &["bcache", members::MODULE],
    made_of: MadeOf::DataAndCache,
    options: &["writeback", "cache_replacement_policy=", "bucket=", "block="],
    encrypts: false,
    shows_old_bytes: true,
    spares_one: true,
    works_here: false,
    on_file: false,
    leaves: |_, bytes| bytes - bytes / u64::from(members::CACHE_SHARE),
    make: |place, tools| {
        members::make(place, tools)?;
        let mut make = words(&["make-bcache"]);
        make.extend(place.options(BCACHE.options));
        if place.options(&["bucket="]).next().is_none() {
            make.push(format!("--bucket={}k", bucket_kib(members::shares(place)[1])));
        }
        let paths = members::paths(place);
        make.extend(words(&["-B", &paths[0], "-C", &paths[1]]));
        tools.expect(&make, "make-bcache failed")?;
        register(place, tools)
    },
    open: |place, tools| {
        members::open(place, tools)?;
        register(place, tools)
    },
    is_syncing: |_| false,
    describe: |place| {
        let of = |name: &str| sysfs(place, 0).map(|path| path.join(name).display().to_string());
        let files = ["state", "cache_mode", "dirty_data"].iter().filter_map(|name| of(name));
        words(&["grep", "-H", ""]).into_iter().chain(files).collect()
    },
    close: |place| {
        // The set goes once its device has gone, and both some time after they were told to.
        const SCRIPT: &str = "echo 1 >$0/stop; echo 1 >$1/set/stop; \
                              for i in $(seq 100); do test -e $0 || test -e $1 || exit 0; sleep 0.1; done; exit 1";
        let paths = [sysfs(place, 0), sysfs(place, 1)].map(|path| path.unwrap_or_default());
        let mut stop = words(&["sh", "-c", SCRIPT]);
        stop.extend(paths.map(|path| path.display().to_string()));
        [Some(stop), members::remove(place)].into_iter().flatten().collect()
    },
};

/// The size of a bucket in KiB for a cache of so many sectors: make-bcache's own, or less where the cache would
/// have fewer than 2048. The kernel takes none with fewer than 1024.
fn bucket_kib(cache_sectors: u64) -> u64 {
    let most = (cache_sectors / 2 / 2048).max(1);
    (1 << most.ilog2()).clamp(4, 512)
}

/// How long its device is waited for.
const DEVICE_WAIT_MAX: Duration = Duration::from_secs(10);

/// What the kernel says of a member.
fn sysfs(place: &LowerLocation, member: usize) -> Option<PathBuf> {
    let number = fs::metadata(&members::paths(place)[member]).ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(format!("/sys/dev/block/{major}:{minor}/bcache").into())
}

/// Tells the kernel of both members, or of what is left of them, which no udev does in a guest, and waits for the
/// device.
fn register(place: &LowerLocation, tools: &mut Toolbox) -> Result<PathBuf, StepFailure> {
    let until = Instant::now() + DEVICE_WAIT_MAX;
    for path in members::left(place) {
        fs::write("/sys/fs/bcache/register", &path)
            .map_err(failed(format_args!("bcache does not take {path}")))?;
    }
    if place.lost.is_some() {
        let run = sysfs(place, 0).unwrap_or_default().join("running");
        fs::write(run, "1").map_err(failed("bcache does not run without its cache"))?;
    }
    while Instant::now() < until {
        let device = sysfs(place, 0).and_then(|path| fs::read_link(path.join("dev")).ok());
        let name = device.as_deref().and_then(Path::file_name);
        if let Some(path) =
            name.map(|name| Path::new("/dev").join(name)).filter(|path| path.exists())
        {
            return Ok(path);
        }
        tools.pause(Duration::from_millis(20))?;
    }
    Err(StepFailure::of("bcache made no device of its members"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_cache_has_small_buckets() {
        for (mib, kib) in [(8, 4), (16, 8), (32, 16), (100, 32), (1024, 512), (100_000, 512)] {
            assert_eq!(bucket_kib(mib * 2048), kib, "{mib} MiB");
        }
    }
}
