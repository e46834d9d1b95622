//! SQLite: one client that inserts, updates and reads rows, a transaction at a time. Transactions per
//! second are compared; latencies are kept by kind of transaction, from BEGIN until COMMIT returned.
//!
//! The work follows from the workload alone: the same for every contender, and known again after a power
//! cut. Each row holds the number of the transaction that wrote it, so what is left must be what exactly
//! the first transactions, up to some number, had made, and that number is not below the last commit
//! that returned.

use std::fmt::Write as _;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vocabulary::capacity::{self, Capacity};
use vocabulary::cost::Phase::Verify;
use vocabulary::kind::{
    Amount, Describe, Description, Durability, Form, FromKeys, KeyError, Keys, LaidOut, Preflight,
    Run, WorkloadKey, WorkloadKind, Written, directory_of, options_without,
};
use vocabulary::quantity::parse_size;
use vocabulary::report::{Metric, OVERALL_OPERATION, Unit, WorkloadReport};
use vocabulary::suggestion::unknown;
use vocabulary::workload::{Loss, WorkloadTask};
use xxhash_rust::xxh3::Xxh3;

use super::database::{CommitFigures, STALL, words_from};
use super::{histogram_log, latencies};
use crate::excluded_phase::ExcludedPhaseBegun;
use measure::acknowledge::Acknowledger;
use measure::latency::{Clock, LatencyRecorder};
use measure::space;

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<SqliteWorkload>(
    "sqlite",
    &[WorkloadKey::load(
        "sqlite",
        Form::Text("SETTINGS"),
        "Run transactions of SQLite: 'journal=wal synchronous=full page-size=4096 row-size=200 rows=10000 transactions=2000 batch=1 mix=40:40:20' are the defaults (docs/workloads.md).",
    )],
    &[],
);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SqliteWorkload {
    journal: String,
    synchronous: String,
    page_size_bytes: u32,
    /// Bytes of a row's contents.
    row_bytes: u32,
    /// Rows that are there before the run.
    rows: u32,
    transactions: u32,
    /// Rows of a transaction.
    batch: u32,
    /// Parts of the transactions that insert, update and read.
    mix: [u32; 3],
}

impl Default for SqliteWorkload {
    fn default() -> SqliteWorkload {
        SqliteWorkload {
            journal: "wal".into(),
            synchronous: "full".into(),
            page_size_bytes: 4096,
            row_bytes: 200,
            rows: 10_000,
            transactions: 2_000,
            batch: 1,
            mix: [40, 40, 20],
        }
    }
}

const SETTINGS: [&str; 8] =
    ["journal", "synchronous", "page-size", "row-size", "rows", "transactions", "batch", "mix"];
const JOURNALS: [&str; 6] = ["wal", "delete", "truncate", "persist", "memory", "off"];
const SYNCHRONOUS: [&str; 4] = ["full", "extra", "normal", "off"];
/// The most rows and transactions; their numbers are kept in memory.
const COUNT_MAX: u32 = 100_000_000;
const BATCH_MAX: u32 = 100_000;
/// SQLite's own limits.
const PAGE_BYTES: RangeInclusive<u64> = 512..=65_536;

/// The kinds of transaction.
const OPERATIONS: [&str; 3] = ["insert", "update", "read"];
const METRIC: &str = "transactions";
/// The database's name in the contender.
const DATABASE: &str = "kurabe.sqlite";
/// Pages in the write-ahead log from which on SQLite copies them into the database: its default.
const CHECKPOINT_PAGES: u64 = 1000;
/// Bytes that a row takes besides its contents, roughly.
const ROW_MORE_BYTES: u64 = 24;
/// What needs the space, and what to do where it is not there.
const NEEDS: (&str, &str) = (
    "the database and its journal need",
    "take fewer rows or transactions, or give a larger device",
);
/// What decides about the work.
const SEED: u64 = 0x6b75_7261_6265;

