//! Result directories that were torn, damaged, contended for, or made by another version.

use tempfile::TempDir;

use super::*;
use crate::fixture::{self, MILLISECOND_NS};

const RUNS: u32 = 3;

fn plan() -> Plan {
    fixture::plan(&["ext4", "xfs"], RUNS)
}

/// A result directory with a plan and the records of its first `blocks` blocks.
fn result(blocks: u32) -> (TempDir, PathBuf, Vec<Record>) {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("result");
    let plan = plan();
    let mut writer = ResultWriter::create(&directory, &plan, "# the study\n").unwrap();
    let mut records = Vec::new();
    for block in 0..blocks {
        for contender in 0..2 {
            let record = fixture::record(&plan, contender, block, 100 * MILLISECOND_NS);
            writer.append(record.clone()).unwrap();
            records.push(record);
        }
    }
    (home, directory, records)
}

fn without_facts(stored: &StoredResult) -> Vec<&String> {
    stored.damage.iter().filter(|line| !line.contains(FACTS_FILE)).collect()
}

#[test]
fn what_is_written_reads_back() {
    let (_home, directory, records) = result(2);
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.plan, plan());
    assert_eq!(stored.records, records);
    assert_eq!(fs::read_to_string(directory.join(STUDY_FILE)).unwrap(), "# the study\n");
    // The facts are written once the device is prepared, so a result may lack them.
    assert_eq!((stored.facts, stored.damage.len()), (None, 1));
    fs::write(directory.join(FACTS_FILE), "{\"machine\": {\"memory_bytes\": 5}}").unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.facts.unwrap().pointer("/machine/memory_bytes").unwrap().as_u64(), Some(5));
    assert_eq!(stored.damage, Vec::<String>::new());
}

#[test]
fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
    let (_home, directory, _) = result(0);
    let (writer, _) = ResultWriter::resume(&directory).unwrap();
    writer.write_json(COMPARISONS_FILE, &[1]).unwrap();
    writer.write_json(COMPARISONS_FILE, &[2]).unwrap();
    let text = fs::read_to_string(directory.join(COMPARISONS_FILE)).unwrap();
    assert_eq!(serde_json::from_str::<Vec<u32>>(&text).unwrap(), [2]);
    let mut names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [LOCK_FILE, COMPARISONS_FILE, PLAN_FILE, RECORDS_FILE, STUDY_FILE]);
    fs::remove_dir_all(&directory).unwrap();
    let error = writer.write_json(COMPARISONS_FILE, &[3]).unwrap_err().to_string();
    assert!(error.contains(COMPARISONS_FILE), "{error}");
}

/// The machine may die at any byte of an append. Wherever it does, a reader sees the records
/// before it, and the next writer goes on as if the torn one had never begun.
#[test]
fn a_last_line_torn_at_any_byte_costs_that_line_only() {
    let (_home, directory, records) = result(1);
    let path = directory.join(RECORDS_FILE);
    let whole = fs::read(&path).unwrap();
    let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for length in last_line..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let stored = StoredResult::read(&directory).unwrap();
        assert_eq!(stored.records, records[..1], "torn at byte {length}");
        let torn = length > last_line;
        let damage = without_facts(&stored);
        assert_eq!(damage.len(), usize::from(torn), "torn at byte {length}: {damage:?}");
        if torn {
            assert!(damage[0].contains("records.jsonl:2: the line was not written to its end"));
        }
        let (mut writer, _) = ResultWriter::resume(&directory).unwrap();
        writer.append(records[1].clone()).unwrap();
        drop(writer);
        let stored = StoredResult::read(&directory).unwrap();
        assert_eq!(stored.records, records, "torn at byte {length}");
        assert_eq!(without_facts(&stored).len(), 0);
    }
}

