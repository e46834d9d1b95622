//! A mounted volume: what its names stand for, and what changes them.
//!
//! Every change of a name is one record, made durable before the call returns; `shared` knows how
//! that is done. The tables of a mount come from the survey; nothing is replayed.

use std::collections::VecDeque;
use std::sync::Arc;

use block::BlockDevice;

use crate::error::{Error, Result};
use crate::file::File;
use crate::flushes::Flushed;
use crate::geometry::VolumeGeometry;
use crate::inode::{Inode, InodeState};
use crate::layout::{BLOCK_BYTES, NAME_BYTES_MAX};
use crate::lengths::Lengths;
use crate::record::{Attributes, FileRecord, is_valid_name};
use crate::shared::{Names, Shared, SlotState, display, note_durable, now_ns};
use crate::survey::{Finding, Severity, Survey, SurveyedInode, USED_UP};
use crate::sync::Mutex;

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Write nothing.
    pub read_only: bool,
    /// Let files whose newest record may be lost be read as the newest that is left says, which
    /// otherwise fails with [`Error::DamagedFile`]. Such a volume is read-only in any case.
    pub read_damaged: bool,
    /// Tell the device of freed space.
    pub discard: bool,
    /// For the canaries of the crash tests only.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// A rule to break on purpose, so that the tests prove that they would notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Keep all rules.
    #[default]
    None,
    /// Never flush.
    SkipFlush,
    /// Move the valid length without a checksum and without a flush of the data.
    SkipTail,
    /// Hand freed space out before the record that freed it is durable.
    ReuseEarly,
    /// Write every record to the slot that holds the durable one.
    SameSlot,
    /// Overwrite the bytes of a tail without settling it first.
    OverwriteTail,
    /// Leave the record of a replaced file out of the account.
    ForgetBurial,
    /// Take what an earlier mount left behind the size of a file for zeros.
    TrustBehindSize,
    /// Go on writing and flushing after the device has failed.
    GoOnAfterFailure,
}

/// Space and files of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFacts {
    /// Bytes for data, used or free.
    pub total_bytes: u64,
    /// Bytes that no file holds.
    pub free_bytes: u64,
    /// Length of the longest contiguous free area in bytes.
    pub longest_free_bytes: u64,
    /// Most files.
    pub files_max: u32,
    /// Files now.
    pub files: u32,
}

/// What is known of a file without opening it.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Number of the inode.
    pub inode: u32,
    /// Tells this file from others that had the same inode number before.
    pub birth: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes from here on read as zeros.
    pub valid: u64,
    /// Space that the file holds in bytes.
    pub allocated_bytes: u64,
    /// Number of contiguous pieces.
    pub extent_count: usize,
    /// Mode, owner and times.
    pub attributes: Attributes,
    /// Whether the file has lost its name.
    pub is_unlinked: bool,
}
/// A mounted volume. Dropping it unmounts it; [`Volume::unmount`] also tells of errors.
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
}
/// Refuses what cannot be the name of a file: 1 to 255 bytes, no slash, no zero byte, not `.` or
/// `..`.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong(name.len()));
    }
    if is_valid_name(name) { Ok(()) } else { Err(Error::BadName(display(name))) }
}
/// What a mount keeps in memory, as the survey found it.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) names: Names,
    pub(crate) slots: Vec<Mutex<SlotState>>,
    /// Files whose durable record has a tail, with its length in bytes.
    pub(crate) tails: VecDeque<(Arc<Inode>, u64)>,
    /// Inodes whose newest record is void, with the record that counts instead.
    voids: Vec<(u32, Option<FileRecord>)>,
}

impl Tables {
    fn of(survey: &Survey, options: &MountOptions) -> Self {
        let mut tables = Self::default();
        for (number, surveyed) in (0..).zip(&survey.inodes) {
            tables.add(number, surveyed, options);
        }
        tables
    }

    fn add(&mut self, number: u32, surveyed: &SurveyedInode, options: &MountOptions) {
        let mut slot = SlotState::default();
        if let Some((durable_slot, record)) = &surveyed.record {
            slot.durable_slot = Some(*durable_slot);
            slot.durable_generation = record.generation;
            slot.burial = record.burial;
            // The survey compares no tail of a buried file, so a new record brings none back to life.
            if surveyed.has_void_record {
                self.voids.push((number, record.file.clone()));
            }
        }
        self.slots.push(Mutex::new(slot));
        let Some(file) = surveyed.file() else {
            if surveyed.is_buried {
                self.names.buried.insert(number);
            }
            if !surveyed.is_barred {
                self.names.free.insert(number);
            }
            return;
        };
        let birth = surveyed.record.as_ref().map_or(0, |(_, record)| record.generation);
        let mut state = InodeState::from_record(file, birth);
        state.is_damaged = surveyed.is_barred && !options.read_damaged;
        if options.sabotage == Sabotage::TrustBehindSize {
            state.lengths = Lengths::of_what_the_record_says(file);
        }
        let tail_bytes = state.lengths.tail_start().map(|start| state.lengths.valid() - start);
        let inode = Arc::new(Inode::new(number, state));
        if let Some(tail_bytes) = tail_bytes {
            self.tails.push_back((inode.clone(), tail_bytes));
        }
        self.names.by_name.insert(file.name.clone(), inode);
    }
}

