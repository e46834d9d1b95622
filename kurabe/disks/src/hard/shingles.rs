//! A drive-managed shingled disk: tracks overlap in bands, and a band can only be written from its start.
//!
//! A write that goes on where its band was last written to goes there. Every other goes to the end of
//! a cache of ordinary tracks at the outer edge, and its band is cleaned later: read, merged, written anew
//! (Aghayev and Desnoyers, "Skylight", FAST 2015).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use crate::profile::Parameters;

/// Granularity in which the place of a byte in the cache is remembered.
const PIECE_BYTES: u64 = 4096;
/// Share of the cache from which on bands are cleaned while the host waits.
const FULL: f64 = 0.95;

/// Where everything is.
pub struct Shingles {
    band_bytes: u64,
    cache_bytes: u64,
    /// Where each band may be written to, if anything was; others are as full as they were delivered.
    ends: HashMap<u64, u64>,
    /// Pieces that are in the cache: where.
    pieces: BTreeMap<u64, u64>,
    /// Bands that have pieces there, the oldest first.
    dirty: VecDeque<u64>,
    is_dirty: HashSet<u64>,
    /// Bytes written to the cache that were not cleaned.
    used_bytes: u64,
    cursor: u64,
}

impl Shingles {
    pub fn new(of: &Parameters) -> Shingles {
        Shingles {
            band_bytes: (of.get("shingle_band_mib") * (1 << 20) as f64) as u64,
            cache_bytes: (of.get("shingle_cache_gib") * (1 << 30) as f64) as u64,
            ends: HashMap::new(),
            pieces: BTreeMap::new(),
            dirty: VecDeque::new(),
            is_dirty: HashSet::new(),
            used_bytes: 0,
            cursor: 0,
        }
    }

    /// Bytes at the outer edge that the host does not see.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    pub fn is_full(&self) -> bool {
        self.has_dirty() && self.used_bytes as f64 > FULL * self.cache_bytes as f64
    }

    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Where on the platters a byte of the host's is.
    pub fn place(&self, byte: u64) -> u64 {
        let cached = self.pieces.get(&(byte / PIECE_BYTES));
        cached.map_or(self.cache_bytes + byte, |piece| piece + byte % PIECE_BYTES)
    }

    /// Decides where a write goes.
    pub fn write(&mut self, range: &Range<u64>) -> u64 {
        let band = range.start / self.band_bytes;
        let base = band * self.band_bytes;
        let within = range.end <= base + self.band_bytes;
        let end = self.ends.get(&band).copied().unwrap_or(base);
        if within && range.start == end && !self.is_dirty.contains(&band) {
            self.ends.insert(band, range.end);
            if range.end == base + self.band_bytes {
                self.ends.remove(&band);
            }
            return self.cache_bytes + range.start;
        }
        let length = range.end - range.start;
        if self.cursor + length > self.cache_bytes {
            self.cursor = 0;
        }
        let at = self.cursor;
        self.cursor += length;
        self.used_bytes += length;
        for piece in range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES) {
            let offset = (piece * PIECE_BYTES).saturating_sub(range.start);
            self.pieces.insert(piece, at + offset);
        }
        for band in band..=(range.end - 1) / self.band_bytes {
            if self.is_dirty.insert(band) {
                self.dirty.push_back(band);
            }
        }
        at
    }

    /// Takes a band to clean, as places on the platters: if the cache is almost full, or the disk idle.
    pub fn clean(&mut self, is_idle: bool) -> Option<Range<u64>> {
        if !is_idle && !self.is_full() {
            return None;
        }
        let band = self.dirty.pop_front()?;
        self.is_dirty.remove(&band);
        let (start, end) = (band * self.band_bytes, (band + 1) * self.band_bytes);
        let pieces = start / PIECE_BYTES..end / PIECE_BYTES;
        let cached: Vec<u64> = self.pieces.range(pieces).map(|(piece, _)| *piece).collect();
        for piece in &cached {
            self.pieces.remove(piece);
        }
        self.used_bytes = self.used_bytes.saturating_sub(cached.len() as u64 * PIECE_BYTES);
        if self.dirty.is_empty() {
            self.used_bytes = 0;
        }
        self.ends.remove(&band);
        Some(self.cache_bytes + start..self.cache_bytes + end)
    }
}
