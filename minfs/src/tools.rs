//! The tools that work on an unmounted volume: mkfs, fsck, ls, stat, put, get, rm, mv, df, map.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use block::AlignedBuffer;
use block::destination::{Copied, Destination};
use block::tool::{self, ToolFailure, check_free, output};

use crate::cli::{FsckArguments, MkfsArguments};
use crate::device::{open, open_checked};
use crate::display_name as shown;
use crate::{File, FileFacts, Finding, MkfsOptions, MountOptions, Severity, Subject, Volume};

/// What put calls a file until its copy is whole, before the number of its process.
const UNFINISHED: &str = ".minfs-put-";
/// Transfers of put and get in bytes.
const COPY_BYTES: usize = 4 << 20;

type Outcome = Result<(), ToolFailure>;

/// Prints a line; a standard output that is full ends the command with an error, and one whose reader has
/// left takes everything.
macro_rules! say {
    ($($words:tt)*) => { writeln!(output::stdout(), $($words)*).map_err(ToolFailure::of_output)? };
}

/// Prints a line where the exit code says it all, even when nobody reads the words.
macro_rules! tell {
    ($($words:tt)*) => {{ let _ = writeln!(output::stdout(), $($words)*); }};
}

/// A failure of the system, not of the volume.
fn broken(error: io::Error) -> ToolFailure {
    ToolFailure::Failed(error.to_string())
}

/// What the library says about a volume as a whole, with its device.
fn about(device: &Path) -> impl Fn(crate::Error) -> ToolFailure {
    move |error| ToolFailure::from(error).about(device.display())
}

/// Mounts the volume on `device` in this process.
fn volume(device: &Path, read_only: bool) -> Result<Volume, ToolFailure> {
    volume_with(device, &MountOptions { read_only, ..Default::default() })
}

fn volume_with(device: &Path, options: &MountOptions) -> Result<Volume, ToolFailure> {
    let read_only = options.read_only;
    let opened = open(device, read_only)?;
    let volume = Volume::mount(Arc::new(opened), options).map_err(about(device))?;
    for finding in volume.findings().iter().filter(|found| found.severity != Severity::Note) {
        block::complain!("minfs: {}: {}", device.display(), finding.text);
    }
    if !read_only && let Some(reason) = volume.read_only_reason() {
        return Err(ToolFailure::refused(device.display(), format!("read-only: {reason}")));
    }
    Ok(volume)
}

/// Makes a volume.
pub fn mkfs(arguments: &MkfsArguments) -> Outcome {
    let path = &arguments.device;
    let unit_bytes = arguments.unit.map(u32::try_from).transpose();
    let unit_bytes = unit_bytes.map_err(|_| ToolFailure::refused("--unit", "it is at most 1G"))?;
    let given = arguments.uuid.as_deref();
    let uuid = given.map(uuid::Uuid::parse_str).transpose().map_err(|_| {
        let given = given.unwrap_or_default();
        let why = format!("'{given}' is no UUID: 32 hexadecimal digits, as uuidgen(1) prints");
        ToolFailure::refused("--uuid", why)
    })?;
    let options = MkfsOptions {
        label: arguments.label.clone(),
        uuid,
        unit_bytes,
        files: arguments.files,
        discard: arguments.discard,
        created_ns: None,
    };
    let checked = check_free(path, arguments.size.is_some(), arguments.force)?;
    if let Some(length) = arguments.size {
        // Refuse what cannot be laid out before a file is created or cut.
        crate::plan(length, &options).map_err(about(path))?;
    }
    let is_new = arguments.size.is_some() && !path.exists();
    let device = open_checked(path, &checked, arguments.size)?;
    let geometry = crate::mkfs(&device, &options).map_err(|error| {
        // Half an image is of no use to anybody.
        if is_new {
            let _ = std::fs::remove_file(path);
        }
        about(path)(error)
    })?;
    if !arguments.quiet {
        say!(
            "{}: {} bytes, {} units of {} bytes, {} files at most, UUID {}",
            path.display(),
            geometry.volume_bytes(),
            geometry.unit_count(),
            geometry.unit_bytes(),
            geometry.inode_count(),
            geometry.uuid()
        );
    }
    Ok(())
}

