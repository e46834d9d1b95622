//! A sitting: from what the user asked to the exit code. Resolves the study, refuses what cannot
//! be done before anything is touched, prepares the device, lets the runner loop, and shows the
//! result.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::analysis::Analysis;
use lab::event::Event;
use lab::plan::Plan;
use lab::quantity::size_text;
use lab::record::{Outcome, Record};
use lab::result::{
    COMPARISONS_FILE, FACTS_FILE, ResultError, ResultWriter, STUDY_FILE, StoredResult, replace,
};
use lab::spec::{CommandLine, Device, Load, Workload};
use lab::statistics::GateOutcome;
use lab::study::{Study, StudyText};
use lab::study_file;
use report::histograms::Histograms;
use report::source::{analysed, memory_bytes};
use serde_json::{Value, json};
use trial::device::{DeviceError, DeviceRequest, Prepared, prepare};
use trial::facts::Machine;
use trial::filesystem::{self, Access};
use trial::ledger::{self, Ledger, Taken};
use trial::stop::Stop;

use crate::executor::ProcessExecutor;
use crate::exit::{self, Failure};
use crate::flags::{CompareArgs, PresentArgs, ResumeArgs, RunArgs, Style, flag_of_field};
use crate::progress::{Look, Progress, rough};
use crate::reporting;
use crate::runner::{self, End, Observer, Position, Surroundings};
use crate::signals::Signals;
use crate::terminal;

/// `kurabe compare`.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let text = args.study_text();
    let study = text.resolve(&filesystem::names()).map_err(|error| {
        Failure::refused(format!("{}: {}", flag_of_field(&error.field), error.problem))
    })?;
    if args.print_study {
        terminal::print(&study_file::print(&text));
        return Ok(exit::OK);
    }
    if args.other.print_plan {
        return print_plan(study);
    }
    begin(&text, study)
}

/// What the loads are going to do, without doing it.
fn print_plan(mut study: Study) -> Result<u8, Failure> {
    read_files(&mut study)?;
    let size_bytes = size_bytes(&device_request(&study)?);
    for workload in &study.workloads {
        let refused =
            |problem| Failure::refused(format!("workload '{}': {problem}", workload.name));
        let text = trial::workload::plan_text(&workload.load, size_bytes).map_err(refused)?;
        println!("{}\n{}", workload.name, text.unwrap_or_default());
    }
    Ok(exit::OK)
}

/// Reads the programs and jobs that the loads name.
fn read_files(study: &mut Study) -> Result<(), Failure> {
    for workload in &mut study.workloads {
        trial::workload::read_files(&mut workload.load).map_err(|problem| {
            Failure::refused(format!("workload '{}': {problem}", workload.name))
        })?;
    }
    Ok(())
}

/// Size of an image or of memory; that of a real device is seen when it is claimed.
fn size_bytes(request: &DeviceRequest) -> Option<u64> {
    match request {
        DeviceRequest::Loop { size_bytes, .. } | DeviceRequest::Memory { size_bytes } => {
            Some(*size_bytes)
        }
        DeviceRequest::Block { .. } => None,
    }
}

/// `kurabe run`.
pub fn run_file(args: &RunArgs) -> Result<u8, Failure> {
    let path = &args.study_file;
    let source = fs::read_to_string(path)
        .map_err(|error| Failure::refused(format!("study file {}: {error}", path.display())))?;
    let (mut text, _) =
        study_file::load(path, &source, &filesystem::names()).map_err(Failure::refused)?;
    args.study.apply(&mut text);
    args.present.apply(&mut text);
    // What was wrong in the file itself was found above; what is wrong now came from a flag.
    let study = text.resolve(&filesystem::names()).map_err(|error| {
        Failure::refused(format!("{}: {}", flag_of_field(&error.field), error.problem))
    })?;
    if args.print_study {
        terminal::print(&study_file::print(&text));
        return Ok(exit::OK);
    }
    begin(&text, study)
}

