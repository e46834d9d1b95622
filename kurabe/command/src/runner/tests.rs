//! The trial loop with stand-ins for the trials and for the clock: no process is started and no
//! time passes. What a trial takes and how it ends is written down in each test.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};

use lab::analysis::Comparison;
use lab::contender::Known;
use lab::event::TrialCommand;
use lab::record::{Phase, PhaseRecord};
use lab::result::{PLAN_FILE, RECORDS_FILE, StoredResult};
use lab::slice::RunRecord;
use lab::study::{CommandText, StudyText, WorkloadText};
use tempfile::TempDir;
use workloads::KINDS;

use super::*;

mod budgets;

const SECOND: Duration = Duration::from_secs(1);

/// A study of these contenders under these commands.
fn study(contenders: &[&str], commands: &[&str]) -> StudyText {
    StudyText {
        contenders: contenders.iter().map(ToString::to_string).collect(),
        workloads: commands
            .iter()
            .map(|line| WorkloadText {
                command: Some(CommandText::Line(line.to_string())),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn plan(text: &StudyText, seed: u64) -> Plan {
    Plan::new(text.resolve(&Known::named(["ext4", "xfs", "btrfs"])).unwrap(), seed)
}

/// What a trial does: how long it takes and how it ends.
type Script<'a> = Box<dyn Fn(&TrialSpec) -> (Duration, Outcome) + 'a>;

fn takes(time: Duration) -> (Duration, Outcome) {
    (time, Outcome::Completed)
}

fn breaks(time: Duration) -> (Duration, Outcome) {
    let message = "it broke".to_string();
    (time, Outcome::Failed { phase: Phase::Mkfs, message, output: String::new() })
}

fn fills(time: Duration) -> (Duration, Outcome) {
    let message = "its part was full".to_string();
    (time, Outcome::Failed { phase: Phase::Run, message, output: String::new() })
}

/// A laboratory of stand-ins around a real result directory.
struct Mock<'a> {
    plan: Plan,
    script: Script<'a>,
    _home: TempDir,
    directory: PathBuf,
    clock: Cell<Duration>,
    stopped: Cell<bool>,
    /// Every trial that was begun: number, contender, bound.
    begun: RefCell<Vec<(u32, String, Option<u64>)>>,
    /// Number of trials after which the user stops the study.
    stop_after: Cell<usize>,
    /// What the observer was told, in order.
    seen: RefCell<Vec<String>>,
    /// Records of earlier sessions.
    before: Cell<usize>,
}

struct MockExecutor<'a, 'b>(&'a Mock<'b>);
struct MockObserver<'a, 'b>(&'a Mock<'b>);

impl MockExecutor<'_, '_> {
    fn run_alone(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        let mock = self.0;
        let mut begun = mock.begun.borrow_mut();
        // Every trial that ended before is durable when the next one begins.
        assert_eq!(lines(&mock.directory.join(RECORDS_FILE)), mock.before.get() + begun.len());
        begun.push((spec.trial, spec.contender.label.clone(), spec.timeout_ns));
        on_event(&Event::Phase { phase: Phase::Run });
        let (mut time, mut outcome) = (mock.script)(spec);
        if let Some(limit_ns) = spec.timeout_ns
            && time > Duration::from_nanos(limit_ns)
        {
            time = Duration::from_nanos(limit_ns);
            outcome = Outcome::TimedOut { phase: Phase::Run, limit_ns };
        }
        mock.clock.set(mock.clock.get() + time);
        let mut record = Record::begun(spec, 0);
        record.outcome = outcome;
        record.elapsed_ns = time.as_nanos() as u64;
        record.phases = [Phase::Run, Phase::Sync]
            .map(|phase| PhaseRecord {
                phase,
                elapsed_ns: record.elapsed_ns / 2,
                device: None,
                machine_cpu_ns: None,
            })
            .into();
        record
    }
}

impl Executor for MockExecutor<'_, '_> {
    /// Each turn takes a hundredth of what the trial would.
    fn run(
        &mut self,
        specs: &[TrialSpec],
        schedule: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let Some(schedule) = schedule else {
            return specs.iter().map(|spec| self.run_alone(spec, on_event)).collect();
        };
        let mock = self.0;
        let begun = mock.clock.get();
        let mut records: Vec<Record> = Vec::new();
        // Every block that ended before is durable when the next one begins.
        let recorded = mock.before.get() + mock.begun.borrow().len();
        assert_eq!(lines(&mock.directory.join(RECORDS_FILE)), recorded);
        for spec in specs {
            mock.begun.borrow_mut().push((spec.trial, spec.contender.label.clone(), None));
            mock.clock.set(mock.clock.get() + SECOND);
            let mut record = Record::begun(spec, 0);
            record.outcome = (mock.script)(spec).1;
            record.part_full = record.outcome == fills(SECOND).1;
            records.push(record);
        }
        on_event(&Event::Ready);
        let live: Vec<usize> = (0..specs.len())
            .filter(|number| records[*number].outcome == Outcome::Completed)
            .collect();
        while let Some((number, TrialCommand::Slice { round, position, .. })) = schedule.next(&live)
        {
            let time = (mock.script)(&specs[number]).0 / 100;
            mock.clock.set(mock.clock.get() + time);
            let slice = RunRecord {
                round,
                position,
                run_ns: time.as_nanos() as u64,
                sync_ns: 0,
                device: None,
                idle_device: None,
                metrics: Vec::new(),
                watched: None,
            };
            schedule.took(&slice);
            on_event(&Event::Slice { slice: Box::new(slice.clone()) });
            records[number].slices.push(slice);
            if schedule.is_over() {
                for number in &live {
                    records[*number].outcome = Outcome::Interrupted { phase: Phase::Run };
                }
                break;
            }
        }
        for record in &mut records {
            record.elapsed_ns = (mock.clock.get() - begun).as_nanos() as u64;
            record.phases = phases_of(&record.slices);
        }
        records
    }
}

/// The phases of a record with these runs, of which run has their mean.
fn phases_of(runs: &[RunRecord]) -> Vec<PhaseRecord> {
    let mean_ns = runs.iter().map(RunRecord::time_ns).sum::<u64>() / runs.len().max(1) as u64;
    let phase =
        |(phase, elapsed_ns)| PhaseRecord { phase, elapsed_ns, device: None, machine_cpu_ns: None };
    [(Phase::Run, mean_ns), (Phase::Sync, 0)].map(phase).into()
}

impl Observer for MockObserver<'_, '_> {
    fn trial_begins(&mut self, position: &Position<'_>) {
        let (done, expected) = (position.trials_done, position.trials_expected);
        assert!(done < expected, "{done} of {expected} trials are done, and one begins");
        self.0.seen.borrow_mut().push(format!("begin {}", position.spec.trial));
    }

    fn event(&mut self, event: &Event) {
        let is_turn = matches!(event, Event::Ready | Event::Slice { .. });
        assert!(is_turn || *event == Event::Phase { phase: Phase::Run }, "{event:?}");
    }

    fn note(&mut self, words: &str) {
        self.0.seen.borrow_mut().push(format!("note {words}"));
    }

    fn trial_ended(&mut self, record: &Record) {
        let mock = self.0;
        mock.seen.borrow_mut().push(format!("end {}", record.trial));
        assert_eq!(mock.records().last(), Some(record), "it is durable when it is told");
        if mock.begun.borrow().len() >= mock.stop_after.get() {
            mock.stopped.set(true);
        }
    }

    fn block_ended(&mut self, records: &[Record], analysis: &Analysis) {
        let mock = self.0;
        mock.seen.borrow_mut().push("block".into());
        // What is published by then is what the records say by then.
        let text = fs::read_to_string(mock.directory.join(COMPARISONS_FILE)).unwrap();
        let published: Vec<Comparison> = serde_json::from_str(&text).unwrap();
        let expected: Vec<Comparison> = analysis
            .workloads
            .iter()
            .flat_map(|one| [one.comparisons.clone(), one.direct.clone()].concat())
            .chain(analysis.overall.clone())
            .collect();
        assert_eq!(published, expected);
        assert_eq!(*analysis, analyse(&mock.plan, records, None));
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().lines().count()
}

impl<'a> Mock<'a> {
    fn new(plan: Plan, script: impl Fn(&TrialSpec) -> (Duration, Outcome) + 'a) -> Mock<'a> {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("result");
        drop(ResultWriter::create(&directory, &plan, "").unwrap());
        Mock {
            plan,
            script: Box::new(script),
            _home: home,
            directory,
            clock: Cell::new(Duration::ZERO),
            stopped: Cell::new(false),
            begun: RefCell::default(),
            stop_after: Cell::new(usize::MAX),
            seen: RefCell::default(),
            before: Cell::new(0),
        }
    }

    /// One session, as `kurabe compare` begins it and `kurabe resume` goes on with it.
    fn sit(&self) -> StudyEnd {
        self.begun.borrow_mut().clear();
        self.stopped.set(false);
        let (mut writer, mut stored) = ResultWriter::resume(&self.directory).unwrap();
        stored.plan.study.parse_workloads(KINDS).unwrap();
        assert_eq!(stored.plan, self.plan);
        let mut records = stored.records;
        self.before.set(records.len() + stored.superseded.len());
        self.seen.borrow_mut().clear();
        let context = RunnerContext {
            session: writer.begin_session(&()).unwrap(),
            device: None,
            elapsed: &|| self.clock.get(),
            stopped: &|| self.stopped.get(),
            memory_bytes: None,
            run_times: BTreeMap::new(),
        };
        let (mut executor, mut observer) = (MockExecutor(self), MockObserver(self));
        run(&stored.plan, &mut records, &context, &mut executor, &mut writer, &mut observer)
            .unwrap()
    }

    fn records(&self) -> Vec<Record> {
        StoredResult::read(&self.directory).unwrap().records
    }

    fn superseded(&self) -> Vec<Record> {
        StoredResult::read(&self.directory).unwrap().superseded
    }

    /// The records as they would be without an interruption.
    fn records_of_one_session(&self) -> Vec<Record> {
        let mut records = self.records();
        records.iter_mut().for_each(|record| record.session = 1);
        records
    }

    fn begun(&self) -> Vec<u32> {
        self.begun.borrow().iter().map(|(trial, ..)| *trial).collect()
    }

    fn begun_of(&self, label: &str) -> usize {
        self.begun.borrow().iter().filter(|(_, begun, _)| begun == label).count()
    }
}

/// Times that differ by a thousandth, so that every interval is tight.
fn tight(spec: &TrialSpec) -> Duration {
    SECOND + Duration::from_millis(u64::from(spec.trial % 3))
}

/// Times that differ by a factor of up to 8 in an order that follows nothing.
fn noisy(spec: &TrialSpec) -> Duration {
    SECOND * [1, 5, 2, 8, 3, 7, 4, 1, 6, 2, 8][spec.trial as usize % 11]
}

#[test]
fn the_order_is_that_of_the_plan() {
    let mut text = study(&["ext4", "xfs", "btrfs"], &["true", "false"]);
    (text.rounds, text.warmup) = (Some(3), Some(1));
    for seed in 0..5 {
        let mock = Mock::new(plan(&text, seed), |spec| takes(tight(spec)));
        assert_eq!(mock.sit(), StudyEnd::Complete);
        let expected: Vec<u32> = (0..24).collect();
        assert_eq!(mock.begun(), expected, "seed {seed}");
        let planned: Vec<String> = mock
            .plan
            .blocks
            .iter()
            .flat_map(|block| &block.trials)
            .map(|trial| mock.plan.study.contenders[trial.contender].label.clone())
            .collect();
        let records = mock.records();
        let carried_out: Vec<String> =
            records.iter().map(|record| record.contender.label.clone()).collect();
        assert_eq!(carried_out, planned, "seed {seed}");
        assert!(records[..6].iter().all(|record| record.warmup));
        assert!(records[6..].iter().all(|record| !record.warmup));
    }
}

/// The stop rule has no say in them, however many there are.
#[test]
fn every_warm_up_block_is_carried_out() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    (text.rounds, text.warmup) = (Some(2), Some(4));
    let mock = Mock::new(plan(&text, 1), |spec| takes(tight(spec)));
    assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Complete, 12));
}

#[test]
fn every_trial_is_told_then_recorded_and_every_block_published() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    text.rounds = Some(2);
    let mock = Mock::new(plan(&text, 1), |spec| takes(tight(spec)));
    mock.sit();
    let expected = [
        "begin 0", "end 0", "begin 1", "end 1", "block", "begin 2", "end 2", "begin 3", "end 3",
        "block",
    ];
    assert_eq!(*mock.seen.borrow(), expected);
}

#[test]
fn tight_data_stops_at_the_least_number_of_blocks_and_noisy_data_goes_on() {
    let text = study(&["ext4", "xfs"], &["tight", "noisy"]);
    let mock = Mock::new(plan(&text, 3), |spec| {
        takes(if spec.workload.name == "tight" { tight(spec) } else { noisy(spec) })
    });
    assert_eq!(mock.sit(), StudyEnd::Complete);
    let blocks = |workload: &str| {
        mock.records().iter().filter(|record| record.workload == workload).count() / 2
    };
    assert_eq!((blocks("tight"), blocks("noisy")), (5, 20));
}

#[test]
fn the_least_and_the_greatest_number_of_blocks_hold() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    (text.min_runs, text.max_runs) = (Some(7), Some(9));
    let calm = Mock::new(plan(&text, 1), |spec| takes(tight(spec)));
    assert_eq!((calm.sit(), calm.begun().len()), (StudyEnd::Complete, 14));
    let wild = Mock::new(plan(&text, 1), |spec| takes(noisy(spec)));
    assert_eq!((wild.sit(), wild.begun().len()), (StudyEnd::Complete, 18));
}

