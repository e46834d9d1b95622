//! MariaDB under sysbench's transactions: transactions per second are compared, and every transaction's latency is
//! taken from a log that a script around sysbench's writes.
//!
//! Where the power is cut, clients of kurabe's update a row and insert one with their commit's number, in one
//! transaction: what is left must have the rows of all that returned, and the sums of both tables must agree.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::acknowledge::Acknowledger;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use vocabulary::kind::{Form, KeyError, WorkloadKey, WorkloadKind, Written};
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
use crate::mariadb::{self, Mariadb, MariadbConnection, USER};
use crate::server::AskError;
use crate::tool::{self, Finished, WorkloadTool, run_kept_in};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<DatabaseWorkload<SysbenchWorkload>>(
    "sysbench",
    &[
        WorkloadKey::load(
            "sysbench",
            Form::Text("THREADS"),
            "Run the installed MariaDB under sysbench: '8 script=read-write tables=1 rows=100000' is 8 threads and the defaults (docs/reference/databases.md).",
        ),
        TIME,
        WorkloadKey::option(
            "mariadb",
            Form::Text("SETTINGS"),
            "Settings of MariaDB: 'innodb_flush_log_at_trx_commit=2 innodb_doublewrite=OFF'.",
        ),
    ],
    &[],
)
.server();

const WORDS: [&str; 3] = ["script", "tables", "rows"];
const THREADS_MAX: u32 = 150;
const TABLES_MAX: u32 = 1000;
const ROWS_MAX: u32 = 1_000_000_000;
/// sysbench's scripts, and the bytes of the values that a transaction of each writes: a number of 4 bytes, a text of
/// 120, or a row, which has two numbers and texts of 120 and 60 bytes.
const SCRIPTS: [(&str, u64); 7] = [
    ("read-write", 4 + 120 + 188),
    ("write-only", 4 + 120 + 188),
    ("insert", 188),
    ("update-index", 4),
    ("update-non-index", 120),
    ("read-only", 0),
    ("point-select", 0),
];
/// Settings that are kurabe's, since it would not find the server or its files.
const OWN_SETTINGS: [&str; 11] = [
    "basedir",
    "bind_address",
    "datadir",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "log_error",
    "pid_file",
    "port",
    "skip_networking",
    "socket",
    "user",
];
/// What decides about speed and durability, recorded with every run.
const FACTS: [&str; 11] = [
    "version",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_doublewrite",
    "innodb_log_file_size",
    "innodb_buffer_pool_size",
    "innodb_io_capacity",
    "innodb_page_size",
    "innodb_use_native_aio",
    "log_bin",
    "sync_binlog",
];
/// What the server counts.
const COUNTERS: [&str; 4] =
    ["Innodb_os_log_written", "Innodb_data_fsyncs", "Innodb_dblwr_pages_written", WRITTEN_BACK];
const WRITTEN_BACK: &str = "Innodb_buffer_pool_pages_flushed";
/// Bytes of an empty database, without InnoDB's log.
const EMPTY_BYTES: u64 = 32 << 20;
const LOG_SIZE: (&str, &str) = ("innodb_log_file_size", "96M");
/// Bytes of one of sysbench's rows, with its index and half-empty pages.
const ROW_BYTES: u64 = 320;
const DATABASE: &str = "kurabe";
/// The script around sysbench's, which logs every transaction.
const AROUND: &str = include_str!("sysbench.lua");

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SysbenchWorkload {
    threads: u32,
    script: String,
    tables: u32,
    rows: u32,
    seconds: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<(String, String)>,
}

impl SysbenchWorkload {
    fn of_text(text: &str, seconds: u32) -> Result<SysbenchWorkload, String> {
        let (threads, words) = clients_of(text, "threads", THREADS_MAX)?;
        let script = SCRIPTS[0].0.into();
        let settings = Vec::new();
        let mut load =
            SysbenchWorkload { threads, script, tables: 1, rows: 100_000, seconds, settings };
        for word in words {
            match word.name {
                "script" => {
                    load.script =
                        word.one_of("script of sysbench", &SCRIPTS.map(|(name, _)| name))?;
                }
                "tables" => load.tables = word.whole(TABLES_MAX)?,
                "rows" => load.rows = word.whole(ROWS_MAX)?,
                name => return Err(unknown("setting of sysbench is called", name, &WORDS)),
            }
        }
        Ok(load)
    }

