//! What the workloads of databases share: the phases of a run, what is measured of commits, and how those that had
//! returned are looked for after a power failure.
//!
//! Knows no database in particular: each is a [`Database`], and [`DatabaseWorkload`] makes a workload of it. What was loaded before
//! a run is durable whatever the run's settings are, since each database loads with its safe ones.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::acknowledge::Acknowledger;
use measure::latency::LatencyRecorder;
use measure::space;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use vocabulary::capacity::{self, Capacity};
use vocabulary::cost::Phase::{Checkpoint, Create, Load, Shutdown, Start};
use vocabulary::kind::{
    Amount, Describe, Description, Durability, Form, FromKeys, KeyError, Keys, LaidOut, Needs,
    Preflight, Run, WorkloadKey, Written, directory_of, options_without,
};
use vocabulary::quantity::parse_size;
use vocabulary::report::{Metric, OVERALL_OPERATION, Unit, WorkloadReport};
use vocabulary::suggestion::{unknown, unknown_of_many};
use vocabulary::workload::{Loss, WorkloadTask};

use super::{histogram_log, latencies, tools};
use crate::excluded_phase::ExcludedPhaseBegun;
use crate::tool::{Finished, ToolError, WorkloadTool};

/// The key of the time that every database is run for.
pub(super) const TIME: WorkloadKey =
    WorkloadKey::option("time", Form::Text("TIME"), "Time of the run [default: 60s].");
const SECONDS_DEFAULT: &str = "60s";
/// The largest value that a workload writes.
const VALUE_BYTES_MAX: u32 = 16 << 20;
/// Commits of a run in which the power is cut.
pub(super) const ACKNOWLEDGED_MAX: u64 = 600;
/// The metric of each database that says how long nothing was committed.
pub(super) const STALL: &str = "longest time without a commit";
/// What decides about the work.
pub(super) const SEED: u64 = 0x6b75_7261;

/// What a server is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerPurpose {
    /// Loading rows, which are to be durable.
    Load,
    /// The run, with the user's settings.
    Run,
    /// Looking through what a power failure left. Nothing is to survive the check.
    Check,
}

