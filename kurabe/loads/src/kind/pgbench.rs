//! PostgreSQL under its own benchmark, pgbench: transactions per second are compared, and every transaction's
//! latency is taken from pgbench's log.
//!
//! Where the power is cut, transactions of the same statements are sent by clients of kurabe's, since pgbench says
//! too late which commit has returned. Each also inserts a row with its number, so what is left must have the rows
//! of all that returned, and the sums of all tables must agree.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vocabulary::capacity::{self, Capacity};
use vocabulary::cost::Phase::{Checkpoint, Create, Load, Shutdown, Start};
use vocabulary::kind::{
    Amount, Form, Generator, Key, KeyError, Keys, Kind, LaidOut, Written, directory_of,
    options_without,
};
use vocabulary::load::{LoadTask, Loss};
use vocabulary::path::UserPath;
use vocabulary::quantity::parse_size;
use vocabulary::report::{LoadReport, Metric, OVERALL_OPERATION, Unit};
use vocabulary::suggestion::unknown;
use vocabulary::words::counted;

use super::{histogram_log, latencies, missing_tools, programs_of};
use crate::aside::AsideBegun;
use crate::enclosure::Enclosure;
use crate::postgres::{self, Client, Postgres};
use crate::tool::{self, Finished, Tool, run_kept_in};
use measure::acknowledge::Acknowledger;
use measure::latency::Recorder;

pub(super) const KIND: Kind = Kind::of::<PgbenchLoad>(
    "pgbench",
    &[
        Key::load(
            "pgbench",
            Form::Text("CLIENTS"),
            "Run the installed PostgreSQL under pgbench: '8 scale=8 jobs=2 script=tpcb-like protocol=simple' is 8 clients and the defaults (docs/reference/databases.md).",
        ),
        Key::option("time", Form::Text("TIME"), "Time of the run [default: 60s]."),
        Key::option(
            "postgres",
            Form::Text("SETTINGS"),
            "Settings of PostgreSQL: 'synchronous_commit=off max_wal_size=1GB'.",
        ),
    ],
    &[],
)
.server();

const SECONDS_DEFAULT: &str = "60s";
const WORDS: [&str; 4] = ["scale", "jobs", "script", "protocol"];
const PROTOCOLS: [&str; 3] = ["simple", "extended", "prepared"];
const CLIENTS_MAX: u32 = 1000;
const SCALE_MAX: u32 = 100_000;
/// What PostgreSQL is told unless the user tells it otherwise: so that a run of a minute includes a checkpoint, and
/// that every client is let in.
const CHECKPOINT_TIMEOUT: (&str, &str) = ("checkpoint_timeout", "30s");
const WAL_SIZE: (&str, &str) = ("max_wal_size", "256MB");
/// Settings that are kurabe's, since it would not find the server or its log.
const OWN_SETTINGS: [&str; 10] = [
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "listen_addresses",
    "log_checkpoints",
    "logging_collector",
    "log_destination",
    "port",
    "unix_socket_directories",
];
/// What decides about speed and durability, recorded with every run.
const FACTS: [&str; 11] = [
    "server_version",
    "fsync",
    "wal_sync_method",
    "full_page_writes",
    "synchronous_commit",
    "max_wal_size",
    "checkpoint_timeout",
    "shared_buffers",
    "wal_buffers",
    "data_checksums",
    "commit_delay",
];

const METRIC: &str = "transactions";
const STALL: &str = "longest time without a commit";
const OPERATION: &str = "commit";
/// Bytes of an empty database with its first segment of the log.
const EMPTY_BYTES: u64 = 48 << 20;
/// Bytes that pgbench's rows take for each unit of scale, with their index.
const SCALE_BYTES: u64 = 16 << 20;
/// Bytes of the log's files, of which one more than asked for can be there.
const WAL_SEGMENT_BYTES: u64 = 16 << 20;
/// Commits of a run in which the power is cut.
const ACKNOWLEDGED_MAX: u64 = 600;
/// pgbench's rows for each unit of scale.
const ACCOUNTS: u32 = 100_000;
const TELLERS: u32 = 10;
/// What decides about the work.
const SEED: u64 = 0x6b75_7261;
const COMMITS: &str =
    "CREATE TABLE kurabe_commits (client int, number int, PRIMARY KEY (client, number))";

