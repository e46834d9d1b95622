//! The images that a power cut could leave, made from a recording.
//!
//! The model of the medium: a sector of [`SECTOR_BYTES`] is written whole or not at all; whatever
//! was written and not covered by a flush that has returned may be there or not, each request,
//! and each sector of a request, for itself; of several writes to one sector any one may be the
//! last that arrived; discarded space holds anything. A flush in flight when the power fails has
//! made nothing durable for sure. Knows nothing of what the bytes mean.

use crate::Event;

/// The unit that the medium writes whole: 512 bytes.
pub const SECTOR_BYTES: usize = 512;

/// What becomes of the requests that no flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unflushed {
    /// None arrived.
    Dropped,
    /// All arrived, in order.
    Kept,
    /// Each request arrived or not, by this seed.
    Subset(u64),
    /// Each sector of each request arrived or not, by this seed.
    Torn(u64),
    /// All but the last request arrived: what a cache with one slow lane leaves.
    AllButLast,
    /// Only the last request arrived: the worst order for "data first, then the record".
    OnlyLast,
}

/// A small deterministic generator (SplitMix64, by Steele, Lea and Flood, 2014), so that a state
/// can be named by its seed alone.
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// The image after the first `point` events, when power fails before the next: `base` is the
/// image when the recording began.
///
/// # Panics
///
/// When `point` is beyond the log or an event leaves the image.
pub fn image_at(base: &[u8], events: &[Event], point: usize, unflushed: Unflushed) -> Vec<u8> {
    let events = &events[..point];
    let durable = events
        .iter()
        .filter_map(|event| match event {
            Event::Flush { covered } => Some(*covered),
            _ => None,
        })
        .max()
        .unwrap_or(0);
    let mut image = base.to_vec();
    // The filler of discarded space differs from zero so that code relying on zeros is caught.
    let filler = 0xd5;
    for event in &events[..durable] {
        apply(&mut image, event, filler, |_| true);
    }
    let pending: Vec<&Event> = events[durable..]
        .iter()
        .filter(|event| matches!(event, Event::Write { .. } | Event::Discard { .. }))
        .collect();
    let seed = match unflushed {
        Unflushed::Subset(seed) | Unflushed::Torn(seed) => seed,
        _ => 0,
    };
    let mut choices = Choices(seed);
    for (index, event) in pending.iter().enumerate() {
        let is_last = index + 1 == pending.len();
        match unflushed {
            Unflushed::Dropped => {}
            Unflushed::Kept => apply(&mut image, event, filler, |_| true),
            Unflushed::Subset(_) => {
                let arrives = choices.flip();
                apply(&mut image, event, filler, |_| arrives);
            }
            Unflushed::Torn(_) => apply(&mut image, event, filler, |_| choices.flip()),
            Unflushed::AllButLast => apply(&mut image, event, filler, |_| !is_last),
            Unflushed::OnlyLast => apply(&mut image, event, filler, |_| is_last),
        }
    }
    image
}

/// How many writes and discards among the first `point` events no flush covers.
pub fn unflushed_count(events: &[Event], point: usize) -> usize {
    let events = &events[..point];
    let durable = events.iter().fold(0, |durable, event| match event {
        Event::Flush { covered } => durable.max(*covered),
        _ => durable,
    });
    events[durable..]
        .iter()
        .filter(|event| matches!(event, Event::Write { .. } | Event::Discard { .. }))
        .count()
}

fn apply(image: &mut [u8], event: &Event, filler: u8, mut arrives: impl FnMut(usize) -> bool) {
    match event {
        Event::Write { offset, bytes } => {
            let start = *offset as usize;
            for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if arrives(index) {
                    let at = start + index * SECTOR_BYTES;
                    image[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Event::Discard { offset, length } => {
            let range = *offset as usize..(*offset + *length) as usize;
            for (index, sector) in image[range].chunks_mut(SECTOR_BYTES).enumerate() {
                if arrives(index) {
                    sector.fill(filler);
                }
            }
        }
        Event::Flush { .. } | Event::Mark(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDevice, MemoryDevice, RecordingDevice};

    fn recording() -> Vec<Event> {
        let device = RecordingDevice::new(MemoryDevice::new(4096, 512));
        device.write_at(&[1; 1024], 0).unwrap();
        device.flush().unwrap();
        device.write_at(&[2; 1024], 0).unwrap();
        device.write_at(&[3; 512], 2048).unwrap();
        device.events()
    }

    #[test]
    fn flushed_writes_stay_and_unflushed_ones_follow_the_choice() {
        let (base, events) = (vec![0; 4096], recording());
        assert_eq!(events.len(), 4);
        let at = |point, unflushed| {
            let image = image_at(&base, &events, point, unflushed);
            (image[0], image[512], image[2048])
        };
        assert_eq!(at(1, Unflushed::Dropped), (0, 0, 0));
        assert_eq!(at(2, Unflushed::Dropped), (1, 1, 0));
        assert_eq!(at(4, Unflushed::Dropped), (1, 1, 0));
        assert_eq!(at(4, Unflushed::Kept), (2, 2, 3));
        assert_eq!(at(4, Unflushed::OnlyLast), (1, 1, 3));
        assert_eq!(at(4, Unflushed::AllButLast), (2, 2, 0));
        assert_eq!(unflushed_count(&events, 4), 2);
        assert_eq!(unflushed_count(&events, 2), 0);
    }

    #[test]
    fn every_combination_of_sectors_comes_up() {
        let (base, events) = (vec![0; 4096], recording());
        let torn: std::collections::BTreeSet<_> = (0..200)
            .map(|seed| image_at(&base, &events, 4, Unflushed::Torn(seed)))
            .map(|image| (image[0], image[512], image[2048]))
            .collect();
        assert_eq!(torn.len(), 8);
        let whole: std::collections::BTreeSet<_> = (0..200)
            .map(|seed| image_at(&base, &events, 4, Unflushed::Subset(seed)))
            .map(|image| (image[0], image[512], image[2048]))
            .collect();
        assert_eq!(whole.len(), 4);
    }
}
