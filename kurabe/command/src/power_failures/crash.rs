//! `kurabe crash`: which contenders keep what a workload acknowledged, whatever a power cut takes.
//!
//! Each contender has a trial of its own. This file keeps what they found, and the recordings, so
//! that a failing state can be tried again; `crash_text` says it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use lab::contender::Contender;
use lab::device::{Base, DeviceName, IMAGE, MEMORY};
use lab::environment::EnvironmentSpec;
use lab::event::Event;
use lab::quantity::{parse_duration, parse_size};
use lab::record::{Check, Outcome, Record};
use lab::spec::{
    Cache, CommandLine, OutputTarget, PowerCuts, SCHEMA_VERSION, TrialSpec, Workload, WorkloadSpec,
};
use trial::crash::{
    ACK_VARIABLE, CrashReport, CrashVerdict, DiskCondition, StateReplay, recording_bytes_max,
};
use trial::filesystem::{self, Access};
use trial::stop::StopFlag;
use trust::words::pasted;
use trust::{CONTENTS_MODE, Directory};

pub use super::crash_result::RESULT_FILE;
use super::crash_result::{
    CrashResult, JudgedContender, Provenance, Seal, Verifier, read, recording_file,
};
use super::crash_shards;
pub use super::crash_text::document;
use super::crash_text::text_of;
use super::node_death;
use crate::environment::images::GuestImages;
use crate::environment::processes::Processes;
use crate::environment::{begin_trials, check_open_files, cut_power, missing};
use crate::exit::{self, Failure, SIGNAL_BASE, broken, refused};
use crate::presentation::progress::{Progress, TerminalStyle};
use crate::request::flags::{AckArgs, CrashArgs};
use crate::request::programs::{missing_program, relative_program};
use crate::request::{default_directory, from_here};
use crate::runner::Executor;
use crate::terminal;

/// A control has so many states, or a quarter of the others where these are fewer.
const CONTROL_STATES_MAX: usize = 100;

pub fn crash(args: &CrashArgs) -> Result<u8, Failure> {
    match (&args.replay, &args.kill_node) {
        (Some(place), _) => replay(place),
        (None, Some(node)) => node_death::kill_node(args, node),
        (None, None) => record(args),
    }
}

pub fn acknowledge(args: &AckArgs) -> Result<u8, Failure> {
    let Some(pipe) = std::env::var_os(ACK_VARIABLE) else {
        return Err(Failure::refused(format!(
            "{ACK_VARIABLE}: is not set; 'kurabe ack' works in a workload of 'kurabe crash'"
        )));
    };
    let mut text = args.words.join(OsStr::new(" ")).into_encoded_bytes();
    if text.contains(&b'\n') {
        return Err(Failure::refused(
            "WORDS: have a line break, which would make two acknowledgements of them; give one line",
        ));
    }
    text.push(b'\n');
    let written = std::fs::OpenOptions::new().append(true).open(&pipe);
    written
        .and_then(|mut pipe| pipe.write_all(&text))
        .map_err(broken(format_args!("{}", Path::new(&pipe).display())))?;
    Ok(exit::OK)
}

