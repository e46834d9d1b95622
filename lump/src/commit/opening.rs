//! What an opening writes to the journal before anything else does.

use super::*;

impl Engine {
    /// Makes an opening durable: what was read from the journal, and that what was left out of it
    /// never counts again. Only then data may be written. `found` are the puts that the journal does
    /// not know of.
    pub(crate) fn begin_epoch(&self, found: &[Record], epoch: u64) -> Result<()> {
        let permit = self.medium.permit()?;
        let mut writer = lock(&self.queue).writer.take().expect("nobody leads yet");
        if self.sabotage != Sabotage::LeaveRest {
            self.erase(permit, &writer, found)?;
        }
        permit.flush()?;
        if !found.is_empty() {
            self.record(permit, &mut writer, found)?;
        }
        writer.position.epoch = epoch;
        writer.announced = None;
        let mut queue = lock(&self.queue);
        (queue.applied, queue.announced) = (writer.position, None);
        queue.writer = Some(writer);
        drop(queue);
        if self.is_checkpoint_due() {
            self.checkpoint(lock(&self.root))?;
        }
        // The block of the fence takes the place of the first that was left out.
        self.submit(Act::Fence, Durability::Durable).map(drop)
    }

    /// Makes no blocks of the places where an opening writes its own. What did not count there would
    /// otherwise count again where blocks of the opening arrive in part, and make it whole, or
    /// where they are the same as those before it were. No sector of a block is like these.
    fn erase(&self, permit: Permit<'_>, writer: &Writer, found: &[Record]) -> Result<()> {
        let first = writer.position.next;
        // Beyond lie blocks that count, with smaller numbers than those looked for.
        let room =
            self.journal_start.load(Ordering::Relaxed) + self.geometry.journal_blocks - first;
        let blocks = (found.len().div_ceil(RECORDS_PER_BLOCK) as u64 + 1).min(room);
        let mut bytes = AlignedBuffer::zeroed((blocks * BLOCK_BYTES) as usize);
        bytes.fill(0xff);
        self.write_journal(permit, first, &journal::writes(&self.geometry, first, &bytes))
    }

    /// Tells the journal of puts that an opening found, in the epoch in which they were made. Until
    /// the blocks are durable, and the fence after them, the next opening finds the rest again.
    fn record(&self, permit: Permit<'_>, writer: &mut Writer, found: &[Record]) -> Result<()> {
        let start = writer.position;
        let end = start.next + found.len().div_ceil(RECORDS_PER_BLOCK) as u64;
        let is_full =
            || end - self.journal_start.load(Ordering::Relaxed) > self.geometry.journal_blocks;
        if is_full() {
            self.checkpoint(lock(&self.root))?;
        }
        if is_full() {
            return Err(Error::Damaged("the journal: it announces too long a window".into()));
        }
        let Writer { position, durable, blocks, .. } = writer;
        journal::encode(&self.geometry, JOURNAL_MAGIC, position, *durable, found, blocks);
        self.write_journal(permit, start.next, &self.journal_writes(writer, start.next))?;
        self.flush(permit, writer)
    }
}