/// `kurabe resume`.
pub fn resume(args: &ResumeArgs) -> Result<u8, Failure> {
    // Nobody else may write any more when the records are read.
    let writer = ResultWriter::resume(&args.directory).map_err(Failure::refused)?;
    let stored = StoredResult::read(&args.directory).map_err(Failure::refused)?;
    for damage in &stored.damage {
        terminal::note(&format!("kurabe: {damage}"));
    }
    let mut present = args.present.clone();
    let asked = asked_before(&args.directory).unwrap_or_default();
    present.export_json = present.export_json.or(asked.export_json);
    present.export_csv = present.export_csv.or(asked.export_csv);
    present.export_markdown = present.export_markdown.or(asked.export_markdown);
    let presentation = Presentation::new(&present, asked.style.as_deref())?;
    preflight(&stored.plan.study)?;
    Sitting { plan: stored.plan, records: stored.records, writer, presentation }.carry_out()
}

/// What the study file in a result asks for besides the plan: the exports and the style.
fn asked_before(directory: &Path) -> Option<StudyText> {
    let path = directory.join(STUDY_FILE);
    let text = fs::read_to_string(&path).ok()?;
    study_file::parse(&path, &text).ok()
}

fn begin(text: &StudyText, mut study: Study) -> Result<u8, Failure> {
    read_files(&mut study)?;
    let present = PresentArgs {
        out: text.out.clone(),
        style: None,
        export_json: text.export_json.clone(),
        export_csv: text.export_csv.clone(),
        export_markdown: text.export_markdown.clone(),
    };
    let presentation = Presentation::new(&present, text.style.as_deref())?;
    preflight(&study)?;
    let seed = study.seed.unwrap_or_else(random_seed);
    let out = text.out.clone().unwrap_or_else(|| default_directory(&study.name));
    let plan = Plan::new(study, seed);
    let writer =
        ResultWriter::create(&out, &plan, &study_file::print(text)).map_err(Failure::refused)?;
    Sitting { plan, records: Vec::new(), writer, presentation }.carry_out()
}

fn random_seed() -> u64 {
    // Short enough to be typed again by hand.
    u64::from(std::hash::Hasher::finish(&std::hash::BuildHasher::build_hasher(
        &std::collections::hash_map::RandomState::new(),
    )) as u32)
}

fn default_directory(name: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let first = PathBuf::from("kurabe-results").join(format!("{name}-{}", calendar(now)));
    // Two studies may begin in one second.
    let numbered = |number: u32| PathBuf::from(format!("{}-{number}", first.display()));
    let all = std::iter::once(first.clone()).chain((2..).map(numbered));
    { all }.find(|path| !path.exists()).unwrap_or(first)
}

/// `20261120-231754` of seconds since the Unix epoch, in UTC (the days-from-civil algorithm of
/// Howard Hinnant, inverted).
fn calendar(seconds: u64) -> String {
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{:02}", second % 60)
}

/// Refuses what cannot be done, before anything is touched.
fn preflight(study: &Study) -> Result<(), Failure> {
    let request = device_request(study)?;
    let mut problems = Vec::new();
    for contender in &study.contenders {
        let Some(file_system) = filesystem::by_name(&contender.file_system) else {
            problems.push(format!("{}: this kurabe does not know it", contender.file_system));
            continue;
        };
        for missing in filesystem::missing(file_system) {
            problems.push(format!("contender '{}': {missing}", contender.label));
        }
        if let Some(directory) = &contender.directory
            && let Some(problem) = directory_problem(directory)
        {
            problems.push(format!("contender '{}': {problem}", contender.label));
        }
        let least = file_system.size_bytes_min();
        if file_system.needs_device()
            && let DeviceRequest::Loop { size_bytes, .. } | DeviceRequest::Memory { size_bytes } =
                request
            && size_bytes < least
        {
            problems.push(format!(
                "contender '{}': {} needs at least {}, and --device {} has {}",
                contender.label,
                file_system.name(),
                size_text(least),
                study.device,
                size_text(size_bytes)
            ));
        }
    }
    if needs_device(study) && !rustix::process::geteuid().is_root() {
        problems.push(
            "making and mounting file systems needs root; run kurabe by sudo, or compare existing directories as dir:/path".into(),
        );
    }
    let size_bytes = size_bytes(&request);
    for workload in &study.workloads {
        problems.extend(command_problems(workload));
        let name = &workload.name;
        if let Err(problem) = trial::workload::check(&workload.load, size_bytes) {
            problems.push(format!("workload '{name}': {problem}"));
        }
        for contender in &study.contenders {
            let access = filesystem::by_name(&contender.file_system).map(|f| f.access());
            let (fits, loads) = match access {
                Some(Access::RawDevice) => {
                    (workload.load.runs_on_raw(), "fio, fio-matrix or objects")
                }
                Some(Access::MinfsLibrary) => (workload.load.runs_on_library(), "objects"),
                _ => (true, ""),
            };
            if !fits {
                problems.push(format!(
                    "workload '{name}': a {} load needs a mounted file system, and contender '{}' is none; leave that contender out, or use {loads}",
                    workload.load.kind(),
                    contender.label
                ));
            }
        }
    }
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(Failure::refused(problems.join("\nkurabe: "))) }
}

