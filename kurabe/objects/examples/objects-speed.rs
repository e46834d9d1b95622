//! What the laboratory itself costs: nanoseconds a recorded sample and of these the clock, contents
//! made and compared, commands on a store that keeps nothing, commands generated.
//!
//! `cargo run --release -p objects --example objects-speed`. The figures that
//! `docs/evidence/objects.md` quotes were printed by this program.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use measure::latency::{Clock, LatencyRecorder};
use objects::contents::ContentIdentity;
use objects::stream::{Stream, StreamStep};
use objects::{Program, ProgramPhase, RunOptions, StoreLocation};
use rustix::time::ClockId;

/// Processor time of this thread: what other programs take of the processor does not count.
fn thread_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs `body` this often, five times over, and returns the best nanoseconds a turn: a disturbed
/// run is slower, never faster.
fn best_ns(turns: u64, mut body: impl FnMut(u64)) -> f64 {
    (0..5)
        .map(|_| {
            let start_ns = thread_ns();
            for turn in 0..turns {
                body(turn);
            }
            (thread_ns() - start_ns) as f64 / turns as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn sample_costs() {
    const TURNS: u64 = 5_000_000;
    {
        let clock = Clock::start();
        let source = clock.source();
        let read_ns = best_ns(TURNS, |_| {
            black_box(clock.now_ns());
        });
        println!("clock read ({source}): {read_ns:.1} ns");

        let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
        let kinds = [recorder.kind("Put(262144)"), recorder.kind("Get(262144)")];
        let sample_ns = best_ns(TURNS, |turn| {
            let started_ns = clock.now_ns();
            black_box(turn);
            let ended_ns = clock.now_ns();
            let latency_ns = ended_ns.saturating_sub(started_ns) + (turn & 0xf_ffff);
            recorder.record_at(kinds[(turn & 1) as usize], ended_ns, latency_ns, 262_144);
        });
        println!("sample: two clock reads and a record ({source}): {sample_ns:.1} ns");
        black_box(recorder.finish());
    }
    let mut recorder = LatencyRecorder::with_intervals(Duration::from_secs(1));
    let kinds = [recorder.kind("Put(262144)"), recorder.kind("Get(262144)")];
    let record_ns = best_ns(TURNS, |turn| {
        recorder.record_at(kinds[(turn & 1) as usize], turn, turn & 0xf_ffff, 262_144);
    });
    println!("record alone: {record_ns:.1} ns");
    black_box(recorder.finish());
}

/// Programs whose streams are measured; each yields some tens of millions of commands.
const PROGRAMS: [(&str, &str); 8] = [
    ("sequential puts", "Command { 20000000.times { New(256K); }; }"),
    (
        "puts, then 50/50 puts and gets, 1 million live",
        "Command { 1000000.times { New(1M); }; } Unordered[20000000] { <5%> New(1M); <95%> Get; }",
    ),
    (
        "gets of the oldest 1 to 5 %, 1 million live",
        "Command { 1000000.times { New(1M); }; 20000000.times { Get(1, 5); }; }",
    ),
    ("put then delete", "Ordered[10000000] { <100%> { New(1M); Delete; }; }"),
    (
        "30 put, 30 get of the newest, 40 delete of the oldest fifth, 10 thousand live",
        "Ordered[10000] { <100%> New(500K); } \
         Command { 100000.times { 33.times { New(1M); }; 33.times { Get(80, 100); }; 33.times { \
         Delete(0, 20); }; }; }",
    ),
    (
        "50 put, 50 delete of any, 1 million live",
        "Command { 1000000.times { New(500K); }; } \
         Unordered[20000000] { <50%> New(1M); <50%> Delete; }",
    ),
    (
        "50 put, 50 delete of any, 10 thousand live",
        "Command { 10000.times { New(500K); }; 10000000.times { New(1M); Delete; }; }",
    ),
    (
        "zipf gets (0.99), 1 million live",
        "Command { 1000000.times { New(500K); }; 10000000.times { Get(zipf(0.99)); }; }",
    ),
];

fn stream_speeds(filter: &str) {
    for (name, text) in PROGRAMS.iter().filter(|(name, _)| name.contains(filter)) {
        let program =
            Program::parse(name, text.as_bytes()).expect("the programs above are correct").program;
        let mut stream = Stream::new(&program);
        let start_ns = thread_ns();
        let mut commands = 0u64;
        loop {
            match stream.next_step() {
                StreamStep::Command(command) => {
                    black_box(command);
                    commands += 1;
                }
                StreamStep::Timed(_) => stream.end_timed_section(),
                StreamStep::End => break,
            }
        }
        let elapsed = (thread_ns() - start_ns) as f64 / 1e9;
        println!(
            "stream, {name}: {:.1} million commands a second ({:.1} ns each, {commands} commands)",
            commands as f64 / elapsed / 1e6,
            elapsed * 1e9 / commands as f64
        );
    }
}

/// Whole runs on the store that keeps nothing: what the laboratory adds to every command.
fn null_speeds() {
    // Too long for the plan to generate it first, which would be measured too.
    let text = "Command { 10000.times { New(256K); }; } \
                Unordered[25000000] { <30%> New(1M); <40%> Get; <30%> Delete; }";
    for threads in [1, 2] {
        let mut program =
            Program::parse("null", text.as_bytes()).expect("the program above is correct").program;
        program.settings.threads = Some(threads);
        let place = StoreLocation::Directory(".".into());
        let start_ns = clock_ns(ClockId::ProcessCPUTime);
        let mut quietly = |_: ProgramPhase| ControlFlow::Continue(());
        let report = objects::run(&program, &RunOptions::default(), &place, "null", &mut quietly)
            .expect("the null store refuses nothing");
        let processor_ns = clock_ns(ClockId::ProcessCPUTime) - start_ns;
        let commands = report.commands as f64;
        let overall = report.recording.summary().overall;
        println!(
            "null store, {threads} thread(s): {:.2} million commands a second; {:.0} ns of \
             processor time each; median latency {} ns, 99.9 % {} ns",
            commands / (report.elapsed_ns as f64 / 1e3),
            processor_ns as f64 / commands,
            overall.at(0.5),
            overall.at(0.999)
        );
    }
}

/// How fast contents are made and compared.
fn contents_speed() {
    let identity = ContentIdentity { salt: 1, key: 2, version: 3 };
    let mut buffer = vec![0; 1 << 20];
    let fill_ns = best_ns(200, |_| identity.fill(black_box(&mut buffer)));
    println!("contents: filled at {:.1} GB/s", buffer.len() as f64 / fill_ns);
    let check_ns = best_ns(200, |_| {
        identity.check(1 << 20, black_box(&buffer)).expect("the contents were just made");
    });
    println!("contents: compared at {:.1} GB/s", buffer.len() as f64 / check_ns);
}

fn main() {
    // An argument chooses the streams whose name contains it, for a profile of one.
    let filter = std::env::args().nth(1);
    if filter.is_none() {
        sample_costs();
        contents_speed();
        null_speeds();
    }
    stream_speeds(filter.as_deref().unwrap_or(""));
}
