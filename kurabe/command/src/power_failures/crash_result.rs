//! The file of a result of `kurabe crash`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lab::contender::Contender;
use lab::quantity::size_text;
use lab::record::Check;
use lab::spec::{CommandLine, PowerCuts, WorkloadSpec};
use serde::{Deserialize, Serialize};
use trial::crash::CrashReport;
use trial::facts::MachineFacts;
use trust::Directory;
use xxhash_rust::xxh3::Xxh3;

use super::crash::control_states;

/// What lies in a result beside the recordings.
pub const RESULT_FILE: &str = "crash.json";
/// Greatest size of that file that is read again.
const RESULT_BYTES_MAX: u64 = 1 << 30;
/// What was asked and found: the file of a result.
#[derive(Debug, Serialize, Deserialize)]
pub struct CrashResult {
    pub size_bytes: u64,
    /// Where there are several devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices_bytes: Vec<u64>,
    pub seed: u64,
    pub asked: Verifier,
    pub check_directory: PathBuf,
    pub check_timeout_ns: u64,
    pub contenders: Vec<JudgedContender>,
    /// Absent in results of earlier versions, as all that follows.
    pub made: Option<Provenance>,
    /// Which share of the states this is; absent for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<CrashShard>,
    /// Whether a layer of several members lost one of them with the power.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lose_member: bool,
}

impl CrashResult {
    /// What its trials cut, with so many states each.
    pub fn cuts(&self, states: usize) -> PowerCuts {
        PowerCuts {
            size_bytes: self.size_bytes,
            devices_bytes: self.devices_bytes.clone(),
            check_directory: self.check_directory.clone(),
            check_timeout_ns: self.check_timeout_ns,
            lose_member: self.lose_member,
            states,
            control_states: control_states(states),
            flushes: control_states(states) / 3,
            seed: self.seed,
            ..PowerCuts::default()
        }
    }
}

/// A share of the states of the recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashShard {
    /// Its number, from 1.
    pub number: u32,
    pub of: u32,
    /// States of each contender, in all shards together.
    pub states: usize,
    /// Whether checks may run at the same time.
    pub parallel_checks: bool,
    /// Whether its states have been tried.
    pub is_tried: bool,
}

/// When, where and how a result was made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// In ns since 1970.
    pub started_unix_ns: u64,
    pub kernel: String,
    pub kurabe_version: String,
    pub command_line: Vec<String>,
}

impl Provenance {
    pub fn now() -> Provenance {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let MachineFacts { kernel, kurabe_version, .. } = MachineFacts::read();
        Provenance {
            started_unix_ns: started.as_nanos() as u64,
            kernel,
            kurabe_version,
            command_line: std::env::args().collect(),
        }
    }
}

impl CrashResult {
    /// What the power was cut on, in words.
    pub fn device_text(&self) -> String {
        let sizes: Vec<String> = self.devices_bytes.iter().map(|one| size_text(*one)).collect();
        match sizes.len() {
            0 => format!("a disk of {} in memory", size_text(self.size_bytes)),
            count => format!("{count} disks in memory, of {}", sizes.join(", ")),
        }
    }
}

/// Who says whether what was acknowledged is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verifier {
    /// The user's check.
    Check(CommandLine),
    /// A workload of kurabe's own.
    OwnLoad {
        load: WorkloadSpec,
        /// The seed of its trial.
        order_seed: u64,
    },
}

/// One contender of a result. Its recording lies in a file of its number.
#[derive(Debug, Serialize, Deserialize)]
pub struct JudgedContender {
    pub contender: Contender,
    /// What was found, or why nothing could be.
    pub outcome: Result<CrashReport, String>,
    /// The same as a study has it.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What its recording is known by; absent in results of earlier versions.
    pub seal: Option<Seal>,
}

impl JudgedContender {
    /// Refuses a recording that is not the contender's: cut off on its way, or another one's. States that were made
    /// of it would be blamed on the file system.
    pub fn believe(&self, data: &File) -> Result<(), String> {
        let Some(seal) = &self.seal else { return Ok(()) };
        let found = Seal::of(data).map_err(|error| format!("its recording: {error}"))?;
        if found == *seal {
            return Ok(());
        }
        Err(format!(
            "the recording of {} is not the one that was made ({} bytes instead of {}, or others); copy the result again",
            self.contender.label, found.bytes, seal.bytes
        ))
    }
}

/// What a recording is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    pub bytes: u64,
    /// XXH3 of its bytes, 64 bits.
    pub xxh3: u64,
}

impl Seal {
    /// Of a file, from its beginning.
    pub fn of(data: &File) -> io::Result<Seal> {
        let (mut hash, mut bytes) = (Xxh3::new(), 0);
        let mut piece = vec![0; 1 << 20];
        loop {
            match data.read_at(&mut piece, bytes)? {
                0 => return Ok(Seal { bytes, xxh3: hash.digest() }),
                read => {
                    hash.update(&piece[..read]);
                    bytes += read as u64;
                }
            }
        }
    }
}

pub fn recording_file(number: usize) -> String {
    format!("recording-{}.data", number + 1)
}

pub fn read(path: &Path) -> Result<(Directory, CrashResult), String> {
    let directory = Directory::open(path).map_err(|error| error.to_string())?;
    let bytes = directory
        .read(RESULT_FILE, RESULT_BYTES_MAX)
        .map_err(|error| format!("{error}; name the directory of a 'kurabe crash'"))?;
    let result = serde_json::from_slice(&bytes).map_err(|error| {
        format!("{RESULT_FILE}: {error}; only the version of kurabe that made it can read it")
    })?;
    Ok((directory, result))
}