fn needs_device(study: &Study) -> bool {
    study.contenders.iter().any(|contender| contender.directory.is_none())
}

fn device_request(study: &Study) -> Result<DeviceRequest, Failure> {
    DeviceRequest::parse(&study.device, study.destroy.as_deref())
        .map_err(|error| Failure::refused(format!("--device: {error}")))
}

fn directory_problem(directory: &Path) -> Option<String> {
    match directory.metadata() {
        Err(error) => Some(format!("{}: {error}", directory.display())),
        Ok(metadata) if !metadata.is_dir() => {
            Some(format!("{} is not a directory", directory.display()))
        }
        Ok(_) => {
            let writable = rustix::fs::access(
                directory,
                rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
            );
            writable
                .err()
                .map(|error| format!("{} cannot be written: {error}", directory.display()))
        }
    }
}

/// Programs that are named but nowhere to be found. A relative path may be made by the setup, and
/// a shell line is the shell's business.
fn command_problems(workload: &Workload) -> Vec<String> {
    let command = match &workload.load {
        Load::Command { command } => Some(command),
        _ => None,
    };
    [command, workload.setup.as_ref(), workload.prepare.as_ref(), workload.cleanup.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|line| {
            let program = match line {
                CommandLine::Words(words) => &words[0],
                CommandLine::Shell { shell, .. } => &shell[0],
            };
            let found = match program.contains('/') {
                true => !program.starts_with('/') || Path::new(program).exists(),
                false => std::env::var_os("PATH").is_some_and(|path| {
                    std::env::split_paths(&path).any(|place| place.join(program).is_file())
                }),
            };
            (!found).then(|| {
                format!("workload '{}': the program '{program}' is not found; install it or name its path", workload.name)
            })
        })
        .collect()
}

/// What to write and how to look.
pub struct Presentation {
    /// How to look.
    pub look: Look,
    /// What to write.
    pub exports: Exports,
}

impl Presentation {
    /// Refuses a style that is none, and a file that cannot be written.
    pub fn new(args: &PresentArgs, style: Option<&str>) -> Result<Presentation, Failure> {
        use clap::ValueEnum;
        let style = match (args.style, style) {
            (Some(style), _) => Some(style),
            (None, Some(text)) => Some(Style::from_str(text, false).map_err(|_| {
                let known: Vec<_> = Style::value_variants()
                    .iter()
                    .filter_map(|style| Some(style.to_possible_value()?.get_name().to_string()))
                    .collect();
                Failure::refused(format!("style: '{text}' is none of {}", known.join(", ")))
            })?),
            (None, None) => None,
        };
        let exports = Exports {
            json: args.export_json.clone(),
            csv: args.export_csv.clone(),
            markdown: args.export_markdown.clone(),
        };
        exports.check()?;
        Ok(Presentation { look: Look::of(style), exports })
    }
}

