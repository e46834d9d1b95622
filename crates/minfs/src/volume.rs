//! A mounted volume: names, records and space, and the order in which they reach the medium.
//!
//! The rules that make it safe without a log:
//! - a record is written to the slot that does not hold the durable record of its inode, so one
//!   whole record survives any write;
//! - an operation returns only after a flush that covers its record;
//! - space and inodes that a record gave up are handed out again only after that flush;
//! - a record that moves the valid length names the checksum of the bytes it adds, or is written
//!   only after a flush that covers them.
//!
//! Locks are taken in the order names, inode, slot or allocator. After an error of the device on
//! a write or a flush nothing more is written: what is on the medium is then unknown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use block::BlockDevice;

use crate::allocator::Allocator;
use crate::error::{Error, Result};
use crate::file::File;
use crate::geometry::VolumeGeometry;
use crate::inode::{Inode, InodeState};
use crate::layout::{BLOCK_BYTES, EXTENTS_MAX, NAME_BYTES_MAX, TAIL_BYTES_MAX};
use crate::record::{
    Attributes, Burial, Extent, FileRecord, Record, Tail, is_valid_name, unit_sum,
};
use crate::survey::{Finding, Severity, Survey};

/// When the tails of all files together exceed this many bytes they are settled, which bounds
/// what a mount after a crash has to read.
const TAILS_BYTES_MAX: u64 = 64 << 20;
/// A growing file holds at least and at most this much space ahead of its end, in bytes.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// Space is held ahead only while the volume has this many times as much free.
const AHEAD_FREE_FACTOR: u64 = 16;
const NOT_POISONED: &str = "no thread panics while it holds a lock";

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Write nothing.
    pub read_only: bool,
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

/// Which slot of an inode holds the durable record.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    durable_slot: Option<usize>,
    durable_generation: u64,
    burial: Option<Burial>,
}

/// A record that was written and that the next flush makes durable.
#[must_use]
pub(crate) struct Unflushed {
    inode: u32,
    slot: usize,
    generation: u64,
    burial: Option<Burial>,
}

#[derive(Debug, Default)]
struct Names {
    by_name: BTreeMap<Vec<u8>, Arc<Inode>>,
    free: BTreeSet<u32>,
    /// Inodes that count as free only because another record buries them: reused first, since
    /// their next record ends the burial at no cost.
    buried: BTreeSet<u32>,
}

pub(crate) struct Shared {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: VolumeGeometry,
    /// Transfers are multiples of this many bytes.
    pub(crate) granule: u64,
    options: MountOptions,
    names: Mutex<Names>,
    slots: Vec<Mutex<SlotState>>,
    allocator: Mutex<Allocator>,
    next_generation: AtomicU64,
    is_read_only: AtomicBool,
    read_only_reason: Mutex<String>,
    /// Files with a tail, oldest first, with its length.
    tails: Mutex<VecDeque<(Arc<Inode>, u64)>>,
    findings: Vec<Finding>,
    is_unmounted: AtomicBool,
}

/// A mounted volume. Dropping it unmounts it; [`Volume::unmount`] also tells of errors.
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) fn now_ns() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(error) => -i64::try_from(error.duration().as_nanos()).unwrap_or(i64::MAX),
    }
}

