//! Pieces of huge pages, for memory that does not fill some.
//!
//! Each page has pieces of one size. Knows nothing of what they are for. Invariant: nobody has a
//! piece of a page that goes back to the heap.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

/// Size of a huge page.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Less has too few pages of 4 KiB for its transfers to be much slower.
const PIECE_BYTES_MIN: usize = 32 << 10;
/// Bytes of a page of each kind, and pieces in it: a piece has room for a power of two and a page of
/// 4 KiB. A page of larger pieces is several huge ones on end: a value of 1 MiB and its trailer would touch
/// two MiB of a huge page of its own, and in a virtual machine new memory is slow.
const KINDS: [(usize, usize); 8] = {
    const SEVERAL: usize = 8 * HUGE_PAGE_BYTES;
    const ONE: usize = HUGE_PAGE_BYTES;
    [(ONE, 60), (ONE, 30), (ONE, 15), (ONE, 7), (ONE, 3), (SEVERAL, 15), (SEVERAL, 7), (SEVERAL, 3)]
};

fn layout(kind: usize) -> Layout {
    let bytes = KINDS[kind].0;
    Layout::from_size_align(bytes, bytes).expect("the alignment is a power of two")
}

struct Page {
    start: NonNull<u8>,
    layout: Layout,
    /// A bit for each piece that somebody has.
    taken: u64,
}

// SAFETY: the page owns its memory, and may free it on any thread.
unsafe impl Send for Page {}

impl Page {
    fn new(kind: usize) -> Self {
        let layout = layout(kind);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: the allocation covers the whole range and is new.
        unsafe { ask_for_huge_pages(start, layout.size()) };
        Self { start, layout, taken: 0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        assert_eq!(self.taken, 0, "nobody has a piece of it");
        // SAFETY: the pointer came from `alloc` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The pages of each kind.
static PAGES: Mutex<[Vec<Page>; KINDS.len()]> = Mutex::new([const { Vec::new() }; KINDS.len()]);

fn pages() -> MutexGuard<'static, [Vec<Page>; KINDS.len()]> {
    PAGES.lock().expect("no thread panics while it holds the pages")
}

fn piece_bytes(kind: usize) -> usize {
    let (bytes, count) = KINDS[kind];
    bytes / count / 4096 * 4096
}

/// The kind with the smallest pieces that are large enough, if `length` suits any.
fn kind_of(length: usize) -> Option<usize> {
    (0..KINDS.len()).find(|kind| (PIECE_BYTES_MIN..=piece_bytes(*kind)).contains(&length))
}

/// At least `length` bytes at a multiple of 4096, of which nothing is known; `None` for a length
/// that has no pieces.
pub(super) fn take(length: usize) -> Option<NonNull<u8>> {
    let kind = kind_of(length)?;
    let all = (1 << KINDS[kind].1) - 1;
    let pages = &mut pages()[kind];
    let place = pages.iter().position(|page| page.taken != all).unwrap_or_else(|| {
        pages.push(Page::new(kind));
        pages.len() - 1
    });
    let page = &mut pages[place];
    let piece = page.taken.trailing_ones() as usize;
    page.taken |= 1 << piece;
    // SAFETY: all pieces lie within the page.
    Some(unsafe { page.start.add(piece * piece_bytes(kind)) })
}

/// Gives a piece back; returns whether `length` has any. One unused page of each kind is kept.
pub(super) fn give_back(piece: NonNull<u8>, length: usize) -> bool {
    let Some(kind) = kind_of(length) else { return false };
    let offset = piece.as_ptr() as usize % KINDS[kind].0;
    let start = piece.as_ptr() as usize - offset;
    let pages = &mut pages()[kind];
    let is_its = |page: &Page| page.start.as_ptr() as usize == start;
    let place = pages.iter().position(is_its).expect("it was taken from one of them");
    pages[place].taken &= !(1 << (offset / piece_bytes(kind)));
    let unused = pages.iter().filter(|page| page.taken == 0).count();
    if pages[place].taken == 0 && unused > 1 {
        pages.swap_remove(place);
    }
    true
}

/// Asks for huge pages in new memory; what it holds is lost. A kernel without any refuses, which does
/// no harm. Returns whether the memory is zeros now.
///
/// # Safety
///
/// The caller owns the whole range, in whole pages, and nothing is in it.
pub(super) unsafe fn ask_for_huge_pages(start: NonNull<u8>, length: usize) -> bool {
    // The heap may have used the range before, and a small page that is there is in the way of a huge
    // one. Private memory that was given up reads as zeros.
    [libc::MADV_HUGEPAGE, libc::MADV_DONTNEED]
        // SAFETY: nobody misses what was in the range.
        .map(|advice| unsafe { libc::madvise(start.as_ptr().cast(), length, advice) })
        .ends_with(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_apart_and_pages_come_back() {
        for length in [PIECE_BYTES_MIN, 69_632, 69_633, 266_240, (1 << 20) + 4096, piece_bytes(7)] {
            let kind = kind_of(length).unwrap();
            let pieces: Vec<_> =
                (0..2 * KINDS[kind].1 + 1).map(|_| take(length).unwrap()).collect();
            let mut starts: Vec<_> = pieces.iter().map(|piece| piece.as_ptr() as usize).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= length));
            let page_bytes = KINDS[kind].0;
            let is_inside = |start: &usize| start % page_bytes + length <= page_bytes;
            assert!(starts.iter().all(|start| start.is_multiple_of(4096) && is_inside(start)));
            assert!(pages()[kind].len() >= 3);
            assert!(pieces.into_iter().all(|piece| give_back(piece, length)));
        }
        let none = [0, PIECE_BYTES_MIN - 1, piece_bytes(7) + 1, 8 << 20];
        assert!(none.into_iter().all(|length| take(length).is_none()));
    }
}
