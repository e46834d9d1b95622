//! The images in kurabe's own directory: built, found again, listed and removed.
//!
//! An image has these parts: the kernel's (its ELF file and its modules), made of a package and named
//! after its content; modules that were built for that kernel; and this machine's programs with their
//! libraries. The lock file says what they were made of. Invariants: a directory here is whole or has a name that
//! begins with a dot, which the next builder removes; equal content has equal names; whoever has an
//! [`Image`] has its files open, so that removing it disturbs nobody.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trust::Directory;

use crate::archive::ArchiveContents;
use crate::built::{BuildSite, LIBRARIES, Supplies};
use crate::files::{copy_below, files_below, names_in, sums_below, text_of};
use crate::inside::MODULES;
use crate::kernel::Kernel;
use crate::lock::{Built, FORMAT, ImageLock, KernelFacts};
use crate::machine::{Acceleration, GuestMachine};
use crate::packages::unpack;
use crate::packages::{Fetched, Package};
use crate::packed::{self, Needs, OWN};
use crate::release::Release;
use crate::{Error, boot_image, program};

/// Modules that file systems need and that no other module names, taken where the kernel has them.
const CARRIERS: &[&str] = &["fuse", "loop", "crc32c_generic", "crc32c_intel"];

/// How long a lock is waited for that a killed builder's children may still hold.
const UNLOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long what unpacks a package goes on at most after the builder that had started it was killed.
const UNPACK_MAX: Duration = Duration::from_secs(60);
const KERNELS: &str = "kernels";
const BUILT: &str = "built";
const IMAGES: &str = "images";
const KERNEL_FILE: &str = "vmlinux";
/// Of a kernel's part a tree with `lib/modules`, of what was built the files alone.
const MODULES_DIRECTORY: &str = "modules";
const FILES_DIRECTORY: &str = "files";
const FACTS_FILE: &str = "kernel.json";
const BUILT_FILE: &str = "built.json";
const INITRAMFS_FILE: &str = "initramfs.cpio";
const LOCK_FILE: &str = "lock.json";
const ACCELERATION_FILE: &str = "acceleration.json";

/// Space that a build may need: the package, unpacked, and what is made of it.
const BUILD_BYTES: u64 = 1 << 30;
/// How long another builder is waited for, who may compile ZFS.
const BUILDER_WAIT_MAX: Duration = Duration::from_secs(900);
/// Bytes of a kernel that is read into memory.
const KERNEL_BYTES_MAX: u64 = 256 << 20;

/// An image that can be booted.
#[derive(Debug)]
pub struct Image {
    lock: ImageLock,
    kernel: File,
    initramfs: File,
}

impl Image {
    pub fn lock(&self) -> &ImageLock {
        &self.lock
    }

    pub(crate) fn kernel_path(&self) -> PathBuf {
        held_path(&self.kernel)
    }

    pub(crate) fn initramfs_path(&self) -> PathBuf {
        held_path(&self.initramfs)
    }
}

/// A path to a file that this process has open, for its children.
fn held_path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// The images of kurabe's own directory.
#[derive(Debug)]
pub struct ImageStore {
    directory: Directory,
    supplies: Supplies,
}

