//! What this machine can do and what it lacks, with the next step: `kurabe doctor`.
//!
//! Looks only: it attaches, mounts and writes nothing but one block of an unnamed file that is
//! gone at once.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use block::AlignedBuffer;
use lab::quantity::{about_text, parse_size};

use crate::device::DEFAULT_DEVICE;
use crate::device::held::{RESERVE_BYTES, free_bytes};
use crate::device::{BackingFacts, loop_node};
use crate::facts::MachineFacts;
use crate::filesystem::{self, FileSystem, LayerTool};
use workloads::tool::ToolError;

/// Whether something can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Not for everything.
    Limited,
    Missing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Limited => "limited",
            State::Missing => "missing",
        }
    }
}

// What an item is about, as its heading.
const MACHINE: &str = "this machine";
const DEVICES: &str = "devices";
const FILE_SYSTEMS: &str = "file systems";
const WORKLOAD_TOOLS: &str = "workload tools";

/// One thing that was looked at.
#[derive(Debug)]
struct Item {
    area: &'static str,
    name: String,
    state: State,
    /// What was found, in a few words.
    detail: String,
    /// What to do to get it, a line each.
    next: Vec<String>,
}

/// Everything that was looked at, in the order in which it is shown.
#[derive(Debug)]
pub struct Diagnosis {
    items: Vec<Item>,
}

/// Looks at this machine, with images in kurabe's own directory or where it would be made.
pub fn examine() -> Diagnosis {
    let own = trust::own_path().unwrap_or_else(|_| "/".into());
    let directory = own.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let mut items = machine();
    items.push(loop_devices());
    items.push(direct_access(directory));
    items.push(space(directory));
    items.push(memory());
    items.push(user_space_file_systems());
    items.extend(filesystem::all().iter().map(|one| describe(one)));
    items.extend(workloads::tool::WorkloadTool::ALL.iter().map(workload_tool));
    Diagnosis { items }
}

fn item(area: &'static str, name: &str, state: State, detail: impl Into<String>) -> Item {
    Item { area, name: name.into(), state, detail: detail.into(), next: Vec::new() }
}

impl Item {
    fn next(mut self, step: impl Into<String>) -> Item {
        self.next.push(step.into());
        self
    }
}

fn machine() -> Vec<Item> {
    let machine = MachineFacts::read();
    let mut text = format!("Linux {}, {} CPUs", machine.kernel, machine.cpus);
    if let Some(virtualisation) = &machine.virtualisation {
        text.push_str(&format!(", {virtualisation}"));
    }
    let system = item(MACHINE, "system", State::Ready, text);
    let root = if machine.root {
        item(MACHINE, "root", State::Ready, "this user may format and mount")
    } else {
        item(MACHINE, "root", State::Limited, "not root: only dir: contenders and reports")
            .next("sudo kurabe ..., to format and mount")
    };
    let passed_over = trust::program::passed_over();
    let path = (!passed_over.is_empty()).then(|| {
        let detail = "directories that are not searched for tools";
        Item { next: passed_over, ..item(MACHINE, "PATH", State::Limited, detail) }
    });
    [system, root].into_iter().chain(path).collect()
}

/// A node of the kernel that has to be opened.
fn node(name: &str, path: &str, opened: io::Result<File>, next: &str) -> Item {
    match opened {
        Ok(_) => item(DEVICES, name, State::Ready, format!("{path} can be opened")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let detail = format!("{path}: only root may open it");
            item(DEVICES, name, State::Limited, detail).next("sudo kurabe ...")
        }
        Err(error) => item(DEVICES, name, State::Missing, error.to_string()).next(next),
    }
}

fn loop_devices() -> Item {
    let next = "modprobe loop, or a machine or container that has /dev/loop-control";
    node("loop devices", "/dev/loop-control", loop_node::open_control(), next)
}

fn direct_access(directory: &Path) -> Item {
    let name = "direct I/O";
    let shown = directory.display();
    let below = match BackingFacts::of_directory(directory) {
        Some(BackingFacts { file_system, block_device: Some(disk), .. }) => {
            format!("{shown} on {file_system} on {}", disk.name)
        }
        Some(backing) => format!("{shown} on {}", backing.file_system),
        None => shown.to_string(),
    };
    match write_directly(directory) {
        Ok(()) => item(DEVICES, name, State::Ready, below),
        Err(error) => {
            item(DEVICES, name, State::Limited, format!("not possible: {below}: {error}"))
                .next("images on a disk's own file system, as --device loop:8G@DIR")
        }
    }
}

/// Writes one block past the page cache, to a file that has no name.
fn write_directly(directory: &Path) -> io::Result<()> {
    let flags = libc::O_TMPFILE | libc::O_DIRECT | libc::O_CLOEXEC;
    let file = OpenOptions::new().write(true).custom_flags(flags).mode(0o600).open(directory)?;
    let block = AlignedBuffer::zeroed(4096);
    file.write_all_at(&block, 0)
}

