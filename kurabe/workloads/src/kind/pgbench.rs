//! PostgreSQL under its own benchmark, pgbench: transactions per second are compared, and every transaction's
//! latency is taken from pgbench's log.
//!
//! Where the power is cut, transactions of the same statements are sent by clients of kurabe's, since pgbench says
//! too late which commit has returned. Each also inserts a row with its number, so what is left must have the rows
//! of all that returned, and the sums of all tables must agree.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::acknowledge::Acknowledger;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vocabulary::kind::{Form, KeyError, WorkloadKey, WorkloadKind, Written};
use vocabulary::path::UserPath;
use vocabulary::quantity::parse_size;
use vocabulary::suggestion::unknown;
use vocabulary::words::counted;
use vocabulary::workload::{Loss, WorkloadTask};

use super::database::{
    ALL_COMMITS, Clients, CommitFigures, Database, DatabaseWorkload, SEED, ServerPurpose, TIME,
    blaming, check_names, clients_of, commits_of, missing_commit, read_logs, settings_of,
    settings_text,
};
use crate::enclosure::Enclosure;
use crate::postgres::{self, Postgres, PostgresConnection};
use crate::server::AskError;
use crate::tool::{self, Finished, WorkloadTool, run_kept_in};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<DatabaseWorkload<PgbenchWorkload>>(
    "pgbench",
    &[
        WorkloadKey::load(
            "pgbench",
            Form::Text("CLIENTS"),
            "Run the installed PostgreSQL under pgbench: '8 scale=8 jobs=2 script=tpcb-like protocol=simple' is 8 clients and the defaults (docs/reference/databases.md).",
        ),
        TIME,
        WorkloadKey::option(
            "postgres",
            Form::Text("SETTINGS"),
            "Settings of PostgreSQL: 'synchronous_commit=off max_wal_size=1GB'.",
        ),
    ],
    &[],
)
.server();

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

/// Bytes of an empty database with its first segment of the log.
const EMPTY_BYTES: u64 = 48 << 20;
/// Bytes that pgbench's rows take for each unit of scale, with their index.
const SCALE_BYTES: u64 = 16 << 20;
/// Bytes of the log's files, of which one more than asked for can be there.
const WAL_SEGMENT_BYTES: u64 = 16 << 20;
/// pgbench's rows for each unit of scale.
const ACCOUNTS: u32 = 100_000;
const TELLERS: u32 = 10;
const CHECKPOINTS: &str = "checkpoints_begun";
const COMMITS: &str =
    "CREATE TABLE kurabe_commits (client int, number int, PRIMARY KEY (client, number))";

/// pgbench's scripts, and the bytes of the values that a transaction of each writes.
const SCRIPTS: [(&str, u64); 3] = [("tpcb-like", 140), ("simple-update", 120), ("select-only", 0)];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PgbenchWorkload {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<(String, String)>,
}

