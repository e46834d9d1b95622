//! `lump import`: brings every lump of a CannyLS storage (`.lusf`, format 1.0 and 1.1) over.
//!
//! The source is read only. Its journal is replayed as CannyLS does it; a record that does not
//! carry its checksum ends the import before anything was written. The format has no checksums of
//! values, so a value that decayed there comes over as it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use block::tool::ToolFailure;
use block::{DirectAccess, FileDevice, FileDeviceOptions};
use lump::layout::VALUE_BYTES_MAX;
use lump::{Durability, Value};

use crate::tools::{about, refused, say, store};

/// Bytes of the header before its padding: magic, length, versions, block size, UUID, two sizes.
const HEADER_BYTES: usize = 44;
/// Bytes of a record before the data that it embeds: checksum, tag, key, length.
const EMBEDDED_AT: u64 = 23;
/// Bytes at the end of a value on the medium that tell how much padding comes before them.
const TRAILER_BYTES: usize = 2;
const READ_BYTES: usize = 1 << 20;

/// Where a lump lies in the source, in bytes of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SourceExtent {
    /// In the journal.
    Embedded { offset: u64, length: usize },
    /// In whole blocks, with padding and a trailer.
    Data { offset: u64, length: usize },
}

/// Imports the storage `source` into the store on `device`.
pub fn import(device: &Path, source: &Path, force: bool, partial: bool) -> Result<(), ToolFailure> {
    let options = FileDeviceOptions {
        read_only: true,
        exclusive: true,
        direct: DirectAccess::Never,
        set_length: None,
    };
    let opened = FileDevice::open(source, &options).map_err(|error| refused(source, error))?;
    let mut lumps = BTreeMap::new();
    let replayed = Journal::open(opened.file()).and_then(|journal| journal.replay(&mut lumps));
    match replayed {
        Err(Broken::Storage(why)) => return Err(refused(source, why)),
        Err(Broken::Record(why)) if !partial => {
            let hint = "--partial brings over what the records before it say";
            return Err(refused(source, format!("{why}; nothing was written ({hint})")));
        }
        Err(Broken::Record(why)) => block::complain!("lump: {}: {why}", source.display()),
        Ok(()) => {}
    }
    let store = store(device, false)?;
    if !force && let Some(key) = lumps.keys().find(|key| store.head(**key).is_some()) {
        let why = format!("it has a value under key {key:032x} already; --force replaces it");
        return Err(refused(device, why));
    }
    let (mut count, mut value_bytes, mut failures) = (0_u64, 0_u64, 0_u64);
    let mut value = Value::zeroed(0);
    // In the order of their places, so that the source is read from its start to its end.
    let mut order: Vec<(SourceExtent, u128)> =
        lumps.into_iter().map(|(key, at)| (at, key)).collect();
    order.sort_unstable();
    for (place, key) in order {
        match read(opened.file(), place, &mut value) {
            Ok(()) => {
                store.put_value(key, &mut value, Durability::Buffered).map_err(about(device))?;
                count += 1;
                value_bytes += value.len() as u64;
            }
            Err(why) => {
                block::complain!("lump: {}: key {key:032x}: {why}", source.display());
                failures += 1;
            }
        }
    }
    store.close().map_err(about(device))?;
    say!("{count} values of {value_bytes} bytes imported, {failures} failures");
    match failures {
        0 => Ok(()),
        _ => {
            let why = format!("{}: {failures} values cannot be read", source.display());
            Err(ToolFailure::Failed(why))
        }
    }
}

fn read(file: &File, place: SourceExtent, value: &mut Value) -> Result<(), String> {
    let (SourceExtent::Embedded { offset, length } | SourceExtent::Data { offset, length }) = place;
    // With the padding to a block and the trailer.
    if length as u64 > VALUE_BYTES_MAX + (1 << 16) {
        return Err(format!(
            "{length} bytes at byte {offset}; a value has at most {VALUE_BYTES_MAX}"
        ));
    }
    value.resize(length);
    file.read_exact_at(value, offset).map_err(|error| format!("at byte {offset}: {error}"))?;
    if let SourceExtent::Data { .. } = place {
        let trailer: [u8; 2] = value[length - TRAILER_BYTES..].try_into().expect("2 bytes");
        let padding = usize::from(u16::from_be_bytes(trailer));
        let rest = (length - TRAILER_BYTES).checked_sub(padding);
        value.resize(rest.ok_or_else(|| format!("{padding} bytes of padding at byte {offset}"))?);
    }
    Ok(())
}

/// Why a source cannot be read.
enum Broken {
    /// It is none, or of another version.
    Storage(String),
    /// A record of its journal.
    Record(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Storage(error.to_string())
    }
}