#[test]
fn no_budget_is_exceeded_but_for_the_rounds_that_give_an_interval() {
    for budget_s in 1..60 {
        let mut text = study(&["ext4", "xfs"], &["true"]);
        text.budget = Some(format!("{budget_s}s"));
        let mock = Mock::new(plan(&text, budget_s), |spec| takes(noisy(spec)));
        // The device takes time to prepare, and that counts.
        mock.clock.set(SECOND / 2);
        assert_eq!(mock.sit(), StudyEnd::Budget, "{budget_s} s");
        let (took, budget) = (mock.clock.get(), SECOND * budget_s as u32);
        let is_late = took > budget;
        assert!(!is_late || took <= budget.mul_f64(budget::OVERRUN_MAX), "{budget_s} s");
        let ended = mock.records().iter().filter(|record| record.has_ended()).count();
        assert!(!is_late || ended <= 2 * 3, "{budget_s} s");
        for record in mock.records() {
            // A trial that the budget cut short is no failure of its contender.
            assert!(
                matches!(record.outcome, Outcome::Completed | Outcome::Interrupted { .. }),
                "{:?}",
                record.outcome
            );
        }
    }
}

#[test]
fn a_trial_that_cannot_fit_in_the_budget_is_not_begun() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    text.budget = Some("35s".into());
    let mock = Mock::new(plan(&text, 1), |_| takes(SECOND * 10));
    assert_eq!(mock.sit(), StudyEnd::Budget);
    assert_eq!(mock.begun().len(), 3);
    assert_eq!(mock.clock.get(), SECOND * 30);
    let bounds: Vec<_> = mock.begun.borrow().iter().map(|(_, _, bound)| bound.unwrap()).collect();
    assert_eq!(bounds, [35, 25, 15].map(|seconds| seconds * 1_000_000_000));
    // Another session has the same budget, and it is spent.
    assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Budget, 0));
}