#[test]
fn a_damaged_line_in_the_middle_is_named_and_the_others_are_read() {
    let (_home, directory, records) = result(2);
    let path = directory.join(RECORDS_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for damaged in ["", "{", "not JSON", "{\"schema\": 1}", "[1, 2]", "\u{0}\u{0}\u{0}"] {
        fs::write(&path, format!("{}\n{damaged}\n{}\n{}\n", lines[0], lines[2], lines[3])).unwrap();
        let stored = StoredResult::read(&directory).unwrap();
        assert_eq!(stored.records, [&records[0], &records[2], &records[3]].map(Clone::clone));
        let damage = without_facts(&stored);
        assert_eq!(damage.len(), 1, "{damaged:?}");
        assert!(damage[0].contains("records.jsonl:2: "), "{damage:?}");
    }
    // Not even text.
    fs::write(&path, b"\xff\xfe\x00\n").unwrap();
    assert_eq!(StoredResult::read(&directory).unwrap().records, []);
}

#[test]
fn a_record_of_another_plan_is_left_out() {
    let (_home, directory, records) = result(1);
    let path = directory.join(RECORDS_FILE);
    type Spoil = fn(&mut Record);
    let spoil: [(&str, Spoil); 5] = [
        ("the plan has no run 4000000000", |record| record.trial = 4_000_000_000),
        ("round 1 of the plan", |record| record.block = 4_000_000_000),
        ("'ext4'", |record| record.contender.label = "zfs".into()),
        ("'true'", |record| record.workload = "false".into()),
        ("round 1 of the plan", |record| record.warmup = true),
    ];
    for (expected, spoil) in spoil {
        let ext4 = records.iter().find(|record| record.contender.label == "ext4").unwrap();
        let mut record = ext4.clone();
        spoil(&mut record);
        fs::write(&path, serde_json::to_string(&record).unwrap() + "\n").unwrap();
        let stored = StoredResult::read(&directory).unwrap();
        assert_eq!(stored.records, []);
        assert!(stored.damage[0].contains(expected), "{:?}", stored.damage);
    }
}

#[test]
fn a_newer_schema_is_said_to_be_newer_whatever_else_it_holds() {
    let (_home, directory, records) = result(1);
    let newer = SCHEMA_VERSION + 1;
    let path = directory.join(RECORDS_FILE);
    let mut lines = String::new();
    for record in &records {
        lines.push_str(&serde_json::to_string(record).unwrap());
        lines.push('\n');
    }
    lines.push_str(&format!("{{\"schema\": {newer}, \"trials\": \"renamed\"}}\n"));
    fs::write(&path, lines).unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.records, records);
    let expected = format!("is of schema {newer}");
    assert!(without_facts(&stored)[0].contains(&expected), "{:?}", stored.damage);

    fs::write(directory.join(PLAN_FILE), format!("{{\"schema\": {newer}, \"new\": []}}")).unwrap();
    let error = StoredResult::read(&directory).unwrap_err().to_string();
    assert!(error.contains(&expected) && error.contains("use a newer kurabe"), "{error}");
    assert!(error.contains(PLAN_FILE), "{error}");
}

#[test]
fn a_damaged_plan_is_an_error_and_never_a_panic() {
    let (_home, directory, _) = result(1);
    let path = directory.join(PLAN_FILE);
    let text = fs::read_to_string(&path).unwrap();
    for end in (0..text.trim_end().len()).step_by(7) {
        fs::write(&path, &text.as_bytes()[..end]).unwrap();
        StoredResult::read(&directory).unwrap_err();
    }
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (pointer, wrong) in [
        ("/study/baseline", "9"),
        ("/study/contenders", "[]"),
        ("/study/workloads", "[]"),
        ("/study/same_within", "-1.0"),
        ("/study/gates", "[\"xfs\"]"),
        ("/stop_rule/min_blocks", "0"),
        ("/stop_rule/relative_half_width", "-0.5"),
        ("/blocks/0/trials/0/contender", "2"),
        ("/blocks/0/trials/0/workload", "7"),
        ("/blocks/1/trials/1/trial", "99"),
    ] {
        let mut damaged = value.clone();
        let wrong: serde_json::Value = serde_json::from_str(wrong).unwrap();
        match damaged.pointer_mut(pointer) {
            Some(place) => *place = wrong,
            // Empty lists are left out of the file.
            None => damaged["study"]["gates"] = wrong,
        }
        fs::write(&path, damaged.to_string()).unwrap();
        let error = StoredResult::read(&directory).unwrap_err();
        assert!(error.to_string().contains(PLAN_FILE), "{pointer}: {error}");
    }
    fs::write(&path, value.to_string()).unwrap();
    StoredResult::read(&directory).unwrap();
}