fn record(args: &CrashArgs) -> Result<u8, Failure> {
    let contenders = contenders(&args.contenders, args.on.as_deref(), CutPoints::GuestsToo)?;
    if args.lose_member {
        let without = |contender: &&Contender| trial::lower::can_lose(contender).is_none();
        if let Some(contender) = contenders.iter().find(without) {
            return Err(Failure::refused(format!(
                "--lose-member: '{}' has no layer that can be opened without one of its members or its cache; name one, such as ext4 over raid5:3",
                contender.label
            )));
        }
    }
    let devices_bytes = sizes(&args.device)?;
    for contender in &contenders {
        let refused =
            |problem: String| Failure::refused(format!("'{}': {problem}", contender.label));
        trial::lower::check_devices(contender, devices_bytes.len()).map_err(refused)?;
        if devices_bytes.len() > 1 && !trial::lower::are_all(contender) {
            return Err(refused(
                "power is cut on several disks without layers of kurabe's own; leave those out"
                    .into(),
            ));
        }
    }
    let check = line_of_check(&args.check)?;
    let command = workload_of(&args.command)?;
    let here = std::env::current_dir().map_err(Failure::broken)?;
    let result = CrashResult {
        size_bytes: devices_bytes.iter().sum(),
        devices_bytes: if devices_bytes.len() > 1 { devices_bytes } else { Vec::new() },
        seed: args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        asked: Verifier::Check(check.clone()),
        check_directory: here,
        check_timeout_ns: time_of("--check-timeout", &args.check_timeout)?,
        contenders: Vec::new(),
        made: Some(Provenance::now()),
        shard: None,
        lose_member: args.lose_member,
    };
    let cuts = PowerCuts { parallel_checks: args.parallel_checks, ..result.cuts(args.states) };
    let setup = args.setup.as_ref().map(|line| shell(line));
    let timeout_ns = time_of("--timeout", &args.timeout)?;
    let workload = workload(WorkloadSpec::of_command(command), setup, Some(check));
    let spec = spec(contenders[0].clone(), cuts, workload, timeout_ns);
    if let Some(of) = args.shards {
        let name = args.out.clone().unwrap_or_else(|| default_directory("crash"));
        return crash_shards::divide(&contenders, &spec, result, of, &name);
    }
    let mut laboratory = CrashRunner::open(&contenders)?;
    let path = args.out.clone().unwrap_or_else(|| default_directory("crash"));
    let directory = Directory::open_or_make(&path, 0o755).map_err(refused("--out"))?;
    if directory.has(RESULT_FILE) {
        return Err(Failure::refused(format!(
            "--out: {} holds a result already; name another place",
            path.display()
        )));
    }
    let result = carry_out(&mut laboratory, &contenders, &spec, result, &directory)?;
    let is_judged =
        |one: &JudgedContender| one.outcome.as_ref().is_ok_and(|one| one.refused.is_none());
    if result.contenders.iter().any(is_judged) {
        let text = serde_json::to_vec(&result).expect("a result has a JSON form");
        directory.replace(RESULT_FILE, &text, CONTENTS_MODE).map_err(Failure::broken)?;
        terminal::note(&format!("kurabe: the recordings are in {}", path.display()));
    } else {
        // There is nothing to try again. A directory that holds something else stays.
        for number in 0..result.contenders.len() {
            let _ = directory.remove_file(recording_file(number));
        }
        let _ = std::fs::remove_dir(&path);
    }
    if let Some(number) = laboratory.stop.signal() {
        return Ok(SIGNAL_BASE + number as u8);
    }
    Ok(exit_code(&result))
}

/// A time that a flag gives, in ns.
pub(super) fn time_of(flag: &str, text: &str) -> Result<u64, Failure> {
    parse_duration(text).map(|time| time.as_nanos() as u64).map_err(refused(flag))
}

/// Judges one contender after the other and says what was found.
fn carry_out(
    laboratory: &mut CrashRunner,
    contenders: &[Contender],
    spec: &TrialSpec,
    mut result: CrashResult,
    directory: &Directory,
) -> Result<CrashResult, Failure> {
    let mut cases = 0;
    for (number, contender) in contenders.iter().enumerate() {
        if laboratory.stop.raised() {
            break;
        }
        let name = recording_file(number);
        let data = directory
            .create_file(&name, CONTENTS_MODE)
            .and_then(|_| directory.append_file(&name))
            .map_err(Failure::broken)?;
        let spec = TrialSpec { contender: contender.clone(), ..spec.clone() };
        let (outcome, checks) = laboratory.carry_out(spec, &data);
        let seal = Some(Seal::of(&data).map_err(Failure::broken)?);
        let judged = JudgedContender { contender: contender.clone(), outcome, checks, seal };
        terminal::print(&text_of(&judged, &mut cases, directory.path()));
        result.contenders.push(judged);
    }
    Ok(result)
}

