//! What comes of a budget, in simulated studies on an idle machine and on busy ones: the forecast before the first
//! trial, the trial loop and its schedule are the real ones; no process is started and no time passes.

use lab::study::Study;

use super::super::budget::OVERRUN_MAX;
use super::*;
use crate::environment::dry_run::{DryRunReport, Run};
use crate::session::forecast::TimeForecast;

const MILLISECOND: Duration = Duration::from_millis(1);

/// How many times as long as on an idle machine everything takes at a time, but for the workload.
type Load = fn(Duration) -> f64;

/// Machines: their load, and how many times as long as in the dry run a run takes.
const MACHINES: [(&str, Load, f64); 3] = [
    ("idle", |_| 1.0, 1.0),
    ("busy", |time| 3.0 + (time.as_secs_f64() / 9.0).sin(), 1.3),
    ("busier and busier", |time| (1.0 + time.as_secs_f64() / 20.0).min(3.0), 1.0),
];

/// A machine on which trials do nothing but take time.
struct Machine {
    clock: Cell<Duration>,
    load: Load,
    run: Duration,
    /// By how much runs take longer than the dry run told.
    slower: f64,
    notes: RefCell<Vec<String>>,
    rounds: Cell<usize>,
}

impl Machine {
    fn new(load: Load, run: Duration) -> Machine {
        let (notes, rounds) = (RefCell::default(), Cell::new(0));
        Machine { clock: Cell::new(Duration::ZERO), load, run, slower: 1.0, notes, rounds }
    }

    /// Something passes that takes so long on an idle machine.
    fn pass(&self, idle: Duration) {
        let now = self.clock.get();
        self.clock.set(now + idle.mul_f64((self.load)(now)));
    }

    /// mkfs, mount, sync, and the wait for an idle device.
    fn make(&self) {
        self.pass(400 * MILLISECOND);
    }

    /// Unmount and check.
    fn end(&self) {
        self.pass(250 * MILLISECOND);
    }

