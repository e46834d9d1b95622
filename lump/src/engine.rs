//! What the clients of a store and its background work share, and that work: checkpoints.
//!
//! Knows the order in which a checkpoint becomes durable, not the bytes of one. Invariant: after a
//! refusal nothing is written any more.

use std::sync::Arc;
use std::time::Instant;

use crate::checkpoint;
use crate::commit::Queue;
use crate::error::Result;
use crate::gather::Gather;
use crate::geometry::Geometry;
use crate::index::Index;
use crate::layout::{BLOCK_BYTES, Root};
use crate::medium::Medium;
use crate::metrics::{Counters, count};
use crate::sabotage::Sabotage;
use crate::space::{Pins, Space};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::window::Window;

/// An open store without its public face.
pub(crate) struct Engine {
    pub medium: Medium,
    pub geometry: Geometry,
    pub sabotage: Sabotage,
    pub index: Index,
    pub space: Mutex<Space>,
    pub pins: Pins,
    pub queue: Mutex<Queue>,
    pub window: Window,
    /// Whether puts may flush for themselves.
    pub has_window: bool,
    /// Number of the next put of this opening.
    pub sequence: AtomicU64,
    /// Held while the index changes.
    pub applying: Mutex<()>,
    /// The newest durable root; held while a checkpoint is made.
    pub root: Mutex<Root>,
    /// First journal block that the newest durable root needs.
    pub journal_start: AtomicU64,
    /// Objects, and puts under way.
    pub objects: AtomicU64,
    pub background: Background,
    /// Changes in memory.
    pub gather: Gather,
    /// Held while free space is not in the list of it, since the device is told about it.
    pub trimming: Mutex<()>,
    pub counters: Arc<Counters>,
}

/// What the background thread shall do.
#[derive(Default)]
pub(crate) struct Background {
    wish: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    Checkpoint,
    End,
}

impl Background {
    /// Asks for a checkpoint.
    pub fn wake(&self) {
        let mut wish = lock(&self.wish);
        if *wish == Wish::Nothing {
            *wish = Wish::Checkpoint;
            self.changed.notify_all();
        }
    }

    /// Ends the thread, after the work in hand.
    pub fn end(&self) {
        *lock(&self.wish) = Wish::End;
        self.changed.notify_all();
    }

    /// Waits for a wish; returns whether to go on.
    fn wait(&self) -> bool {
        let mut wish = lock(&self.wish);
        while *wish == Wish::Nothing {
            wish = wait(&self.changed, wish);
        }
        *wish == Wish::Checkpoint
    }

    fn done(&self) {
        let mut wish = lock(&self.wish);
        if *wish == Wish::Checkpoint {
            *wish = Wish::Nothing;
        }
    }
}

impl Engine {
    /// The work of the background thread.
    pub fn work(&self) {
        while self.background.wait() {
            if self.is_checkpoint_due() {
                // A failure ends all writing, and the next change tells of it.
                let _ = self.checkpoint(lock(&self.root));
            }
            self.background.done();
        }
    }

    /// Whether half of the journal is used.
    pub fn is_checkpoint_due(&self) -> bool {
        let next = lock(&self.queue).applied.next;
        // A checkpoint may have come in between, with a later start.
        let used = next.saturating_sub(self.journal_start.load(Ordering::Relaxed));
        used > self.geometry.journal_blocks / 2 && self.medium.refusal().is_none()
    }

    /// Adds the changes since the newest checkpoint to it, or writes the index as it is, while it
    /// changes; and a root behind it. Every change that is made meanwhile is in the journal after
    /// the place that the root names, and applied again gives the same: so it does not matter which
    /// of them the checkpoint shows.
    ///
    /// A failure ends the permission to write, before the root is unlocked: from then on the medium may
    /// hold the new root or the one before, and whoever waited for the lock must not write for either.
    pub fn checkpoint(&self, mut root: MutexGuard<'_, Root>) -> Result<()> {
        let permit = self.medium.permit_with(&root)?;
        let from = {
            let queue = lock(&self.queue);
            // An opening must find what announces the window.
            queue
                .announced
                .filter(|_| self.sabotage != Sabotage::DropWindow)
                .unwrap_or(queue.applied)
        };
        if from.next == root.journal_next.get() {
            return Ok(());
        }
        let start = Instant::now();
        let mut new = Root { generation: (root.generation.get() + 1).into(), ..*root };
        let added = checkpoint::add(permit, &self.medium, &self.geometry, &root, from)?;
        let blocks = match added {
            Some((blocks, checksum)) => {
                new.additions += 1;
                new.added_blocks = blocks.into();
                new.added_checksum = checksum.into();
                blocks - root.added_blocks.get()
            }
            None => {
                let number = checkpoint::number(&new);
                let write = || checkpoint::write(permit, &self.geometry, number, &self.index);
                let (blocks, objects) = match write()? {
                    Some(written) => written,
                    None => {
                        let _standing_still = lock(&self.applying);
                        write()?.expect("as many objects as the store may hold fit an area")
                    }
                };
                new.checkpoint_blocks = blocks.into();
                new.objects = objects.into();
                (new.added_blocks, new.added_checksum) = (0.into(), 0.into());
                blocks
            }
        };
        // What the checkpoint shows was written before; the flush makes all of it durable.
        let through = lock(&self.queue).applied.next - 1;
        if self.sabotage != Sabotage::RootEarly {
            permit.flush()?;
        }
        new.journal_next = from.next.into();
        new.journal_previous = from.previous.into();
        new.epoch = from.epoch.into();
        new.fenced = through.into();
        checkpoint::write_root(permit, &self.geometry, &new)?;
        if self.sabotage != Sabotage::JournalEarly {
            permit.flush()?;
        }
        self.journal_start.store(from.next, Ordering::Relaxed);
        *root = new;
        count(&self.counters.checkpoints, 1);
        count(&self.counters.checkpoint_bytes, blocks * BLOCK_BYTES);
        self.counters.checkpoint_seconds.record(start.elapsed());
        Ok(())
    }

    /// Tells the device of free pieces of at least so many units, one after the other; returns how
    /// many units they had. Free is only what no journal that counts can name any more.
    pub fn trim(&self, units_min: u64) -> Result<u64> {
        let permit = self.medium.permit()?;
        let (mut from, mut total) = (0, 0);
        loop {
            let _held = lock(&self.trimming);
            let Some((start, units)) = lock(&self.space).take_from(from, units_min) else {
                return Ok(total);
            };
            let (offset, length) =
                (self.geometry.unit_offset(start), units * self.geometry.unit_bytes);
            let done = permit.discard(offset, length);
            lock(&self.space).free(start, units);
            done?;
            (from, total) = (start + units, total + units);
        }
    }
}
