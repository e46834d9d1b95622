//! What a tool that does as somebody's job says may touch: its contender, memory of its own, and nothing
//! else.
//!
//! Whatever a job asks for, the kernel keeps it in; nothing here reads a job. An enclosure begins as an empty
//! root, and what is in it is listed in `tree`. Invariants: everything but the contender's directory (or
//! device) and memory of a limited size is read-only; `/dev` has no device but the contender's; there is no
//! process, no mount, no socket and no key of the host's, and no network but for a workload on other machines; what
//! was started in it ends with its first process, and has no capability or system call by which any of this is
//! undone.
//!
//! Only [`crate::tool`] starts fio, dbench and bonnie++, and it starts them in an enclosure. What looks for
//! acknowledged data after a power cut is in one too, whatever the workload.

mod everybody;
mod tree;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::thread::{CapabilitySet, capabilities};
use vocabulary::kind::WorkloadSpec;
use vocabulary::workload::{WorkloadStage, WorkloadTarget, WorkloadTask};

use crate::sys::enclosed::{Enclosing, EnclosureSpec};
use crate::sys::seccomp::Filter;
use measure::acknowledge::received_file;

pub use tree::TEMPORARY;

/// What an enclosure contains besides the programs of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enclosure {
    /// The directories that can be written.
    pub directories: Vec<PathBuf>,
    /// The directories in whose place there is memory, which is gone afterwards.
    pub memory: Vec<PathBuf>,
    /// Files that can be read; a FIFO can be written.
    pub files: Vec<PathBuf>,
    /// Files that a job names. Those that everybody may read can be read in it; the others are not there.
    pub inputs: Vec<PathBuf>,
    /// The programs that are started in it; their libraries come along.
    pub programs: Vec<PathBuf>,
    /// The block device that can be written.
    pub device: Option<PathBuf>,
    /// Whether it has the machine's network.
    pub is_online: bool,
    /// Whether it is for a server and its clients, which then have sockets of files, and no right of root's.
    pub is_server: bool,
}

/// The user as whom root goes on in the enclosure of a server, which may refuse root: one that every system names.
const LOWERED: u32 = 1;

/// What root keeps: rights over files, priorities, limits. fio, dbench and bonnie++ need no more, and none of these
/// undoes an enclosure. Nothing in it becomes another user (`uid=` of fio): that user of the host could take what
/// the process has open, and so hold the contender beyond its end.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);

impl Enclosure {
    /// What the process of a workload is kept in that does as another program's job says, and every one that looks for
    /// what was acknowledged: a recording may be somebody else's, and with it the links and device nodes that lie where
    /// the workload's files are looked for. Nothing for other loads.
    pub fn of_task(load: &WorkloadSpec, task: &WorkloadTask) -> Option<Enclosure> {
        if !load.of_kind().is_enclosed && task.stage != WorkloadStage::Recheck {
            return None;
        }
        let acknowledgements = task.acknowledgements.as_deref();
        Some(Self::of_workload(load, &task.scratch, &task.target, acknowledgements))
    }

    fn of_workload(
        load: &WorkloadSpec,
        scratch: &Path,
        target: &WorkloadTarget,
        acknowledgements: Option<&Path>,
    ) -> Enclosure {
        let (directories, device) = match target {
            WorkloadTarget::Directory(directory) => (vec![directory.clone()], None),
            WorkloadTarget::Device(device) | WorkloadTarget::Library(device) => {
                (Vec::new(), Some(device.clone()))
            }
        };
        let needs = load.parsed().needs();
        let beside = acknowledgements.map(received_file).filter(|file| file.exists());
        let own = acknowledgements.map(Path::to_path_buf).into_iter().chain(beside);
        Enclosure {
            directories,
            memory: vec![scratch.to_path_buf()],
            files: own.collect(),
            inputs: needs.inputs,
            programs: needs.programs,
            device,
            is_online: needs.network,
            is_server: load.of_kind().is_server,
        }
    }

    /// Readies it for one process, which begins in `directory`, and then becomes another user where `is_others`: until
    /// then it keeps the rights to do so. The other end tells why it could not be built.
    ///
    /// Errors: something that it is to contain is not there.
    pub fn prepare(&self, directory: &Path, is_others: bool) -> io::Result<(Enclosing, Complaint)> {
        let plan = tree::plan(self)?;
        let complaint = File::from(memfd_create("kurabe-complaint", MemfdFlags::CLOEXEC)?);
        let is_privileged = capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN);
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let map = |number: u32| tree::text(format!("{number} {number} 1"));
        let user_maps =
            if is_privileged { None } else { Some([map(user.as_raw())?, map(group.as_raw())?]) };
        let becoming = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let kept = match (is_privileged, is_others) {
            (true, true) => KEPT | becoming,
            (true, false) if self.is_server => CapabilitySet::empty(),
            (true, false) => KEPT,
            (false, _) => CapabilitySet::empty(),
        };
        // Where it becomes another user, that one has no rights already.
        let lower = |number: u32| tree::text(format!("{LOWERED} {number} 1"));
        let is_lowered = self.is_server && is_privileged && !is_others;
        let lowered_maps =
            if is_lowered { Some([lower(user.as_raw())?, lower(group.as_raw())?]) } else { None };
        let enclosing = Enclosing::new(EnclosureSpec {
            parts: plan.parts,
            steps: plan.steps,
            root_options: CString::from(tree::ROOT_OPTIONS),
            directory: tree::path_text(directory)?,
            user_maps,
            lowered_maps,
            is_online: self.is_online,
            kept,
            filter: Filter::new(self.is_online, self.is_server)?,
            checked: plan.checked,
            complaint: complaint.try_clone()?,
        })?;
        Ok((enclosing, Complaint(complaint)))
    }

    /// Starts a command in it; the process that is returned waits for the command and ends as it does.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let directory = command.get_current_dir().unwrap_or(Path::new(TEMPORARY)).to_path_buf();
        // The hook enters it: outside it may not be there.
        command.current_dir("/").env("TMPDIR", TEMPORARY);
        let (enclosing, complaint) = self.prepare(&directory, false)?;
        enclosing.of_child(command);
        command.spawn().map_err(|error| complaint.about(error))
    }
}

