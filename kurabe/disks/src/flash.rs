//! A flash disk: chips that work side by side, a buffer, and a translation layer that must clean up.
//!
//! Pages are read and programmed, only blocks can be erased. A write goes to the next free page; what
//! was there before becomes invalid. When free blocks run short, the block with the fewest valid pages
//! is copied and erased, and the chips are busy with that (greedy cleaning). The first writes go to
//! blocks with one bit per cell, which are quick, until those are used up; idle time wins them back.
//!
//! The slice is a disk of its own with its share of the spare blocks, and is full when it begins, as
//! kurabe fills its devices.

use std::collections::VecDeque;

use crate::profile::Parameters;
use crate::{DiskModel, DiskOperation, DiskReply, ModelRequest, ms, transfer_ns};

/// What the translation layer maps.
const UNIT_BYTES: u64 = 4096;
/// No place: nothing was written there, or it was discarded.
const NOWHERE: u32 = u32::MAX;
/// Blocks that are kept free to copy to.
const RESERVE: usize = 2;

struct Settings {
    command_read_ns: u64,
    command_write_ns: u64,
    read_ns: u64,
    program_ns: u64,
    fast_program_ns: u64,
    erase_ns: u64,
    /// Units that are programmed at once on a chip.
    page_units: u64,
    chips: usize,
    channel_mb_s: f64,
    channels: usize,
    interface_mb_s: f64,
    buffer_bytes: u64,
    fast_bytes: u64,
    idle_ns: u64,
    flush_ns: u64,
    survives: bool,
}

/// Where everything is.
struct Translation {
    /// Unit of the host to unit of the flash.
    places: Vec<u32>,
    /// And back.
    owners: Vec<u32>,
    /// Valid units of each block.
    valid: Vec<u32>,
    block_units: u32,
    free: Vec<u32>,
    /// Where the host's writes and the copies go: block, and next unit in it.
    open: Option<(u32, u32)>,
    host_units: u64,
    copied_units: u64,
    erased: u64,
}

/// What a write made the chips do.
#[derive(Default)]
struct Work {
    programs: u64,
    reads: u64,
    erases: u64,
}

impl Translation {
    fn new(length: u64, spare: f64, block_bytes: u64) -> Translation {
        let units = length.div_ceil(UNIT_BYTES) as u32;
        let block_units = (block_bytes / UNIT_BYTES).max(1) as u32;
        // Small slices need more blocks than their share, or nothing could be cleaned.
        let data_blocks = units.div_ceil(block_units);
        let spare_blocks = ((f64::from(data_blocks) * spare) as u32).max(RESERVE as u32 + 2);
        let blocks = data_blocks + spare_blocks;
        let mut owners = vec![NOWHERE; (blocks * block_units) as usize];
        let mut valid = vec![0; blocks as usize];
        for unit in 0..units {
            owners[unit as usize] = unit;
            valid[(unit / block_units) as usize] += 1;
        }
        Translation {
            places: (0..units).collect(),
            owners,
            valid,
            block_units,
            free: (data_blocks..blocks).rev().collect(),
            open: None,
            host_units: 0,
            copied_units: 0,
            erased: 0,
        }
    }

    fn forget(&mut self, unit: u64) {
        let place = std::mem::replace(&mut self.places[unit as usize], NOWHERE);
        if place != NOWHERE {
            self.owners[place as usize] = NOWHERE;
            self.valid[(place / self.block_units) as usize] -= 1;
        }
    }

    fn write(&mut self, unit: u64, work: &mut Work) {
        self.host_units += 1;
        self.forget(unit);
        self.put(unit as u32);
        work.programs += 1;
        while self.free.len() < RESERVE {
            self.clean(work);
        }
    }

    fn put(&mut self, unit: u32) {
        let (block, next) = match self.open {
            Some((block, next)) if next < self.block_units => (block, next),
            _ => (self.free.pop().expect("a block is kept free"), 0),
        };
        let place = block * self.block_units + next;
        self.open = Some((block, next + 1));
        self.places[unit as usize] = place;
        self.owners[place as usize] = unit;
        self.valid[block as usize] += 1;
    }

    /// Copies the block with the fewest valid units elsewhere, and erases it.
    fn clean(&mut self, work: &mut Work) {
        let open = self.open.map(|(block, _)| block);
        let full = (0..self.valid.len() as u32)
            .filter(|block| Some(*block) != open && !self.free.contains(block));
        let victim = full.min_by_key(|block| self.valid[*block as usize]).expect("one is full");
        let from = victim * self.block_units;
        for place in from..from + self.block_units {
            let unit = self.owners[place as usize];
            if unit != NOWHERE {
                self.forget(u64::from(unit));
                self.put(unit);
                self.copied_units += 1;
                work.programs += 1;
                work.reads += 1;
            }
        }
        self.erased += 1;
        work.erases += 1;
        self.free.insert(0, victim);
    }
}

