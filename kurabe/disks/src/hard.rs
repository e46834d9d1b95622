//! A hard disk: one head, a queue of commands, a cache.
//!
//! Invariants: the head does one thing at a time; a write is acknowledged once it is in the cache
//! (or on the platter, without one); a flush starts when everything before it was answered, ends when
//! the cache is clean, and nothing after it starts before.

pub mod geometry;
pub mod shingles;

use std::collections::VecDeque;
use std::ops::Range;

use geometry::{Arm, Geometry};
use shingles::Shingles;

use crate::extents::Extents;
use crate::profile::Parameters;
use crate::random::Random;
use crate::{Destaged, DiskModel, DiskOperation, DiskReply, ModelRequest, ms, transfer_ns};

/// Ranges of earlier reads that are kept.
const SEGMENTS: usize = 16;
/// A write that begins or ends within a physical sector of this size is read first.
const SECTOR_BYTES: u64 = 4096;

/// What the profile says.
struct Settings {
    command_read_ns: u64,
    command_write_ns: u64,
    /// Of the controller before the arm moves.
    access_ns: f64,
    write_settle_ns: f64,
    write_slip: f64,
    miss_chance: f64,
    write_miss_chance: f64,
    interface_mb_s: f64,
    queue_depth: usize,
    age_limit_ns: u64,
    read_ahead_bytes: u64,
    cache_bytes: u64,
    destage_start_bytes: u64,
    destage_stop_bytes: u64,
    destage_bytes_max: u64,
    destage_window: usize,
    destage_idle_ns: u64,
    flush_ns: u64,
    flush_written_ns: u64,
}

impl Settings {
    fn new(of: &Parameters) -> Settings {
        let mib = |name| (of.get(name) * (1 << 20) as f64) as u64;
        let cache_bytes = mib("write_cache_mib");
        Settings {
            command_read_ns: ms(of.get("command_read_ms")),
            command_write_ns: ms(of.get("command_write_ms")),
            access_ns: of.get("access_ms") * 1e6,
            write_settle_ns: of.get("write_settle_ms") * 1e6,
            write_slip: 1.0 + of.get("write_slip"),
            miss_chance: of.get("miss_chance"),
            write_miss_chance: of.get("write_miss_chance"),
            interface_mb_s: of.get("interface_mb_s"),
            queue_depth: of.get("queue_depth") as usize,
            age_limit_ns: ms(of.get("age_limit_ms")),
            read_ahead_bytes: mib("read_ahead_mib"),
            cache_bytes,
            destage_start_bytes: (cache_bytes as f64 * of.get("destage_start")) as u64,
            destage_stop_bytes: (cache_bytes as f64 * of.get("destage_stop")) as u64,
            destage_bytes_max: mib("destage_mib").max(SECTOR_BYTES),
            destage_window: of.get("destage_window") as usize,
            destage_idle_ns: ms(of.get("destage_idle_ms")),
            flush_ns: ms(of.get("flush_ms")),
            flush_written_ns: ms(of.get("flush_written_ms")),
        }
    }
}

/// A request that was not answered yet.
#[derive(Debug, Clone, Copy)]
struct Command {
    arrived_ns: u64,
    id: u64,
    request: ModelRequest,
    /// Of its first byte, once it is in the queue.
    position: f64,
}

/// What the head does.
enum Work {
    Read,
    /// A write without a cache.
    Write,
    Destage(Range<u64>),
    /// The shingled disk cleans a band.
    Clean,
    /// A flush that found the cache clean is about to be answered.
    EndFlush,
}

struct Job {
    end_ns: u64,
    work: Work,
}

/// A write on its way through the interface into the cache.
struct Transfer {
    end_ns: u64,
    command: Command,
}

/// Reading on behind the last read, into the cache.
struct Stream {
    /// From where on the cache has it.
    start: u64,
    /// Where the platter was at `began_ns`.
    from: u64,
    began_ns: u64,
    /// Where the room for it ends.
    limit: u64,
}