/// pgbench's scripts, and the bytes of the values that a transaction of each writes.
const SCRIPTS: [(&str, u64); 3] = [("tpcb-like", 140), ("simple-update", 120), ("select-only", 0)];

/// The workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PgbenchLoad {
    clients: u32,
    /// pgbench's threads.
    jobs: u32,
    /// Hundreds of thousands of rows.
    scale: u32,
    /// Seconds that are counted.
    seconds: u32,
    protocol: String,
    /// A script of pgbench's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    script: Option<String>,
    /// A file with a script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<UserPath>,
    /// What is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Settings of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<(String, String)>,
}

impl PgbenchLoad {
    fn of_text(text: &str, seconds: u32) -> Result<PgbenchLoad, String> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let clients = first.parse::<u32>().ok().filter(|count| (1..=CLIENTS_MAX).contains(count));
        let clients = clients.ok_or(format!(
            "'{first}' is no number of clients from 1 to {CLIENTS_MAX}; write CLIENTS [NAME=VALUE ...]"
        ))?;
        let mut load = PgbenchLoad {
            clients,
            jobs: clients.min(2),
            scale: clients,
            seconds,
            protocol: PROTOCOLS[0].into(),
            script: Some(SCRIPTS[0].0.into()),
            path: None,
            text: None,
            settings: Vec::new(),
        };
        for word in words {
            let Some((name, value)) = word.split_once('=') else {
                return Err(format!("'{word}' has no value; write NAME=VALUE"));
            };
            let whole = |most: u32| {
                let number = value.parse::<u32>().ok().filter(|number| (1..=most).contains(number));
                number.ok_or(format!("{word}: '{value}' is no whole number from 1 to {most}"))
            };
            match name {
                "scale" => load.scale = whole(SCALE_MAX)?,
                "jobs" => load.jobs = whole(clients)?,
                "protocol" if PROTOCOLS.contains(&value) => load.protocol = value.into(),
                "protocol" => return Err(unknown("protocol is called", value, &PROTOCOLS)),
                "script" if value.contains(['/', '.']) => {
                    (load.script, load.path) = (None, Some(UserPath::typed(value)));
                }
                "script" if SCRIPTS.iter().any(|(name, _)| *name == value) => {
                    load.script = Some(value.into());
                }
                "script" => {
                    let names = SCRIPTS.map(|(name, _)| name);
                    let problem = unknown("script of pgbench is called", value, &names);
                    return Err(format!("{problem}; a file is named by its path, ./{value}"));
                }
                _ => return Err(unknown("setting of pgbench is called", name, &WORDS)),
            }
        }
        Ok(load)
    }

    /// The settings of the server, kurabe's own defaults first.
    fn settings(&self) -> Vec<(String, String)> {
        let defaults = [
            (CHECKPOINT_TIMEOUT.0, CHECKPOINT_TIMEOUT.1.to_string()),
            (WAL_SIZE.0, WAL_SIZE.1.to_string()),
            ("max_connections", (self.clients + 20).to_string()),
        ];
        let defaults = defaults.into_iter().map(|(name, value)| (name.to_string(), value));
        // The last one counts.
        defaults.chain(self.settings.iter().cloned()).collect()
    }

    fn wal_bytes(&self) -> Result<u64, String> {
        let settings = self.settings();
        let sizes = settings.iter().rev().filter(|(name, _)| name == WAL_SIZE.0);
        let value = sizes.map(|(_, value)| value.as_str()).next().unwrap_or(WAL_SIZE.1);
        // PostgreSQL's units are powers of 1024; without one it is MB.
        let unit = value.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let text = match unit {
            "" => format!("{value}M"),
            "kB" | "MB" | "GB" | "TB" => value.trim_end_matches('B').to_uppercase(),
            _ => return Err(format!("{}={value}: write a size such as 1GB", WAL_SIZE.0)),
        };
        parse_size(&text).map_err(|problem| format!("{}: {problem}", WAL_SIZE.0))
    }

    /// The data with the old versions of its rows, and the log.
    fn needed_bytes(&self) -> Result<u64, String> {
        let data = u64::from(self.scale) * SCALE_BYTES;
        Ok(EMPTY_BYTES + data + data / 4 + self.wal_bytes()? + WAL_SEGMENT_BYTES)
    }

    fn bytes_of_transaction(&self) -> Option<u64> {
        let script = self.script.as_deref()?;
        SCRIPTS.iter().find(|(name, _)| *name == script).map(|(_, bytes)| *bytes)
    }

    fn script_words(&self) -> String {
        match (&self.script, &self.path) {
            (Some(script), _) => script.clone(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => String::new(),
        }
    }

    /// Runs pgbench on a server.
    fn pgbench(
        &self,
        server: &mut Postgres,
        stop: &AtomicBool,
        fill: &[&str],
    ) -> Result<Finished, String> {
        let fill = |command: &mut std::process::Command| {
            command.args(server.arguments()).args(fill).arg(server.database());
        };
        let ran = run_kept_in(Tool::Pgbench, &Enclosure::default(), fill, stop);
        ran.map_err(|error| {
            let words = error.to_string();
            if stop.load(Ordering::SeqCst) { words } else { server.blamed(&words) }
        })
    }
}

