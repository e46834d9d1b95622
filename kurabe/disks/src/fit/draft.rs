//! A profile of which not every parameter is known yet.

use std::io;

use super::{Bench, Cache, FitError, MIB, USUAL_RPM};
use crate::hard::geometry::{Arm, Geometry};
use crate::virtual_host::VirtualHost;
use crate::{DiskProfile, ProfileError};

/// Why a value is the one it is, until something shows it.
const ASSUMED: &str = "assumed: 'kurabe disk fit' does not measure it";

/// The parameters so far.
pub struct Draft {
    name: String,
    size_bytes: u64,
    values: Vec<(&'static str, f64, &'static str)>,
    /// Share of the capacity, and MB/s.
    pub rates: Vec<(f64, f64)>,
}

impl Draft {
    pub fn new(name: &str, size_bytes: u64, sector_bytes: u32) -> Draft {
        let measured = "the device's";
        let values = vec![
            ("capacity_bytes", size_bytes as f64, measured),
            ("sector_bytes", f64::from(sector_bytes), measured),
            ("rpm", 7200.0, ASSUMED),
            ("seek_settle_ms", 1.0, ASSUMED),
            ("seek_root_ms", 14.0, ASSUMED),
            ("seek_linear_ms", 9.0, ASSUMED),
            ("seek_knee", 0.25, ASSUMED),
            ("write_settle_ms", 0.0, ASSUMED),
            ("write_slip", 0.0, ASSUMED),
            ("miss_chance", 0.0, ASSUMED),
            ("write_miss_chance", 0.0, ASSUMED),
            ("access_ms", 0.3, ASSUMED),
            ("command_read_ms", 0.1, ASSUMED),
            ("command_write_ms", 0.2, ASSUMED),
            ("interface_mb_s", 500.0, ASSUMED),
            ("queue_depth", 32.0, ASSUMED),
            ("age_limit_ms", 500.0, ASSUMED),
            ("read_ahead_mib", 2.0, ASSUMED),
            ("write_cache_mib", 16.0, ASSUMED),
            ("destage_start", 0.5, ASSUMED),
            ("destage_stop", 0.25, ASSUMED),
            ("destage_mib", 1.0, ASSUMED),
            ("destage_window", 32.0, ASSUMED),
            ("destage_idle_ms", 50.0, ASSUMED),
            ("flush_ms", 0.2, ASSUMED),
            ("flush_written_ms", 0.0, ASSUMED),
            ("shingle_band_mib", 0.0, ASSUMED),
            ("shingle_cache_gib", 0.0, ASSUMED),
        ];
        Draft { name: name.into(), size_bytes, values, rates: vec![(0.0, 200.0), (1.0, 100.0)] }
    }

    fn entry(&mut self, name: &str) -> &mut (&'static str, f64, &'static str) {
        self.values.iter_mut().find(|one| one.0 == name).expect("a parameter of a hard disk")
    }

    fn get(&self, name: &str) -> f64 {
        self.values.iter().find(|one| one.0 == name).expect("a parameter of a hard disk").1
    }

    pub fn set(&mut self, name: &str, value: f64, source: &'static str) {
        let entry = self.entry(name);
        // More digits than a microsecond's say nothing.
        (entry.1, entry.2) = ((value * 1000.0).round() / 1000.0, source);
    }

    pub fn geometry(&self) -> Geometry {
        Geometry::new(self.size_bytes, self.get("rpm"), &self.rates)
    }

    pub fn rpm(&mut self, revolution_ns: f64) {
        let rpm = 60e9 / revolution_ns;
        let usual = USUAL_RPM.into_iter().find(|usual| (rpm / usual - 1.0).abs() < 0.03);
        let source = match usual {
            Some(_) => {
                "measured: how far the times of reads at one distance are apart, as the next usual number"
            }
            None => "measured: how far the times of reads at one distance are apart",
        };
        self.set("rpm", usual.unwrap_or_else(|| rpm.round()), source);
    }

    pub fn seek_ns(&self, distance: f64) -> f64 {
        let ns = |name| self.get(name) * 1e6;
        let arm = Arm {
            settle_ns: ns("seek_settle_ms"),
            root_ns: ns("seek_root_ms"),
            linear_ns: ns("seek_linear_ms"),
            knee: self.get("seek_knee"),
        };
        arm.seek_ns(distance)
    }

    /// The arm that needs these times for these distances, besides `still_ns`: the least squares for each knee, and the knee
    /// with the least of them.
    pub fn arm(&mut self, seeks: &[(f64, f64)], still_ns: f64) {
        let mut best: Option<(f64, [f64; 3], f64)> = None;
        for hundredths in 2..=60 {
            let knee = f64::from(hundredths) / 100.0;
            let rows: Vec<([f64; 3], f64)> = seeks
                .iter()
                .map(|(distance, ns)| {
                    let columns = [1.0, distance.min(knee).sqrt(), (distance - knee).max(0.0)];
                    (columns, (ns - still_ns) / 1e6)
                })
                .collect();
            let Some(found) = least_squares(&rows) else { continue };
            let found = found.map(|value| value.max(0.0));
            let error = rows
                .iter()
                .map(|(row, ms)| {
                    (row.iter().zip(found).map(|(one, by)| one * by).sum::<f64>() - ms).powi(2)
                })
                .sum();
            if best.as_ref().is_none_or(|(least, ..)| error < *least) {
                best = Some((error, found, knee));
            }
        }
        let Some((_, [settle, root, linear], knee)) = best else { return };
        let source = "fitted to reads at twelve distances";
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        self.set("seek_settle_ms", rounded(settle), source);
        self.set("seek_root_ms", rounded(root), source);
        self.set("seek_linear_ms", rounded(linear), source);
        self.set("seek_knee", knee, source);
    }

