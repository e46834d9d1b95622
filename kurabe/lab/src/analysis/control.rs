//! What the control says: the baseline entered twice, so that whatever sets the two apart is the
//! machine's own doing.

use super::{Analysis, Comparison};
use crate::study::control_label;
use crate::words;

/// One sentence a workload, where the study has a control.
pub fn control_words(analysis: &Analysis) -> Vec<String> {
    let primary = analysis.workloads.iter().flat_map(|workload| &workload.comparisons);
    let is_control =
        |one: &&Comparison| one.primary && one.contender == control_label(&one.baseline);
    primary.filter(is_control).map(sentence).collect()
}

fn sentence(one: &Comparison) -> String {
    let Comparison { workload, contender, baseline, verdict, .. } = one;
    let Some((ratio, (low, high))) = one.ratio.zip(one.low.zip(one.high)) else {
        return format!("{workload}: {contender} has too few rounds to show this machine's noise");
    };
    let shown = words::ratio_with_interval(ratio, Some((low, high)));
    if verdict.is_different() {
        return format!(
            "{workload}: {contender} is a copy of {baseline}, and came out {verdict} ({shown}). Chance does this in one study of twenty; otherwise this machine favours an order or a part of the device. Trust no difference of that size here"
        );
    }
    let smallest = words::ratio(high.max(low.recip()));
    format!(
        "{workload}: {contender} is a copy of {baseline}: {shown}. This machine cannot show differences smaller than a factor of about {smallest} with this number of rounds"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixture;

    #[test]
    fn the_control_is_the_baseline_once_more_and_tells_what_is_noise() {
        let mut text = fixture::study_text(&["ext4", "xfs"], 6);
        text.control = true;
        let plan = fixture::plan_of(&text);
        let contenders = &plan.study.contenders;
        let labels: Vec<&str> = contenders.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["ext4", "xfs", "ext4 (control)"]);
        assert_eq!(contenders[2].file_system(), "ext4");
        let times = |control: &[u64]| {
            let steady = [1000, 1010, 990, 1005, 995, 1000];
            analyse(&plan, &fixture::records(&plan, &[&steady, &[2000; 6], control]), None)
        };
        let quiet = control_words(&times(&[1003, 1004, 996, 1000, 1001, 994]));
        assert_eq!(quiet.len(), 1);
        assert!(quiet[0].contains("is a copy of ext4: 1.0"), "{quiet:?}");
        assert!(quiet[0].contains("smaller than a factor of about 1.0"), "{quiet:?}");
        let biased = control_words(&times(&[1203, 1204, 1196, 1200, 1201, 1194]));
        assert!(biased[0].contains("came out slower"), "{biased:?}");
    }
}
