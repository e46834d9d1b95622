//! Refuses what cannot be done, before anything is touched: tools, sizes, rights and programs that
//! are missing. Knows what the trials need and nothing of how they are carried out.

use std::path::{Path, PathBuf};

use lab::contender::Contender;
use lab::device::{Base, DeviceName};
use lab::quantity::{about_text, size_text};
use lab::spec::{OutputTarget, Workload};
use lab::study::Study;
use trial::device::{self, DeviceRequest};
use trial::filesystem::{self, Access};
use trial::user::User;
use trust::Directory;
use trust::program::is_executable;
use vocabulary::capacity::Capacity;
use vocabulary::kind::BareTarget;
use workloads::KINDS;

use super::{aged, left_out};
use crate::exit::{Failure, refused};
use crate::request::programs::{missing_program, places_of, program_of, relative_program};
use crate::terminal;

/// A directory of a `dir:` contender, with the device and the inode that it has to keep.
pub type PinnedDirectory = (PathBuf, (u64, u64));

/// Files that must be allowed to be open at once: a runner has some six for each contender that takes
/// turns, and who runs out of them cannot give back what was taken.
const OPEN_FILES_MIN: u64 = 128;

/// Refuses to begin where too few files may be open at once. To be asked before anything is taken.
pub fn check_open_files() -> Result<(), Failure> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit.filter(|limit| *limit < OPEN_FILES_MIN) {
        None => Ok(()),
        Some(limit) => Err(Failure::refused(format!(
            "only {limit} files may be open at once, and a study needs {OPEN_FILES_MIN}; ulimit -n 1024"
        ))),
    }
}

/// Refuses a study that cannot be carried out here, with everything that is in its way. Nothing of
/// the study is executed. Gives the directories of `dir:` contenders with device and inode.
pub fn preflight(study: &Study, destroy: Option<&str>) -> Result<Vec<PinnedDirectory>, Failure> {
    check_open_files()?;
    let request = device_request(study, destroy)?;
    let mut problems = Vec::new();
    let mut directories = Vec::new();
    for contender in &study.contenders {
        let label = &contender.label;
        let found = contender_problems(study, contender, &request);
        problems.extend(found.into_iter().map(|problem| format!("contender '{label}': {problem}")));
        match contender.directory().map(|path| (path, identity_of(path))) {
            Some((path, Ok(identity))) => directories.push((path.to_path_buf(), identity)),
            Some((_, Err(problem))) => problems.push(format!("contender '{label}': {problem}")),
            None => {}
        }
    }
    if needs_device(study) && !rustix::process::geteuid().is_root() {
        problems.push(
            "making and mounting file systems needs root; run kurabe by sudo, or compare existing directories as dir:/path".into(),
        );
    }
    if let OutputTarget::File(path) = &study.output
        && let Err(refused) = trust::file::check_target(path)
    {
        problems.push(format!("--output: {refused}"));
    }
    let capacity = capacity(study, &request);
    for workload in &study.workloads {
        problems.extend(workload_problems(study, workload, capacity.as_ref()));
    }
    problems.extend(user_problems(study));
    // The claim comes last: where something else is in the way, nobody opens the device.
    if problems.is_empty()
        && needs_device(study)
        && let Err(error) = request.examine()
    {
        problems.push(format!("--device {}: {error}", study.device));
    }
    problems.dedup();
    if problems.is_empty() {
        Ok(directories)
    } else {
        Err(Failure::refused(problems.join("\nkurabe: ")))
    }
}

fn contender_problems(
    study: &Study,
    contender: &Contender,
    request: &DeviceRequest,
) -> Vec<String> {
    let Some(file_system) = filesystem::by_name(contender.file_system()) else {
        return vec![format!("this kurabe does not know {}", contender.file_system())];
    };
    let mut problems = left_out::missing(contender);
    let layers = trial::lower::check(contender).and_then(|()| trial::upper::check(contender));
    let are_sound = layers.is_ok();
    problems.extend(layers.err());
    if contender.needs_device() {
        problems.extend(trial::lower::check_devices(contender, request.count()).err());
    }
    problems.extend(file_system.why_not_on_nodes(contender));
    problems.extend(aged::problems(study, contender, request.size_bytes()));
    if let Some(size_bytes) = request.size_bytes().filter(|_| are_sound) {
        for (file_system, below, left) in trial::lower::room(contender, request.count(), size_bytes)
        {
            let (least, device) = (file_system.size_bytes_min, &study.device);
            if !file_system.needs_device || left >= least.max(1) {
                continue;
            }
            let (name, least) = (file_system.name, size_text(least));
            problems.push(match below {
                Some(layer) => format!(
                    "{name} needs at least {least}, and '{layer}' leaves it at most {} of --device {device}",
                    about_text(left)
                ),
                None => format!(
                    "{name} needs at least {least}, and --device {device} has {}",
                    size_text(size_bytes)
                ),
            });
        }
    }
    problems
}

