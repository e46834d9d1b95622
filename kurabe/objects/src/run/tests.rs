//! Whole runs: the programs that users of CannylsBencher write, on every store, with everything
//! compared; and what must be noticed is noticed.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use block::{BlockDevice, MemoryDevice};
use vocabulary::check::Check;

use super::*;
use crate::store::StoreSession;

/// The sorts of programs that users of CannylsBencher write, small.
const PROGRAMS: [(&str, &str); 8] = [
    ("an ordered mix", "Ordered[400] { <80%> New(50K); <20%> Get; }"),
    (
        "an unordered mix",
        "Command { 100.times { New(10K); }; } Unordered[400] { <50%> New(10K); <50%> Get; }",
    ),
    (
        "ranges to get",
        "Ordered[300] { <80%> New(5K); <20%> Get(40, 60); } Command { 200.times { New(1K); \
         Get(1, 5); }; }",
    ),
    (
        "ranges to delete",
        "Ordered[300] { <100%> New(5K); } Unordered[300] { <29%> New(10K); <30%> Get(80, 100); \
         <40%> Delete(0, 20); <1%> DeleteRange(10, 15); } Ordered[100] { <10%> Delete(10, 20); \
         <2%> DeleteRange(50, 60); }",
    ),
    ("put, then delete", "Ordered[300] { <100%> { New(100K); Delete; }; }"),
    (
        "overwriting",
        "Ordered[200] { <40%> New(5K); <30%> New(10K); <30%> New(20K); } Unordered[400] { <30%> \
         OverWrite(5K); <10%> OverWrite(513); <30%> Get; <30%> Delete; }",
    ),
    (
        "nested repetitions",
        "# 入れ子\nSeed: 42;\nCommand { New(1K); 10.times { New(5K); Get; }; Delete; 20.times { \
         8.times { New(500); Embed(300); }; Delete; Get; }; }",
    ),
    (
        "the extensions",
        "Seed: 3; Command { 100.times { New(lognormal(4K, 1.5, 64K)); }; Sync; } Unordered[500] { \
         <30%> New(uniform(0, 20K)); <30%> Get(zipf(0.99)); <20%> OverWrite(zipf(512, 8K, 1), \
         zipf(1.2, newest)); <19%> Delete(zipf(0.5, scattered)); <1%> Sync; }",
    ),
];

fn program(text: &str) -> Program {
    match Program::parse("load.txt", text.as_bytes()) {
        Ok(parsed) => parsed.program,
        Err(error) => panic!("{error}"),
    }
}

fn with_threads(text: &str, threads: u32) -> Program {
    let mut program = program(text);
    program.settings.threads = Some(threads);
    program
}

fn verified() -> RunOptions {
    RunOptions { verify: true, ..RunOptions::default() }
}

fn quietly(_: ProgramPhase) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Runs a program on a store of 64 MiB of memory.
fn run_in_memory(program: &Program, options: &RunOptions) -> Report {
    let place = StoreLocation::Open(Arc::new(MemoryDevice::new(64 << 20, 512)));
    run(program, options, &place, "cannyls", &mut quietly).unwrap()
}

fn assert_success(name: &str, report: &Report) {
    assert_eq!(report.outcome, ProgramOutcome::Completed, "{name}");
    assert_eq!(report.check.as_ref().unwrap().violated, 0, "{name}");
    let verification = report.verification.as_ref().unwrap();
    assert!(verification.complete && verification.swept_objects == report.live_objects, "{name}");
    // What was planned is what was done.
    let planned = report.plan.counted.as_ref().unwrap();
    assert_eq!(planned.commands, report.commands, "{name}");
    assert_eq!(planned.bytes_written, report.bytes_written, "{name}");
    assert_eq!(planned.bytes_read, report.bytes_read, "{name}");
    assert_eq!(planned.final_live_objects, report.live_objects, "{name}");
    // And what was recorded.
    let all = report.recording.summary().overall;
    assert_eq!(all.count, report.commands, "{name}");
    assert_eq!(all.bytes, report.bytes_written + report.bytes_read, "{name}");
}

