//! Looks at the machine at the boundaries of a run, outside of its timed part: what a hypervisor took,
//! who waited for processors, I/O and memory, throttling, and what the disk that holds the image did;
//! over the whole trial also at governors and frequencies.
//!
//! The files stay open: a slice may take 15 ms, and looking twice must not cost a hundredth of that.
//! What this machine does not have is left out.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lab::record::DeviceDelta;
use lab::watched::{Processors, Watched};

/// The files to look at.
pub struct Watch {
    root: PathBuf,
    processors: u64,
    stat: Option<File>,
    /// Of cpu, io and memory.
    pressure: [Option<File>; 3],
    throttles: Vec<File>,
    /// Of each processor that has a governor: its file, what it said first, and the file of its
    /// frequency.
    clocks: Vec<(File, String, Option<File>)>,
    seen: Processors,
    /// When the clocks were looked at last.
    looked: Option<Instant>,
    disk: Option<File>,
    /// The times of the trial's control group.
    group: Option<File>,
}

/// The clocks are looked at no more often than this: there may be hundreds.
const CLOCKS_INTERVAL: Duration = Duration::from_millis(100);

/// What they said at one moment. Everything only grows.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    stolen_ns: Option<u64>,
    waits_ns: [Option<u64>; 3],
    throttled: Option<u64>,
    disk_bytes: Option<u64>,
    /// In user mode: of all processes, and of those of the control group.
    user_ns: [Option<u64>; 2],
}

/// More than any of the lines that are read; the first of /proc/stat is the one that counts.
const TEXT_BYTES_MAX: usize = 512;

/// What the host's file system may write for a flush of the image: a commit of its journal, since the
/// image has a new time of change.
const BYTES_OF_A_FLUSH: u64 = 16 << 10;

impl Watch {
    /// Opens what there is below `root`, which is `/` outside of tests.
    pub fn begin(root: &Path) -> Watch {
        let open = |path: &str| File::open(root.join(path)).ok();
        // Threads of a core count the same events, and so do cores of a package.
        let throttles = processors(root).into_iter().flat_map(|processor| {
            let is_first = |list: &str| {
                let text = fs::read_to_string(processor.join("topology").join(list));
                let number = processor.file_name().unwrap_or_default().to_string_lossy();
                text.is_ok_and(|text| {
                    text.trim().split([',', '-']).next() == number.strip_prefix("cpu")
                })
            };
            let of = [("thread_siblings_list", "core"), ("core_siblings_list", "package")];
            let of = of.into_iter().filter(|(list, _)| is_first(list));
            let place = |(_, what): (&str, &str)| {
                File::open(processor.join(format!("thermal_throttle/{what}_throttle_count"))).ok()
            };
            of.filter_map(place).collect::<Vec<_>>()
        });
        Watch {
            processors: processors(root).len().max(1) as u64,
            stat: open("proc/stat"),
            pressure: ["cpu", "io", "memory"].map(|what| open(&format!("proc/pressure/{what}"))),
            throttles: throttles.collect(),
            clocks: processors(root).iter().filter_map(|processor| clock(processor)).collect(),
            seen: Processors::default(),
            looked: None,
            disk: None,
            group: None,
            root: root.to_path_buf(),
        }
    }

    /// From now on also looks at the disk on which the file system with this number lies, the whole
    /// of it where that is a partition.
    pub fn disk(&mut self, device: u64) {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let own = self.root.join(format!("sys/dev/block/{major}:{minor}"));
        let whole = if own.join("partition").exists() { own.join("..") } else { own };
        self.disk = File::open(whole.join("stat")).ok();
    }

    /// From now on also looks at what other processes do than those of this control group.
    pub fn processes(&mut self, group: &Path) {
        self.group = File::open(group.join("cpu.stat")).ok();
    }

    /// The share of each processor in a time that all of them spent.
    pub fn of_one(&self, ns: u64) -> u64 {
        ns / self.processors
    }

    /// The processors over all readings; absent where they have no governors.
    pub fn processors(&self) -> Option<Processors> {
        (!self.seen.governors.is_empty()).then(|| self.seen.clone())
    }