/// Checks a volume, with the exit codes of fsck(8): 0 no errors, 1 errors corrected, 4 errors
/// left, 8 the check could not run.
pub fn fsck(arguments: &FsckArguments) -> ExitCode {
    let path = arguments.device.display();
    let check = || -> Result<_, ToolFailure> {
        let path = &arguments.device;
        let device = open(path, !arguments.repair)?;
        crate::fsck(&device, arguments.repair).map_err(about(&arguments.device))
    };
    let report = match check() {
        Ok(report) => report,
        Err(error) => {
            block::complain!("fsck.minfs: {error}");
            return ExitCode::from(8);
        }
    };
    let is_told = |finding: &&Finding| finding.severity > Severity::Note || arguments.verbose;
    let told: Vec<_> = report.findings.iter().filter(is_told).collect();
    for finding in &told {
        tell!("{path}: {:?}: {}", finding.severity, finding.text);
    }
    for repair in &report.repairs {
        tell!("{path}: repaired: {repair}");
    }
    if told.iter().any(|finding| finding.text.contains(UNFINISHED)) {
        tell!(
            "{path}: {UNFINISHED}N is the name that `minfs put`, as process N, gives a file until the \
             copy is complete"
        );
    }
    tell!(
        "{path}: {} files, {} of {} bytes used{}",
        report.files,
        report.used_bytes,
        report.geometry.data_bytes(),
        if report.is_clean() { ", clean" } else { "" }
    );
    if report.is_clean() {
        ExitCode::SUCCESS
    } else if report.is_repaired() {
        ExitCode::from(1)
    } else {
        if arguments.repair {
            for finding in &report.remaining {
                tell!("{path}: left: {}", finding.text);
            }
        } else if told.iter().any(|finding| matches!(finding.subject, Subject::Generations(_))) {
            tell!(
                "{path}: nothing was changed, and this cannot be repaired: copy the files out with \
                 `minfs get`"
            );
        } else if report.findings.iter().any(|finding| finding.severity == Severity::Error) {
            tell!(
                "{path}: nothing was changed. First copy the whole device, or copy the files named \
                 above out with `minfs get --damaged`. Then --repair restores each file to its newest \
                 readable record, gives up files whose space a younger file has, and makes the volume \
                 writable"
            );
        } else {
            tell!("{path}: nothing was changed; no file is damaged, and --repair repairs the rest");
        }
        ExitCode::from(4)
    }
}

fn long_line(facts: &FileFacts) -> String {
    format!(
        "{:6} {:04o} {:6} {:6} {:14} {:14} {:14} {:4} {}",
        facts.inode,
        facts.attributes.mode,
        facts.attributes.user,
        facts.attributes.group,
        facts.size,
        facts.valid,
        facts.allocated_bytes,
        facts.extent_count,
        shown(&facts.name)
    )
}

/// Lists the files.
pub fn list(device: &Path, long: bool) -> Outcome {
    let volume = volume(device, true)?;
    if long {
        say!(
            "{:>6} {:>4} {:>6} {:>6} {:>14} {:>14} {:>14} {:>4} name",
            "inode",
            "mode",
            "user",
            "group",
            "size",
            "valid",
            "allocated",
            "ext"
        );
    }
    let mut output = io::BufWriter::new(output::stdout());
    let for_people = io::stdout().is_terminal();
    for facts in volume.list() {
        let name = shown(&facts.name);
        if let Some(process) = name.strip_prefix(UNFINISHED) {
            block::complain!(
                "minfs: {name}: `minfs put` (process {process}) did not finish this copy"
            );
        }
        let outcome = if long {
            writeln!(output, "{}", long_line(&facts))
        } else if for_people {
            writeln!(output, "{name}")
        } else {
            output.write_all(&facts.name).and_then(|()| output.write_all(b"\n"))
        };
        outcome.map_err(ToolFailure::of_output)?;
        if output::reader_left() {
            break;
        }
    }
    output.flush().map_err(ToolFailure::of_output)
}

/// Prints the identity of a volume as blkid(8) does in its export format.
pub fn identify(device: &Path) -> Outcome {
    let opened = open(device, true)?;
    let geometry = crate::identify(&opened).map_err(about(device))?;
    say!("DEVNAME={}", device.display());
    // One line, whatever another program may have written there.
    say!("LABEL={}", geometry.label().replace(char::is_control, "?"));
    say!("UUID={}", geometry.uuid());
    say!("TYPE=minfs");
    say!("FSSIZE={}", geometry.volume_bytes());
    say!("BLOCK_SIZE={}", geometry.unit_bytes());
    say!("FILES_MAX={}", geometry.inode_count());
    Ok(())
}

