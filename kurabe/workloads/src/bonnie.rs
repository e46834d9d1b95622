//! Runs the installed bonnie++ and reads its CSV line.
//!
//! Knows the options and the CSV formats of bonnie++ 1.96 to 2.00; what it prints is kept as it
//! is. It works in a directory of its own below the one it is given, which is gone afterwards,
//! whatever happened.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::enclosure::Enclosure;
use crate::tool::{Finished, WorkloadTool, run_kept_in};
use measure::space;

/// The directory that a run makes for itself.
const OWN_DIRECTORY: &str = "kurabe-bonnie";
/// bonnie++ counts small files in units of this.
const FILES_UNIT: u64 = 1024;

#[derive(Clone, Debug)]
pub struct Bonnie<'a> {
    pub directory: &'a Path,
    /// Size of the data for the throughput tests in MiB; 0 leaves these tests out. bonnie++
    /// advises twice the memory; that check is switched off, because the caller knows whether
    /// caches are to matter.
    pub size_mib: u64,
    /// Small files for the creation tests, in units of 1024 files; 0 leaves these tests out.
    pub files_1024: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateUnit {
    /// KiB a second.
    KibibytesPerSecond,
    SeeksPerSecond,
    FilesPerSecond,
}

/// The tests in the order of the CSV line, and what their rates count. Output and input are
/// sequential; a tenth of the seeks write.
pub const TESTS: [(&str, RateUnit); 12] = [
    ("output_per_character", RateUnit::KibibytesPerSecond),
    ("output_block", RateUnit::KibibytesPerSecond),
    ("rewrite", RateUnit::KibibytesPerSecond),
    ("input_per_character", RateUnit::KibibytesPerSecond),
    ("input_block", RateUnit::KibibytesPerSecond),
    ("seeks", RateUnit::SeeksPerSecond),
    ("sequential_create", RateUnit::FilesPerSecond),
    ("sequential_stat", RateUnit::FilesPerSecond),
    ("sequential_delete", RateUnit::FilesPerSecond),
    ("random_create", RateUnit::FilesPerSecond),
    ("random_stat", RateUnit::FilesPerSecond),
    ("random_delete", RateUnit::FilesPerSecond),
];

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TestResult {
    /// The test, one of [`TESTS`].
    pub test: &'static str,
    /// The rate; absent when the test took less than half a second, for which bonnie++ prints
    /// `+++++` because it would not be exact.
    pub rate: Option<f64>,
    pub unit: RateUnit,
    /// Processor time in percent; absent like the rate.
    pub cpu_percent: Option<f64>,
    /// The longest operation.
    pub latency_max_ns: Option<u64>,
}

/// A CSV line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BonnieRecord {
    /// The version of the format, which lags behind the program's.
    pub format: String,
    /// The version of bonnie++.
    pub version: String,
    /// Copies of the tests that ran at the same time.
    pub concurrency: u64,
    /// The size of the data as it was given, such as `64M`.
    pub size: String,
    /// Small files, in units of 1024.
    pub files_1024: Option<u64>,
    /// The tests that were run.
    pub tests: Vec<TestResult>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BonnieReport {
    /// The records, one a run (`-x` asks for several).
    pub records: Vec<BonnieRecord>,
    /// The run with everything that was printed.
    pub finished: Finished,
}

