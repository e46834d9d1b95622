//! Runs the installed dbench and reads what it prints.
//!
//! Knows dbench 4.0's options and the forms of its lines (dbench.c of its source). What it
//! prints is kept as it is; what is read from it stands beside.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::PACKAGED_LOAD_FILE;
use super::drift::IntervalBytes;
use super::loadfile::LoadFile;
use super::replay::ReplayPhase;
use crate::enclosure::Enclosure;
use crate::tool::{Finished, WorkloadTool, run_kept_in};

#[derive(Clone, Debug)]
pub struct Dbench<'a> {
    /// Where; dbench leaves the directories of its clients behind there.
    pub directory: &'a Path,
    pub clients: u32,
    /// How long to count, in whole seconds. dbench warms up for a fifth of it before.
    pub execute_seconds: u32,
}

/// One of the lines that dbench prints each second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressLine {
    pub phase: ReplayPhase,
    pub clients: u32,
    /// Lines of the load file that each client is past, on average.
    pub lines: u64,
    /// Megabytes (10^6) a second since the phase began: not of this second.
    pub throughput_mb_per_second: f64,
    /// Seconds since the phase began.
    pub seconds: u64,
    /// The longest pause between two operations in this second.
    pub latency_ms: f64,
}

/// A line of the table of operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationLine {
    /// dbench's name for the operation.
    pub operation: String,
    /// How many were done in the counted phase.
    pub count: u64,
    /// Mean latency.
    pub average_ms: f64,
    /// Greatest latency.
    pub maximum_ms: f64,
}

/// What dbench says that a client did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    /// Lines of the load file that it is past, both phases.
    pub lines: u64,
    /// Bytes of ReadX and WriteX, of the counted phase.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DbenchReport {
    /// The version that it names.
    pub version: String,
    /// Megabytes (10^6) a second as dbench prints them: those of its last line of progress, so
    /// without what was done after it, which is a second's work.
    /// [`Self::counted_bytes_per_second`] leaves nothing out.
    pub throughput_mb_per_second: f64,
    pub clients: u32,
    /// The longest time from one operation of a client to its next as dbench prints it, up to its
    /// last line of progress too. [`Self::longest_wait_ms`] leaves nothing out.
    pub latency_max_ms: f64,
    /// Length of the counted phase.
    pub counted_seconds: u64,
    pub client_results: Vec<ClientResult>,
    pub operations: Vec<OperationLine>,
    /// Second by second, both phases.
    pub progress: Vec<ProgressLine>,
    /// Complaints about operations that did not go as the load file says.
    pub complaints: Vec<String>,
    /// The run with everything that was printed.
    pub finished: Finished,
}

impl DbenchReport {
    /// Bytes a second over the whole counted phase.
    pub fn counted_bytes_per_second(&self) -> f64 {
        self.counted_bytes() as f64 / self.counted_seconds.max(1) as f64
    }

    /// Operations a second over the whole counted phase.
    pub fn counted_operations_per_second(&self) -> f64 {
        self.counted_operations() as f64 / self.counted_seconds.max(1) as f64
    }

    /// The longest that a client waited: what dbench prints, or the longest operation of its
    /// table where that ended after the last line of progress.
    pub fn longest_wait_ms(&self) -> f64 {
        self.operations.iter().map(|line| line.maximum_ms).fold(self.latency_max_ms, f64::max)
    }

    /// Lines of the load file that the farthest client is past.
    pub fn lines_max(&self) -> u64 {
        self.client_results.iter().map(|client| client.lines).max().unwrap_or(0)
    }

    /// What a reader must know who takes dbench's own throughput for that of the run: in words,
    /// when operations went less than half as fast after its last line of progress as before it.
    pub fn stall_after_last_line(&self) -> Option<String> {
        let last = self.progress.last().filter(|line| line.phase == ReplayPhase::Execute)?;
        let all = self.counted_operations();
        let after = self.lines().saturating_sub(last.lines * u64::from(self.clients));
        let rest_seconds =
            self.counted_seconds.checked_sub(last.seconds).filter(|rest| *rest > 0)?;
        let rate = |operations: u64, seconds: u64| operations as f64 / seconds.max(1) as f64;
        let before = all.saturating_sub(after);
        let is_stall = 2.0 * rate(after, rest_seconds) < rate(before, last.seconds);
        is_stall.then(|| {
            format!(
                "a stall after dbench's last line, at {} s: {after} of {all} operations in the \
                 {rest_seconds} s after it. dbench's own throughput of {:.1} MB/s leaves that out; \
                 over all {} s it is {:.1} MB/s",
                last.seconds,
                self.throughput_mb_per_second,
                self.counted_seconds,
                self.counted_bytes_per_second() / 1e6
            )
        })
    }