/// Keeps what a trial of a study found as a result of its own, so that its cases can be tried again.
pub fn keep(
    directory: &Directory,
    spec: &TrialSpec,
    cuts: &PowerCuts,
    report: CrashReport,
    mut data: &File,
) -> io::Result<()> {
    let Workload { load, check, .. } = &spec.workload;
    let asked = match check {
        Some(check) => Verifier::Check(check.clone()),
        None => Verifier::OwnLoad { load: load.clone(), order_seed: spec.order_seed },
    };
    let contender = spec.contender.clone();
    let result = CrashResult {
        size_bytes: cuts.size_bytes,
        devices_bytes: cuts.devices_bytes.clone(),
        seed: cuts.seed,
        asked,
        check_directory: cuts.check_directory.clone(),
        check_timeout_ns: cuts.check_timeout_ns,
        contenders: vec![JudgedContender {
            contender,
            outcome: Ok(report),
            checks: Vec::new(),
            seal: Some(Seal::of(data)?),
        }],
        made: Some(Provenance::now()),
        shard: None,
        lose_member: cuts.lose_member,
    };
    let mut kept =
        directory.create_file(recording_file(0), CONTENTS_MODE).map_err(io::Error::other)?;
    data.rewind()?;
    io::copy(&mut data, &mut kept)?;
    let text = serde_json::to_vec(&result).expect("a result has a JSON form");
    directory.replace(RESULT_FILE, &text, CONTENTS_MODE).map_err(io::Error::other)
}

pub fn exit_code(result: &CrashResult) -> u8 {
    let verdicts: Vec<Option<CrashVerdict>> = result
        .contenders
        .iter()
        .map(|judged| Some(judged.outcome.as_ref().ok()?.verdict()))
        .collect();
    let has = |verdict| verdicts.contains(&verdict);
    match () {
        // A loss is certain, whatever became of the others.
        () if has(Some(CrashVerdict::Violated)) => exit::GATE_FAILS,
        () if has(None) => exit::TRIAL_FAILED,
        () if has(Some(CrashVerdict::Refused)) => exit::REFUSED,
        () if has(Some(CrashVerdict::Inconclusive)) => exit::GATE_INCONCLUSIVE,
        () => exit::OK,
    }
}