/// Settings of the server, in the order in which they are written.
fn settings_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    for word in text.split_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            return Err(format!("'{word}' has no value; write NAME=VALUE"));
        };
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        if name.is_empty() || !name.chars().all(is_part) {
            return Err(format!("'{name}' is no name of a setting of PostgreSQL"));
        }
        if OWN_SETTINGS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(format!(
                "{name} is set by kurabe, which has to find the server; leave it out"
            ));
        }
        settings.push((name.to_ascii_lowercase(), value.to_string()));
    }
    Ok(settings)
}

fn seconds_of(written: &Written<'_>) -> Result<u32, KeyError> {
    let duration = written.duration("time", SECONDS_DEFAULT)?;
    match duration.as_secs() {
        seconds @ 1..=1_000_000 if duration.subsec_nanos() == 0 => Ok(seconds as u32),
        _ => {
            let text = written.text("time").unwrap_or(SECONDS_DEFAULT);
            let problem = format!("'{text}' must be whole seconds, as pgbench counts them");
            Err(KeyError::new("time", problem))
        }
    }
}

/// What pgbench says of a run.
#[derive(Debug, Default, PartialEq)]
struct Said {
    transactions: u64,
    failed: u64,
    /// Without the time in which it connected.
    per_second: f64,
}

fn said(text: &str) -> Option<Said> {
    let after = |start: &str| {
        let rest = text.lines().find_map(|line| line.trim().strip_prefix(start))?;
        Some(rest.split([' ', '/']).next().unwrap_or_default())
    };
    Some(Said {
        transactions: after("number of transactions actually processed: ")?.parse().ok()?,
        failed: after("number of failed transactions: ").unwrap_or("0").parse().ok()?,
        per_second: after("tps = ")?.parse().ok()?,
    })
}

/// A transaction in pgbench's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Logged {
    ended_us: u64,
    latency_us: u64,
}

/// `client number latency script seconds microseconds`; a failed transaction has a word for its latency.
fn logged(line: &str) -> Option<Logged> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, latency, _, seconds, microseconds, ..] = words[..] else { return None };
    let (seconds, microseconds): (u64, u64) = (seconds.parse().ok()?, microseconds.parse().ok()?);
    let ended_us = seconds.checked_mul(1_000_000)?.checked_add(microseconds)?;
    Some(Logged { ended_us, latency_us: latency.parse().ok()? })
}