impl Volume {
    /// Mounts the volume on `device`.
    ///
    /// Damage that leaves doubt makes the volume read-only; [`Volume::read_only_reason`] tells.
    ///
    /// # Errors
    ///
    /// When there is no readable geometry, when the volume needs a later implementation, when
    /// the device shrank or fails.
    pub fn mount(device: Arc<dyn BlockDevice>, options: &MountOptions) -> Result<Self> {
        let survey = Survey::read(&*device)?;
        let granule = u64::from(device.block_size());
        if granule > BLOCK_BYTES {
            return Err(Error::Unsupported(format!(
                "a device with blocks of at most {BLOCK_BYTES} bytes; these have {granule}"
            )));
        }
        let reason = if survey.used_up_by().is_some() {
            USED_UP
        } else if survey.worst() == Some(Severity::Error) {
            "it is damaged; run fsck.minfs"
        } else if survey.geometry.fields.features_read_only != 0 {
            "it has features that this version of minfs cannot write"
        } else if options.read_only {
            "it was mounted so"
        } else if device.is_read_only() {
            "its device is read-only"
        } else {
            ""
        };
        let mut tables = Tables::of(&survey, options);
        let voids = std::mem::take(&mut tables.voids);
        let shared = Arc::new(Shared::new(device, survey, tables, options, reason));
        if reason.is_empty() {
            shared.make_durable(voids)?;
        } else {
            shared.medium.flush_what_was_read();
        }
        Ok(Self { shared })
    }

    /// What the mount found; empty for a volume without fault.
    pub fn findings(&self) -> &[Finding] {
        &self.shared.findings
    }

    /// The geometry.
    pub fn geometry(&self) -> &VolumeGeometry {
        &self.shared.geometry
    }