pub struct Flash {
    settings: Settings,
    translation: Translation,
    length: u64,
    now_ns: u64,
    asked_ns: u64,
    chips_free_ns: Vec<u64>,
    channels_free_ns: Vec<u64>,
    interface_free_ns: u64,
    next_chip: usize,
    /// Copies and erasures that go to the chips with the next page, in ns.
    debt_ns: u64,
    /// Units that wait for a whole page.
    unpaged_units: u64,
    /// Of the buffer: when each part is programmed, and how much that is.
    buffered: VecDeque<(u64, u64)>,
    buffered_bytes: u64,
    fast_left_bytes: f64,
    replies: VecDeque<DiskReply>,
    read_units: u64,
}

impl Flash {
    /// A disk that is `length` bytes long.
    pub fn new(of: &Parameters, length: u64) -> Flash {
        let mib = |name| (of.get(name) * (1 << 20) as f64) as u64;
        let channels = of.get("channels") as usize;
        let chips = channels * of.get("chips_per_channel") as usize;
        let fast_bytes = mib("fast_mib");
        let settings = Settings {
            command_read_ns: ms(of.get("command_read_ms")),
            command_write_ns: ms(of.get("command_write_ms")),
            read_ns: ms(of.get("read_ms")),
            program_ns: ms(of.get("program_ms")),
            fast_program_ns: ms(of.get("fast_program_ms")),
            erase_ns: ms(of.get("erase_ms")),
            page_units: (of.get("page_kib") * 1024.0) as u64 / UNIT_BYTES,
            chips,
            channel_mb_s: of.get("channel_mb_s"),
            channels,
            interface_mb_s: of.get("interface_mb_s"),
            buffer_bytes: mib("buffer_mib"),
            fast_bytes,
            idle_ns: ms(of.get("idle_ms")),
            flush_ns: ms(of.get("flush_ms")),
            survives: of.get("power_loss_protection") > 0.0,
        };
        let translation = Translation::new(length, of.get("spare"), mib("block_mib"));
        Flash {
            settings,
            translation,
            length,
            now_ns: 0,
            asked_ns: 0,
            chips_free_ns: vec![0; chips],
            channels_free_ns: vec![0; channels],
            interface_free_ns: 0,
            next_chip: 0,
            debt_ns: 0,
            unpaged_units: 0,
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            fast_left_bytes: fast_bytes as f64,
            replies: VecDeque::new(),
            read_units: 0,
        }
    }

    /// The interface carries one transfer at a time.
    fn through_interface(&mut self, from_ns: u64, bytes: u64) -> u64 {
        let begin = from_ns.max(self.interface_free_ns);
        self.interface_free_ns = begin + transfer_ns(bytes, self.settings.interface_mb_s);
        self.interface_free_ns
    }

    fn units(&self, request: &ModelRequest) -> std::ops::Range<u64> {
        request.offset / UNIT_BYTES..request.end().min(self.length).div_ceil(UNIT_BYTES)
    }

    fn read(&mut self, request: &ModelRequest) -> u64 {
        let begin = self.now_ns + self.settings.command_read_ns;
        let (mut end, mut before) = (begin, None);
        for unit in self.units(request) {
            self.read_units += 1;
            let place = self.translation.places[unit as usize];
            if place == NOWHERE {
                continue;
            }
            // Pages are dealt to the chips in order.
            let page = u64::from(place) / self.settings.page_units;
            let chip = page as usize % self.settings.chips;
            let channel = chip % self.settings.channels;
            let mut sensed = self.chips_free_ns[chip].max(begin);
            if before != Some(page) {
                sensed += self.settings.read_ns;
            }
            before = Some(page);
            let sent = sensed.max(self.channels_free_ns[channel])
                + transfer_ns(UNIT_BYTES, self.settings.channel_mb_s);
            self.chips_free_ns[chip] = sensed;
            self.channels_free_ns[channel] = sent;
            end = end.max(sent);
        }
        self.through_interface(
            end - transfer_ns(request.length, self.settings.interface_mb_s).min(end - begin),
            request.length,
        )
        .max(end)
    }

    fn write(&mut self, request: &ModelRequest) -> u64 {
        let begin = self.now_ns + self.settings.command_write_ns;
        let mut end = self.through_interface(begin, request.length);
        // Room in the buffer.
        while let Some(&(programmed, bytes)) = self.buffered.front()
            && (programmed <= self.now_ns
                || self.buffered_bytes + request.length > self.settings.buffer_bytes)
        {
            end = end.max(programmed);
            self.buffered.pop_front();
            self.buffered_bytes -= bytes;
        }
        let mut work = Work::default();
        for unit in self.units(request) {
            self.translation.write(unit, &mut work);
        }
        let copies = work.reads * self.settings.read_ns / self.settings.page_units
            + (work.programs - request.length.div_ceil(UNIT_BYTES).min(work.programs))
                * self.settings.program_ns
                / self.settings.page_units;
        self.debt_ns += copies + work.erases * self.settings.erase_ns;
        self.unpaged_units += self.units(request).count() as u64;
        while self.unpaged_units >= self.settings.page_units {
            self.unpaged_units -= self.settings.page_units;
            self.program(end);
        }
        end
    }