#[test]
fn a_budget_that_is_too_short_is_told_after_the_first_block() {
    let told = |budget: &str| {
        let mut text = study(&["ext4", "xfs"], &["true"]);
        (text.budget, text.min_runs) = (Some(budget.into()), Some(5));
        let mock = Mock::new(plan(&text, 1), |_| takes(SECOND * 10));
        mock.sit();
        let seen = mock.seen.borrow();
        let block = seen.iter().position(|seen| seen == "block").unwrap();
        let notes = || seen.iter().filter(|seen| seen.starts_with("note"));
        assert!(notes().count() == 0 || seen[block + 1].starts_with("note"), "{seen:?}");
        notes().cloned().collect::<Vec<String>>()
    };
    let words = "note warning: the budget leaves time for about 3 of at least 5 rounds; \
        raise --budget to 120s, or lower --min-rounds";
    assert_eq!(told("70s"), [words]);
    // Within a quarter, an estimate by one block is none.
    assert_eq!(told("90s"), [""; 0]);
    assert_eq!(told("300s"), [""; 0]);
}

#[test]
fn a_bound_on_the_trial_that_comes_first_is_a_failure() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    (text.budget, text.timeout, text.rounds) = (Some("100s".into()), Some("3s".into()), Some(1));
    let mock = Mock::new(plan(&text, 1), |_| takes(SECOND * 10));
    assert_eq!(mock.sit(), StudyEnd::Complete);
    for record in mock.records() {
        let limit_ns = 3_000_000_000;
        assert_eq!(record.outcome, Outcome::TimedOut { phase: Phase::Run, limit_ns });
    }
}