#[test]
fn a_second_writer_is_refused_and_changes_nothing() {
    let (_home, directory, records) = result(1);
    let first = ResultWriter::resume(&directory).unwrap();
    // What the first writer is in the middle of must not be cut off by the second.
    let path = directory.join(RECORDS_FILE);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"half").unwrap();
    let length_bytes = file.metadata().unwrap().len();
    let error = ResultWriter::resume(&directory).unwrap_err().to_string();
    assert!(error.contains(&format!("process {} is writing it", std::process::id())), "{error}");
    assert_eq!(file.metadata().unwrap().len(), length_bytes);
    drop(first);
    drop(ResultWriter::resume(&directory).unwrap());
    assert_eq!(StoredResult::read(&directory).unwrap().records, records);
}

#[test]
fn an_existing_result_is_never_overwritten() {
    let (_home, directory, records) = result(1);
    let error = ResultWriter::create(&directory, &plan(), "").unwrap_err().to_string();
    assert!(error.contains("kurabe resume") && error.contains("--out"), "{error}");
    assert_eq!(StoredResult::read(&directory).unwrap().records, records);
    fs::remove_file(directory.join(PLAN_FILE)).unwrap();
    ResultWriter::create(&directory, &plan(), "").unwrap_err();
}

#[test]
fn what_is_no_result_is_neither_read_nor_resumed_nor_changed() {
    let home = tempfile::tempdir().unwrap();
    let absent = home.path().join("absent");
    for (directory, why) in
        [(home.path().to_path_buf(), "holds no plan.json"), (absent, "does not exist")]
    {
        let read = StoredResult::read(&directory).unwrap_err().to_string();
        let resumed = ResultWriter::resume(&directory).unwrap_err().to_string();
        assert!(read.contains(why), "{read}");
        assert_eq!(read, resumed);
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Killed between the plan and the first record.
#[test]
fn a_result_that_never_began_resumes() {
    let (_home, directory, _) = result(0);
    fs::remove_file(directory.join(RECORDS_FILE)).unwrap();
    assert_eq!(StoredResult::read(&directory).unwrap().records, []);
    let plan = plan();
    let record = fixture::record(&plan, 0, 0, MILLISECOND_NS);
    ResultWriter::resume(&directory).unwrap().0.append(record.clone()).unwrap();
    assert_eq!(StoredResult::read(&directory).unwrap().records, [record]);
}

#[test]
fn a_result_that_was_refused_is_withdrawn_whole() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("kurabe-results").join("one");
    ResultWriter::create(&directory, &plan(), "").unwrap().withdraw();
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

    // What was there before stays: the directory itself, its parent, a result that is resumed.
    let parent = home.path().join("mine");
    fs::create_dir(&parent).unwrap();
    ResultWriter::create(&parent.join("one"), &plan(), "").unwrap().withdraw();
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
    fs::write(parent.join("notes"), "").unwrap();
    ResultWriter::create(&parent, &plan(), "").unwrap().withdraw();
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 1);
    drop(ResultWriter::create(&parent, &plan(), "").unwrap());
    ResultWriter::resume(&parent).unwrap().0.withdraw();
    assert!(parent.join(PLAN_FILE).exists() && parent.join(STUDY_FILE).exists());
}

/// Several begin in one directory at once: one of them has it, and the plan there is that one's.
#[test]
fn of_several_who_begin_at_once_one_writes() {
    for round in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("result");
        let plans: Vec<Plan> = (0..4).map(|seed| Plan { seed, ..plan() }).collect();
        let barrier = std::sync::Barrier::new(plans.len());
        let begin = |plan: &Plan| {
            barrier.wait();
            let writer = ResultWriter::create(&directory, plan, "# the study\n");
            // Nobody gives the lock back before everybody has tried.
            barrier.wait();
            writer.map(|_| plan.seed)
        };
        let began: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                plans.iter().map(|plan| scope.spawn(move || begin(plan))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<u64> =
            began.iter().filter_map(|seed| seed.as_ref().ok()).copied().collect();
        assert_eq!(winners.len(), 1, "round {round}: {began:?}");
        assert_eq!(StoredResult::read(&directory).unwrap().plan.seed, winners[0], "round {round}");
    }
}

