//! Random scripts on a volume, and what a power cut may leave of them: shared by the crash tests of the
//! library and of the kernel's module.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use block::MemoryDevice;
use crash::{FlushPolicy, Instant, LostWrites, RequestRecorder, States};
use minfs::{MkfsOptions, MountOptions, Volume, fsck, mkfs};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEVICE_BYTES: u64 = 200 << 10;
pub const OPERATIONS: usize = 40;
const STALE: u8 = 0xee;

/// All contents that a file may show after a crash: what is durable, then each later version.
#[derive(Clone, Debug, PartialEq)]
pub struct FileModel {
    versions: Vec<Vec<u8>>,
}

impl FileModel {
    fn new(content: Vec<u8>) -> Self {
        Self { versions: vec![content] }
    }

    fn current(&self) -> &Vec<u8> {
        self.versions.last().unwrap()
    }

    fn settle(&mut self) {
        self.versions = vec![self.current().clone()];
    }

    fn admits(&self, found: &[u8]) -> Result<(), String> {
        if !self.versions.iter().any(|version| version.len() == found.len()) {
            let sizes: Vec<_> = self.versions.iter().map(Vec::len).collect();
            return Err(format!("{} bytes long, expected one of {sizes:?}", found.len()));
        }
        for (index, byte) in found.iter().enumerate() {
            let is_known = |version: &Vec<u8>| version.get(index).copied().unwrap_or(0) == *byte;
            if !self.versions.iter().any(is_known) {
                return Err(format!("byte {index} is {byte:#x}, which it never was"));
            }
        }
        Ok(())
    }
}

pub type Model = BTreeMap<Vec<u8>, FileModel>;

/// The states between two acknowledgements: after the instant `begun` the operation began.
pub struct Step {
    begun: Instant,
    before: Model,
    after: Model,
    what: String,
}

pub struct Script {
    pub states: States,
    pub end: Instant,
    pub steps: Vec<Step>,
}

pub fn new_image(block_size: u32) -> Vec<u8> {
    let device = MemoryDevice::from_image(&vec![STALE; DEVICE_BYTES as usize], block_size);
    let options = MkfsOptions { files: Some(8), ..Default::default() };
    mkfs(&device, &options).unwrap();
    device.image()
}

/// What a script is played on. Each operation says whether it was done.
pub trait Target {
    fn create(&mut self, name: &[u8]) -> bool;
    fn unlink(&mut self, name: &[u8]) -> bool;
    fn rename(&mut self, from: &[u8], to: &[u8]) -> bool;
    fn truncate(&mut self, name: &[u8], size: u64) -> bool;
    fn preallocate(
        &mut self,
        name: &[u8],
        offset: u64,
        length: u64,
        keep: bool,
        zero: bool,
    ) -> bool;
    /// Opens the file and keeps it open.
    fn hold(&mut self, name: &[u8]) -> bool;
    /// Closes one of the files that are kept open.
    fn drop_held(&mut self, index: usize);
    fn sync(&mut self, name: &[u8]);
    fn write(&mut self, name: &[u8], bytes: &[u8], offset: u64) -> bool;
    fn unmount(&mut self);
}

pub struct Player<T> {
    target: T,
    random: ChaCha8Rng,
    model: Model,
    held: usize,
    writes: u64,
    /// The file of which the operation, once acknowledged, has made everything durable. While it
    /// is under way, older bytes may still show.
    settled: Option<Vec<u8>>,
}

impl<T: Target> Player<T> {
    fn name(&mut self) -> Vec<u8> {
        vec![b'a' + self.random.random_range(0..6_u8)]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        self.writes += 1;
        let mut random = ChaCha8Rng::seed_from_u64(self.writes);
        (0..length).map(|_| random.random_range(1..0xd0)).collect()
    }