    /// Why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<String> {
        self.shared.medium.writable().err().map(|_| self.shared.medium.reason())
    }

    /// Space and number of files.
    pub fn space(&self) -> SpaceFacts {
        let shared = &self.shared;
        let unit_bytes = shared.geometry.unit_bytes();
        let files = shared.lock_names().by_name.len() as u32;
        let allocator = shared.lock_allocator();
        SpaceFacts {
            total_bytes: shared.geometry.data_bytes(),
            free_bytes: allocator.free_units() * unit_bytes,
            longest_free_bytes: u64::from(allocator.longest_run()) * unit_bytes,
            files_max: shared.geometry.inode_count(),
            files,
        }
    }

    /// All files, by name.
    pub fn list(&self) -> Vec<FileFacts> {
        let inodes: Vec<_> = self.shared.lock_names().by_name.values().cloned().collect();
        inodes.iter().map(|inode| self.shared.facts(inode)).collect()
    }

    /// Facts of one file.
    pub fn stat(&self, name: &[u8]) -> Result<FileFacts> {
        let inode = self.shared.find(name)?;
        Ok(self.shared.facts(&inode))
    }

    /// Opens a file.
    pub fn open(&self, name: &[u8]) -> Result<File> {
        let names = self.shared.lock_names();
        let inode = names.by_name.get(name).ok_or_else(|| Error::NotFound(display(name)))?;
        Ok(File::new(self.shared.clone(), inode.clone()))
    }

    /// Creates an empty file with permission bits `mode`: one write and one flush.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], [`Error::TooManyFiles`], bad names, a read-only volume.
    pub fn create(&self, name: &[u8], mode: u32) -> Result<File> {
        self.create_owned(name, mode, 0, 0)
    }

    /// [`Volume::create`] with an owner and a group.
    pub fn create_owned(&self, name: &[u8], mode: u32, user: u32, group: u32) -> Result<File> {
        let shared = &self.shared;
        check_name(name)?;
        let mut names = shared.lock_names();
        if names.by_name.contains_key(name) {
            return Err(Error::Exists(display(name)));
        }
        shared.medium.writable()?;
        let number = names
            .buried
            .iter()
            .find(|number| names.free.contains(number))
            .or_else(|| names.free.first())
            .copied()
            .ok_or(Error::TooManyFiles { limit: shared.geometry.inode_count() })?;
        let now = now_ns();
        let file = FileRecord {
            name: name.to_vec(),
            size: 0,
            valid: 0,
            tail: None,
            extents: Vec::new(),
            attributes: Attributes {
                mode: mode & 0o7777,
                user,
                group,
                accessed_ns: now,
                modified_ns: now,
                changed_ns: now,
                created_ns: now,
            },
        };
        let birth = shared.record(number, Some(file.clone()), None)?.generation;
        names.free.remove(&number);
        names.buried.remove(&number);
        let inode = Arc::new(Inode::new(number, InodeState::from_record(&file, birth)));
        names.by_name.insert(name.to_vec(), inode.clone());
        Ok(File::new(shared.clone(), inode))
    }

    /// Removes a name: one write and one flush. The space is given back when the last open
    /// [`File`] of it is gone.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        let shared = &self.shared;
        let mut names = shared.lock_names();
        let inode =
            names.by_name.get(name).cloned().ok_or_else(|| Error::NotFound(display(name)))?;
        shared.medium.writable()?;
        let (_turn, mut state) = inode.lock_to_record();
        let unflushed = shared.write_record(inode.number, None, None)?;
        if shared.sabotage() == Sabotage::ReuseEarly && state.handles == 0 {
            // The space is available from here on, though the record may never arrive.
            names.by_name.remove(name);
            state.unlinked = Some(shared.commit(unflushed, Flushed::only_claimed()));
            shared.release(&mut names, inode.number, &mut state);
            return Ok(());
        }
        let durable = shared.commit_after_flush(unflushed)?;
        names.by_name.remove(name);
        state.unlinked = Some(durable);
        if state.handles == 0 {
            shared.release(&mut names, inode.number, &mut state);
        }
        Ok(())
    }

    /// Gives a file another name, replacing a file of that name when `replace`: one write and one
    /// flush, and at every moment the new name stands for the old file or the new one.
    pub fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<()> {
        let shared = &self.shared;
        check_name(to)?;
        let mut names = shared.lock_names();
        let inode =
            names.by_name.get(from).cloned().ok_or_else(|| Error::NotFound(display(from)))?;
        let victim = names.by_name.get(to).cloned();
        if victim.is_some() && !replace {
            return Err(Error::Exists(display(to)));
        }
        shared.medium.writable()?;
        if from == to {
            return Ok(());
        }
        let (_turn, mut state) = inode.lock_to_record();
        let mut locked_victim = victim.as_ref().map(|victim| victim.lock_to_record());
        if let Some(victim) = &victim {
            shared.end_older_burial(inode.number, victim.number)?;
            // What the victim buried would come back if its record, which nobody needs any more, decayed.
            shared.end_older_burial(victim.number, inode.number)?;
        }
        // Unsynced bytes go first: the record could otherwise vouch for what is not there, and a
        // program that replaces a file this way expects the new content under the name.
        let vouched = if state.lengths.is_dirty() {
            state.lengths.vouch_by_flush(shared.medium.flush()?)
        } else {
            shared.vouch(&state)?
        };
        let mut record = state.to_record(shared.geometry.unit_bytes(), &vouched);
        record.name = to.to_vec();
        record.attributes.changed_ns = now_ns();
        let buried = victim.as_ref().map(|victim| victim.number);
        let buried = buried.filter(|_| shared.sabotage() != Sabotage::ForgetBurial);
        let durable = shared.record(inode.number, Some(record.clone()), buried)?;
        state.name = record.name;
        state.attributes.changed_ns = record.attributes.changed_ns;
        note_durable(&mut state, &vouched);
        names.by_name.remove(from);
        names.by_name.insert(to.to_vec(), inode.clone());
        if let (Some(victim), Some((_, victim_state))) = (&victim, &mut locked_victim) {
            names.buried.insert(victim.number);
            victim_state.unlinked = Some(durable);
            if victim_state.handles == 0 {
                shared.release(&mut names, victim.number, victim_state);
            }
        }
        Ok(())
    }

    /// Makes everything written so far durable: all files, times included.
    pub fn sync(&self) -> Result<()> {
        self.shared.sync_all(false)
    }

    /// Syncs everything, settles all tails and refuses further writes. Files still open can be
    /// read until they are dropped.
    pub fn unmount(self) -> Result<()> {
        self.shared.finish()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Whoever wants to know of errors calls `unmount`.
        let _ = self.shared.finish();
    }
}