#[test]
fn who_has_the_lock_but_no_plan_yet_is_not_overtaken() {
    let home = tempfile::tempdir().unwrap();
    let lock = Directory::open(home.path()).unwrap().lock(LOCK_FILE).unwrap();
    let error = ResultWriter::create(home.path(), &plan(), "").unwrap_err().to_string();
    assert!(error.contains(&format!("process {} is writing it", std::process::id())), "{error}");
    assert!(!home.path().join(PLAN_FILE).exists() && !home.path().join(STUDY_FILE).exists());
    // It died before it wrote anything: its place is free.
    drop(lock);
    drop(ResultWriter::create(home.path(), &plan(), "").unwrap());
    assert_eq!(StoredResult::read(home.path()).unwrap().plan, plan());
}

#[test]
fn a_study_file_of_the_users_is_never_overwritten() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(STUDY_FILE), "# mine\n").unwrap();
    let error = ResultWriter::create(home.path(), &plan(), "").unwrap_err().to_string();
    assert!(error.contains("holds a study.toml already") && error.contains("--out"), "{error}");
    assert_eq!(fs::read_to_string(home.path().join(STUDY_FILE)).unwrap(), "# mine\n");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_the_way_out() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ResultWriter::create(&file.join("result"), &plan(), "").unwrap_err().to_string();
    assert!(error.contains("Not a directory") && error.contains("with --out DIR"), "{error}");
}

/// Of a block and workload only the last session's records stand; the others are kept.
#[test]
fn a_later_session_supersedes_the_half_block_that_it_repeats() {
    let (_home, directory, records) = result(2);
    let (mut writer, _) = ResultWriter::resume(&directory).unwrap();
    let mut again = records[2].clone();
    again.session = 2;
    writer.append(again.clone()).unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.records, [records[0].clone(), records[1].clone(), again]);
    assert_eq!(stored.superseded, records[2..]);
    // An older kurabe had other names for the same.
    let path = directory.join(RECORDS_FILE);
    let text = fs::read_to_string(&path).unwrap();
    let older = text.replace("\"session\"", "\"sitting\"").replace("\"throughput\"", "\"pace\"");
    assert_ne!(text, older);
    fs::write(&path, older).unwrap();
    assert_eq!(StoredResult::read(&directory).unwrap().records, stored.records);
    // Those of an older kurabe name no session, and all of them stand.
    fs::write(&path, text.replace(",\"session\":1", "").replace(",\"session\":2", "")).unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!((stored.records.len(), stored.superseded.len()), (5, 0));
}

#[test]
fn the_fillings_and_trials_of_every_session_count_as_spent() {
    let (_home, directory, records) = result(1);
    let (mut writer, _) = ResultWriter::resume(&directory).unwrap();
    let facts = |fill_ns: u64| serde_json::json!({ "device": { "fill_ns": fill_ns } });
    assert_eq!(writer.begin_session(&facts(1000)).unwrap(), 1);
    assert_eq!(writer.begin_session(&facts(200)).unwrap(), 2);
    let mut again = records[0].clone();
    (again.session, again.elapsed_ns) = (2, 30);
    writer.append(again).unwrap();
    assert_eq!(writer.begin_session(&serde_json::json!({ "device": null })).unwrap(), 3);
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!((stored.records.len(), stored.superseded.len()), (1, 2));
    assert_eq!(stored.spent_ns(), 1200 + 30 + 2 * 100 * MILLISECOND_NS);
    assert_eq!(stored.earlier_facts, [facts(1000), facts(200)]);
    assert_eq!(stored.damage, Vec::<String>::new());
    // What cannot be read is named, and the sessions after it keep their numbers.
    fs::write(directory.join(earlier_facts_file(1)), "torn").unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.earlier_facts, [serde_json::Value::Null, facts(200)]);
    assert!(stored.damage[0].contains("facts-1.json"), "{:?}", stored.damage);
}

/// A user who is nobody's caller.
const STRANGER: u32 = 54_321;

fn give_away(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(STRANGER), Some(STRANGER)).is_ok();
    if !given {
        eprintln!("SKIPPED: only root can give a file to another user");
    }
    given
}