pub struct HardDisk {
    settings: Settings,
    geometry: Geometry,
    arm: Arm,
    random: Random,
    shingles: Option<Shingles>,
    now_ns: u64,
    /// When the host last wanted something.
    asked_ns: u64,
    /// Not begun: behind a flush, or more than the queue takes.
    incoming: VecDeque<Command>,
    queue: Vec<Command>,
    /// Writes for which the cache has no room.
    waiting: VecDeque<Command>,
    transfers: VecDeque<Transfer>,
    interface_free_ns: u64,
    flush: Option<Command>,
    dirty: Extents,
    /// Of transfers and of what is being destaged.
    reserved_bytes: u64,
    is_draining: bool,
    /// Whether anything was written to the platter since the last flush.
    has_written: bool,
    job: Option<Job>,
    /// Of the head, when it last did something.
    position: f64,
    /// Where the last write of the head ended, if it was a write.
    written_to: Option<u64>,
    stream: Option<Stream>,
    segments: VecDeque<Range<u64>>,
    replies: VecDeque<DiskReply>,
    destaged: VecDeque<Destaged>,
    number: u64,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    seeks: u64,
    misses: u64,
    read_hits: u64,
    destages: u64,
    sector_reads: u64,
    cleaned_bands: u64,
}

impl HardDisk {
    pub fn new(of: &Parameters, seed: u64) -> HardDisk {
        let shingles = (of.get("shingle_band_mib") > 0.0).then(|| Shingles::new(of));
        let hidden_bytes = shingles.as_ref().map_or(0, Shingles::cache_bytes);
        let capacity = of.capacity_bytes() + hidden_bytes;
        let geometry = Geometry::new(capacity, of.get("rpm"), of.rates());
        HardDisk {
            settings: Settings::new(of),
            geometry,
            arm: Arm {
                settle_ns: of.get("seek_settle_ms") * 1e6,
                root_ns: of.get("seek_root_ms") * 1e6,
                linear_ns: of.get("seek_linear_ms") * 1e6,
                knee: of.get("seek_knee"),
            },
            random: Random::new(seed),
            shingles,
            now_ns: 0,
            asked_ns: 0,
            incoming: VecDeque::new(),
            queue: Vec::new(),
            waiting: VecDeque::new(),
            transfers: VecDeque::new(),
            interface_free_ns: 0,
            flush: None,
            dirty: Extents::default(),
            reserved_bytes: 0,
            is_draining: false,
            has_written: false,
            job: None,
            position: 0.0,
            written_to: None,
            stream: None,
            segments: VecDeque::new(),
            replies: VecDeque::new(),
            destaged: VecDeque::new(),
            number: 0,
            counters: Counters::default(),
        }
    }