/// Prints the facts of one file.
pub fn stat(device: &Path, name: &OsStr) -> Outcome {
    let volume = volume(device, true)?;
    let facts = volume.stat(name.as_bytes())?;
    say!("name: {}", shown(&facts.name));
    say!("inode: {}", facts.inode);
    say!("mode: {:04o}", facts.attributes.mode);
    say!("user: {}", facts.attributes.user);
    say!("group: {}", facts.attributes.group);
    say!("size_bytes: {}", facts.size);
    say!("valid_bytes: {}", facts.valid);
    say!("allocated_bytes: {}", facts.allocated_bytes);
    say!("extents: {}", facts.extent_count);
    say!("accessed_ns: {}", facts.attributes.accessed_ns);
    say!("modified_ns: {}", facts.attributes.modified_ns);
    say!("changed_ns: {}", facts.attributes.changed_ns);
    say!("created_ns: {}", facts.attributes.created_ns);
    Ok(())
}

/// Fills `buffer` as far as the source goes.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn copy_in(source: &mut dyn Read, file: &File, path: &Path) -> Outcome {
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES);
    let mut offset = 0;
    loop {
        let length = fill(source, &mut buffer)
            .map_err(|error| ToolFailure::failed(path.display(), error))?;
        if length == 0 {
            break;
        }
        file.write(&buffer[..length], offset)?;
        offset += length as u64;
    }
    Ok(file.sync()?)
}

/// Copies a file in; under its name only once it is whole.
pub fn put(device: &Path, source: &Path, name: Option<&OsStr>, force: bool) -> Outcome {
    let is_standard_input = source == Path::new("-");
    let name = match name.or_else(|| source.file_name().filter(|_| !is_standard_input)) {
        Some(name) => name.as_bytes().to_vec(),
        None => return Err(ToolFailure::Refused("a name is needed for what is no file".into())),
    };
    crate::check_name(&name)?;
    let (mut reader, facts): (Box<dyn Read>, Option<fs::Metadata>) = if is_standard_input {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = tool::open_to_copy(source)?;
        let facts = file.metadata().map_err(broken)?;
        (Box::new(file), Some(facts))
    };
    let volume = volume(device, false)?;
    if !force && volume.stat(&name).is_ok() {
        let why = "the file exists on the volume; --force replaces it";
        return Err(ToolFailure::refused(shown(&name), why));
    }
    // Nobody said who may read a stream. The copy is root's on the volume: what another user's program may do as that user
    // (setuid, setgid) must not become what it may do as root.
    let mode = facts.as_ref().map_or(0o600, |facts| facts.permissions().mode() & 0o777);
    let temporary = format!("{UNFINISHED}{}", std::process::id()).into_bytes();
    let file = volume.create(&temporary, mode)?;
    let work = || -> Outcome {
        if let Some(length) = facts.map(|facts| facts.len()).filter(|length| *length > 0) {
            // One contiguous area if there is one; the size follows with the data.
            file.preallocate(0, length, true, false)?;
        }
        copy_in(&mut *reader, &file, source)?;
        volume.rename(&temporary, &name, force)?;
        // The unmount records the times once more, so that both slots of the file bear its name
        // and content: then damage to either leaves all of it.
        Ok(file.set_attributes(|_| {})?)
    };
    let outcome = work();
    drop(file);
    if outcome.is_err() {
        // What cannot be removed now shows under its temporary name.
        let _ = volume.unlink(&temporary);
    }
    outcome.and_then(|()| Ok(volume.unmount()?))
}

/// Lets `output` go on with a hole of `length` bytes, if it can: it is a regular file, and what is
/// written now becomes its end.
fn leave_hole(mut output: &fs::File, length: u64) -> io::Result<bool> {
    let facts = output.metadata()?;
    let is_appending = rustix::fs::fcntl_getfl(output)?.contains(rustix::fs::OFlags::APPEND);
    if !facts.is_file() || !(is_appending || output.stream_position()? == facts.len()) {
        return Ok(false);
    }
    output.set_len(facts.len().saturating_add(length))?;
    output.seek(io::SeekFrom::End(0))?;
    Ok(true)
}