#[test]
fn every_sort_of_program_runs_on_every_store_and_loses_nothing() {
    for (name, text) in PROGRAMS {
        for (store_name, block_size_bytes) in [("files", 512), ("cannyls", 512), ("cannyls", 4096)]
        {
            let directory = tempfile::tempdir().unwrap();
            let place = StoreLocation::Directory(directory.path().to_owned());
            let mut options = verified();
            options.store.block_size_bytes = block_size_bytes;
            let report = run(&program(text), &options, &place, store_name, &mut quietly).unwrap();
            assert_success(&format!("{name} on {store_name} {block_size_bytes}"), &report);
        }
    }
}

#[test]
fn any_number_of_threads_does_the_same() {
    for (name, text) in PROGRAMS {
        let alone = run_in_memory(&with_threads(text, 1), &verified());
        let together = run_in_memory(&with_threads(text, 7), &verified());
        assert_success(name, &together);
        let kinds = |report: &Report| {
            let kinds = report.recording.summary().kinds.into_iter();
            let mut kinds: Vec<(String, u64, u64)> =
                kinds.map(|kind| (kind.operation, kind.count, kind.bytes)).collect();
            kinds.sort();
            kinds
        };
        assert_eq!(kinds(&alone), kinds(&together), "{name}");
    }
}

#[test]
fn a_store_as_large_as_the_program_asks_suffices_for_all_threads() {
    // One object is live at once, but eight threads put before the first deletion has ended.
    let directory = tempfile::tempdir().unwrap();
    let place = StoreLocation::Directory(directory.path().to_owned());
    let program = with_threads("Ordered[60] { <100%> { New(2M); Delete; }; }", 8);
    let report = run(&program, &RunOptions::default(), &place, "cannyls", &mut quietly).unwrap();
    assert_eq!(report.outcome, ProgramOutcome::Completed);
}