    fn answer(&mut self, id: u64, at_ns: u64) {
        debug_assert!(at_ns >= self.now_ns);
        self.replies.push_back(DiskReply { id, at_ns });
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Position of a byte as the host counts, wherever shingles have put it.
    fn position_of(&self, byte: u64) -> f64 {
        self.geometry.position(self.place(byte))
    }

    fn place(&self, byte: u64) -> u64 {
        self.shingles.as_ref().map_or(byte, |shingles| shingles.place(byte))
    }

    fn outstanding(&self) -> usize {
        let head =
            self.job.as_ref().is_some_and(|job| matches!(job.work, Work::Read | Work::Write));
        self.queue.len() + self.waiting.len() + self.transfers.len() + usize::from(head)
    }

    /// Takes what has come in, as far as it may begin.
    fn admit(&mut self) {
        while let Some(&command) = self.incoming.front()
            && self.flush.is_none()
            && self.outstanding() < self.settings.queue_depth
        {
            if command.request.operation == DiskOperation::Flush && self.outstanding() > 0 {
                break;
            }
            self.incoming.pop_front();
            match command.request.operation {
                DiskOperation::Read => self.admit_read(command),
                DiskOperation::Write if self.settings.cache_bytes == 0 => self.enqueue(command),
                DiskOperation::Write => {
                    self.forget_read(&(command.request.offset..command.request.end()));
                    self.waiting.push_back(command);
                }
                DiskOperation::Flush => self.flush = Some(command),
                DiskOperation::Discard => {
                    self.answer(command.id, self.now_ns + self.settings.command_write_ns);
                }
            }
            self.fill_cache();
        }
        self.end_flush();
    }

    /// Lets writes into the cache as long as there is room.
    fn fill_cache(&mut self) {
        while let Some(&command) = self.waiting.front() {
            let length = command.request.length;
            let used = self.dirty.bytes() + self.reserved_bytes;
            if used > 0 && used + length > self.settings.cache_bytes {
                break;
            }
            self.waiting.pop_front();
            self.reserved_bytes += length;
            let begin = self.now_ns.max(self.interface_free_ns);
            let end_ns = begin
                + self.settings.command_write_ns
                + transfer_ns(length, self.settings.interface_mb_s);
            self.interface_free_ns = end_ns;
            self.transfers.push_back(Transfer { end_ns, command });
            self.answer(command.id, end_ns);
        }
    }

    fn enqueue(&mut self, mut command: Command) {
        command.position = self.position_of(command.request.offset);
        self.queue.push(command);
    }

    fn admit_read(&mut self, command: Command) {
        let range = command.request.offset..command.request.end();
        let is_kept = self.dirty.covers(&range)
            || self.segments.iter().any(|one| one.start <= range.start && range.end <= one.end)
            || self.stream.as_ref().is_some_and(|stream| {
                stream.start <= range.start && range.end <= self.streamed(stream, self.now_ns)
            });
        if is_kept {
            self.counters.read_hits += 1;
            if let Some(stream) = &mut self.stream
                && (stream.start..=stream.limit).contains(&range.end)
            {
                // A full buffer lets the platter go by; with room it goes on.
                let at = self.now_ns;
                let reached = self.streamed(self.stream.as_ref().expect("it is there"), at);
                self.read_on(reached, range.end);
            }
            let end = self.now_ns.max(self.interface_free_ns) + self.cached_ns(&command);
            self.interface_free_ns = end;
            self.answer(command.id, end);
            return;
        }
        self.enqueue(command);
    }

    fn cached_ns(&self, command: &Command) -> u64 {
        self.settings.command_read_ns
            + transfer_ns(command.request.length, self.settings.interface_mb_s)
    }

    /// How far reading on has come.
    fn streamed(&self, stream: &Stream, at_ns: u64) -> u64 {
        let rate = self.geometry.rate(self.place(stream.from));
        let bytes = at_ns.saturating_sub(stream.began_ns) as f64 * rate / 1e3;
        (stream.from + bytes as u64).min(stream.limit)
    }

    /// Makes room for more behind what the host has read.
    fn read_on(&mut self, reached: u64, taken: u64) {
        let at = self.now_ns as f64;
        let Some(stream) = &self.stream else { return };
        let limit = stream.limit.max(taken + self.settings.read_ahead_bytes);
        let start = stream.start.max(taken.saturating_sub(self.settings.read_ahead_bytes));
        let (mut from, mut began_ns) = (stream.from, stream.began_ns);
        if reached == stream.limit {
            // It had stopped, and the platter has turned since.
            let wait = self.geometry.rotation_ns(at, self.position_of(reached));
            (from, began_ns) = (reached, self.now_ns + wait as u64);
        }
        self.stream = Some(Stream { start, from, began_ns, limit });
    }

    /// What was read there counts no more.
    fn forget_read(&mut self, range: &Range<u64>) {
        let overlaps = |one: &Range<u64>| one.start < range.end && range.start < one.end;
        self.segments.retain(|one| !overlaps(one));
        if self.stream.as_ref().is_some_and(|stream| overlaps(&(stream.start..stream.limit))) {
            self.stream = None;
        }
    }

    /// Ends reading on, and keeps what was read.
    fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            let reached = self.streamed(&stream, self.now_ns);
            self.segments.push_back(stream.start..reached);
            if self.segments.len() > SEGMENTS {
                self.segments.pop_front();
            }
            self.position = self.position_of(reached);
        }
    }

    fn end_flush(&mut self) {
        if let Some(command) = self.flush
            && self.dirty.is_empty()
            && self.job.is_none()
        {
            let written = std::mem::take(&mut self.has_written);
            let written_ns = if written { self.settings.flush_written_ns } else { 0 };
            let end_ns = self.now_ns + self.settings.flush_ns + written_ns;
            self.answer(command.id, end_ns);
            self.job = Some(Job { end_ns, work: Work::EndFlush });
        }
    }

    /// Whether what is in the cache is to be written now.
    fn destages(&mut self) -> bool {
        if self.dirty.is_empty() {
            return false;
        }
        self.is_draining = match self.dirty.bytes() {
            bytes if bytes >= self.settings.destage_start_bytes => true,
            bytes if bytes <= self.settings.destage_stop_bytes => false,
            _ => self.is_draining,
        };
        self.flush.is_some()
            || !self.waiting.is_empty()
            || self.is_draining
            || (self.queue.is_empty() && self.now_ns >= self.idle_from_ns())
    }

    fn idle_from_ns(&self) -> u64 {
        self.asked_ns + self.settings.destage_idle_ns
    }

    /// Gives the head something to do, if it is free.
    fn start(&mut self) {
        if self.job.is_some() {
            return;
        }
        let now = self.now_ns as f64;
        let mut best: Option<(f64, Choice)> = None;
        let mut offer = |cost: f64, choice: Choice| {
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, choice));
            }
        };
        let oldest = self.queue.iter().enumerate().min_by_key(|(_, one)| (one.arrived_ns, one.id));
        let overdue = oldest.filter(|(_, one)| {
            self.now_ns.saturating_sub(one.arrived_ns) >= self.settings.age_limit_ns
        });
        if let Some((at, command)) = overdue {
            offer(self.cost_ns(now, command), Choice::Command(at));
        } else {
            for (at, command) in self.queue.iter().enumerate() {
                offer(self.cost_ns(now, command), Choice::Command(at));
            }
        }
        if overdue.is_none() && self.destages() {
            // Without room in its cache a shingled disk has no place to write to.
            if self.shingles.as_ref().is_some_and(Shingles::is_full) {
                return self.start_cleaning();
            }
            let going_on = self.written_to.and_then(|end| self.dirty.at(end));
            if let Some(range) = going_on {
                offer(0.0, Choice::Destage(range));
            } else {
                for range in self.dirty.oldest().take(self.settings.destage_window) {
                    let position = self.position_of(range.start);
                    offer(self.positioning_ns(now, position, true).0, Choice::Destage(range));
                }
            }
        }
        match best {
            Some((_, Choice::Command(at))) => {
                let command = self.queue.swap_remove(at);
                match command.request.operation {
                    DiskOperation::Write => self.start_write(command),
                    _ => self.start_read(command),
                }
            }
            Some((_, Choice::Destage(range))) => self.start_destage(range),
            None => self.start_cleaning(),
        }
    }

    /// What a command of the queue costs before its first byte.
    fn cost_ns(&self, now: f64, command: &Command) -> f64 {
        let is_write = command.request.operation == DiskOperation::Write;
        if !is_write && self.is_streamed(command) {
            return 0.0;
        }
        self.positioning_ns(now, command.position, is_write).0
    }

    /// Whether a read begins where reading on has come to, or soon does.
    fn is_streamed(&self, command: &Command) -> bool {
        self.stream.as_ref().is_some_and(|stream| {
            let start = command.request.offset;
            // A tenth of a revolution is less than any seek.
            let soon = self.geometry.revolution_ns * self.geometry.rate(self.place(start)) / 1e4;
            start >= stream.start
                && start <= self.streamed(stream, self.now_ns) + soon as u64
                && start <= stream.limit
        })
    }

    /// Time to get to a position, and whether the arm moves.
    fn positioning_ns(&self, now: f64, position: f64, is_write: bool) -> (f64, bool) {
        let distance = (position - self.position).abs();
        let moves = distance >= 1.0;
        let mut time = self.settings.access_ns;
        if moves {
            time += self.arm.seek_ns(distance / self.geometry.tracks());
        }
        if is_write && (moves || self.written_to.is_none()) {
            time += self.settings.write_settle_ns;
        }
        (time + self.geometry.rotation_ns(now + time, position), moves)
    }

    /// Time from the first to the last byte, when they are read or written in order.
    fn passing_ns(&self, place: u64, length: u64) -> f64 {
        let turns = self.geometry.position(place + length) - self.geometry.position(place);
        turns * self.geometry.revolution_ns
    }

    /// A revolution, if the first change of tracks after a seek, between these positions, does not find its track in
    /// time.
    fn miss_ns(&mut self, begins: f64, ends: f64) -> f64 {
        if ends.floor() > begins.floor() && self.random.happens(self.settings.miss_chance) {
            self.counters.misses += 1;
            return self.geometry.revolution_ns;
        }
        0.0
    }

    fn start_read(&mut self, command: Command) {
        let ModelRequest { offset, length, .. } = command.request;
        let least_ns = self.now_ns.max(self.interface_free_ns) + self.cached_ns(&command);
        if self.is_streamed(&command) {
            let reached = self.streamed(self.stream.as_ref().expect("it is streamed"), self.now_ns);
            self.read_on(reached, offset + length);
            let stream = self.stream.as_ref().expect("it is streamed");
            let from = self.place(stream.from);
            let left = (offset + length).saturating_sub(stream.from);
            let end_ns = stream.began_ns + self.passing_ns(from, left) as u64;
            let end_ns = end_ns.max(self.now_ns);
            self.written_to = None;
            self.job = Some(Job { end_ns, work: Work::Read });
            self.answer(command.id, end_ns.max(least_ns));
            return;
        }
        self.end_stream();
        let place = self.place(offset);
        let (positioning, moves) = self.positioning_ns(self.now_ns as f64, command.position, false);
        let (begins, ends) =
            (self.geometry.position(place), self.geometry.position(place + length));
        let missed = if moves { self.miss_ns(begins, ends) } else { 0.0 };
        self.counters.seeks += u64::from(moves);
        let time = positioning + (ends - begins) * self.geometry.revolution_ns + missed;
        let end_ns = self.now_ns + time as u64;
        self.written_to = None;
        self.position = ends;
        // What comes next passes below the head anyway.
        let end = offset + length;
        let limit = end + self.settings.read_ahead_bytes;
        self.stream = Some(Stream { start: offset, from: end, began_ns: end_ns, limit });
        self.job = Some(Job { end_ns, work: Work::Read });
        self.answer(command.id, (end_ns + self.settings.command_read_ns).max(least_ns));
    }

    /// Brings bytes to the platter, and says when that ends.
    fn write(&mut self, range: &Range<u64>) -> u64 {
        let goes_on = self.written_to == Some(range.start);
        self.end_stream();
        let length = range.end - range.start;
        let place = match &mut self.shingles {
            Some(shingles) => shingles.write(range),
            None => range.start,
        };
        let (position, ends) =
            (self.geometry.position(place), self.geometry.position(place + length));
        let mut time = (ends - position) * self.geometry.revolution_ns * self.settings.write_slip;
        let follows = goes_on && (position - self.position).abs() < 1e-6;
        if !follows {
            let (positioning, moves) = self.positioning_ns(self.now_ns as f64, position, true);
            time += positioning;
            if moves {
                self.counters.seeks += 1;
                time += self.miss_ns(position, ends);
                if self.random.happens(self.settings.write_miss_chance) {
                    self.counters.misses += 1;
                    time += self.geometry.revolution_ns;
                }
            }
        }
        if [range.start, range.end].iter().any(|edge| !edge.is_multiple_of(SECTOR_BYTES)) {
            // The sector is read, and must come around again.
            self.counters.sector_reads += 1;
            time += self.geometry.revolution_ns;
        }
        self.position = ends;
        self.written_to = Some(range.end);
        self.has_written = true;
        self.now_ns + time as u64
    }

    fn start_write(&mut self, command: Command) {
        let range = command.request.offset..command.request.end();
        self.forget_read(&range);
        let begin = self.now_ns;
        let transfer = self.settings.command_write_ns
            + transfer_ns(command.request.length, self.settings.interface_mb_s);
        let end_ns = self.write(&range).max(begin + transfer);
        self.job = Some(Job { end_ns, work: Work::Write });
        self.answer(command.id, end_ns);
    }

    fn start_destage(&mut self, range: Range<u64>) {
        let end = range.end.min(range.start + self.settings.destage_bytes_max);
        let range = range.start..end;
        let number = self.number();
        let bytes = self.dirty.remove(range.clone(), number);
        debug_assert_eq!(bytes, range.end - range.start);
        self.reserved_bytes += bytes;
        self.counters.destages += 1;
        let end_ns = self.write(&range);
        let destaged = Destaged { began_ns: self.now_ns, ended_ns: end_ns, range: range.clone() };
        self.destaged.push_back(destaged);
        self.job = Some(Job { end_ns, work: Work::Destage(range) });
    }

    /// With nothing else to do, or no room for more, a shingled disk cleans a band.
    fn start_cleaning(&mut self) {
        let is_idle = self.now_ns >= self.idle_from_ns() + self.settings.destage_idle_ns;
        let Some(shingles) = &mut self.shingles else { return };
        let Some(band) = shingles.clean(is_idle) else { return };
        let length = band.end - band.start;
        self.counters.cleaned_bands += 1;
        self.end_stream();
        let position = self.geometry.position(band.start);
        let (positioning, _) = self.positioning_ns(self.now_ns as f64, position, false);
        // It is read, merged with what the cache has of it, and written from its start.
        let back = self.geometry.rotation_ns(
            self.now_ns as f64 + positioning + self.passing_ns(band.start, length),
            position,
        );
        let time = positioning
            + 2.0 * self.passing_ns(band.start, length)
            + back
            + self.arm.settle_ns
            + self.settings.write_settle_ns;
        self.position = self.geometry.position(band.end);
        self.written_to = None;
        self.job = Some(Job { end_ns: self.now_ns + time as u64, work: Work::Clean });
    }

    fn end_job(&mut self) {
        let job = self.job.take().expect("one has ended");
        match job.work {
            Work::Destage(range) => self.reserved_bytes -= range.end - range.start,
            Work::EndFlush => self.flush = None,
            Work::Read | Work::Write | Work::Clean => {}
        }
    }

    fn end_transfer(&mut self) {
        let Transfer { command, .. } = self.transfers.pop_front().expect("one has ended");
        let number = self.number();
        self.reserved_bytes -= command.request.length;
        self.dirty.insert(command.request.offset..command.request.end(), number);
    }

    /// What is due next: of the head, of the interface, of doing nothing.
    fn due(&self) -> Option<u64> {
        let job = self.job.as_ref().map(|job| job.end_ns);
        let transfer = self.transfers.front().map(|transfer| transfer.end_ns);
        let is_idle = self.job.is_none() && self.queue.is_empty();
        let wants = match &self.shingles {
            _ if !is_idle => None,
            _ if !self.dirty.is_empty() => Some(self.idle_from_ns()),
            Some(shingles) if shingles.has_dirty() => {
                Some(self.idle_from_ns() + self.settings.destage_idle_ns)
            }
            _ => None,
        };
        let wants = wants.map(|at| at.max(self.now_ns));
        [job, transfer, wants].into_iter().flatten().min()
    }
}

