//! The commands of the tool, but for the benchmark.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::destination::{Copied, Destination};
use block::tool::{self, ToolFailure, check_free, output};
use block::{BlockDevice, FileDevice, complain};
use lump::{CreateOptions, Durability, Geometry, OpenOptions, Store, Value};

use crate::CreateArguments;

type Outcome = Result<(), ToolFailure>;

/// Prints a line; a standard output that is full ends the command with an error, and one whose reader has
/// left takes everything.
macro_rules! say {
    ($($words:tt)*) => { writeln!(block::tool::output::stdout(), $($words)*).map_err(ToolFailure::of_output)? };
}
pub(crate) use say;

/// A failure of the system, not of the store.
fn broken(error: io::Error) -> ToolFailure {
    ToolFailure::Failed(error.to_string())
}

/// What the library says about the store on `path`.
pub fn about(path: &Path) -> impl Fn(lump::Error) -> ToolFailure {
    move |error| ToolFailure::from(error).about(path.display())
}

/// A refusal about `path`.
pub fn refused(path: &Path, why: impl fmt::Display) -> ToolFailure {
    ToolFailure::refused(path.display(), why)
}

/// Opens a device or image for oneself.
pub fn open(path: &Path, read_only: bool) -> Result<FileDevice, ToolFailure> {
    tool::open(path, read_only, Duration::ZERO)
}

/// Opens the store on `path`.
pub fn store(path: &Path, read_only: bool) -> Result<Store, ToolFailure> {
    let device = Arc::new(open(path, read_only)?);
    store_on(device, path, read_only)
}

/// Opens the store on a device that is open, at `path`.
pub fn store_on(
    device: Arc<dyn BlockDevice>,
    path: &Path,
    read_only: bool,
) -> Result<Store, ToolFailure> {
    let options = OpenOptions { read_only, ..Default::default() };
    let store = Store::open(device, &options).map_err(about(path))?;
    if let Some(note) = store.left_out() {
        complain!("lump: {}: {note}", path.display());
    }
    Ok(store)
}

/// Makes a store.
pub fn create(arguments: &CreateArguments) -> Outcome {
    let path = &arguments.device;
    let options = CreateOptions {
        unit_bytes: arguments.unit,
        objects_max: arguments.objects,
        journal_bytes: arguments.journal,
        ..CreateOptions::default()
    };
    let checked = check_free(path, arguments.size.is_some(), arguments.force)?;
    if let Some(bytes) = arguments.size {
        // Refuse what cannot be laid out before a file is made or cut.
        Geometry::plan(bytes, 512, &options)
            .map_err(|error| too_small(path, bytes, &options, error))?;
    }
    let device = tool::open_checked(path, &checked, arguments.size, Duration::ZERO)?;
    let geometry = Store::create(&device, &options).map_err(about(path))?;
    if !arguments.quiet {
        say!(
            "{}: {} bytes for data, {} objects at most, units of {} bytes, UUID {}",
            path.display(),
            geometry.data_bytes(),
            geometry.objects_max(),
            geometry.unit_bytes(),
            geometry.uuid()
        );
    }
    Ok(())
}

/// Why a store of this size cannot be made: with the least power of two that can, where there is one.
fn too_small(path: &Path, bytes: u64, options: &CreateOptions, error: lump::Error) -> ToolFailure {
    let sizes = (12..40).map(|power| 1_u64 << power).filter(|size| *size > bytes);
    match sizes.into_iter().find(|size| Geometry::plan(*size, 512, options).is_ok()) {
        None => about(path)(error),
        Some(least) => {
            let why = format!("{bytes} bytes are too few for a store; --size {least} is enough");
            refused(path, why)
        }
    }
}

/// Stores a file or standard input.
pub fn put(device: &Path, key: u128, source: Option<&Path>) -> Outcome {
    let mut bytes = Vec::new();
    match source.filter(|path| *path != Path::new("-")) {
        Some(path) => {
            let read = tool::open_to_copy(path)?.read_to_end(&mut bytes);
            read.map_err(|error| refused(path, error))?;
        }
        None => drop(io::stdin().lock().read_to_end(&mut bytes).map_err(broken)?),
    }
    let store = store(device, false)?;
    store.put(key, &bytes, Durability::Durable).map_err(about(device))?;
    store.close().map_err(about(device))
}

