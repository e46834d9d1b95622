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
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub at: usize,
    pub length: usize,
    pub offset: u64,
}

/// The extent of a put, or those of several, in memory, and where they go.
pub(crate) struct Data {
    pub memory: Memory,
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
        self.pieces().map(|piece| (&self.memory[piece.at..][..piece.length], piece.offset))
    }
}
