//! Ledgers that somebody else wrote, and names in a ledger that lead elsewhere by now.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::harness::{Site, signal, wait_until};
use crate::{
    Disk, done, first_waits, give_to_stranger, ground, loop_devices, secret, stranger, theirs,
};

/// Kills a study on an image in the middle of its first trial, and tells the ledgers that it left
/// with their text.
fn killed(site: &Site) -> Vec<(PathBuf, String)> {
    for shared in [site.images(), site.scratch()] {
        fs::set_permissions(shared, fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let device = site.image_device("32M");
    let command = site.compare_command(&["ext4"], &["--device", &device], &[&first_waits(site)]);
    let running = site.start(command);
    wait_until("the first trial runs", || site.home().join("begun").exists());
    for process in site.processes() {
        signal(process, rustix::process::Signal::KILL);
    }
    running.reap();
    wait_until("everything was killed", || site.processes().is_empty());
    let ledgers: Vec<(PathBuf, String)> = files_below(&site.ledger())
        .into_iter()
        .filter_map(|path| Some((fs::read_to_string(&path).ok()?, path)))
        .filter(|(text, _)| !paths_in(text).is_empty())
        .map(|(text, path)| (path, text))
        .collect();
    assert!(!ledgers.is_empty(), "a study that was killed leaves a ledger");
    ledgers
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(files_below(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}

/// The absolute paths that a ledger names.
fn paths_in(text: &str) -> Vec<PathBuf> {
    text.split('"').filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A file of root's under a name that kurabe might have given.
fn victim(site: &Site) -> PathBuf {
    let path = secret(site).join("kurabe-1-0123456789abcdef.img");
    fs::write(&path, "precious").unwrap();
    path
}

/// The ledger's text with other paths in it.
fn forged(site: &Site, text: &str) -> String {
    let victim = victim(site).display().to_string();
    let replace = |text: String, path: PathBuf| text.replace(&path.display().to_string(), &victim);
    paths_in(text).into_iter().fold(text.to_string(), replace)
}

/// Finding 2: whatever it says, a stranger said it.
#[test]
fn a_ledger_that_a_stranger_owns_is_not_obeyed() {
    if !loop_devices() {
        return;
    }
    let site = ground();
    let victim = victim(&site);
    let left = killed(&site);
    for (path, text) in &left {
        fs::write(path, forged(&site, text)).unwrap();
        give_to_stranger(path);
    }
    let ran = site.run(&["clean"]);
    let kept = victim.exists();
    // What was really taken is given back by what was really written.
    for (path, text) in left {
        fs::write(&path, text).unwrap();
        std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    }
    site.run(&["clean"]).expect(0);
    assert!(kept, "{ran:#?}");
}

/// Finding 2: a directory that was removed (by a reboot, say) is a stranger's when it is back.
#[test]
fn what_a_stranger_made_again_is_not_obeyed() {
    if !loop_devices() {
        return;
    }
    let site = ground();
    let victim = victim(&site);
    for (path, text) in killed(&site) {
        let name = path.file_name().unwrap().display();
        let forged = theirs(&site).join(format!("taken-{name}"));
        fs::write(&forged, self::forged(&site, &text)).unwrap();
        give_to_stranger(&forged);
        for named in paths_in(&text).into_iter().filter(|path| path.is_dir()) {
            fs::remove_dir_all(&named).unwrap();
            // Where the stranger cannot make it again, there is no attack.
            let named = named.display();
            let _ = stranger(&format!("mkdir {named}; cp {} {named}/", forged.display())).output();
        }
    }
    let ran = site.run(&["clean"]);
    assert!(victim.exists(), "{ran:#?}");
}

/// Finding 2: an image that is somebody else's by now, under the name of ours.
#[test]
fn a_strangers_image_under_the_name_of_ours_keeps_its_loop_device() {
    if !loop_devices() {
        return;
    }
    let site = ground();
    let image = theirs(&site).join("image");
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    give_to_stranger(&image);
    let disk = Disk::on(image.clone());
    for (_, text) in killed(&site) {
        let named = paths_in(&text).into_iter().filter(|path| path.starts_with(site.images()));
        for name in named.filter(|path| path.is_file()) {
            fs::remove_file(&name).unwrap();
            done(&mut stranger(&format!("ln {} {}", image.display(), name.display())));
        }
    }
    let ran = site.run(&["clean"]);
    assert_eq!(disk.backing(), Some(image), "{ran:#?}");
}
