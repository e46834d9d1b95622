//! A model driven by the real clock under a block device: each request is carried out on what lies
//! below, and answered when the model says so.
//!
//! All requests share one model. A thread whose reply is fixed sleeps until then by itself. Of those
//! whose reply is not fixed yet, one wakes at the model's next event and advances it; late waking moves
//! no event of the model, and how late replies are is counted.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use block::BlockDevice;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::extents::Extents;
use crate::profile::{DiskProfile, Placed, ProfileError};
use crate::trace::{TraceEntry, TraceRecorder};
use crate::{Destaged, DiskModel, DiskOperation, ModelRequest};

/// The p99 lateness of replies above which a run is marked.
pub const LATE_NS: u64 = 130_000;
/// A longer lateness counts as this.
const LATENESS_NS_MAX: u64 = 60_000_000_000;

/// A device that answers as a modelled disk would.
pub struct Emulated<D> {
    inner: D,
    profile: DiskProfile,
    placed: Placed,
    state: Mutex<State>,
    began: Instant,
}

struct State {
    disk: Box<dyn DiskModel>,
    next_id: u64,
    /// When each waiting request is answered, once that is fixed.
    fixed: HashMap<u64, u64>,
    /// Those that wait for that: one of them leads.
    waiting: HashMap<u64, Arc<Condvar>>,
    leader: Option<u64>,
    lateness: Histogram<u64>,
    trace: TraceRecorder,
    /// What left the cache, where that is followed.
    destaged: Option<Vec<Destaged>>,
    model_ns: u64,
    calls: u64,
    /// What is said of it, once the part that matters is over.
    said: Option<Value>,
}