    /// Plays one operation on the volume and the model; returns what it was.
    fn play(&mut self) -> String {
        let name = self.name();
        let shown = String::from_utf8_lossy(&name).into_owned();
        match self.random.random_range(0..100) {
            0..12 => {
                if self.target.create(&name) {
                    self.model.insert(name, FileModel::new(Vec::new()));
                }
                format!("create {shown}")
            }
            12..22 => {
                if self.target.unlink(&name) {
                    self.model.remove(&name).unwrap();
                }
                format!("unlink {shown}")
            }
            22..34 => {
                let to = self.name();
                if self.target.rename(&name, &to) && name != to {
                    let file = self.model.remove(&name).unwrap();
                    self.model.insert(to.clone(), file);
                    self.settled = Some(to.clone());
                }
                format!("rename {shown} to {}", String::from_utf8_lossy(&to))
            }
            34..40 => {
                let size = self.random.random_range(0..30_000);
                if let Some(model) = self.model.get_mut(&name)
                    && model.current().len() as u64 != size
                {
                    assert!(self.target.truncate(&name, size), "truncate {shown}");
                    for version in &mut model.versions {
                        version.resize(size as usize, 0);
                    }
                    self.settled = Some(name);
                }
                format!("truncate {shown} to {size}")
            }
            40..46 => {
                let (offset, length) =
                    (self.random.random_range(0..20_000), self.random.random_range(1..20_000));
                let (keep, zero) = (self.random.random(), self.random.random());
                if let Some(model) = self.model.get_mut(&name)
                    && self.target.preallocate(&name, offset, length, keep, zero)
                {
                    let end = (offset + length) as usize;
                    if !keep && model.current().len() < end {
                        for version in &mut model.versions {
                            version.resize(end, 0);
                        }
                        self.settled = Some(name);
                    }
                }
                format!("preallocate {shown} {offset}+{length} keep {keep} zero {zero}")
            }
            46..50 => {
                if self.held < 2 {
                    self.held += usize::from(self.target.hold(&name));
                } else {
                    let index = self.random.random_range(0..2);
                    self.target.drop_held(index);
                    self.held -= 1;
                }
                "hold or drop a handle".into()
            }
            50..70 => {
                if self.model.contains_key(&name) {
                    self.target.sync(&name);
                    self.settled = Some(name);
                }
                format!("sync {shown}")
            }
            _ => self.play_write(name),
        }
    }

    fn play_write(&mut self, name: Vec<u8>) -> String {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let Some(file) = self.model.get(&name) else { return format!("no write to {shown}") };
        let size = file.current().len() as u64;
        let (offset, length) = match self.random.random_range(0..4) {
            // Appends are the most interesting, since they move the valid length in order.
            0 | 1 => (size, self.random.random_range(1..9000)),
            2 => (self.random.random_range(0..size + 3000), self.random.random_range(1..9000)),
            _ => (
                self.random.random_range(0..=size / 4096) * 4096,
                4096 * self.random.random_range(1..3),
            ),
        };
        let bytes = self.bytes(length as usize);
        if self.target.write(&name, &bytes, offset) {
            let model = self.model.get_mut(&name).unwrap();
            let mut content = model.current().clone();
            let end = (offset + length) as usize;
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(&bytes);
            model.versions.push(content);
        }
        format!("write {shown} {offset}+{length}")
    }
}

/// Plays a script of so many operations on `target`, whose device `now` tells the instant, and says what
/// each step may leave.
pub fn play<T: Target>(
    target: T,
    mut random: ChaCha8Rng,
    operations: usize,
    now: impl Fn() -> Instant,
) -> Vec<Step> {
    let writes = random.next_u64();
    let mut player = Player { target, random, model: Model::new(), held: 0, writes, settled: None };
    let mut steps = Vec::new();
    for _ in 0..operations {
        let begun = now();
        let before = player.model.clone();
        let what = player.play();
        steps.push(Step { begun, before, after: player.model.clone(), what });
        if let Some(file) = player.settled.take().and_then(|name| player.model.get_mut(&name)) {
            file.settle();
        }
    }
    let begun = now();
    let before = player.model.clone();
    let mut after = before.clone();
    after.values_mut().for_each(FileModel::settle);
    player.target.unmount();
    steps.push(Step { begun, before, after, what: "unmount".into() });
    steps
}

/// What power cuts could leave of a recording that began with `base`.
pub fn states(base: &[u8], recorder: &RequestRecorder<MemoryDevice>) -> States {
    let before = Arc::new(MemoryDevice::from_image(base, 512));
    States::new(Arc::new(recorder.recording()), before, FlushPolicy::Kept)
}