/// Runs bonnie++ to its end.
///
/// Errors: it is missing, failed or was stopped, its files do not fit, or its output has not the known form.
pub fn bonnie(plan: &Bonnie<'_>, stop: &AtomicBool) -> Result<BonnieReport, String> {
    let own = plan.directory.join(OWN_DIRECTORY);
    WorkloadTool::Bonnie.locate()?;
    let fill = |command: &mut Command| {
        // A comma in the host's name would shift all columns.
        command.args(["-q", "-m", "kurabe", "-d"]).arg(&own).arg("-s");
        command.arg(plan.size_mib.to_string()).arg("-n").arg(plan.files_1024.to_string());
        command.args(["-r", "0"]);
        if rustix::process::geteuid().is_root() {
            // As root it runs only when told so.
            command.args(["-u", "root"]);
        }
    };
    check_fit(plan)?;
    let failed = |what: &'static str| {
        let own = own.display();
        move |error: io::Error| format!("cannot {what} {own}: {error}")
    };
    fs::create_dir(&own).map_err(failed("make"))?;
    let reach = Enclosure { directories: vec![plan.directory.into()], ..Enclosure::default() };
    let ended = run_kept_in(WorkloadTool::Bonnie, &reach, fill, stop);
    let cleaned = trust::tree::remove(&own).map_err(|refused| format!("cannot remove {refused}"));
    let finished = ended?;
    cleaned?;
    let lines = finished.stdout.lines().filter(|line| !line.trim().is_empty());
    let records: Vec<BonnieRecord> = lines
        .map(parse_line)
        .collect::<Result<_, _>>()
        .map_err(|reason| format!("bonnie++'s output: {reason}"))?;
    if records.is_empty() {
        Err("bonnie++'s output: there is no CSV line".into())
    } else {
        Ok(BonnieReport { records, finished })
    }
}

fn check_fit(plan: &Bonnie<'_>) -> Result<(), String> {
    // The small files are empty.
    let needed_bytes = plan.size_mib.saturating_mul(1 << 20);
    space::check(plan.directory, "bonnie++'s files take", needed_bytes, "give another --size")?;
    let inodes_needed = plan.files_1024.saturating_mul(FILES_UNIT);
    // File systems without a table of inodes report none at all.
    match rustix::fs::statvfs(plan.directory) {
        Ok(space) if space.f_files > 0 && inodes_needed > space.f_favail => Err(format!(
            "bonnie++ makes {inodes_needed} files in {}, and {} inodes are free",
            plan.directory.display(),
            space.f_favail
        )),
        _ => Ok(()),
    }
}

/// Reads a CSV line.
pub fn parse_line(line: &str) -> Result<BonnieRecord, String> {
    let fields: Vec<&str> = line.trim_end().split(',').collect();
    // Up to format 1.97 the number of seeks and of the processes that seek were not told.
    let seeks_told = match fields[0] {
        "1.96" | "1.97" => 0,
        "1.98" | "2.00" => 2,
        format => return Err(format!("the CSV format `{format}` is not known")),
    };
    // Seven fields of settings and what is told of the seeks; two for each of six tests; five
    // of settings; two for each of six tests; twelve latencies.
    let count = 7 + seeks_told + 12 + 5 + 12 + 12;
    if fields.len() != count {
        return Err(format!(
            "a line of format {} has {count} fields, this one has {}",
            fields[0],
            fields.len()
        ));
    }
    let first_results = 7 + seeks_told;
    let settings = first_results + 12;
    let second_results = settings + 5;
    let latencies = second_results + 12;
    let mut tests = Vec::new();
    for (index, (test, unit)) in TESTS.into_iter().enumerate() {
        let at =
            if index < 6 { first_results + 2 * index } else { second_results + 2 * (index - 6) };
        let (rate, cpu, latency) = (fields[at], fields[at + 1], fields[latencies + index]);
        if rate.is_empty() && latency.is_empty() {
            // The test was left out.
            continue;
        }
        tests.push(TestResult {
            test,
            rate: number(rate)?,
            unit,
            cpu_percent: number(cpu)?,
            latency_max_ns: latency_ns(latency)?,
        });
    }
    let whole = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a whole number"));
    Ok(BonnieRecord {
        format: fields[0].to_owned(),
        version: fields[1].to_owned(),
        concurrency: whole(fields[3])?,
        size: fields[5].to_owned(),
        files_1024: match fields[settings] {
            "" => None,
            text => Some(whole(text)?),
        },
        tests,
    })
}

/// What a field tells; nothing of a test that was left out, or that was too short, for which plus
/// signs stand.
fn told(field: &str) -> Option<&str> {
    (!field.bytes().all(|byte| byte == b'+')).then_some(field)
}