/// Tries a state of a result once more.
fn replay(place: &str) -> Result<u8, Failure> {
    let refused = |problem: String| Failure::refused(format!("--replay '{place}': {problem}"));
    let (path, number) = place
        .rsplit_once(':')
        .and_then(|(path, number)| Some((PathBuf::from(path), number.parse::<usize>().ok()?)))
        .filter(|(_, number)| *number > 0)
        .ok_or_else(|| refused("write RESULT:CASE, such as kurabe-results/crash-1:2".into()))?;
    let (directory, result) = read(&path).map_err(refused)?;
    let cases = result.contenders.iter().enumerate().flat_map(|(number, judged)| {
        let report = judged.outcome.as_ref().ok();
        report.into_iter().flat_map(move |report| {
            report.cases.iter().map(move |case| (number, judged, report, case))
        })
    });
    let cases: Vec<_> = cases.collect();
    let Some((recording, judged, report, case)) = cases.get(number - 1) else {
        return Err(refused(match cases.len() {
            0 => "the result has no cases: nothing was violated".into(),
            1 => "the result has 1 case".into(),
            some => format!("the result has {some} cases"),
        }));
    };
    if let Verifier::Check(check) = &result.asked {
        believe_check(&result.check_directory, check).map_err(refused)?;
    }
    let log = report.log.clone().ok_or_else(|| refused("it has no recording".into()))?;
    let data = directory
        .append_file(recording_file(*recording))
        .map_err(|error| refused(error.to_string()))?;
    judged.believe(&data).map_err(refused)?;
    let state = serde_json::to_value(StateReplay { log, state: case.state.clone() });
    let is_in_guest = judged.contender.environment.guest().is_some();
    let name = format!("case-{number}.img");
    // The image of an earlier replay stays until there is another.
    let new = format!("{name}.new");
    let _ = directory.remove_file(&new);
    let image =
        directory.create_file(&new, CONTENTS_MODE).and_then(|_| directory.append_file(&new));
    let cuts = PowerCuts {
        replay: Some(state.expect("a state has a JSON form")),
        image: image.as_ref().ok().filter(|_| !is_in_guest).map(path_of),
        ..result.cuts(0)
    };
    let (load, order_seed, check) = match result.asked {
        Verifier::Check(check) => {
            (WorkloadSpec::of_command(CommandLine::Words(Vec::new())), 0, Some(check))
        }
        Verifier::OwnLoad { load, order_seed } => (load, order_seed, None),
    };
    let workload = workload(load, None, check);
    let spec = TrialSpec { order_seed, ..spec(judged.contender.clone(), cuts, workload, 0) };
    let mut laboratory = CrashRunner::open(std::slice::from_ref(&judged.contender))?;
    let report = laboratory.carry_out(spec, &data).0.map_err(|problem| {
        let _ = directory.remove_file(&new);
        Failure::broken(problem)
    })?;
    let judged_case = report.cases.first();
    let finding = &judged_case.ok_or_else(|| Failure::broken("the case was not checked"))?.finding;
    terminal::print(&format!("{}: case {number}: {finding}\n", judged.contender.label));
    let code = if finding.kind == DiskCondition::Held { exit::OK } else { exit::GATE_FAILS };
    let unwritten = match image {
        // A guest does not see the files of this machine that are written.
        Ok(_) if is_in_guest => Some("the disk of a case in a guest is not kept".into()),
        Ok(_) => match report.notes.first() {
            Some(problem) => Some(problem.clone()),
            None => directory.rename(&new, &name).err().map(|refused| refused.to_string()),
        },
        Err(refused) => Some(format!("the disk of the case could not be written: {refused}")),
    };
    if let Some(problem) = unwritten {
        let _ = directory.remove_file(&new);
        terminal::note(&format!("kurabe: {problem}"));
        return Ok(code);
    }
    let image = path.join(&name).display().to_string();
    let image = pasted(&image);
    let known = filesystem::by_name(judged.contender.file_system());
    let look = match known.and_then(|known| known.kernel_name) {
        Some(name) => {
            let options =
                [&["loop".to_string()], &judged.contender.base().mount_options[..]].concat();
            let options = options.join(",");
            let options = pasted(&options);
            format!("; to look at it: mount -t {name} -o {options} {image} DIRECTORY")
        }
        None => String::new(),
    };
    terminal::note(&format!("kurabe: the disk as the cut left it is {image}{look}"));
    Ok(code)
}

/// Refuses a check that was asked for earlier, and that somebody else can have exchanged since: it runs with the
/// rights of this process, in the directory that it was asked for in.
pub fn believe_check(directory: &Path, check: &CommandLine) -> Result<(), String> {
    let no_more = |refused: trust::Refused| format!("the check is not run again: {refused}");
    Directory::open(directory).map_err(no_more)?;
    trust::words::believe(&check.words(), Some(directory))
        .map_err(|why| format!("the check is not run again: {why}"))
}

/// Judges contenders, each in a trial.
pub struct CrashRunner {
    trials: Processes,
    /// Those of the contenders, where any runs in a guest.
    pub(super) images: Option<GuestImages>,
    pub stop: StopFlag,
}