/// Takes a value, or some bytes of it, out.
pub fn get(
    device: &Path,
    key: u128,
    destination: Option<&Path>,
    range: Option<(u64, u64)>,
    force: bool,
) -> Outcome {
    let store = store(device, true)?;
    let value = match range {
        Some((start, end)) => {
            store.get_range(key, start..end).map(|bytes| bytes.map(|bytes| Value::from(&bytes[..])))
        }
        None => store.get(key),
    };
    let Some(value) = value.map_err(about(device))? else {
        return Err(ToolFailure::failed(device.display(), format!("key {key:032x} has no value")));
    };
    if destination.is_none() && io::stdout().is_terminal() && std::str::from_utf8(&value).is_err() {
        let why = "it is binary, and standard output is a terminal; name a file to write, or - to \
                   print it all the same";
        return Err(ToolFailure::refused(format!("key {key:032x}"), why));
    }
    let Some(path) = destination.filter(|path| *path != Path::new("-")) else {
        let mut output = output::stdout();
        return output
            .write_all(&value)
            .and_then(|()| output.flush())
            .map_err(ToolFailure::of_output);
    };
    // A value has no permissions of its own: who may read the store may read it.
    let facts = device.metadata().map_err(|error| tool::opening_failed(device, &error))?;
    let mode = facts.permissions().mode() & 0o666;
    let copied = Copied { holder: device, size_bytes: value.len() as u64, mode };
    let destination = Destination::open(path, &copied, force)?;
    let written = destination.file().write_all(&value);
    written.map_err(|error| {
        destination.give_up(path);
        ToolFailure::failed(path.display(), error)
    })
}

/// Lists keys.
pub fn list(device: &Path, keys: (u128, u128), long: bool) -> Outcome {
    let store = store(device, true)?;
    let mut output = io::BufWriter::new(output::stdout());
    for object in store.list(keys.0..=keys.1).map_err(about(device))? {
        if long {
            writeln!(output, "{:032x} {}", object.key, object.length_bytes)
        } else {
            writeln!(output, "{:032x}", object.key)
        }
        .map_err(ToolFailure::of_output)?;
        if output::reader_left() {
            break;
        }
    }
    output.flush().map_err(ToolFailure::of_output)
}

/// Deletes values and prints how many there were.
pub fn delete(device: &Path, keys: &[(u128, u128)]) -> Outcome {
    let store = store(device, false)?;
    let mut count = 0;
    for &(first, last) in keys {
        count += store.delete_range(first..=last, Durability::Written).map_err(about(device))?;
    }
    store.close().map_err(about(device))?;
    say!("{count} deleted");
    Ok(())
}

/// Prints identity and usage.
pub fn stat(device: &Path, prometheus: bool) -> Outcome {
    let store = store(device, true)?;
    let (geometry, usage) = (store.geometry(), store.usage());
    let values = [
        ("STORE_BYTES", geometry.store_bytes()),
        ("UNIT_BYTES", geometry.unit_bytes()),
        ("JOURNAL_BYTES", geometry.journal_bytes()),
        ("DATA_BYTES", usage.data_bytes),
        ("FREE_BYTES", usage.free_bytes),
        ("LONGEST_FREE_BYTES", usage.longest_free_bytes),
        ("OBJECTS", usage.objects),
        ("OBJECTS_MAX", usage.objects_max),
    ];
    if prometheus {
        let text = store.metrics().prometheus();
        return output::stdout().write_all(text.as_bytes()).map_err(ToolFailure::of_output);
    }
    say!("DEVNAME={}", device.display());
    say!("UUID={}", geometry.uuid());
    say!("TYPE=lump");
    for (name, value) in values {
        say!("{name}={value}");
    }
    Ok(())
}

/// Tells the device what is free.
pub fn trim(device: &Path, bytes_min: u64) -> Outcome {
    let store = store(device, false)?;
    let bytes = store.trim(bytes_min).map_err(about(device))?;
    store.close().map_err(about(device))?;
    say!("{bytes} bytes trimmed");
    Ok(())
}

/// Checks everything; damage is a failure.
pub fn check(device: &Path, verbose: bool) -> Outcome {
    let shown = device.display();
    let opened = Arc::new(open(device, true)?);
    let report = lump::check(opened).map_err(about(device))?;
    for finding in &report.findings {
        say!("{shown}: {finding}");
    }
    for note in report.notes.iter().filter(|_| verbose) {
        say!("{shown}: note: {note}");
    }
    if report.left_out_values > 0 {
        let count = report.left_out_values;
        say!(
            "{shown}: {count} values are left out: power failed before they were durable, or they \
             decayed since (-v tells where)"
        );
    }
    let (objects, value_bytes) = (report.scrub.objects, report.scrub.value_bytes);
    match report.findings.len() {
        0 => {
            say!("{shown}: {objects} objects, {value_bytes} bytes, clean");
            Ok(())
        }
        count => Err(ToolFailure::Failed(format!(
            "{shown}: {count} findings; {objects} objects of {value_bytes} bytes are whole; \
             nothing was changed"
        ))),
    }
}

/// Reads and verifies every value; damage is a failure.
pub fn scrub(device: &Path, rate: Option<u64>) -> Outcome {
    let store = store(device, true)?;
    let mut outcome = Ok(());
    let report = store.scrub(rate, |error| {
        // The exit code says it too, should nobody read the words.
        let _ = writeln!(output::stdout(), "{}: {error}", device.display());
    });
    say!(
        "{}: {} objects, {} bytes verified, {} failures",
        device.display(),
        report.objects,
        report.value_bytes,
        report.failures
    );
    if report.failures > 0 {
        let text = format!("{}: {} values cannot be read", device.display(), report.failures);
        outcome = Err(ToolFailure::Failed(text));
    }
    outcome
}
