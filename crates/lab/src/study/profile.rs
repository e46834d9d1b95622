//! Smaller and larger versions of a study: its own quick profile, and a factor on everything.
//!
//! Both change the study as written, so that what is printed, stored and carried out is one text.

use serde::{Deserialize, Serialize};

use super::workload::{
    BONNIE_SIZE_DEFAULT, DBENCH_SECONDS_DEFAULT, MATRIX_CELL_DEFAULT, MATRIX_SIZE_DEFAULT,
};
use super::{StudyError, StudyText, WorkloadText, error};
use crate::device::{DEFAULT_DEVICE, DeviceName};
use crate::quantity::{parse_duration, parse_size, size_text};

/// What a quick profile changes of its study. The field names are keys of the study file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct QuickText {
    /// The device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Exactly so many blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// At least so many blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_runs: Option<u32>,
    /// At most so many blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u32>,
    /// Blocks that are carried out first and not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<u32>,
    /// Bound on the whole study.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Bound on one trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Bound on the wait for an idle device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_wait: Option<String>,
    /// Factor on every load, as `--scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
}

/// What a quick profile changes of one workload, before the profile's own factor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct WorkloadQuickText {
    /// Another tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Another fio job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<String>,
    /// Another factor on the counts of an object program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Other block sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_size: Vec<String>,
    /// Another size of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Another time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// Greatest and least factor that is believed.
const FACTOR_RANGE: std::ops::RangeInclusive<f64> = 1e-6..=1e3;
/// Files of scaled loads are a multiple of this, so that any block size divides them.
const FILE_STEP_BYTES: u64 = 1 << 20;

impl StudyText {
    /// The study under its quick profile, which is taken out of it.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn quickened(&self) -> Result<StudyText, StudyError> {
        let mut text = self.clone();
        let Some(quick) = text.quick.take() else {
            return Err(error(
                "quick",
                "the study has no quick profile; write [quick] in its file, or give --scale",
            ));
        };
        fn set<T>(target: &mut Option<T>, value: Option<T>) {
            if value.is_some() {
                *target = value;
            }
        }
        set(&mut text.device, quick.device);
        if quick.runs.is_some() || quick.min_runs.is_some() || quick.max_runs.is_some() {
            text.runs = quick.runs;
            text.min_runs = quick.min_runs;
            text.max_runs = quick.max_runs;
        }
        set(&mut text.warmup, quick.warmup);
        set(&mut text.budget, quick.budget);
        set(&mut text.timeout, quick.timeout);
        set(&mut text.idle_wait, quick.idle_wait);
        for workload in &mut text.workloads {
            let Some(quick) = workload.quick.take() else { continue };
            set(&mut workload.tree, quick.tree);
            set(&mut workload.fio, quick.fio);
            set(&mut workload.scale, quick.scale);
            set(&mut workload.size, quick.size);
            set(&mut workload.time, quick.time);
            if !quick.block_size.is_empty() {
                workload.block_size = quick.block_size;
            }
        }
        if let Some(factor) = quick.scale {
            text.scale_loads(factor).map_err(|found| error("quick.scale", found.problem))?;
        }
        Ok(text)
    }

    /// Multiplies the amount of work of every load:
    ///
    /// | load | what is multiplied | not below |
    /// | --- | --- | --- |
    /// | `objects`, `program` | the counts of the program | 1 of each |
    /// | `tree = "synthetic:N"` | the files | 1 |
    /// | `fio` options | `size`, `filesize`, `io_size`; `runtime` | 1 MiB; 1 s |
    /// | `fio-matrix` | `size` of the files, `time` of a cell | 16 MiB; 100 ms |
    /// | `dbench`, `dbench-replay` | `time` | 1 s |
    /// | `bonnie` | `size` | 1 MiB |
    ///
    /// Commands, tarballs and fio job files stay as they are.
    ///
    /// # Errors
    ///
    /// A factor that is not from a millionth to a thousand; sizes and times that cannot be read.
    pub fn scale_loads(&mut self, factor: f64) -> Result<(), StudyError> {
        if !FACTOR_RANGE.contains(&factor) {
            return Err(error(
                "scale",
                format!("{factor} is no factor from 0.000001 to 1000, such as 0.01"),
            ));
        }
        for (index, workload) in self.workloads.iter_mut().enumerate() {
            workload.scale_load(factor, index)?;
        }
        Ok(())
    }

    /// Scales the device, where it is one that is made; see [`DeviceName::scaled`].
    pub fn scale_device(&mut self, factor: f64) {
        let text = self.device.as_deref().unwrap_or(DEFAULT_DEVICE);
        // What cannot be read is refused when the study is validated.
        if let Ok(device) = DeviceName::parse(text) {
            self.device = Some(device.scaled(factor).to_string());
        }
    }
}