impl CrashRunner {
    /// Opens it for contenders; refuses whoever is not root. Guests that are missing are built.
    pub fn open(contenders: &[Contender]) -> Result<CrashRunner, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::refused("mkfs and mount need root; start it with sudo"));
        }
        check_open_files()?;
        let stop = StopFlag::on_signals().map_err(Failure::broken)?;
        let trials = begin_trials(&stop, &terminal::note)?;
        let in_guest = |contender: &Contender| contender.environment.guest().is_some();
        let images =
            contenders.iter().any(in_guest).then(|| GuestImages::of(contenders, &trials.own));
        Ok(CrashRunner { trials, images: images.transpose()?, stop })
    }

    /// Carries one out; `data` holds the bytes of its recording.
    pub fn carry_out(
        &mut self,
        mut spec: TrialSpec,
        data: &File,
    ) -> (Result<CrashReport, String>, Vec<Check>) {
        if let Some(cuts) = &mut spec.power_cuts {
            cuts.data = path_of(data);
        }
        let progress = Progress::new(TerminalStyle::of(None), false);
        let mut show = |event: &Event| {
            if let Event::Status { text } = event {
                progress.step(&format!("{}: {text}", spec.contender.label));
            }
        };
        let record = match (&self.images, spec.contender.environment.guest()) {
            (Some(images), Some(_)) => in_guest(images, &spec, data, &self.stop, &mut show),
            _ => self.trials.execute(&spec, &mut show),
        };
        progress.finish();
        let left = self.trials.give_back();
        if !left.is_empty() {
            terminal::note(&format!("still there: {}", left.join("; ")));
        }
        let outcome = match (record.outcome, record.power_cuts) {
            // One that is refused has failed, and says why.
            (Outcome::Completed | Outcome::Failed { .. }, Some(report)) => {
                let report = serde_json::from_value(report).map_err(|error| error.to_string());
                report.map(|mut report: CrashReport| {
                    report.notes.extend(record.guest.map(|guest| {
                        format!("in a guest: Linux {}, {}", guest.kernel, guest.acceleration)
                    }));
                    report
                })
            }
            (Outcome::Failed { message, output, .. }, _) if output.is_empty() => Err(message),
            (Outcome::Failed { message, output, .. }, _) => Err(format!("{message}\n{output}")),
            _ => Err("it was stopped".into()),
        };
        (outcome, record.checks)
    }
}

/// Bytes that a guest's recording may have, whatever there is room for.
const GUEST_BYTES_MAX: u64 = 64 << 30;

/// Carries one out in a guest, to which the recording is a disk.
fn in_guest(
    images: &GuestImages,
    spec: &TrialSpec,
    data: &File,
    stop: &StopFlag,
    show: &mut dyn FnMut(&Event),
) -> Record {
    let is_new = spec.power_cuts.as_ref().is_some_and(|cuts| cuts.replay.is_none());
    let bytes = recording_bytes_max(data).min(GUEST_BYTES_MAX) & !4095;
    if is_new && let Err(error) = data.set_len(bytes) {
        show(&Event::Status { text: format!("the file for the recording: {error}") });
    }
    let record = cut_power(images, spec, path_of(data), stop, show);
    if is_new {
        let report = record.power_cuts.clone().map(serde_json::from_value::<CrashReport>);
        let log = report.and_then(Result::ok).and_then(|report| report.log);
        // The rest of the disk was not needed.
        let needed = log.map_or(0, |log| log.data_sectors.saturating_mul(crash::SECTOR_BYTES));
        let _ = data.set_len(needed.min(bytes));
    }
    record
}

/// The path by which a trial opens a file of this process.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// States of a control beside so many others.
pub fn control_states(states: usize) -> usize {
    states.div_ceil(4).min(CONTROL_STATES_MAX)
}

/// What is run and what is asked.
pub fn workload(
    load: WorkloadSpec,
    setup: Option<CommandLine>,
    check: Option<CommandLine>,
) -> Workload {
    Workload { setup, check, ..Workload::of("power cuts", load) }
}