impl ImageStore {
    /// The store in kurabe's own directory, made where it is missing. Its guests get these supplies.
    /// Errors: it cannot be made, or a stranger could change it.
    pub fn open(own: &Directory, supplies: Supplies) -> Result<ImageStore, Error> {
        let directory = own.open_or_make_directory("guests", 0o700)?;
        for name in [KERNELS, BUILT, IMAGES] {
            directory.open_or_make_directory(name, 0o700)?;
        }
        Ok(ImageStore { directory, supplies })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The modules that guests are given where their kernel has them.
    fn wanted_modules(&self) -> impl Iterator<Item = &'static str> + '_ {
        MODULES.iter().chain(&self.supplies.modules).chain(CARRIERS).copied()
    }

    fn modules_of(&self, kernel: &KernelFacts) -> PathBuf {
        self.path().join(KERNELS).join(&kernel.id).join(MODULES_DIRECTORY)
    }

    /// The image of a place: the one that is there, when this machine's programs are still those in
    /// it and it has the modules, otherwise a new one with the kernel that is there. Only where there is
    /// none, a kernel is fetched.
    pub fn ensure(
        &self,
        kernel: &Kernel,
        needs: &Needs,
        say: &mut dyn FnMut(&str),
    ) -> Result<Image, Error> {
        let is_there = |lock: &ImageLock| {
            lock.place == kernel.to_string()
                && lock.format == FORMAT
                && self.modules_of(&lock.kernel).exists()
                && needs.kernel_modules.iter().all(|module| lock.kernel.knows(module))
        };
        let Some(lock) = self.list()?.into_iter().find(is_there) else {
            return self.build(kernel, None, needs, say);
        };
        let has = |module: &String| {
            let is_it = |built: &&Built| built.module == *module;
            lock.built.iter().filter(is_it).any(|built| self.supplies.is_current(built))
        };
        let is_unchanged = packed::is_unchanged(needs, &lock.files)?;
        if is_unchanged && needs.modules.iter().all(has) {
            return self.image(lock);
        }
        if !is_unchanged {
            say(&format!(
                "{kernel}: this machine's programs have changed, so the guest is built again"
            ));
        }
        let contents = packed::contents(needs)?;
        let _lock = self.lock()?;
        // What it has it keeps, unless that would have to be built anew without anybody's asking.
        let mut modules = needs.modules.clone();
        for Built { module, .. } in &lock.built {
            if !modules.contains(module) && self.built_before(&lock.kernel, module)?.is_some() {
                modules.push(module.clone());
            }
        }
        let built = self.built(kernel, &lock.kernel, &modules, None, say)?;
        self.assemble(kernel, lock.kernel, built, &contents)
    }

    /// Builds the image of a place, with the newest kernel that fits, and removes the one that it had.
    pub fn build(
        &self,
        kernel: &Kernel,
        packages: Option<&Path>,
        needs: &Needs,
        say: &mut dyn FnMut(&str),
    ) -> Result<Image, Error> {
        // Before 70 MB are fetched for nothing.
        program::command("qemu-system-x86_64")?;
        let contents = packed::contents(needs)?;
        let _lock = self.lock()?;
        let statvfs = rustix::fs::fstatvfs(self.directory.descriptor())
            .map_err(|error| Error::at(self.path())(error.into()))?;
        let free_bytes = statvfs.f_bavail.saturating_mul(statvfs.f_frsize);
        if free_bytes < BUILD_BYTES {
            return Err(Error::Refused(format!(
                "{}: building a guest takes up to {} MiB, and {} MiB are free; free some space, or \
                 name another directory by KURABE_HOME",
                self.path().display(),
                BUILD_BYTES >> 20,
                free_bytes >> 20
            )));
        }
        let work = self.work_directory()?;
        let facts = self.kernel_part(kernel, packages, &work, say)?;
        drop(work);
        let built = self.built(kernel, &facts, &needs.modules, packages, say)?;
        say(&format!("{kernel}: packing the programs of this machine"));
        self.assemble(kernel, facts, built, &contents)
    }

    /// What the images were made of, in the order of their places.
    pub fn list(&self) -> Result<Vec<ImageLock>, Error> {
        let images = self.directory.open_directory(IMAGES)?;
        let mut locks = Vec::new();
        for name in images.names()? {
            let read = images.open_directory(&name).and_then(|image| image.read_text(LOCK_FILE));
            // What is not whole is the next builder's to remove.
            if let Ok(lock) = read.map(|text| serde_json::from_str::<ImageLock>(&text))
                && let Ok(lock) = lock
                && name == lock.id.as_str()
            {
                locks.push(lock);
            }
        }
        locks.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(locks)
    }

    /// Bytes that an image takes, its kernel included.
    pub fn size_bytes(&self, lock: &ImageLock) -> u64 {
        let image = self.path().join(IMAGES).join(&lock.id).join(INITRAMFS_FILE);
        let kernel = self.path().join(KERNELS).join(&lock.kernel.id).join(KERNEL_FILE);
        [image, kernel].iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum()
    }

    /// Removes the image of a place, and a kernel that no other image has.
    pub fn remove(&self, place: &str) -> Result<ImageLock, Error> {
        let _lock = self.lock()?;
        let locks = self.list()?;
        let found = locks.iter().find(|lock| lock.place == place || lock.id == place);
        let lock = found.cloned().ok_or_else(|| {
            let places: Vec<&str> = locks.iter().map(|lock| lock.place.as_str()).collect();
            Error::Refused(if places.is_empty() {
                format!("there is no guest '{place}', and no other either")
            } else {
                format!("there is no guest '{place}'; there are {}", places.join(", "))
            })
        })?;
        self.remove_image(&lock)?;
        Ok(lock)
    }

    /// Removes everything, and says how many images that were.
    pub fn remove_all(own: &Directory) -> Result<usize, Error> {
        if !own.has("guests") {
            return Ok(0);
        }
        let store = ImageStore::open(own, Supplies::default())?;
        let lock = store.lock()?;
        let images = store.list()?.len();
        own.remove_tree("guests")?;
        drop(lock);
        Ok(images)
    }

    /// Removes what builders left that were killed, and gives how many directories and files that were. While
    /// somebody builds, nothing is removed. A killed builder's children can hold its lock for a moment longer than it
    /// lived, so a lock that is held is waited for briefly.
    pub fn remove_unfinished(own: &Directory) -> Result<usize, Error> {
        if !own.has("guests") {
            return Ok(0);
        }
        let directory = own.open_directory("guests")?;
        let names = unfinished(&directory)?;
        if names.is_empty() {
            return Ok(0);
        }
        let until = Instant::now() + UNLOCK_WAIT_MAX;
        let _lock = loop {
            match directory.lock("builder.lock") {
                Ok(lock) => break lock,
                Err(trust::LockError::Held { .. }) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(trust::LockError::Held { .. }) => return Ok(0),
                Err(trust::LockError::Refused(refused)) => return Err(refused.into()),
            }
        };
        // Somebody may have built on meanwhile.
        let names = unfinished(&directory)?;
        names.iter().try_for_each(|name| remove_left(&directory, name))?;
        Ok(names.len())
    }

    /// What carries out the guests' instructions: KVM when a guest boots under it within 8 s. Found
    /// out once after each boot of this machine.
    pub fn acceleration(&self, image: &Image) -> Result<Acceleration, Error> {
        #[derive(Serialize, Deserialize)]
        struct Probed {
            boot: String,
            acceleration: Acceleration,
        }
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let known = self.directory.read_text(ACCELERATION_FILE).ok();
        let known = known.and_then(|text| serde_json::from_str::<Probed>(&text).ok());
        if let Some(probed) = known.filter(|probed| probed.boot == boot) {
            return Ok(probed.acceleration);
        }
        let acceleration =
            if image.boots_under_kvm() { Acceleration::Kvm } else { Acceleration::Tcg };
        let text = json(&Probed { boot, acceleration });
        self.directory.replace(ACCELERATION_FILE, text.as_bytes(), 0o600)?;
        Ok(acceleration)
    }

    /// The hardware of this machine's guests, where so much memory is free, in bytes, and so many run at once.
    pub fn machine(
        &self,
        image: &Image,
        free_bytes: Option<u64>,
        at_once: u32,
    ) -> Result<GuestMachine, Error> {
        let machine = GuestMachine::new(self.acceleration(image)?);
        let memory_bytes = machine.memory_bytes * u64::from(at_once);
        match free_bytes {
            Some(free_bytes) if free_bytes < memory_bytes + (256 << 20) => {
                Err(Error::Refused(format!(
                    "{} {} MiB of memory, and {} MiB are free here; end something that uses memory",
                    if at_once == 1 {
                        "a guest has".into()
                    } else {
                        format!("{at_once} guests have")
                    },
                    memory_bytes >> 20,
                    free_bytes >> 20
                )))
            }
            _ => Ok(machine),
        }
    }

    fn lock(&self) -> Result<trust::FileLock, Error> {
        let until = Instant::now() + BUILDER_WAIT_MAX;
        loop {
            match self.directory.lock("builder.lock") {
                Ok(lock) => return Ok(lock),
                Err(trust::LockError::Refused(refused)) => return Err(refused.into()),
                Err(trust::LockError::Held { pid }) if Instant::now() >= until => {
                    return Err(Error::Refused(format!(
                        "process {pid} has been building a guest for {} s; wait for it, or end it",
                        BUILDER_WAIT_MAX.as_secs()
                    )));
                }
                Err(trust::LockError::Held { .. }) => {
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// A new directory to work in; what dead builders left is removed first.
    fn work_directory(&self) -> Result<Work<'_>, Error> {
        for name in unfinished(&self.directory)? {
            remove_left(&self.directory, &name)?;
        }
        let name = format!(".work-{:016x}", rand::random::<u64>());
        self.directory.make_directory(&name, 0o700)?;
        Ok(Work { store: self, path: self.path().join(&name), name })
    }

    /// The kernel's part: the one that is there, or a new one.
    fn kernel_part(
        &self,
        kernel: &Kernel,
        packages: Option<&Path>,
        work: &Work<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<KernelFacts, Error> {
        if let Kernel::File(path) = kernel {
            return self.kernel_of_file(path, work);
        }
        say(&format!("{kernel}: getting the kernel's package"));
        let Fetched { name, version, file } = kernel.fetch(packages, &work.path)?;
        let sha256 = program::sha256(&[&file])?.remove(0);
        let package = Package { name, version, sha256: Some(sha256) };
        if let Some(facts) = self.kernel_of(&package)? {
            return Ok(facts);
        }
        say(&format!("{kernel}: unpacking {} {}", package.name, package.version));
        let root = work.path.join("root");
        unpack(&file, &root)?;
        let boot = root.join("boot");
        let image = names_in(&boot)?.into_iter().find(|name| name.starts_with("vmlinuz-"));
        let image = image.ok_or_else(|| {
            Error::Refused(format!("the package {} has no kernel below /boot", package.name))
        })?;
        let release = Release::parse(image.trim_start_matches("vmlinuz-"))?;
        let bytes = fs::read(boot.join(&image)).map_err(Error::at(&boot))?;
        if !root.join("lib").exists() {
            std::os::unix::fs::symlink("usr/lib", root.join("lib")).map_err(Error::at(&root))?;
        }
        program::output(&["depmod", "-b", text_of(&root)?, release.as_str()], None)?;
        self.make_kernel_part(work, Some(&root), &bytes, release, Some(package), None)
    }

    /// The modules that were built for a kernel, or are now.
    fn built(
        &self,
        place: &Kernel,
        kernel: &KernelFacts,
        modules: &[String],
        packages: Option<&Path>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<Built>, Error> {
        let mut all = Vec::new();
        for module in modules {
            all.push(match self.built_before(kernel, module)? {
                Some(built) => built,
                None => {
                    say(&format!("{place}: building {module}, once for this kernel"));
                    self.build_module(kernel, module, packages)?
                }
            });
        }
        Ok(all)
    }

    fn built_before(&self, kernel: &KernelFacts, module: &str) -> Result<Option<Built>, Error> {
        let mut all = self.all_built()?.into_iter();
        Ok(all.find(|built| {
            built.kernel == kernel.id && built.module == module && self.supplies.is_current(built)
        }))
    }

    fn all_built(&self) -> Result<Vec<Built>, Error> {
        let parts = self.directory.open_directory(BUILT)?;
        let read = |name| {
            let text = parts.open_directory(name).and_then(|part| part.read_text(BUILT_FILE));
            serde_json::from_str::<Built>(&text.ok()?).ok()
        };
        Ok(parts.names()?.iter().filter_map(read).collect())
    }

    fn build_module(
        &self,
        kernel: &KernelFacts,
        module: &str,
        packages: Option<&Path>,
    ) -> Result<Built, Error> {
        let release = &kernel.release;
        if kernel.lacks(module) {
            return Err(Error::Refused(format!(
                "the kernel {release} has no {module}; take another kernel"
            )));
        }
        let (Some(package), Some(recipe)) = (&kernel.package, self.supplies.recipe(module)) else {
            return Err(Error::Refused(format!(
                "{module} cannot be built for the kernel {release}: that is done for the kernels of \
                 packages, and for {}",
                self.supplies.can_build()
            )));
        };
        let work = self.work_directory()?;
        let part = work.path.join("part");
        let (modules, files) = (part.join(MODULES_DIRECTORY), part.join(FILES_DIRECTORY));
        let room = work.path.join("build");
        for directory in [&modules, &files, &room] {
            fs::create_dir_all(directory).map_err(Error::at(directory))?;
        }
        let mut site = BuildSite {
            release,
            kernel: package,
            packages,
            work: &room,
            modules,
            files,
            used: Vec::new(),
        };
        site.build(recipe)?;
        let packages = site.used;
        let mut sums = sums_below(&part)?;
        sums.push(kernel.id.clone());
        let id = id_of(&sums, &work)?;
        let built = Built { id, module: module.into(), kernel: kernel.id.clone(), packages };
        let path = part.join(BUILT_FILE);
        fs::write(&path, json(&built)).map_err(Error::at(&path))?;
        self.settle(&part, BUILT, &built.id)?;
        Ok(built)
    }

    fn kernel_of_file(&self, path: &Path, work: &Work<'_>) -> Result<KernelFacts, Error> {
        let path =
            if path.is_dir() { path.join("arch/x86/boot/bzImage") } else { path.to_path_buf() };
        let bytes = trust::file::read(&path, KERNEL_BYTES_MAX)?;
        let release = boot_image::release(&bytes).ok_or_else(|| {
            Error::Refused(format!(
                "{} is no kernel for x86 (a bzImage); a tree needs 'make bzImage' first",
                path.display()
            ))
        })?;
        let release = Release::parse(&release)
            .map_err(|error| Error::Refused(format!("{}: {error}", path.display())))?;
        let sha256 = program::sha256_of(&bytes, &work.path.join("bytes"))?;
        let installed = Path::new("/lib/modules").join(release.as_str()).join("modules.dep");
        let modules = installed.exists().then_some(Path::new("/"));
        self.make_kernel_part(work, modules, &bytes, release, None, Some(sha256))
    }

    fn kernel_of(&self, package: &Package) -> Result<Option<KernelFacts>, Error> {
        let kernels = self.directory.open_directory(KERNELS)?;
        for name in kernels.names()? {
            let text = kernels.open_directory(&name).and_then(|part| part.read_text(FACTS_FILE));
            let facts = text.ok().and_then(|text| serde_json::from_str::<KernelFacts>(&text).ok());
            if let Some(facts) = facts
                && self.modules_of(&facts).exists()
                && facts.package.as_ref() == Some(package)
                && self.wanted_modules().all(|name| facts.knows(name))
            {
                return Ok(Some(facts));
            }
        }
        Ok(None)
    }

    fn make_kernel_part(
        &self,
        work: &Work<'_>,
        root: Option<&Path>,
        image: &[u8],
        release: Release,
        package: Option<Package>,
        file_sha256: Option<String>,
    ) -> Result<KernelFacts, Error> {
        let part = work.path.join("kernel");
        let stage = part.join(MODULES_DIRECTORY);
        fs::create_dir_all(stage.join("lib")).map_err(Error::at(&stage))?;
        let mut facts = KernelFacts {
            id: String::new(),
            release,
            package,
            file_sha256,
            modules: Vec::new(),
            missing_modules: Vec::new(),
        };
        match root {
            Some(root) => stage_modules(root, &stage, self.wanted_modules(), &mut facts)?,
            // Everything is built in, or missing.
            None => {
                facts.missing_modules = self.wanted_modules().map(str::to_string).collect();
            }
        }
        let kernel = boot_image::unpacked(image);
        let path = part.join(KERNEL_FILE);
        fs::write(&path, kernel.as_deref().unwrap_or(image)).map_err(Error::at(&path))?;
        facts.id = id_of(&sums_below(&part)?, work)?;
        let path = part.join(FACTS_FILE);
        fs::write(&path, json(&facts)).map_err(Error::at(&path))?;
        self.settle(&part, KERNELS, &facts.id)?;
        Ok(facts)
    }

    /// Puts an image together out of a kernel that is there and this machine's files.
    fn assemble(
        &self,
        place: &Kernel,
        kernel: KernelFacts,
        built: Vec<Built>,
        contents: &ArchiveContents,
    ) -> Result<Image, Error> {
        let work = self.work_directory()?;
        let part = work.path.join("image");
        fs::create_dir(&part).map_err(Error::at(&part))?;
        let files = packed::packed_files(contents)?;
        let packages = packed::packages_of(&files);
        let own = packed::own_program()?;
        let small = work.path.join("kurabe");
        let mut packed = contents.clone();
        // Its debugging information is of no use in a guest, and most of its size.
        if program::output(&["strip", "-o", text_of(&small)?, text_of(&own)?], None).is_ok() {
            packed.add_file(Path::new(OWN), &small).map_err(Error::at(&small))?;
        }
        let kernel_path = self.path().join(KERNELS).join(&kernel.id);
        self.add_modules(&mut packed, &kernel, &built, &work)?;
        let archive = part.join(INITRAMFS_FILE);
        write_archive(&packed, &archive)?;
        let mut sums = program::sha256(&[&kernel_path.join(KERNEL_FILE), &archive])?;
        sums.push(place.to_string());
        let id = id_of(&sums, &work)?;
        let (format, place) = (FORMAT, place.to_string());
        let lock = ImageLock { format, id, place, kernel, built, packages, files };
        let path = part.join(LOCK_FILE);
        fs::write(&path, json(&lock)).map_err(Error::at(&path))?;
        self.settle(&part, IMAGES, &lock.id)?;
        for other in self.list()? {
            if other.place == lock.place && other.id != lock.id {
                self.remove_image(&other)?;
            }
        }
        self.image(lock)
    }

    /// Adds the modules of a kernel and what was built for it, all in one index.
    fn add_modules(
        &self,
        packed: &mut ArchiveContents,
        kernel: &KernelFacts,
        built: &[Built],
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let modules = self.modules_of(kernel);
        let stage = work.path.join("stage");
        program::output(&["cp", "-r", text_of(&modules)?, text_of(&stage)?], None)?;
        // A module in here comes before the kernel's own of its name.
        let updates = Path::new("lib/modules").join(kernel.release.as_str()).join("updates");
        for one in built {
            let part = self.path().join(BUILT).join(&one.id);
            let (modules, files) = (part.join(MODULES_DIRECTORY), part.join(FILES_DIRECTORY));
            for name in names_in(&modules)? {
                copy_below(&modules.join(&name), &stage, &updates.join(&name))?;
            }
            add_tree(packed, &files, Path::new(""))?;
            let closed = self.supplies.recipe(&one.module).and_then(|recipe| recipe.closed);
            let is_open = |path: &PathBuf| {
                !path.starts_with(LIBRARIES)
                    && closed.is_none_or(|closed| !path.starts_with(closed))
            };
            for path in files_below(&files)?.into_iter().filter(is_open) {
                packed.add_libraries(&files.join(path), Some(&files.join(LIBRARIES)))?;
            }
        }
        if !built.is_empty() {
            let release = kernel.release.as_str();
            program::output(&["depmod", "-b", text_of(&stage)?, release], None)?;
        }
        packed.add_link("lib", "usr/lib");
        packed.add_directory("usr/lib/modules");
        add_tree(packed, &stage.join("lib"), Path::new("usr/lib"))
    }

    /// Gives a directory that is whole the name that it keeps.
    fn settle(&self, part: &Path, kind: &str, id: &str) -> Result<(), Error> {
        let directory = self.directory.open_directory(kind)?;
        if directory.has(id) {
            directory.remove_tree(id)?;
        }
        let kept = directory.path().join(id);
        fs::rename(part, &kept).map_err(Error::at(&kept))
    }

    fn remove_image(&self, lock: &ImageLock) -> Result<(), Error> {
        self.directory.open_directory(IMAGES)?.remove_tree(&lock.id)?;
        if self.list()?.iter().any(|other| other.kernel.id == lock.kernel.id) {
            return Ok(());
        }
        self.directory.open_directory(KERNELS)?.remove_tree(&lock.kernel.id)?;
        let parts = self.directory.open_directory(BUILT)?;
        for built in self.all_built()?.iter().filter(|built| built.kernel == lock.kernel.id) {
            parts.remove_tree(&built.id)?;
        }
        Ok(())
    }

    fn image(&self, lock: ImageLock) -> Result<Image, Error> {
        let image = self.directory.open_directory(IMAGES)?.open_directory(&lock.id)?;
        let kernel = self.directory.open_directory(KERNELS)?.open_directory(&lock.kernel.id)?;
        let (kernel, initramfs) =
            (kernel.open_file(KERNEL_FILE)?, image.open_file(INITRAMFS_FILE)?);
        Ok(Image { lock, kernel, initramfs })
    }
}

/// What a builder works on, or left: it has a name that begins with a dot.
fn unfinished(directory: &Directory) -> Result<Vec<OsString>, Error> {
    let mut names = directory.names()?;
    names.retain(|name| name.as_encoded_bytes().starts_with(b"."));
    Ok(names)
}

/// Removes what a builder left. Where it was killed, what it had started writes there until it notices that the pipe
/// it reads from has ended.
fn remove_left(directory: &Directory, name: &OsStr) -> Result<(), Error> {
    let until = Instant::now() + UNPACK_MAX;
    while let Err(refused) = directory.remove_tree(name) {
        if Instant::now() >= until {
            return Err(refused.into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A directory that goes away.
struct Work<'a> {
    store: &'a ImageStore,
    name: String,
    path: PathBuf,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // The next builder tries again.
        let _ = self.store.directory.remove_tree(&self.name);
    }
}

/// Copies the modules that a guest can use, and what they depend on.
fn stage_modules(
    root: &Path,
    stage: &Path,
    wanted: impl Iterator<Item = &'static str>,
    facts: &mut KernelFacts,
) -> Result<(), Error> {
    let release = facts.release.as_str();
    let base = Path::new("lib/modules").join(release);
    let target = stage.join(&base);
    fs::create_dir_all(&target).map_err(Error::at(&target))?;
    let mut copied = BTreeSet::new();
    for module in wanted {
        let words = ["modprobe", "-d", text_of(root)?, "-S", release, "--show-depends", module];
        let Ok(text) = program::text(&words) else {
            facts.missing_modules.push(module.into());
            continue;
        };
        facts.modules.push(module.into());
        for line in text.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let source = line.split(' ').next().unwrap_or(line);
            let Some(at) = source.find(text_of(&base)?) else { continue };
            let below = &source[at..];
            // Several modules depend on the same one.
            if copied.insert(below.to_string()) {
                copy_below(Path::new(source), stage, Path::new(below))?;
            }
        }
    }
    for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        let below = base.join(name);
        let source = root.join(&below);
        if source.exists() {
            copy_below(&source, stage, &below)?;
        }
    }
    program::output(&["depmod", "-b", text_of(stage)?, release], None).map(drop)
}

fn add_tree(contents: &mut ArchiveContents, source: &Path, below: &Path) -> Result<(), Error> {
    for path in files_below(source)? {
        let from = source.join(&path);
        contents.add_file(&below.join(path), &from).map_err(Error::at(&from))?;
    }
    Ok(())
}

fn write_archive(contents: &ArchiveContents, path: &Path) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let mut output = BufWriter::with_capacity(1 << 20, File::create(path)?);
        contents.write(&mut output)?;
        output.flush()
    };
    write().map_err(Error::at(path))
}

/// Sixteen digits of the SHA-256 of some lines.
fn id_of(lines: &[String], work: &Work<'_>) -> Result<String, Error> {
    let sum = program::sha256_of(lines.join("\n").as_bytes(), &work.path.join("bytes"))?;
    Ok(sum[..16].into())
}

fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("it has a JSON form");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