/// Everything in the logs of pgbench's threads, in the order in which it ended.
fn read_logs(place: &Path, prefix: &str) -> Result<Vec<Logged>, String> {
    let failed = |error: std::io::Error| format!("reading pgbench's log: {error}");
    let mut found = Vec::new();
    for entry in fs::read_dir(place).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            found.extend(read_log(&path).map_err(failed)?.lines().filter_map(logged));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Bytes of a log that are read: a transaction has about 40.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// The text of a log. A script may have put anything under its name: no link is followed, nothing is waited for, and
/// what is no file has no text.
fn read_log(path: &Path) -> std::io::Result<String> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = fs::File::options().read(true).custom_flags(flags).open(path)?;
    let mut text = String::new();
    if file.metadata()?.is_file() {
        file.take(LOG_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// What was measured of commits, by whichever client.
struct Measured {
    recorder: Recorder,
    per_second: f64,
    commits: u64,
    elapsed_ns: u64,
    stall_ns: u64,
    details: Value,
    findings: Vec<String>,
}

impl Measured {
    /// Commits in the order in which they ended, each with its end and its latency in ns since the beginning.
    fn of(commits: impl Iterator<Item = (u64, u64)>) -> Measured {
        let mut recorder = Recorder::with_intervals(Duration::from_secs(1));
        let kind = recorder.kind(OPERATION);
        let (mut count, mut last_ns, mut stall_ns) = (0, 0, 0);
        for (ended_ns, latency_ns) in commits {
            recorder.record_at(kind, ended_ns, latency_ns, 0);
            stall_ns = stall_ns.max(ended_ns.saturating_sub(last_ns));
            (count, last_ns) = (count + 1, ended_ns);
        }
        Measured {
            recorder,
            per_second: count as f64 * 1e9 / last_ns.max(1) as f64,
            commits: count,
            elapsed_ns: last_ns,
            stall_ns,
            details: Value::Null,
            findings: Vec::new(),
        }
    }
}

impl PgbenchLoad {
    /// The run of pgbench.
    fn measure(
        &self,
        task: &LoadTask,
        server: &mut Postgres,
        stop: &AtomicBool,
    ) -> Result<Measured, String> {
        const PREFIX: &str = "pgbench-log";
        let texts = [self.clients, self.jobs, self.seconds].map(|number| number.to_string());
        let [clients, jobs, seconds] = &texts;
        let prefix = format!("--log-prefix={}", task.scratch.join(PREFIX).display());
        let seed = format!("--random-seed={SEED}");
        let script = task.scratch.join("script.sql");
        let mut words = vec!["-n", "-c", clients, "-j", jobs, "-T", seconds, "-M", &self.protocol];
        words.extend(["--log", &prefix, &seed]);
        let shown = script.display().to_string();
        match (&self.script, &self.text) {
            (Some(script), _) => words.extend(["-b", script]),
            (None, text) => {
                fs::write(&script, text.as_deref().unwrap_or_default())
                    .map_err(|error| format!("writing pgbench's script: {error}"))?;
                words.extend(["-f", &shown]);
            }
        }
        let finished = self.pgbench(server, stop, &words)?;
        let said = said(&finished.stdout)
            .ok_or_else(|| format!("pgbench's report cannot be read:\n  {}", finished.stdout))?;
        let logged = read_logs(&task.scratch, PREFIX)?;
        if logged.len() as u64 != said.transactions {
            return Err(format!(
                "pgbench's log has {} transactions, and its report says {}; take a shorter --time",
                logged.len(),
                said.transactions
            ));
        }
        let begun = logged.iter().map(|one| one.ended_us.saturating_sub(one.latency_us)).min();
        let begun_us = begun.ok_or("no transaction ended; take a longer --time")?;
        let ns = |us: u64| us.saturating_mul(1000);
        let measured = Measured::of(
            logged.iter().map(|one| (ns(one.ended_us - begun_us), ns(one.latency_us))),
        );
        let findings = match said.failed {
            0 => Vec::new(),
            failed => vec![format!("{failed} transactions failed, and are not counted")],
        };
        let by_log = measured.per_second;
        let details = json!({
            "pgbench_transactions_per_second": said.per_second,
            "log_transactions_per_second": by_log,
            "failed": said.failed,
            "pgbench_output": finished.stdout,
            "pgbench_command": finished.command,
        });
        Ok(Measured { per_second: said.per_second, details, findings, ..measured })
    }

    /// A transaction of the script, as kurabe sends it, with a row that names it.
    fn statements(&self, client: u32, number: u64) -> String {
        let salt = number ^ (u64::from(client) << 40) ^ SEED;
        let mut random = ChaCha8Rng::seed_from_u64(salt);
        let account = random.random_range(1..=u64::from(ACCOUNTS) * u64::from(self.scale));
        let teller = random.random_range(1..=u64::from(TELLERS) * u64::from(self.scale));
        let branch = random.random_range(1..=self.scale);
        let delta = random.random_range(-5000..=5000);
        let mut text = format!(
            "BEGIN; UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account};"
        );
        if self.has_sums() {
            write!(
                text,
                "UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller};\
                 UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {branch};"
            )
            .expect("a text takes any text");
        }
        write!(
            text,
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
             VALUES ({teller}, {branch}, {account}, {delta}, CURRENT_TIMESTAMP);\
             INSERT INTO kurabe_commits VALUES ({client}, {number}); END;"
        )
        .expect("a text takes any text");
        text
    }

    /// Whether the script changes tellers and branches too.
    fn has_sums(&self) -> bool {
        self.script.as_deref() == Some(SCRIPTS[0].0)
    }

    /// The run that says which commits have returned.
    fn acknowledge(
        &self,
        server: &Postgres,
        acknowledger: &Acknowledger,
        stop: &AtomicBool,
    ) -> Result<Measured, String> {
        let each = (ACKNOWLEDGED_MAX / u64::from(self.clients)).max(1);
        let begun = Instant::now();
        let until = begun + Duration::from_secs(self.seconds.into());
        let work = |client: u32, mut connection: Client| {
            let mut commits = Vec::new();
            for number in 1..=each {
                if stop.load(Ordering::SeqCst) || Instant::now() >= until {
                    break;
                }
                let begun_one = Instant::now();
                connection.ask(&self.statements(client, number))?;
                let latency_ns = begun_one.elapsed().as_nanos() as u64;
                commits.push((begun.elapsed().as_nanos() as u64, latency_ns));
                acknowledger
                    .say(&format!("committed {client} {number}"))
                    .map_err(|error| format!("acknowledging: {error}"))?;
            }
            Ok::<_, String>(commits)
        };
        let connections =
            (1..=self.clients).map(|_| server.client()).collect::<Result<Vec<_>, _>>()?;
        let mut commits = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=self.clients)
                .zip(connections)
                .map(|(client, connection)| scope.spawn(move || work(client, connection)))
                .collect();
            let ended = threads.into_iter().map(|one| one.join().expect("a client does not panic"));
            ended.collect::<Result<Vec<_>, _>>()
        })?
        .concat();
        if stop.load(Ordering::SeqCst) {
            return Err("stopped".into());
        }
        commits.sort_unstable();
        Ok(Measured::of(commits.into_iter()))
    }
}

