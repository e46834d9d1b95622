//! What is on in a file system.

use super::super::{Outcome, judge};
use super::three;
use crate::analysis;

fn judged(geometry: Option<&str>) -> (Outcome, Vec<String>) {
    let (plan, mut records) =
        three("text = 'x'\nrule = 'features'\ncontender = 'xfs'\nworkload = 'load'");
    for record in records.iter_mut().filter(|record| record.contender.label == "xfs") {
        record.commands = vec!["mkfs.ext4 -q -F /dev/loop7".into(), "mount /dev/loop7 /m".into()];
        record.geometry = geometry.map(str::to_string);
    }
    let analysis = analysis::analyse(&plan, &records, None);
    let judgement = judge(&plan, &records, &analysis).remove(0);
    (judgement.outcome, judgement.evidence)
}

#[test]
fn a_file_system_says_what_its_mkfs_turned_on() {
    let geometry = "Filesystem magic number:  0xEF53\n\
                    Filesystem features:      has_journal extent\n\
                    Default mount options:    user_xattr acl\n\
                    Free blocks:              7";
    let (outcome, evidence) = judged(Some(geometry));
    assert_eq!(outcome, Outcome::Answered);
    assert_eq!(
        evidence,
        [
            "xfs here is of mkfs.ext4 -q -F",
            "Filesystem features: has_journal extent",
            "Default mount options: user_xattr acl",
        ]
    );
}

#[test]
fn one_that_does_not_say_leaves_the_question_open() {
    for geometry in [None, Some("meta-data=/dev/loop7 isize=512")] {
        let (outcome, evidence) = judged(geometry);
        assert_eq!(outcome, Outcome::Untested);
        assert_eq!(evidence, ["xfs does not say what is on"]);
    }
}
