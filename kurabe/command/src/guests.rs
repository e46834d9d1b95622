//! The images of guests: those of a study, and `kurabe guest`.

use std::collections::BTreeMap;

use guest::{Error, Image, Kernel, Lock, Machine, Needs, Store};
use lab::contender::Contender;
use lab::study::Study;
use serde_json::{Value, json};
use trial::filesystem;
use trial::memory_limit::available_bytes;
use trust::Directory;

use crate::exit::{self, Failure};
use crate::flags::GuestAction;
use crate::studies;
use crate::terminal::{note, print};

/// What many commands need; what else a command or a load needs, a guest reads from this machine. fio's
/// libraries alone would be two thirds of an image, and each boot would unpack them.
const PACKERS: [&str; 4] = ["tar", "rm", "gzip", "xz"];
/// What programs that are packed read.
const FILES: &[&str] = &["/etc/mke2fs.conf"];

/// Carries a `kurabe guest` out.
pub fn act(action: &GuestAction) -> Result<u8, Failure> {
    let own = Directory::own().map_err(Failure::refused)?;
    let store = Store::open(&own)?;
    match action {
        GuestAction::Build { guest, packages, with } => {
            if let Some(name) = with.iter().find(|name| !guest::can_build(name)) {
                return Err(Failure::refused(format!(
                    "--with {name}: what can be built for a guest is zfs, ufs, minfs and bcachefs; all else is in it"
                )));
            }
            let kernel = Kernel::parse(guest)?;
            let image = store.build(&kernel, packages.as_deref(), &needs(with), &mut note)?;
            let machine = store.machine(&image, available_bytes().ok())?;
            print(&format!("{}{}\n", row(&store, image.lock()), acceleration(&machine)));
        }
        GuestAction::List => {
            let locks = store.list()?;
            for lock in &locks {
                print(&format!("{}\n", row(&store, lock)));
            }
            if locks.is_empty() {
                print("no guest has been built; kurabe guest build debian\n");
            }
        }
        GuestAction::Remove { guest } => {
            let lock = store.remove(guest)?;
            print(&format!("removed {}\n", lock.place));
        }
        GuestAction::Shell { guest } => {
            let image = image(&store, guest, &[])?;
            let machine = store.machine(&image, available_bytes().ok())?;
            image.shell(&machine)?;
        }
    }
    Ok(exit::OK)
}

/// The guests of a study, ready to be booted.
pub struct Guests {
    images: BTreeMap<String, Image>,
    /// Their hardware.
    pub machine: Machine,
}

impl Guests {
    /// Those that the study's contenders name, built where they are not there; none when all
    /// contenders live on this machine.
    pub fn of(study: &Study, own: &Directory) -> Result<Option<Guests>, Failure> {
        let mut images: BTreeMap<String, Image> = BTreeMap::new();
        let mut store = None;
        for contender in &study.contenders {
            let Some(place) = contender.place.guest() else { continue };
            if store.is_none() {
                store = Some(Store::open(own)?);
            }
            let store = store.as_ref().expect("it was just opened");
            if !images.contains_key(place) {
                let there = study.contenders.iter().filter(|one| one.place == contender.place);
                let built: Vec<String> = there.filter_map(built_for).collect();
                images.insert(place.to_string(), image(store, place, &built)?);
            }
            if let Some(lacks) = lacks(contender, images[place].lock()) {
                return Err(Failure::refused(format!("contender '{}': {lacks}", contender.label)));
            }
        }
        let (Some(store), Some(first)) = (store, images.values().next()) else { return Ok(None) };
        let machine = store.machine(first, available_bytes().ok())?;
        Ok(Some(Guests { images, machine }))
    }

    /// The image of a contender's place.
    pub fn image(&self, place: &str) -> &Image {
        &self.images[place]
    }

    /// What the result says of them.
    pub fn facts(&self) -> Value {
        let images: Vec<&Lock> = self.images.values().map(Image::lock).collect();
        json!({
            "emulator": guest::emulator_version(),
            "machine": self.machine,
            "images": images,
        })
    }
}