/// A database and its work. Its server is a value that has ended when it is gone.
pub(super) trait Database:
    Debug + Send + Sync + Serialize + DeserializeOwned + 'static
{
    const TOOLS: &'static [WorkloadTool];
    /// The name of its directory in the contender.
    const DIRECTORY: &'static str;
    const METRIC: &'static str = "transactions";
    const STALL: &'static str = STALL;
    const OPERATIONS: &'static [&'static str] = &["commit"];
    /// What needs the space, and what to do where it is not there.
    const NEEDS: (&'static str, &'static str);
    /// Whether a server runs, whose making, start and end are phases of their own.
    const HAS_SERVER: bool = true;
    type Server;

    fn parse(written: &Written<'_>, seconds: u32) -> Result<Self, KeyError>;

    fn seconds(&self) -> u32;

    /// How much there is of it, in words.
    fn amount(&self) -> String;

    /// Reads the files that it names.
    fn read(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses what the installed database does not know.
    fn check_settings(&self) -> Result<(), String> {
        Ok(())
    }

    fn needed_bytes(&self) -> u64;

    fn plan(&self) -> Vec<(&'static str, String)>;

    /// Makes an empty database, whose directory is not there yet.
    fn create(&self, data: &Path, stop: &AtomicBool) -> Result<(), String>;

    /// Starts the server, and waits until it answers: what is there has been recovered then.
    fn start(
        &self,
        task: &WorkloadTask,
        data: &Path,
        purpose: ServerPurpose,
        stop: &AtomicBool,
    ) -> Result<Self::Server, String>;

    fn load(&self, server: &mut Self::Server, stop: &AtomicBool) -> Result<(), String>;

    /// Writes what is in the log to its place, where ending the server does not.
    fn checkpoint(&self, _server: &mut Self::Server) -> Result<(), String> {
        Ok(())
    }

    fn end(&self, server: Self::Server) -> Result<(), String>;

    /// Its version, and the settings that decide about speed and durability.
    fn facts(&self, server: &mut Self::Server) -> Result<Vec<(&'static str, String)>, String>;

    /// What it counts, of which the growth within the run is kept.
    fn counters(&self, _server: &mut Self::Server) -> Result<Vec<(&'static str, u64)>, String> {
        Ok(Vec::new())
    }

    /// What a reader has to know, given the growth of a counter.
    fn findings(&self, _grown: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
        Vec::new()
    }

    fn measure(
        &self,
        task: &WorkloadTask,
        server: &mut Self::Server,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String>;

    /// Bytes of the values that a commit writes, where they are known.
    fn bytes_of_commit(&self) -> Option<u64>;

    /// The run that says which commits have returned: `committed CLIENT NUMBER`, from 1 on.
    fn acknowledge(
        &self,
        server: &mut Self::Server,
        acknowledger: &Arc<Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String>;

    /// Looks through what is left, given the last commit of each client that had returned.
    fn loss_in(&self, server: &mut Self::Server, last: &[(u32, u64)])
    -> Result<Option<Loss>, Loss>;
}

/// Settings in the order in which they are written. `is_part` says of which letters a name is, and `own` are those
/// that are kurabe's, since it would not find the server.
pub(super) fn settings_of(
    text: &str,
    product: &str,
    own: &[&str],
) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    for word in text.split_whitespace() {
        let (name, value) = pair_of(word)?;
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        if name.is_empty() || !name.chars().all(is_part) {
            return Err(format!("'{name}' is no name of a setting of {product}"));
        }
        let name = name.to_ascii_lowercase();
        if own.contains(&name.as_str()) {
            return Err(format!(
                "{name} is set by kurabe, which has to find the server; leave it out"
            ));
        }
        settings.push((name, value.to_string()));
    }
    Ok(settings)
}

/// Settings as they are written.
pub(super) fn settings_text(settings: &[(String, String)]) -> String {
    let words: Vec<String> =
        settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

/// `NAME=VALUE`.
fn pair_of(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| format!("'{word}' has no value; write NAME=VALUE"))
}

/// A word `NAME=VALUE` of a workload.
pub(super) struct Word<'a> {
    text: &'a str,
    pub name: &'a str,
    pub value: &'a str,
}

/// What a text has from this word on.
pub(super) fn words_from(text: &str, first: usize) -> Result<Vec<Word<'_>>, String> {
    let words = text.split_whitespace().skip(first);
    words.map(|text| pair_of(text).map(|(name, value)| Word { text, name, value })).collect()
}

/// `CLIENTS [NAME=VALUE ...]`: their number, and the words.
pub(super) fn clients_of<'a>(
    text: &'a str,
    what: &str,
    most: u32,
) -> Result<(u32, Vec<Word<'a>>), String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    let clients = word.parse::<u32>().ok().filter(|count| (1..=most).contains(count));
    let clients = clients.ok_or_else(|| {
        format!(
            "'{word}' is no number of {what} from 1 to {most}; write {} [NAME=VALUE ...]",
            what.to_uppercase()
        )
    })?;
    Ok((clients, words_from(text, 1)?))
}

impl Word<'_> {
    /// The whole number that it gives.
    pub fn whole(&self, most: u32) -> Result<u32, String> {
        let Word { text, value, .. } = self;
        let number = value.parse::<u32>().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("{text}: '{value}' is no whole number from 1 to {most}"))
    }

    /// The size of a value that it gives.
    pub fn value_bytes(&self) -> Result<u32, String> {
        let text = self.text;
        let bytes = parse_size(self.value).map_err(|problem| format!("{text}: {problem}"))?;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| (1..=VALUE_BYTES_MAX).contains(bytes));
        bytes.ok_or(format!("{text}: is not from 1 to 16M"))
    }

    /// The one of these names that it gives.
    pub fn one_of(&self, what: &str, names: &[&str]) -> Result<String, String> {
        if names.contains(&self.value) {
            Ok(self.value.into())
        } else {
            Err(unknown(&format!("{what} is called"), self.value, names))
        }
    }
}