    fn counted_bytes(&self) -> u64 {
        self.client_results.iter().map(|client| client.bytes).sum()
    }

    fn counted_operations(&self) -> u64 {
        self.operations.iter().map(|line| line.count).sum()
    }

    /// Lines that all clients together are past, both phases.
    fn lines(&self) -> u64 {
        self.client_results.iter().map(|client| client.lines).sum()
    }

    /// The line of progress that dbench does not print: the end of the counted phase.
    fn end(&self) -> ProgressLine {
        ProgressLine {
            phase: ReplayPhase::Execute,
            clients: self.clients,
            lines: self.lines() / u64::from(self.clients.max(1)),
            throughput_mb_per_second: self.counted_bytes_per_second() / 1e6,
            seconds: self.counted_seconds,
            latency_ms: 0.0,
        }
    }

    /// The bytes of each second, the warm-up's too, from the running means; for the drift verdict.
    ///
    /// dbench rounds the means to 0.01 MB/s, so a second's bytes are uncertain by that times
    /// the seconds since the phase began.
    pub fn series(&self) -> Vec<IntervalBytes> {
        self.phased_series().map(|(_, interval)| interval).collect()
    }

    /// The same of the counted phase alone, from which the throughput is.
    pub fn counted_series(&self) -> Vec<IntervalBytes> {
        let counted = self.phased_series().filter(|(phase, _)| *phase == ReplayPhase::Execute);
        counted.map(|(_, interval)| interval).collect()
    }

    fn phased_series(&self) -> impl Iterator<Item = (ReplayPhase, IntervalBytes)> {
        let mut phase_start_seconds = 0;
        let mut before: Option<ProgressLine> = None;
        let lines = self.progress.iter().copied().chain([self.end()]);
        lines.filter_map(move |line| {
            if let Some(previous) = before.take_if(|previous| previous.phase != line.phase) {
                phase_start_seconds += previous.seconds;
            }
            let (bytes_before, seconds_before) =
                before.replace(line).map_or((0.0, 0), |previous| {
                    (previous.throughput_mb_per_second * previous.seconds as f64, previous.seconds)
                });
            let bytes = line.throughput_mb_per_second * line.seconds as f64 - bytes_before;
            let seconds =
                line.seconds.checked_sub(seconds_before).filter(|seconds| *seconds > 0)?;
            let interval = IntervalBytes {
                start_ns: (phase_start_seconds + seconds_before) * 1_000_000_000,
                duration_ns: seconds * 1_000_000_000,
                bytes: (bytes.max(0.0) * 1e6).round() as u64,
            };
            Some((line.phase, interval))
        })
    }
}

/// Runs dbench to its end.
///
/// Errors: it is missing, failed, was stopped, or its output has not the known form; the clients' files do
/// not fit.
pub fn dbench(plan: &Dbench<'_>, stop: &AtomicBool) -> Result<DbenchReport, String> {
    WorkloadTool::Dbench.locate()?;
    // dbench takes load files that the replay refuses.
    if let Some(load) = packaged_load() {
        load.check_space(plan.directory, plan.clients)?;
    }
    let fill = |command: &mut Command| {
        command.arg("-D").arg(plan.directory).arg("-t").arg(plan.execute_seconds.to_string());
        // It prints no bytes of the counted phase but these.
        command.arg("--per-client-results").arg(plan.clients.to_string());
    };
    let reach = Enclosure { directories: vec![plan.directory.into()], ..Enclosure::default() };
    let finished = run_kept_in(WorkloadTool::Dbench, &reach, fill, stop)?;
    parse(finished).map_err(|missing| format!("dbench's output has no {missing}"))
}

/// The load file that dbench takes, as far as it can be read here.
pub fn packaged_load() -> Option<LoadFile> {
    let path = Path::new(PACKAGED_LOAD_FILE);
    LoadFile::parse(&trust::file::read(path, trust::file::TEXT_BYTES_MAX).ok()?).ok()
}