impl SqliteWorkload {
    fn of_text(text: &str) -> Result<SqliteWorkload, String> {
        let mut load = SqliteWorkload::default();
        for word in words_from(text, 0)? {
            match word.name {
                "journal" => load.journal = word.one_of("journal", &JOURNALS)?,
                "synchronous" => load.synchronous = word.one_of("synchronous", &SYNCHRONOUS)?,
                "page-size" => load.page_size_bytes = page_bytes_of(word.value)?,
                "row-size" => load.row_bytes = word.value_bytes()?,
                "rows" => load.rows = word.whole(COUNT_MAX)?,
                "transactions" => load.transactions = word.whole(COUNT_MAX)?,
                "batch" => load.batch = word.whole(BATCH_MAX)?,
                "mix" => load.mix = mix_of(word.value)?,
                name => return Err(unknown("setting of SQLite is called", name, &SETTINGS)),
            }
        }
        Ok(load)
    }

    fn needed_bytes(&self) -> u64 {
        let row = u64::from(self.row_bytes) + ROW_MORE_BYTES;
        let batch = u64::from(self.batch);
        let share = f64::from(self.mix[0]) / self.mix.iter().copied().map(f64::from).sum::<f64>();
        let inserted = (f64::from(self.transactions) * share) as u64 * batch;
        let journal =
            (CHECKPOINT_PAGES + 4 * batch) * u64::from(self.page_size_bytes) + batch * row;
        (u64::from(self.rows) + inserted) * row * 3 / 2 + journal
    }

    /// The database as the workload wants it, made where it is missing.
    fn open(&self, path: &Path) -> Result<Connection, String> {
        let connection = Connection::open(path).map_err(said)?;
        // Before anything is written.
        let set = |name: &str, value: &dyn ToSql| connection.pragma_update(None, name, value);
        set("page_size", &self.page_size_bytes)
            .and_then(|()| set("temp_store", &"memory"))
            .and_then(|()| set("synchronous", &self.synchronous))
            .map_err(said)?;
        let journal: String = connection
            .pragma_update_and_check(None, "journal_mode", &self.journal, |row| row.get(0))
            .map_err(said)?;
        if journal == self.journal {
            Ok(connection)
        } else {
            Err(format!(
                "SQLite cannot have journal={} here and took {journal}; take another journal",
                self.journal
            ))
        }
    }

    fn work(&self) -> Work<'_> {
        Work { load: self, random: ChaCha8Rng::seed_from_u64(SEED), rows: self.rows.into() }
    }
}

fn page_bytes_of(text: &str) -> Result<u32, String> {
    let is_page = |bytes: &u64| bytes.is_power_of_two() && PAGE_BYTES.contains(bytes);
    let bytes = parse_size(text).ok().filter(is_page);
    bytes
        .map(|bytes| bytes as u32)
        .ok_or_else(|| format!("page-size={text}: write a power of two from 512 to 65536"))
}

fn mix_of(text: &str) -> Result<[u32; 3], String> {
    let parts: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
    let is_mix = |mix: &[u32; 3]| {
        let sum = mix.iter().try_fold(0_u32, |sum, part| sum.checked_add(*part));
        sum.is_some_and(|sum| sum > 0)
    };
    let mix = parts.and_then(|parts| <[u32; 3]>::try_from(parts).ok()).filter(is_mix);
    mix.ok_or_else(|| {
        format!("mix={text}: write INSERT:UPDATE:READ such as 40:40:20, which is not 0 in all")
    })
}

/// The transactions of a workload, one after the other.
struct Work<'a> {
    load: &'a SqliteWorkload,
    random: ChaCha8Rng,
    /// Rows that are there, whose keys are the numbers from 1.
    rows: u64,
}

