//! Changes of the files of a small result, all of which is then read, analysed and drawn.
#![no_main]

#[path = "../../kurabe/report/tests/harness/mod.rs"]
mod harness;

use std::sync::LazyLock;

use harness::hostile::{Files, exercise, files, matrix, mutate, rich, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static BASES: LazyLock<[Files; 2]> =
    LazyLock::new(|| [files(&rich()), files(&matrix())]);
/// Used again and again: every file of a result is written each time.
static ROOM: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("there is room"));

fuzz_target!(|input: &[u8]| {
    let Some((which, input)) = input.split_first() else { return };
    let mut changed = BASES[usize::from(which % 2)].clone();
    mutate(&mut changed, input);
    let directory = ROOM.path().join(if which % 2 == 0 { "rich" } else { "matrix" });
    write(&directory, &changed);
    exercise(&directory);
});