/// How late replies were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyLateness {
    pub replies: u64,
    /// Half were not later, in ns.
    pub p50_ns: u64,
    /// All but one of a hundred were not.
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl<D: BlockDevice> Emulated<D> {
    /// The profile's disk in front of `inner`, of which that is a slice.
    ///
    /// Errors: the slice does not fit on the disk.
    pub fn new(inner: D, profile: DiskProfile) -> Result<Emulated<D>, ProfileError> {
        let (disk, placed) = profile.disk(inner.len())?;
        let state = State {
            disk,
            next_id: 0,
            fixed: HashMap::new(),
            waiting: HashMap::new(),
            leader: None,
            lateness: Histogram::new_with_bounds(1, LATENESS_NS_MAX, 2).expect("sound bounds"),
            trace: TraceRecorder::new(inner.len()),
            destaged: None,
            model_ns: 0,
            calls: 0,
            said: None,
        };
        Ok(Emulated { inner, profile, placed, state: Mutex::new(state), began: Instant::now() })
    }

    /// How late replies were.
    pub fn lateness(&self) -> ReplyLateness {
        self.lock().lateness()
    }

    /// Begins what is said of it: lateness and picture, but for the counters.
    pub fn begin(&self) {
        let mut state = self.lock();
        let now = self.now_ns();
        state.lateness.reset();
        (state.model_ns, state.calls, state.said) = (0, 0, None);
        state.trace.begin_picture(now);
    }

    /// Ends what is said of it. Requests go on to be answered.
    pub fn end(&self) {
        let said = self.facts();
        self.lock().said = Some(said);
    }

    /// What a record says of it: from [`Emulated::begin`] to [`Emulated::end`], or of all.
    pub fn facts(&self) -> Value {
        let state = self.lock();
        if let Some(said) = &state.said {
            return said.clone();
        }
        let lateness = state.lateness();
        let counters: serde_json::Map<String, Value> =
            state.disk.counters().into_iter().map(|(name, n)| (name.into(), n.into())).collect();
        json!({
            "profile": self.profile.words,
            "layer": self.profile.kind.layer(),
            "title": self.profile.title,
            "seed": self.profile.seed,
            "lateness": {
                "replies": lateness.replies,
                "p50_ns": lateness.p50_ns,
                "p99_ns": lateness.p99_ns,
                "max_ns": lateness.max_ns,
                "limit_ns": LATE_NS,
            },
            "model_ns_per_request": state.model_ns / state.calls.max(1),
            "counters": counters,
            "picture": state.trace.picture(),
        })
    }

    /// Hands out the trace so far. Requests wait meanwhile.
    pub fn with_trace<T>(&self, take: impl FnOnce(&mut TraceRecorder) -> T) -> T {
        take(&mut self.lock().trace)
    }

    /// Keeps from now on what [`Emulated::durable`] needs.
    pub fn follow_cache(&self) {
        self.lock().destaged = Some(Vec::new());
    }

    /// When each of these writes had left the cache for where it is durable, if it had; of each is known when it was
    /// answered, and which bytes it wrote. None where the model does not tell, or nobody followed it.
    pub fn durable(&self, writes: &[(Instant, Range<u64>)]) -> Vec<Option<Instant>> {
        let mut state = self.lock();
        let now = self.now_ns();
        state.disk.advance(now);
        state.take_replies(None);
        state.appoint();
        let Some(destaged) = &state.destaged else { return vec![None; writes.len()] };
        let durable = writes.iter().map(|(replied, range)| {
            if !self.profile.has_write_cache() {
                return Some(*replied);
            }
            let replied_ns = replied.saturating_duration_since(self.began).as_nanos() as u64;
            let placed =
                self.placed.place(ModelRequest::write(range.start, range.end - range.start));
            let mut left = Extents::default();
            left.insert(placed.offset..placed.end(), 0);
            // What was taken before the reply may have been taken before the write.
            let first = destaged.partition_point(|one| one.began_ns < replied_ns);
            let (_, one) = (1..).zip(&destaged[first..]).find(|(number, one)| {
                left.remove(one.range.clone(), *number);
                left.is_empty()
            })?;
            Some(self.began + Duration::from_nanos(one.ended_ns)).filter(|_| one.ended_ns <= now)
        });
        durable.collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no model panics")
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Carries a request out, and waits for the disk's reply.
    fn carry<T>(
        &self,
        request: ModelRequest,
        act: impl FnOnce(&D) -> io::Result<T>,
    ) -> io::Result<T> {
        let (id, arrived_ns, fixed_ns) = {
            let mut state = self.lock();
            let now = self.now_ns();
            let id = state.next_id;
            state.next_id += 1;
            state.disk.arrive(now, id, self.placed.place(request));
            let fixed_ns = state.take_replies(Some(id));
            if fixed_ns.is_none() {
                state.waiting.insert(id, Arc::default());
            }
            state.model_ns += self.now_ns() - now;
            state.calls += 1;
            // The next event may be nearer than what the leader waits for.
            if let Some(condvar) = state.leader.and_then(|leader| state.waiting.get(&leader)) {
                condvar.notify_one();
            }
            (id, now, fixed_ns)
        };
        let result = act(&self.inner);
        let at_ns = fixed_ns.unwrap_or_else(|| self.await_reply(id));
        let mut replied_ns = self.now_ns();
        if replied_ns < at_ns {
            block::wait_until(self.began + Duration::from_nanos(at_ns));
            replied_ns = self.now_ns().max(at_ns);
        }
        let mut state = self.lock();
        let late_ns = replied_ns - at_ns;
        state.lateness.saturating_record(late_ns.max(1));
        // Others may wait for what the disk does next.
        state.disk.advance(at_ns);
        state.take_replies(None);
        state.appoint();
        state.trace.record(TraceEntry { arrived_ns, replied_ns, request, metadata: false });
        result
    }

    /// Waits until it is known when the request is answered.
    fn await_reply(&self, id: u64) -> u64 {
        let mut state = self.lock();
        loop {
            if let Some(at_ns) = state.fixed.remove(&id) {
                state.appoint();
                return at_ns;
            }
            let condvar = state.waiting[&id].clone();
            if state.leader.is_some_and(|leader| leader != id) {
                state = block::waiting(|| condvar.wait(state)).expect("no model panics");
                continue;
            }
            state.leader = Some(id);
            let now = self.now_ns();
            match state.disk.next_event() {
                Some(due) if due <= now => {
                    state.disk.advance(now);
                    state.take_replies(None);
                }
                due => {
                    // A model that owes a reply has something ahead; without it, look again.
                    let wait = due.map_or(1_000_000, |due| due - now);
                    let wait = Duration::from_nanos(wait);
                    let waited = block::waiting(|| condvar.wait_timeout(state, wait));
                    state = waited.expect("no model panics").0;
                }
            }
        }
    }
}

impl State {
    /// Notes which replies are fixed by now. Gives that of the request which has just arrived, `own`: it does not wait
    /// yet.
    fn take_replies(&mut self, own: Option<u64>) -> Option<u64> {
        while let Some(destaged) = self.disk.destaged() {
            if let Some(all) = &mut self.destaged {
                all.push(destaged);
            }
        }
        let mut own_ns = None;
        while let Some(reply) = self.disk.reply() {
            if own == Some(reply.id) {
                own_ns = Some(reply.at_ns);
                continue;
            }
            self.fixed.insert(reply.id, reply.at_ns);
            if self.leader == Some(reply.id) {
                self.leader = None;
            }
            if let Some(condvar) = self.waiting.remove(&reply.id) {
                condvar.notify_one();
            }
        }
        own_ns
    }

    /// Makes sure that somebody leads, where somebody waits.
    fn appoint(&mut self) {
        if self.leader.is_none()
            && let Some((id, condvar)) = self.waiting.iter().next()
        {
            self.leader = Some(*id);
            condvar.notify_one();
        }
    }

    fn lateness(&self) -> ReplyLateness {
        ReplyLateness {
            replies: self.lateness.len(),
            p50_ns: self.lateness.value_at_quantile(0.5),
            p99_ns: self.lateness.value_at_quantile(0.99),
            max_ns: self.lateness.max(),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Emulated<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size().max(self.profile.sector_bytes())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let request = ModelRequest::read(offset, buffer.len() as u64);
        self.carry(request, |inner| inner.read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let request = ModelRequest::write(offset, buffer.len() as u64);
        self.carry(request, |inner| inner.write_at(buffer, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.carry(ModelRequest::flush(), D::flush)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.carry(ModelRequest::discard(offset, length), |inner| inner.discard(offset, length))
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        // Flash forgets what must read as zeros; other disks write them.
        let operation = match self.profile.kind {
            crate::DiskKind::Flash => DiskOperation::Discard,
            _ => DiskOperation::Write,
        };
        let request = ModelRequest { operation, offset, length };
        self.carry(request, |inner| inner.zero_range(offset, length))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

#[cfg(test)]
mod tests {
    use block::MemoryDevice;

    use super::*;
    use crate::DiskKind;

    fn disk(kind: DiskKind, words: &str) -> Emulated<MemoryDevice> {
        let profile = DiskProfile::read(kind, words).unwrap();
        let disk = Emulated::new(MemoryDevice::new(64 << 20, 4096), profile).unwrap();
        disk.follow_cache();
        disk
    }

    #[test]
    fn a_write_stays_in_the_cache_until_the_disk_is_idle() {
        let disk = disk(DiskKind::Hard, "7200rpm");
        disk.write_at(&[1; 8192], 1 << 20).unwrap();
        let write = [(Instant::now(), 1 << 20..(1 << 20) + 8192)];
        let durable = loop {
            if let Some(durable) = disk.durable(&write)[0] {
                break durable;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(durable > write[0].0);
        // What was not written never leaves the cache.
        assert_eq!(disk.durable(&[(write[0].0, 0..4096)]), [None]);
    }

    #[test]
    fn without_a_cache_that_forgets_what_was_answered_is_durable() {
        for (kind, words, is_durable) in [
            (DiskKind::Hard, "7200rpm,write_cache_mib=0", true),
            (DiskKind::Cloud, "gp3", true),
            (DiskKind::Flash, "nvme,power_loss_protection=1", true),
            (DiskKind::Flash, "nvme", false),
        ] {
            let disk = disk(kind, words);
            disk.write_at(&[1; 4096], 0).unwrap();
            let replied = Instant::now();
            let durable = disk.durable(&[(replied, 0..4096)]);
            assert_eq!(durable, [is_durable.then_some(replied)], "{words}");
        }
    }
}
