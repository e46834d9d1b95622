//! What each kind of model can be told, with the range in which it makes sense.

#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    least: f64,
    most: f64,
    pub meaning: &'static str,
}

impl Parameter {
    /// Refuses what is out of range.
    pub fn check(&self, value: f64) -> Result<(), String> {
        if (self.least..=self.most).contains(&value) {
            return Ok(());
        }
        Err(format!("{}={value} is not from {} to {}", self.name, self.least, self.most))
    }
}

const fn of(name: &'static str, least: f64, most: f64, meaning: &'static str) -> Parameter {
    Parameter { name, least, most, meaning }
}

pub static HARD: &[Parameter] = &[
    of("capacity_bytes", 1e9, 1e15, "bytes of the disk"),
    of("sector_bytes", 512.0, 4096.0, "bytes of the sectors that the kernel sees"),
    of("rpm", 1000.0, 30_000.0, "revolutions per minute"),
    of("seek_settle_ms", 0.0, 50.0, "ms until the head has settled on another track"),
    of(
        "seek_root_ms",
        0.0,
        100.0,
        "ms times the square root of the distance, a share of all tracks",
    ),
    of("seek_linear_ms", 0.0, 100.0, "ms times the distance beyond the knee"),
    of("seek_knee", 0.0001, 1.0, "distance from which on a seek is linear, a share of all tracks"),
    of("write_settle_ms", 0.0, 50.0, "ms more before a write"),
    of("write_slip", 0.0, 4.0, "share of a write's transfer time that is lost"),
    of(
        "miss_chance",
        0.0,
        1.0,
        "chance that the first change of tracks after a seek costs a revolution",
    ),
    of(
        "write_miss_chance",
        0.0,
        1.0,
        "chance that a write after a seek comes too late and costs a revolution",
    ),
    of("access_ms", 0.0, 50.0, "ms of the controller before the arm moves"),
    of("command_read_ms", 0.0, 50.0, "ms for a read command"),
    of("command_write_ms", 0.0, 50.0, "ms for a write command"),
    of("interface_mb_s", 1.0, 1e5, "MB/s between host and disk"),
    of("queue_depth", 1.0, 1024.0, "commands that the disk chooses from"),
    of("age_limit_ms", 1.0, 60_000.0, "ms after which the oldest command is next"),
    of("read_ahead_mib", 0.0, 1024.0, "MiB that are read on behind a read"),
    of("write_cache_mib", 0.0, 4096.0, "MiB of the write cache; 0 for no cache"),
    of("destage_start", 0.0, 1.0, "share of the cache from which on it is written out"),
    of("destage_stop", 0.0, 1.0, "share of the cache down to which it is"),
    of("destage_mib", 0.01, 1024.0, "MiB that are written out at a time at most"),
    of("destage_window", 1.0, 1024.0, "oldest writes from which the nearest is chosen"),
    of(
        "destage_idle_ms",
        0.0,
        60_000.0,
        "ms without a request after which the cache is written out",
    ),
    of("flush_ms", 0.0, 1000.0, "ms of a flush besides the writes"),
    of("flush_written_ms", 0.0, 1000.0, "ms more if anything was written since the last flush"),
    of(
        "shingle_band_mib",
        0.0,
        4096.0,
        "MiB of a band that can only be written in order; 0 for no bands",
    ),
    of("shingle_cache_gib", 0.0, 1024.0, "GiB of ordinary tracks for other writes"),
];

pub static FLASH: &[Parameter] = &[
    of("capacity_bytes", 1e9, 1e15, "bytes of the disk"),
    of("channels", 1.0, 64.0, "channels"),
    of("chips_per_channel", 1.0, 64.0, "chips that work side by side on a channel"),
    of("channel_mb_s", 1.0, 1e5, "MB/s of a channel"),
    of("page_kib", 4.0, 1024.0, "KiB that a chip programs at once"),
    of("block_mib", 0.0625, 1024.0, "MiB that are erased at once, over all chips"),
    of("read_ms", 0.0, 50.0, "ms until a page is sensed"),
    of("program_ms", 0.0001, 100.0, "ms to program a page"),
    of("fast_program_ms", 0.0001, 100.0, "ms to program a page with one bit per cell"),
    of("erase_ms", 0.0, 1000.0, "ms to erase a block on a chip"),
    of("fast_mib", 0.0, 1e6, "MiB that are written with one bit per cell before the others"),
    of("idle_ms", 0.0, 1e5, "ms without work after which those are won back"),
    of("buffer_mib", 0.25, 4096.0, "MiB of the write buffer"),
    of("spare", 0.0, 4.0, "spare blocks as a share of the capacity"),
    of("command_read_ms", 0.0, 50.0, "ms for a read command"),
    of("command_write_ms", 0.0, 50.0, "ms for a write command"),
    of("interface_mb_s", 1.0, 1e5, "MB/s between host and disk"),
    of("flush_ms", 0.0, 1000.0, "ms of a flush besides the writes"),
    of("power_loss_protection", 0.0, 1.0, "1 if the buffer survives a power failure"),
];

pub static CLOUD: &[Parameter] = &[
    of("capacity_bytes", 1e9, 1e15, "bytes of the largest volume"),
    of("latency_read_ms", 0.0, 1000.0, "ms of a read, the median"),
    of("latency_write_ms", 0.0, 1000.0, "ms of a write, the median"),
    of("latency_spread", 0.0, 2.0, "standard deviation of the latency's logarithm"),
    of("flush_ms", 0.0, 1000.0, "ms of a flush"),
    of("interface_mb_s", 0.0, 1e6, "MB/s of the line; 0 is no limit"),
    of("iops_per_gib", 0.0, 1e4, "operations per second that each GiB of the volume earns"),
    of(
        "iops_min",
        0.0,
        1e7,
        "the least that any volume earns; 0 with no share per GiB is no limit",
    ),
    of("iops_max", 0.0, 1e7, "the most that any volume earns; 0 is no limit"),
    of("iops_burst", 0.0, 1e7, "operations per second while there are credits"),
    of("iops_credits", 0.0, 1e9, "operations that can be saved up"),
    of("operation_kib", 4.0, 1e6, "KiB that count as one operation at most"),
    of("mb_s", 0.0, 1e6, "MB/s that the volume earns; 0 is no limit"),
    of("mb_s_burst", 0.0, 1e6, "MB/s while there are credits"),
    of("mb_credits", 0.0, 1e9, "MB that can be saved up"),
];