/// Refuses a file that cannot be made where it is wanted.
pub fn check_target(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if parent.is_some_and(|parent| !parent.is_dir()) || path.is_dir() {
        return Err(Failure::refused(format!(
            "export file {}: its directory does not exist, or it is one itself; make the directory first",
            path.display()
        )));
    }
    Ok(())
}

/// Files that the user wants besides the result directory.
pub struct Exports {
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

impl Exports {
    fn any(&self) -> bool {
        [&self.json, &self.csv, &self.markdown].into_iter().any(Option::is_some)
    }

    /// Refuses a file in a directory that does not exist, now rather than after the first block.
    fn check(&self) -> Result<(), Failure> {
        for path in [&self.json, &self.csv, &self.markdown].into_iter().flatten() {
            check_target(path)?;
        }
        Ok(())
    }

    /// Writes the files that are wanted.
    pub fn write(
        &self,
        plan: &Plan,
        records: &[Record],
        analysis: &Analysis,
        facts: &Value,
    ) -> Result<(), ResultError> {
        if let Some(path) = &self.json {
            let json = report::export::json(plan, records, analysis, facts);
            replace(path, format!("{json:#}\n").as_bytes())?;
        }
        if let Some(path) = &self.csv {
            replace(path, report::export::csv(records).as_bytes())?;
            for (name, text) in [
                ("latencies", report::export::latencies_csv(analysis)),
                ("overhead", report::export::overhead_csv(analysis)),
            ] {
                if let Some(text) = text {
                    replace(&beside(path, name), text.as_bytes())?;
                }
            }
        }
        if let Some(path) = &self.markdown {
            replace(path, report::export::markdown(plan, analysis).as_bytes())?;
        }
        Ok(())
    }
}

/// `trials.latencies.csv` of `trials.csv`.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.with_extension(match path.extension() {
        Some(extension) => format!("{name}.{}", extension.display()),
        None => name.to_string(),
    })
}

/// One sitting of a study.
struct Sitting {
    plan: Plan,
    records: Vec<Record>,
    writer: ResultWriter,
    presentation: Presentation,
}

impl Sitting {
    fn carry_out(mut self) -> Result<u8, Failure> {
        let begun = Instant::now();
        let signals = Signals::catch().map_err(Failure::broken)?;
        let stop = Stop::on_signals().map_err(Failure::broken)?;
        let look = self.presentation.look;
        let mut progress = Progress::new(look, self.plan.study.workloads.len() > 1);
        progress.say(&self.headline());
        clean_first(&progress);
        let ledger = Ledger::start(&ledger::default_directory()).map_err(|error| {
            Failure::broken(format!(
                "the ledger in {} cannot be written: {error}",
                ledger::default_directory().display()
            ))
        })?;
        let result = self.with_device(begun, &ledger, &signals, &stop, &mut progress);
        progress.finish();
        let facts = match result {
            Ok(facts) => facts,
            Err(_) if signals.came() => return Ok(signals.exit_code().unwrap_or(exit::OK)),
            Err(failure) => {
                // What is refused leaves nothing behind, no result directory either.
                if failure.code == exit::REFUSED {
                    self.writer.withdraw();
                }
                return Err(failure);
            }
        };
        let (analysis, _) = analysed(self.writer.directory(), &self.plan, &self.records, &facts);
        self.publish(&analysis, &facts).map_err(Failure::broken)?;
        if look.live || look.lines {
            // The progress went to standard error; on a terminal both end up on one screen.
            terminal::note("");
        }
        terminal::print(&report::tables::terminal(&self.plan, &analysis, look.colour));
        // The records are safe; a page that cannot be written can be made again.
        match reporting::write_page(self.writer.directory()) {
            Ok(path) => progress.say(&format!("report: {}", path.display())),
            Err(error) => progress.say(&format!("the report could not be written: {error}")),
        }
        Ok(self.exit_code(&analysis, &signals))
    }