fn workload_problems(
    study: &Study,
    workload: &Workload,
    capacity: Option<&Capacity>,
) -> Vec<String> {
    let mut problems = command_problems(workload, study.directory.as_deref());
    let name = &workload.name;
    let (kind, load) = (workload.load.of_kind(), workload.load.parsed());
    for form in study.forms_of(workload) {
        if let Err(problem) = form.load.check(capacity) {
            problems.push(format!("workload '{name}': {problem}"));
        }
    }
    let trimming = load.description().trims;
    problems.extend(trimming.and_then(|job| trim_problem(study, workload, &job)));
    for contender in &study.contenders {
        if let Some(store) = contender.store.as_ref().filter(|_| !workload.load.runs_on_store()) {
            problems.push(format!(
                "workload '{name}' does not run on a store, so contender '{}' is only what '{store}' lies on; leave '{store} over' out, or give a program of the object language (--objects FILE)",
                contender.label
            ));
        }
        let access = filesystem::by_name(contender.file_system()).map(|f| f.access);
        let Some(ground) = access.and_then(ground_of) else { continue };
        if let Some(why) = workload.on(contender).load.parsed().why_not_on(ground) {
            problems.push(format!("workload '{name}': contender '{}': {why}", contender.label));
        }
        if !kind.grounds.contains(&ground) {
            let others = KINDS.named_on(ground).join(" or ");
            problems.push(format!(
                "workload '{name}': the workload {} needs a mounted file system, which contender '{}' is not; leave that contender out, or use {others}",
                kind.name,
                contender.label
            ));
        }
    }
    problems
}

/// Why a job that trims cannot run on the contenders of a study.
fn trim_problem(study: &Study, workload: &Workload, job: &str) -> Option<String> {
    let (name, kind) = (&workload.name, &workload.load.kind);
    let access = |contender: &Contender| {
        filesystem::by_name(contender.file_system()).map(|file_system| file_system.access)
    };
    let mut contenders = study.contenders.iter();
    let said = match contenders.find(|contender| access(contender) == Some(Access::Mounted)) {
        Some(mounted) => format!(
            "{kind} trims devices only, not files; compare raw devices, or leave that job out; contender '{}' is a file system",
            mounted.label
        ),
        None if !study.discard => {
            "a device is trimmed only where the study allows it; add --discard (study key `discard`), or leave that job out".into()
        }
        None => return None,
    };
    Some(format!("workload '{name}': '{job}' trims, and {said}"))
}

/// Where a workload works under a contender that has no directory for it.
pub fn ground_of(access: Access) -> Option<BareTarget> {
    match access {
        Access::Mounted => None,
        Access::RawDevice => Some(BareTarget::Raw),
        Access::Library => Some(BareTarget::Library),
    }
}

/// What the user as whom the workload is to run cannot do.
fn user_problems(study: &Study) -> Vec<String> {
    let Some(name) = &study.user else { return Vec::new() };
    let user = match User::to_become(name) {
        Ok(Some(user)) => user,
        Ok(None) => return Vec::new(),
        Err(problem) => return vec![problem],
    };
    let problem = |contender: &Contender| {
        if let Some(why) = trial::upper::why_not_for_users(contender) {
            return Some(format!("contender '{}': --user {name}: {why}", contender.label));
        }
        let access = filesystem::by_name(contender.file_system()).map(|f| f.access);
        let why = match (access, contender.directory()) {
            (Some(Access::RawDevice | Access::Library), _) => {
                "its workload opens the device itself, which only root may; leave that contender or --user out".into()
            }
            (_, Some(directory)) if !user.enters(directory) => format!(
                "{name} cannot get to {}; let everybody pass it and the directories above it (chmod o+x)",
                directory.display()
            ),
            _ => return None,
        };
        Some(format!("contender '{}': --user {name}: {why}", contender.label))
    };
    let of_contenders = study.contenders.iter().filter_map(problem);
    let of_workload = study.workloads.iter().flat_map(|workload| {
        let why = unusable(workload, &user).into_iter();
        why.map(|why| format!("workload '{}': --user {name} cannot {why}", workload.name))
    });
    of_contenders.chain(of_workload).collect()
}