#[test]
fn a_contender_that_always_fails_is_given_up_and_the_others_go_on() {
    for broken in ["ext4", "xfs", "btrfs"] {
        let text = study(&["ext4", "xfs", "btrfs"], &["true"]);
        let mock = Mock::new(plan(&text, 1), |spec| {
            if spec.contender.label == broken { breaks(SECOND) } else { takes(noisy(spec)) }
        });
        assert_eq!(mock.sit(), StudyEnd::Complete);
        assert_eq!(mock.begun_of(broken), FAILURES_MAX, "{broken}");
        // Without a baseline there is nothing to compare, and more than the least number of blocks
        // would not help.
        let expected = if broken == "ext4" { 5 } else { 20 };
        for label in ["ext4", "xfs", "btrfs"].iter().filter(|label| **label != broken) {
            assert_eq!(mock.begun_of(label), expected, "{label} while {broken} is broken");
        }
    }
}

#[test]
fn a_contender_that_fails_now_and_then_is_tried_again() {
    let text = study(&["ext4", "xfs"], &["true"]);
    let mock = Mock::new(plan(&text, 1), |spec| {
        if spec.contender.label == "xfs" && spec.block % 3 != 1 {
            breaks(SECOND)
        } else {
            takes(noisy(spec))
        }
    });
    assert_eq!(mock.sit(), StudyEnd::Complete);
    assert_eq!((mock.begun_of("ext4"), mock.begun_of("xfs")), (20, 20));
}

