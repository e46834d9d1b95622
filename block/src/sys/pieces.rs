//! Pieces of huge pages, for memory that is much smaller than one.
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
/// Pieces in a page of each kind: a piece has room for a power of two and a page of 4 KiB.
const COUNTS: [usize; 5] = [60, 30, 15, 7, 3];
const PAGE: Layout = match Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("the alignment is a power of two"),
};

struct Page {
    start: NonNull<u8>,
    /// A bit for each piece that somebody has.
    taken: u64,
}

// SAFETY: the page owns its memory, and may free it on any thread.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(PAGE) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(PAGE) };
        // SAFETY: the allocation covers the whole range and is new.
        unsafe { ask_for_huge_pages(start, HUGE_PAGE_BYTES) };
        Self { start, taken: 0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        assert_eq!(self.taken, 0, "nobody has a piece of it");
        // SAFETY: the pointer came from `alloc` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), PAGE) };
    }
}

/// The pages of each kind.
static PAGES: Mutex<[Vec<Page>; COUNTS.len()]> = Mutex::new([const { Vec::new() }; COUNTS.len()]);

fn pages() -> MutexGuard<'static, [Vec<Page>; COUNTS.len()]> {
    PAGES.lock().expect("no thread panics while it holds the pages")
}

fn piece_bytes(kind: usize) -> usize {
    HUGE_PAGE_BYTES / COUNTS[kind] / 4096 * 4096
}

/// The kind with the smallest pieces that are large enough, if `length` suits any.
fn kind_of(length: usize) -> Option<usize> {
    (0..COUNTS.len()).find(|kind| (PIECE_BYTES_MIN..=piece_bytes(*kind)).contains(&length))
}

/// At least `length` bytes at a multiple of 4096, of which nothing is known; `None` for a length
/// that has no pieces.
pub(super) fn take(length: usize) -> Option<NonNull<u8>> {
    let kind = kind_of(length)?;
    let all = (1 << COUNTS[kind]) - 1;
    let pages = &mut pages()[kind];
    let place = pages.iter().position(|page| page.taken != all).unwrap_or_else(|| {
        pages.push(Page::new());
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
    let offset = piece.as_ptr() as usize % HUGE_PAGE_BYTES;
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
/// no harm.
///
/// # Safety
///
/// The caller owns the whole range, in whole pages, and nothing is in it.
pub(super) unsafe fn ask_for_huge_pages(start: NonNull<u8>, length: usize) {
    // The heap may have used the range before, and a small page that is there is in the way of a huge
    // one.
    for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTNEED] {
        // SAFETY: nobody misses what was in the range.
        unsafe { libc::madvise(start.as_ptr().cast(), length, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_apart_and_pages_come_back() {
        for length in [PIECE_BYTES_MIN, 69_632, 69_633, 266_240, piece_bytes(4)] {
            let kind = kind_of(length).unwrap();
            let pieces: Vec<_> = (0..2 * COUNTS[kind] + 1).map(|_| take(length).unwrap()).collect();
            let mut starts: Vec<_> = pieces.iter().map(|piece| piece.as_ptr() as usize).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= length));
            let is_inside = |start: &usize| start % HUGE_PAGE_BYTES + length <= HUGE_PAGE_BYTES;
            assert!(starts.iter().all(|start| start.is_multiple_of(4096) && is_inside(start)));
            assert!(pages()[kind].len() >= 3);
            assert!(pieces.into_iter().all(|piece| give_back(piece, length)));
        }
        let none = [0, PIECE_BYTES_MIN - 1, piece_bytes(4) + 1, 1 << 20];
        assert!(none.into_iter().all(|length| take(length).is_none()));
    }
}
