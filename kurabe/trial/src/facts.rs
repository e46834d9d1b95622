//! Facts of the machine that a reader needs to judge a number, read from where the kernel and the
//! distribution publish them. A fact that cannot be read is absent. No host name, no user name:
//! results are made to be shown to others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::stop::StopFlag;
use crate::tool::Toolbox;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    pub kurabe_version: String,
    /// Tells this machine from others without naming it: a hash of its host name and identifier.
    pub identity: Option<String>,
    /// Kernel release and version, as `uname -rv` prints them.
    pub kernel: String,
    /// Instruction set.
    pub architecture: String,
    /// The distribution's name for itself.
    pub distribution: Option<String>,
    /// Model of the first CPU.
    pub cpu_model: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The frequency governor of the first CPU.
    pub cpu_governor: Option<String>,
    pub memory_bytes: Option<u64>,
    /// The hypervisor, when the machine says that it is a virtual one.
    pub virtualisation: Option<String>,
    /// `vm.*` settings that decide when dirty pages are written back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writeback: Vec<(String, String)>,
    /// Whether kurabe ran as root.
    pub root: bool,
}

const WRITEBACK: &[&str] = &[
    "dirty_background_ratio",
    "dirty_background_bytes",
    "dirty_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
];

impl MachineFacts {
    pub fn read() -> MachineFacts {
        let name = rustix::system::uname();
        let text = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_string())
        };
        MachineFacts {
            kurabe_version: env!("CARGO_PKG_VERSION").into(),
            identity: Some(identity(
                &name.nodename().to_string_lossy(),
                &text("/etc/machine-id").unwrap_or_default(),
            )),
            kernel: format!(
                "{} {}",
                name.release().to_string_lossy(),
                name.version().to_string_lossy()
            ),
            architecture: name.machine().to_string_lossy().into_owned(),
            distribution: value_of("/etc/os-release", "PRETTY_NAME=")
                .map(|value| value.trim_matches('"').to_string()),
            cpu_model: value_of("/proc/cpuinfo", "model name")
                .map(|value| value.trim_start_matches([':', ' ', '\t']).to_string()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory_bytes("MemTotal:"),
            virtualisation: hypervisor(),
            writeback: WRITEBACK
                .iter()
                .filter_map(|name| {
                    Some((format!("vm.{name}"), text(&format!("/proc/sys/vm/{name}"))?))
                })
                .collect(),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// A hash (FNV-1a, 64 bits) of what names a machine.
fn identity(host: &str, machine: &str) -> String {
    let bytes = host.bytes().chain([0]).chain(machine.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The first line that says a version when a tool is asked for it by `argument`.
pub fn tool_version(tool: &str, argument: &str) -> Option<String> {
    let tools = Toolbox::new(Some(Instant::now() + VERSION_MAX), StopFlag::default());
    let output = tools.run_unlogged(&[tool, argument]).ok()?;
    let mut lines = output.stdout.lines().chain(output.stderr.lines());
    lines.find(|line| line.contains(|c: char| c.is_ascii_digit())).map(|line| line.trim().into())
}

/// How long a tool may take to say its version. The name of an aged image follows from it: on a busy machine, too, the
/// same tools have to give the same name.
const VERSION_MAX: Duration = Duration::from_secs(30);

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn memory_bytes(name: &str) -> Option<u64> {
    let line = value_of("/proc/meminfo", name)?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn hypervisor() -> Option<String> {
    let flags = value_of("/proc/cpuinfo", "flags")?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let vendor = vendor.trim();
    Some(if vendor.is_empty() {
        "virtual machine".into()
    } else {
        format!("virtual machine ({vendor})")
    })
}

/// What follows `prefix` in the first line of a file that begins with it.
fn value_of(path: impl AsRef<Path>, prefix: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(prefix)).map(|value| value.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let machine = MachineFacts::read();
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{}", machine.kernel);
        assert!(machine.memory_bytes.unwrap() > 1 << 20);
        assert!(machine.cpus >= 1);
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<MachineFacts>(&json).unwrap(), machine);
    }
}