/// What a process said that did not get into its enclosure.
#[derive(Debug)]
pub struct Complaint(File);

impl Complaint {
    /// An error of starting the process, with what was said.
    pub fn about(mut self, error: io::Error) -> io::Error {
        let mut said = String::new();
        let read = self.0.rewind().and_then(|()| self.0.as_fd().try_clone_to_owned());
        let read = read.and_then(|file| File::from(file).take(4096).read_to_string(&mut said));
        match read {
            Ok(1..) => {
                let text = format!("keeping the workload in its contender: {said}: {error}");
                io::Error::new(error.kind(), text)
            }
            _ => error,
        }
    }
}

/// Refuses a file that a job names and that would not be there in its enclosure.
///
/// Errors: why, with the next step.
pub fn check_shown(input: &Path) -> Result<(), String> {
    everybody::open(input).map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{error}; chmod o+r the file and o+x the directories above it, or copy it to $KURABE_DIR with --setup"
        ),
        _ => error.to_string(),
    })
}

/// Whether this process is in an enclosure.
pub fn is_inside() -> bool {
    const TMPFS_MAGIC: i128 = 0x0102_1994;
    rustix::fs::statfs("/").is_ok_and(|facts| i128::from(facts.f_type) == TMPFS_MAGIC)
        && fs::symlink_metadata(tree::MARK).is_ok()
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why this process can have no enclosure; found out once.
pub fn refusal() -> Option<&'static str> {
    static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
    let refusal = REFUSAL.get_or_init(|| {
        let mut command = trust::program::itself();
        let (enclosing, complaint) = match Enclosure::default().prepare(Path::new("/"), false) {
            Ok(prepared) => prepared,
            Err(error) => return Some(error.to_string()),
        };
        enclosing.of_trial_run(&mut command);
        match command.spawn() {
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => None,
            Err(error) => Some(complaint.about(error).to_string()),
            Ok(_) => Some("a command began that is not to begin".into()),
        }
    });
    refusal.as_deref()
}

/// This program, by a name that can be shown in an enclosure and by which it is not writable there; by the
/// kernel's name where its file was replaced since it began.
pub fn own_program() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    let named = std::env::current_exe().ok();
    named
        .filter(|path| identity(path).is_some() && identity(path) == identity(running))
        .unwrap_or_else(|| running.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_workload_on_other_machines_is_kept_in_and_has_the_network() {
        let enclosure = |nodes: &[&str]| {
            let load = serde_json::json!({ "kind": "fio", "text": "rw=read", "nodes": nodes });
            let mut load: WorkloadSpec = serde_json::from_value(load).unwrap();
            crate::KINDS.parse(&mut load).unwrap();
            let target = WorkloadTarget::Directory("/mnt".into());
            Enclosure::of_workload(&load, Path::new("/own"), &target, None)
        };
        let (here, there) = (enclosure(&[]), enclosure(&["a", "b"]));
        assert_eq!(there.directories, here.directories);
        assert_eq!((here.is_online, there.is_online), (false, true));
    }

    #[test]
    fn what_has_the_name_of_a_checked_file_by_then_is_not_shown() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(place.path(), 0o755);
        let (named, secret) = (place.path().join("named"), place.path().join("secret"));
        fs::write(&named, "for everybody").unwrap();
        fs::write(&secret, "for one").unwrap();
        set(&named, 0o644);
        set(&secret, 0o600);
        if refusal().is_some() || everybody::open(&named).is_err() {
            eprintln!("SKIPPED: no enclosure can be made here, or not everybody may pass /tmp");
            return;
        }
        let enclosure = Enclosure { inputs: vec![named.clone()], ..Enclosure::default() };
        let read = |enclosing: Enclosing, complaint: Complaint| {
            let mut command = Command::new("cat");
            command.arg(&named).stdout(Stdio::piped()).stderr(Stdio::null());
            enclosing.of_child(&mut command);
            let child = command.spawn().map_err(|error| complaint.about(error).to_string())?;
            Ok::<_, String>(child.wait_with_output().unwrap().stdout)
        };
        let (enclosing, complaint) = enclosure.prepare(Path::new("/"), false).unwrap();
        assert_eq!(read(enclosing, complaint).unwrap(), b"for everybody");
        let (enclosing, complaint) = enclosure.prepare(Path::new("/"), false).unwrap();
        fs::rename(&secret, &named).unwrap();
        let refused = read(enclosing, complaint).unwrap_err();
        assert!(refused.contains(&*named.to_string_lossy()), "{refused}");
        // And one that not everybody may read is not there.
        let (enclosing, complaint) = enclosure.prepare(Path::new("/"), false).unwrap();
        assert_eq!(read(enclosing, complaint).unwrap(), b"");
    }
}