impl Iterator for Work<'_> {
    /// What is done ([`OPERATIONS`]), and the keys of the rows.
    type Item = (usize, Vec<u64>);

    fn next(&mut self) -> Option<(usize, Vec<u64>)> {
        // A stored plan may say anything: a mix of nothing is no work.
        let mix = self.load.mix.map(u64::from);
        let mut place = self.random.random_range(0..mix.iter().sum::<u64>().max(1));
        let operation = mix.iter().position(|part| match place.checked_sub(*part) {
            Some(rest) => {
                place = rest;
                false
            }
            None => true,
        })?;
        let keys = (0..self.load.batch).map(|_| {
            if OPERATIONS[operation] == "insert" {
                self.rows += 1;
                self.rows
            } else {
                self.random.random_range(1..=self.rows.max(1))
            }
        });
        Some((operation, keys.collect()))
    }
}

/// What a row holds that this transaction wrote.
fn contents(key: u64, transaction: u64, bytes: u32) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(key ^ transaction.rotate_left(32));
    let mut contents = vec![0; bytes as usize];
    random.fill_bytes(&mut contents);
    contents
}

fn said(error: rusqlite::Error) -> String {
    format!("SQLite: {error}")
}

fn path_in(task: &WorkloadTask) -> Result<PathBuf, String> {
    Ok(directory_of(&task.target)?.join(DATABASE))
}

const INSERT: &str = "INSERT INTO rows (key, written_by, contents) VALUES (?1, ?2, ?3)";
const UPDATE: &str = "UPDATE rows SET written_by = ?2, contents = ?3 WHERE key = ?1";
const READ: &str = "SELECT contents FROM rows WHERE key = ?1";
const ALL: &str = "SELECT key, written_by, contents FROM rows ORDER BY key";

fn hash_of_rows(connection: &Connection) -> Result<String, rusqlite::Error> {
    let mut hash = Xxh3::new();
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        hash.update(&row.get::<_, i64>(0)?.to_le_bytes());
        hash.update(&row.get::<_, i64>(1)?.to_le_bytes());
        hash.update(row.get_ref(2)?.as_blob()?);
    }
    Ok(format!("{:032x}", hash.digest128()))
}

impl FromKeys for SqliteWorkload {
    fn parse(written: &Written<'_>) -> Result<SqliteWorkload, KeyError> {
        SqliteWorkload::of_text(written.text("sqlite").unwrap_or_default())
            .map_err(|problem| KeyError::new("sqlite", problem))
    }

    fn scale(keys: &mut Keys, factor: f64) -> Result<(), KeyError> {
        let text = keys.get("sqlite").and_then(Value::as_str).unwrap_or_default();
        let load =
            SqliteWorkload::of_text(text).map_err(|problem| KeyError::new("sqlite", problem))?;
        let transactions = (f64::from(load.transactions) * factor).round().max(1.0) as u32;
        let others = text.split_whitespace().filter(|word| !word.starts_with("transactions="));
        let mut scaled: Vec<String> = others.map(str::to_string).collect();
        scaled.push(format!("transactions={transactions}"));
        keys.insert("sqlite".into(), scaled.join(" ").into());
        Ok(())
    }
}

impl Describe for SqliteWorkload {
    fn description(&self) -> Description {
        let count = self.transactions;
        let operations = OPERATIONS.iter().chain([&OVERALL_OPERATION]);
        Description {
            metrics: vec![METRIC.into(), STALL.into()],
            operations: operations.map(|name| name.to_string()).collect(),
            amounts: vec![Amount::new("the transactions", count.into(), count.to_string())],
            amount: Some(format!("{count} transactions")),
            settings: options_without(self, &["transactions"]),
            has_setup: true,
            ..Description::default()
        }
    }

    fn plan(&self, capacity: Option<&Capacity>) -> Result<String, String> {
        let [insert, update, read] = self.mix;
        Ok(capacity::lines(&[
            ("SQLite", rusqlite::version().to_string()),
            ("journal", self.journal.clone()),
            ("synchronous", self.synchronous.clone()),
            ("page", capacity::bytes_text(self.page_size_bytes.into())),
            ("rows before the run", format!("{} of {} bytes", self.rows, self.row_bytes)),
            ("transactions", format!("{}, each of {} rows", self.transactions, self.batch)),
            ("insert : update : read", format!("{insert} : {update} : {read}")),
        ]) + &capacity::verdict(self.needed_bytes(), capacity))
    }
}