pub(crate) fn display(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong(name.len()));
    }
    if is_valid_name(name) { Ok(()) } else { Err(Error::BadName(display(name))) }
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
        let reason = if survey.worst() == Some(Severity::Error) {
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
        let newest = survey.inodes.iter().map(|inode| inode.newest_generation).max().unwrap_or(0);
        let mut names = Names::default();
        let mut slots = Vec::with_capacity(survey.inodes.len());
        let mut tails = VecDeque::new();
        let mut voids = Vec::new();
        for (number, surveyed) in (0..).zip(&survey.inodes) {
            let mut slot = SlotState::default();
            if let Some((durable_slot, record)) = &surveyed.record {
                slot.durable_slot = Some(*durable_slot);
                slot.durable_generation = record.generation;
                slot.burial = record.burial;
                // A new record would bring a buried file back to life; its void one is as dead as
                // the rest of it.
                if surveyed.has_void_record && !surveyed.is_buried {
                    voids.push((number, record.file.clone()));
                }
            }
            slots.push(Mutex::new(slot));
            let Some(file) = surveyed.file() else {
                if surveyed.is_buried {
                    names.buried.insert(number);
                }
                if !surveyed.is_corrupt {
                    names.free.insert(number);
                }
                continue;
            };
            let birth = surveyed.record.as_ref().map_or(0, |(_, record)| record.generation);
            let mut state = InodeState::from_record(file, birth);
            state.is_damaged = surveyed.is_corrupt;
            // What lies between size and valid length may be bytes of an unsynced write before a
            // crash, so only what is below the size is trusted; `live` sees to that.
            let tail_bytes = state.tail_start.map(|start| state.valid - start);
            let inode = Arc::new(Inode {
                number,
                state: RwLock::new(state),
                written_ns: AtomicI64::new(0),
            });
            if let Some(tail_bytes) = tail_bytes {
                tails.push_back((inode.clone(), tail_bytes));
            }
            // Of two files of one name the survey listed the conflict; the younger one shows.
            let is_younger = names
                .by_name
                .get(&file.name)
                .is_none_or(|other| other.state.read().expect(NOT_POISONED).birth < birth);
            if is_younger {
                names.by_name.insert(file.name.clone(), inode);
            }
        }
        let allocator = Allocator::new(survey.geometry.unit_count(), &survey.used);
        let shared = Arc::new(Shared {
            device,
            granule,
            options: options.clone(),
            names: Mutex::new(names),
            slots,
            allocator: Mutex::new(allocator),
            next_generation: AtomicU64::new(newest + 1),
            is_read_only: AtomicBool::new(!reason.is_empty()),
            read_only_reason: Mutex::new(reason.to_string()),
            tails: Mutex::new(tails),
            findings: survey.findings,
            geometry: survey.geometry,
            is_unmounted: AtomicBool::new(false),
        });
        if reason.is_empty() {
            shared.make_durable(voids)?;
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
        self.shared.writable().err().map(|_| self.shared.reason())
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
        shared.writable()?;
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
        let unflushed = shared.write_record(number, Some(file.clone()), None)?;
        let birth = unflushed.generation;
        shared.flush()?;
        shared.commit(unflushed);
        names.free.remove(&number);
        names.buried.remove(&number);
        let inode = Arc::new(Inode {
            number,
            state: RwLock::new(InodeState::from_record(&file, birth)),
            written_ns: AtomicI64::new(0),
        });
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
        shared.writable()?;
        let mut state = inode.state.write().expect(NOT_POISONED);
        let unflushed = shared.write_record(inode.number, None, None)?;
        if shared.options.sabotage == Sabotage::ReuseEarly && state.handles == 0 {
            // The space is available from here on, though the record may never arrive.
            names.by_name.remove(name);
            state.is_unlinked = true;
            shared.release(&mut names, inode.number, &mut state);
            shared.commit(unflushed);
            return Ok(());
        }
        shared.flush()?;
        shared.commit(unflushed);
        names.by_name.remove(name);
        state.is_unlinked = true;
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
        shared.writable()?;
        if from == to {
            return Ok(());
        }
        let mut state = inode.state.write().expect(NOT_POISONED);
        let mut victim_state =
            victim.as_ref().map(|victim| victim.state.write().expect(NOT_POISONED));
        if let Some(victim) = &victim {
            shared.end_older_burial(inode.number, victim.number)?;
        }
        // Unsynced bytes go first: the record could otherwise vouch for what is not there, and a
        // program that replaces a file this way expects the new content under the name.
        if state.is_dirty {
            shared.flush()?;
        }
        let mut record = state.to_record(shared.geometry.unit_bytes(), None);
        record.name = to.to_vec();
        record.attributes.changed_ns = now_ns();
        let buried = victim.as_ref().map(|victim| victim.number);
        let buried = buried.filter(|_| shared.options.sabotage != Sabotage::ForgetBurial);
        let unflushed = shared.write_record(inode.number, Some(record.clone()), buried)?;
        shared.flush()?;
        shared.commit(unflushed);
        state.name = record.name;
        state.attributes.changed_ns = record.attributes.changed_ns;
        mark_recorded(&mut state, None);
        names.by_name.remove(from);
        names.by_name.insert(to.to_vec(), inode.clone());
        if let (Some(victim), Some(victim_state)) = (&victim, &mut victim_state) {
            names.buried.insert(victim.number);
            victim_state.is_unlinked = true;
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

/// Notes that the durable record now states what the memory does.
fn mark_recorded(state: &mut InodeState, tail_start: Option<u64>) {
    state.recorded_valid = state.valid;
    state.pending_checksum = Some(0);
    state.tail_start = tail_start;
    state.is_dirty = false;
    state.has_new_times = false;
}

impl Shared {
    fn lock_names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().expect(NOT_POISONED)
    }

    fn lock_allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().expect(NOT_POISONED)
    }

    fn lock_slot(&self, inode: u32) -> MutexGuard<'_, SlotState> {
        self.slots[inode as usize].lock().expect(NOT_POISONED)
    }

    fn reason(&self) -> String {
        self.read_only_reason.lock().expect(NOT_POISONED).clone()
    }

    pub(crate) fn sabotage(&self) -> Sabotage {
        self.options.sabotage
    }

    /// Refuses when nothing may be written.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Acquire) {
            return Err(Error::ReadOnly(self.reason()));
        }
        Ok(())
    }

    /// Turns the volume read-only after `error`, and returns it.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let mut reason = self.read_only_reason.lock().expect(NOT_POISONED);
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            *reason = format!("it stopped writing because: {error}");
        }
        error
    }

    /// Makes all completed writes durable; after a failure nothing is known of them.
    pub(crate) fn flush(&self) -> Result<()> {
        if self.options.sabotage == Sabotage::SkipFlush {
            return Ok(());
        }
        self.device.flush().map_err(|source| {
            self.fail(Error::Device { action: "flush the device".into(), source })
        })
    }

    fn find(&self, name: &[u8]) -> Result<Arc<Inode>> {
        self.lock_names().by_name.get(name).cloned().ok_or_else(|| Error::NotFound(display(name)))
    }

    pub(crate) fn facts(&self, inode: &Inode) -> FileFacts {
        let state = inode.state.read().expect(NOT_POISONED);
        let unit_bytes = self.geometry.unit_bytes();
        let extents = state.first_extents(state.needed_units(unit_bytes));
        let mut attributes = state.attributes.clone();
        let written_ns = inode.written_ns.load(Ordering::Relaxed);
        if written_ns != 0 {
            attributes.modified_ns = written_ns;
            attributes.changed_ns = attributes.changed_ns.max(written_ns);
        }
        FileFacts {
            name: state.name.clone(),
            inode: inode.number,
            birth: state.birth,
            size: state.size,
            valid: state.valid,
            allocated_bytes: unit_sum(&extents) * unit_bytes,
            extent_count: extents.len(),
            attributes,
            is_unlinked: state.is_unlinked,
        }
    }

    /// At a writing mount: what was read becomes durable, and records whose data did not arrive
    /// are replaced, before any space is handed out. Without the flush a killed process could
    /// leave a record in the device's cache that frees space which the next mount reuses.
    fn make_durable(&self, voids: Vec<(u32, Option<FileRecord>)>) -> Result<()> {
        self.flush()?;
        if voids.is_empty() {
            return Ok(());
        }
        let mut unflushed = Vec::new();
        for (number, file) in voids {
            unflushed.push(self.write_record(number, file, None)?);
        }
        self.flush()?;
        unflushed.into_iter().for_each(|unflushed| self.commit(unflushed));
        Ok(())
    }

    /// Writes a record of `inode` to the slot that does not hold its durable record. The next
    /// flush makes it durable; then it must be committed.
    pub(crate) fn write_record(
        &self,
        inode: u32,
        file: Option<FileRecord>,
        buries: Option<u32>,
    ) -> Result<Unflushed> {
        self.writable()?;
        if let Some(file) = &file
            && file.extents.len() > EXTENTS_MAX
        {
            return Err(Error::TooManyExtents { name: display(&file.name), limit: EXTENTS_MAX });
        }
        let state = *self.lock_slot(inode);
        let generation = self.next_generation.fetch_add(1, Ordering::SeqCst);
        let burial = match buries {
            Some(victim) => Some(Burial { inode: victim, generation: generation - 1 }),
            // An older burial is carried on until the buried inode has a record of its own.
            None => state.burial.filter(|burial| {
                self.lock_slot(burial.inode).durable_generation <= burial.generation
            }),
        };
        let slot = match state.durable_slot {
            Some(durable) if self.options.sabotage == Sabotage::SameSlot => durable,
            Some(durable) => 1 - durable,
            None => 0,
        };
        let record = Record {
            inode,
            generation,
            previous_generation: state.durable_generation,
            burial,
            file,
        };
        let offset = self.geometry.slot_offset(inode, slot);
        self.device.write_at(&record.encode(&self.geometry, slot), offset).map_err(|source| {
            let action = format!("write the record of inode {inode} at offset {offset}");
            self.fail(Error::Device { action, source })
        })?;
        Ok(Unflushed { inode, slot, generation, burial })
    }

    /// Notes that a record is durable.
    pub(crate) fn commit(&self, unflushed: Unflushed) {
        let mut state = self.lock_slot(unflushed.inode);
        state.durable_slot = Some(unflushed.slot);
        state.durable_generation = unflushed.generation;
        state.burial = unflushed.burial;
    }

    /// A record buries one inode at most. Before `burier` buries `next`, an inode that it buries
    /// already gets a record of its own that says so.
    fn end_older_burial(&self, burier: u32, next: u32) -> Result<()> {
        let Some(burial) = self.lock_slot(burier).burial else { return Ok(()) };
        let is_over = self.lock_slot(burial.inode).durable_generation > burial.generation;
        if is_over || burial.inode == next {
            return Ok(());
        }
        let unflushed = self.write_record(burial.inode, None, None)?;
        self.flush()?;
        self.commit(unflushed);
        Ok(())
    }

    /// Gives the space and the number of a file without name and handles back.
    fn release(&self, names: &mut Names, number: u32, state: &mut InodeState) {
        let extents = std::mem::take(&mut state.extents);
        self.free_units(&extents);
        names.free.insert(number);
    }

    /// Gives space back that no durable record claims any more.
    pub(crate) fn free_units(&self, extents: &[Extent]) {
        for extent in extents {
            if self.options.discard && self.writable().is_ok() {
                let length = u64::from(extent.count) * self.geometry.unit_bytes();
                // A discard is a hint: a device that fails it has lost nothing.
                let _ = self.device.discard(self.geometry.unit_offset(extent.start), length);
            }
            self.lock_allocator().free(*extent);
        }
    }

    /// Called by the last owner of each handle.
    pub(crate) fn close(&self, inode: &Arc<Inode>) {
        let mut names = self.lock_names();
        let mut state = inode.state.write().expect(NOT_POISONED);
        state.handles -= 1;
        if state.handles > 0 {
            return;
        }
        if state.is_unlinked {
            self.release(&mut names, inode.number, &mut state);
        } else {
            self.give_back_ahead(&mut state);
        }
    }

    /// Gives back the space that a file holds only to grow into.
    pub(crate) fn give_back_ahead(&self, state: &mut InodeState) {
        let needed = state.needed_units(self.geometry.unit_bytes());
        let surplus = state.extents_behind(needed);
        if surplus.is_empty() {
            return;
        }
        state.extents = state.first_extents(needed);
        for extent in surplus {
            self.lock_allocator().free(extent);
        }
    }

    /// Lets the file hold space for `end` bytes, or changes nothing.
    pub(crate) fn grow(&self, state: &mut InodeState, end: u64, ahead: bool) -> Result<()> {
        if end > i64::MAX as u64 {
            return Err(Error::TooLarge(end));
        }
        let unit_bytes = self.geometry.unit_bytes();
        let held = unit_sum(&state.extents);
        let wanted = end.div_ceil(unit_bytes);
        if wanted <= held {
            return Ok(());
        }
        let missing = wanted - held;
        let behind = state.extents.last().map(|extent| extent.end());
        let mut allocated = None;
        if ahead {
            let ahead_units =
                (held * unit_bytes).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX) / unit_bytes;
            let generous = missing.max(ahead_units);
            let mut allocator = self.lock_allocator();
            if generous.saturating_mul(AHEAD_FREE_FACTOR) <= allocator.free_units() {
                allocated = allocator.allocate(generous, behind);
            }
        }
        if allocated.is_none() {
            allocated = self.lock_allocator().allocate(missing, behind);
        }
        if allocated.is_none() {
            self.reclaim_ahead();
            allocated = self.lock_allocator().allocate(missing, behind);
        }
        let Some(added) = allocated else {
            return Err(Error::NoSpace {
                wanted_bytes: missing * unit_bytes,
                free_bytes: self.lock_allocator().free_units() * unit_bytes,
            });
        };
        let before = state.extents.clone();
        state.append_extents(&added);
        if state.extents.len() > EXTENTS_MAX {
            state.extents = before;
            for extent in added {
                self.lock_allocator().free(extent);
            }
            return Err(Error::TooManyExtents { name: display(&state.name), limit: EXTENTS_MAX });
        }
        Ok(())
    }

    /// Takes back what other files hold to grow into, where they are not busy.
    fn reclaim_ahead(&self) {
        // The names may be locked by an operation that waits for the caller's inode.
        let Ok(names) = self.names.try_lock() else { return };
        for inode in names.by_name.values() {
            if let Ok(mut state) = inode.state.try_write() {
                self.give_back_ahead(&mut state);
            }
        }
    }

    /// Makes the state of a file durable: one record, and one flush unless new bytes were written
    /// out of order or are too many for a checksum, when a flush goes before.
    pub(crate) fn store(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        let start = state.recorded_valid;
        let pending_bytes = state.valid - start;
        let has_pending = pending_bytes > 0;
        let checksum = state.pending_checksum.filter(|_| pending_bytes <= TAIL_BYTES_MAX);
        let skip = self.options.sabotage == Sabotage::SkipTail;
        let tail = match checksum {
            Some(checksum) if has_pending && !skip => Some(Tail { start, checksum }),
            _ => None,
        };
        if has_pending && tail.is_none() && !skip {
            self.flush()?;
        }
        self.take_times(inode, state);
        let record = state.to_record(self.geometry.unit_bytes(), tail);
        let unflushed = self.write_record(inode.number, Some(record), None)?;
        self.flush()?;
        self.commit(unflushed);
        mark_recorded(state, tail.map(|tail| tail.start));
        if tail.is_some() {
            let mut tails = self.tails.lock().expect(NOT_POISONED);
            tails.retain(|(other, _)| other.number != inode.number);
            tails.push_back((inode.clone(), pending_bytes));
        }
        Ok(())
    }

    /// Makes the state of a file durable and leaves no tail.
    pub(crate) fn store_settled(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        if state.valid > state.recorded_valid {
            self.flush()?;
        }
        self.take_times(inode, state);
        let record = state.to_record(self.geometry.unit_bytes(), None);
        let unflushed = self.write_record(inode.number, Some(record), None)?;
        self.flush()?;
        self.commit(unflushed);
        mark_recorded(state, None);
        Ok(())
    }

    fn take_times(&self, inode: &Inode, state: &mut InodeState) {
        let written_ns = inode.written_ns.swap(0, Ordering::Relaxed);
        if written_ns != 0 {
            state.attributes.modified_ns = written_ns;
            state.attributes.changed_ns = state.attributes.changed_ns.max(written_ns);
        }
    }

    /// Settles all tails with one flush when they have become too many.
    pub(crate) fn bound_tails(&self) -> Result<()> {
        let total: u64 = {
            let tails = self.tails.lock().expect(NOT_POISONED);
            tails.iter().map(|(_, bytes)| bytes).sum()
        };
        if total > TAILS_BYTES_MAX { self.settle_tails() } else { Ok(()) }
    }

    /// Writes a record without tail for every file that has one and is not busy; one flush.
    fn settle_tails(&self) -> Result<()> {
        let candidates: Vec<_> = {
            let mut tails = self.tails.lock().expect(NOT_POISONED);
            tails.drain(..).collect()
        };
        let mut settled: Vec<(Unflushed, RwLockWriteGuard<'_, InodeState>)> = Vec::new();
        let mut busy = Vec::new();
        for (inode, bytes) in &candidates {
            let Ok(state) = inode.state.try_write() else {
                busy.push((inode.clone(), *bytes));
                continue;
            };
            if state.tail_start.is_none() || state.is_unlinked {
                continue;
            }
            if state.valid > state.recorded_valid {
                // Its next sync writes a record anyway.
                busy.push((inode.clone(), *bytes));
                continue;
            }
            let record = state.to_record(self.geometry.unit_bytes(), None);
            settled.push((self.write_record(inode.number, Some(record), None)?, state));
        }
        self.tails.lock().expect(NOT_POISONED).extend(busy);
        if settled.is_empty() {
            return Ok(());
        }
        self.flush()?;
        for (unflushed, mut state) in settled {
            self.commit(unflushed);
            mark_recorded(&mut state, None);
        }
        Ok(())
    }

    /// Stores every file that changed, then flushes.
    fn sync_all(&self, with_times: bool) -> Result<()> {
        let inodes: Vec<_> = self.lock_names().by_name.values().cloned().collect();
        for inode in &inodes {
            let mut state = inode.state.write().expect(NOT_POISONED);
            let has_times = state.has_new_times || inode.written_ns.load(Ordering::Relaxed) != 0;
            if state.is_unlinked || state.is_damaged {
                continue;
            }
            if state.is_dirty || (with_times && has_times) {
                self.writable()?;
                self.store(inode, &mut state)?;
            }
        }
        if self.is_read_only.load(Ordering::Acquire) { Ok(()) } else { self.flush() }
    }

    /// The end of a mount.
    fn finish(&self) -> Result<()> {
        if self.is_unmounted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if self.is_read_only.load(Ordering::Acquire) {
            return Ok(());
        }
        let outcome = self.sync_all(true).and_then(|()| self.settle_tails());
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            *self.read_only_reason.lock().expect(NOT_POISONED) = "it was unmounted".into();
        }
        outcome
    }
}