/// A part of a file, read from a place on.
struct Window<'a> {
    file: &'a File,
    position: u64,
    end: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = (bytes.len() as u64).min(self.end - self.position) as usize;
        let count = self.file.read_at(&mut bytes[..length], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// The ring of records of a storage.
struct Journal<'a> {
    file: &'a File,
    block_bytes: u64,
    /// First byte of the ring.
    start: u64,
    /// First byte of the data.
    end: u64,
    data_bytes: u64,
    reader: BufReader<Window<'a>>,
    /// Where in the ring the reader is, in bytes.
    position: u64,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn key(bytes: &[u8]) -> u128 {
    u128::from_be_bytes(bytes.try_into().expect("16 bytes"))
}

/// Adler-32 (RFC 1950).
fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    (high << 16) | low
}

impl<'a> Journal<'a> {
    fn open(file: &'a File) -> Result<Self, Broken> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let (major, minor) = (number(&header[6..8]), number(&header[8..10]));
        let block_bytes = number(&header[10..12]);
        let (journal_bytes, data_bytes) = (number(&header[28..36]), number(&header[36..44]));
        if &header[..4] != b"lusf" || number(&header[4..6]) != HEADER_BYTES as u64 - 6 {
            return Err(Broken::Storage("this is no CannyLS storage".into()));
        }
        if major != 1 || minor > 1 {
            return Err(Broken::Storage(format!("format {major}.{minor}; 1.0 and 1.1 are known")));
        }
        let is_sane = block_bytes != 0
            && block_bytes.is_multiple_of(512)
            && journal_bytes > block_bytes
            && journal_bytes.max(data_bytes) < 1 << 60;
        if !is_sane {
            return Err(Broken::Storage(format!(
                "a header with blocks of {block_bytes}, a journal of {journal_bytes} and data of \
                 {data_bytes} bytes"
            )));
        }
        let start = (HEADER_BYTES as u64).next_multiple_of(block_bytes);
        let mut head = [0; 8];
        file.read_exact_at(&mut head, start)?;
        let (start, end) = (start + block_bytes, start + journal_bytes);
        let position = number(&head);
        if position >= end - start {
            return Err(Broken::Storage(format!("a journal that starts at its byte {position}")));
        }
        let window = Window { file, position: start + position, end };
        let reader = BufReader::with_capacity(READ_BYTES, window);
        Ok(Self { file, block_bytes, start, end, data_bytes, reader, position })
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, Broken> {
        let mut bytes = vec![0; length];
        let at = self.position;
        self.reader.read_exact(&mut bytes).map_err(|error| {
            Broken::Record(format!("the record around byte {at} of the journal: {error}"))
        })?;
        self.position += length as u64;
        Ok(bytes)
    }

    /// Enters what all records say.
    fn replay(mut self, lumps: &mut BTreeMap<u128, SourceExtent>) -> Result<(), Broken> {
        let mut has_wrapped = false;
        loop {
            let at = self.position;
            let damaged = |why: &str| {
                Broken::Record(format!("the record at byte {at} of the journal: {why}"))
            };
            let start = self.take(5)?;
            let tag = start[4];
            let mut body = match tag {
                0 | 1 => Vec::new(),
                3 => self.take(23)?,
                4 => self.take(18)?,
                5 => self.take(16)?,
                6 => self.take(32)?,
                _ => return Err(damaged(&format!("unknown kind {tag}"))),
            };
            if tag == 4 {
                let length = number(&body[16..18]) as usize;
                body.extend(self.take(length)?);
            }
            if u64::from(adler32(&[&[tag], &body[..]].concat())) != number(&start[..4]) {
                return Err(damaged("its checksum does not match"));
            }
            match tag {
                0 => return Ok(()),
                1 if has_wrapped => return Err(damaged("the journal wraps around twice")),
                1 => {
                    has_wrapped = true;
                    let window = Window { file: self.file, position: self.start, end: self.end };
                    self.reader = BufReader::with_capacity(READ_BYTES, window);
                    self.position = 0;
                }
                3 => {
                    let length = number(&body[16..18]) * self.block_bytes;
                    let offset = number(&body[18..23]) * self.block_bytes;
                    if length == 0 || offset + length > self.data_bytes {
                        return Err(damaged("its value lies outside of the data"));
                    }
                    let offset = self.end + offset;
                    let place = SourceExtent::Data { offset, length: length as usize };
                    lumps.insert(key(&body[..16]), place);
                }
                4 => {
                    let offset = self.start + at + EMBEDDED_AT;
                    let place = SourceExtent::Embedded { offset, length: body.len() - 18 };
                    lumps.insert(key(&body[..16]), place);
                }
                5 => {
                    lumps.remove(&key(&body));
                }
                _ => {
                    let (first, end) = (key(&body[..16]), key(&body[16..]));
                    lumps.retain(|key, _| *key < first || *key >= end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn adler32_is_that_of_the_rfc() {
        assert_eq!(super::adler32(b"Wikipedia"), 0x11e6_0398);
    }
}