    /// Programs a page on the next chip.
    fn program(&mut self, from_ns: u64) {
        let bytes = self.settings.page_units * UNIT_BYTES;
        let is_fast = self.fast_left_bytes >= bytes as f64;
        let program_ns = if is_fast {
            self.fast_left_bytes -= bytes as f64;
            self.settings.fast_program_ns
        } else {
            self.settings.program_ns
        };
        // Cleaning is spread over all chips, a page's worth at a time.
        let share = self.debt_ns.min(self.settings.erase_ns.max(4 * program_ns));
        self.debt_ns -= share;
        let chip = self.next_chip;
        self.next_chip = (chip + 1) % self.settings.chips;
        let end = self.chips_free_ns[chip].max(from_ns) + program_ns + share;
        self.chips_free_ns[chip] = end;
        self.buffered.push_back((end, bytes));
        self.buffered_bytes += bytes;
    }

    fn flush(&mut self) -> u64 {
        if self.settings.survives {
            return self.now_ns + self.settings.flush_ns;
        }
        if self.unpaged_units > 0 {
            // The rest of the page stays empty.
            self.unpaged_units = 0;
            self.program(self.now_ns);
        }
        let programmed = self.buffered.iter().map(|(end, _)| *end).max();
        programmed.unwrap_or(0).max(self.now_ns) + self.settings.flush_ns
    }

    /// What idle time has won back of the quick blocks.
    fn rest(&mut self, to_ns: u64) {
        let busy_until = self.chips_free_ns.iter().copied().max().unwrap_or(0).max(self.asked_ns);
        let from = busy_until + self.settings.idle_ns;
        if to_ns > from && self.settings.program_ns > 0 {
            let page_bytes = (self.settings.page_units * UNIT_BYTES) as f64;
            let moved = (to_ns - from) as f64 / self.settings.program_ns as f64
                * page_bytes
                * self.settings.chips as f64;
            self.fast_left_bytes =
                (self.fast_left_bytes + moved).min(self.settings.fast_bytes as f64);
            // Cleaning that was put off is done by then too.
            self.debt_ns = self.debt_ns.saturating_sub((to_ns - from) * self.settings.chips as u64);
        }
    }
}

impl DiskModel for Flash {
    fn arrive(&mut self, at_ns: u64, id: u64, request: ModelRequest) {
        let at_ns = at_ns.max(self.now_ns);
        self.rest(at_ns);
        (self.now_ns, self.asked_ns) = (at_ns, at_ns);
        let end = match request.operation {
            DiskOperation::Read => self.read(&request),
            DiskOperation::Write => self.write(&request),
            DiskOperation::Flush => self.flush(),
            DiskOperation::Discard => {
                // Only whole units can be forgotten.
                let whole = request.offset.div_ceil(UNIT_BYTES)..request.end() / UNIT_BYTES;
                whole.for_each(|unit| self.translation.forget(unit));
                at_ns + self.settings.command_write_ns
            }
        };
        self.replies.push_back(DiskReply { id, at_ns: end.max(at_ns) });
    }

    fn next_event(&self) -> Option<u64> {
        None
    }

    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
    }

    fn reply(&mut self) -> Option<DiskReply> {
        self.replies.pop_front()
    }

    fn volatile_bytes(&self) -> u64 {
        if self.settings.survives {
            return 0;
        }
        let waiting = self.buffered.iter().filter(|(end, _)| *end > self.now_ns);
        waiting.map(|(_, bytes)| *bytes).sum::<u64>() + self.unpaged_units * UNIT_BYTES
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("units read", self.read_units),
            ("units written by the host", self.translation.host_units),
            ("units copied by cleaning", self.translation.copied_units),
            ("blocks erased", self.translation.erased),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Every unit is in one place, every place has one owner, and no block holds more than fits.
    #[test]
    fn the_translation_conserves_the_capacity() {
        let mut translation = Translation::new(16 << 20, 0.07, 256 << 10);
        let (units, mut random) = (translation.places.len() as u64, Random::new(7));
        for round in 0..40 {
            for _ in 0..1000 {
                let unit = random.bits() % units;
                if random.happens(0.1) {
                    translation.forget(unit);
                } else {
                    translation.write(unit, &mut Work::default());
                }
            }
            let mut valid = vec![0; translation.valid.len()];
            for (unit, place) in translation.places.iter().enumerate() {
                if *place != NOWHERE {
                    assert_eq!(translation.owners[*place as usize], unit as u32, "round {round}");
                    valid[(*place / translation.block_units) as usize] += 1;
                }
            }
            assert_eq!(valid, translation.valid, "round {round}");
            let owned = translation.owners.iter().filter(|owner| **owner != NOWHERE).count();
            assert_eq!(owned, valid.iter().sum::<u32>() as usize, "round {round}");
        }
        assert!(translation.copied_units > 0);
    }
}