#[test]
fn giving_up_under_one_workload_says_nothing_of_another() {
    let mut text = study(&["ext4", "xfs"], &["true", "false"]);
    text.rounds = Some(6);
    let mock = Mock::new(plan(&text, 1), |spec| {
        if spec.contender.label == "xfs" && spec.workload.name == "false" {
            breaks(SECOND)
        } else {
            takes(SECOND)
        }
    });
    mock.sit();
    assert_eq!((mock.begun_of("ext4"), mock.begun_of("xfs")), (12, 6 + FAILURES_MAX));
}

/// The study is stopped after every possible number of trials. Once it is resumed, the trials of a
/// block that had only been half done were all carried out again, the others stand as they were,
/// and the records that count are those of a study without an interruption.
#[test]
fn a_stop_between_any_two_trials_is_resumed_under_the_same_plan() {
    let mut text = study(&["ext4", "xfs", "btrfs"], &["true", "false"]);
    (text.rounds, text.warmup) = (Some(3), Some(1));
    let whole = Mock::new(plan(&text, 5), |spec| takes(noisy(spec)));
    whole.sit();
    for trials in 1..24 {
        let mock = Mock::new(plan(&text, 5), |spec| takes(noisy(spec)));
        let plan_bytes = fs::read(mock.directory.join(PLAN_FILE)).unwrap();
        mock.stop_after.set(trials);
        assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Stopped, trials));
        mock.stop_after.set(usize::MAX);
        // Three contenders: so many trials had been carried out of the block and workload.
        let half = trials % 3;
        assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Complete, 24 - trials + half));
        assert_eq!(mock.records_of_one_session(), whole.records(), "stopped after {trials} trials");
        let superseded: Vec<u32> = mock.superseded().iter().map(|record| record.trial).collect();
        let expected: Vec<u32> = (trials as u32 - half as u32..trials as u32).collect();
        assert_eq!(superseded, expected, "stopped after {trials} trials");
        for unit in mock.records().chunks(3) {
            assert!(unit.iter().all(|record| record.session == unit[0].session), "{unit:#?}");
        }
        assert_eq!(fs::read(mock.directory.join(PLAN_FILE)).unwrap(), plan_bytes);
    }
}

