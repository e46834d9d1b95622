//! Checking a volume, and repairing it where asked.
//!
//! The check is the survey that every mount makes, run to its end and told in full. A repair
//! destroys as little as it can, tells each change, and never invents content: a file is kept as
//! the newest record that is left says, and given up only where none is left or where another file
//! holds its name or space. The volume is surveyed anew after.
//!
//! Power may fail in the middle. An inode gets one record a round, in the slot that does not hold
//! what is left of it, and each round ends with a flush: so whatever arrives, the next repair finds
//! the same record left, or the new one. Conflicts end first, each kind in a round of its own: a
//! new record makes its inode the younger one, and may make a burial certain that was in doubt.

use std::collections::BTreeSet;

use block::BlockDevice;

use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::geometry::VolumeGeometry;
use crate::layout::BLOCK_BYTES;
use crate::record::Record;
use crate::survey::{Finding, GENERATIONS_LEAPT, Severity, Subject, Survey, USED_UP};

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
pub fn fsck(device: &dyn BlockDevice, repair: bool) -> Result<FsckReport> {
    let first = Survey::read(device)?;
    let features = first.geometry.fields.features_read_only;
    if repair && features != 0 {
        return Err(Error::Unsupported(format!("to be written, the features {features:#x}")));
    }
    if repair && first.used_up_by().is_some() {
        return Err(Error::Invalid(USED_UP.into()));
    }
    let findings = first.findings.clone();
    let mut repairs = Vec::new();
    let mut last = first;
    if repair && last.worst() > Some(Severity::Note) {
        let mut next_generation = last.newest_generation() + GENERATIONS_LEAPT;
        // A round ends the conflicts over space, or those over names, or writes one record of each
        // inode, which takes two at most. A device that fails to keep what is written ends it too.
        let mut rounds = 2 * last.findings.len() + 2;
        while rounds > 0 && last.worst() > Some(Severity::Note) {
            let told = repairs.len();
            next_generation = Round::new(device, &last, next_generation).run(&mut repairs)?;
            if repairs.len() == told {
                break;
            }
            last = Survey::read(device)?;
            rounds -= 1;
        }
    }
    // Space that several files claim counts once.
    let free_units = Allocator::new(last.geometry.unit_count(), &last.used).free_units();
    Ok(FsckReport {
        findings,
        repairs,
        files: last.inodes.iter().filter(|inode| inode.file().is_some()).count() as u32,
        used_bytes: last.geometry.data_bytes() - free_units * last.geometry.unit_bytes(),
        remaining: last.findings,
        geometry: last.geometry,
    })
}

struct Round<'a> {
    device: &'a dyn BlockDevice,
    survey: &'a Survey,
    next_generation: u64,
    /// Inodes of which it is not known what they held last.
    in_doubt: BTreeSet<u32>,
}

impl<'a> Round<'a> {
    fn new(device: &'a dyn BlockDevice, survey: &'a Survey, next_generation: u64) -> Self {
        let in_doubt = survey.findings.iter().filter_map(|finding| match finding.subject {
            Subject::Inode(inode) => Some(inode),
            _ => None,
        });
        Self { device, survey, next_generation, in_doubt: in_doubt.collect() }
    }

    /// Returns the next generation.
    fn run(mut self, repairs: &mut Vec<String>) -> Result<u64> {
        // What was read and judged may still be in the device's cache only.
        self.device.flush().map_err(Error::device("flush the device"))?;
        let (mut space, mut names, mut damaged) = (Vec::new(), Vec::new(), BTreeSet::new());
        for finding in &self.survey.findings {
            match finding.subject {
                _ if finding.severity == Severity::Note => {}
                Subject::Generations(_) => {}
                Subject::Geometry(copy) => self.rewrite_geometry(copy, repairs)?,
                Subject::Overlap(older, younger) => space.push((older, younger)),
                Subject::Name(older, younger) => names.push((older, younger)),
                Subject::Slot(inode) | Subject::Inode(inode) => drop(damaged.insert(inode)),
            }
        }
        if !space.is_empty() {
            for (older, younger) in space {
                self.give_up(older, younger, repairs)?;
            }
        } else if !names.is_empty() {
            for (older, younger) in names {
                self.rename(older, younger, repairs)?;
            }
        } else {
            for inode in &damaged {
                if !self.must_wait(*inode, &damaged) {
                    self.renew(*inode, repairs)?;
                }
            }
        }
        self.device.flush().map_err(Error::device("flush the device"))?;
        Ok(self.next_generation)
    }