    fn log_bytes(&self) -> Result<u64, String> {
        let sizes = self.settings.iter().rev().filter(|(name, _)| name == LOG_SIZE.0);
        let value = sizes.map(|(_, value)| value.as_str()).next().unwrap_or(LOG_SIZE.1);
        parse_size(value).map_err(|problem| format!("{}: {problem}", LOG_SIZE.0))
    }

    /// Runs sysbench on a server.
    fn sysbench(
        &self,
        server: &mut Mariadb,
        stop: &AtomicBool,
        fill: impl FnOnce(&mut Command),
    ) -> Result<Finished, String> {
        let socket = server.socket();
        let fill = |command: &mut Command| {
            command
                .arg("--db-driver=mysql")
                .arg(format!("--mysql-socket={}", socket.display()))
                .arg(format!("--mysql-user={USER}"))
                .arg(format!("--mysql-db={DATABASE}"))
                .arg(format!("--tables={}", self.tables))
                .arg(format!("--table-size={}", self.rows))
                .arg(format!("--rand-seed={SEED}"));
            fill(command);
        };
        let ran = run_kept_in(WorkloadTool::Sysbench, &Enclosure::default(), fill, stop);
        blaming(ran, stop, |words| server.blamed(words))
    }

    /// The name of the script's file.
    fn script_name(&self) -> String {
        format!("oltp_{}", self.script.replace('-', "_"))
    }

    /// A transaction, as kurabe sends it, with a row that names it.
    fn statements(&self, client: u32, number: u64) -> [String; 4] {
        let salt = number ^ (u64::from(client) << 40) ^ SEED;
        let mut random = ChaCha8Rng::seed_from_u64(salt);
        let row = random.random_range(1..=self.rows);
        let delta = random.random_range(1..=5000);
        [
            "BEGIN".into(),
            format!("UPDATE sbtest1 SET k = k + {delta} WHERE id = {row}"),
            format!("INSERT INTO kurabe_commits VALUES ({client}, {number}, {delta})"),
            "COMMIT".into(),
        ]
    }

    /// Looks for the row of every commit that returned, and compares the sums of the tables.
    fn compare(
        &self,
        client: &mut MariadbConnection,
        last: &[(u32, u64)],
    ) -> Result<Option<Loss>, AskError> {
        let found = commits_of(client.ask(ALL_COMMITS)?);
        if let Some(loss) = missing_commit(&found, last) {
            return Ok(Some(loss));
        }
        let sum = client.value("SELECT SUM(k) FROM sbtest1")?;
        let expected = client.value("SELECT SUM(delta) FROM kurabe_commits")?;
        Ok((sum != expected).then(|| {
            Loss::Corrupt(format!(
                "the values of all rows come to {sum}, and {} commits make it {expected}",
                found.len()
            ))
        }))
    }
}

/// How many transactions sysbench says that it did, and how many a second.
fn said(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("transactions:"))?;
    let (count, rest) = line.trim().split_once(' ')?;
    let rate = rest.trim().strip_prefix('(')?.split(' ').next()?;
    Some((count.parse().ok()?, rate.parse().ok()?))
}

/// When a transaction in the log ended, and how long it took, in µs.
fn logged(line: &str) -> Option<(u64, u64)> {
    let (ended, latency) = line.split_once(' ')?;
    Some((ended.parse().ok()?, latency.parse().ok()?))
}

impl Database for SysbenchWorkload {
    const TOOLS: &'static [WorkloadTool] =
        &[WorkloadTool::Mariadb, WorkloadTool::MariadbInstall, WorkloadTool::Sysbench];
    const DIRECTORY: &'static str = "mariadb";
    const NEEDS: (&'static str, &'static str) = (
        "the database and its log need",
        "take fewer rows= or a smaller innodb_log_file_size=, or give a larger device",
    );
    type Server = Mariadb;

    fn parse(written: &Written<'_>, seconds: u32) -> Result<SysbenchWorkload, KeyError> {
        let settings = written.text("mariadb").unwrap_or_default().replace('-', "_");
        let settings = settings_of(&settings, "MariaDB", &OWN_SETTINGS)
            .map_err(|problem| KeyError::new("mariadb", problem))?;
        let load = SysbenchWorkload::of_text(written.text("sysbench").unwrap_or_default(), seconds)
            .map_err(|problem| KeyError::new("sysbench", problem))?;
        let load = SysbenchWorkload { settings, ..load };
        load.log_bytes().map_err(|problem| KeyError::new("mariadb", problem))?;
        Ok(load)
    }

