//! The other way to try what a power cut left: for each state a new image, into which the whole log is replayed
//! up to the cut, a loop device, mount(8), the check. 'kurabe crash' is compared with it, on one of its recordings
//! and on states chosen by the same rules.
//!
//!     replay_whole_log RESULT STATES IMAGE CHECK
//!
//! IMAGE is made anew for each state: let it lie in memory. It is not filled with what the disk held before,
//! which favours this way.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use crash::{
    CrashState, FlushPolicy, Log, Recording, RequestKind, SECTOR_BYTES, Stale, StateOptions, States,
};
use serde_json::Value;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [result, states, image, check] = &words[..] else {
        eprintln!("usage: replay_whole_log RESULT STATES IMAGE CHECK");
        return ExitCode::from(2);
    };
    let states = states.parse().expect("STATES is a number");
    run(Path::new(result), states, Path::new(image), check);
    ExitCode::SUCCESS
}

fn run(result: &Path, count: usize, image: &Path, check: &str) {
    let text = fs::read(result.join("crash.json")).expect("RESULT is of 'kurabe crash'");
    let found: Value = serde_json::from_slice(&text).expect("crash.json is JSON");
    let judged = &found["contenders"][0];
    let log: Log = serde_json::from_value(judged["outcome"]["Ok"]["log"].clone())
        .expect("the first contender was checked");
    let file_system = judged["contender"]["file_system"].as_str().expect("it has one");
    let data = File::open(result.join("recording-1.data")).expect("the recording is there");
    let recording = Arc::new(Recording::open(log, data).expect("it belongs to the log"));
    let log = &recording.log;
    let before = Arc::new(Stale::new(log.sectors * SECTOR_BYTES));
    let from = log.acknowledgements.first().expect("something was acknowledged").instant;
    let seed = found["seed"].as_u64().expect("it has a seed");
    let options = StateOptions { from, to: log.end, count, seed };
    let chosen = States::new(recording.clone(), before, FlushPolicy::Kept).choose(&options);
    let (begun, mut violated) = (Instant::now(), 0);
    let (mount, acknowledged) = (image.with_extension("mount"), image.with_extension("said"));
    fs::create_dir_all(&mount).expect("the mount point can be made");
    for state in &chosen {
        replay(&recording, state, image);
        let said = log.acknowledgements[..state.acknowledged].iter();
        let said: Vec<u8> =
            said.flat_map(|one| [&one.text.0[..], b"\n"]).flatten().copied().collect();
        fs::write(&acknowledged, said).expect("there is room");
        succeed(
            Command::new("mount").args(["-o", "loop", "-t", file_system]).args([image, &mount]),
        );
        let mut line = Command::new("sh");
        line.args(["-c", check, "check"]).args([&mount, &acknowledged]);
        violated += usize::from(!line.status().expect("the check runs").success());
        succeed(Command::new("umount").arg(&mount));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (tried, rate) = (chosen.len(), chosen.len() as f64 / seconds);
    println!("whole log: {violated} of {tried} states violated; {rate:.1} states/s");
}

/// Writes everything that the state has into a new image, in the order in which it arrived.
fn replay(recording: &Recording, state: &CrashState, path: &Path) {
    let _ = fs::remove_file(path);
    let image = File::create(path).expect("IMAGE can be made");
    image.set_len(recording.log.sectors * SECTOR_BYTES).expect("there is room");
    let mut bytes = Vec::new();
    let arrived = |request: &&crash::RecordedRequest| request.arrived <= state.instant;
    for (number, request) in recording.log.requests.iter().take_while(arrived).enumerate() {
        if request.operation == RequestKind::Flush {
            continue;
        }
        bytes.resize((request.sectors * SECTOR_BYTES) as usize, 0);
        let read = recording.data.read_at(&mut bytes, request.data_sector * SECTOR_BYTES);
        let read = read.expect("the recording can be read");
        // A hole at its end is not there.
        bytes[read..].fill(0);
        let mut sector = 0;
        for lost in state.lost.iter().filter(|lost| lost.request == number) {
            write(&image, &bytes, request.sector, sector..lost.first);
            sector = lost.first + lost.sectors;
        }
        write(&image, &bytes, request.sector, sector..request.sectors);
    }
}

fn write(image: &File, bytes: &[u8], at: u64, sectors: std::ops::Range<u64>) {
    let part = (sectors.start * SECTOR_BYTES) as usize..(sectors.end * SECTOR_BYTES) as usize;
    image.write_all_at(&bytes[part], (at + sectors.start) * SECTOR_BYTES).expect("there is room");
}

fn succeed(command: &mut Command) {
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?} failed");
}
