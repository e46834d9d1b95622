//! Checking a volume, and repairing it where asked.
//!
//! The check is the survey that every mount makes, run to its end and told in full. A repair
//! changes as little as it can, tells each change, and never invents content: what has no record
//! that can be trusted is given up. Each repaired slot pair ends with one whole record; the
//! volume is surveyed anew after.

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
        // Each round ends at least one finding; a hopeless one (a failing device) ends the loop.
        let mut rounds = last.findings.len();
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
    touched: Vec<u32>,
}

impl<'a, D: BlockDevice + ?Sized> Repair<'a, D> {
    fn new(device: &'a D, survey: &'a Survey) -> Self {
        let newest = survey.inodes.iter().map(|inode| inode.newest_generation).max().unwrap_or(0);
        Self { device, survey, next_generation: newest + 1, touched: Vec::new() }
    }

    fn run(mut self, repairs: &mut Vec<String>) -> Result<()> {
        // What was read and judged may still be in the device's cache only.
        self.device.flush().map_err(Error::device("flush the device"))?;
        for finding in &self.survey.findings {
            if finding.severity == Severity::Note {
                continue;
            }
            match finding.subject {
                Subject::Geometry(copy) => self.rewrite_geometry(copy, repairs)?,
                Subject::Slot(inode) => self.rewrite_slot(inode, repairs)?,
                Subject::Inode(inode) => self.give_up(inode, repairs)?,
                Subject::Overlap(older, _) | Subject::Name(older, _) => {
                    self.remove_older(older, repairs)?;
                }
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

    /// Writes the record that counts to both slots, the damaged one first.
    fn rewrite_slot(&mut self, inode: u32, repairs: &mut Vec<String>) -> Result<()> {
        let surveyed = &self.survey.inodes[inode as usize];
        let Some((slot, record)) = &surveyed.record else { return Ok(()) };
        if self.is_touched(inode) {
            return Ok(());
        }
        let mut record = record.clone();
        record.previous_generation = record.generation;
        if let Some(file) = &mut record.file {
            // The survey has compared the tail with its checksum, and the flush has settled it.
            file.tail = None;
        }
        self.write(record, 1 - slot)?;
        repairs.push(format!(
            "inode {inode} ({}): its damaged older slot was written anew",
            self.survey.name(inode)
        ));
        Ok(())
    }

    /// Makes an inode free of which no record can be trusted.
    fn give_up(&mut self, inode: u32, repairs: &mut Vec<String>) -> Result<()> {
        if self.is_touched(inode) {
            return Ok(());
        }
        self.write_free(inode)?;
        repairs.push(format!(
            "inode {inode} ({}): it was given up; its content is lost",
            self.survey.name(inode)
        ));
        Ok(())
    }

    fn remove_older(&mut self, older: u32, repairs: &mut Vec<String>) -> Result<()> {
        if self.is_touched(older) {
            return Ok(());
        }
        self.write_free(older)?;
        repairs.push(format!(
            "{} (inode {older}) was removed, since a younger record claims its name or space",
            self.survey.name(older)
        ));
        Ok(())
    }

    /// Writes free records to both slots, so that nothing of the old ones can come back.
    fn write_free(&mut self, inode: u32) -> Result<()> {
        let burial = self.survey.inodes[inode as usize]
            .record
            .as_ref()
            .and_then(|(_, record)| record.burial);
        let zeros = block::AlignedBuffer::zeroed(BLOCK_BYTES as usize);
        let offset = self.survey.geometry.slot_offset(inode, 0);
        self.device.write_at(&zeros, offset).map_err(Error::device("clear a slot"))?;
        let record = Record { inode, generation: 0, previous_generation: 0, burial, file: None };
        self.write(record, 1)
    }

    fn write(&mut self, mut record: Record, slot: usize) -> Result<()> {
        record.generation = self.next_generation;
        self.next_generation += 1;
        let geometry = &self.survey.geometry;
        let offset = geometry.slot_offset(record.inode, slot);
        let bytes = record.encode(geometry, slot);
        self.device.write_at(&bytes, offset).map_err(Error::device("write a record"))
    }

    /// Whether this round has changed the inode already; later findings then wait for the next.
    fn is_touched(&mut self, inode: u32) -> bool {
        let is_touched = self.touched.contains(&inode);
        self.touched.push(inode);
        is_touched
    }
}