    /// What is about to be compared, and where the result will lie.
    fn headline(&self) -> String {
        let study = &self.plan.study;
        let names = |names: Vec<&str>| names.join(", ");
        let blocks = match (study.blocks_min, study.blocks_max) {
            (least, most) if least == most => format!("{least} blocks"),
            (least, most) => format!("{least} to {most} blocks"),
        };
        let device =
            if needs_device(study) { format!(" on {}", study.device) } else { String::new() };
        format!(
            "{}: {} under {}{device}, {blocks}, seed {}\nresult: {}",
            study.name,
            names(study.contenders.iter().map(|contender| contender.label.as_str()).collect()),
            names(study.workloads.iter().map(|workload| workload.name.as_str()).collect()),
            self.plan.seed,
            self.writer.directory().display(),
        )
    }

    /// Prepares the device and carries the plan out on it; everything taken is given back when it
    /// returns. Yields the facts.
    fn with_device(
        &mut self,
        begun: Instant,
        ledger: &Ledger,
        signals: &Signals,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Value, Failure> {
        let study = &self.plan.study;
        let prepared = match needs_device(study) {
            false => None,
            true => Some(prepare_device(study, ledger, begun, stop, progress)?),
        };
        let facts = json!({
            "schema": self.plan.schema,
            "machine": Machine::read(),
            "device": prepared.as_ref().map(Prepared::facts),
            "tools": tool_versions(study),
            "command_line": std::env::args().collect::<Vec<_>>(),
        });
        self.writer.keep_earlier_facts().map_err(Failure::broken)?;
        self.writer.write_json(FACTS_FILE, &facts).map_err(Failure::broken)?;
        let scratch = std::env::temp_dir().join(ledger::random_name());
        let scratch_id =
            ledger.take(Taken::Scratch { path: scratch.clone() }).map_err(Failure::broken)?;
        let spent_before = Duration::from_nanos(self.records.iter().map(|r| r.elapsed_ns).sum());
        let surroundings = Surroundings {
            device: prepared.as_ref().map_or(Device::None, |prepared| prepared.device().clone()),
            scratch: scratch.clone(),
            elapsed: &|| spent_before + begun.elapsed(),
            stopped: &|| signals.came(),
            memory_bytes: memory_bytes(&facts),
        };
        let directory = self.writer.directory().to_path_buf();
        let mut executor = ProcessExecutor { stopped: &|| signals.came() };
        let mut observer = SittingObserver {
            progress,
            plan: &self.plan,
            exports: &self.presentation.exports,
            facts: &facts,
            directory: &directory,
        };
        let end = runner::run(
            &self.plan,
            &mut self.records,
            &surroundings,
            &mut executor,
            &mut self.writer,
            &mut observer,
        );
        let left = ledger::give_back_scratch(&scratch);
        if left.left.is_empty() {
            ledger.gave_back(scratch_id).map_err(Failure::broken)?;
        } else {
            observer.progress.say(&format!(
                "could not be given back: {}; run 'kurabe clean'",
                left.left.join("; ")
            ));
        }
        match end.map_err(Failure::broken)? {
            End::Complete => {}
            End::Budget => observer.progress.say(&format!(
                "the budget of {} ended the study; 'kurabe resume' has nothing to add under the same plan",
                rough(Duration::from_nanos(self.plan.study.budget_ns.unwrap_or_default()))
            )),
            End::Stopped => observer.progress.say(&format!(
                "stopped; everything was given back. Go on by: kurabe resume {}",
                self.writer.directory().display()
            )),
        }
        Ok(facts)
    }

    fn publish(&self, analysis: &Analysis, facts: &Value) -> Result<(), ResultError> {
        let comparisons: Vec<_> =
            analysis.workloads.iter().flat_map(|workload| &workload.comparisons).collect();
        self.writer.write_json(COMPARISONS_FILE, &comparisons)?;
        self.presentation.exports.write(&self.plan, &self.records, analysis, facts)
    }

    fn exit_code(&self, analysis: &Analysis, signals: &Signals) -> u8 {
        if let Some(code) = signals.exit_code() {
            return code;
        }
        let failed = |record: &Record| {
            matches!(record.outcome, Outcome::Failed { .. } | Outcome::TimedOut { .. })
        };
        if self.records.iter().any(failed) {
            return exit::TRIAL_FAILED;
        }
        let any = |outcome| analysis.gates.iter().any(|gate| gate.outcome == outcome);
        if any(GateOutcome::Fails) {
            exit::GATE_FAILS
        } else if any(GateOutcome::Inconclusive) {
            exit::GATE_INCONCLUSIVE
        } else {
            exit::OK
        }
    }
}

/// Gives back what an earlier kurabe left when it was killed.
fn clean_first(progress: &Progress) {
    match ledger::clean(&ledger::default_directory()) {
        Ok(report) => {
            for line in report.done {
                progress.say(&format!("left by an earlier run: {line}"));
            }
            for line in report.left {
                progress.say(&format!("left by an earlier run and still there: {line}"));
            }
        }
        Err(error) => progress.say(&format!("looking for what earlier runs left: {error}")),
    }
}

fn prepare_device<'ledger>(
    study: &Study,
    ledger: &'ledger Ledger,
    begun: Instant,
    stop: &Stop,
    progress: &Progress,
) -> Result<Prepared<'ledger>, Failure> {
    let request = device_request(study)?;
    let budget = study.budget_ns.map(Duration::from_nanos);
    let is_spent = || budget.is_some_and(|budget| begun.elapsed() >= budget);
    let mut filled = |fill: trial::device::Progress| {
        // The budget is a bound on everything, and the filling alone can take longer.
        if is_spent() && fill.done_bytes < fill.total_bytes {
            stop.raise();
        }
        let percent = fill.done_bytes * 100 / fill.total_bytes.max(1);
        progress.step(&format!("filling {} with random data: {percent} %", study.device));
    };
    prepare(&request, ledger, stop, &mut filled).map_err(|error| match error {
        DeviceError::Refused(_) => Failure::refused(format!("--device {}: {error}", study.device)),
        DeviceError::Stopped if is_spent() => Failure::broken(format!(
            "the budget ended while {} was being filled, before the first trial; raise --budget or take a smaller --device",
            study.device
        )),
        other => Failure::broken(format!("--device {}: {other}", study.device)),
    })
}

