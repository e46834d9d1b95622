//! The aged file systems of a study: each is made once, kept in kurabe's own directory, and handed to every trial.
//!
//! An image is named after all that it follows from: the profile, the seed, the kernel, the tools, the options of mkfs
//! and mount, the size. Next to it is a file that says so, with a checksum. It holds what the file system uses and
//! nothing else. Invariants: an image has its name only once it is whole; whoever has one has it open, so that
//! removing it disturbs nobody; one that is not what its checksum says is made again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::contender::Contender;
use lab::event::Event;
use lab::quantity::{about_text, size_text};
use lab::record::{Layout, Outcome, Phase, Record};
use lab::spec::{Aged, Cache, CommandLine, OutputTarget, SCHEMA_VERSION, TrialSpec, Workload};
use lab::study::Study;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trial::aged::{data_of, told};
use trial::device;
use trial::filesystem;
use trust::{Directory, LockError};
use vocabulary::kind::WorkloadSpec;
use workloads::age;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::processes::Processes;
use crate::exit::Failure;
use crate::runner::Executor;

/// The directory of the images in kurabe's own.
const DIRECTORY: &str = "aged";
/// Raised whenever the same profile comes to another history.
const FORMAT: u32 = 3;
/// The longest that ageing may take.
const AGEING_MAX: Duration = Duration::from_secs(6 * 3600);
/// Space that an image leaves free where it is kept.
const RESERVE_BYTES: u64 = 512 << 20;
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// How long another kurabe is waited for that makes the same image.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(3600);
const CHUNK_BYTES: usize = 4 << 20;

/// What has aged, and what has to.
#[derive(Default)]
pub struct AgedImages {
    /// By the name of the image.
    ready: BTreeMap<String, Ready>,
}

/// An image that is open.
struct Ready {
    image: File,
    holes_are_zero: bool,
    lock: AgedImageLock,
}

/// The file next to an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AgedImageLock {
    /// What it follows from.
    origin: Value,
    /// Size of the device in bytes.
    size_bytes: u64,
    /// Bytes that it holds.
    data_bytes: u64,
    /// Of these and of where they are.
    checksum: String,
    /// What making it took.
    ageing_ns: u64,
    /// How the files lay at the end.
    layout: Option<Layout>,
}

/// What is in the way of a contender that is to be aged, on a device of this size.
pub fn problems(study: &Study, contender: &Contender, size_bytes: Option<u64>) -> Vec<String> {
    let Some(profile) = &contender.aged else { return Vec::new() };
    let mut problems = Vec::new();
    problems
        .extend(filesystem::by_name(contender.file_system()).and_then(|one| one.why_not_aged()));
    if contender.environment.guest().is_some() {
        problems.push("what runs in a guest cannot be aged; leave 'on' or 'aged' out".into());
    }
    if profile.starts_with('/') {
        problems.extend(open_image(profile, size_bytes).err());
        return problems;
    }
    let age = age_of(study, profile);
    match age {
        Err(problem) => problems.push(problem),
        Ok(Some(age)) => problems.extend(size_bytes.and_then(|bytes| age.check(bytes).err())),
        Ok(None) => {}
    }
    problems
}

/// The profile that is the user's own command.
const OWN: &str = "own";
/// The key of a profile after which a command of the user's follows.
const THEN: &str = "then";

/// The profile without [`THEN`], and whether it had it.
fn then_of(profile: &str) -> (String, bool) {
    let (name, keys) = profile.split_once(':').unwrap_or((profile, ""));
    let (name, own_keys) = name.split_once(',').unwrap_or((name, ""));
    let keys: Vec<&str> =
        own_keys.split(',').chain(keys.split(',')).filter(|key| !key.is_empty()).collect();
    let left: Vec<&str> = keys.iter().copied().filter(|key| *key != THEN).collect();
    let rest = if left.is_empty() { String::new() } else { format!(":{}", left.join(",")) };
    (format!("{name}{rest}"), left.len() < keys.len())
}

