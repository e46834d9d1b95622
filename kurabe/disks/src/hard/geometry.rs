//! Where a byte lies on a hard disk, and how long the head takes to get there.
//!
//! Position is measured in revolutions: how many turns of the platter lie before a byte when the disk
//! is read from its first byte to its last. Its whole part is the track, its fraction the angle. Skew
//! between tracks is part of the transfer rate, so that a sequential transfer takes exactly the
//! difference of two positions.

/// Rate in MB/s from one byte on, falling linearly to that of the next point.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: f64,
    rate: f64,
    /// Change of the rate per byte.
    slope: f64,
    /// Revolutions before `start`.
    turns: f64,
}

/// The surface of a disk.
#[derive(Debug)]
pub struct Geometry {
    pieces: Vec<Piece>,
    /// Bytes per turn and MB/s of rate: the time of a revolution in s, times 10^6.
    bytes_per_rate: f64,
    turns: f64,
    pub revolution_ns: f64,
}

impl Geometry {
    /// `rates`: share of the capacity and MB/s there, from 0 to 1.
    pub fn new(capacity_bytes: u64, rpm: f64, rates: &[(f64, f64)]) -> Geometry {
        let revolution_ns = 60e9 / rpm;
        let bytes_per_rate = revolution_ns / 1e3;
        let (mut pieces, mut turns) = (Vec::new(), 0.0);
        for pair in rates.windows(2) {
            let [(from, rate), (to, next)] = [pair[0], pair[1]];
            let start = from * capacity_bytes as f64;
            let length = (to - from) * capacity_bytes as f64;
            let piece = Piece { start, rate, slope: (next - rate) / length, turns };
            turns += piece.turns_until(start + length, bytes_per_rate);
            pieces.push(piece);
        }
        Geometry { pieces, bytes_per_rate, turns, revolution_ns }
    }

    fn piece(&self, byte: u64) -> &Piece {
        let after = self.pieces.partition_point(|piece| piece.start <= byte as f64);
        &self.pieces[after.saturating_sub(1)]
    }

    /// Position of a byte in revolutions.
    pub fn position(&self, byte: u64) -> f64 {
        let piece = self.piece(byte);
        piece.turns + piece.turns_until(byte as f64, self.bytes_per_rate)
    }

    /// Transfer rate at a byte, in MB/s.
    pub fn rate(&self, byte: u64) -> f64 {
        let piece = self.piece(byte);
        piece.rate + piece.slope * (byte as f64 - piece.start)
    }

    /// Revolutions in all, which is the number of tracks.
    pub fn tracks(&self) -> f64 {
        self.turns
    }

    /// How long until the platter has come from the angle at a time to that of a position, in ns.
    pub fn rotation_ns(&self, at_ns: f64, position: f64) -> f64 {
        let angle = at_ns / self.revolution_ns;
        let wait = position.fract() - angle.fract();
        let wait = if wait < 0.0 { wait + 1.0 } else { wait };
        // What is right below the head, but for rounding, need not come around once more.
        if wait > 1.0 - 1e-7 { 0.0 } else { wait * self.revolution_ns }
    }
}

impl Piece {
    /// The integral of the inverse of the bytes per turn.
    fn turns_until(&self, byte: f64, bytes_per_rate: f64) -> f64 {
        let length = byte - self.start;
        let change = self.slope * length / self.rate;
        // The logarithm loses its digits where the rate hardly changes.
        let turns = if change.abs() < 1e-4 {
            length / self.rate * (1.0 - change / 2.0 + change * change / 3.0)
        } else {
            change.ln_1p() / self.slope
        };
        turns / bytes_per_rate
    }
}

/// How long the arm takes: a time to settle, a part that grows with the square root of the distance
/// (it accelerates and brakes), and from the knee on a linear part (it moves at full speed).
#[derive(Debug, Clone, Copy)]
pub struct Arm {
    pub settle_ns: f64,
    /// At a distance of all tracks, if there were no knee.
    pub root_ns: f64,
    pub linear_ns: f64,
    /// Share of all tracks.
    pub knee: f64,
}

impl Arm {
    /// `distance` is a share of all tracks.
    pub fn seek_ns(&self, distance: f64) -> f64 {
        let short = self.settle_ns + self.root_ns * distance.min(self.knee).sqrt();
        short + self.linear_ns * (distance - self.knee).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1_000_204_886_016;

    fn geometry() -> Geometry {
        Geometry::new(CAPACITY, 7200.0, &[(0.0, 210.0), (0.5, 165.0), (1.0, 102.0)])
    }

    #[test]
    fn positions_grow_and_bytes_between_them_fit_the_rate() {
        let geometry = geometry();
        let step = CAPACITY / 9973;
        let mut before = geometry.position(0);
        assert_eq!(before, 0.0);
        for at in 1..9973 {
            let position = geometry.position(at * step);
            assert!(position > before);
            let rate = step as f64 / ((position - before) * geometry.revolution_ns) * 1e3;
            let (fast, slow) = (geometry.rate((at - 1) * step), geometry.rate(at * step));
            assert!(rate <= fast * 1.0001 && rate >= slow * 0.9999, "{rate} {fast} {slow}");
            before = position;
        }
    }

    /// The tracks hold the capacity: the sum of what each holds.
    #[test]
    fn the_capacity_is_conserved() {
        let geometry = geometry();
        let (mut byte, mut bytes) = (0.0, 0.0);
        while (byte as u64) < CAPACITY {
            let track = geometry.rate(byte as u64) * geometry.bytes_per_rate;
            (byte, bytes) = (byte + track * 16.0, bytes + 16.0);
        }
        assert!((bytes / geometry.tracks() - 1.0).abs() < 1e-3, "{bytes} {}", geometry.tracks());
        assert!((geometry.position(CAPACITY) - geometry.tracks()).abs() < 1e-6);
    }

    #[test]
    fn seeks_grow_with_the_distance() {
        let arm = Arm { settle_ns: 1.2e6, root_ns: 14e6, linear_ns: 9e6, knee: 0.25 };
        let mut before = 0.0;
        for step in 0..=100_000 {
            let seek = arm.seek_ns(f64::from(step) / 1e5);
            assert!(seek > before, "step {step}");
            before = seek;
        }
    }

    #[test]
    fn the_platter_comes_around_once_a_revolution() {
        let geometry = geometry();
        for step in 0..1000_u32 {
            let (at, position) = (f64::from(step) * 12_345.6, f64::from(step) * 0.37);
            let wait = geometry.rotation_ns(at, position);
            assert!((0.0..geometry.revolution_ns).contains(&wait));
            assert!(geometry.rotation_ns(at + wait, position) < 10.0, "step {step}");
        }
    }
}