    /// A new record would make a burial certain that is in doubt, and lose a file that is kept, if
    /// power failed before that file had a new record too.
    fn must_wait(&self, inode: u32, damaged: &BTreeSet<u32>) -> bool {
        let record_of = |inode: u32| Some(&self.survey.inodes[inode as usize].record.as_ref()?.1);
        let Some(burial) = record_of(inode).and_then(|record| record.burial) else { return false };
        damaged.contains(&burial.inode)
            && self.survey.inodes[burial.inode as usize].file().is_some()
            && record_of(burial.inode).is_some_and(|record| record.generation <= burial.generation)
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
    fn give_up(&mut self, older: u32, younger: u32, repairs: &mut Vec<String>) -> Result<()> {
        self.write_free(older)?;
        let [loser, winner] = [older, younger].map(|inode| self.survey.title(inode));
        repairs.push(format!(
            "{loser} was given up, since {winner} has its space by now: its content is lost"
        ));
        Ok(())
    }

    /// Keeps the older file under the name that the survey shows it by.
    fn rename(&mut self, older: u32, younger: u32, repairs: &mut Vec<String>) -> Result<()> {
        let kept = self.write_left(older)?.expect("it has a name");
        let winner = self.survey.title(younger);
        repairs.push(format!("{kept}. It has a new name, since {winner} has its old one by now"));
        Ok(())
    }

    /// Writes what is left of an inode anew, over its damaged slot.
    fn renew(&mut self, inode: u32, repairs: &mut Vec<String>) -> Result<()> {
        let surveyed = &self.survey.inodes[inode as usize];
        let title = self.survey.title(inode);
        let is_in_doubt = self.in_doubt.contains(&inode);
        if surveyed.record.is_none() && surveyed.is_unread && is_in_doubt {
            // It may be there all the same; the finding says that it cannot be read.
            return Ok(());
        }
        repairs.push(match (self.write_left(inode)?, is_in_doubt) {
            (Some(kept), true) => kept,
            (Some(_), false) => format!("{title}: its damaged older slot was written anew"),
            (None, _) => {
                self.write_free(inode)?;
                if is_in_doubt {
                    format!(
                        "{title}: nothing is left of a file that may have been here; it is free. A file that it replaced may be back, with bytes of others: check those that you do not expect"
                    )
                } else {
                    format!("{title}, which holds no file: its slots were written anew")
                }
            }
        });
        Ok(())
    }

    /// Writes the record that is left of a file anew to the other slot; says what was kept. `None`
    /// where there is no file.
    fn write_left(&mut self, inode: u32) -> Result<Option<String>> {
        let surveyed = &self.survey.inodes[inode as usize];
        let Some(((slot, record), file)) = surveyed.record.as_ref().zip(surveyed.file()) else {
            return Ok(None);
        };
        let kept = format!(
            "{}: kept as the newest record that is left says, {} bytes. This may be an older state: \
             what was written or changed since may be missing, and space that it gave up since may \
             show other contents",
            self.survey.title(inode),
            file.size
        );
        let mut record = record.clone();
        record.previous_generation = record.generation;
        if let Some(file) = &mut record.file {
            // The survey has compared the tail with its checksum, and the flush has settled it; or
            // it is kept like the rest of a file in doubt.
            file.tail = None;
        }
        self.write(record, 1 - slot)?;
        Ok(Some(kept))
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