/// The history that a profile names; absent for the user's own command.
fn age_of(study: &Study, profile: &str) -> Result<Option<age::Age>, String> {
    let (profile, is_then) = then_of(profile);
    if is_then && study.then.is_none() {
        return Err(
            "a profile with 'then' needs the command that follows; give --then COMMAND".into()
        );
    }
    if is_then && study.user.is_some() {
        return Err("the command of --then runs as root; leave --then or --user out".into());
    }
    match (profile.as_str(), &study.age) {
        (OWN, Some(_)) => Ok(None),
        (OWN, None) => Err("'aged own' needs a command that ages it; give --age COMMAND".into()),
        _ => age::Age::parse(&profile).map(Some).map_err(|problem| format!("aged: {problem}")),
    }
}

/// Whether a file begins as an image of QEMU's own format does.
fn is_qcow(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"QFI\xfb"
}

/// Opens an image that somebody provides.
fn open_image(path: &str, device_bytes: Option<u64>) -> Result<(File, u64), String> {
    let opened =
        trust::file::open(Path::new(path)).map_err(|refused| format!("aged: {refused}"))?;
    let facts = opened.metadata().map_err(|error| format!("aged: {path}: {error}"))?;
    match device_bytes {
        _ if !facts.is_file() => Err(format!("aged: {path} is no image file; name a raw image")),
        _ if facts.len() == 0 => Err(format!("aged: {path} is empty")),
        _ if is_qcow(&opened) => Err(format!(
            "aged: {path} is a qcow2 image, and kurabe takes raw ones; qemu-img convert -O raw {path} {path}.raw"
        )),
        Some(device) if facts.len() > device => Err(format!(
            "aged: {path} has {} and the device of a contender {}; give a larger --device",
            about_text(facts.len()),
            about_text(device)
        )),
        _ => Ok((opened, facts.len())),
    }
}

impl AgedImages {
    /// Makes the image of a contender for a device of this size, or finds the one that is kept.
    pub fn ensure(
        &mut self,
        study: &Study,
        contender: &Contender,
        size_bytes: u64,
        processes: &mut Processes,
        say: &dyn Fn(&str),
    ) -> Result<(), Failure> {
        let Some(profile) = &contender.aged else { return Ok(()) };
        let name = name_of(study, contender, size_bytes);
        if self.ready.contains_key(&name) {
            return Ok(());
        }
        let ready = if profile.starts_with('/') {
            let (image, bytes) = open_image(profile, Some(size_bytes)).map_err(Failure::refused)?;
            let origin = json!({ "image": profile });
            let lock = AgedImageLock {
                origin,
                size_bytes: bytes,
                data_bytes: bytes,
                checksum: String::new(),
                ageing_ns: 0,
                layout: None,
            };
            Ready { image, holes_are_zero: true, lock }
        } else {
            let own = processes.own.open_or_make_directory(DIRECTORY, 0o700);
            let own = own.map_err(Failure::broken)?;
            let mut maker = AgedImageMaker { study, contender, size_bytes, processes, say };
            maker.found_or_made(&own, &name)?
        };
        self.ready.insert(name, ready);
        Ok(())
    }

    /// What a trial is told of the image of its contender.
    pub fn of(&self, study: &Study, contender: &Contender, size_bytes: u64) -> Option<Aged> {
        let ready = self.ready.get(&name_of(study, contender, size_bytes))?;
        let image = told(&ready.image, ready.holes_are_zero).ok()?;
        let (size_bytes, layout) = (ready.lock.size_bytes, ready.lock.layout.clone());
        Some(Aged { image: Some(image), size_bytes, layout })
    }