/// Versions of the tools that the contenders need, as they print them.
fn tool_versions(study: &Study) -> Value {
    let versions: serde_json::Map<String, Value> = study
        .contenders
        .iter()
        .filter_map(|contender| filesystem::by_name(&contender.file_system))
        .flat_map(|file_system| file_system.tools())
        .filter_map(|tool| Some((tool.name.to_string(), Value::from(tool.installed_version()?))))
        .collect();
    Value::Object(versions)
}

/// Shows progress and writes the exports after every block.
struct SittingObserver<'a> {
    progress: &'a mut Progress,
    plan: &'a Plan,
    exports: &'a Exports,
    facts: &'a Value,
    /// The result directory, where the histograms lie.
    directory: &'a Path,
}

impl Observer for SittingObserver<'_> {
    fn trial_begins(&mut self, position: &Position<'_>) {
        self.progress.trial_begins(position);
    }

    fn event(&mut self, event: &Event) {
        self.progress.event(event);
    }

    fn trial_ended(&mut self, record: &Record) {
        self.progress.trial_ended(record);
    }

    fn block_ended(&mut self, records: &[Record], analysis: &Analysis) {
        self.progress.block_ended(records, analysis);
        // The result directory has everything; an export that cannot be written now is tried
        // again after the next block, and at the end its failure is an error.
        let mut analysis = analysis.clone();
        if self.exports.any() {
            Histograms::read(self.directory, self.plan, records).put_into(&mut analysis);
        }
        if let Err(error) = self.exports.write(self.plan, records, &analysis, self.facts) {
            self.progress.say(&error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_days() {
        // The values of `date -u -d @N +%Y%m%d-%H%M%S`.
        assert_eq!(calendar(0), "19700101-000000");
        assert_eq!(calendar(951_782_399), "20000228-235959");
        assert_eq!(calendar(951_782_400), "20000229-000000");
        assert_eq!(calendar(1_795_216_674), "20261120-231754");
    }
}
