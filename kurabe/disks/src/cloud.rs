//! A volume across a network: a latency, and two buckets of credits, one of operations, one of bytes.
//!
//! Each bucket fills at the volume's baseline up to its size; a request takes its credits when it
//! begins, and waits until they are there, after those before it. While there are credits, requests
//! follow one another at the burst rate.

use std::collections::VecDeque;

use crate::profile::Parameters;
use crate::random::Random;
use crate::{DiskModel, DiskOperation, DiskReply, ModelRequest, ms, transfer_ns};

/// Credits of one kind. A rate of zero is no limit.
struct Bucket {
    baseline_per_s: f64,
    burst_per_s: f64,
    size: f64,
    credits: f64,
    /// When the next request may begin.
    free_ns: f64,
    filled_ns: f64,
}

impl Bucket {
    fn new(baseline_per_s: f64, burst_per_s: f64, size: f64) -> Bucket {
        let burst_per_s = burst_per_s.max(baseline_per_s);
        Bucket { baseline_per_s, burst_per_s, size, credits: size, free_ns: 0.0, filled_ns: 0.0 }
    }

    /// When a request may begin that takes so many credits.
    fn take(&mut self, at_ns: f64, credits: f64) -> f64 {
        if self.baseline_per_s == 0.0 {
            return at_ns;
        }
        let mut begin = at_ns.max(self.free_ns);
        let earned = (begin - self.filled_ns).max(0.0) * self.baseline_per_s / 1e9;
        self.credits = (self.credits + earned).min(self.size);
        self.filled_ns = self.filled_ns.max(begin);
        // What needs more than fits waits for all that does, and leaves a debt.
        let missing = credits.min(self.size) - self.credits;
        if missing > 0.0 {
            begin += missing * 1e9 / self.baseline_per_s;
            self.credits += missing;
            self.filled_ns = begin;
        }
        self.credits -= credits;
        self.free_ns = begin + credits * 1e9 / self.burst_per_s;
        begin
    }
}

pub struct Cloud {
    operations: Bucket,
    bytes: Bucket,
    latency_read_ns: f64,
    latency_write_ns: f64,
    flush_ns: u64,
    /// Of the logarithm of the latency.
    spread: f64,
    line_mb_s: f64,
    operation_bytes_max: u64,
    random: Random,
    now_ns: u64,
    /// The last acknowledgement of a write, for flushes.
    written_ns: u64,
    replies: VecDeque<DiskReply>,
    throttled: u64,
}

impl Cloud {
    /// A volume of `length` bytes.
    pub fn new(of: &Parameters, length: u64, seed: u64) -> Cloud {
        let gib = length as f64 / (1_u64 << 30) as f64;
        let baseline = of.get("iops_per_gib") * gib;
        let baseline = baseline.max(of.get("iops_min"));
        let baseline = match of.get("iops_max") {
            0.0 => baseline,
            most => baseline.min(most),
        };
        let mb = |name| of.get(name) * 1e6;
        Cloud {
            operations: Bucket::new(baseline, of.get("iops_burst"), of.get("iops_credits")),
            bytes: Bucket::new(mb("mb_s"), mb("mb_s_burst"), mb("mb_credits")),
            latency_read_ns: of.get("latency_read_ms") * 1e6,
            latency_write_ns: of.get("latency_write_ms") * 1e6,
            flush_ns: ms(of.get("flush_ms")),
            spread: of.get("latency_spread"),
            line_mb_s: of.get("interface_mb_s"),
            operation_bytes_max: (of.get("operation_kib") * 1024.0) as u64,
            random: Random::new(seed),
            now_ns: 0,
            written_ns: 0,
            replies: VecDeque::new(),
            throttled: 0,
        }
    }

    fn carry(&mut self, request: &ModelRequest) -> u64 {
        let at = self.now_ns as f64;
        let operations = request.length.div_ceil(self.operation_bytes_max.max(1)).max(1);
        let begin = self.operations.take(at, operations as f64);
        let begin = self.bytes.take(begin, request.length as f64);
        self.throttled += u64::from(begin > at);
        let latency = match request.operation {
            DiskOperation::Read => self.latency_read_ns,
            _ => self.latency_write_ns,
        };
        let spread =
            if self.spread > 0.0 { (self.spread * self.random.normal()).exp() } else { 1.0 };
        let line = match self.line_mb_s {
            0.0 => 0,
            rate => transfer_ns(request.length, rate),
        };
        (begin + latency * spread) as u64 + line
    }
}

impl DiskModel for Cloud {
    fn arrive(&mut self, at_ns: u64, id: u64, request: ModelRequest) {
        self.now_ns = self.now_ns.max(at_ns);
        let at_ns = match request.operation {
            DiskOperation::Read => self.carry(&request),
            DiskOperation::Write => {
                let end = self.carry(&request);
                self.written_ns = self.written_ns.max(end);
                end
            }
            // An acknowledged write is on the other side already.
            DiskOperation::Flush => self.now_ns + self.flush_ns,
            DiskOperation::Discard => self.now_ns + self.latency_write_ns as u64,
        };
        self.replies.push_back(DiskReply { id, at_ns: at_ns.max(self.now_ns) });
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
        0
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("requests that waited for credits", self.throttled)]
    }
}