enum Choice {
    /// Its place in the queue.
    Command(usize),
    Destage(Range<u64>),
}

impl DiskModel for HardDisk {
    fn arrive(&mut self, at_ns: u64, id: u64, request: ModelRequest) {
        self.advance(at_ns);
        self.now_ns = self.now_ns.max(at_ns);
        self.asked_ns = self.now_ns;
        self.incoming.push_back(Command { arrived_ns: self.now_ns, id, request, position: 0.0 });
        self.admit();
        self.start();
    }

    fn next_event(&self) -> Option<u64> {
        self.due()
    }

    fn advance(&mut self, to_ns: u64) {
        while let Some(due) = self.due().filter(|due| *due <= to_ns) {
            self.now_ns = self.now_ns.max(due);
            while self.transfers.front().is_some_and(|transfer| transfer.end_ns <= due) {
                self.end_transfer();
            }
            if self.job.as_ref().is_some_and(|job| job.end_ns <= due) {
                self.end_job();
            }
            self.fill_cache();
            self.admit();
            self.start();
        }
        self.now_ns = self.now_ns.max(to_ns);
    }

    fn reply(&mut self) -> Option<DiskReply> {
        self.replies.pop_front()
    }

    fn destaged(&mut self) -> Option<Destaged> {
        self.destaged.pop_front()
    }

    fn volatile_bytes(&self) -> u64 {
        self.dirty.bytes() + self.reserved_bytes
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("seeks", self.counters.seeks),
            ("missed revolutions", self.counters.misses),
            ("reads from the cache", self.counters.read_hits),
            ("writes to the platter", self.counters.destages),
            ("sectors read before they were written", self.counters.sector_reads),
            ("bands cleaned", self.counters.cleaned_bands),
        ]
    }
}