    fn look_at_clocks(&mut self) {
        if self.looked.is_some_and(|then| then.elapsed() < CLOCKS_INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        let seen = &mut self.seen;
        for (governor, first, frequency) in &self.clocks {
            let Some(now) = text(governor) else { continue };
            seen.governor_changed |= now != *first;
            let name = now.trim().to_string();
            if !seen.governors.contains(&name) {
                seen.governors.push(name);
            }
            let khz = frequency.as_ref().and_then(|file| text(file)?.trim().parse::<u64>().ok());
            seen.frequency_khz_min = seen.frequency_khz_min.into_iter().chain(khz).min();
            seen.frequency_khz_max = seen.frequency_khz_max.into_iter().chain(khz).max();
        }
    }

    /// Looks now.
    pub fn read(&mut self) -> Reading {
        self.look_at_clocks();
        let counts =
            self.throttles.iter().filter_map(|file| text(file)?.trim().parse::<u64>().ok());
        let waits_ns = [0, 1, 2].map(|place| waited_ns(&text(self.pressure[place].as_ref()?)?));
        let stat = self.stat.as_ref().and_then(text);
        let of_all =
            |fields: &[usize]| Some(ticked_ns(stat.as_deref()?, fields)? / self.processors);
        let of_group = self.group.as_ref().and_then(|file| user_ns(&text(file)?));
        Reading {
            at: Instant::now(),
            stolen_ns: of_all(&[STEAL]),
            user_ns: [of_all(&USER), of_group.map(|ns| ns / self.processors)],
            waits_ns,
            throttled: (!self.throttles.is_empty()).then(|| counts.sum()),
            disk_bytes: self.disk.as_ref().and_then(|file| moved_bytes(&text(file)?)),
        }
    }
}

impl Reading {
    /// What the machine did since `earlier`, beside a run that did `own` on its device.
    pub fn since(&self, earlier: &Reading, own: Option<DeviceDelta>) -> Watched {
        let grown = |now: Option<u64>, then: Option<u64>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        let [cpu_wait_ns, io_wait_ns, memory_wait_ns] =
            [0, 1, 2].map(|place| grown(self.waits_ns[place], earlier.waits_ns[place]));
        let own_bytes = own.map(|own| own.read_bytes.saturating_add(own.written_bytes));
        let flushes = own.map_or(0, |own| own.flushes);
        let disk_bytes = grown(self.disk_bytes, earlier.disk_bytes);
        let [all_ns, group_ns] =
            [0, 1].map(|place| grown(self.user_ns[place], earlier.user_ns[place]));
        Watched {
            elapsed_ns: self.at.duration_since(earlier.at).as_nanos() as u64,
            stolen_ns: grown(self.stolen_ns, earlier.stolen_ns),
            cpu_wait_ns,
            io_wait_ns,
            memory_wait_ns,
            throttled: grown(self.throttled, earlier.throttled),
            own_bytes,
            others_bytes: disk_bytes
                .zip(own_bytes)
                .map(|(disk, own)| disk.saturating_sub(own + flushes * BYTES_OF_A_FLUSH)),
            others_cpu_ns: all_ns.zip(group_ns).map(|(all, group)| all.saturating_sub(group)),
        }
    }
}

fn processors(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("sys/devices/system/cpu")).into_iter().flatten().flatten();
    let is_processor = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    entries.filter(is_processor).map(|entry| entry.path()).collect()
}

/// A processor's governor and what it is now, and its frequency.
fn clock(processor: &Path) -> Option<(File, String, Option<File>)> {
    let of = |name: &str| File::open(processor.join("cpufreq").join(name)).ok();
    let governor = of("scaling_governor")?;
    let first = text(&governor)?;
    Some((governor, first, of("scaling_cur_freq")))
}