impl WorkloadText {
    fn scale_load(&mut self, factor: f64, index: usize) -> Result<(), StudyError> {
        let field = |name: &str| format!("workload[{index}].{name}");
        if self.objects.is_some() || self.program.is_some() {
            self.scale = Some(self.scale.unwrap_or(1.0) * factor);
        }
        if let Some(files) = self.tree.as_ref().and_then(|text| text.strip_prefix("synthetic:"))
            && let Ok(files) = files.parse::<u64>()
        {
            let files = ((files as f64 * factor).round() as u64).max(1);
            self.tree = Some(format!("synthetic:{files}"));
        }
        if let Some(text) = &self.fio {
            self.fio = Some(scale_fio(text, factor));
        }
        if self.fio_matrix {
            // Sixteen files of at least a mebibyte.
            self.scale_size(factor, MATRIX_SIZE_DEFAULT, 16 * FILE_STEP_BYTES, &field("size"))?;
            let text = self.time.as_deref().unwrap_or(MATRIX_CELL_DEFAULT);
            let time = parse_duration(text).map_err(|problem| error(field("time"), problem))?;
            let ms = (time.as_secs_f64() * 1e3 * factor).round() as u64;
            self.time = Some(format!("{}ms", ms.max(100)));
        }
        if self.dbench.is_some() || self.dbench_replay.is_some() {
            let default = format!("{DBENCH_SECONDS_DEFAULT}s");
            let text = self.time.as_deref().unwrap_or(&default);
            let time = parse_duration(text).map_err(|problem| error(field("time"), problem))?;
            let seconds = (time.as_secs_f64() * factor).round() as u64;
            self.time = Some(format!("{}s", seconds.max(1)));
        }
        if self.bonnie {
            self.scale_size(factor, BONNIE_SIZE_DEFAULT, FILE_STEP_BYTES, &field("size"))?;
        }
        Ok(())
    }

    fn scale_size(
        &mut self,
        factor: f64,
        default: &str,
        least: u64,
        field: &str,
    ) -> Result<(), StudyError> {
        let bytes = parse_size(self.size.as_deref().unwrap_or(default))
            .map_err(|problem| error(field, problem))?;
        self.size = Some(size_text(scaled_bytes(bytes, factor).max(least)));
        Ok(())
    }
}

fn scaled_bytes(bytes: u64, factor: f64) -> u64 {
    let scaled = (bytes as f64 * factor).round() as u64;
    (scaled.div_ceil(FILE_STEP_BYTES) * FILE_STEP_BYTES).max(FILE_STEP_BYTES)
}