fn space(directory: &Path) -> Item {
    let name = "disk space";
    let default_bytes = DEFAULT_DEVICE.split_once(':').and_then(|(_, size)| parse_size(size).ok());
    let needed_bytes = default_bytes.unwrap_or(0).saturating_add(RESERVE_BYTES);
    match File::open(directory).and_then(free_bytes) {
        Ok(free_bytes) => {
            let text = format!("{} free in {}", about_text(free_bytes), directory.display());
            if free_bytes >= needed_bytes {
                return item(DEVICES, name, State::Ready, text);
            }
            item(DEVICES, name, State::Limited, text).next(format!(
                "the default device {DEFAULT_DEVICE} does not fit; give --device loop:SIZE or loop:SIZE@DIR"
            ))
        }
        Err(error) => {
            item(DEVICES, name, State::Missing, format!("{}: {error}", directory.display()))
                .next("--device loop:8G@DIR, with a directory on a disk")
        }
    }
}

fn memory() -> Item {
    match crate::memory_limit::available_bytes() {
        Ok(bytes) => {
            let most = about_text(bytes.saturating_sub(RESERVE_BYTES) >> 20 << 20);
            let text = format!("{} available: mem: devices up to {most}", about_text(bytes));
            item(DEVICES, "memory", State::Ready, text)
        }
        Err(error) => item(DEVICES, "memory", State::Limited, error.to_string()),
    }
}

fn user_space_file_systems() -> Item {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let opened =
        opened.map_err(|error| io::Error::new(error.kind(), format!("/dev/fuse: {error}")));
    let next = "modprobe fuse; only file systems in user space need it";
    node("FUSE", "/dev/fuse", opened, next)
}

fn describe(file_system: &FileSystem) -> Item {
    let next = filesystem::missing(file_system);
    let state = if next.is_empty() { State::Ready } else { State::Missing };
    // One of several tools of a package says the version of all of them.
    let tool = file_system.tools.first().filter(|_| next.is_empty());
    let version = tool.and_then(LayerTool::installed_version);
    let detail = version.unwrap_or_else(|| file_system.summary.to_string());
    Item { next, ..item(FILE_SYSTEMS, file_system.name, state, detail) }
}

fn workload_tool(tool: &workloads::tool::WorkloadTool) -> Item {
    match tool.locate().and_then(|_| tool.version()) {
        Ok(version) => item(WORKLOAD_TOOLS, tool.program(), State::Ready, version),
        Err(error) => {
            let not_used = match &error {
                ToolError::Missing { not_found, .. } => not_found.passed_over.as_slice(),
                _ => &[],
            };
            let missing = item(WORKLOAD_TOOLS, tool.program(), State::Missing, "not installed");
            let missing = missing.next(trust::program::how_to_install(&[tool.package()]));
            not_used.iter().fold(missing, |item, refused| item.next(format!("not used: {refused}")))
        }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.items.iter().map(|item| item.name.len()).max().unwrap_or(0);
        let mut area = None;
        for item in &self.items {
            if area != Some(item.area) {
                if area.is_some() {
                    writeln!(f)?;
                }
                writeln!(f, "{}", item.area)?;
                area = Some(item.area);
            }
            writeln!(f, "  {:width$}  {:7}  {}", item.name, item.state.name(), item.detail)?;
            for step in &item.next {
                writeln!(f, "  {:width$}           -> {step}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_system_and_workload_tool_is_looked_at() {
        let diagnosis = examine();
        for file_system in filesystem::all() {
            let item = diagnosis.items.iter().find(|item| item.name == file_system.name).unwrap();
            let lacks = filesystem::missing(file_system);
            assert_eq!(item.state == State::Missing, !lacks.is_empty(), "{item:?}");
            assert_eq!(item.next, lacks);
        }
        for tool in workloads::tool::WorkloadTool::ALL {
            let item = diagnosis.items.iter().find(|item| item.name == tool.program()).unwrap();
            assert_eq!(item.state == State::Ready, tool.locate().is_ok(), "{item:?}");
        }
        let text = diagnosis.to_string();
        for item in &diagnosis.items {
            assert!(text.contains(&item.name) && text.contains(&item.detail), "{text}");
            assert!(item.state != State::Missing || !item.next.is_empty(), "{item:?}");
        }
    }

    #[test]
    fn a_directory_in_memory_or_none_at_all_is_named() {
        let missing = space(Path::new("/no/such/place"));
        assert_eq!(missing.state, State::Missing);
        assert!(missing.detail.contains("/no/such/place"));
        let direct = direct_access(Path::new("/proc"));
        assert_eq!(direct.state, State::Limited);
        assert!(direct.next[0].contains("@DIR"), "{direct:?}");
    }
}
