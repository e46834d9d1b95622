//! What the laboratory costs the command that it measures: the same command on the same mount,
//! timed by hand and by kurabe in turn, in one run.
//!
//! ```sh
//! sudo scripts/benchmark-overhead            # on ext4 in memory, then on a disk
//! cargo run --release -p kurabe --example overhead -- DIR [--writing] [--rounds N]
//! ```
//!
//! By hand is the simplest that anybody would do: take the time, start the command, wait for it,
//! take the time. kurabe's figure is the run phase of its record. Both work in a fresh directory
//! below DIR with warm caches, after a sync. Each command comes once as a pure wait, of which the
//! noise is smallest, and once as a write to a file.
//!
//! A round is hand, kurabe, kurabe, hand, so that a machine that slows down or speeds up in the
//! course of it favours neither; the round's difference is that of the two means. What decides is
//! the interval of the median difference: the bound of 1 % or 2 ms holds where all of it lies
//! inside, is exceeded where all of it lies outside, and is undecided otherwise.
//!
//! Exit code: 0 when every bound holds, 1 when one is exceeded, 4 when one is undecided.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const KURABE: &str = "target/release/kurabe";

/// Bounds on the median difference: the larger one counts.
const SHARE_MAX: f64 = 0.01;
const DIFFERENCE_NS_MAX: f64 = 2e6;

const EXCEEDED: u8 = 1;
const WRONG_USE: u8 = 2;
const UNDECIDED: u8 = 4;

/// A command, and how often it is repeated.
struct Case {
    name: &'static str,
    line: &'static str,
    is_writing: bool,
    rounds: usize,
}

const CASES: [Case; 6] = [
    Case { name: "5 ms, waiting", line: "sleep 0.003", is_writing: false, rounds: 30 },
    Case {
        name: "5 ms, writing",
        line: "head -c 3M /dev/zero >file",
        is_writing: true,
        rounds: 30,
    },
    Case { name: "100 ms, waiting", line: "sleep 0.098", is_writing: false, rounds: 20 },
    Case {
        name: "100 ms, writing",
        line: "for i in 1 2 3 4 5 6 7 8; do head -c 10M /dev/zero >file; done",
        is_writing: true,
        rounds: 20,
    },
    Case { name: "2 s, waiting", line: "sleep 1.998", is_writing: false, rounds: 6 },
    Case {
        name: "2 s, writing",
        line: "for i in $(seq 200); do head -c 10M /dev/zero >file; done",
        is_writing: true,
        rounds: 8,
    },
];

/// What the interval of the difference says of the bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    Exceeded,
    Undecided,
}

fn main() -> ExitCode {
    let Some((directory, only_writing, rounds)) = arguments() else {
        eprintln!("usage: overhead DIR [--writing] [--rounds N]");
        return ExitCode::from(WRONG_USE);
    };
    let directory = directory.canonicalize().expect("DIR exists");
    assert!(Path::new(KURABE).exists(), "build it first: cargo build --release --package kurabe");
    println!("command            by hand  by kurabe  difference       95 % of it  ratio  bound");
    let cases = CASES.iter().filter(|case| case.is_writing || !only_writing);
    let verdicts: Vec<Verdict> =
        cases.map(|case| measure(case, rounds.unwrap_or(case.rounds), &directory)).collect();
    if verdicts.contains(&Verdict::Exceeded) {
        println!("FAILED: a difference is more than 1 % and more than 2 ms.");
        ExitCode::from(EXCEEDED)
    } else if verdicts.contains(&Verdict::Undecided) {
        println!("Undecided: an interval reaches over its bound; repeat on a quieter machine.");
        ExitCode::from(UNDECIDED)
    } else {
        println!("Every difference is at most 1 % or 2 ms, with the whole of its interval.");
        ExitCode::SUCCESS
    }
}

fn arguments() -> Option<(PathBuf, bool, Option<usize>)> {
    let mut words = std::env::args().skip(1);
    let (mut directory, mut only_writing, mut rounds) = (None, false, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--writing" => only_writing = true,
            "--rounds" => rounds = Some(words.next()?.parse().ok()?),
            _ if directory.is_none() => directory = Some(PathBuf::from(word)),
            _ => return None,
        }
    }
    Some((directory?, only_writing, rounds))
}