/// Options of fio with the sizes and the run's length multiplied. A job file has no `=` in its
/// name and stays as it is, as does a value that is no plain size or time (a percentage, a range).
fn scale_fio(text: &str, factor: f64) -> String {
    let scaled = text.split_whitespace().map(|word| {
        let Some((key, value)) = word.split_once('=') else { return word.to_string() };
        let value = match key.trim_start_matches('-') {
            "size" | "filesize" | "io_size" => {
                parse_size(value).ok().map(|bytes| size_text(scaled_bytes(bytes, factor)))
            }
            "runtime" => parse_duration(value).ok().map(|time| {
                let seconds = (time.as_secs_f64() * factor).round() as u64;
                seconds.max(1).to_string()
            }),
            _ => None,
        };
        value.map_or(word.to_string(), |value| format!("{key}={value}"))
    });
    scaled.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const KNOWN: &[&str] = &["ext4", "xfs"];

    const STUDY: &str = r#"
        contenders = ["ext4", "xfs"]
        device = "loop:40G@/images"
        min-runs = 5
        budget = "2h"
        [quick]
        device = "loop:2G"
        runs = 3
        budget = "2m"
        scale = 0.01
        [[workload]]
        name = "objects"
        program = "Command { 100000.times { New(256K); }; }"
        [[workload]]
        tree = "synthetic:60000"
        quick = { tree = "synthetic:30000" }
        [[workload]]
        fio = "rw=randrw bs=4k size=100m runtime=300 direct=1 filesize=50%"
        [[workload]]
        fio-matrix = true
        size = "8G"
        quick = { block-size = ["4K"], time = "50s" }
        [[workload]]
        dbench = 4
        time = "600s"
        [[workload]]
        dbench-replay = "4"
        [[workload]]
        command = "tar xf x.tar"
    "#;

    fn study() -> StudyText {
        crate::study_file::parse(Path::new("s"), STUDY).unwrap()
    }

    #[test]
    fn the_quick_profile_replaces_and_scales() {
        let text = study();
        assert_eq!(text.resolve(KNOWN).unwrap().blocks_min, 5);
        let quick = text.quickened().unwrap();
        assert_eq!(quick.quick, None);
        assert_eq!(quick.device.as_deref(), Some("loop:2G"));
        assert_eq!((quick.runs, quick.min_runs), (Some(3), None));
        assert_eq!(quick.budget.as_deref(), Some("2m"));
        let loads = &quick.workloads;
        assert_eq!(loads[0].scale, Some(0.01));
        assert_eq!(loads[1].tree.as_deref(), Some("synthetic:300"));
        assert_eq!(
            loads[2].fio.as_deref(),
            Some("rw=randrw bs=4k size=1M runtime=3 direct=1 filesize=50%")
        );
        assert_eq!(loads[3].size.as_deref(), Some("82M"));
        assert_eq!(
            (&loads[3].block_size[..], loads[3].time.as_deref()),
            (&["4K".to_string()][..], Some("500ms"))
        );
        assert_eq!(loads[4].time.as_deref(), Some("6s"));
        assert_eq!(loads[5].time.as_deref(), Some("1s"));
        assert_eq!(loads[6], text.workloads[6]);
        let study = quick.resolve(KNOWN).unwrap();
        assert_eq!((study.blocks_min, study.blocks_max), (3, 3));
    }

    #[test]
    fn a_study_without_a_quick_profile_says_so() {
        let text = StudyText { quick: None, ..study() };
        assert_eq!(text.quickened().unwrap_err().field, "quick");
    }

    #[test]
    fn a_wrong_quick_profile_is_refused_with_the_study() {
        let mut text = study();
        text.quick.as_mut().unwrap().device = Some("lop:2G".into());
        let found = text.resolve(KNOWN).unwrap_err();
        assert_eq!(found.field, "quick");
        assert!(found.problem.contains("lop:2G"), "{found}");
        let mut text = study();
        text.quick.as_mut().unwrap().scale = Some(0.0);
        assert_eq!(text.resolve(KNOWN).unwrap_err().field, "quick.scale");
    }

    #[test]
    fn devices_scale_in_steps_and_keep_their_place() {
        let scaled = |device: &str, factor| {
            let mut text = StudyText { device: Some(device.into()), ..Default::default() };
            text.scale_device(factor);
            text.device.unwrap()
        };
        assert_eq!(scaled("loop:48G@/images", 0.1), "loop:5G@/images");
        assert_eq!(scaled("loop:48G", 0.0001), "loop:1G");
        assert_eq!(scaled("mem:512M", 0.1), "mem:512M");
        assert_eq!(scaled("loop:8G", 2.0), "loop:16G");
        assert_eq!(scaled("/dev/sdb", 0.1), "/dev/sdb");
    }

    #[test]
    fn factors_out_of_range_are_refused() {
        for factor in [0.0, -1.0, 1e4, f64::NAN, f64::INFINITY] {
            assert_eq!(study().scale_loads(factor).unwrap_err().field, "scale");
        }
    }
}