/// What of a workload's programs and files a user cannot execute or read, each with the next step.
fn unusable(workload: &Workload, user: &User) -> Vec<String> {
    let commands = workload.commands();
    // A check after a power cut runs as kurabe does.
    let by_user = commands.iter().filter(|(name, _)| *name != "check");
    let programs = by_user.filter_map(|(name, line)| {
        let places = places_of(program_of(line)?);
        let found = places.first()?;
        let can_execute = places.iter().any(|place| user.executes(place));
        (!can_execute).then(|| {
            let path = found.display();
            format!(
                "execute {path} ({name}); let everybody execute and read it (chmod o+rx) and pass the directories above it (chmod o+x), or put a copy where everybody can"
            )
        })
    });
    let inputs = workload.load.parsed().needs().inputs;
    let unread = inputs.iter().filter(|path| !user.reads(path)).map(|path| {
        let path = path.display();
        format!(
            "read {path}; let everybody read it (chmod o+r) and pass the directories above it (chmod o+x), or put a copy where everybody can"
        )
    });
    programs.chain(unread).collect()
}

/// Whether anything is to be made and mounted.
pub fn needs_device(study: &Study) -> bool {
    study.contenders.iter().any(Contender::needs_device)
}

/// The device that the study asks for, with what the command line says may be destroyed.
pub fn device_request(study: &Study, destroy: Option<&str>) -> Result<DeviceRequest, Failure> {
    // Before somebody is asked to confirm that it is destroyed.
    if let (true, Ok(name)) = (study.hosts().is_empty(), DeviceName::parse(&study.device)) {
        let obstacle = |one: &DeviceName| match &one.base {
            Base::Existing(path) => device::obstacle(path),
            Base::Made { .. } => None,
        };
        if let Some(obstacle) = name.all().find_map(obstacle) {
            return Err(Failure::refused(format!("--device {}: {obstacle}", study.device)));
        }
    }
    DeviceRequest::parse(&study.device, destroy).map_err(|error| {
        let flag = if error.about_destroy { "--destroy" } else { "--device" };
        Failure::refused(format!("{flag}: {error}"))
    })
}

/// Device and inode of the directory of a contender, which nobody else may be able to exchange.
fn identity_of(directory: &Path) -> Result<(u64, u64), String> {
    let opened = Directory::open_shared(directory).map_err(|refused| refused.to_string())?;
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(opened.descriptor_path(), access)
        .map_err(|error| format!("{} cannot be written: {error}", directory.display()))?;
    opened.identity().map_err(|refused| refused.to_string())
}

/// Programs that are named but nowhere to be found, each with the step that names it, in words for
/// flags and for the keys of a study file alike. Every trial begins in an empty directory, so that
/// a relative path has to be made by an earlier command. A check runs in `directory`, where the study
/// was asked for.
fn command_problems(workload: &Workload, directory: Option<&Path>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut is_empty = true;
    for (name, line) in &workload.commands() {
        let relative = || match *name {
            "check" => {
                let program = relative_program(line)?;
                let path = directory?.join(program);
                (!is_executable(&path)).then(|| (program, missing_words(&path)))
            }
            _ => relative_program(line).filter(|_| is_empty).map(|p| (p, relative_words(p))),
        };
        let missing = missing_program(line).map(|name| (name, missing_words(Path::new(name))));
        let problem = missing.or_else(relative);
        if let Some((program, words)) = problem {
            problems.push(format!(
                "workload '{}': {name}: the program '{program}' {words}",
                workload.name
            ));
        }
        is_empty = false;
    }
    problems
}

fn missing_words(program: &Path) -> String {
    if program.is_file() && program.components().count() > 1 {
        let path = trust::words::pasted_path(program);
        format!("is not executable; chmod +x {path}, or name the program that reads it")
    } else {
        "is not found; install it or name its path".into()
    }
}

fn relative_words(program: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default().join(program);
    let next = if here.is_file() {
        format!("name its whole path, {}", here.components().collect::<PathBuf>().display())
    } else {
        "name its whole path, or make it in the setup".into()
    };
    format!("is looked for in the run's directory, which is empty; {next}")
}

/// Reads the programs and jobs that the workloads name.
pub fn read_files(study: &mut Study) -> Result<(), Failure> {
    for workload in &mut study.workloads {
        if let Some(path) = workload.load.parsed().needs().slow_to_read {
            terminal::note(&format!("looking through {}", path.display()));
        }
        workload.load.read().map_err(refused(format_args!("workload '{}'", workload.name)))?;
    }
    Ok(())
}

/// The space that a workload has: the device's, or what is free where the smallest of the existing
/// directories lies.
pub fn capacity(study: &Study, request: &DeviceRequest) -> Option<Capacity> {
    if needs_device(study) {
        return Some(Capacity { bytes: request.size_bytes()?, holder: "the device".into() });
    }
    let directories = study.contenders.iter().filter_map(|entry| entry.directory());
    let capacities = directories.filter_map(|directory| {
        let space = rustix::fs::statvfs(directory).ok()?;
        let bytes = space.f_bavail.saturating_mul(space.f_frsize);
        Some(Capacity { bytes, holder: format!("the file system of {}", directory.display()) })
    });
    capacities.min_by_key(|capacity| capacity.bytes)
}