/// Measures one command and prints its line.
fn measure(case: &Case, rounds: usize, directory: &Path) -> Verdict {
    let hand_once = || by_hand(case.line, directory).as_nanos() as f64;
    let kurabe_once = || by_kurabe(case.line, directory).as_nanos() as f64;
    // Once for each, so that nobody finds cold caches.
    hand_once();
    kurabe_once();
    let samples: Vec<(f64, f64)> = (0..rounds)
        .map(|_| {
            let first = hand_once();
            let kurabe = (kurabe_once() + kurabe_once()) / 2.0;
            ((first + hand_once()) / 2.0, kurabe)
        })
        .collect();
    let hand = median(samples.iter().map(|(hand, _)| *hand).collect());
    let kurabe = median(samples.iter().map(|(_, kurabe)| *kurabe).collect());
    let differences: Vec<f64> = samples.iter().map(|(hand, kurabe)| kurabe - hand).collect();
    let difference = median(differences.clone());
    let (low, high) = median_interval(differences);
    let bound = DIFFERENCE_NS_MAX.max(SHARE_MAX * hand);
    let verdict = if -bound <= low && high <= bound {
        Verdict::Holds
    } else if low > bound || high < -bound {
        Verdict::Exceeded
    } else {
        Verdict::Undecided
    };
    let ratio = median(samples.iter().map(|(hand, kurabe)| kurabe / hand).collect());
    let milliseconds = |ns: f64| ns / 1e6;
    println!(
        "{:16} {:7.2} ms {:7.2} ms {:+8.3} ms {:+7.3} .. {:+.3} ms  {ratio:.4}  {:.1} ms{}",
        case.name,
        milliseconds(hand),
        milliseconds(kurabe),
        milliseconds(difference),
        milliseconds(low),
        milliseconds(high),
        milliseconds(bound),
        match verdict {
            Verdict::Holds => "  holds",
            Verdict::Exceeded => "  EXCEEDED",
            Verdict::Undecided => "  undecided",
        }
    );
    verdict
}

/// The median; differences may be negative, so the summary of positive samples does not serve.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The interval of a median by order statistics: those that a binomial variable of as many throws
/// of a coin leaves out on either side with a probability of at most 2.5 %.
fn median_interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let mut below = 0.5f64.powi(count as i32);
    let mut outside = 0;
    let mut term = below;
    while below <= 0.025 && outside < count / 2 {
        outside += 1;
        term *= (count - outside + 1) as f64 / outside as f64;
        below += term;
    }
    let outside = outside.saturating_sub(1);
    (values[outside], values[count - 1 - outside])
}

fn sync(directory: &Path) {
    let directory = std::fs::File::open(directory).expect("the directory can be opened");
    rustix::fs::syncfs(&directory).expect("it can be synced");
}

fn by_hand(line: &str, directory: &Path) -> Duration {
    let place = directory.join("by-hand");
    std::fs::create_dir(&place).expect("DIR can be written");
    sync(&place);
    let started = Instant::now();
    let status = Command::new("sh")
        .args(["-c", line])
        .current_dir(&place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("sh starts");
    let elapsed = started.elapsed();
    assert!(status.success());
    sync(&place);
    std::fs::remove_dir_all(&place).expect("what was made can be removed");
    elapsed
}

fn by_kurabe(line: &str, directory: &Path) -> Duration {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let out = home.path().join("result");
    let status = Command::new(KURABE)
        .args(["compare", &format!("here: dir:{}", directory.display())])
        .args(["--runs", "1", "--cache", "warm", "--style", "none"])
        .arg("--out")
        .arg(&out)
        .args(["--", line])
        .stdout(Stdio::null())
        .status()
        .expect("kurabe starts");
    assert!(status.success(), "kurabe failed");
    let text = std::fs::read_to_string(out.join("records.jsonl")).expect("there is a record");
    let record: serde_json::Value = serde_json::from_str(&text).expect("it is whole");
    let phases = record["phases"].as_array().expect("it has phases");
    let run = phases.iter().find(|phase| phase["phase"] == "run").expect("it ran");
    Duration::from_nanos(run["elapsed_ns"].as_u64().expect("its time is a number"))
}