/// Refuses a setting that is not among those that the installed server names.
pub(super) fn check_names(
    key: &str,
    product: &str,
    settings: &[(String, String)],
    known: &[&str],
) -> Result<(), String> {
    let is_known = |name: &str| known.iter().any(|one| one.eq_ignore_ascii_case(name));
    match settings.iter().find(|(name, _)| !name.contains('.') && !is_known(name)) {
        Some((name, _)) => {
            let what = format!("setting of {product} is called");
            Err(format!("{key}: {}", unknown_of_many(&what, name, known)))
        }
        None => Ok(()),
    }
}

fn seconds_of(written: &Written<'_>) -> Result<u32, KeyError> {
    let duration = written.duration("time", SECONDS_DEFAULT)?;
    match duration.as_secs() {
        seconds @ 1..=1_000_000 if duration.subsec_nanos() == 0 => Ok(seconds as u32),
        _ => {
            let text = written.text("time").unwrap_or(SECONDS_DEFAULT);
            let problem =
                format!("'{text}' must be whole seconds, as benchmarks of databases count them");
            Err(KeyError::new("time", problem))
        }
    }
}

/// Bytes of a log that are read: a transaction has about 40.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// The text of the logs in a directory whose names begin so. A script may have put anything under such a name: no
/// link is followed, nothing is waited for, and what is no file has no text.
pub(super) fn read_logs(place: &Path, prefix: &str) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("reading the log of transactions: {error}");
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let mut found = Vec::new();
    for entry in fs::read_dir(place).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !path.file_name().unwrap_or_default().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let file = fs::File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let mut text = String::new();
        if file.metadata().map_err(failed)?.is_file() {
            file.take(LOG_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        }
        found.push(text);
    }
    Ok(found)
}

/// What was measured of commits, by whichever client.
#[derive(Debug)]
pub(super) struct CommitFigures {
    pub recorder: LatencyRecorder,
    pub per_second: f64,
    pub commits: u64,
    pub elapsed_ns: u64,
    pub stall_ns: u64,
    pub details: Value,
    pub findings: Vec<String>,
}

impl CommitFigures {
    /// Commits in the order in which they ended, each with its end and its latency in ns since the beginning.
    pub fn of(commits: impl Iterator<Item = (u64, u64)>) -> CommitFigures {
        let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
        let kind = recorder.kind("commit");
        let (mut count, mut last_ns, mut stall_ns) = (0, 0, 0);
        for (ended_ns, latency_ns) in commits {
            recorder.record_at(kind, ended_ns, latency_ns, 0);
            stall_ns = stall_ns.max(ended_ns.saturating_sub(last_ns));
            (count, last_ns) = (count + 1, ended_ns);
        }
        CommitFigures {
            recorder,
            per_second: count as f64 * 1e9 / last_ns.max(1) as f64,
            commits: count,
            elapsed_ns: last_ns,
            stall_ns,
            details: Value::Null,
            findings: Vec::new(),
        }
    }

    /// Transactions from the log of a tool, each with its end and its latency in µs. The tool counted them too.
    pub fn of_log(
        mut logged: Vec<(u64, u64)>,
        counted: u64,
        tool: &str,
    ) -> Result<CommitFigures, String> {
        if logged.len() as u64 != counted {
            return Err(format!(
                "{tool}'s log has {} transactions, and its report says {counted}; take a shorter --time",
                logged.len(),
            ));
        }
        logged.sort_unstable();
        let begun = logged.iter().map(|(ended, latency)| ended.saturating_sub(*latency)).min();
        let begun = begun.ok_or("no transaction ended; take a longer --time")?;
        let ns = |us: u64| us.saturating_mul(1000);
        Ok(CommitFigures::of(
            logged.iter().map(|(ended, latency)| (ns(ended - begun), ns(*latency))),
        ))
    }
}

/// Clients of kurabe's own, one thread each, of which each commits one thing after the other.
pub(super) struct Clients<'a> {
    pub count: u32,
    /// Commits of each, where they are limited.
    pub each: u64,
    pub seconds: u32,
    pub acknowledger: Option<&'a Acknowledger>,
    pub stop: &'a AtomicBool,
}

