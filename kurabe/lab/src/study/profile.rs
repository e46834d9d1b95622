//! Smaller and larger versions of a study: its own quick profile, and a factor on everything.
//!
//! Both change the study as written, so that what is printed, stored and carried out is one text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;
use vocabulary::kind::WorkloadKinds;
use vocabulary::suggestion::unknown;

use super::{StudyError, StudyText, error};
use crate::device::{DEFAULT_DEVICE, DeviceName};

/// What a quick profile changes of its study. The field names are keys of the study file.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct QuickText {
    pub device: Option<String>,
    /// Exactly so many runs of every contender.
    pub runs: Option<u32>,
    /// Exactly so many blocks.
    pub rounds: Option<u32>,
    /// At least so many blocks.
    pub min_runs: Option<u32>,
    /// At most so many blocks.
    pub max_runs: Option<u32>,
    /// Blocks that are carried out first and not compared.
    pub warmup: Option<u32>,
    /// Bound on the whole study.
    pub budget: Option<String>,
    /// Bound on one trial.
    pub timeout: Option<String>,
    /// Bound on the wait for an idle device.
    pub idle_wait: Option<String>,
    /// Time for the turns of a block.
    pub block_time: Option<String>,
    /// Factor on every workload, as `--scale`.
    pub scale: Option<f64>,
    /// Names of the workloads that it keeps; all of them where it names none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// All parameters of the study, with the values that it keeps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Vec<String>>,
}

/// Greatest and least factor that is believed.
const FACTOR_RANGE: std::ops::RangeInclusive<f64> = 1e-6..=1e3;

impl StudyText {
    /// The study under its quick profile, which is taken out of it.
    pub fn quickened(&self, kinds: WorkloadKinds) -> Result<StudyText, StudyError> {
        let Some(quick) = &self.quick else {
            return Err(error(
                "quick",
                "the study has no quick profile; write [quick] in its file, or give --scale",
            ));
        };
        let mut text =
            self.with(&QuickText { scale: None, workloads: Vec::new(), ..quick.clone() });
        text.quick = None;
        if !quick.workloads.is_empty() {
            text.keep_workloads(&quick.workloads)?;
        }
        for workload in &mut text.workloads {
            let Some(quick) = workload.quick.take() else { continue };
            workload.load.extend(quick);
        }
        if let Some(factor) = quick.scale {
            text.scale_workloads(kinds, factor)
                .map_err(|found| error("quick.scale", found.problem))?;
        }
        Ok(text)
    }

    /// Takes all workloads out but those of these names.
    fn keep_workloads(&mut self, names: &[String]) -> Result<(), StudyError> {
        let known: Vec<&str> = self.workloads.iter().filter_map(|w| w.name.as_deref()).collect();
        for (index, name) in names.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let field = format!("quick.workloads[{index}]");
                return Err(error(field, unknown("workload is called", name, &known)));
            }
        }
        self.workloads.retain(|workload| workload.name.as_ref().is_some_and(|n| names.contains(n)));
        Ok(())
    }

    /// The study with these keys in the place of its own; what is blank leaves the study's. One number
    /// of blocks takes the place of all of them.
    pub fn with(&self, keys: &impl Serialize) -> StudyText {
        let object = |value| match value {
            Ok(Value::Object(object)) => object,
            other => panic!("{other:?} has no keys"),
        };
        let mut keys: Map<String, Value> = object(serde_json::to_value(keys));
        keys.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)));
        keys.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        let mut text = object(serde_json::to_value(self));
        const BLOCKS: [&str; 4] = ["runs", "rounds", "min-runs", "max-runs"];
        if BLOCKS.iter().any(|key| keys.contains_key(*key)) {
            BLOCKS.iter().for_each(|key| drop(text.remove(*key)));
        }
        text.extend(keys);
        serde_json::from_value(Value::Object(text)).expect("the keys are those of a study")
    }

    /// Multiplies the amount of work of every workload, as its kind says; commands stay as they are.
    pub fn scale_workloads(&mut self, kinds: WorkloadKinds, factor: f64) -> Result<(), StudyError> {
        if !FACTOR_RANGE.contains(&factor) {
            return Err(error(
                "scale",
                format!("{factor} is no factor from 0.000001 to 1000, such as 0.01"),
            ));
        }
        for (index, workload) in self.workloads.iter_mut().enumerate() {
            let Some(kind) = workload.kind(kinds) else { continue };
            kind.scale(&mut workload.load, factor).map_err(|found| {
                error(format!("workload[{index}].{}", found.key), found.problem)
            })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Known;
    use crate::study::{CommandText, WorkloadText};
    use std::path::Path;

    const KNOWN: &[Known] = &Known::named(["ext4", "xfs"]);

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
        command = "tar xf x.tar"
    "#;
    const NONE: WorkloadKinds = WorkloadKinds(&[]);

    fn study() -> StudyText {
        crate::study_file::parse(Path::new("s"), STUDY).unwrap()
    }

    #[test]
    fn the_quick_profile_replaces() {
        let text = study();
        assert_eq!(text.resolve(KNOWN).unwrap().blocks_min, 5);
        let quick = text.quickened(NONE).unwrap();
        assert_eq!(quick.quick, None);
        assert_eq!(quick.device.as_deref(), Some("loop:2G"));
        assert_eq!((quick.runs, quick.min_runs), (Some(3), None));
        assert_eq!(quick.budget.as_deref(), Some("2m"));
        assert_eq!(quick.workloads, text.workloads);
        let study = quick.resolve(KNOWN).unwrap();
        assert_eq!((study.blocks_min, study.blocks_max), (3, 3));
    }

    #[test]
    fn the_quick_profile_keeps_the_workloads_that_it_names() {
        let mut text = study();
        let named = |name: &str| WorkloadText {
            name: Some(name.into()),
            command: Some(CommandText::Line("true".into())),
            ..Default::default()
        };
        text.workloads.extend([named("small"), named("large")]);
        text.quick.as_mut().unwrap().workloads = vec!["large".into()];
        let names = |text: &StudyText| {
            let study = text.resolve(KNOWN).unwrap();
            study.workloads.into_iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&text), ["tar xf x.tar", "small", "large"]);
        assert_eq!(names(&text.quickened(NONE).unwrap()), ["large"]);
        text.quick.as_mut().unwrap().workloads = vec!["large".into(), "smal".into()];
        let found = text.resolve(KNOWN).unwrap_err();
        assert_eq!(found.field, "quick.workloads[1]");
        assert!(found.problem.contains("did you mean 'small'"), "{found}");
    }

    #[test]
    fn a_study_without_a_quick_profile_says_so() {
        let text = StudyText { quick: None, ..study() };
        assert_eq!(text.quickened(NONE).unwrap_err().field, "quick");
    }

    #[test]
    fn a_wrong_quick_profile_is_refused_with_the_study() {
        let mut text = study();
        text.quick.as_mut().unwrap().device = Some("loop:2X".into());
        let found = text.resolve(KNOWN).unwrap_err();
        assert_eq!(found.field, "quick");
        assert!(found.problem.contains("loop:2X"), "{found}");
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
            assert_eq!(study().scale_workloads(NONE, factor).unwrap_err().field, "scale");
        }
    }
}