/// Copies a file out; `failed` tells of an error of `output`.
fn copy_out(
    file: &File,
    mut output: &fs::File,
    buffer: &mut [u8],
    failed: impl Fn(io::Error) -> ToolFailure,
) -> Outcome {
    let facts = file.facts();
    let mut end = facts.valid.min(facts.size);
    let mut offset = 0;
    loop {
        while offset < end {
            let wanted = (end - offset).min(COPY_BYTES as u64) as usize;
            let length = file.read(&mut buffer[..wanted], offset)?;
            output.write_all(&buffer[..length]).map_err(&failed)?;
            offset += length as u64;
        }
        // From here on the file holds nothing.
        if offset == facts.size || leave_hole(output, facts.size - offset).map_err(&failed)? {
            return Ok(());
        }
        end = facts.size;
    }
}

/// Copies a file out, `damaged` what is left of it if its newest record may be lost.
pub fn get(
    device: &Path,
    name: &OsStr,
    destination: Option<&Path>,
    force: bool,
    damaged: bool,
) -> Outcome {
    let options = MountOptions { read_only: true, read_damaged: damaged, ..Default::default() };
    let volume = volume_with(device, &options)?;
    let file = volume.open(name.as_bytes())?;
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES);
    // What cannot be read must not cost the destination its content.
    let length = file.read(&mut buffer, 0)?;
    let path = destination.filter(|path| *path != Path::new("-"));
    if destination.is_none() && io::stdout().is_terminal() && buffer[..length].contains(&0) {
        let why = "it is binary, and standard output is a terminal; name a file to write, or - to \
                   print it all the same";
        return Err(ToolFailure::refused(shown(name.as_bytes()), why));
    }
    let destination = path
        .map(|path| {
            let mode = file.facts().attributes.mode;
            let copied = Copied { holder: device, size_bytes: file.size(), mode };
            Destination::open(path, &copied, force)
        })
        .transpose()?;
    let standard_output: fs::File =
        io::stdout().as_fd().try_clone_to_owned().map_err(broken)?.into();
    let output = destination.as_ref().map_or(&standard_output, Destination::file);
    let shown = path.unwrap_or(Path::new("standard output"));
    let failed = |error: io::Error| {
        if path.is_none() {
            output::is_reader_left(&error);
        }
        ToolFailure::failed(shown.display(), error)
    };
    let outcome = copy_out(&file, output, &mut buffer, failed);
    if output::reader_left() {
        return Ok(());
    }
    if outcome.is_err()
        && let Some(destination) = destination
    {
        destination.give_up(shown);
    }
    outcome
}

/// Removes files: all that are named, or none when one of them is not there.
pub fn remove(device: &Path, names: &[std::ffi::OsString]) -> Outcome {
    let volume = volume(device, false)?;
    let names: std::collections::BTreeSet<_> = names.iter().collect();
    for name in &names {
        volume.stat(name.as_bytes())?;
    }
    for name in names {
        volume.unlink(name.as_bytes())?;
    }
    Ok(volume.unmount()?)
}

/// Renames a file.
pub fn rename(device: &Path, from: &OsStr, to: &OsStr) -> Outcome {
    let volume = volume(device, false)?;
    volume.rename(from.as_bytes(), to.as_bytes(), true)?;
    Ok(volume.unmount()?)
}

/// Prints used and free space.
pub fn space(device: &Path) -> Outcome {
    let space = volume(device, true)?.space();
    say!("total_bytes: {}", space.total_bytes);
    say!("used_bytes: {}", space.total_bytes - space.free_bytes);
    say!("free_bytes: {}", space.free_bytes);
    say!("longest_free_bytes: {}", space.longest_free_bytes);
    say!("files: {}", space.files);
    say!("files_max: {}", space.files_max);
    Ok(())
}

/// Prints where files lie on the device.
pub fn map(device: &Path, name: Option<&OsStr>) -> Outcome {
    let volume = volume(device, true)?;
    let names = match name {
        Some(name) => vec![name.as_bytes().to_vec()],
        None => volume.list().into_iter().map(|facts| facts.name).collect(),
    };
    let files = names.into_iter().map(|name| Ok((volume.open(&name)?.pieces(), name)));
    let files: Vec<_> = files.collect::<crate::Result<_>>()?;
    say!("{:>14} {:>14} {:>14} name", "file_offset", "device_offset", "length");
    for (pieces, name) in files {
        for piece in pieces {
            say!(
                "{:14} {:14} {:14} {}",
                piece.file_offset,
                piece.device_offset,
                piece.length,
                shown(&name)
            );
        }
    }
    Ok(())
}