    /// What the result says of them.
    pub fn facts(&self) -> Value {
        let all = self.ready.iter().map(|(name, ready)| {
            let AgedImageLock { origin, size_bytes, data_bytes, checksum, ageing_ns, .. } =
                &ready.lock;
            json!({
                "image": name,
                "origin": origin,
                "size_bytes": size_bytes,
                "data_bytes": data_bytes,
                "checksum": checksum,
                "ageing_ns": ageing_ns,
            })
        });
        all.collect()
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}

/// Removes all images, and says how many they were.
pub fn remove_all(own: &Directory) -> Result<usize, Failure> {
    if !own.has(DIRECTORY) {
        return Ok(0);
    }
    let names =
        own.open_directory(DIRECTORY).and_then(|images| images.names()).map_err(Failure::broken)?;
    own.remove_tree(DIRECTORY).map_err(Failure::broken)?;
    Ok(names.iter().filter(|name| name.to_string_lossy().ends_with(IMAGE)).count())
}

/// Removes images whose making was killed, and says how many they were.
pub fn remove_unfinished(own: &Directory) -> Result<usize, Failure> {
    if !own.has(DIRECTORY) {
        return Ok(0);
    }
    let images = own.open_directory(DIRECTORY).map_err(Failure::broken)?;
    let mut removed = 0;
    for file in images.names().map_err(Failure::broken)? {
        let name = file.to_str().and_then(|file| file.strip_prefix('.')?.strip_suffix(PART));
        // Whoever makes it has the lock.
        if let Some(name) = name
            && let Ok(_lock) = images.lock(format!("{name}{LOCKED}"))
            && images.has(&file)
        {
            images.remove_file(&file).map_err(Failure::broken)?;
            removed += 1;
        }
    }
    Ok(removed)
}

const PART: &str = ".part";
const IMAGE: &str = ".img";
const FACTS: &str = ".json";
const LOCKED: &str = ".lock";

/// All that an image follows from.
fn origin_of(study: &Study, contender: &Contender, size_bytes: u64) -> Value {
    let base = contender.base();
    let file_system = filesystem::by_name(&base.name);
    let tools = file_system.map(|one| one.tools).unwrap_or_default();
    let mut versions: Vec<String> =
        tools.iter().filter_map(|tool| tool.installed_version()).collect();
    let profile = contender.aged.as_deref().unwrap_or_default();
    if let Ok(Some(age)) = age_of(study, profile) {
        versions.extend(age.tools().iter().filter_map(|tool| tool.version().ok()));
    }
    let is_own = then_of(profile).0 == OWN;
    let mut origin = json!({
        "format": FORMAT,
        "profile": profile,
        "command": study.age.as_ref().filter(|_| is_own),
        "then": study.then.as_ref().filter(|_| then_of(profile).1),
        "seed": age::SEED,
        "file_system": base.name,
        "mkfs_options": base.options,
        "mount_options": base.mount_options,
        "discard": false,
        "size": size_text(size_bytes),
        "kernel": rustix::system::uname().release().to_string_lossy(),
        "tools": versions,
    });
    if let Some(user) = study.user.as_ref().filter(|_| is_own) {
        origin["user"] = user.as_str().into();
    }
    origin
}

/// The name of an image, without what says of which kind a file is.
fn name_of(study: &Study, contender: &Contender, size_bytes: u64) -> String {
    let profile = contender.aged.as_deref().unwrap_or_default();
    let origin = origin_of(study, contender, size_bytes).to_string();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let profile: String = profile.chars().map(plain).take(40).collect();
    let size = size_text(size_bytes);
    format!("{}-{profile}-{size}-{:016x}", contender.file_system(), xxh3_64(origin.as_bytes()))
}

/// The sum of what an image holds, and how much that is.
fn checksum(image: &File, size_bytes: u64) -> std::io::Result<(String, u64)> {
    let mut sum = Xxh3Default::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut data_bytes = 0;
    sum.update(&size_bytes.to_le_bytes());
    for place in data_of(image, size_bytes)? {
        sum.update(&place.start.to_le_bytes());
        sum.update(&place.end.to_le_bytes());
        data_bytes += place.end - place.start;
        let mut at = place.start;
        while at < place.end {
            let length = (place.end - at).min(CHUNK_BYTES as u64) as usize;
            image.read_exact_at(&mut buffer[..length], at)?;
            sum.update(&buffer[..length]);
            at += length as u64;
        }
    }
    Ok((format!("{:032x}", sum.digest128()), data_bytes))
}

struct AgedImageMaker<'a> {
    study: &'a Study,
    contender: &'a Contender,
    size_bytes: u64,
    processes: &'a mut Processes,
    say: &'a dyn Fn(&str),
}