impl Generator for PgbenchLoad {
    fn parse(written: &Written<'_>) -> Result<PgbenchLoad, KeyError> {
        let seconds = seconds_of(written)?;
        let settings = settings_of(written.text("postgres").unwrap_or_default())
            .map_err(|problem| KeyError::new("postgres", problem))?;
        let load = PgbenchLoad::of_text(written.text("pgbench").unwrap_or_default(), seconds)
            .map_err(|problem| KeyError::new("pgbench", problem))?;
        let load = PgbenchLoad { settings, ..load };
        load.wal_bytes().map_err(|problem| KeyError::new("postgres", problem))?;
        Ok(load)
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let time = Written { keys, name: None }.duration("time", SECONDS_DEFAULT)?;
        let seconds = ((time.as_secs_f64() * factor).round() as u64).max(1);
        keys.insert("time".into(), format!("{seconds}s").into());
        Ok(())
    }

    fn amounts(&self) -> Vec<Amount> {
        let words = format!("{} s", self.seconds);
        vec![Amount::new("the counted time", self.seconds.into(), words)]
    }

    fn settings(&self) -> Value {
        options_without(self, &["seconds"])
    }

    fn amount(&self) -> Option<String> {
        let clients = counted(self.clients as usize, "client");
        Some(format!("{clients}, scale {}, {} s counted", self.scale, self.seconds))
    }

    fn read(&mut self) -> Result<(), String> {
        if let Some(path) = &self.path {
            let text = trust::file::read_text(path).map_err(|error| format!("script {error}"))?;
            self.text = Some(text);
        }
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        missing_tools(&[Tool::Postgres, Tool::Initdb, Tool::Pgbench])
    }

    fn programs(&self) -> Vec<PathBuf> {
        programs_of(&[Tool::Postgres, Tool::Initdb, Tool::Pgbench])
    }