#[test]
fn a_store_is_the_same_in_a_directory_and_on_a_device_of_any_size() {
    let directory = tempfile::tempdir().unwrap();
    let on_device = |bytes| StoreLocation::Open(Arc::new(MemoryDevice::new(bytes, 512)));
    let places = [
        StoreLocation::Directory(directory.path().to_owned()),
        on_device(64 << 20),
        on_device(300 << 20),
    ];
    let program = program("Command { 20.times { New(64K); Get; }; }");
    let told = places.map(|place| {
        let report =
            run(&program, &RunOptions::default(), &place, "cannyls", &mut quietly).unwrap();
        let facts =
            ["capacity_bytes", "journal_bytes"].map(|fact| report.store_facts[fact].clone());
        (facts, report.store_written_bytes)
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
    assert!(told[0].1.is_some_and(|bytes| bytes > 20 << 16), "{told:?}");
}

#[test]
fn a_store_holds_as_many_small_objects_as_the_program_keeps() {
    let device = Arc::new(MemoryDevice::new(16 << 20, 512));
    let program = program("Command { 6000.times { New(100); }; 10.times { Get; }; }");
    let report =
        run(&program, &verified(), &StoreLocation::Open(device), "lump", &mut quietly).unwrap();
    assert_eq!((report.outcome, report.live_objects), (ProgramOutcome::Completed, 6000));
    let bytes = |name| report.store_usage[name];
    // A value of 100 bytes takes a unit of 512.
    assert!(bytes("free_bytes") <= bytes("data_bytes") - 6000 * 512, "{:?}", report.store_usage);
    assert!((1..=bytes("free_bytes")).contains(&bytes("longest_free_bytes")));
}

#[test]
fn every_put_durable_loses_nothing_either() {
    for store_name in ["files", "cannyls"] {
        let directory = tempfile::tempdir().unwrap();
        let place = StoreLocation::Directory(directory.path().to_owned());
        let mut options = verified();
        options.store.sync_every_put = true;
        let text = "Ordered[50] { <50%> { New(3K); New(5K); Get; Delete; OverWrite(1K); }; }";
        let report = run(&program(text), &options, &place, store_name, &mut quietly).unwrap();
        assert_success(store_name, &report);
        assert_eq!(report.store_facts["sync_every_put"], "true");
    }
}

/// Memory that does something more on each access.
struct Meddled<F> {
    memory: MemoryDevice,
    /// Called with what was read, or with nothing before a write.
    meddle: F,
}

impl<F: Fn(Option<&mut [u8]>) + Send + Sync> BlockDevice for Meddled<F> {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn block_size(&self) -> u32 {
        self.memory.block_size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)?;
        (self.meddle)(Some(buffer));
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        (self.meddle)(None);
        self.memory.write_at(buffer, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.memory.discard(offset, length)
    }
}

fn meddled<F>(meddle: F) -> StoreLocation
where
    F: Fn(Option<&mut [u8]>) + Send + Sync + 'static,
{
    StoreLocation::Open(Arc::new(Meddled { memory: MemoryDevice::new(64 << 20, 512), meddle }))
}

#[test]
fn a_single_wrong_byte_is_named() {
    // One bit of every tenth large read is turned.
    let spoiling = || {
        let reads = Mutex::new(0);
        meddled(move |read: Option<&mut [u8]>| {
            if let Some(buffer) = read.filter(|buffer| buffer.len() == 20480 + 512) {
                let mut reads = reads.lock().unwrap();
                *reads += 1;
                if *reads % 10 == 0 {
                    buffer[12_345] ^= 1;
                }
            }
        })
    };
    for (text, during, tried) in [
        ("Command { 30.times { New(20K); Get; }; }", "Get of object", 60),
        ("Command { 30.times { New(20K); }; 30.times { Delete; }; }", "Delete of object", 30),
        ("Command { 30.times { New(20K); }; }", "the sweep at the end: object", 30),
    ] {
        let report =
            run(&program(text), &verified(), &spoiling(), "cannyls", &mut quietly).unwrap();
        // It is a result: the run goes on, and what was wrong is counted.
        assert_eq!(report.outcome, ProgramOutcome::Completed, "{during}");
        let check = report.check.as_ref().unwrap();
        assert_eq!((&*check.name, check.tried, check.violated), ("contents", tried, tried / 10));
        let first = check.first.as_ref().unwrap();
        assert!(first.starts_with(during) && first.contains(": byte 12345 of 20480 d"), "{first}");
        assert!(report.verification.as_ref().unwrap().complete);
    }
    // Without verifying nobody looks.
    let text = program("Command { 30.times { New(20K); Get; }; }");
    let report = run(&text, &RunOptions::default(), &spoiling(), "cannyls", &mut quietly).unwrap();
    assert_eq!(report.outcome, ProgramOutcome::Completed);
    assert!(report.verification.is_none());
    let check = report.check.as_ref().unwrap();
    assert_eq!((&*check.name, check.tried, check.violated), ("presence", 30, 0));
}

#[test]
fn a_lost_object_is_missed_and_a_risen_one_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let text = "Command { 50.times { New(1K); }; 10.times { Delete; }; 100.times { Get; }; }";
    // While the sweep is told of, a file is taken away or a deleted one comes back; so the sweep
    // has to be of a store that is opened after that. Hence the two steps by hand.
    let report = run(
        &program(text),
        &verified(),
        &StoreLocation::Directory(path.clone()),
        "files",
        &mut quietly,
    )
    .unwrap();
    assert_success("files", &report);
    let kind = store::kind("files").unwrap();
    let options = StoreOptions::default();
    let place = StoreLocation::Directory(path.clone());
    let store = (kind.open)(&place, &options).unwrap();
    let mut stream = Stream::new(&program(text));
    while let crate::stream::StreamStep::Command(_) = stream.next_step() {}
    let keys = store.keys().unwrap();
    let sweep = || {
        let mut check = Check::new(CONTENTS);
        let mut tick = || ControlFlow::Continue(());
        let mut verification = Verification::default();
        let reopen = || (kind.open)(&place, &options);
        let swept = super::sweep(&stream, 0, &reopen, &mut verification, &mut check, &mut tick);
        assert_eq!(swept, Ok(ControlFlow::Continue(())));
        (check.tried, check.violated, check.first)
    };
    assert_eq!(sweep(), (40, 0, None));
    let mut session = store.session().unwrap();
    let deleted = (1..=50).find(|key| !keys.contains(key)).unwrap();
    session.prepare(3, false).unwrap().copy_from_slice(b"abc");
    session.put(deleted).unwrap();
    let (tried, violated, first) = sweep();
    assert_eq!((tried, violated), (41, 1));
    let said = format!("the sweep at the end: object {deleted} is there, though it was deleted");
    assert!(first.unwrap().starts_with(&said));
    session.delete(keys[7]).unwrap();
    assert_eq!((sweep().0, sweep().1), (41, 2));
    session.delete(deleted).unwrap();
    let said = format!("the sweep at the end: object {} is missing", keys[7]);
    assert_eq!(sweep(), (40, 1, Some(said)));
}

#[test]
fn a_store_that_falls_behind_an_open_loop_is_seen_to() {
    // The clock stands still but for the puts, of 4 ms each, and for what is waited for.
    let ran = |text: &str| {
        let (clock, hand) = Clock::by_hand();
        let measured = measure_by(clock, &Liar(hand), &program(text), false);
        assert_eq!(measured.outcome, ProgramOutcome::Completed);
        (measured.recording.summary().overall.at(0.5) / 1_000_000, measured.sum.ended_ns)
    };
    // In a closed loop they are the latency. Of 100 asked for at 1000 a second the fiftieth ends
    // after 200 ms and should have begun after 49.
    assert_eq!(ran("Command { 100.times { New(1K); }; }"), (4, 400_000_000));
    assert_eq!(ran("Rate: 1000; Command { 100.times { New(1K); }; }"), (151, 400_000_000));
    // At a rate that the store can keep, the latency is that of the call and the run lasts as long
    // as the rate says.
    assert_eq!(ran("Rate: 50; Command { 20.times { New(1K); }; }"), (4, 384_000_000));
}

#[test]
fn an_open_loop_waits_for_each_command() {
    let ran = |text: &str| {
        let start = Instant::now();
        (run_in_memory(&program(text), &RunOptions::default()).open_loop, start.elapsed())
    };
    assert!(!ran("Command { New(1K); }").0);
    // A busy machine makes it longer, and nothing shorter.
    let (open_loop, elapsed) = ran("Rate: 50; Command { 6.times { New(1K); }; }");
    assert!(open_loop && elapsed >= Duration::from_millis(100), "{elapsed:?}");
}

/// A store in which every read waits until another read is under way, for ten seconds at most.
#[derive(Default)]
struct Meeting {
    inside: Mutex<(usize, usize)>,
    changed: std::sync::Condvar,
}

impl Store for Meeting {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(MeetingSession(self)))
    }
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }
    fn facts(&self) -> std::collections::BTreeMap<String, String> {
        Default::default()
    }
}