impl Preflight for SqliteWorkload {
    fn check(&self, capacity: Option<&Capacity>) -> Result<(), String> {
        capacity::check(NEEDS.0, self.needed_bytes(), capacity, NEEDS.1)
    }
}

impl Run for SqliteWorkload {
    /// Fills the database, which is durable and has an empty log when the run begins.
    fn set_up(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<LaidOut, String> {
        let path = path_in(task)?;
        space::check(directory_of(&task.target)?, NEEDS.0, self.needed_bytes(), NEEDS.1)?;
        let mut connection = self.open(&path)?;
        let fill = connection.transaction().map_err(said)?;
        fill.execute_batch(
            "CREATE TABLE rows (key INTEGER PRIMARY KEY, written_by INTEGER NOT NULL, contents BLOB NOT NULL)",
        )
        .map_err(said)?;
        let mut insert = fill.prepare(INSERT).map_err(said)?;
        for key in 1..=u64::from(self.rows) {
            if stop.load(Ordering::SeqCst) {
                return Err("stopped".into());
            }
            insert.execute((key as i64, 0, contents(key, 0, self.row_bytes))).map_err(said)?;
        }
        drop(insert);
        fill.commit().map_err(said)?;
        connection.close().map_err(|(_, error)| said(error))?;
        // Whatever is asked of commits, what is there before the run is there after a power cut.
        for path in [path.as_path(), directory_of(&task.target)?] {
            File::open(path)
                .and_then(|file| file.sync_all())
                .map_err(|error| format!("syncing {}: {error}", path.display()))?;
        }
        Ok(LaidOut::default())
    }

    fn run(&self, task: &WorkloadTask, stop: &AtomicBool) -> Result<WorkloadReport, String> {
        let path = path_in(task)?;
        let connection = self.open(&path)?;
        let measured = self.transact(&connection, Acknowledger::of(task)?.as_deref(), stop)?;
        let CommitFigures { commits, elapsed_ns, .. } = measured;
        let mut findings = Vec::new();
        let log = path.with_extension("sqlite-wal").metadata().map_or(0, |facts| facts.len());
        if self.journal == "wal" && log < CHECKPOINT_PAGES * u64::from(self.page_size_bytes) {
            findings.push(format!(
                "the log never reached {CHECKPOINT_PAGES} pages, so the transactions include no checkpoint; take more of them"
            ));
        }
        let verifying = ExcludedPhaseBegun::now(task);
        let proof = format!("rows {}", hash_of_rows(&connection).map_err(said)?);
        let excluded_phases = vec![verifying.end(Verify)];
        findings.push(proof.clone());
        connection.close().map_err(|(_, error)| said(error))?;
        let recording = measured.recorder.finish();
        let batch = u64::from(self.batch);
        Ok(WorkloadReport {
            metrics: vec![
                Metric::new(METRIC, measured.per_second, Unit::OperationsPerSecond),
                Metric::maximum(STALL, measured.stall_ns as f64, Unit::Nanoseconds),
            ],
            latencies: latencies(&recording.summary()),
            findings,
            proof: Some(proof),
            written_bytes: Some(commits * batch * u64::from(self.row_bytes)),
            // Those that write, so that what the device did is told for each commit.
            operations: Some(commits),
            counted_ns: Some(elapsed_ns),
            excluded_phases,
            histogram_log: Some(histogram_log(&recording, elapsed_ns)?),
            details: json!({
                "sqlite": rusqlite::version(),
                "journal": self.journal,
                "synchronous": self.synchronous,
                "page_size_bytes": self.page_size_bytes,
                "checkpoint_pages": CHECKPOINT_PAGES,
                "elapsed_ns": elapsed_ns,
                "commits": commits,
                "rows_read": (u64::from(self.transactions) - commits) * batch,
            }),
            ..WorkloadReport::default()
        })
    }

    fn durability(&self) -> Option<&dyn Durability> {
        Some(self)
    }
}

impl Durability for SqliteWorkload {
    fn find_loss(&self, task: &WorkloadTask, acknowledged: &str) -> Result<Option<Loss>, String> {
        let path = path_in(task)?;
        if !path.exists() {
            return Ok(Some(Loss::Lost(format!("{DATABASE} is missing"))));
        }
        let last = acknowledged.lines().last().and_then(|line| line.strip_prefix("committed "));
        let committed = last.and_then(|number| number.parse().ok()).unwrap_or(0);
        Ok(self.loss_in(&path, committed).unwrap_or_else(|error| Some(loss_of(&error))))
    }
}

/// What it means that SQLite cannot read what is left.
fn loss_of(error: &rusqlite::Error) -> Loss {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Loss::Corrupt(error.to_string())
        }
        _ => Loss::Unusable(error.to_string()),
    }
}

