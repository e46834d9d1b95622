//! One session of a study: prepares the device, lets the runner loop, gives everything back, and
//! shows the result. Every `kurabe resume` is another session under the same plan.
//!
//! Invariant: whatever ends it, what was taken is given back, or said to be still there.

use std::cell::{Cell, RefCell};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::analysis::{EffortForecast, ended_by_budget};
use lab::plan::Plan;
use lab::record::{Outcome, Record};
use lab::result::{COMPARISONS_FILE, PLAN_FILE, ResultWriter, StoredResult};
use report::source::{ResultSource, memory_bytes};
use serde_json::Value;
use trial::device;
use trial::stop::StopFlag;
use trust::words::pasted_path;
use vocabulary::words::counted;

use crate::environment::dry_run::DryRunReport;
use crate::environment::{Ended, Environment, Preparation, Ready, needs_device};
use crate::exit::{self, Failure, SIGNAL_BASE};
use crate::power_failures::durability;
use crate::presentation::Presentation;
use crate::presentation::page::write_page;
use crate::presentation::progress::Progress;
use crate::runner::{self, RunnerContext, StudyEnd};
use crate::terminal::{self, rough};

pub mod forecast;
pub mod prepare;

use forecast::TimeForecast;

/// A session that is about to begin.
pub struct Session {
    /// What is to be carried out.
    pub plan: Plan,
    /// Where it is carried out; examined.
    pub environment: Box<dyn Environment>,
    /// The records of earlier sessions that stand.
    pub records: Vec<Record>,
    /// Time that earlier sessions took.
    pub spent_before: Duration,
    /// The facts of the last session before, or null.
    pub facts: Value,
    pub writer: ResultWriter,
    pub presentation: Presentation,
    /// What the user is told before the first trial.
    pub notes: Vec<String>,
    /// Whether everything is tried before the device is filled.
    pub dry_run: bool,
    /// Gives the device back while the result is already being shown.
    pub closing: Option<JoinHandle<()>>,
}

impl Session {
    /// Carries the plan out and says with which code to exit.
    pub fn carry_out(mut self) -> Result<u8, Failure> {
        let begun = Instant::now();
        let stop = StopFlag::on_signals().map_err(Failure::broken)?;
        let look = self.presentation.look;
        let mut progress = Progress::new(look, self.plan.study.workloads.len() > 1);
        let mut all_given_back = true;
        if let Some(why) = self.nothing_to_do() {
            self.headlines().iter().for_each(|line| progress.say(line));
            progress.say(&why);
        } else {
            let result = self.with_device(begun, &stop, &mut progress);
            progress.finish();
            match result {
                Ok(given_back) => all_given_back = given_back,
                Err(failure) if stop.signal().is_some() => {
                    // Stopped while preparing, or broken by something that must not go unsaid.
                    progress.say(&failure.message);
                    return Ok(signal_code(&stop).unwrap_or(failure.code));
                }
                Err(failure) => {
                    self.writer.withdraw();
                    return Err(failure);
                }
            }
        }
        let directory = self.writer.directory().clone();
        let source = StoredResult::read_in(directory.clone()).map(ResultSource::of);
        let source = source.map_err(Failure::broken)?;
        self.publish(&source)?;
        if look.live || look.lines {
            // The progress went to standard error; on a terminal both end up on one screen.
            terminal::note("");
        }
        terminal::show(&self.presentation.screen(&source));
        // The records are safe; a page that cannot be written can be made again.
        match write_page(&directory, &source) {
            Ok(path) => progress.say(&format!("report: {}", path.display())),
            Err(error) => progress.say(&format!("the report could not be written: {error}")),
        }
        if let Some(closing) = self.closing.take() {
            closing.join().expect("giving a device back does not panic");
        }
        Ok(signal_code(&stop).unwrap_or_else(|| self.exit_code(&source, all_given_back)))
    }

    /// What is about to be compared, and what there is to know of it.
    fn headlines(&self) -> Vec<String> {
        std::iter::once(self.headline()).chain(self.notes.iter().cloned()).collect()
    }

    /// What is about to be compared.
    fn headline(&self) -> String {
        let study = &self.plan.study;
        let names = |names: Vec<&str>| names.join(", ");
        let blocks = match (study.blocks_min, study.blocks_max) {
            _ if let Some(runs) = study.runs => {
                format!("{} of each", counted(runs as usize, "run"))
            }
            (1, 1) => "1 round".to_string(),
            (least, most) if least == most => format!("{least} rounds"),
            (least, most) => format!("{least} to {most} rounds"),
        };
        let device = match study.hosts().first() {
            _ if !needs_device(study) => String::new(),
            Some(host) => format!(" on {} of {host}", study.device),
            None => format!(" on {}", study.device),
        };
        let user = study.user.as_ref().map_or(String::new(), |user| format!(" as user {user}"));
        format!(
            "{}: {} under {}{user}{device}, {blocks}, seed {}",
            study.name,
            names(study.contenders.iter().map(|contender| contender.label.as_str()).collect()),
            names(study.workloads.iter().map(|workload| workload.name.as_str()).collect()),
            self.plan.seed,
        )
    }

