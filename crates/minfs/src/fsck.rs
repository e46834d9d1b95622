//! Checking a volume, and repairing it where asked.
//!
//! The check is the survey that every mount makes, run to its end and told in full. A repair
//! destroys as little as it can, tells each change, and never invents content: a file is kept as
//! the newest record that is left says, and given up only where none is left or where another file
//! holds its name or space. The volume is surveyed anew after.
//!
//! Power may fail in the middle. An inode gets one record a round, in the slot that does not hold
//! what is left of it, and each round ends with a flush: so whatever arrives, the next repair finds
//! the same record left, or the new one. An inode of which nothing is left has nothing to lose.

use std::collections::BTreeSet;

use block::BlockDevice;

use crate::error::{Error, Result};
use crate::geometry::VolumeGeometry;
use crate::layout::BLOCK_BYTES;
use crate::record::Record;
use crate::survey::{Finding, Severity, Subject, Survey};

/// What a check found and a repair did.
#[derive(Debug)]
pub struct FsckReport {
    /// Identity and sizes of the volume.
    pub geometry: VolumeGeometry,
    /// Everything found before any repair.
    pub findings: Vec<Finding>,
    /// Every change that was made, in words.
    pub repairs: Vec<String>,
    /// What is left after the repairs, or all findings without them.
    pub remaining: Vec<Finding>,
    /// Files on the volume, after the repairs.
    pub files: u32,
    /// Bytes that they hold.
    pub used_bytes: u64,
}

impl FsckReport {
    /// Whether nothing but notes was found.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }

    /// Whether nothing but notes is left.
    pub fn is_repaired(&self) -> bool {
        self.remaining.iter().all(|finding| finding.severity == Severity::Note)
    }
}

/// Checks the volume on `device`, and repairs it when `repair`.
///
/// # Errors
///
/// When no geometry can be read, or the device fails.
pub fn fsck<D: BlockDevice + ?Sized>(device: &D, repair: bool) -> Result<FsckReport> {
    let first = Survey::read(device)?;
    let features = first.geometry.fields.features_read_only;
    if repair && features != 0 {
        return Err(Error::Unsupported(format!("to be written, the features {features:#x}")));
    }
    let findings = first.findings.clone();
    let mut repairs = Vec::new();
    let mut last = first;
    if repair {
        // Each round writes an inode's record, or ends a conflict; an inode takes two records at
        // most. A hopeless finding (a failing device) ends the loop.
        let mut rounds = 2 * last.findings.len();
        while rounds > 0 && last.worst() > Some(Severity::Note) {
            Repair::new(device, &last).run(&mut repairs)?;
            last = Survey::read(device)?;
            rounds -= 1;
        }
    }
    let unit_bytes = last.geometry.unit_bytes();
    Ok(FsckReport {
        findings,
        repairs,
        files: last.inodes.iter().filter(|inode| inode.file().is_some()).count() as u32,
        used_bytes: last.used.iter().map(|(extent, _)| u64::from(extent.count) * unit_bytes).sum(),
        remaining: last.findings,
        geometry: last.geometry,
    })
}

struct Repair<'a, D: ?Sized> {
    device: &'a D,
    survey: &'a Survey,
    next_generation: u64,
    /// Inodes that this round leaves alone from here on.
    touched: BTreeSet<u32>,
}

impl<'a, D: BlockDevice + ?Sized> Repair<'a, D> {
    fn new(device: &'a D, survey: &'a Survey) -> Self {
        let newest = survey.inodes.iter().map(|inode| inode.newest_generation).max().unwrap_or(0);
        Self { device, survey, next_generation: newest + 1, touched: BTreeSet::new() }
    }

    fn run(mut self, repairs: &mut Vec<String>) -> Result<()> {
        // What was read and judged may still be in the device's cache only.
        self.device.flush().map_err(Error::device("flush the device"))?;
        // Conflicts come first, since a new record makes its inode the younger one.
        for finding in &self.survey.findings {
            if let Subject::Overlap(older, younger) = finding.subject {
                self.end_conflict(older, younger, "space", repairs)?;
            } else if let Subject::Name(older, younger) = finding.subject {
                self.end_conflict(older, younger, "name", repairs)?;
            }
        }
        for finding in &self.survey.findings {
            match finding.subject {
                _ if finding.severity == Severity::Note => {}
                Subject::Geometry(copy) => self.rewrite_geometry(copy, repairs)?,
                Subject::Slot(inode) | Subject::Inode(inode) => self.renew(inode, repairs)?,
                Subject::Overlap(..) | Subject::Name(..) => {}
            }
        }
        self.device.flush().map_err(Error::device("flush the device"))
    }