impl SqliteWorkload {
    /// Carries the transactions out. Those that write are its commits.
    fn transact(
        &self,
        connection: &Connection,
        acknowledger: Option<&Acknowledger>,
        stop: &AtomicBool,
    ) -> Result<CommitFigures, String> {
        let prepare = |text: &str| connection.prepare(text).map_err(said);
        let mut begin =
            [prepare("BEGIN IMMEDIATE")?, prepare("BEGIN IMMEDIATE")?, prepare("BEGIN")?];
        let (mut insert, mut update, mut read) =
            (prepare(INSERT)?, prepare(UPDATE)?, prepare(READ)?);
        let mut commit = prepare("COMMIT")?;
        let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
        let kinds = OPERATIONS.map(|name| recorder.kind(name));
        let mut commits = 0;
        let clock = Clock::start();
        let started_ns = clock.now_ns();
        let (mut last_ns, mut stall_ns) = (started_ns, 0);
        for (number, (operation, keys)) in (1_u64..=self.transactions.into()).zip(self.work()) {
            if stop.load(Ordering::SeqCst) {
                return Err("stopped".into());
            }
            // Made before the clock starts.
            let is_read = OPERATIONS[operation] == "read";
            let made =
                |key| if is_read { Vec::new() } else { contents(key, number, self.row_bytes) };
            let rows: Vec<(u64, Vec<u8>)> = keys.into_iter().map(|key| (key, made(key))).collect();
            let bytes = u64::from(self.row_bytes) * rows.len() as u64;
            let begun_ns = clock.now_ns();
            begin[operation].execute([]).map_err(said)?;
            for (key, contents) in &rows {
                let key = *key as i64;
                let found = match OPERATIONS[operation] {
                    "insert" => insert.execute((key, number as i64, contents)).map_err(said)?,
                    "update" => update.execute((key, number as i64, contents)).map_err(said)?,
                    _ => read
                        .query_row([key], |row| Ok(row.get_ref(0)?.as_blob()?.len().min(1)))
                        .map_err(said)?,
                };
                if found != 1 {
                    return Err(format!("row {key} was written and is not there"));
                }
            }
            commit.execute([]).map_err(said)?;
            let ended_ns = clock.now_ns();
            stall_ns = stall_ns.max(ended_ns - last_ns);
            last_ns = ended_ns;
            recorder.record_at(kinds[operation], ended_ns, ended_ns - begun_ns, bytes);
            commits += u64::from(!is_read);
            if let (Some(acknowledger), false) = (acknowledger, is_read) {
                acknowledger
                    .say(&format!("committed {number}"))
                    .map_err(|error| format!("acknowledging: {error}"))?;
            }
        }
        let elapsed_ns = clock.now_ns() - started_ns;
        let per_second = f64::from(self.transactions) * 1e9 / elapsed_ns.max(1) as f64;
        let (details, findings) = (Value::Null, Vec::new());
        Ok(CommitFigures { recorder, per_second, commits, elapsed_ns, stall_ns, details, findings })
    }