#[test]
fn a_trial_that_was_interrupted_is_repeated_and_one_that_failed_is_not() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    text.rounds = Some(3);
    let interrupt = Cell::new(true);
    let mock = Mock::new(plan(&text, 1), |spec| match spec.trial {
        1 => breaks(SECOND),
        3 if interrupt.get() => (SECOND, Outcome::Interrupted { phase: Phase::Sync }),
        _ => takes(SECOND),
    });
    assert_eq!((mock.sit(), mock.begun()), (StudyEnd::Stopped, vec![0, 1, 2, 3]));
    interrupt.set(false);
    assert_eq!((mock.sit(), mock.begun()), (StudyEnd::Complete, vec![2, 3, 4, 5]));
    assert_eq!(mock.superseded().len(), 2);
    let analysis = analyse(&mock.plan, &mock.records(), None);
    let contenders = &analysis.workloads[0].contenders;
    assert_eq!(contenders.iter().map(|contender| contender.trials).sum::<usize>(), 6);
    assert_eq!(contenders.iter().map(|contender| contender.failed).sum::<usize>(), 1);
    // Nothing is left to do.
    assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Complete, 0));
}

/// The stop rule sees whole blocks only: where it was interrupted makes no difference.
#[test]
fn the_stop_rule_decides_the_same_after_a_resume() {
    let text = study(&["ext4", "xfs"], &["true"]);
    // XFS is a little slower, so that it takes more than the least number of blocks to see it.
    let mild = |spec: &TrialSpec| {
        let slower = if spec.contender.label == "xfs" { 90 } else { 0 };
        takes(SECOND + Duration::from_millis(u64::from(spec.trial * 37 % 250) + slower))
    };
    let whole = Mock::new(plan(&text, 9), mild);
    whole.sit();
    let trials = whole.begun().len();
    assert!((12..40).contains(&trials), "the noise is to end the study early, not at {trials}");
    for stop in 1..trials {
        let mock = Mock::new(plan(&text, 9), mild);
        mock.stop_after.set(stop);
        mock.sit();
        mock.stop_after.set(usize::MAX);
        mock.sit();
        assert_eq!(mock.records_of_one_session(), whole.records(), "stopped after {stop} trials");
    }
}

/// What was recorded is kept until the trial that takes its place has been carried out.
#[test]
fn a_half_block_counts_until_it_is_repeated() {
    let mut text = study(&["ext4", "xfs", "btrfs"], &["true"]);
    (text.rounds, text.budget) = (Some(4), Some("50s".into()));
    let mock = Mock::new(plan(&text, 1), |_| takes(SECOND * 10));
    mock.stop_after.set(5);
    assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Stopped, 5));
    assert_eq!((mock.records().len(), mock.superseded().len()), (5, 0));
    mock.stop_after.set(usize::MAX);
    // The budget leaves no time for another round, so nothing takes the place of the half block.
    assert_eq!((mock.sit(), mock.begun().len()), (StudyEnd::Budget, 0));
    assert_eq!((mock.records().len(), mock.superseded().len()), (5, 0));
    // Interrupted again, in the first of the trials that are repeated: the half block is gone, and
    // what stands is never of two sessions.
    mock.clock.set(Duration::ZERO);
    mock.stop_after.set(1);
    assert_eq!((mock.sit(), mock.begun()), (StudyEnd::Stopped, vec![3]));
    let sessions: Vec<u32> = mock.records().iter().map(|record| record.session).collect();
    assert_eq!((sessions, mock.superseded().len()), (vec![1, 1, 1, 3], 2));
}