    fn check_options(&self) -> Result<(), String> {
        let asked = tool::ask(Tool::Postgres, &["--describe-config"], std::process::Stdio::null());
        let Ok(asked) = asked else { return Ok(()) };
        let known: Vec<&str> =
            asked.stdout.lines().filter_map(|line| line.split('\t').next()).collect();
        let is_known = |name: &str| {
            name.contains('.') || known.iter().any(|one| one.eq_ignore_ascii_case(name))
        };
        match self.settings.iter().find(|(name, _)| !is_known(name)) {
            // A list of hundreds helps nobody.
            Some((name, _)) => {
                let problem = unknown("setting of PostgreSQL is called", name, &known);
                let short = problem.split("; there are ").next().unwrap_or_default();
                Err(format!("postgres: {short}"))
            }
            None => Ok(()),
        }
    }

    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        for tool in [Tool::Postgres, Tool::Initdb, Tool::Pgbench] {
            tool.locate()?;
        }
        self.check_options()?;
        capacity::check(
            "the database, its log and a checkpoint need",
            self.needed_bytes()?,
            capacity,
            "take a smaller scale= or max_wal_size=, or give a larger device",
        )
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let settings: Vec<String> =
            self.settings().iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(capacity::lines(&[
            ("clients", format!("{}, in {}", self.clients, counted(self.jobs as usize, "thread"))),
            (
                "scale",
                format!("{}: {} rows", self.scale, u64::from(self.scale) * u64::from(ACCOUNTS)),
            ),
            ("script", self.script_words()),
            ("time", format!("{} s", self.seconds)),
            ("settings", settings.join(" ")),
        ]) + &capacity::verdict(self.needed_bytes()?, capacity))
    }

    fn metrics(&self) -> Vec<String> {
        vec![METRIC.into(), STALL.into()]
    }

    fn operations(&self) -> Vec<String> {
        vec![OPERATION.into(), OVERALL_OPERATION.into()]
    }

    fn lasts_long(&self) -> bool {
        true
    }

    fn has_setup(&self) -> bool {
        true
    }

    fn set_up(&self, task: &LoadTask, stop: &AtomicBool) -> Result<LaidOut, String> {
        let data = postgres::data_directory(directory_of(&task.target)?);
        let creating = AsideBegun::now(task);
        postgres::create(&data, stop)?;
        let mut asides = vec![creating.end(Create)];
        let loading = AsideBegun::now(task);
        // What is asked of commits holds for the run; what is there before it is durable.
        let mut settings = self.settings();
        for name in ["fsync", "full_page_writes", "synchronous_commit"] {
            settings.push((name.into(), "on".into()));
        }
        let mut server = Postgres::start(task, &data, &settings, stop)?;
        let scale = self.scale.to_string();
        self.pgbench(&mut server, stop, &["-i", "-q", "-s", &scale])?;
        server.client()?.ask(COMMITS)?;
        asides.push(loading.end(Load));
        let ending = AsideBegun::now(task);
        server.client()?.ask("CHECKPOINT")?;
        server.end()?;
        asides.push(ending.end(Checkpoint));
        Ok(LaidOut { prepared: Value::Null, asides })
    }

    fn run(&self, task: &LoadTask, stop: &AtomicBool) -> Result<LoadReport, String> {
        let data = postgres::data_directory(directory_of(&task.target)?);
        let acknowledger = Acknowledger::of(task)?;
        let starting = AsideBegun::now(task);
        let mut server = Postgres::start(task, &data, &self.settings(), stop)?;
        let mut client = server.client()?;
        let mut details = serde_json::Map::new();
        for fact in FACTS {
            details.insert(fact.into(), client.value(&format!("SHOW {fact}"))?.into());
        }
        const POSITION: &str = "SELECT pg_current_wal_insert_lsn() - '0/0'";
        let mut position = || Ok::<_, String>(client.value(POSITION)?.parse::<u64>().unwrap_or(0));
        let (log_before, checkpoints_before) = (position()?, server.checkpoints());
        let mut asides = vec![starting.end(Start)];
        let measured = match &acknowledger {
            Some(acknowledger) => self.acknowledge(&server, acknowledger, stop)?,
            None => self.measure(task, &mut server, stop)?,
        };
        let log_bytes = position()?.saturating_sub(log_before);
        let checkpoints = server.checkpoints() - checkpoints_before;
        let ending = AsideBegun::now(task);
        drop(client);
        server.end()?;
        asides.push(ending.end(Shutdown));
        let mut findings = measured.findings;
        if checkpoints == 0 && self.bytes_of_transaction() != Some(0) {
            findings.push("no checkpoint began within the run, so its cost is not in the figures; take a longer --time".into());
        }
        let others = [
            ("script", json!(self.script_words())),
            ("scale", json!(self.scale)),
            ("checkpoints_begun", json!(checkpoints)),
            ("log_bytes", json!(log_bytes)),
            ("commits", json!(measured.commits)),
            ("elapsed_ns", json!(measured.elapsed_ns)),
        ];
        details.extend(others.map(|(name, value)| (name.to_string(), value)));
        if let Value::Object(more) = measured.details {
            details.extend(more);
        }
        let recording = measured.recorder.finish();
        Ok(LoadReport {
            metrics: vec![
                Metric::new(METRIC, measured.per_second, Unit::OperationsPerSecond),
                Metric::new(STALL, measured.stall_ns as f64, Unit::Nanoseconds),
            ],
            latencies: latencies(&recording.summary()),
            findings,
            written_bytes: self.bytes_of_transaction().map(|bytes| bytes * measured.commits),
            operations: Some(measured.commits),
            counted_ns: Some(measured.elapsed_ns),
            asides,
            histogram_log: Some(histogram_log(&recording, measured.elapsed_ns)?),
            details: details.into(),
            ..LoadReport::default()
        })
    }

    fn acknowledges(&self) -> bool {
        self.bytes_of_transaction().is_some_and(|bytes| bytes > 0)
    }

    fn find_loss(&self, task: &LoadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        let data = postgres::data_directory(directory_of(&task.target)?);
        if !data.join("PG_VERSION").exists() {
            return Ok(Some(Loss::Unusable(format!("{} holds no database", data.display()))));
        }
        Tool::Postgres.locate()?;
        // The server that wrote it ended with its machine; by its number another process can run here.
        let _ = fs::remove_file(data.join("postmaster.pid"));
        // Nothing is to survive the check.
        let settings = [("fsync", "off"), ("autovacuum", "off")]
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let stop = AtomicBool::new(false);
        let server = match Postgres::start(task, &data, &settings, &stop) {
            Ok(server) => server,
            Err(problem) => return Ok(Some(Loss::Unusable(problem))),
        };
        let mut client = server.client()?;
        Ok(self.loss_in(&mut client, &last_of_each(acknowledged)).unwrap_or_else(|error| {
            let words = error.to_string();
            Some(if error.is_corruption() { Loss::Corrupt(words) } else { Loss::Unusable(words) })
        }))
    }
}

