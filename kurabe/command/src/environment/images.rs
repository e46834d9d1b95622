//! The images of the guests of a study.

use std::collections::BTreeMap;

use guest::{Error, GuestMachine, Image, ImageLock, ImageStore, Kernel, Needs};
use lab::contender::Contender;
use serde_json::{Value, json};
use trial::filesystem;
use trial::lower;
use trial::memory_limit::available_bytes;
use trust::Directory;
use vocabulary::suggestion::did_you_mean;

use crate::exit::Failure;
use crate::terminal::note;

/// What many commands need; what else a command or a workload needs, a guest reads from this machine. fio's
/// libraries alone would be two thirds of an image, and each boot would unpack them.
const PACKERS: [&str; 4] = ["tar", "rm", "gzip", "xz"];
/// What programs that are packed read.
const FILES: &[&str] = &["/etc/mke2fs.conf"];

/// The images of a study's guests, ready to be booted.
pub struct GuestImages {
    images: BTreeMap<String, Image>,
    /// Their hardware.
    pub machine: GuestMachine,
}

impl GuestImages {
    /// Those that contenders name, built where they are not there.
    pub fn of(contenders: &[Contender], own: &Directory) -> Result<GuestImages, Failure> {
        let mut images: BTreeMap<String, Image> = BTreeMap::new();
        let store = ImageStore::open(own, lower::supplies())?;
        for contender in contenders {
            let Some(place) = contender.environment.guest() else { continue };
            if !images.contains_key(place) {
                let is_there = |one: &&Contender| one.environment.guest() == Some(place);
                let there = contenders.iter().filter(is_there);
                let there: Vec<&Contender> = there.collect();
                images.insert(place.to_string(), image(&store, place, &there)?);
            }
            if let Some(lacks) = lacks(contender, images[place].lock()) {
                return Err(Failure::refused(format!("contender '{}': {lacks}", contender.label)));
            }
        }
        let first = images.values().next().expect("a contender lives in a guest");
        let at_once = contenders.iter().map(|contender| contender.environment.nodes());
        let machine = store.machine(first, available_bytes().ok(), at_once.max().unwrap_or(1))?;
        Ok(GuestImages { images, machine })
    }

    /// The image of a contender's place.
    pub fn image(&self, place: &str) -> &Image {
        &self.images[place]
    }

    /// What the result says of them.
    pub fn facts(&self) -> Value {
        let images: Vec<&ImageLock> = self.images.values().map(Image::lock).collect();
        json!({
            "emulator": guest::emulator_version(),
            "machine": self.machine,
            "images": images,
        })
    }
}

/// The module that mounts a contender's file system.
pub fn module_of(contender: &Contender) -> Option<&'static str> {
    filesystem::by_name(contender.file_system())?.kernel_name
}

/// What else several nodes need that mount a contender.
pub fn modules_of_nodes(contender: &Contender) -> Vec<&'static str> {
    if contender.environment.nodes() == 1 { Vec::new() } else { kernel_modules_of(contender) }
}

/// The module of a contender that has to be built for its guest.
pub fn built_for(contender: &Contender) -> Option<String> {
    let recipe = filesystem::by_name(contender.file_system())?.recipe?;
    contender.environment.guest().map(|_| recipe.module.to_string())
}

/// The modules that the kernel of a contender's guest has to bring along.
fn kernel_modules_of(contender: &Contender) -> Vec<&'static str> {
    let file_system = filesystem::by_name(contender.file_system());
    let of_file_system = file_system.map(|file_system| file_system.modules_on(contender));
    let of_layers = layer_modules_of(contender).chain(trial::upper::modules(contender));
    of_file_system.into_iter().flatten().chain(of_layers).collect()
}

/// The modules of a contender's block layers, and of the file systems that carry them.
pub fn layer_modules_of(contender: &Contender) -> impl Iterator<Item = &'static str> {
    let of_hosts = lower::hosts(contender).filter_map(|host| host.modules.first().copied());
    of_hosts.chain(lower::of(contender).filter_map(|lower| lower.modules.first().copied()))
}

/// What the kernel of a contender's guest has not.
pub fn lacks(contender: &Contender, lock: &ImageLock) -> Option<String> {
    let mut modules = kernel_modules_of(contender).into_iter();
    let module = modules.find(|module| lock.kernel.lacks(module))?;
    let (place, release) = (contender.environment.guest()?, &lock.kernel.release);
    Some(format!("the kernel of {place}, {release}, has no {module}; take another kernel"))
}

/// The image of a guest, built when it is not there, or has not what these contenders need.
pub fn image(store: &ImageStore, place: &str, contenders: &[&Contender]) -> Result<Image, Failure> {
    let kernel = Kernel::parse(place).map_err(|error| {
        let next = did_you_mean(place, &["debian"]);
        Failure::refused(next.map_or(error.to_string(), |next| format!("{error}; {next}")))
    })?;
    let contenders = || contenders.iter().copied();
    let built: Vec<String> = contenders().filter_map(built_for).collect();
    let modules = contenders().flat_map(kernel_modules_of).map(str::to_string);
    let needs = Needs { kernel_modules: modules.collect(), ..needs(&built) };
    Ok(store.ensure(&kernel, &needs, &mut note)?)
}

/// Before a trial, all that can go wrong with a guest is something missing.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::refused(error)
    }
}

/// What a guest holds of this machine, and what is built for it.
pub fn needs(built: &[String]) -> Needs {
    let tools = filesystem::all().iter().flat_map(|file_system| file_system.tools);
    let programs = tools.map(|tool| tool.name).chain(PACKERS);
    Needs {
        programs: programs.map(str::to_string).collect(),
        files: FILES.iter().map(Into::into).collect(),
        kernel_modules: Vec::new(),
        modules: built.to_vec(),
    }
}
