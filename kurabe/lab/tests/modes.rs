//! The rights of what a result is made of. Alone in its process, since it sets the umask.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::contender::Known;
use lab::plan::Plan;
use lab::result::ResultWriter;
use lab::study::{CommandText, StudyText, WorkloadText};

/// What is made here must be believed later, whatever umask it was made under.
#[test]
fn rights_do_not_come_from_the_umask() {
    let home = tempfile::tempdir().unwrap();
    rustix::process::umask(rustix::fs::Mode::empty());
    let workload =
        WorkloadText { command: Some(CommandText::Line("true".into())), ..Default::default() };
    let text = StudyText {
        contenders: vec!["ext4".into()],
        workloads: vec![workload],
        ..Default::default()
    };
    let plan = Plan::new(text.resolve(&Known::named(["ext4"])).unwrap(), 1);
    let directory = home.path().join("kurabe-results/one");
    drop(ResultWriter::create(&directory, &plan, "").unwrap());
    for path in [directory.parent().unwrap(), &directory] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o755);
    }
    for entry in fs::read_dir(&directory).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{}: {mode:o}", entry.path().display());
    }
    ResultWriter::resume(&directory).unwrap();
}