impl AgedImageMaker<'_> {
    fn found_or_made(&mut self, own: &Directory, name: &str) -> Result<Ready, Failure> {
        let begun = Instant::now();
        let _lock = loop {
            match own.lock(format!("{name}{LOCKED}")) {
                Ok(lock) => break lock,
                Err(LockError::Held { .. }) if begun.elapsed() < LOCK_WAIT_MAX => {
                    std::thread::sleep(LOCK_WAIT)
                }
                Err(error) => {
                    return Err(Failure::broken(format!("the aged image {name}: {error}")));
                }
            }
        };
        match self.kept(own, name) {
            Ok(Some(ready)) => return Ok(ready),
            Ok(None) => {}
            Err(why) => {
                (self.say)(&format!("the aged image {name} {why}; it is made again"));
                for end in [IMAGE, FACTS] {
                    let file = format!("{name}{end}");
                    if own.has(&file) {
                        own.remove_file(&file).map_err(Failure::broken)?;
                    }
                }
            }
        }
        self.make(own, name)
    }

    /// The image that is kept; why it cannot be used, where there is one that cannot.
    fn kept(&self, own: &Directory, name: &str) -> Result<Option<Ready>, String> {
        let (image, facts) = (format!("{name}{IMAGE}"), format!("{name}{FACTS}"));
        if !own.has(&image) && !own.has(&facts) {
            return Ok(None);
        }
        let text = own.read_text(&facts).map_err(|refused| format!("cannot be used: {refused}"))?;
        let lock: AgedImageLock = serde_json::from_str(&text)
            .map_err(|error| format!("has facts that cannot be read ({error})"))?;
        let image =
            own.open_file(&image).map_err(|refused| format!("cannot be used: {refused}"))?;
        let (sum, _) = checksum(&image, lock.size_bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        let length = image.metadata().map_err(|error| error.to_string())?.len();
        if sum != lock.checksum || length != self.size_bytes || lock.size_bytes != length {
            return Err("is not what its checksum says".into());
        }
        Ok(Some(Ready { image, holes_are_zero: false, lock }))
    }

    fn make(&mut self, own: &Directory, name: &str) -> Result<Ready, Failure> {
        let label = &self.contender.label;
        let profile = self.contender.aged.clone().unwrap_or_default();
        let free = rustix::fs::fstatvfs(own.descriptor()).map_err(Failure::broken)?;
        let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
        if self.size_bytes.saturating_add(RESERVE_BYTES) > free_bytes {
            return Err(Failure::refused(format!(
                "contender '{label}': its aged image may need {}, and {} has {} free; free some space, give a smaller --device, or name another directory by KURABE_HOME",
                about_text(self.size_bytes),
                own.path().display(),
                about_text(free_bytes)
            )));
        }
        (self.say)(&format!(
            "ageing {} by {profile}, once; the image is kept",
            self.contender.file_system()
        ));
        let begun = Instant::now();
        let image = own.create_file(unfinished(name), 0o600);
        let image = match image {
            // Of one who was killed: the lock is this process's.
            Err(refused) if refused.exists() => {
                own.remove_file(unfinished(name)).map_err(Failure::broken)?;
                own.create_file(unfinished(name), 0o600)
            }
            image => image,
        };
        let image = image.map_err(Failure::broken)?;
        let made = self.fill(&image, begun, own, name);
        if made.is_err() {
            own.remove_file(unfinished(name)).map_err(Failure::broken)?;
        }
        made
    }

    fn fill(
        &mut self,
        image: &File,
        begun: Instant,
        own: &Directory,
        name: &str,
    ) -> Result<Ready, Failure> {
        let label = self.contender.label.clone();
        let size_bytes = self.size_bytes;
        let aged = self.trial(image, self.ageing(), None)?;
        let trimmed = Aged { image: None, size_bytes, layout: None };
        let trim = CommandLine::Words(["fstrim", "."].map(String::from).into());
        self.trial(image, workload("trim", trim), Some(trimmed))?;
        let broken = |error: std::io::Error| {
            Failure::broken(format!("the aged image of '{label}': {error}"))
        };
        image.sync_all().map_err(broken)?;
        let (checksum, data_bytes) = checksum(image, size_bytes).map_err(broken)?;
        let ageing = begun.elapsed();
        let lock = AgedImageLock {
            origin: origin_of(self.study, self.contender, size_bytes),
            size_bytes,
            data_bytes,
            checksum,
            ageing_ns: ageing.as_nanos() as u64,
            layout: aged.layout_after,
        };
        let text = serde_json::to_vec_pretty(&lock).expect("it has a JSON form");
        own.replace(format!("{name}{FACTS}"), &text, 0o600).map_err(Failure::broken)?;
        own.rename(unfinished(name), format!("{name}{IMAGE}")).map_err(Failure::broken)?;
        own.sync().map_err(Failure::broken)?;
        (self.say)(&format!(
            "aged in {} s; {} are kept in {}",
            ageing.as_secs(),
            about_text(data_bytes),
            own.path().display()
        ));
        let image = own.open_file(format!("{name}{IMAGE}")).map_err(Failure::broken)?;
        Ok(Ready { image, holes_are_zero: false, lock })
    }

    /// The command that ages the file system that it is started in.
    fn ageing(&self) -> Workload {
        let (profile, is_then) = then_of(self.contender.aged.as_deref().unwrap_or_default());
        let command = match (&self.study.age, profile.as_str()) {
            (Some(command), OWN) => command.clone(),
            _ => {
                let (size, seed) = (self.size_bytes.to_string(), age::SEED.to_string());
                // What is copied happens next to the mount point, on the disk of kurabe's own directory.
                let words = [
                    "/proc/self/exe",
                    "age",
                    &profile,
                    "--size",
                    &size,
                    "--seed",
                    &seed,
                    "--elsewhere",
                    "..",
                ];
                CommandLine::Words(words.map(String::from).into())
            }
        };
        let then = self.study.then.clone().filter(|_| is_then);
        Workload { cleanup: then, ..workload("ageing", command) }
    }

    /// Carries a trial out on the image, all of it.
    fn trial(
        &mut self,
        image: &File,
        workload: Workload,
        aged: Option<Aged>,
    ) -> Result<Record, Failure> {
        let is_trim = aged.is_some();
        let is_own = then_of(self.contender.aged.as_deref().unwrap_or_default()).0 == OWN;
        let file = image.try_clone().map_err(Failure::broken)?;
        let kept = device::kept(file, self.size_bytes).map_err(Failure::broken)?;
        let spec = TrialSpec {
            schema: SCHEMA_VERSION,
            trial: 0,
            order_seed: 0,
            block: 0,
            warmup: false,
            contender: Contender {
                layers: vec![self.contender.base().clone()],
                above: 0,
                ..self.contender.fresh()
            },
            directory_identity: None,
            device: Some(kept.device().clone()),
            aged,
            measure_layout: !is_trim,
            side_by_side: None,
            node: None,
            workload,
            power_cuts: None,
            node_death: None,
            cache: Cache::Warm,
            timeout_ns: Some(AGEING_MAX.as_nanos() as u64),
            idle_wait_ns_max: 0,
            // What the file system uses, and nothing else, is to be in the image.
            discard: is_trim,
            trace: None,
            // A command of the study's runs as the user; the profiles are kurabe's own.
            user: self.study.user.clone().filter(|_| is_own && !is_trim),
            scratch: std::path::PathBuf::new(),
            output: OutputTarget::Null,
        };
        let usual = self.processes.device.replace(kept);
        let record = self.processes.execute(&spec, &mut |_: &Event| {});
        self.processes.device = usual;
        let label = &self.contender.label;
        match &record.outcome {
            Outcome::Completed => Ok(record),
            Outcome::Interrupted { .. } => {
                Err(Failure::broken("the study was stopped while a file system was being aged"))
            }
            // A file system that cannot be trimmed is kept whole.
            Outcome::Failed { phase: Phase::Run, .. } if is_trim => Ok(record),
            Outcome::Failed { phase, message, output } => {
                let output: String = output.lines().map(|line| format!("\n    {line}")).collect();
                Err(Failure::refused(format!(
                    "contender '{label}': ageing it: {}: {message}{output}",
                    phase.name()
                )))
            }
            Outcome::TimedOut { phase, .. } => Err(Failure::broken(format!(
                "contender '{label}': ageing it took longer than {} h ({})",
                AGEING_MAX.as_secs() / 3600,
                phase.name()
            ))),
        }
    }
}

/// The name of an image that is being made.
fn unfinished(name: &str) -> String {
    format!(".{name}{PART}")
}

fn workload(name: &str, command: CommandLine) -> Workload {
    Workload::of(name, WorkloadSpec::of_command(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_a_key_of_every_profile() {
        for (text, profile, is_then) in [
            ("git:200", "git:200", false),
            ("git:200,then", "git:200", true),
            ("git:200,then,copied", "git:200,copied", true),
            ("churn:then", "churn", true),
            ("own,then", "own", true),
            ("own", "own", false),
        ] {
            assert_eq!(then_of(text), (profile.to_string(), is_then), "{text}");
        }
    }
}
