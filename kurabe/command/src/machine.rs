//! What this machine can do, its guests, the bundled studies here, and giving back what a killed kurabe left.

use guest::{GuestMachine, ImageLock, ImageStore, Kernel};
use trial::filesystem;
use trial::ledger;
use trial::lower;
use trial::memory_limit::available_bytes;
use trial::upper;
use trust::Directory;
use workloads::{StoreKind, store};

use crate::environment::images::{image, needs};
use std::path::Path;

use crate::environment::{leave_out_missing, remove_aged, remove_unfinished_aged};
use crate::exit::{self, Failure};
use crate::request::flags::GuestAction;
use crate::request::studies;
use crate::terminal::{note, print, rough};
use lab::quantity::parse_duration;
use lab::study_file;

pub fn file_systems() -> Result<u8, Failure> {
    let rows = filesystem::all();
    list(rows.iter().map(|one| (one.name, one.summary, filesystem::missing(one))).collect());
    Ok(exit::OK)
}

pub fn layers() -> Result<u8, Failure> {
    print("Over the directory of a file system, written in front of it (gocryptfs over ext4):\n");
    list(upper::all().iter().map(|one| (one.name, one.summary, upper::lacks(one))).collect());
    print("Below a file system, written behind it (ext4 over delay:200us):\n");
    for notation in trial::device::layer_notations() {
        print(&format!("{notation}\n"));
    }
    let list_lowers = |in_guests: bool| {
        let all = lower::all().iter();
        let all = all.filter(|one| one.only_in_guests().is_some() == in_guests);
        let rows: Vec<_> = all.map(|one| (one.notation(), one)).collect();
        list(
            rows.iter()
                .map(|(name, one)| (name.as_str(), one.summary, lower::lacks(one)))
                .collect(),
        );
    };
    print("The same, of the kernel (ext4 over loop over xfs):\n");
    list_lowers(false);
    print("The same, of the kernel, in a guest only (ext4 over luks, --on debian):\n");
    list_lowers(true);
    print("Not there:\n");
    upper::ABSENT.iter().for_each(|(name, why)| print(&format!("{name:8}  {why}\n")));
    print("Stores, for programs of the object language, written first (lump over ext4):\n");
    list(store::STORES.iter().map(|one| (one.name, one.summary, lacks(one))).collect());
    Ok(exit::OK)
}

/// What this machine lacks for a store.
fn lacks(store: &StoreKind) -> Vec<String> {
    (store.missing)().into_iter().collect()
}

/// A row for each name: what it is, and what this machine lacks for it.
fn list(rows: Vec<(&str, &str, Vec<String>)>) {
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for (name, summary, missing) in rows {
        let state = if missing.is_empty() { "ready" } else { "missing" };
        print(&format!("{name:width$}  {state:7}  {summary}\n"));
        for line in missing {
            print(&format!("{:width$}           {line}\n", ""));
        }
    }
}

pub fn studies(name: Option<&str>) -> Result<u8, Failure> {
    match name {
        Some(name) => {
            let study = studies::bundled(name).ok_or_else(|| studies::unknown(name))?;
            print(study.text);
        }
        None => studies::BUNDLED.iter().for_each(|study| print(&describe(study))),
    }
    Ok(exit::OK)
}

/// A study's name, what it answers, how long it takes, and what it lacks here.
fn describe(bundled: &studies::Bundled) -> String {
    // The tests read every bundled study.
    let Ok((text, mut study)) = study_file::load(
        Path::new(bundled.name),
        bundled.text,
        studies::catalogue(&filesystem::known()),
    ) else {
        return format!("{}\n", bundled.name);
    };
    let mut lines = study.why.clone().into_iter().collect::<Vec<_>>();
    let list = |names: Vec<&str>| names.join(", ");
    lines.push(format!(
        "{} under {}",
        list(study.contenders.iter().map(|contender| contender.label.as_str()).collect()),
        list(study.workloads.iter().map(|workload| workload.name.as_str()).collect()),
    ));
    if let Some(quick) = &text.quick {
        let time = quick.budget.as_deref().and_then(|budget| parse_duration(budget).ok());
        lines.push(format!(
            "quick profile: {} on {}; --full: on {}",
            time.map_or("unbounded".into(), |time| format!("at most {}", rough(time))),
            quick.device.as_deref().unwrap_or(&study.device),
            study.device
        ));
    }
    if leave_out_missing(&mut study).is_err() {
        lines.push("this machine lacks everything that it needs".into());
    }
    for left in &study.left_out {
        lines.push(format!("missing here: {}: {}", left.name, left.missing.join("; ")));
    }
    let mut shown = format!("{}\n", bundled.name);
    for line in lines {
        shown.push_str(&format!("    {line}\n"));
    }
    shown
}