/// A device that is gone fails every contender; nobody wants to see that twenty times.
#[test]
fn a_study_in_which_everything_fails_ends_and_can_be_resumed() {
    let mut text = study(&["ext4", "xfs"], &["true", "false"]);
    text.rounds = Some(9);
    let broken = Cell::new(true);
    let mock = Mock::new(plan(&text, 1), |spec| {
        let fails = spec.block >= 3 && spec.workload.name == "true" && broken.get();
        if fails { breaks(SECOND) } else { takes(SECOND) }
    });
    assert_eq!(mock.sit(), StudyEnd::Failing);
    let of =
        |workload: &str| mock.records().iter().filter(|record| record.workload == workload).count();
    assert_eq!((of("true"), of("false")), (2 * 5, 2 * 9));
    // Another session has another filling of the device.
    broken.set(false);
    assert_eq!(mock.sit(), StudyEnd::Complete);
    assert_eq!((of("true"), of("false")), (2 * 9, 2 * 9));
}

#[test]
fn a_study_in_which_everything_failed_from_the_start_can_be_resumed() {
    let text = study(&["ext4", "xfs"], &["true"]);
    let broken = Cell::new(true);
    let mock =
        Mock::new(plan(&text, 1), |_| if broken.get() { breaks(SECOND) } else { takes(SECOND) });
    assert_eq!(mock.sit(), StudyEnd::Failing);
    let failed = mock.records().len();
    assert_eq!(failed, 2 * FAILED_BLOCKS_MAX);
    assert!(!is_complete(&mock.plan, &mock.records()));
    broken.set(false);
    assert_eq!(mock.sit(), StudyEnd::Complete);
    let completed = |record: &&Record| record.outcome == Outcome::Completed;
    // The two blocks that failed stand as they are; the other three of five were carried out.
    assert_eq!(mock.records().iter().filter(completed).count(), 2 * 3);
    assert!(is_complete(&mock.plan, &mock.records()));
}

#[test]
fn a_stop_before_the_first_trial_carries_out_none() {
    let text = study(&["ext4", "xfs"], &["true"]);
    let mock = Mock::new(plan(&text, 1), |spec| takes(tight(spec)));
    mock.stop_after.set(0);
    let (mut writer, _) = ResultWriter::resume(&mock.directory).unwrap();
    let context = RunnerContext {
        session: 1,
        device: None,
        elapsed: &|| Duration::ZERO,
        stopped: &|| true,
        memory_bytes: None,
        run_times: BTreeMap::new(),
    };
    let (mut executor, mut observer) = (MockExecutor(&mock), MockObserver(&mock));
    let mut records = Vec::new();
    let end = run(&mock.plan, &mut records, &context, &mut executor, &mut writer, &mut observer);
    assert_eq!(end.unwrap(), StudyEnd::Stopped);
    assert_eq!((mock.begun().len(), records.len()), (0, 0));
}

/// A plan under which contenders take turns.
fn plan_of_turns(text: &StudyText, seed: u64) -> Plan {
    let mut plan = plan(text, seed);
    plan.side_by_side = plan.study.workloads.iter().map(|workload| workload.name.clone()).collect();
    plan
}

#[test]
fn contenders_that_take_turns_stand_on_parts_that_are_drawn_anew() {
    let mut text = study(&["ext4", "xfs", "btrfs"], &["true"]);
    text.rounds = Some(20);
    let mock = Mock::new(plan_of_turns(&text, 1), |spec| takes(tight(spec)));
    assert_eq!(mock.sit(), StudyEnd::Complete);
    let records = mock.records();
    assert_eq!(records.len(), 60);
    let mut seen: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for block in records.chunks(3) {
        let parts: Vec<u32> = block.iter().map(|r| r.side_by_side.unwrap().part).collect();
        let rounds = block[0].slices.len();
        assert!(rounds > 10 && block.iter().all(|record| record.slices.len() == rounds));
        for (record, part) in block.iter().zip(&parts) {
            seen.entry(&record.contender.label).or_default()[*part as usize] += 1;
        }
        assert_eq!(parts.iter().sum::<u32>(), 3, "each part has one: {parts:?}");
    }
    assert!(seen.values().flatten().all(|times| (2..=12).contains(times)), "{seen:?}");
}