impl<'a> Clients<'a> {
    /// Clients that say which commits have returned.
    pub fn acknowledged(
        count: u32,
        seconds: u32,
        acknowledger: &'a Acknowledger,
        stop: &'a AtomicBool,
    ) -> Clients<'a> {
        let each = (ACKNOWLEDGED_MAX / u64::from(count)).max(1);
        Clients { count, each, seconds, acknowledger: Some(acknowledger), stop }
    }

    /// Runs them until the time is over; `commit` is told the client and the number of its commit, both from 1 on.
    pub fn run<C: Send>(
        &self,
        connect: impl Fn() -> Result<C, String>,
        commit: impl Fn(&mut C, u32, u64) -> Result<(), String> + Sync,
    ) -> Result<CommitFigures, String> {
        let connections = (1..=self.count).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        let until = begun + Duration::from_secs(self.seconds.into());
        let work = |client: u32, mut connection: C| {
            let mut commits = Vec::new();
            for number in 1..=self.each {
                let begun_one = Instant::now();
                if self.stop.load(Ordering::Relaxed) || begun_one >= until {
                    break;
                }
                commit(&mut connection, client, number)?;
                let latency_ns = begun_one.elapsed().as_nanos() as u64;
                commits.push((begun.elapsed().as_nanos() as u64, latency_ns));
                if let Some(acknowledger) = self.acknowledger {
                    acknowledger
                        .say(&format!("committed {client} {number}"))
                        .map_err(|error| format!("acknowledging: {error}"))?;
                }
            }
            Ok::<_, String>(commits)
        };
        let mut commits = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=self.count)
                .zip(connections)
                .map(|(client, connection)| scope.spawn(move || work(client, connection)))
                .collect();
            let ended = threads.into_iter().map(|one| one.join().expect("a client does not panic"));
            ended.collect::<Result<Vec<_>, _>>()
        })?
        .concat();
        if self.stop.load(Ordering::SeqCst) {
            return Err("stopped".into());
        }
        commits.sort_unstable();
        Ok(CommitFigures::of(commits.into_iter()))
    }
}

/// The last commit of each client that returned, from the acknowledgements.
fn last_of_each(acknowledged: &str) -> Vec<(u32, u64)> {
    let mut last = BTreeMap::new();
    for line in acknowledged.lines() {
        let mut words = line.split(' ').skip(1);
        let client = words.next().and_then(|word| word.parse().ok());
        let number = words.next().and_then(|word| word.parse().ok());
        if let (Some(client), Some(number)) = (client, number) {
            last.insert(client, number);
        }
    }
    last.into_iter().collect()
}

/// All rows that name a commit, in a database of SQL.
pub(super) const ALL_COMMITS: &str =
    "SELECT client, number FROM kurabe_commits ORDER BY client, number";

/// The client and the number of each of these rows.
pub(super) fn commits_of(rows: Vec<Vec<String>>) -> Vec<(u32, u64)> {
    let commit = |row: Vec<String>| match &row[..] {
        [client, number] => Some((client.parse().unwrap_or(0), number.parse().unwrap_or(0))),
        _ => None,
    };
    rows.into_iter().filter_map(commit).collect()
}

/// A benchmark's run, whose failure may be the server's.
pub(super) fn blaming(
    ran: Result<Finished, ToolError>,
    stop: &AtomicBool,
    blame: impl FnOnce(&str) -> String,
) -> Result<Finished, String> {
    ran.map_err(|error| {
        let words = error.to_string();
        if stop.load(Ordering::SeqCst) { words } else { blame(&words) }
    })
}

