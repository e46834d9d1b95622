//! Counters of the kernel, read before and after a phase: the block device's, and the machine's
//! CPU time. Reading them happens outside the timed region.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use vocabulary::cost::{CommandUsage, DeviceDelta};

use crate::sys;

/// The `stat` files of block devices, from whose sums deltas are taken.
#[derive(Debug, Clone)]
pub struct DeviceCounters {
    stats: Vec<PathBuf>,
}

/// One reading of a device's counters
/// (Documentation/block/stat.rst in the kernel's source; sectors are 512 bytes whatever the
/// device's block size).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceReading {
    totals: DeviceDelta,
    /// Requests in flight at the moment of reading.
    pub in_flight: u64,
}

const SECTOR_BYTES: u64 = 512;

/// Fields of `stat` since Linux 5.5.
const FIELDS_WITH_FLUSHES: usize = 17;

impl DeviceCounters {
    /// The counters of the device with this node, such as `/dev/loop3` or `/dev/sda1`. An enclosure does not show the
    /// node of a device that is mounted; there the device is known by its name, which is the kernel's.
    pub fn of_node(node: &Path) -> io::Result<DeviceCounters> {
        match rustix::fs::stat(node) {
            Ok(facts) => DeviceCounters::of_number(facts.st_rdev),
            Err(error) => {
                let name = node.file_name().ok_or(error)?;
                DeviceCounters::of_stat(Path::new("/sys/class/block").join(name).join("stat"))
            }
        }
    }

    /// The counters of the devices with these nodes, added up.
    pub fn of_nodes<'a>(nodes: impl Iterator<Item = &'a Path>) -> io::Result<DeviceCounters> {
        let each = nodes.map(|node| DeviceCounters::of_node(node).map(|one| one.stats));
        Ok(DeviceCounters { stats: each.collect::<io::Result<Vec<_>>>()?.concat() })
    }

    /// The counters of the device on which a directory lies. Fails for file systems that stand on
    /// no block device or on several (tmpfs, Btrfs, NFS).
    pub fn under_directory(directory: &Path) -> io::Result<DeviceCounters> {
        let device = rustix::fs::stat(directory)?.st_dev;
        DeviceCounters::of_number(device)
    }

    fn of_number(device: u64) -> io::Result<DeviceCounters> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        DeviceCounters::of_stat(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")))
    }

    fn of_stat(stat: PathBuf) -> io::Result<DeviceCounters> {
        fs::metadata(&stat)?;
        Ok(DeviceCounters { stats: vec![stat] })
    }

    /// Whether the kernel counts flushes here: not for partitions, and not before Linux 5.5.
    pub fn counts_flushes(&self) -> bool {
        self.stats.iter().all(|stat| {
            let partition = stat.with_file_name("partition").exists();
            let fields =
                fs::read_to_string(stat).map_or(0, |text| text.split_ascii_whitespace().count());
            !partition && fields >= FIELDS_WITH_FLUSHES
        })
    }

    /// Reads the counters now.
    pub fn read(&self) -> io::Result<DeviceReading> {
        let mut sum = DeviceReading::default();
        for stat in &self.stats {
            let text = fs::read_to_string(stat)?;
            let one = parse_stat(&text).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} is not in the known form: '{}'", stat.display(), text.trim()),
                )
            })?;
            sum.totals = sum.totals + one.totals;
            sum.in_flight += one.in_flight;
        }
        Ok(sum)
    }
}

impl DeviceReading {
    /// What happened since `earlier`. Counters only grow; a device that was replaced meanwhile
    /// gives zeros rather than nonsense.
    pub fn since(&self, earlier: &DeviceReading) -> DeviceDelta {
        self.totals - earlier.totals
    }

    /// Whether nothing is in flight and nothing was completed since `earlier`.
    pub fn quiet_since(&self, earlier: &DeviceReading) -> bool {
        self.in_flight == 0 && self.since(earlier) == DeviceDelta::default()
    }
}

/// Parses the 11, 15 or 17 fields that kernels of different age print. Kernels before 5.5 count
/// no flushes, which then stay 0.
fn parse_stat(text: &str) -> Option<DeviceReading> {
    let fields: Vec<u64> =
        text.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    if fields.len() < 11 {
        return None;
    }
    Some(DeviceReading {
        totals: DeviceDelta {
            reads: field(0),
            read_bytes: field(2) * SECTOR_BYTES,
            writes: field(4),
            written_bytes: field(6) * SECTOR_BYTES,
            busy_ms: field(9),
            queue_ms: field(10),
            discards: field(11),
            discarded_bytes: field(13) * SECTOR_BYTES,
            flushes: field(15),
        },
        in_flight: field(8),
    })
}

/// CPU time that the whole machine has spent since it started, in ns: every mode but idle and
/// waiting for I/O, from the first line of `/proc/stat`.
pub fn machine_cpu_ns() -> Option<u64> {
    parse_cpu(&fs::read_to_string("/proc/stat").ok()?, rustix::param::clock_ticks_per_second())
}

fn parse_cpu(text: &str, ticks_per_second: u64) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time already,
    // and stolen time was spent by somebody else's machine.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| fields.get(*index)).sum::<u64>();
    Some(busy * (1_000_000_000 / ticks_per_second))
}

/// What this process has cost so far, with its children that have ended.
pub fn own_usage() -> CommandUsage {
    let (user_ns, system_ns) = sys::own_cpu_ns();
    CommandUsage { user_ns, system_ns, ..bytes_moved("/proc/self/io") }
}

/// The bytes that a process has moved, from its `io` file.
pub fn bytes_moved(path: &str) -> CommandUsage {
    let io = fs::read_to_string(path).ok();
    let field = |name: &str| -> Option<u64> {
        io.as_deref()?
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
    };
    CommandUsage {
        write_call_bytes: field("wchar"),
        read_call_bytes: field("rchar"),
        storage_written_bytes: field("write_bytes")
            .map(|bytes| bytes.saturating_sub(field("cancelled_write_bytes").unwrap_or(0))),
        storage_read_bytes: field("read_bytes"),
        ..CommandUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_seventeen_fields() {
        let text = "  10 1 80 5   20 2 400 7   3 11 12   4 0 64 1   9 2\n";
        let reading = parse_stat(text).unwrap();
        assert_eq!(reading.in_flight, 3);
        let delta = reading.since(&DeviceReading::default());
        assert_eq!((delta.reads, delta.read_bytes), (10, 80 * 512));
        assert_eq!((delta.writes, delta.written_bytes), (20, 400 * 512));
        assert_eq!((delta.busy_ms, delta.queue_ms), (11, 12));
        assert_eq!((delta.discards, delta.discarded_bytes, delta.flushes), (4, 64 * 512, 9));
        assert!(!reading.quiet_since(&DeviceReading::default()));
    }

    #[test]
    fn older_and_foreign_forms() {
        assert_eq!(parse_stat("1 0 8 0 1 0 8 0 0 1 1").unwrap().totals.flushes, 0);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("1 2 x 4 5 6 7 8 9 10 11"), None);
    }

    #[test]
    fn cpu_time_leaves_idle_and_steal_out() {
        let text = "cpu  100 10 50 9999 888 7 3 777 55 0\ncpu0 1 1 1 1\n";
        assert_eq!(parse_cpu(text, 100), Some((100 + 10 + 50 + 7 + 3) * 10_000_000));
        assert_eq!(parse_cpu("nothing", 100), None);
    }
}
