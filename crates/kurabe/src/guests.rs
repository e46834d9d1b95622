//! The images of guests: those of a study, and `kurabe guest`.

use std::collections::BTreeMap;

use guest::{Error, Image, Kernel, Lock, Machine, Needs, Store};
use lab::study::Study;
use loads::tool::Tool;
use serde_json::{Value, json};
use trial::filesystem;
use trust::Directory;

use crate::exit::{self, Failure};
use crate::flags::GuestAction;
use crate::terminal::{note, print};

/// What tar starts; what else a command needs, a guest reads from this machine.
const PACKERS: [&str; 2] = ["gzip", "xz"];
/// What programs that are packed read.
const FILES: &[&str] = &["/etc/mke2fs.conf"];

/// Carries a `kurabe guest` out.
pub fn act(action: &GuestAction) -> Result<u8, Failure> {
    let own = Directory::own().map_err(Failure::refused)?;
    let store = Store::open(&own)?;
    match action {
        GuestAction::Build { guest, packages } => {
            let kernel = Kernel::parse(guest)?;
            let image = store.build(&kernel, packages.as_deref(), &needs(), &mut note)?;
            let machine = store.machine(&image)?;
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
            let image = image(&store, guest)?;
            let machine = store.machine(&image)?;
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
                images.insert(place.to_string(), image(store, place)?);
            }
            let lock = images[place].lock();
            let module = filesystem::by_name(&contender.file_system).and_then(|f| f.kernel_name);
            if let Some(module) = module.filter(|module| lock.kernel.lacks(module)) {
                return Err(Failure::refused(format!(
                    "contender '{}': the kernel of {place}, {}, has no {module}; take another kernel",
                    contender.label, lock.kernel.release
                )));
            }
        }
        let (Some(store), Some(first)) = (store, images.values().next()) else { return Ok(None) };
        let machine = store.machine(first)?;
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

/// The image of a guest, built when it is not there.
fn image(store: &Store, place: &str) -> Result<Image, Failure> {
    let kernel = Kernel::parse(place)?;
    Ok(store.ensure(&kernel, &needs(), &mut note)?)
}

/// Before a trial, all that can go wrong with a guest is something missing.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::refused(error)
    }
}

/// What a guest holds of this machine.
fn needs() -> Needs {
    let tools = filesystem::all().iter().flat_map(|file_system| file_system.tools);
    let loads = Tool::ALL.iter().map(|tool| tool.program());
    let programs = tools.map(|tool| tool.name).chain(loads).chain(PACKERS);
    Needs {
        programs: programs.map(str::to_string).collect(),
        files: FILES.iter().map(Into::into).collect(),
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