    /// Why no trial would be carried out, known before the device is filled for nothing.
    fn nothing_to_do(&self) -> Option<String> {
        if self.has_open_cuts() {
            return None;
        }
        if runner::is_complete(&self.plan, &self.records) {
            return Some("every planned round has been measured; nothing is left to do".into());
        }
        let budget = self.budget()?;
        // What the last filling took, this one will take too.
        let fill_ns = self.facts.pointer("/device/fill_ns").and_then(Value::as_u64);
        let fill = Duration::from_nanos(fill_ns.unwrap_or(0));
        let why = match self.spent_before {
            spent if spent >= budget => "is spent",
            spent if !runner::next_fits(&self.plan, &self.records, spent + fill) => {
                "leaves no time for another round"
            }
            _ => return None,
        };
        Some(format!(
            "the budget of {} {why}; to go on: kurabe resume {} --more ROUNDS",
            rough(budget),
            pasted_path(self.writer.directory().path())
        ))
    }

    /// Whether a timed trial waits for its power cuts, which no budget bounds.
    fn has_open_cuts(&self) -> bool {
        !durability::open(&self.plan, &self.records).is_empty()
    }

    fn budget(&self) -> Option<Duration> {
        self.plan.study.budget_ns.map(Duration::from_nanos)
    }

    /// Prepares the device and carries the plan out on it. When it returns, everything that was
    /// taken is given back; whether that is so is what it says.
    fn with_device(
        &mut self,
        begun: Instant,
        stop: &StopFlag,
        progress: &mut Progress,
    ) -> Result<bool, Failure> {
        let spent_before = self.spent_before;
        // A file system is aged once and kept: the budget is for what is measured.
        let ageing = Cell::new(Duration::ZERO);
        let elapsed = || (spent_before + begun.elapsed()).saturating_sub(ageing.get());
        let bound = self.budget().filter(|_| !self.has_open_cuts());
        let is_spent = || bound.is_some_and(|budget| elapsed() >= budget);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let study = &self.plan.study;
        let forecast = RefCell::new(TimeForecast::new(&self.plan, &self.records, bound));
        let short = RefCell::new(None);
        // What is refused prints nothing else before.
        let headlines = RefCell::new(self.headlines());
        progress.step("dry run");
        let mut filled = |fill: device::FillProgress| {
            headlines.take().iter().for_each(|line| progress.say(line));
            // The budget is a bound on everything, and the filling alone can take longer.
            if is_spent() && fill.done_bytes < fill.total_bytes {
                stop.raise();
            }
            let percent = fill.done_bytes.saturating_mul(100) / fill.total_bytes.max(1);
            progress.step(&format!("filling {} with random data: {percent} %", study.device));
            let mut forecast = forecast.borrow_mut();
            let words = forecast.filling(fill, begun.elapsed());
            if let Some(why) = forecast.too_short(elapsed()) {
                stop.raise();
                short.replace(Some(why));
            } else if let Some(words) = words {
                progress.say(&words);
            }
        };
        let mut tried = |tried: DryRunReport| {
            let mut forecast = forecast.borrow_mut();
            forecast.tried = Some(tried);
            forecast.too_short(elapsed()).map_or(Ok(()), |words| Err(Failure::refused(words)))
        };
        let ready = self.environment.prepare(Preparation {
            study,
            stop,
            filled: &mut filled,
            say: &|text| progress.say(text),
            first: &|device| runner::next_spec(&self.plan, &self.records, device),
            aged: &|time| ageing.set(time),
            tried: self.dry_run.then_some(&mut tried),
        });
        let ready = ready.map_err(|failure| {
            if let Some(words) = short.take() {
                Failure::refused(words)
            } else if !(stop.raised() && is_spent()) {
                failure
            } else {
                Failure::broken(format!(
                    "the budget ended while {} was being filled, before the first run; raise --budget or take a smaller --device",
                    study.device
                ))
            }
        });
        let Ready { device, size_bytes, mut facts, ageing_ns } = ready?;
        ageing.set(Duration::from_nanos(ageing_ns));
        headlines.take().iter().for_each(|line| progress.say(line));
        facts.insert("schema".into(), self.plan.schema.into());
        facts.insert("started_unix_ns".into(), (started.as_nanos() as u64).into());
        facts.insert("command_line".into(), std::env::args().collect::<Vec<_>>().into());
        self.facts = Value::Object(facts);
        let session = self.writer.begin_session(&self.facts).map_err(Failure::broken)?;
        // Not before the device is there: what is refused leaves no result.
        progress.say(&format!("result: {}", self.writer.directory().path().display()));
        let stopped = || stop.raised();
        let context = RunnerContext {
            device,
            session,
            elapsed: &elapsed,
            stopped: &stopped,
            memory_bytes: memory_bytes(&self.facts),
            run_times: forecast.into_inner().run_times(),
        };
        progress.after_each_block(self.exporting());
        let end = runner::run(
            &self.plan,
            &mut self.records,
            &context,
            &mut *self.environment,
            &mut self.writer,
            progress,
        );
        if matches!(end, Ok(StudyEnd::Budget)) {
            ended_by_budget(&mut self.plan, &self.records);
            self.writer.write_json(PLAN_FILE, &self.plan).map_err(Failure::broken)?;
        }
        let mut cut = Ok(());
        if matches!(end, Ok(StudyEnd::Complete | StudyEnd::Budget)) {
            cut = durability::cut_all(
                &self.plan,
                &mut self.records,
                size_bytes,
                &mut *self.environment,
                &mut self.writer,
                progress,
                &stopped,
            );
        }
        let Ended { left, lost, closing } = self.environment.end();
        self.closing = closing;
        let all_given_back = left.is_empty() && lost.is_none();
        if let Some(lost) = lost {
            progress.say(&lost);
        }
        if !left.is_empty() {
            progress
                .say(&format!("could not be given back: {}; run 'kurabe clean'", left.join("; ")));
        }
        cut?;
        if let Some(words) = self.words_of(end.map_err(Failure::broken)?, all_given_back) {
            progress.say(&words);
        }
        Ok(all_given_back)
    }