/// Reads what dbench printed, or says what it has not.
fn parse(finished: Finished) -> Result<DbenchReport, &'static str> {
    let mut version = None;
    let mut operations = Vec::new();
    let mut progress = Vec::new();
    let mut complaints = Vec::new();
    let mut result = None;
    let mut counted_seconds = None;
    let mut client_results = Vec::new();
    for line in finished.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["dbench", "version", number, ..] = words[..] {
            version = Some(number.to_owned());
        } else if let Some(found) = parse_progress(&words) {
            progress.push(found);
        } else if let Some(found) = parse_client(&words) {
            client_results.push(found);
        } else if let Some(found) = parse_operation(&words).filter(|_| line.starts_with(' ')) {
            // Below a client's results stands the table of that client.
            if client_results.is_empty() {
                operations.push(found);
            }
        } else if let [_, "cleanup", seconds, "sec"] = words[..] {
            // `   4  cleanup 600 sec`, of which the first says when the counted phase was over.
            counted_seconds = counted_seconds.or(seconds.parse().ok());
        } else if let Some(found) = parse_result(&words) {
            result = Some(found);
        } else if line.starts_with('[') || line.starts_with('(') || line.contains("ERROR") {
            complaints.push(line.to_owned());
        }
    }
    let (throughput_mb_per_second, clients, latency_max_ms) =
        result.ok_or("line with the throughput")?;
    if operations.is_empty() {
        return Err("table of operations");
    }
    let counted_seconds = counted_seconds.ok_or("end of the counted phase")?;
    if client_results.len() != clients as usize {
        return Err("result of each client");
    }
    Ok(DbenchReport {
        version: version.unwrap_or_default(),
        throughput_mb_per_second,
        clients,
        latency_max_ms,
        counted_seconds,
        client_results,
        operations,
        progress,
        complaints,
        finished,
    })
}

/// `   4      3291   142.68 MB/sec  warmup   1 sec  latency 149.822 ms`
fn parse_progress(words: &[&str]) -> Option<ProgressLine> {
    let [clients, lines, throughput, "MB/sec", phase, seconds, "sec", "latency", latency, "ms"] =
        words
    else {
        return None;
    };
    Some(ProgressLine {
        phase: match *phase {
            "warmup" => ReplayPhase::Warmup,
            "execute" => ReplayPhase::Execute,
            _ => return None,
        },
        clients: clients.parse().ok()?,
        lines: lines.parse().ok()?,
        throughput_mb_per_second: throughput.parse().ok()?,
        seconds: seconds.parse().ok()?,
        latency_ms: latency.parse().ok()?,
    })
}

/// `Client 0 did 34443 lines and 200859973 bytes`
fn parse_client(words: &[&str]) -> Option<ClientResult> {
    let ["Client", _, "did", lines, "lines", "and", bytes, "bytes"] = words else { return None };
    Some(ClientResult { lines: lines.parse().ok()?, bytes: bytes.parse().ok()? })
}

/// ` NTCreateX     759475     0.086    26.728`
fn parse_operation(words: &[&str]) -> Option<OperationLine> {
    let [operation, count, average, maximum] = words else { return None };
    Some(OperationLine {
        operation: operation.to_string(),
        count: count.parse().ok()?,
        average_ms: average.parse().ok()?,
        maximum_ms: maximum.parse().ok()?,
    })
}

