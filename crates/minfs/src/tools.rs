//! The tools that work on an unmounted volume: mkfs, fsck, ls, stat, put, get, rm, mv, df, map.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use block::{AlignedBuffer, FileDevice, FileDeviceOptions};
use minfs::{File, FileFacts, MkfsOptions, MountOptions, Severity, Volume};

use crate::cli::{FsckArguments, MkfsArguments};
use crate::device::{check_claim, foreign_signature, open};

/// Transfers of put and get in bytes.
const COPY_BYTES: usize = 4 << 20;

type Outcome = Result<(), String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Mounts the volume on `device` in this process.
fn volume(device: &Path, read_only: bool) -> Result<Volume, String> {
    let opened = open(device, read_only)?;
    let options = MountOptions { read_only, ..Default::default() };
    let volume = Volume::mount(Arc::new(opened), &options)
        .map_err(|error| format!("{}: {error}", device.display()))?;
    for finding in volume.findings().iter().filter(|found| found.severity != Severity::Note) {
        eprintln!("minfs: {}: {}", device.display(), finding.text);
    }
    if !read_only && let Some(reason) = volume.read_only_reason() {
        return Err(format!("{}: read-only: {reason}", device.display()));
    }
    Ok(volume)
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Makes a volume.
pub fn mkfs(arguments: &MkfsArguments) -> Outcome {
    let path = &arguments.device;
    let unit_bytes = match arguments.unit {
        Some(unit) => Some(u32::try_from(unit).map_err(|_| "the unit is too large".to_string())?),
        None => None,
    };
    let uuid = match &arguments.uuid {
        Some(uuid) => Some(uuid::Uuid::parse_str(uuid).map_err(text)?),
        None => None,
    };
    let options = MkfsOptions {
        label: arguments.label.clone(),
        uuid,
        unit_bytes,
        files: arguments.files,
        discard: arguments.discard,
        created_ns: None,
    };
    if let Some(length) = arguments.size {
        // Refuse what cannot be laid out before a file is created or cut.
        minfs::plan(length, &options).map_err(text)?;
        let is_new = !path.exists();
        if !is_new && !arguments.force && path.metadata().is_ok_and(|facts| facts.len() > 0) {
            return Err(format!("{}: it exists; --force overwrites it", path.display()));
        }
        let creation =
            FileDeviceOptions { set_length: Some(length), exclusive: true, ..Default::default() };
        FileDevice::open(path, &creation)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if path.metadata().is_ok_and(|facts| facts.file_type().is_block_device()) {
        check_claim(path, arguments.force)?;
    }
    let device = open(path, false)?;
    if !arguments.force {
        if let Some(what) =
            foreign_signature(&device).map_err(|error| format!("{}: {error}", path.display()))?
        {
            return Err(format!("{}: it holds {what}; --force overwrites it", path.display()));
        }
        if minfs::identify(&device).is_ok() {
            return Err(format!(
                "{}: it holds a minfs volume; --force overwrites it",
                path.display()
            ));
        }
    }
    let geometry = minfs::mkfs(&device, &options).map_err(text)?;
    if !arguments.quiet {
        println!(
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
/// left, 8 the check could not be made.
pub fn fsck(arguments: &FsckArguments) -> ExitCode {
    let path = arguments.device.display();
    let check = || -> Result<_, String> {
        let device = open(&arguments.device, !arguments.repair)?;
        minfs::fsck(&device, arguments.repair).map_err(|error| format!("{path}: {error}"))
    };
    let report = match check() {
        Ok(report) => report,
        Err(error) => {
            eprintln!("fsck.minfs: {error}");
            return ExitCode::from(8);
        }
    };
    for finding in &report.findings {
        if finding.severity == Severity::Note && !arguments.verbose {
            continue;
        }
        println!("{path}: {:?}: {}", finding.severity, finding.text);
    }
    for repair in &report.repairs {
        println!("{path}: repaired: {repair}");
    }
    println!(
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
                println!("{path}: left: {}", finding.text);
            }
        } else {
            println!("{path}: nothing was changed; --repair repairs what can be repaired");
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
        println!(
            "{:>6} {:>4} {:>6} {:>6} {:>14} {:>14} {:>14} {:>4} name",
            "inode", "mode", "user", "group", "size", "valid", "allocated", "ext"
        );
    }
    let mut output = io::stdout().lock();
    for facts in volume.list() {
        let outcome = if long {
            writeln!(output, "{}", long_line(&facts))
        } else {
            output.write_all(&facts.name).and_then(|()| output.write_all(b"\n"))
        };
        outcome.map_err(text)?;
    }
    Ok(())
}

/// Prints the identity of a volume as blkid(8) does in its export format.
pub fn identify(device: &Path) -> Outcome {
    let opened = open(device, true)?;
    let geometry =
        minfs::identify(&opened).map_err(|error| format!("{}: {error}", device.display()))?;
    println!("DEVNAME={}", device.display());
    println!("LABEL={}", geometry.label());
    println!("UUID={}", geometry.uuid());
    println!("TYPE=minfs");
    println!("FSSIZE={}", geometry.volume_bytes());
    println!("BLOCK_SIZE={}", geometry.unit_bytes());
    println!("FILES_MAX={}", geometry.inode_count());
    Ok(())
}

/// Prints the facts of one file.
pub fn stat(device: &Path, name: &OsStr) -> Outcome {
    let volume = volume(device, true)?;
    let facts = volume.stat(name.as_bytes()).map_err(text)?;
    println!("name: {}", shown(&facts.name));
    println!("inode: {}", facts.inode);
    println!("mode: {:04o}", facts.attributes.mode);
    println!("user: {}", facts.attributes.user);
    println!("group: {}", facts.attributes.group);
    println!("size_bytes: {}", facts.size);
    println!("valid_bytes: {}", facts.valid);
    println!("allocated_bytes: {}", facts.allocated_bytes);
    println!("extents: {}", facts.extent_count);
    println!("accessed_ns: {}", facts.attributes.accessed_ns);
    println!("modified_ns: {}", facts.attributes.modified_ns);
    println!("changed_ns: {}", facts.attributes.changed_ns);
    println!("created_ns: {}", facts.attributes.created_ns);
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
        let length =
            fill(source, &mut buffer).map_err(|error| format!("{}: {error}", path.display()))?;
        if length == 0 {
            break;
        }
        file.write(&buffer[..length], offset).map_err(text)?;
        offset += length as u64;
    }
    file.sync().map_err(text)
}

/// Copies a file in; under its name only once it is whole.
pub fn put(device: &Path, source: &Path, name: Option<&OsStr>, force: bool) -> Outcome {
    let is_standard_input = source == Path::new("-");
    let name = match name.or_else(|| source.file_name().filter(|_| !is_standard_input)) {
        Some(name) => name.as_bytes().to_vec(),
        None => return Err("a name is needed".into()),
    };
    let (mut reader, facts): (Box<dyn Read>, Option<fs::Metadata>) = if is_standard_input {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file =
            fs::File::open(source).map_err(|error| format!("{}: {error}", source.display()))?;
        let facts = file.metadata().map_err(text)?;
        (Box::new(file), Some(facts))
    };
    let volume = volume(device, false)?;
    if !force && volume.stat(&name).is_ok() {
        return Err(format!("{}: the file exists; --force replaces it", shown(&name)));
    }
    let mode = facts.as_ref().map_or(0o644, |facts| facts.permissions().mode() & 0o7777);
    let temporary = format!(".minfs-put-{}", std::process::id()).into_bytes();
    let file = volume.create(&temporary, mode).map_err(text)?;
    let work = || -> Outcome {
        if let Some(length) = facts.map(|facts| facts.len()).filter(|length| *length > 0) {
            // One contiguous area if there is one; the size follows with the data.
            file.preallocate(0, length, true, false).map_err(text)?;
        }
        copy_in(&mut *reader, &file, source)?;
        volume.rename(&temporary, &name, force).map_err(text)
    };
    let outcome = work();
    drop(file);
    if outcome.is_err() {
        // What cannot be removed now shows under its temporary name.
        let _ = volume.unlink(&temporary);
    }
    outcome.and_then(|()| volume.unmount().map_err(text))
}

/// Copies a file out.
pub fn get(device: &Path, name: &OsStr, destination: Option<&Path>) -> Outcome {
    let volume = volume(device, true)?;
    let file = volume.open(name.as_bytes()).map_err(text)?;
    let mut output: Box<dyn Write> = match destination {
        Some(path) => Box::new(
            fs::File::create(path).map_err(|error| format!("{}: {error}", path.display()))?,
        ),
        None => Box::new(io::stdout().lock()),
    };
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES);
    let mut offset = 0;
    loop {
        let length = file.read(&mut buffer, offset).map_err(text)?;
        if length == 0 {
            return output.flush().map_err(text);
        }
        output.write_all(&buffer[..length]).map_err(text)?;
        offset += length as u64;
    }
}

/// Removes files.
pub fn remove(device: &Path, names: &[std::ffi::OsString]) -> Outcome {
    let volume = volume(device, false)?;
    for name in names {
        volume.unlink(name.as_bytes()).map_err(text)?;
    }
    volume.unmount().map_err(text)
}

/// Renames a file.
pub fn rename(device: &Path, from: &OsStr, to: &OsStr) -> Outcome {
    let volume = volume(device, false)?;
    volume.rename(from.as_bytes(), to.as_bytes(), true).map_err(text)?;
    volume.unmount().map_err(text)
}

/// Prints used and free space.
pub fn space(device: &Path) -> Outcome {
    let space = volume(device, true)?.space();
    println!("total_bytes: {}", space.total_bytes);
    println!("used_bytes: {}", space.total_bytes - space.free_bytes);
    println!("free_bytes: {}", space.free_bytes);
    println!("longest_free_bytes: {}", space.longest_free_bytes);
    println!("files: {}", space.files);
    println!("files_max: {}", space.files_max);
    Ok(())
}

/// Prints where files lie on the device.
pub fn map(device: &Path, name: Option<&OsStr>) -> Outcome {
    let volume = volume(device, true)?;
    let names = match name {
        Some(name) => vec![name.as_bytes().to_vec()],
        None => volume.list().into_iter().map(|facts| facts.name).collect(),
    };
    println!("{:>14} {:>14} {:>14} name", "file_offset", "device_offset", "length");
    for name in names {
        for piece in volume.open(&name).map_err(text)?.pieces() {
            println!(
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