/// A trial of power cuts and nothing else.
pub fn spec(
    contender: Contender,
    cuts: impl Into<Option<PowerCuts>>,
    workload: Workload,
    timeout_ns: u64,
) -> TrialSpec {
    TrialSpec {
        schema: SCHEMA_VERSION,
        trial: 0,
        order_seed: 0,
        block: 0,
        warmup: false,
        contender,
        directory_identity: None,
        device: None,
        aged: None,
        measure_layout: false,
        side_by_side: None,
        node: None,
        workload,
        power_cuts: cuts.into(),
        node_death: None,
        cache: Cache::Warm,
        timeout_ns: Some(timeout_ns),
        idle_wait_ns_max: 0,
        discard: false,
        trace: None,
        user: None,
        scratch: PathBuf::new(),
        output: OutputTarget::Null,
    }
}

/// Where power can be cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CutPoints {
    Here,
    GuestsToo,
    /// Nowhere: one of several nodes is killed.
    Nodes,
}

/// The contenders, of which each can have a recorder below it; `on` says where those run that do not say so.
pub fn contenders(
    texts: &[String],
    on: Option<&str>,
    places: CutPoints,
) -> Result<Vec<Contender>, Failure> {
    let on = on.map(EnvironmentSpec::parse).transpose();
    let on = on.map_err(refused("--on"))?;
    let mut contenders: Vec<Contender> = Vec::new();
    for text in texts {
        let mut contender =
            Contender::parse(text, &filesystem::known()).map_err(Failure::refused)?;
        if let (Some(on), EnvironmentSpec::ThisMachine) = (&on, &contender.environment) {
            contender.environment = on.clone();
        }
        let known = filesystem::by_name(contender.file_system()).expect("it was parsed");
        let refused = |problem: String| Failure::refused(format!("contender '{text}': {problem}"));
        let of_cut = known.why_not_cut().map(String::from);
        if let Some(why) = of_cut.or_else(|| known.why_not_on_nodes(&contender)) {
            return Err(refused(why));
        }
        let here = "the workload runs on this machine; leave 'on' out";
        match (&contender.environment, places) {
            (EnvironmentSpec::Guests { .. }, CutPoints::Nodes) => {}
            (_, CutPoints::Nodes) => {
                return Err(refused(
                    "--kill-node kills one of several nodes; write 'ocfs2 on 2 debian'".into(),
                ));
            }
            (EnvironmentSpec::ThisMachine, _)
            | (EnvironmentSpec::Guest(_), CutPoints::GuestsToo) => {}
            (_, CutPoints::Here) => return Err(refused(here.into())),
            _ => {
                return Err(refused(
                    "power is cut on this machine or in one guest; write 'on debian', leave 'on' out, or kill one of several nodes with --kill-node"
                        .into(),
                ));
            }
        }
        if let Some(store) = &contender.store {
            return Err(refused(format!(
                "the workload of 'kurabe crash' is a command, which does not run on the store '{store}'; leave '{store} over' out, or try it with kurabe compare --objects FILE --durability"
            )));
        }
        if contender.aged.is_some() {
            return Err(refused(
                "'kurabe crash' begins on a new file system; leave 'aged' out, or cut the power by kurabe compare --durability".into(),
            ));
        }
        if known.access != Access::Mounted {
            return Err(refused(
                "'kurabe crash' runs its workload in a directory; name a file system that is mounted"
                    .into(),
            ));
        }
        trial::lower::check(&contender).map_err(refused)?;
        trial::upper::check(&contender).map_err(refused)?;
        let lower = trial::lower::of(&contender).find(|lower| lower.only_in_guests().is_some());
        if let (Some(lower), CutPoints::Here) = (lower, places) {
            return Err(refused(format!(
                "power is cut on this machine, and '{}' is set up in guests only; leave 'over {}' out",
                lower.name, lower.name
            )));
        }
        if contenders.iter().any(|other| other.label == contender.label) {
            return Err(refused(
                "the label is there twice; give it another, as in 'b: ext4'".into(),
            ));
        }
        if let Some(missing) = missing(&contender).into_iter().next() {
            return Err(refused(missing));
        }
        contenders.push(contender);
    }
    if contenders.is_empty() {
        Err(Failure::refused("CONTENDER: is missing; name a file system, such as ext4"))
    } else {
        Ok(contenders)
    }
}

