//! Memory that may still be used: what the kernel has available, or less where a control group of this
//! process bounds it (a container, a systemd unit).
//!
//! Both versions of control groups are read. A limit counts at every level up to the root of what this
//! process sees; limits above a control-group namespace are not visible and not known.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trust::mounts::{self, Mount};

/// The names of one version's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` that count the page cache, which the kernel takes back under pressure.
    cache: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Files =
    Files { limit: "memory.max", used: "memory.current", cache: ["inactive_file", "active_file"] };

/// Memory that can be used without swapping and within the limits of this process's control groups, in
/// bytes.
///
/// Errors: `/proc/meminfo` does not say what is available.
pub fn available_bytes() -> io::Result<u64> {
    let missing =
        || io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemAvailable");
    let of_machine = crate::facts::memory_bytes("MemAvailable:").ok_or_else(missing)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = within_limits(&groups, &mounts::mounts().unwrap_or_default());
    Ok(of_groups.map_or(of_machine, |bytes| bytes.min(of_machine)))
}

/// The least that a limit leaves; absent where there is none.
fn within_limits(groups: &str, mounts: &[Mount]) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, own) = (parts.next()?, parts.next()?);
        let is_memory = controllers.split(',').any(|controller| controller == "memory");
        let (kind, files) = match controllers {
            "" => ("cgroup2", &VERSION_2),
            _ if is_memory => ("cgroup", &VERSION_1),
            _ => return None,
        };
        let has_memory = |mount: &&Mount| {
            mount.file_system == kind
                && (controllers.is_empty()
                    || mount.options.split(',').any(|option| option == "memory"))
        };
        let mount = mounts.iter().find(has_memory)?;
        levels(mount, own).iter().filter_map(|level| left(level, files)).min()
    };
    groups.lines().filter_map(of_line).min()
}

/// The directories of a group and those above it, up to the mount. One that is not below the mount is
/// that of a container that sees its own group as the root.
fn levels(mount: &Mount, own: &str) -> Vec<PathBuf> {
    let below = Path::new(own).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let is_plain = !below.iter().any(|name| name == "..");
    let below = if is_plain { below } else { Path::new("") };
    below.ancestors().map(|level| mount.point.join(level)).collect()
}

/// What the limit of one level leaves; absent where it has none.
fn left(level: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(level.join(name)).ok()?.trim().parse().ok()
    };
    // "max" in version 2; in version 1 a number that no machine has.
    let limit = number(files.limit)?;
    let used = number(files.used)?;
    let stat = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        files.cache.contains(&name).then(|| bytes.parse::<u64>().ok())?
    });
    Some(limit.saturating_sub(used.saturating_sub(cached.fold(0, u64::saturating_add))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, root: &str, point: &Path, options: &str) -> Mount {
        Mount {
            device: (0, 38),
            root: root.into(),
            point: point.into(),
            file_system: kind.into(),
            source: "none".into(),
            options: options.into(),
        }
    }

    fn group(directory: &Path, files: &Files, limit: &str, used: u64, cached: u64) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(files.limit), format!("{limit}\n")).unwrap();
        fs::write(directory.join(files.used), format!("{used}\n")).unwrap();
        let stat = format!("anon 7\n{} {cached}\nfile 9\n", files.cache[0]);
        fs::write(directory.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts_in_both_versions() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (home.path().join("one"), home.path().join("two"));
        group(&two, &VERSION_2, "max", 1 << 40, 0);
        group(&two.join("a"), &VERSION_2, "1000", 600, 100);
        group(&two.join("a/b"), &VERSION_2, "max", 600, 100);
        group(&two.join("c"), &VERSION_2, "100", 400, 0);
        group(&one.join("a"), &VERSION_1, "900", 500, 0);
        let mounts = [
            mount("cgroup", "/", &home.path().join("none"), "rw,cpu"),
            mount("cgroup", "/", &one, "rw,memory"),
            mount("cgroup2", "/", &two, "rw"),
        ];
        let is = |groups: &str, left: Option<u64>| {
            assert_eq!(within_limits(groups, &mounts), left, "{groups}");
        };
        is("0::/a/b\n", Some(500));
        is("0::/a/b/gone\n", Some(500));
        is("0::/c\n", Some(0));
        is("0::/\n", None);
        is("0::/../outside\n", None);
        is("3:cpu:/a\n4:memory:/a\n", Some(400));
        is("4:memory:/a\n0::/a\n", Some(400));
        is("4:memory:/\n", None);
        is("", None);
        // A container's own group is the root of what it sees.
        let inner = [mount("cgroup", "/outer", &one.join("a"), "memory,rw")];
        assert_eq!(within_limits("4:memory:/outer\n", &inner), Some(400));
        assert_eq!(within_limits("4:memory:/docker/x\n", &inner), Some(400));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