    fn seconds(&self) -> u32 {
        self.seconds
    }

    fn amount(&self) -> String {
        let threads = counted(self.threads as usize, "thread");
        let tables = counted(self.tables as usize, "table");
        format!("{threads}, {tables} of {} rows", self.rows)
    }

    fn check_settings(&self) -> Result<(), String> {
        if self.settings.is_empty() {
            return Ok(());
        }
        let words = ["--no-defaults", "--verbose", "--help"];
        let Ok(asked) = tool::ask(WorkloadTool::Mariadb, &words, Stdio::null()) else {
            return Ok(());
        };
        // A table of all settings with their values ends the help; its names have dashes.
        let lines = asked.stdout.lines().skip_while(|line| !line.starts_with("-----"));
        let known: Vec<String> = lines
            .filter_map(|line| Some(line.split(' ').next()?.replace('-', "_")))
            .filter(|name| name.starts_with(|letter: char| letter.is_ascii_lowercase()))
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        if known.is_empty() {
            return Ok(());
        }
        check_names("mariadb", "MariaDB", &self.settings, &known)
    }

    fn needed_bytes(&self) -> u64 {
        let rows = u64::from(self.rows) * u64::from(self.tables) * ROW_BYTES;
        // It was read when the workload was.
        EMPTY_BYTES + rows + rows / 4 + self.log_bytes().unwrap_or(0)
    }

    fn plan(&self) -> Vec<(&'static str, String)> {
        vec![
            ("threads", self.threads.to_string()),
            ("script", self.script_name()),
            ("tables", format!("{} of {} rows", self.tables, self.rows)),
            ("settings", settings_text(&self.settings)),
        ]
    }

    fn create(&self, data: &Path, stop: &AtomicBool) -> Result<(), String> {
        mariadb::create(data, &self.settings, stop)
    }