/// The beginning of a file of the kernel, made anew for every reading from its start.
fn text(file: &File) -> Option<String> {
    let mut bytes = [0; TEXT_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Places in the first line of /proc/stat (proc_stat(5)): user and nice, and steal.
const USER: [usize; 2] = [0, 1];
const STEAL: usize = 7;

/// The sum of such numbers, in ns.
fn ticked_ns(text: &str, places: &[usize]) -> Option<u64> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let field = |place: &usize| fields.split_ascii_whitespace().nth(*place)?.parse::<u64>().ok();
    let ticks: u64 = places.iter().map(field).sum::<Option<u64>>()?;
    let second_ns = Duration::from_secs(1).as_nanos() as u64;
    Some(ticks * (second_ns / rustix::param::clock_ticks_per_second()))
}

/// `user_usec N` of a control group's `cpu.stat`.
fn user_ns(text: &str) -> Option<u64> {
    let microseconds = text.lines().find_map(|line| line.strip_prefix("user_usec "))?;
    Some(microseconds.trim().parse::<u64>().ok()? * 1000)
}

/// `some ... total=MICROSECONDS` (Documentation/accounting/psi.rst in the kernel's source).
fn waited_ns(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let microseconds: u64 = line.rsplit_once("total=")?.1.parse().ok()?;
    Some(microseconds * 1000)
}

/// Sectors of 512 bytes that were read and written, of a `stat` file of a block device.
fn moved_bytes(text: &str) -> Option<u64> {
    let field = |place| text.split_ascii_whitespace().nth(place)?.parse::<u64>().ok();
    Some((field(2)? + field(6)?) * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // The files stay open, so they are changed in place.
            let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
        }
    }

    #[test]
    fn every_source_is_read_and_counted_once() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let state = |stolen: u64, waited: u64, throttled: u64, sectors: u64| {
            let stat = format!("cpu  {} 9 9 9 9 9 9 {stolen} 0 0\ncpu0 1\n", 4 * stolen);
            machine.put("proc/stat", &stat);
            let of_group = format!("usage_usec 1\nuser_usec {}\n", 20 * waited);
            machine.put("group/cpu.stat", &of_group);
            for what in ["cpu", "io", "memory"] {
                let text = format!("some avg10=0.00 total={waited}\nfull avg10=0.00 total=7777\n");
                machine.put(&format!("proc/pressure/{what}"), &text);
            }
            for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2")] {
                let place = format!("sys/devices/system/cpu/cpu{cpu}");
                machine.put(&format!("{place}/topology/thread_siblings_list"), siblings);
                machine.put(&format!("{place}/topology/core_siblings_list"), "0-3");
                for what in ["core", "package"] {
                    let counter = format!("{place}/thermal_throttle/{what}_throttle_count");
                    machine.put(&counter, &throttled.to_string());
                }
            }
            machine.put("sys/block/sda/stat", &format!("1 0 {sectors} 0 1 0 {sectors} 0 0 1 1\n"));
        };
        state(100, 5000, 1, 1000);
        machine.put("sys/block/sda/sda1/partition", "1");
        let place = machine.0.path().join("sys/dev/block");
        fs::create_dir_all(&place).unwrap();
        std::os::unix::fs::symlink("../../block/sda/sda1", place.join("8:1")).unwrap();
        let mut watch = Watch::begin(machine.0.path());
        watch.disk(rustix::fs::makedev(8, 1));
        watch.processes(&machine.0.path().join("group"));
        let before = watch.read();
        state(103, 5250, 2, 1100);
        let own = DeviceDelta {
            read_bytes: 512,
            written_bytes: 1024,
            flushes: 1,
            ..DeviceDelta::default()
        };
        let seen = watch.read().since(&before, Some(own));
        // Of three processors.
        assert_eq!(seen.stolen_ns, Some(10_000_000));
        // All were in user mode for 120 ms, the group for 5 ms of them.
        assert_eq!(seen.others_cpu_ns, Some((120_000_000 - 5_000_000) / 3));
        assert_eq!(seen.cpu_wait_ns, Some(250_000));
        assert_eq!((seen.io_wait_ns, seen.memory_wait_ns), (Some(250_000), Some(250_000)));
        // Two cores of one package.
        assert_eq!(seen.throttled, Some(3));
        assert_eq!(
            (seen.own_bytes, seen.others_bytes),
            (Some(1536), Some(2 * 51_200 - 1536 - 16_384))
        );
    }

    #[test]
    fn governors_and_frequencies_of_all_processors_are_those_of_the_trial() {
        let machine = Machine(tempfile::tempdir().unwrap());
        let state = |cpu: u32, governor: &str, khz: u64| {
            let place = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            machine.put(&format!("{place}/scaling_governor"), &format!("{governor}\n"));
            machine.put(&format!("{place}/scaling_cur_freq"), &format!("{khz}\n"));
        };
        state(0, "powersave", 1_200_000);
        state(1, "powersave", 3_400_000);
        fs::create_dir_all(machine.0.path().join("sys/devices/system/cpu/cpu2")).unwrap();
        let mut watch = Watch::begin(machine.0.path());
        assert_eq!(watch.processors(), None, "nothing was looked at");
        watch.read();
        let mut expected = Processors {
            governors: vec!["powersave".into()],
            governor_changed: false,
            frequency_khz_min: Some(1_200_000),
            frequency_khz_max: Some(3_400_000),
        };
        assert_eq!(watch.processors(), Some(expected.clone()));
        state(0, "performance", 3_900_000);
        // Slices may be short.
        watch.read();
        assert_eq!(watch.processors(), Some(expected.clone()));
        std::thread::sleep(CLOCKS_INTERVAL);
        watch.read();
        expected.governors = vec!["powersave".into(), "performance".into()];
        (expected.governor_changed, expected.frequency_khz_max) = (true, Some(3_900_000));
        assert_eq!(watch.processors(), Some(expected));
    }

    #[test]
    fn a_machine_that_tells_nothing_is_watched_without_a_word() {
        let empty = tempfile::tempdir().unwrap();
        let mut watch = Watch::begin(empty.path());
        watch.disk(rustix::fs::makedev(8, 1));
        let seen = watch.read().since(&watch.read(), None);
        assert_eq!(Watched { elapsed_ns: 0, ..seen }, Watched::default());
        assert_eq!(watch.processors(), None);
    }

    #[test]
    fn this_machine_is_read() {
        let mut watch = Watch::begin(Path::new("/"));
        watch.disk(rustix::fs::stat("/").unwrap().st_dev);
        let seen = watch.read().since(&watch.read(), Some(DeviceDelta::default()));
        assert!(seen.stolen_ns.is_some());
        // A kernel may have it turned off, and then cannot be read either.
        let has_pressure = fs::read_to_string("/proc/pressure/cpu").is_ok();
        assert_eq!(seen.cpu_wait_ns.is_some(), has_pressure);
    }
}