#[test]
fn a_contender_that_fails_leaves_the_others_their_turns() {
    let mut text = study(&["ext4", "xfs", "btrfs"], &["true"]);
    text.rounds = Some(4);
    let mock = Mock::new(plan_of_turns(&text, 1), |spec| match spec.contender.label.as_str() {
        "xfs" => breaks(SECOND),
        _ => takes(tight(spec)),
    });
    assert_eq!(mock.sit(), StudyEnd::Complete);
    assert_eq!((mock.begun_of("xfs"), mock.begun_of("ext4"), mock.begun_of("btrfs")), (2, 4, 4));
    let completed = |record: &&Record| record.outcome == Outcome::Completed;
    assert!(mock.records().iter().filter(completed).all(|record| record.slices.len() > 10));
}

/// All trials of a block that the budget cuts short are interrupted, and a resumed study carries the
/// whole block out again.
#[test]
fn a_budget_ends_a_block_of_turns_and_bounds_all_of_them() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    (text.min_runs, text.budget) = (Some(5), Some("60s".into()));
    let mock = Mock::new(plan_of_turns(&text, 1), |spec| takes(noisy(spec)));
    assert_eq!(mock.sit(), StudyEnd::Budget);
    assert!(mock.clock.get() <= 61 * SECOND, "{:?}", mock.clock.get());
    let blocks = mock.records().iter().filter(|record| record.has_ended()).count() / 2;
    assert!(blocks >= 4, "{blocks} blocks had a fair share each");
    let spent = StoredResult::read(&mock.directory).unwrap().spent_ns();
    let lived = mock.clock.get().as_nanos() as u64;
    assert!(spent.abs_diff(lived) < 1_000_000_000, "{spent} of {lived}");
}

#[test]
fn a_stop_between_blocks_of_turns_is_gone_on_with() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    text.rounds = Some(4);
    let whole = Mock::new(plan_of_turns(&text, 3), |spec| takes(tight(spec)));
    whole.sit();
    let mock = Mock::new(plan_of_turns(&text, 3), |spec| takes(tight(spec)));
    mock.stop_after.set(3);
    assert_eq!(mock.sit(), StudyEnd::Stopped);
    assert_eq!(mock.records().len(), 4, "a block is recorded whole");
    mock.stop_after.set(usize::MAX);
    assert_eq!(mock.sit(), StudyEnd::Complete);
    assert_eq!(mock.begun(), [4, 5, 6, 7]);
    let outcomes = |mock: &Mock<'_>| {
        mock.records_of_one_session().into_iter().map(|r| (r.trial, r.slices)).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&mock), outcomes(&whole));
}

/// What a whole device has room for, a part of it may not have.
#[test]
fn contenders_come_one_at_a_time_once_a_part_of_the_device_was_full() {
    let mut text = study(&["ext4", "xfs"], &["true"]);
    text.rounds = Some(3);
    let script = |spec: &TrialSpec| match (spec.side_by_side, spec.contender.label.as_str()) {
        (Some(_), "xfs") => fills(SECOND),
        _ => takes(tight(spec)),
    };
    let mock = Mock::new(plan_of_turns(&text, 1), script);
    assert_eq!(mock.sit(), StudyEnd::Complete);
    let records = mock.records();
    let ended: Vec<&Record> = records.iter().filter(|record| record.has_ended()).collect();
    assert_eq!((records.len(), ended.len()), (8, 6), "one block was broken off");
    assert!(ended.iter().all(|one| one.outcome == Outcome::Completed && one.slices.is_empty()));
    let notes = || mock.seen.borrow().iter().filter(|said| said.starts_with("note")).count();
    assert_eq!(notes(), 1);
    assert_eq!(analyse(&mock.plan, &records, None).workloads[0].blocks_whole, 3);
    // Whoever asked for turns is told that they failed.
    let mut plan = plan_of_turns(&text, 1);
    plan.study.side_by_side = Some(true);
    let asked = Mock::new(plan, script);
    asked.sit();
    assert!(asked.records().iter().all(Record::has_ended));
}