    fn rewrite_geometry(&self, copy: usize, repairs: &mut Vec<String>) -> Result<()> {
        let offset = self.survey.geometry.copy_offsets()[copy];
        let bytes = self.survey.geometry.encode();
        self.device.write_at(&bytes, offset).map_err(Error::device("write the geometry"))?;
        repairs
            .push(format!("the geometry at offset {offset} was written anew from the other copy"));
        Ok(())
    }

    /// Gives the older file up: what a lost record gave away was taken by a younger one.
    fn end_conflict(
        &mut self,
        older: u32,
        younger: u32,
        what: &str,
        repairs: &mut Vec<String>,
    ) -> Result<()> {
        let are_new = [older, younger].map(|inode| self.touched.insert(inode));
        if are_new != [true, true] {
            return Ok(());
        }
        self.write_free(older)?;
        let [loser, winner] = [older, younger].map(|inode| self.survey.title(inode));
        repairs.push(format!(
            "{loser} was given up, since {winner} has its {what} by now: its content is lost"
        ));
        Ok(())
    }

    /// Writes what is left of an inode anew, over its damaged slot.
    fn renew(&mut self, inode: u32, repairs: &mut Vec<String>) -> Result<()> {
        if !self.touched.insert(inode) {
            return Ok(());
        }
        let surveyed = &self.survey.inodes[inode as usize];
        let title = self.survey.title(inode);
        let Some(((slot, record), file)) = surveyed.record.as_ref().zip(surveyed.file()) else {
            self.write_free(inode)?;
            repairs.push(if self.is_in_doubt(inode) {
                format!("{title}: nothing is left of a file that may have been here; it is free")
            } else {
                format!("{title}, which holds no file: its slots were written anew")
            });
            return Ok(());
        };
        let mut record = record.clone();
        record.previous_generation = record.generation;
        if let Some(file) = &mut record.file {
            // The survey has compared the tail with its checksum, and the flush has settled it; or
            // it is kept like the rest of a file in doubt.
            file.tail = None;
        }
        self.write(record, 1 - slot)?;
        repairs.push(if self.is_in_doubt(inode) {
            format!(
                "{title}: kept as the newest record that is left says, {} bytes. This may be an \
                 older state: what was written or changed since may be missing, and space that it \
                 gave up since may show other contents",
                file.size
            )
        } else {
            format!("{title}: its damaged older slot was written anew")
        });
        Ok(())
    }

    /// Whether an error was found that concerns this inode alone.
    fn is_in_doubt(&self, inode: u32) -> bool {
        let is_doubt = |finding: &Finding| finding.subject == Subject::Inode(inode);
        self.survey.findings.iter().any(is_doubt)
    }

    /// Makes an inode free. Of one of which nothing is left both slots are written, so that nothing
    /// of the old ones can come back.
    fn write_free(&mut self, inode: u32) -> Result<()> {
        let mut free =
            Record { inode, generation: 0, previous_generation: 0, burial: None, file: None };
        if let Some((slot, record)) = &self.survey.inodes[inode as usize].record {
            free.previous_generation = record.generation;
            free.burial = record.burial;
            return self.write(free, 1 - slot);
        }
        let zeros = block::AlignedBuffer::zeroed(BLOCK_BYTES as usize);
        let offset = self.survey.geometry.slot_offset(inode, 0);
        self.device.write_at(&zeros, offset).map_err(Error::device("clear a slot"))?;
        self.write(free, 1)
    }

    fn write(&mut self, mut record: Record, slot: usize) -> Result<()> {
        record.generation = self.next_generation;
        self.next_generation += 1;
        let geometry = &self.survey.geometry;
        let offset = geometry.slot_offset(record.inode, slot);
        let bytes = record.encode(geometry, slot);
        self.device.write_at(&bytes, offset).map_err(Error::device("write a record"))
    }
}