impl PgbenchWorkload {
    fn of_text(text: &str, seconds: u32) -> Result<PgbenchWorkload, String> {
        let (clients, words) = clients_of(text, "clients", CLIENTS_MAX)?;
        let mut load = PgbenchWorkload {
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
            match word.name {
                "scale" => load.scale = word.whole(SCALE_MAX)?,
                "jobs" => load.jobs = word.whole(clients)?,
                "protocol" => load.protocol = word.one_of("protocol", &PROTOCOLS)?,
                "script" if word.value.contains(['/', '.']) => {
                    (load.script, load.path) = (None, Some(UserPath::typed(word.value)));
                }
                "script" => {
                    let script = word.one_of("script of pgbench", &SCRIPTS.map(|(name, _)| name));
                    let named = |problem| {
                        format!("{problem}; a file is named by its path, ./{}", word.value)
                    };
                    load.script = Some(script.map_err(named)?);
                }
                name => return Err(unknown("setting of pgbench is called", name, &WORDS)),
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
        let ran = run_kept_in(WorkloadTool::Pgbench, &Enclosure::default(), fill, stop);
        blaming(ran, stop, |words| server.blamed(words))
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

/// When a transaction in pgbench's log ended, and how long it took, in µs: `client number latency script seconds
/// microseconds`; a failed transaction has a word for its latency.
fn logged(line: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, latency, _, seconds, microseconds, ..] = words[..] else { return None };
    let (seconds, microseconds): (u64, u64) = (seconds.parse().ok()?, microseconds.parse().ok()?);
    let ended_us = seconds.checked_mul(1_000_000)?.checked_add(microseconds)?;
    Some((ended_us, latency.parse().ok()?))
}

impl PgbenchWorkload {
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

    /// Looks for the row of every commit that returned, and compares the sums of the tables.
    fn compare(
        &self,
        client: &mut PostgresConnection,
        last: &[(u32, u64)],
    ) -> Result<Option<Loss>, AskError> {
        let found = commits_of(client.ask(ALL_COMMITS)?);
        if let Some(loss) = missing_commit(&found, last) {
            return Ok(Some(loss));
        }
        let commits = found.len().to_string();
        let delta = client.value("SELECT coalesce(sum(delta), 0) FROM pgbench_history")?;
        let mut sums = vec![
            ("the rows of pgbench_history", "count(*) FROM pgbench_history", &commits),
            ("the balances of all accounts", "sum(abalance) FROM pgbench_accounts", &delta),
        ];
        if self.has_sums() {
            sums.extend([
                ("the balances of all tellers", "sum(tbalance) FROM pgbench_tellers", &delta),
                ("the balances of all branches", "sum(bbalance) FROM pgbench_branches", &delta),
            ]);
        }
        for (what, expression, expected) in sums {
            let value = client.value(&format!("SELECT {expression}"))?;
            if value != *expected {
                return Ok(Some(Loss::Corrupt(format!(
                    "{what} come to {value}, and {commits} transactions in kurabe_commits make it {expected}"
                ))));
            }
        }
        Ok(None)
    }
}

impl Database for PgbenchWorkload {
    const TOOLS: &'static [WorkloadTool] =
        &[WorkloadTool::Postgres, WorkloadTool::Initdb, WorkloadTool::Pgbench];
    const DIRECTORY: &'static str = "postgresql";
    const NEEDS: (&'static str, &'static str) = (
        "the database, its log and a checkpoint need",
        "take a smaller scale= or max_wal_size=, or give a larger device",
    );
    type Server = Postgres;

    fn parse(written: &Written<'_>, seconds: u32) -> Result<PgbenchWorkload, KeyError> {
        let settings = written.text("postgres").unwrap_or_default();
        let settings = settings_of(settings, "PostgreSQL", &OWN_SETTINGS)
            .map_err(|problem| KeyError::new("postgres", problem))?;
        let load = PgbenchWorkload::of_text(written.text("pgbench").unwrap_or_default(), seconds)
            .map_err(|problem| KeyError::new("pgbench", problem))?;
        let load = PgbenchWorkload { settings, ..load };
        load.wal_bytes().map_err(|problem| KeyError::new("postgres", problem))?;
        Ok(load)
    }

    fn seconds(&self) -> u32 {
        self.seconds
    }

    fn amount(&self) -> String {
        format!("{}, scale {}", counted(self.clients as usize, "client"), self.scale)
    }

    fn read(&mut self) -> Result<(), String> {
        if let Some(path) = &self.path {
            let text = trust::file::read_text(path).map_err(|error| format!("script {error}"))?;
            self.text = Some(text);
        }
        Ok(())
    }

    fn check_settings(&self) -> Result<(), String> {
        let asked =
            tool::ask(WorkloadTool::Postgres, &["--describe-config"], std::process::Stdio::null());
        let Ok(asked) = asked else { return Ok(()) };
        let lines = asked.stdout.lines();
        let known: Vec<&str> = lines.filter_map(|line| line.split('\t').next()).collect();
        check_names("postgres", "PostgreSQL", &self.settings, &known)
    }

    /// The data with the old versions of its rows, and the log.
    fn needed_bytes(&self) -> u64 {
        let data = u64::from(self.scale) * SCALE_BYTES;
        // It was read when the workload was.
        EMPTY_BYTES + data + data / 4 + self.wal_bytes().unwrap_or(0) + WAL_SEGMENT_BYTES
    }

    fn plan(&self) -> Vec<(&'static str, String)> {
        vec![
            ("clients", format!("{}, in {}", self.clients, counted(self.jobs as usize, "thread"))),
            (
                "scale",
                format!("{}: {} rows", self.scale, u64::from(self.scale) * u64::from(ACCOUNTS)),
            ),
            ("script", self.script_words()),
            ("settings", settings_text(&self.settings())),
        ]
    }

    fn create(&self, data: &Path, stop: &AtomicBool) -> Result<(), String> {
        postgres::create(data, stop)
    }

    fn start(
        &self,
        task: &WorkloadTask,
        data: &Path,
        purpose: ServerPurpose,
        stop: &AtomicBool,
    ) -> Result<Postgres, String> {
        let safe = [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_commit", "on")];
        let own: (&[_], _) = match purpose {
            ServerPurpose::Load => (&safe, self.settings()),
            ServerPurpose::Run => (&[], self.settings()),
            ServerPurpose::Check => (&[("fsync", "off"), ("autovacuum", "off")], Vec::new()),
        };
        // The last one counts.
        let (own, mut settings) = own;
        settings.extend(own.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        if purpose == ServerPurpose::Check {
            if !data.join("PG_VERSION").exists() {
                return Err(format!("{} holds no database", data.display()));
            }
            // The server that wrote it ended with its machine; by its number another process can run here.
            let _ = fs::remove_file(data.join("postmaster.pid"));
        }
        Postgres::start(task, data, &settings, stop)
    }

    fn load(&self, server: &mut Postgres, stop: &AtomicBool) -> Result<(), String> {
        self.pgbench(server, stop, &["-i", "-q", "-s", &self.scale.to_string()])?;
        server.client()?.ask(COMMITS)?;
        Ok(())
    }

    fn checkpoint(&self, server: &mut Postgres) -> Result<(), String> {
        server.client()?.ask("CHECKPOINT")?;
        Ok(())
    }

    fn end(&self, server: Postgres) -> Result<(), String> {
        server.end()
    }

    fn facts(&self, server: &mut Postgres) -> Result<Vec<(&'static str, String)>, String> {
        let mut client = server.client()?;
        let mut facts = vec![("script", self.script_words()), ("scale", self.scale.to_string())];
        for fact in FACTS {
            facts.push((fact, client.value(&format!("SHOW {fact}"))?));
        }
        Ok(facts)
    }

    fn counters(&self, server: &mut Postgres) -> Result<Vec<(&'static str, u64)>, String> {
        const POSITION: &str = "SELECT pg_current_wal_insert_lsn() - '0/0'";
        let position = server.client()?.value(POSITION)?.parse().unwrap_or(0);
        Ok(vec![("log_bytes", position), (CHECKPOINTS, server.checkpoints() as u64)])
    }

    fn findings(&self, grown: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
        let is_without = grown(CHECKPOINTS) == Some(0) && self.bytes_of_commit() != Some(0);
        let words = "no checkpoint began within the run, so its cost is not in the figures; take a longer --time";
        is_without.then(|| words.into()).into_iter().collect()
    }

    fn measure(
        &self,
        task: &WorkloadTask,
        server: &mut Postgres,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
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
        let logs = read_logs(&task.scratch, PREFIX)?;
        let logged = logs.iter().flat_map(|text| text.lines()).filter_map(logged).collect();
        let measured = CommitFigures::of_log(logged, said.transactions, "pgbench")?;
        let findings = match said.failed {
            0 => Vec::new(),
            failed => vec![format!("{failed} transactions failed, and are not counted")],
        };
        let details = json!({
            "pgbench_transactions_per_second": said.per_second,
            "log_transactions_per_second": measured.per_second,
            "failed": said.failed,
            "pgbench_output": finished.stdout,
            "pgbench_command": finished.command,
        });
        Ok(CommitFigures { per_second: said.per_second, details, findings, ..measured })
    }

    fn bytes_of_commit(&self) -> Option<u64> {
        let script = self.script.as_deref()?;
        SCRIPTS.iter().find(|(name, _)| *name == script).map(|(_, bytes)| *bytes)
    }

    fn acknowledge(
        &self,
        server: &mut Postgres,
        acknowledger: &Arc<Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        Clients::acknowledged(self.clients, self.seconds, acknowledger, stop).run(
            || server.client(),
            |client, number, commit| Ok(client.ask(&self.statements(number, commit)).map(drop)?),
        )
    }

    fn loss_in(&self, server: &mut Postgres, last: &[(u32, u64)]) -> Result<Option<Loss>, Loss> {
        let mut client = server.client().map_err(Loss::Unusable)?;
        self.compare(&mut client, last).map_err(|error| {
            let words = error.to_string();
            if error.is_corruption() { Loss::Corrupt(words) } else { Loss::Unusable(words) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<PgbenchWorkload, String> {
        PgbenchWorkload::of_text(text, 60)
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
        let settings =
            settings_of("Fsync=off max_wal_size=1GB", "PostgreSQL", &OWN_SETTINGS).unwrap();
        assert_eq!(settings[0], ("fsync".into(), "off".into()));
        let load = PgbenchWorkload { settings, ..plain };
        assert_eq!(load.wal_bytes(), Ok(1 << 30));
        let units =
            [("64", Some(64 << 20)), ("512kB", Some(512 << 10)), ("1G", None), ("1.5GB", None)];
        for (text, bytes) in units {
            let settings = vec![("max_wal_size".into(), text.into())];
            assert_eq!(
                PgbenchWorkload { settings, ..load.clone() }.wal_bytes().ok(),
                bytes,
                "{text}"
            );
        }
        let mut keys: vocabulary::kind::Keys = [("pgbench".to_string(), json!("8"))].into();
        KIND.scale(&mut keys, 0.1).unwrap();
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
        let line = logged("3 17 4242 0 1700000000 000123");
        assert_eq!(line, Some((1_700_000_000_000_123, 4242)));
        assert_eq!(logged("3 17 failed 0 1700000000 000123"), None);
        assert_eq!(logged("3 17 42"), None);
    }

    #[test]
    fn the_statements_of_a_commit_follow_from_its_number() {
        let load = load("2 scale=3").unwrap();
        assert_eq!(load.statements(1, 1), load.statements(1, 1));
        assert_ne!(load.statements(1, 1), load.statements(2, 1));
        assert_eq!(load.statements(1, 1).matches("UPDATE").count(), 3);
    }
}