pub fn doctor() -> Result<u8, Failure> {
    print(&trial::doctor::examine().to_string());
    Ok(exit::OK)
}

/// Carries a `kurabe guest` out.
pub fn guest(action: &GuestAction) -> Result<u8, Failure> {
    let own = Directory::own().map_err(Failure::refused)?;
    let supplies = lower::supplies();
    let can_build: Vec<&str> = supplies.recipes.iter().map(|recipe| recipe.module).collect();
    let store = ImageStore::open(&own, supplies)?;
    match action {
        GuestAction::Build { guest, packages, with } => {
            if let Some(name) = with.iter().find(|name| !can_build.contains(&name.as_str())) {
                return Err(Failure::refused(format!(
                    "--with {name}: what can be built for a guest is {}; all else is in it",
                    can_build.join(", ")
                )));
            }
            let kernel = Kernel::parse(guest)?;
            let image = store.build(&kernel, packages.as_deref(), &needs(with), &mut note)?;
            let machine = store.machine(&image, available_bytes().ok(), 1)?;
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
            let machine = store.machine(&image, available_bytes().ok(), 1)?;
            image.shell(&machine)?;
        }
    }
    Ok(exit::OK)
}

fn row(store: &ImageStore, lock: &ImageLock) -> String {
    let kernel = &lock.kernel;
    let package = kernel
        .package
        .as_ref()
        .map_or(String::new(), |package| format!(" ({} {})", package.name, package.version));
    let size = store.size_bytes(lock) >> 20;
    format!("{}  kernel {}{package}, {size} MiB, image {}", lock.place, kernel.release, lock.id)
}

fn acceleration(machine: &GuestMachine) -> &'static str {
    match machine.acceleration {
        guest::Acceleration::Kvm => ", KVM",
        guest::Acceleration::Tcg => ", TCG: this machine has no KVM that boots a guest",
    }
}

pub fn clean(guests: bool, aged: bool) -> Result<u8, Failure> {
    let own = Directory::own().map_err(|refused| Failure::broken(refused.to_string()))?;
    if guests {
        let removed = guest::ImageStore::remove_all(&own).map_err(Failure::broken)?;
        print(&format!("guests: {removed} removed\n"));
    }
    if aged {
        let removed = remove_aged(&own)?;
        print(&format!("aged file systems: {removed} removed\n"));
    }
    let report = ledger::clean(&own).map_err(|error| Failure::broken(error.to_string()))?;
    let forgotten = trial::control_group::remove_forgotten();
    for line in report.done.iter().chain(&forgotten) {
        print(&format!("{line}\n"));
    }
    for line in &report.left {
        note(&format!("kurabe: still there: {line}"));
    }
    let unfinished = guest::ImageStore::remove_unfinished(&own).map_err(Failure::broken)?;
    if unfinished > 0 {
        print(&format!("guests: {unfinished} unfinished builds removed\n"));
    }
    let unfinished_aged = remove_unfinished_aged(&own)?;
    if unfinished_aged > 0 {
        print(&format!("aged file systems: {unfinished_aged} unfinished removed\n"));
    }
    if report.is_empty() && forgotten.is_empty() && unfinished + unfinished_aged == 0 {
        print("nothing was left behind\n");
    }
    if report.living > 0 {
        print(&format!("left alone: {} kurabe still running\n", report.living));
    }
    Ok(if report.left.is_empty() { exit::OK } else { exit::TRIAL_FAILED })
}
