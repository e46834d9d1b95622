//! Objects in a CannyLS store, each acknowledged when its put has returned: a bug, since that is before any sync.
//! `scripts/planted-power-cuts` plants it.
//!
//!     cannyls_puts make FILE                 # a new store
//!     cannyls_puts put FILE [sync]           # 60 objects, a line each; with `sync` after it was made durable
//!     cannyls_puts check FILE ACKNOWLEDGED   # 1: one is missing, 2: one is another, 3: the store cannot be opened

use std::process::ExitCode;

use cannyls::lump::LumpId;
use cannyls::nvm::FileNvm;
use cannyls::storage::Storage;

const STORE_BYTES: u64 = 8 << 20;
const OBJECTS: u8 = 60;

fn contents(object: u8) -> Vec<u8> {
    vec![object; 20_000]
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["make", file] => {
            let memory = FileNvm::create(file, STORE_BYTES).expect("the file can be made");
            Storage::create(memory).expect("a store can be made");
            ExitCode::SUCCESS
        }
        ["put", file, more @ ..] => {
            let memory = FileNvm::open(file).expect("the file can be opened");
            let mut store = Storage::open(memory).expect("it is a store");
            for object in 0..OBJECTS {
                let data = store.allocate_lump_data_with_bytes(&contents(object));
                let data = data.expect("it is not too large");
                store.put(&LumpId::new(object.into()), &data).expect("there is room");
                if *more == ["sync"] {
                    store.journal_sync().expect("the disk works");
                }
                println!("{object}");
            }
            ExitCode::SUCCESS
        }
        ["check", file, acknowledged] => check(file, acknowledged),
        _ => ExitCode::from(9),
    }
}

fn check(file: &str, acknowledged: &str) -> ExitCode {
    let Some(mut store) = FileNvm::open(file).ok().and_then(|memory| Storage::open(memory).ok())
    else {
        return ExitCode::from(3);
    };
    let lines = std::fs::read_to_string(acknowledged).expect("the acknowledgements are there");
    for object in lines.lines().map(|line| line.parse().expect("a line is a number")) {
        match store.get(&LumpId::new(u128::from(object))) {
            Ok(Some(data)) if data.as_bytes() == contents(object) => {}
            Ok(None) => return ExitCode::from(1),
            _ => return ExitCode::from(2),
        }
    }
    ExitCode::SUCCESS
}