/// A rate or a percentage.
fn number(text: &str) -> Result<Option<f64>, String> {
    let Some(text) = told(text) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
        _ => Err(format!("`{text}` is not a number")),
    }
}

/// `46190us`, `431ms` or `12s`.
fn latency_ns(text: &str) -> Result<Option<u64>, String> {
    let Some(text) = told(text) else { return Ok(None) };
    let units = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let parsed = units.into_iter().find_map(|(unit, unit_ns)| {
        text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(unit_ns)
    });
    parsed.map(Some).ok_or_else(|| format!("`{text}` is not a latency"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What bonnie++ 2.00a of Debian printed.
    const LINE: &str = "1.98,2.00a,kurabe,1,1795223640,64M,,8192,5,449,28,+++++,+++,120000,7,659,\
        29,+++++,+++,812.5,11,4,,,,,+++++,+++,+++++,+++,+++++,+++,23144,58,+++++,+++,+++++,+++,\
        46190us,20773us,431ms,39378us,16117us,2s,16915us,24122us,16142us,20146us,16087us,13994us";

    #[test]
    fn a_line_of_the_present_format_is_read() {
        let record = parse_line(LINE).unwrap();
        assert_eq!((record.format.as_str(), record.version.as_str()), ("1.98", "2.00a"));
        assert_eq!((record.concurrency, record.size.as_str()), (1, "64M"));
        assert_eq!(record.files_1024, Some(4));
        let of = |test| *record.tests.iter().find(|result| result.test == test).unwrap();
        assert_eq!(record.tests.len(), 12);
        let output = of("output_per_character");
        assert_eq!((output.rate, output.cpu_percent), (Some(449.0), Some(28.0)));
        assert_eq!(output.latency_max_ns, Some(46_190_000));
        assert_eq!(of("output_block").rate, None);
        assert_eq!(of("output_block").latency_max_ns, Some(20_773_000));
        assert_eq!(of("rewrite").latency_max_ns, Some(431_000_000));
        assert_eq!(of("seeks").rate, Some(812.5));
        assert_eq!(of("seeks").latency_max_ns, Some(2_000_000_000));
        assert_eq!(of("random_create").rate, Some(23144.0));
        assert_eq!(of("random_create").unit, RateUnit::FilesPerSecond);
        assert_eq!(of("random_delete").latency_max_ns, Some(13_994_000));
    }

    #[test]
    fn a_line_of_the_former_format_is_read() {
        let mut fields: Vec<&str> = LINE.split(',').collect();
        fields.drain(7..9);
        fields[0] = "1.97";
        let record = parse_line(&fields.join(",")).unwrap();
        assert_eq!(record.tests, parse_line(LINE).unwrap().tests);
    }

    #[test]
    fn tests_that_were_left_out_are_left_out() {
        let line = "1.98,2.00a,t2,1,1795224316,,,,,,,,,,,,,,,,,1,,,,,+++++,+++,+++++,+++,+++++,\
            +++,+++++,+++,+++++,+++,+++++,+++,,,,,,,4148us,107us,4183us,84us,15us,62us";
        let record = parse_line(line).unwrap();
        assert_eq!(record.tests.len(), 6);
        assert_eq!(record.tests[0].test, "sequential_create");
    }

    #[test]
    fn foreign_lines_are_told() {
        for (line, reason) in [
            ("", "format ``"),
            ("name,1,2,3", "format `name`"),
            ("1.98,2.00a,kurabe,1", "has 50 fields, this one has 4"),
            (&LINE.replace("kurabe", "a,b"), "this one has 51"),
            (&LINE.replace("449", "many"), "`many` is not a number"),
            (&LINE.replace("431ms", "431"), "`431` is not a latency"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "[0-9a-z+,. ]{0,120}", place in 0..LINE.len()) {
            let _ = parse_line(&line);
            let _ = parse_line(&LINE[..place]);
        }
    }
}