/// The first commit that had returned and is not among those found, which are sorted.
pub(super) fn missing_commit(found: &[(u32, u64)], last: &[(u32, u64)]) -> Option<Loss> {
    for (client, last) in last {
        for number in 1..=*last {
            if found.binary_search(&(*client, number)).is_err() {
                return Some(Loss::Lost(format!(
                    "what commit {number} of client {client} wrote is missing; its commits up to {last} had returned"
                )));
            }
        }
    }
    None
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct DatabaseWorkload<D>(D);

impl<D: Database> DatabaseWorkload<D> {
    fn data(&self, task: &WorkloadTask) -> Result<PathBuf, String> {
        Ok(directory_of(&task.target)?.join(D::DIRECTORY))
    }
}

impl<D: Database> FromKeys for DatabaseWorkload<D> {
    fn parse(written: &Written<'_>) -> Result<DatabaseWorkload<D>, KeyError> {
        D::parse(written, seconds_of(written)?).map(DatabaseWorkload)
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let time = Written { keys, name: None }.duration("time", SECONDS_DEFAULT)?;
        let seconds = ((time.as_secs_f64() * factor).round() as u64).max(1);
        keys.insert("time".into(), format!("{seconds}s").into());
        Ok(())
    }
}

impl<D: Database> Describe for DatabaseWorkload<D> {
    fn description(&self) -> Description {
        let seconds = self.0.seconds();
        let operations = D::OPERATIONS.iter().chain([&OVERALL_OPERATION]);
        Description {
            metrics: vec![D::METRIC.into(), D::STALL.into()],
            operations: operations.map(|name| name.to_string()).collect(),
            amounts: vec![Amount::new("the counted time", seconds.into(), format!("{seconds} s"))],
            amount: Some(format!("{}, {seconds} s counted", self.0.amount())),
            settings: options_without(self, &["seconds"]),
            lasts_long: true,
            has_setup: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let mut lines = self.0.plan();
        lines.push(("time", format!("{} s", self.0.seconds())));
        Ok(capacity::lines(&lines) + &capacity::verdict(self.0.needed_bytes(), capacity))
    }
}

impl<D: Database> Preflight for DatabaseWorkload<D> {
    fn read(&mut self) -> Result<(), String> {
        self.0.read()
    }

    fn needs(&self) -> Needs {
        tools(D::TOOLS)
    }

    fn check_options(&self) -> Result<(), String> {
        self.0.check_settings()
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        self.0.check_settings()?;
        capacity::check(D::NEEDS.0, self.0.needed_bytes(), capacity, D::NEEDS.1)
    }
}

impl<D: Database> Run for DatabaseWorkload<D> {
    fn set_up(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<LaidOut, String> {
        // A file system keeps some of its device for itself, and one that was aged is full already.
        let place = directory_of(&task.target)?;
        space::check(place, D::NEEDS.0, self.0.needed_bytes(), D::NEEDS.1)?;
        let data = self.data(task)?;
        let creating = ExcludedPhaseBegun::now(task);
        self.0.create(&data, stop)?;
        let mut excluded_phases = Vec::new();
        if D::HAS_SERVER {
            excluded_phases.push(creating.end(Create));
        }
        let loading = ExcludedPhaseBegun::now(task);
        let mut server = self.0.start(task, &data, ServerPurpose::Load, stop)?;
        self.0.load(&mut server, stop)?;
        excluded_phases.push(loading.end(Load));
        let ending = ExcludedPhaseBegun::now(task);
        self.0.checkpoint(&mut server)?;
        self.0.end(server)?;
        if D::HAS_SERVER {
            excluded_phases.push(ending.end(Checkpoint));
        }
        Ok(LaidOut { prepared: Value::Null, excluded_phases })
    }

    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let data = self.data(task)?;
        let acknowledger = Acknowledger::of(task)?;
        let starting = ExcludedPhaseBegun::now(task);
        let mut server = self.0.start(task, &data, ServerPurpose::Run, stop)?;
        let facts = self.0.facts(&mut server)?;
        let before = self.0.counters(&mut server)?;
        let mut excluded_phases = Vec::new();
        if D::HAS_SERVER {
            excluded_phases.push(starting.end(Start));
        }
        let measured = match &acknowledger {
            Some(acknowledger) => self.0.acknowledge(&mut server, acknowledger, stop)?,
            None => self.0.measure(task, &mut server, stop)?,
        };
        let after = self.0.counters(&mut server)?;
        let ending = ExcludedPhaseBegun::now(task);
        self.0.end(server)?;
        if D::HAS_SERVER {
            excluded_phases.push(ending.end(Shutdown));
        }
        let grown: Vec<(&str, u64)> = before
            .iter()
            .zip(&after)
            .map(|((name, before), (_, after))| (*name, after.saturating_sub(*before)))
            .collect();
        let grown_of =
            |name: &str| grown.iter().find(|(one, _)| *one == name).map(|(_, growth)| *growth);
        let mut findings = measured.findings;
        findings.extend(self.0.findings(&grown_of));
        let mut details = Map::new();
        details.extend(facts.into_iter().map(|(name, value)| (name.to_string(), value.into())));
        details.extend(grown.iter().map(|(name, growth)| (name.to_string(), json!(growth))));
        details.insert("commits".into(), json!(measured.commits));
        details.insert("elapsed_ns".into(), json!(measured.elapsed_ns));
        if let Value::Object(more) = measured.details {
            details.extend(more);
        }
        let recording = measured.recorder.finish();
        Ok(WorkloadReport {
            metrics: vec![
                Metric::new(D::METRIC, measured.per_second, Unit::OperationsPerSecond),
                Metric::maximum(D::STALL, measured.stall_ns as f64, Unit::Nanoseconds),
            ],
            latencies: latencies(&recording.summary()),
            findings,
            written_bytes: self.0.bytes_of_commit().map(|bytes| bytes * measured.commits),
            operations: Some(measured.commits),
            counted_ns: Some(measured.elapsed_ns),
            excluded_phases,
            histogram_log: Some(histogram_log(&recording, measured.elapsed_ns)?),
            details: details.into(),
            ..WorkloadReport::default()
        })
    }

    fn durability(&self) -> Option<&dyn Durability> {
        let writes = self.0.bytes_of_commit().is_some_and(|bytes| bytes > 0);
        writes.then_some(self as &dyn Durability)
    }
}

impl<D: Database> Durability for DatabaseWorkload<D> {
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        let data = self.data(task)?;
        if !data.exists() {
            return Ok(Some(Loss::Unusable(format!("{} is missing", data.display()))));
        }
        for tool in D::TOOLS {
            tool.locate()?;
        }
        let stop = AtomicBool::new(false);
        let mut server = match self.0.start(task, &data, ServerPurpose::Check, &stop) {
            Ok(server) => server,
            Err(problem) => return Ok(Some(Loss::Unusable(problem))),
        };
        Ok(self.0.loss_in(&mut server, &last_of_each(acknowledged)).unwrap_or_else(Some))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_client_the_last_acknowledgement_counts() {
        let text = "committed 1 1\ncommitted 2 1\ncommitted 1 2\n";
        let last = last_of_each(text);
        assert_eq!(last, [(1, 2), (2, 1)]);
        assert_eq!(last_of_each(""), []);
        assert_eq!(missing_commit(&[(1, 1), (1, 2), (2, 1), (2, 2)], &last), None);
        let Some(Loss::Lost(words)) = missing_commit(&[(1, 1), (2, 1)], &last) else { panic!() };
        assert!(words.starts_with("what commit 2 of client 1 wrote is missing"), "{words}");
    }

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let settings = settings_of("Fsync=off a.b=1GB", "it", &["port"]).unwrap();
        assert_eq!(settings, [("fsync", "off"), ("a.b", "1GB")].map(|(a, b)| (a.into(), b.into())));
        for (text, word) in [
            ("fsync", "'fsync' has no value"),
            ("Port=1", "is set by kurabe"),
            ("a;b=1", "is no name of a setting of it"),
        ] {
            let problem = settings_of(text, "it", &["port"]).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        assert_eq!(check_names("key", "it", &settings, &["FSYNC"]), Ok(()));
        let problem = check_names("key", "it", &settings, &["fsyncs", "other"]).unwrap_err();
        assert_eq!(problem, "key: no setting of it is called 'fsync'; did you mean 'fsyncs'?");
    }

    #[test]
    fn the_longest_time_without_a_commit_is_between_two_ends() {
        let ms = |number: u64| number * 1_000_000;
        let commits = [(ms(10), ms(10)), (ms(15), ms(5)), (ms(40), ms(9))];
        let measured = CommitFigures::of(commits.into_iter());
        assert_eq!((measured.commits, measured.stall_ns), (3, ms(25)));
        assert_eq!(measured.per_second, 75.0);
        let logged = vec![(1_015_000, 5000), (1_010_000, 10_000)];
        let measured = CommitFigures::of_log(logged.clone(), 2, "x").unwrap();
        assert_eq!((measured.elapsed_ns, measured.stall_ns), (ms(15), ms(10)));
        assert!(CommitFigures::of_log(logged, 3, "x").unwrap_err().contains("2 transactions"));
        assert!(CommitFigures::of_log(Vec::new(), 0, "x").unwrap_err().contains("no transaction"));
    }
}