struct MeetingSession<'a>(&'a Meeting);

impl StoreSession for MeetingSession<'_> {
    fn prepare(&mut self, _: usize, _: bool) -> Result<&mut [u8], StoreError> {
        Ok(&mut [])
    }
    fn put(&mut self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
    fn get(&mut self, _: u64) -> Result<Option<&[u8]>, StoreError> {
        let mut inside = self.0.inside.lock().unwrap();
        // Arrivals are counted, not presences: a pair has met when the second arrives.
        inside.0 += 1;
        let partner = inside.0 + inside.0 % 2;
        self.0.changed.notify_all();
        let enough = self
            .0
            .changed
            .wait_timeout_while(inside, Duration::from_secs(10), |inside| inside.0 < partner)
            .unwrap();
        inside = enough.0;
        inside.1 += usize::from(!enough.1.timed_out());
        Ok(Some(&[]))
    }
    fn delete(&mut self, _: u64) -> Result<bool, StoreError> {
        Ok(true)
    }
    fn delete_range(&mut self, _: Range<u64>) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// A store that takes everything, each object in 4 ms of a clock with this hand, and then says that
/// it was not there.
struct Liar(&'static AtomicU64);

impl Store for Liar {
    fn session(&self) -> Result<Box<dyn StoreSession + '_>, StoreError> {
        Ok(Box::new(Liar(self.0)))
    }
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn keys(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }
    fn facts(&self) -> std::collections::BTreeMap<String, String> {
        Default::default()
    }
}

impl StoreSession for Liar {
    fn prepare(&mut self, _: usize, _: bool) -> Result<&mut [u8], StoreError> {
        Ok(&mut [])
    }
    fn put(&mut self, _: u64) -> Result<(), StoreError> {
        self.0.fetch_add(4_000_000, Ordering::Relaxed);
        Ok(())
    }
    fn get(&mut self, _: u64) -> Result<Option<&[u8]>, StoreError> {
        Ok(None)
    }
    fn delete(&mut self, _: u64) -> Result<bool, StoreError> {
        Ok(false)
    }
    fn delete_range(&mut self, _: Range<u64>) -> Result<u64, StoreError> {
        Ok(7)
    }
}

/// Runs a program on a store of the test's own.
fn measure(store: &dyn Store, program: &Program, keeps_contents: bool) -> Measured {
    measure_by(Clock::start(), store, program, keeps_contents)
}

fn measure_by(
    clock: Clock,
    store: &dyn Store,
    program: &Program,
    keeps_contents: bool,
) -> Measured {
    let run = Run {
        store,
        options: &RunOptions::default(),
        keeps_contents,
        classes: Stream::new(program).classes().iter().map(|size| size.label()).collect(),
        clock,
        is_cancelled: AtomicBool::new(false),
    };
    run.carry_out(program, &mut quietly)
}

#[test]
fn a_store_that_contradicts_the_program_is_caught_without_verifying_too() {
    for (statement, message) in [
        ("Get", " is missing"),
        ("Delete", "there was no such object"),
        ("DeleteRange(0, 100)", "7 objects were deleted instead of 1"),
    ] {
        let text = program(&format!("Command {{ 2.times {{ New(1); }}; {statement}; }}"));
        let (clock, hand) = Clock::by_hand();
        let measured = measure_by(clock, &Liar(hand), &text, true);
        assert_eq!(measured.outcome, ProgramOutcome::Completed, "{statement}");
        let Check { tried: 1, violated: 1, first: Some(first), .. } = &measured.sum.check else {
            panic!("{statement}: {:?}", measured.sum.check);
        };
        assert!(first.starts_with(&statement[..3]) && first.contains(message), "{first}");
    }
}

#[test]
fn threads_overlap_what_may_overlap() {
    let store = Meeting::default();
    let program = with_threads("Command { New(1); 10.times { Get; }; }", 2);
    let measured = measure(&store, &program, false);
    assert_eq!(measured.outcome, ProgramOutcome::Completed);
    // Both read the same object, and every read met another.
    assert_eq!(*store.inside.lock().unwrap(), (10, 10));
}

#[test]
fn runs_end_by_time_and_by_the_callers_wish() {
    let text = "Duration: 300ms; Command { 1000000000.times { New(1K); Delete; }; }";
    let report = run_in_memory(&program(text), &verified());
    assert_eq!(report.outcome, ProgramOutcome::TimeLimit);
    assert!(report.verification.unwrap().complete && report.commands > 0);
    assert!((300_000_000..3_000_000_000).contains(&report.elapsed_ns));

    let mut heard = 0;
    let mut cancel = |_| {
        heard += 1;
        if heard > 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let text = with_threads("Command { 1000000000.times { New(1K); Delete; }; }", 2);
    let place = StoreLocation::Open(Arc::new(MemoryDevice::new(64 << 20, 512)));
    let report = run(&text, &RunOptions::default(), &place, "cannyls", &mut cancel).unwrap();
    assert_eq!(report.outcome, ProgramOutcome::Cancelled);
    assert!(report.commands > 0);

    let text = "Unordered[400ms] { <50%> New(1K); <50%> Delete; } Command { 3.times { New(7); }; }";
    let report = run_in_memory(&program(text), &verified());
    assert_eq!(report.outcome, ProgramOutcome::Completed);
    assert!((400_000_000..3_000_000_000).contains(&report.elapsed_ns));
    let series = report.recording.series().unwrap();
    let counted: u64 = series.points.iter().map(|point| point.count).sum();
    assert_eq!(counted, report.commands);
}

#[test]
fn the_caller_hears_of_every_phase() {
    let mut phases = Vec::new();
    let mut listen = |phase: ProgramPhase| {
        phases.push(phase);
        ControlFlow::Continue(())
    };
    let place = StoreLocation::Open(Arc::new(MemoryDevice::new(16 << 20, 512)));
    let text = program("Command { 5.times { New(1K); }; Delete; }");
    run(&text, &verified(), &place, "cannyls", &mut listen).unwrap();
    phases.dedup();
    assert_eq!(phases, [ProgramPhase::Running, ProgramPhase::Syncing, ProgramPhase::Sweeping]);
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_touched() {
    let memory = || StoreLocation::Open(Arc::new(MemoryDevice::new(1 << 20, 512)));
    let refusal = |text: &str, options: &RunOptions, store_name: &str| {
        run(&program(text), options, &memory(), store_name, &mut quietly).unwrap_err().to_string()
    };
    let plain = RunOptions::default();
    let told = refusal("Command { 2000.times { New(1K); }; }", &plain, "cannyls");
    assert!(told.contains("2048000 bytes") && told.contains("1048576 bytes"), "{told}");
    let told = refusal("Command { New(33M); Delete; }", &plain, "cannyls");
    assert!(told.contains("at most 33553918 bytes"), "{told}");
    let told = refusal("Command { New(1K); }", &verified(), "null");
    assert!(told.contains("keeps nothing"), "{told}");
    let told = refusal("Command { New(1K); }", &plain, "canyls");
    assert!(told.contains("did you mean 'cannyls'?"), "{told}");
    let told = refusal("Command { New(1K); }", &plain, "files");
    assert!(told.contains("needs a mounted file system"), "{told}");
}

#[test]
fn a_store_that_fills_up_ends_the_run_and_keeps_the_figures() {
    // Nothing bounds the program, so it begins; the device has room for some 3000 objects.
    let text = "Unordered[60s] { <100%> New(1000); }";
    let place = StoreLocation::Open(Arc::new(MemoryDevice::new(4 << 20, 512)));
    let report = run(&program(text), &verified(), &place, "cannyls", &mut quietly).unwrap();
    let ProgramOutcome::Failed(failure) = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(failure.store_is_full && failure.during.starts_with("Put of object"), "{failure:?}");
    assert!((1000..4000).contains(&report.commands), "{}", report.commands);
    assert_eq!(report.recording.summary().overall.count, report.commands);
}

#[test]
fn the_null_store_takes_what_the_plan_says() {
    for (name, text) in PROGRAMS {
        let place = StoreLocation::Directory("/nowhere".into());
        let report =
            run(&program(text), &RunOptions::default(), &place, "null", &mut quietly).unwrap();
        assert_eq!(report.plan.counted.unwrap().commands, report.commands, "{name}");
    }
}