/// `Throughput 39.7034 MB/sec (sync open)  4 clients  4 procs  max_latency=2862.366 ms`
fn parse_result(words: &[&str]) -> Option<(f64, u32, f64)> {
    let ["Throughput", throughput, rest @ ..] = words else { return None };
    let clients = rest.windows(2).find(|pair| pair[1] == "clients")?[0];
    let latency = rest.iter().find_map(|word| word.strip_prefix("max_latency="))?;
    Some((throughput.parse().ok()?, clients.parse().ok()?, latency.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms are those of the published run on Btrfs that kurabe began with, and those
    /// of the results by client of the same version.
    const OUTPUT: &str = "\
dbench version 4.00 - Copyright Andrew Tridgell 1999-2004

Running for 600 seconds with load '/usr/share/dbench/client.txt' and minimum warmup 120 secs
4 of 4 processes prepared for launch   0 sec
releasing clients
   4      3291   142.68 MB/sec  warmup   1 sec  latency 149.822 ms
   4      7950   120.71 MB/sec  warmup   2 sec  latency 26.372 ms
[7951] open ./clients/client1/x failed for handle 9938 (No such file or directory)
   4     12000    50.00 MB/sec  execute   1 sec  latency 26.372 ms
   4     16000    40.00 MB/sec  execute   3 sec  latency 26.372 ms
   4  cleanup   4 sec
   0  cleanup   5 sec

 DbenchOperation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX     759475     0.086    26.728
 Flush          53235    38.303  1108.550

Per client results:
Client 0 did 17000 lines and 38000000 bytes
 DbenchOperation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX     189868     0.086    26.728
 Flush          13308    38.303  1108.550

Client 1 did 17000 lines and 38000000 bytes
 DbenchOperation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX     189869     0.086    26.728

Client 2 did 16900 lines and 38000000 bytes
Client 3 did 17100 lines and 38000000 bytes
Throughput 39.7034 MB/sec (sync open)  4 clients  4 procs  max_latency=2862.366 ms
";

    fn finished(stdout: &str) -> Finished {
        Finished {
            program: "dbench".to_owned(),
            command: vec![],
            exit_code: Some(0),
            signal: None,
            elapsed_ns: 1,
            stdout: stdout.to_owned(),
            stderr: String::new(),
        }
    }

    #[test]
    fn the_published_output_is_read() {
        let report = parse(finished(OUTPUT)).unwrap();
        assert_eq!(report.version, "4.00");
        assert_eq!(report.throughput_mb_per_second, 39.7034);
        assert_eq!(report.clients, 4);
        assert_eq!(report.latency_max_ms, 2862.366);
        assert_eq!(report.counted_seconds, 4);
        assert_eq!(report.client_results.len(), 4);
        assert_eq!(report.lines_max(), 17100);
        assert_eq!(report.operations.len(), 2);
        assert_eq!(report.operations[1].operation, "Flush");
        assert_eq!(report.operations[1].count, 53235);
        assert_eq!(report.operations[1].maximum_ms, 1108.55);
        assert_eq!(report.progress.len(), 4);
        assert_eq!(report.progress[1].lines, 7950);
        assert_eq!(report.complaints.len(), 1);
    }

    #[test]
    fn running_means_become_bytes_of_each_second() {
        let report = parse(finished(OUTPUT)).unwrap();
        let series = report.series();
        let bytes: Vec<u64> = series.iter().map(|interval| interval.bytes / 10_000).collect();
        assert_eq!(bytes, [14268, 9874, 5000, 7000, 3200]);
        assert_eq!(series[3].start_ns, 3_000_000_000);
        assert_eq!(series[3].duration_ns, 2_000_000_000);
        // The first two are the warm-up's.
        assert_eq!(report.counted_series(), series[2..]);
    }

    #[test]
    fn what_is_done_after_the_last_line_counts() {
        let report = parse(finished(OUTPUT)).unwrap();
        // 152 MB in 4 s; after 3 s dbench printed 40 MB/s.
        assert_eq!(report.counted_bytes_per_second(), 38e6);
        assert_eq!(report.counted_operations_per_second(), f64::from(759_475 + 53_235) / 4.0);
        let said = report.stall_after_last_line().unwrap();
        let numbers = "at 3 s: 4000 of 812710 operations in the 1 s after it. dbench's own \
                       throughput of 39.7 MB/s leaves that out; over all 4 s it is 38.0 MB/s";
        assert!(said.ends_with(numbers), "{said}");
        // As many as before are no stall.
        let lively = OUTPUT.replace("759475", "8000").replace("53235", "8000");
        assert_eq!(parse(finished(&lively)).unwrap().stall_after_last_line(), None);
    }

    #[test]
    fn an_operation_that_ends_after_the_last_line_is_a_wait_too() {
        assert_eq!(parse(finished(OUTPUT)).unwrap().longest_wait_ms(), 2862.366);
        let early = OUTPUT.replace("max_latency=2862.366", "max_latency=955.023");
        assert_eq!(parse(finished(&early)).unwrap().longest_wait_ms(), 1108.55);
    }

    #[test]
    fn output_that_breaks_off_is_an_error() {
        let cuts = [0, 200, OUTPUT.len() - 60].map(|cut| OUTPUT[..cut].to_owned());
        let without = ["Client 2", "   4  cleanup   4 sec\n   0  cleanup   5 sec"]
            .map(|line| OUTPUT.replace(line, ""));
        for text in cuts.into_iter().chain(without) {
            assert!(parse(finished(&text)).is_err(), "{text}");
        }
    }
}