/// The size of the one device, which is written as everywhere else, or as the size alone.
pub fn size(text: &str) -> Result<u64, Failure> {
    match sizes(text)?[..] {
        [size_bytes] => Ok(size_bytes),
        _ => Err(Failure::refused(format!("--device '{text}': this takes one device"))),
    }
}

/// The sizes of devices.
fn sizes(text: &str) -> Result<Vec<u64>, Failure> {
    let refused =
        |problem: String| Failure::refused(format!("--device '{text}' (or --size): {problem}"));
    if !text.contains([':', '/']) {
        let bytes = parse_size(text).map_err(|error| refused(error.to_string()))?;
        let whole = bytes.is_multiple_of(1 << 20) && bytes >= lab::device::SIZE_BYTES_MIN;
        return if whole {
            Ok(vec![bytes])
        } else {
            Err(refused("not a whole number of MiB from 16M on".into()))
        };
    }
    let name = DeviceName::parse(text).map_err(|error| refused(error.problem))?;
    let size = |one: &DeviceName| match (&one.base, &one.layers[..]) {
        (Base::Made { kind, size_bytes, directory: None }, [])
            if [IMAGE, MEMORY].contains(&kind.as_str()) =>
        {
            Ok(*size_bytes)
        }
        _ => Err(refused(
            "power is cut on disks in memory; write their sizes, such as mem:512M".into(),
        )),
    };
    name.all().map(size).collect()
}

pub(super) fn shell(text: &str) -> CommandLine {
    CommandLine::Shell { shell: vec!["sh".into()], line: text.into() }
}

pub(super) fn line_of_check(text: &Option<String>) -> Result<CommandLine, Failure> {
    let text = text.as_deref().filter(|text| !text.trim().is_empty()).ok_or_else(|| {
        Failure::refused(
            "--check: is missing; give a command that gets DIRECTORY and FILE (the acknowledgements so far) and exits with 0 (ok), 1 (lost), 2 (corrupt) or 3 (unusable)",
        )
    })?;
    let line = shell(text);
    known_program(&line, "--check")?;
    // It runs in this directory, so a path from here must lead somewhere.
    match relative_program(&line).filter(|program| !Path::new(program).is_file()) {
        Some(program) => Err(Failure::refused(format!(
            "--check: there is no file '{program}' in this directory; name its path"
        ))),
        None => Ok(line),
    }
}

/// The workload. It runs in the mounted directory; a program given by a path from here is taken from here.
pub(super) fn workload_of(words: &[String]) -> Result<CommandLine, Failure> {
    let command = match words {
        [] => {
            return Err(Failure::refused("COMMAND: is missing; give the workload after '--'"));
        }
        [line] if line.contains(char::is_whitespace) => shell(&from_here::line(line)),
        words => CommandLine::Words(from_here::words(words)),
    };
    known_program(&command, "COMMAND")?;
    Ok(command)
}

fn known_program(line: &CommandLine, flag: &str) -> Result<(), Failure> {
    match missing_program(line) {
        None => Ok(()),
        Some(program) => Err(Failure::refused(format!(
            "{flag}: the program '{program}' is not found; install it or name its path"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_everywhere_else_or_as_its_size() {
        for text in ["512M", "mem:512M", "loop:512M"] {
            assert_eq!(size(text).ok(), Some(512 << 20), "{text}");
        }
        assert_eq!(sizes("mem:512M,mem:1G").ok(), Some(vec![512 << 20, 1 << 30]));
        assert!(size("mem:512M,mem:1G").is_err());
        for text in
            ["/dev/sdb", "loop:512M@/mnt", "delay:read=1ms+mem:512M", "1000", "8M", "tape:512M"]
        {
            let failure = size(text).expect_err(text);
            assert_eq!(failure.code, exit::REFUSED, "{text}");
            assert!(failure.message.starts_with("--device '"), "{}", failure.message);
        }
    }
}