/// What a person finds who had the place where a file is written, or read, before kurabe had it.
#[test]
fn links_and_what_is_no_file_are_neither_followed_nor_waited_for() {
    let (home, directory, records) = result(1);
    let precious = home.path().join("precious");
    let text = "first\nlast line without an end";
    fs::write(&precious, text).unwrap();
    let untouched = || assert_eq!(fs::read_to_string(&precious).unwrap(), text);
    // Records that are a link: nothing of its target is cut off, and nothing is appended.
    let path = directory.join(RECORDS_FILE);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    let error = ResultWriter::resume(&directory).unwrap_err().to_string();
    assert!(error.contains("is a symbolic link"), "{error}");
    untouched();
    fs::remove_file(&path).unwrap();
    fs::write(&path, text).unwrap();
    // Links under the names that replacing a file has used: the target keeps its bytes.
    std::os::unix::fs::symlink(&precious, directory.join("comparisons.json.new")).unwrap();
    std::os::unix::fs::symlink(&precious, directory.join(COMPARISONS_FILE)).unwrap();
    let (writer, _) = ResultWriter::resume(&directory).unwrap();
    writer.write_json(COMPARISONS_FILE, &[1]).unwrap();
    untouched();
    assert!(!directory.join(COMPARISONS_FILE).is_symlink());
    drop(writer);
    assert_eq!(StoredResult::read(&directory).unwrap().records, records);
    // A FIFO in the place of each file is refused at once.
    for name in [PLAN_FILE, RECORDS_FILE, FACTS_FILE] {
        let path = directory.join(name);
        let _ = fs::rename(&path, directory.join("kept"));
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let read = directory.clone();
        std::thread::spawn(move || drop(sender.send(StoredResult::read(&read))));
        let read = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect(name);
        let said = match read {
            Ok(stored) => stored.damage.join(" "),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(&format!("{name} is a FIFO")), "{said}");
        fs::remove_file(&path).unwrap();
        let _ = fs::rename(directory.join("kept"), &path);
    }
}

#[test]
fn nothing_is_cut_off_before_something_is_appended() {
    let (_home, directory, records) = result(1);
    let path = directory.join(RECORDS_FILE);
    File::options().append(true).open(&path).unwrap().write_all(b"{\"half").unwrap();
    let length_bytes = fs::metadata(&path).unwrap().len();
    let (mut writer, stored) = ResultWriter::resume(&directory).unwrap();
    assert_eq!(stored.records, records);
    // What comes next may still be refused.
    assert_eq!(fs::metadata(&path).unwrap().len(), length_bytes);
    writer.append(records[0].clone()).unwrap();
    assert_eq!(without_facts(&StoredResult::read(&directory).unwrap()).len(), 0);
    // A plan that is wrong: neither locked nor touched.
    drop(writer);
    fs::remove_file(directory.join(LOCK_FILE)).unwrap();
    fs::write(directory.join(PLAN_FILE), "{}").unwrap();
    ResultWriter::resume(&directory).unwrap_err();
    assert!(!directory.join(LOCK_FILE).exists());
}

#[test]
fn results_of_strangers_and_below_their_directories_are_refused() {
    let (home, directory, _) = result(1);
    let results = home.path().join("kurabe-results");
    fs::create_dir(&results).unwrap();
    if !give_away(&results) || !give_away(&directory) {
        return;
    }
    for error in [
        ResultWriter::create(&results.join("mine"), &plan(), "").unwrap_err(),
        ResultWriter::resume(&directory).unwrap_err(),
        StoredResult::read(&directory).unwrap_err(),
    ] {
        assert!(error.to_string().contains("--trust 54321"), "{error}");
    }
    assert_eq!(fs::read_dir(&results).unwrap().count(), 0);
}

/// A name of two lines could pass for a line of kurabe's own.
#[test]
fn names_and_what_is_said_of_damage_are_one_line() {
    let (_home, directory, _) = result(1);
    let path = directory.join(PLAN_FILE);
    let records = directory.join(RECORDS_FILE);
    for path in [&path, &records] {
        let text = fs::read_to_string(path).unwrap().replace("\"ext4\"", "\"ext4\\nblock 1\"");
        fs::write(path, text).unwrap();
    }
    let mut torn = fs::read_to_string(&records).unwrap();
    torn.push_str(&torn.lines().next().unwrap().replace("\"completed\"", "\"a\\nb\""));
    torn.push('\n');
    fs::write(&records, torn).unwrap();
    let stored = StoredResult::read(&directory).unwrap();
    assert_eq!(stored.plan.study.contenders[0].label, "ext4\\u{a}block 1");
    assert_eq!(stored.records[0].contender.label, stored.plan.study.contenders[0].label);
    let damage = without_facts(&stored);
    assert!(!damage.is_empty() && !damage.iter().any(|line| line.contains('\n')), "{damage:?}");
}