/// The last commit of each client that returned, from the acknowledgements.
fn last_of_each(acknowledged: &str) -> Vec<(u32, u64)> {
    let mut last = std::collections::BTreeMap::new();
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

impl PgbenchLoad {
    /// Looks for the row of every commit that returned, and compares the sums of the tables.
    fn loss_in(
        &self,
        client: &mut Client,
        last: &[(u32, u64)],
    ) -> Result<Option<Loss>, postgres::AskError> {
        let mut found = Vec::new();
        for row in
            client.ask("SELECT client, number FROM kurabe_commits ORDER BY client, number")?
        {
            let [client, number] = &row[..] else { continue };
            found.push((client.parse().unwrap_or(0_u32), number.parse().unwrap_or(0_u64)));
        }
        for (client, last) in last {
            for number in 1..=*last {
                if found.binary_search(&(*client, number)).is_err() {
                    return Ok(Some(Loss::Lost(format!(
                        "the row of transaction {number} of client {client} is missing; its commits up to {last} had returned"
                    ))));
                }
            }
        }
        let commits = found.len().to_string();
        let mut sums = vec![(
            "the rows of pgbench_history",
            "SELECT count(*) FROM pgbench_history",
            commits.clone(),
        )];
        let delta = client.value("SELECT coalesce(sum(delta), 0) FROM pgbench_history")?;
        sums.push((
            "the balances of all accounts",
            "SELECT sum(abalance) FROM pgbench_accounts",
            delta.clone(),
        ));
        if self.has_sums() {
            sums.push((
                "the balances of all tellers",
                "SELECT sum(tbalance) FROM pgbench_tellers",
                delta.clone(),
            ));
            sums.push((
                "the balances of all branches",
                "SELECT sum(bbalance) FROM pgbench_branches",
                delta,
            ));
        }
        for (what, statement, expected) in sums {
            let value = client.value(statement)?;
            if value != expected {
                return Ok(Some(Loss::Corrupt(format!(
                    "{what} come to {value}, and {commits} transactions in kurabe_commits make it {expected}"
                ))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<PgbenchLoad, String> {
        PgbenchLoad::of_text(text, 60)
    }

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let plain = load("8").unwrap();
        assert_eq!((plain.clients, plain.jobs, plain.scale), (8, 2, 8));
        assert_eq!(load("8 scale=8 jobs=2 script=tpcb-like protocol=simple").unwrap(), plain);
        assert_eq!(load("1 script=./x.sql").unwrap().script, None);
        for (text, word) in [
            ("", "'' is no number of clients"),
            ("0", "from 1 to 1000"),
            ("8 fast", "'fast' has no value"),
            ("8 scael=2", "did you mean 'scale'?"),
            ("8 scale=0", "from 1 to 100000"),
            ("8 jobs=9", "from 1 to 8"),
            ("8 script=tpcb", "tpcb-like"),
            ("8 protocol=fast", "there are simple, extended, prepared"),
        ] {
            let problem = load(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        let settings = settings_of("Fsync=off max_wal_size=1GB").unwrap();
        assert_eq!(settings[0], ("fsync".into(), "off".into()));
        let load = PgbenchLoad { settings, ..plain };
        assert_eq!(load.wal_bytes(), Ok(1 << 30));
        let units =
            [("64", Some(64 << 20)), ("512kB", Some(512 << 10)), ("1G", None), ("1.5GB", None)];
        for (text, bytes) in units {
            let settings = settings_of(&format!("max_wal_size={text}")).unwrap();
            assert_eq!(PgbenchLoad { settings, ..load.clone() }.wal_bytes().ok(), bytes, "{text}");
        }
        for (text, word) in [
            ("fsync", "'fsync' has no value"),
            ("Port=1", "is set by kurabe"),
            ("a;b=1", "is no name of a setting"),
        ] {
            let problem = settings_of(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        let mut keys: Keys = [("pgbench".to_string(), json!("8"))].into();
        PgbenchLoad::scale(&mut keys, 0.1).unwrap();
        assert_eq!(keys["time"], "6s");
    }

    #[test]
    fn what_pgbench_says_is_read() {
        let text = "transaction type: <builtin: TPC-B (sort of)>\n\
            number of transactions actually processed: 2780\n\
            number of failed transactions: 3 (0.108%)\nlatency average = 7.0 ms\n\
            tps = 567.247613 (without initial connection time)\n";
        let expected = Said { transactions: 2780, failed: 3, per_second: 567.247613 };
        assert_eq!(said(text), Some(expected));
        // Versions before 15 count no failures.
        let older = "number of transactions actually processed: 5/5\ntps = 1.5 (without)\n";
        assert_eq!(said(older), Some(Said { transactions: 5, failed: 0, per_second: 1.5 }));
        assert_eq!(said("pgbench: error"), None);
        let line = logged("3 17 4242 0 1700000000 000123").unwrap();
        assert_eq!(line, Logged { ended_us: 1_700_000_000_000_123, latency_us: 4242 });
        assert_eq!(logged("3 17 failed 0 1700000000 000123"), None);
        assert_eq!(logged("3 17 42"), None);
        let ms = |number: u64| number * 1_000_000;
        let measured =
            Measured::of([(ms(10), ms(10)), (ms(15), ms(5)), (ms(40), ms(9))].into_iter());
        assert_eq!((measured.commits, measured.stall_ns), (3, ms(25)));
        assert_eq!(measured.per_second, 75.0);
    }

    #[test]
    fn of_each_client_the_last_acknowledgement_counts() {
        let text = "committed 1 1\ncommitted 2 1\ncommitted 1 2\n";
        assert_eq!(last_of_each(text), [(1, 2), (2, 1)]);
        assert_eq!(last_of_each(""), []);
        let load = load("2 scale=3").unwrap();
        assert_eq!(load.statements(1, 1), load.statements(1, 1));
        assert_ne!(load.statements(1, 1), load.statements(2, 1));
        assert_eq!(load.statements(1, 1).matches("UPDATE").count(), 3);
    }
}