    /// Lets SQLite recover, and looks for every row of the first `committed` transactions.
    fn loss_in(&self, path: &Path, committed: u64) -> Result<Option<Loss>, rusqlite::Error> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let verdict: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if verdict != "ok" {
            let words = verdict.lines().next().unwrap_or_default();
            return Ok(Some(Loss::Corrupt(format!("integrity_check: {words}"))));
        }
        let mut all = connection.prepare(ALL)?;
        let mut found = Vec::new();
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let (key, written_by) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
            if row.get_ref(2)?.as_blob()? != contents(key, written_by, self.row_bytes) {
                let words = format!("row {key} does not hold what transaction {written_by} wrote");
                return Ok(Some(Loss::Corrupt(words)));
            }
            found.push((key, written_by));
        }
        // What is left is what all transactions up to the last one that is found had made, which are at
        // least the committed ones.
        let last = found.iter().map(|(_, written_by)| *written_by).max().unwrap_or(0);
        let mut expected = vec![0; self.rows as usize];
        for (number, (operation, keys)) in (1..=last.max(committed)).zip(self.work()) {
            for key in keys.into_iter().filter(|_| OPERATIONS[operation] != "read") {
                let place = key as usize - 1;
                expected.resize(expected.len().max(place + 1), 0);
                expected[place] = number;
            }
        }
        let found_of = |key: u64| {
            let place = found.binary_search_by_key(&key, |(key, _)| *key).ok()?;
            Some(found[place].1)
        };
        let mut wrong = String::new();
        for (key, written_by) in (1_u64..).zip(&expected) {
            match found_of(key) {
                Some(one) if one == *written_by => continue,
                Some(one) => write!(
                    wrong,
                    "row {key} was last written by transaction {written_by} and is that of {one}"
                ),
                None => write!(wrong, "row {key}, written by transaction {written_by}, is missing"),
            }
            .expect("a text takes any text");
            // Atomic and in order, and yet too early: commits were lost.
            let words =
                format!("{wrong}; {committed} were committed, and the last one found is {last}");
            return Ok(Some(if last < committed {
                Loss::Lost(words)
            } else {
                Loss::Corrupt(words)
            }));
        }
        let beyond = found.get(expected.len());
        Ok(beyond.map(|(key, _)| Loss::Corrupt(format!("row {key} was never written"))))
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::workload::{WorkloadStage, WorkloadTarget};

    use super::*;

    fn task(directory: &Path) -> WorkloadTask {
        WorkloadTask {
            target: WorkloadTarget::Directory(directory.into()),
            device: None,
            device_bytes: None,
            stage: WorkloadStage::Run,
            cold: false,
            sync_command: None,
            cool_command: None,
            acknowledgements: None,
            part: None,
            order_seed: 1,
            scratch: directory.into(),
            prepared: Value::Null,
        }
    }

    fn small(text: &str) -> SqliteWorkload {
        SqliteWorkload::of_text(&format!("rows=50 transactions=60 row-size=100 {text}")).unwrap()
    }

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        assert_eq!(SqliteWorkload::of_text(""), Ok(SqliteWorkload::default()));
        let load =
            SqliteWorkload::of_text("journal=delete page-size=16K mix=1:0:3 batch=7").unwrap();
        assert_eq!((load.page_size_bytes, load.mix, load.batch), (16384, [1, 0, 3], 7));
        for (text, word) in [
            ("wal", "'wal' has no value"),
            ("jurnal=wal", "did you mean 'journal'?"),
            ("journal=wall", "did you mean 'wal'?"),
            ("synchronous=2", "there are full, extra, normal, off"),
            ("page-size=5000", "a power of two from 512"),
            ("page-size=256", "from 512 to 65536"),
            ("rows=0", "no whole number from 1 to 100000000"),
            ("rows=-3", "no whole number"),
            ("mix=1:2", "write INSERT:UPDATE:READ"),
            ("mix=0:0:0", "not 0 in all"),
            ("mix=4294967295:1:1", "such as 40:40:20"),
            ("batch=0", "from 1 to 100000"),
        ] {
            let problem = SqliteWorkload::of_text(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        let mut keys: Keys = [("sqlite".to_string(), json!("transactions=200 rows=9"))].into();
        SqliteWorkload::scale(&mut keys, 0.1).unwrap();
        assert_eq!(keys["sqlite"], "rows=9 transactions=20");
    }

    #[test]
    fn every_journal_does_the_same_work_and_counts_it() {
        let mut proofs = Vec::new();
        for journal in JOURNALS {
            let home = tempfile::tempdir().unwrap();
            let load = small(&format!("journal={journal} batch=2"));
            let (task, stop) = (task(home.path()), AtomicBool::new(false));
            load.set_up(&task, &stop).unwrap();
            let report = load.run(&task, &stop).unwrap();
            assert_eq!(report.metrics[0].name, METRIC);
            assert!(report.metrics[0].value > 0.0);
            let (stall, all) = (report.metrics[1].value, report.counted_ns.unwrap() as f64);
            assert_eq!(report.metrics[1].name, STALL);
            assert!(stall > 0.0 && stall <= all, "{stall} of {all}");
            let counted: u64 = OPERATIONS
                .iter()
                .map(|name| {
                    report.latencies.iter().find(|one| one.operation == *name).unwrap().count
                })
                .sum();
            assert_eq!(counted, 60);
            let commits = report.operations.unwrap();
            assert!(commits < 60 && report.written_bytes == Some(commits * 200), "{commits}");
            let is_short = report.findings.iter().any(|words| words.contains("no checkpoint"));
            assert_eq!(is_short, journal == "wal");
            proofs.push(report.proof.unwrap());
            assert_eq!(load.find_loss(&task, "committed 1\ncommitted 58").unwrap(), None);
        }
        assert!(proofs.windows(2).all(|pair| pair[0] == pair[1]), "{proofs:?}");
    }

    #[test]
    fn what_a_directory_has_no_room_for_is_refused_before_anything_is_made() {
        let home = tempfile::tempdir().unwrap();
        let load = small("rows=100000000 row-size=16M");
        let problem = load.set_up(&task(home.path()), &AtomicBool::new(false)).unwrap_err();
        let here = format!("{} has ", home.path().display());
        for words in ["the database and its journal need", &here, "take fewer rows"] {
            assert!(problem.contains(words), "{problem}");
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_lost_torn_or_never_written_is_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let load = small("journal=delete mix=1:1:0");
        let (task, stop) = (task(home.path()), AtomicBool::new(false));
        let found = |acknowledged: &str| load.find_loss(&task, acknowledged).unwrap();
        assert!(matches!(found(""), Some(Loss::Lost(_))), "there is no database");
        load.set_up(&task, &stop).unwrap();
        assert_eq!(found(""), None);
        // Nothing of the run is there.
        let Some(Loss::Lost(words)) = found("committed 1\ncommitted 3") else { panic!() };
        assert!(words.ends_with("3 were committed, and the last one found is 0"), "{words}");
        load.run(&task, &stop).unwrap();
        assert_eq!(found("committed 60"), None);
        let path = home.path().join(DATABASE);
        let change = |statement: &str| {
            Connection::open(&path).unwrap().execute_batch(statement).unwrap();
        };
        change(
            "CREATE TABLE kept AS SELECT * FROM rows; UPDATE rows SET contents = x'00' WHERE key = 7",
        );
        let Some(Loss::Corrupt(words)) = found("committed 60") else { panic!() };
        assert!(words.starts_with("row 7 does not hold"), "{words}");
        let again = "DELETE FROM rows; INSERT INTO rows SELECT * FROM kept;";
        change(&format!("{again} DELETE FROM rows WHERE key = 50"));
        let Some(Loss::Corrupt(words)) = found("committed 60") else { panic!() };
        assert!(words.starts_with("row 50, written by"), "{words}");
        change(again);
        assert_eq!(found("committed 60"), None);
        std::fs::write(&path, vec![1; 8192]).unwrap();
        assert!(matches!(found(""), Some(Loss::Corrupt(_))));
    }
}