    fn start(
        &self,
        task: &WorkloadTask,
        data: &Path,
        purpose: ServerPurpose,
        stop: &AtomicBool,
    ) -> Result<Mariadb, String> {
        let mut settings = match purpose {
            ServerPurpose::Load | ServerPurpose::Run => self.settings.clone(),
            ServerPurpose::Check => Vec::new(),
        };
        let own: &[(&str, &str)] = match purpose {
            ServerPurpose::Load => {
                &[("innodb_flush_log_at_trx_commit", "1"), ("innodb_doublewrite", "ON")]
            }
            ServerPurpose::Run => &[],
            ServerPurpose::Check => &[("innodb_flush_log_at_trx_commit", "0")],
        };
        // The last one counts.
        settings.extend(own.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        if purpose == ServerPurpose::Check && !data.join("ibdata1").exists() {
            return Err(format!("{} holds no database", data.display()));
        }
        Mariadb::start(task, data, &settings, stop)
    }

    fn load(&self, server: &mut Mariadb, stop: &AtomicBool) -> Result<(), String> {
        server.system_client()?.ask(&format!("CREATE DATABASE {DATABASE}"))?;
        let threads = self.tables.min(self.threads);
        let script = self.script_name();
        self.sysbench(server, stop, |command| {
            command.args([&format!("--threads={threads}"), &script, "prepare"]);
        })?;
        let mut client = server.client(DATABASE)?;
        client.ask(
            "CREATE TABLE kurabe_commits (client INT, number BIGINT, delta BIGINT, PRIMARY KEY (client, number)) ENGINE=InnoDB",
        )?;
        // What all rows come to before the first commit.
        client.ask("INSERT INTO kurabe_commits SELECT 0, 0, SUM(k) FROM sbtest1")?;
        Ok(())
    }

    fn end(&self, server: Mariadb) -> Result<(), String> {
        server.end()
    }

    fn facts(&self, server: &mut Mariadb) -> Result<Vec<(&'static str, String)>, String> {
        let mut client = server.system_client()?;
        let mut facts = vec![("script", self.script_name())];
        for fact in FACTS {
            // A version that lacks one says so.
            let value = client.value(&format!("SELECT @@{fact}")).unwrap_or_else(String::from);
            facts.push((fact, value));
        }
        Ok(facts)
    }

    fn counters(&self, server: &mut Mariadb) -> Result<Vec<(&'static str, u64)>, String> {
        let rows = server.system_client()?.ask("SHOW GLOBAL STATUS LIKE 'Innodb%'")?;
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.first().is_some_and(|one| one == name))?;
            row.get(1)?.parse().ok()
        };
        Ok(COUNTERS.map(|name| (name, value(name).unwrap_or(0))).to_vec())
    }

    fn findings(&self, grown: &dyn Fn(&str) -> Option<u64>) -> Vec<String> {
        let is_without = grown(WRITTEN_BACK) == Some(0) && self.bytes_of_commit() != Some(0);
        let words = "no page was written back to its table within the run, so that cost is not in the figures; take a longer --time";
        is_without.then(|| words.into()).into_iter().collect()
    }

    fn measure(
        &self,
        task: &WorkloadTask,
        server: &mut Mariadb,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        const PREFIX: &str = "sysbench-log";
        let around = task.scratch.join("sysbench.lua");
        fs::write(&around, AROUND)
            .map_err(|error| format!("writing sysbench's script: {error}"))?;
        let finished = self.sysbench(server, stop, |command| {
            command
                .env("KURABE_SCRIPT", self.script_name())
                .env("KURABE_LOG", task.scratch.join(PREFIX))
                .arg(format!("--threads={}", self.threads))
                .arg(format!("--time={}", self.seconds))
                .arg("--events=0")
                .arg(&around)
                .arg("run");
        })?;
        let (transactions, per_second) = said(&finished.stdout)
            .ok_or_else(|| format!("sysbench's report cannot be read:\n  {}", finished.stdout))?;
        let logs = read_logs(&task.scratch, PREFIX)?;
        let logged = logs.iter().flat_map(|text| text.lines()).filter_map(logged).collect();
        let measured = CommitFigures::of_log(logged, transactions, "sysbench")?;
        let details = json!({
            "sysbench_transactions_per_second": per_second,
            "log_transactions_per_second": measured.per_second,
            "sysbench_output": finished.stdout,
            "sysbench_command": finished.command,
        });
        Ok(CommitFigures { per_second, details, ..measured })
    }

    fn bytes_of_commit(&self) -> Option<u64> {
        SCRIPTS.iter().find(|(name, _)| *name == self.script).map(|(_, bytes)| *bytes)
    }

    fn acknowledge(
        &self,
        server: &mut Mariadb,
        acknowledger: &Arc<Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        Clients::acknowledged(self.threads, self.seconds, acknowledger, stop).run(
            || server.client(DATABASE),
            |client, number, commit| {
                for statement in self.statements(number, commit) {
                    client.ask(&statement)?;
                }
                Ok(())
            },
        )
    }

    fn loss_in(&self, server: &mut Mariadb, last: &[(u32, u64)]) -> Result<Option<Loss>, Loss> {
        let mut client = server.client(DATABASE).map_err(Loss::Unusable)?;
        self.compare(&mut client, last).map_err(|error| {
            let words = error.to_string();
            if error.is_corruption() { Loss::Corrupt(words) } else { Loss::Unusable(words) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let load = |text| SysbenchWorkload::of_text(text, 60);
        let plain = load("8").unwrap();
        assert_eq!(load("8 script=read-write tables=1 rows=100000").unwrap(), plain);
        let settings = vec![("innodb_log_file_size".into(), "1G".into())];
        assert_eq!(SysbenchWorkload { settings, ..plain.clone() }.log_bytes(), Ok(1 << 30));
        for (text, word) in [
            ("0", "'0' is no number of threads from 1 to 150; write THREADS"),
            ("8 script=oltp", "there are read-write, write-only"),
            ("8 row=2", "did you mean 'rows'?"),
        ] {
            let problem = load(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        assert_eq!(plain.statements(1, 1), plain.statements(1, 1));
        assert_ne!(plain.statements(1, 1), plain.statements(2, 1));
    }

    #[test]
    fn what_sysbench_says_is_read() {
        let text = "SQL statistics:\n    queries performed:\n        read:  28\n\
            \x20   transactions:                        4146   (829.04 per sec.)\n";
        assert_eq!(said(text), Some((4146, 829.04)));
        assert_eq!(said("FATAL: no"), None);
        assert_eq!(logged("28000123 4242"), Some((28_000_123, 4242)));
        assert_eq!(logged("28000123"), None);
    }
}