/// The kernel's module of a contender's file system.
pub fn module_of(contender: &Contender) -> Option<&'static str> {
    filesystem::by_name(&contender.file_system)?.kernel_name
}

/// The module of a contender that has to be built for its guest.
fn built_for(contender: &Contender) -> Option<String> {
    let module = module_of(contender).filter(|module| guest::can_build(module))?;
    contender.place.guest().map(|_| module.to_string())
}

/// What the kernel of a contender's guest has not.
fn lacks(contender: &Contender, lock: &Lock) -> Option<String> {
    let module = module_of(contender).filter(|module| lock.kernel.lacks(module))?;
    let (place, release) = (contender.place.guest()?, &lock.kernel.release);
    Some(format!("the kernel of {place}, {release}, has no {module}; take another kernel"))
}

/// What this machine lacks for a contender, a line each. What the kernel of a guest has is known when
/// its image is there.
pub fn missing(contender: &Contender) -> Vec<String> {
    match (filesystem::by_name(&contender.file_system), contender.place.guest()) {
        // Its tools come with it.
        (Some(_), Some(_)) if built_for(contender).is_some() => Vec::new(),
        (Some(file_system), Some(_)) => filesystem::missing_tools(file_system),
        (Some(file_system), None) => filesystem::missing(file_system),
        (None, _) => Vec::new(),
    }
}

/// Whether a contender is missing on this machine and a guest has it.
pub fn is_in_guests(contender: &Contender) -> bool {
    let file_system = filesystem::by_name(&contender.file_system);
    contender.place.guest().is_none() && file_system.is_some_and(filesystem::is_in_guests)
}

/// Builds the guests of a study, and takes out of it what they cannot have, when the study says so.
pub fn leave_out_missing(study: &mut Study) -> Result<(), Failure> {
    if !study.leave_out_missing || study.contenders.iter().all(|one| one.place.guest().is_none()) {
        return Ok(());
    }
    let store = Store::open(&Directory::own().map_err(Failure::refused)?)?;
    // Without a guest at all nothing is left of the study.
    for contender in &study.contenders {
        if let Some(place) = contender.place.guest() {
            image(&store, place, &[])?;
        }
    }
    let missing = |contender: &Contender| {
        let place = contender.place.guest()?;
        let built: Vec<String> = built_for(contender).into_iter().collect();
        match image(&store, place, &built) {
            Ok(image) => lacks(contender, image.lock()),
            Err(failure) => Some(failure.message),
        }
    };
    studies::leave_out(study, |contender| missing(contender).into_iter().collect())
}

/// The image of a guest, built when it is not there, or has not what is built for its kernel.
fn image(store: &Store, place: &str, built: &[String]) -> Result<Image, Failure> {
    let kernel = Kernel::parse(place)?;
    Ok(store.ensure(&kernel, &needs(built), &mut note)?)
}

/// Before a trial, all that can go wrong with a guest is something missing.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::refused(error)
    }
}

/// What a guest holds of this machine, and what is built for it.
fn needs(built: &[String]) -> Needs {
    let tools = filesystem::all().iter().flat_map(|file_system| file_system.tools);
    let programs = tools.map(|tool| tool.name).chain(PACKERS);
    Needs {
        programs: programs.map(str::to_string).collect(),
        files: FILES.iter().map(Into::into).collect(),
        modules: built.to_vec(),
    }
}

fn row(store: &Store, lock: &Lock) -> String {
    let kernel = &lock.kernel;
    let package = kernel
        .package
        .as_ref()
        .map_or(String::new(), |package| format!(" ({} {})", package.name, package.version));
    let size = store.size_bytes(lock) >> 20;
    format!("{}  kernel {}{package}, {size} MiB, image {}", lock.place, kernel.release, lock.id)
}

fn acceleration(machine: &Machine) -> &'static str {
    match machine.acceleration {
        guest::Acceleration::Kvm => ", KVM",
        guest::Acceleration::Tcg => ", TCG: this machine has no KVM that boots a guest",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_trial_finds_the_tools_of_zfs_where_a_guest_has_them() {
        assert_eq!(guest::ZFS_TOOLS, trial::filesystem::ZFS_TOOLS);
    }
}