    /// Writes the exports from the result directory, which has everything; one that cannot be written
    /// now is tried again after the next block, and at the end its failure is an error.
    fn exporting(&self) -> Box<dyn Fn() -> Result<(), String>> {
        let exports = self.presentation.exports.files();
        let directory = self.writer.directory().clone();
        Box::new(move || {
            if !exports.any() {
                return Ok(());
            }
            let stored = StoredResult::read_in(directory.clone());
            let stored = stored.map_err(|error| error.to_string())?;
            exports.write(&ResultSource::of(stored)).map_err(|error| error.to_string())
        })
    }

    /// What the user is told of the end, unless it is the planned one.
    fn words_of(&self, end: StudyEnd, all_given_back: bool) -> Option<String> {
        let resume = format!("kurabe resume {}", pasted_path(self.writer.directory().path()));
        match end {
            StudyEnd::Complete => None,
            StudyEnd::Budget => {
                let budget = rough(self.budget().unwrap_or_default());
                Some(format!("the budget of {budget} ended the study{}", self.ended_too_soon()))
            }
            StudyEnd::Stopped if all_given_back => {
                Some(format!("stopped; everything was given back. To continue: {resume}"))
            }
            StudyEnd::Stopped => Some(format!("stopped. To continue: {resume}")),
            StudyEnd::Failing => Some(format!(
                "under {} every run failed, round after round, so no more were tried; remove the cause, then continue with: {resume}",
                self.failing_workloads().join(", ")
            )),
        }
    }

    /// What the budget had no time for, and what would help.
    fn ended_too_soon(&self) -> String {
        let missing = runner::rounds_to_interval(&self.plan, &self.records);
        if missing > 0 {
            return format!("; an interval needs {}", counted(missing as usize, "more round"));
        }
        let forecast = EffortForecast::of(&self.plan, &self.records);
        let is_open = forecast.is_some_and(|forecast| forecast.is_open());
        runner::long_runs(&self.plan, &self.records).filter(|_| is_open).map_or_else(
            String::new,
            |run| {
                let seconds = run.as_secs_f64();
                format!("; a run took {seconds:.1} s, and runs that do less would decide more in the same time")
            },
        )
    }

    /// The workloads whose last trials all failed.
    fn failing_workloads(&self) -> Vec<&str> {
        let failed = |workload: &str| {
            let of = self.records.iter().filter(|record| record.workload == workload);
            let last = of.clone().map(|record| record.block).max();
            of.filter(|record| Some(record.block) == last)
                .all(|record| record.outcome != Outcome::Completed)
        };
        let names = self.plan.study.workloads.iter().map(|workload| workload.name.as_str());
        names.filter(|name| failed(name)).collect()
    }

    fn publish(&self, source: &ResultSource) -> Result<(), Failure> {
        let rows = source.analysis.rows();
        self.writer.write_json(COMPARISONS_FILE, &rows).map_err(Failure::broken)?;
        self.presentation.exports.write(source).map_err(Failure::broken)
    }

    fn exit_code(&self, source: &ResultSource, all_given_back: bool) -> u8 {
        let analysis = &source.analysis;
        match self.presentation.own {
            _ if !all_given_back => exit::TRIAL_FAILED,
            Some(own) => own(source).1,
            None => exit::of_study(&self.records, analysis, &analysis.gates),
        }
    }
}

fn signal_code(stop: &StopFlag) -> Option<u8> {
    stop.signal().map(|number| SIGNAL_BASE + number as u8)
}