/// All files of a volume.
pub fn contents(volume: &Volume) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    for facts in volume.list() {
        let file = volume.open(&facts.name).map_err(|error| error.to_string())?;
        let mut content = vec![0; facts.size as usize];
        let length = file.read(&mut content, 0).map_err(|error| error.to_string())?;
        if length != content.len() {
            return Err(format!("a read returned {length} of {} bytes", content.len()));
        }
        found.insert(facts.name, content);
    }
    Ok(found)
}

fn admits(model: &Model, found: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String> {
    let names = |keys: Vec<&Vec<u8>>| -> Vec<String> {
        keys.into_iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    };
    if !model.keys().eq(found.keys()) {
        let (found, expected) = (names(found.keys().collect()), names(model.keys().collect()));
        return Err(format!("the names are {found:?}, expected {expected:?}"));
    }
    for (name, file) in model {
        let shown = String::from_utf8_lossy(name);
        file.admits(&found[name]).map_err(|why| format!("{shown}: {why}"))?;
    }
    Ok(())
}

/// Mounts and checks one image. `candidates` are the models of which one must hold.
fn check_image(image: &[u8], candidates: &[&Model], also_crash_again: bool) -> Result<(), String> {
    let memory = MemoryDevice::from_image(image, 512);
    let device = Arc::new(RequestRecorder::in_memory(memory).unwrap());
    let report = fsck(&device, false).map_err(|error| format!("fsck: {error}"))?;
    if !report.is_clean() {
        return Err(format!("fsck: {:?}", report.findings));
    }
    let volume = Volume::mount(device.clone(), &MountOptions::default())
        .map_err(|error| format!("mount: {error}"))?;
    if let Some(reason) = volume.read_only_reason() {
        return Err(format!("mounted read-only: {reason}"));
    }
    let found = contents(&volume)?;
    let mut reasons = Vec::new();
    for model in candidates {
        match admits(model, &found) {
            Ok(()) => reasons.clear(),
            Err(why) => reasons.push(why),
        }
        if reasons.is_empty() {
            break;
        }
    }
    if !reasons.is_empty() {
        return Err(reasons.join("; or "));
    }
    // Whatever was recovered must stay, also when all free space is filled with other bytes and
    // the power fails again.
    if let Ok(file) = volume.create(b"filler", 0o600) {
        let free = volume.space().free_bytes;
        if free > 0 {
            file.write(&vec![0xfb; free as usize], 0).map_err(|error| error.to_string())?;
        }
        file.sync().map_err(|error| error.to_string())?;
    }
    let mut after = contents(&volume)?;
    after.remove(b"filler".as_slice());
    if after != found {
        return Err("filling the free space changed another file".into());
    }
    if also_crash_again {
        let states = states(image, &device);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for instant in 0..=device.now() {
            for loss in [LostWrites::All, LostWrites::AllButOne, LostWrites::Sectors] {
                let again = states.disk(&states.state(instant, loss, &mut random));
                let volume = Volume::mount(Arc::new(again), &MountOptions::default())
                    .map_err(|error| format!("second mount: {error}"))?;
                let mut second = contents(&volume)?;
                second.remove(b"filler".as_slice());
                if second != found {
                    return Err(format!("a second crash at {instant} ({loss:?}) lost content"));
                }
            }
        }
    }
    Ok(())
}

/// Visits every instant of the script, several states each; returns how many.
pub fn enumerate(script: &Script, seed: u64) -> Result<u64, String> {
    let mut states = 0;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for instant in 0..=script.end {
        let current = script.steps.iter().rposition(|step| step.begun <= instant).unwrap_or(0);
        let step = &script.steps[current];
        // Steps without requests share an instant: all that were acknowledged there count, and the
        // last may be under way.
        let candidates =
            if instant == script.end { vec![&step.after] } else { vec![&step.before, &step.after] };
        for loss in [
            LostWrites::All,
            LostWrites::Nothing,
            LostWrites::One,
            LostWrites::AllButOne,
            LostWrites::Half,
            LostWrites::Half,
            LostWrites::Sectors,
            LostWrites::Sectors,
        ] {
            let state = script.states.state(instant, loss, &mut random);
            let image = script.states.disk(&state).image().unwrap();
            let also_crash_again = states % 40 == 7;
            check_image(&image, &candidates, also_crash_again).map_err(|why| {
                format!("seed {seed}, instant {instant}, {loss:?}, in {:?}: {why}", step.what)
            })?;
            states += 1;
        }
    }
    Ok(states)
}