    /// A run, of which half a percent is chance.
    fn run(&self, number: u32) -> Duration {
        let chance = 1.0 + f64::from(number.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 / 100.0;
        let time = self.run.mul_f64(self.slower * chance);
        self.clock.set(self.clock.get() + time);
        time
    }

    /// What a dry run would tell.
    fn dry_run(&self, study: &Study) -> DryRunReport {
        let contenders = study.contenders.len() as u32;
        let begun = self.clock.get();
        for _ in 0..contenders {
            self.make();
            self.end();
        }
        let around = self.clock.get() - begun;
        self.make();
        let runs = study.workloads.iter().map(|workload| {
            let run = Run { time: self.run, ended: true };
            (workload.name.clone(), run)
        });
        let runs = runs.collect();
        self.clock.set(self.clock.get() + self.run);
        self.end();
        DryRunReport { around, runs }
    }

    fn record(&self, spec: &TrialSpec, begun: Duration, runs: Vec<RunRecord>) -> Record {
        let mut record = Record::begun(spec, begun.as_nanos() as u64);
        record.phases = phases_of(&runs);
        record.outcome = Outcome::Completed;
        record.slices = runs;
        record
    }
}

fn one_run(round: u32, position: u32, time: Duration) -> RunRecord {
    RunRecord {
        round,
        position,
        run_ns: time.as_nanos() as u64,
        sync_ns: 0,
        device: None,
        idle_device: None,
        metrics: Vec::new(),
        watched: None,
    }
}

impl Executor for &Machine {
    fn run(
        &mut self,
        specs: &[TrialSpec],
        schedule: Option<&mut Schedule<'_>>,
        _: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let Some(schedule) = schedule else {
            let [spec] = specs else { panic!("one at a time") };
            let begun = self.clock.get();
            self.make();
            let runs = vec![one_run(0, 0, Machine::run(self, spec.trial))];
            self.end();
            let mut record = self.record(spec, begun, runs);
            record.slices.clear();
            let mut took_ns = (self.clock.get() - begun).as_nanos() as u64;
            if let Some(limit_ns) = spec.timeout_ns.filter(|limit_ns| took_ns > *limit_ns) {
                took_ns = limit_ns;
                self.clock.set(begun + Duration::from_nanos(limit_ns));
                record.outcome = Outcome::TimedOut { phase: Phase::Run, limit_ns };
            }
            record.elapsed_ns = took_ns;
            return vec![record];
        };
        let begin = |_| {
            let begun = self.clock.get();
            self.make();
            begun
        };
        let begun: Vec<Duration> = specs.iter().map(begin).collect();
        let live: Vec<usize> = (0..specs.len()).collect();
        let mut runs = vec![Vec::new(); specs.len()];
        while let Some((number, turn)) = schedule.next(&live) {
            let TrialCommand::Slice { round, position, last, .. } = turn else {
                panic!("{turn:?}")
            };
            let time = Machine::run(self, specs[number].trial * 101 + round);
            let run = one_run(round, position, time);
            schedule.took(&run);
            runs[number].push(run);
            if !last {
                self.pass(50 * MILLISECOND);
            }
            if schedule.is_over() {
                break;
            }
        }
        let is_over = schedule.is_over();
        let mut records = Vec::new();
        for ((spec, begun), runs) in specs.iter().zip(begun).zip(runs) {
            self.end();
            let mut record = self.record(spec, begun, runs);
            record.elapsed_ns = (self.clock.get() - begun).as_nanos() as u64;
            if is_over {
                record.outcome = Outcome::Interrupted { phase: Phase::Run };
            }
            records.push(record);
        }
        records
    }
}

impl Observer for &Machine {
    fn trial_begins(&mut self, _: &Position<'_>) {}
    fn event(&mut self, _: &Event) {}
    fn trial_ended(&mut self, _: &Record) {}

    fn note(&mut self, words: &str) {
        self.notes.borrow_mut().push(format!("{} {words}", self.rounds.get()));
    }

    fn block_ended(&mut self, _: &[Record], _: &Analysis) {
        self.rounds.set(self.rounds.get() + 1);
    }
}

/// How a study with a budget ended.
enum Answer {
    Refused(String),
    /// The interval of each cost, the number of rounds to an interval, and why it ended.
    Ended(Vec<Option<(f64, f64)>>, u32, StudyEnd),
}

fn answer(machine: &Machine, budget_s: u64, contenders: usize, takes_turns: bool) -> Answer {
    let labels = ["a: ext4", "b: ext4", "c: ext4", "d: ext4", "e: ext4", "f: ext4"];
    let mut text = study(&labels[..contenders], &["true"]);
    text.budget = Some(format!("{budget_s}s"));
    let seed = budget_s + contenders as u64;
    let plan = if takes_turns { plan_of_turns(&text, seed) } else { plan(&text, seed) };
    let mut forecast = TimeForecast::new(&plan, &[], Some(Duration::from_secs(budget_s)));
    forecast.tried = Some(machine.dry_run(&plan.study));
    if let Some(words) = forecast.too_short(machine.clock.get()) {
        return Answer::Refused(words);
    }
    // The device is filled.
    machine.pass(SECOND);
    if let Some(words) = forecast.too_short(machine.clock.get()) {
        return Answer::Refused(words);
    }
    // Every record is synced, and a disk would take longer for that than for all else.
    let memory = Path::new("/dev/shm");
    let home = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let home = home.unwrap();
    let mut writer = ResultWriter::create(&home.path().join("result"), &plan, "").unwrap();
    let context = RunnerContext {
        session: writer.begin_session(&()).unwrap(),
        device: None,
        elapsed: &|| machine.clock.get(),
        stopped: &|| false,
        memory_bytes: None,
        run_times: forecast.run_times(),
    };
    let mut records = Vec::new();
    let (mut executor, mut observer) = (machine, machine);
    let end = run(&plan, &mut records, &context, &mut executor, &mut writer, &mut observer);
    let analysis = analyse(&plan, &records, None);
    let costs = analysis.workloads[0].comparisons.iter().filter(|one| one.primary);
    let intervals = costs.map(|one| one.low.zip(one.high)).collect();
    Answer::Ended(intervals, rounds_to_interval(&plan, &records), end.unwrap())
}

#[test]
fn every_budget_gives_intervals_or_is_refused_beforehand() {
    let (mut answered, mut late) = (0, 0);
    for (name, load, slower) in MACHINES {
        for budget_s in [30, 60, 120] {
            for contenders in 2..=6 {
                for run_ms in [50, 1000, 3000] {
                    for takes_turns in [true, false] {
                        let run = run_ms * MILLISECOND;
                        let machine = Machine { slower, ..Machine::new(load, run) };
                        let case = format!(
                            "{name}: {budget_s} s, {contenders} contenders of {run:?}, turns: {takes_turns}"
                        );
                        let budget = Duration::from_secs(budget_s);
                        match answer(&machine, budget_s, contenders, takes_turns) {
                            Answer::Refused(words) => {
                                assert!(words.contains("too short"), "{case}: {words}");
                                // Three rounds and the dry run would hardly have fitted.
                                let trial = run + machine.load_now(650 * MILLISECOND);
                                let least = 3 * contenders as u32 * trial + run;
                                assert!(least > budget.mul_f64(0.6), "{case}: {words}");
                            }
                            Answer::Ended(intervals, missing, _) => {
                                answered += 1;
                                assert_eq!(intervals.len(), contenders - 1);
                                let notes = machine.notes.borrow();
                                assert!(intervals.iter().all(Option::is_some), "{case}: {notes:?}");
                                assert_eq!(missing, 0, "{case}");
                                let took = machine.clock.get();
                                let most = budget.mul_f64(OVERRUN_MAX) + 5 * SECOND;
                                assert!(took <= most, "{case}: {took:?}");
                                late += usize::from(took > budget);
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{answered} of 270 studies were carried out, {late} took longer than their budget");
    assert!(answered >= 150, "{answered}");
    assert!((1..answered / 5).contains(&late), "{late} of {answered}");
}

impl Machine {
    fn load_now(&self, idle: Duration) -> Duration {
        idle.mul_f64((self.load)(self.clock.get()))
    }
}

/// Runs that take four times as long as the one that was tried leave no time for three rounds.
#[test]
fn a_budget_that_turns_out_too_short_is_told_after_the_first_round() {
    for takes_turns in [true, false] {
        let machine = Machine { slower: 4.0, ..Machine::new(|_| 1.0, 3 * SECOND) };
        let Answer::Ended(intervals, missing, end) = answer(&machine, 60, 3, takes_turns) else {
            panic!("the dry run promised an answer");
        };
        let notes = machine.notes.borrow();
        assert_eq!((end, missing), (StudyEnd::Budget, 2), "{notes:?}");
        assert!(intervals.iter().all(Option::is_none));
        // Said while the first round is still the last one that is known.
        assert!(notes[0].starts_with("0 warning: the budget of 1m 00s is too short: 3 rounds"));
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(machine.clock.get() <= 62 * SECOND, "{:?}", machine.clock.get());
    }
}

/// The reported case: a round that took long, since nobody knew how long a run takes, left time for others that take less.
#[test]
fn a_long_first_round_does_not_end_the_study() {
    let mut text = study(&["a: ext4", "b: ext4", "c: ext4", "d: ext4"], &["true"]);
    text.budget = Some("120s".into());
    let plan = plan_of_turns(&text, 1);
    let machine = Machine::new(|_| 1.0, 3 * SECOND);
    let spec = |trial: usize| {
        let block = &plan.blocks[0];
        plan.spec(block, block.trials[trial], None, PathBuf::new())
    };
    // Three runs of each, in 45 s.
    let records: Vec<Record> = (0..4)
        .map(|trial| {
            let runs = (0..3).map(|round| one_run(round, 0, 3 * SECOND)).collect();
            let mut record = machine.record(&spec(trial), Duration::ZERO, runs);
            record.elapsed_ns = 45_000_000_000;
            record
        })
        .collect();
    // What is left is enough for one of 21 s.
    assert!(next_fits(&plan, &records, Duration::from_secs(95)));
    // There is time for two of these in 180 s.
    assert!(next_fits(&plan, &records, Duration::from_secs(130)));
    assert!(!next_fits(&plan, &records, Duration::from_secs(150)));
}

/// Rounds that follow on those of a budget take as long as was foretold.
#[test]
fn what_more_rounds_take_is_known() {
    for (run_ms, takes_turns) in [(50, true), (50, false), (1000, true), (1000, false)] {
        let machine = Machine::new(|_| 1.0, run_ms * MILLISECOND);
        let mut text = study(&["a: ext4", "b: ext4", "c: ext4"], &["true"]);
        // So close a margin is never decided.
        (text.budget, text.same_within) = (Some("60s".into()), Some(0.001));
        text.max_runs = Some(60);
        let mut plan = if takes_turns { plan_of_turns(&text, 1) } else { plan(&text, 1) };
        let home = tempfile::tempdir().unwrap();
        let mut writer = ResultWriter::create(&home.path().join("result"), &plan, "").unwrap();
        let mut records = Vec::new();
        let mut carry_out = |plan: &Plan, records: &mut Vec<Record>| {
            let context = RunnerContext {
                session: writer.begin_session(&()).unwrap(),
                device: None,
                elapsed: &|| machine.clock.get(),
                stopped: &|| false,
                memory_bytes: None,
                run_times: BTreeMap::new(),
            };
            let (mut executor, mut observer) = (&machine, &machine);
            run(plan, records, &context, &mut executor, &mut writer, &mut observer).unwrap()
        };
        let case = format!("runs of {run_ms} ms, alternating: {takes_turns}");
        assert_eq!(carry_out(&plan, &mut records), StudyEnd::Budget, "{case}");
        plan.go_on(&records, 6);
        assert_eq!(rounds(&plan, 0).1, plan.study.blocks_max as usize, "{case}");
        let (_, foretold) = time_left(&plan, &records).unwrap();
        let begun = machine.clock.get();
        assert_eq!(carry_out(&plan, &mut records), StudyEnd::Complete, "{case}");
        let took = machine.clock.get() - begun;
        let share = took.as_secs_f64() / foretold.as_secs_f64();
        assert!((0.67..=1.33).contains(&share), "{case}: {took:?} of {foretold:?}");
    }
}