    pub fn cache(&mut self, cache: &Cache) {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let source = match cache.bytes {
            0 => "assumed: there is no write cache to measure it by",
            _ => "measured: writes of 4 and 256 KiB into the cache",
        };
        self.set("command_write_ms", rounded(cache.command_ns / 1e6), source);
        self.set("interface_mb_s", cache.interface_mb_s.round(), source);
        let source = "measured: scattered writes until one had to wait";
        self.set("write_cache_mib", cache.bytes as f64 / MIB as f64, source);
    }

    /// Which value of a parameter makes the model answer most alike.
    pub fn choose(
        &mut self,
        name: &'static str,
        values: &[f64],
        source: &'static str,
        mut off: impl FnMut(&mut Bench<'_>) -> io::Result<f64>,
    ) -> Result<(), FitError> {
        let mut best: Option<(f64, f64)> = None;
        for value in values {
            self.set(name, *value, source);
            let off = off(&mut Bench::new(&mut self.model()?))?;
            if best.is_none_or(|(least, _)| off < least) {
                best = Some((off, *value));
            }
        }
        if let Some((_, value)) = best {
            self.set(name, value, source);
        }
        Ok(())
    }

    /// How what a write needs more than a seek is divided, and from how many writes the next one is chosen.
    pub fn writes(
        &mut self,
        more_ns: f64,
        mut off: impl FnMut(&mut Bench<'_>) -> io::Result<f64>,
    ) -> Result<(), FitError> {
        let source = "fitted to flushes after 1, 8 and 64 scattered writes";
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        let mut best: Option<(f64, [f64; 3])> = None;
        for window in [1.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
            for tenth in 0..=10 {
                let settle = rounded(more_ns / 1e6 * f64::from(tenth) / 10.0);
                let values = [window, settle, rounded(more_ns / 1e6 - settle)];
                self.set_writes(values, source);
                let off = off(&mut Bench::new(&mut self.model()?))?;
                if best.is_none_or(|(least, _)| off < least) {
                    best = Some((off, values));
                }
            }
        }
        let (_, values) = best.expect("something was tried");
        self.set_writes(values, source);
        Ok(())
    }

    fn set_writes(&mut self, [window, settle_ms, flush_ms]: [f64; 3], source: &'static str) {
        self.set("destage_window", window, source);
        self.set("write_settle_ms", settle_ms, source);
        self.set("flush_written_ms", flush_ms.max(0.0), source);
    }

    /// A disk of what is known so far.
    pub fn model(&self) -> Result<(VirtualHost, u64), ProfileError> {
        let (_, profile) = self.profile()?;
        Ok((VirtualHost::of(&profile, self.size_bytes)?, self.size_bytes))
    }

    pub fn profile(&self) -> Result<(String, DiskProfile), ProfileError> {
        let pairs = self.rates.iter().map(|(at, rate)| format!("[{at:?}, {rate}]"));
        let rates = pairs.collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "name = {:?}\ntitle = \"a disk that 'kurabe disk fit' measured\"\nkind = \"hard-disk\"\n\n\
             rates = {{ value = [{rates}], source = \"measured: reads in order\" }}\n",
            self.name
        );
        for (name, value, source) in &self.values {
            text.push_str(&format!("{name} = {{ value = {value}, source = \"{source}\" }}\n"));
        }
        let profile = DiskProfile::parse(&text, &self.name)?;
        Ok((text, profile))
    }
}

/// Three factors of least squares, where the rows determine them.
fn least_squares(rows: &[([f64; 3], f64)]) -> Option<[f64; 3]> {
    let sum = |one: usize, other: usize| -> f64 {
        rows.iter().map(|row| row.0[one] * row.0[other]).sum()
    };
    let right = |one: usize| -> f64 { rows.iter().map(|row| row.0[one] * row.1).sum() };
    let matrix: [[f64; 3]; 3] =
        std::array::from_fn(|row| std::array::from_fn(|column| sum(row, column)));
    let right: [f64; 3] = std::array::from_fn(right);
    let determinant = |of: [[f64; 3]; 3]| -> f64 {
        (0..3)
            .map(|at| {
                let (next, last) = ((at + 1) % 3, (at + 2) % 3);
                of[0][at] * (of[1][next] * of[2][last] - of[1][last] * of[2][next])
            })
            .sum()
    };
    let whole = determinant(matrix);
    // Cramer's rule.
    (whole.abs() > 1e-12).then(|| {
        std::array::from_fn(|column| {
            let mut one = matrix;
            for row in 0..3 {
                one[row][column] = right[row];
            }
            determinant(one) / whole
        })
    })
}
