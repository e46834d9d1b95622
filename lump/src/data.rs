//! The extents of puts on their way to the device: their memory, and where they go.

use std::ops::Deref;
use std::sync::Arc;

use block::AlignedBuffer;

/// Memory of a put, or of several that were gathered, which readers share.
pub(crate) enum Memory {
    Lent(AlignedBuffer),
    Shared(Arc<AlignedBuffer>),
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Memory::Lent(memory) => memory,
            Memory::Shared(memory) => memory,
        }
    }
}

/// Part of a memory, and where it goes on the device, in bytes.
pub(crate) struct Piece<M = Memory> {
    pub memory: M,
    pub at: usize,
    pub length: usize,
    pub offset: u64,
}

/// The extent of a put, or those of several, in memory, and where they go.
pub(crate) struct Data {
    pub first: Piece,
    pub others: Vec<Piece>,
}

impl Data {
    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub fn length(&self) -> usize {
        self.pieces().map(|piece| piece.length).sum()
    }

    pub fn writes(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.pieces().map(|piece| (&piece.memory[piece.at..][..piece.length], piece.offset))
    }

    /// The same, cut and grouped so that each group has so many bytes, and the last one what is left.
    pub fn steps(&self, bytes: usize) -> Vec<Vec<(&[u8], u64)>> {
        let (mut steps, mut room) = (Vec::<Vec<_>>::new(), 0);
        for (mut rest, mut offset) in self.writes() {
            while !rest.is_empty() {
                if room == 0 {
                    steps.push(Vec::new());
                    room = bytes;
                }
                let (part, behind) = rest.split_at(rest.len().min(room));
                steps.last_mut().expect("there is room in it").push((part, offset));
                room -= part.len();
                (rest, offset) = (behind, offset + part.len() as u64);
            }
        }
        steps
    }
}
