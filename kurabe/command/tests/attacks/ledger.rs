//! Ledgers that somebody else wrote, and names in a ledger that lead elsewhere by now.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::harness::{NOBODY, Site, signal, wait_until};
use crate::{
    done, first_waits, give_to_stranger, ground, own, secret, stranger, temporary, theirs,
};

/// Kills a study on an existing directory, which the stranger owns too, in the middle of its first
/// trial. Makes a directory of root's with the name that the trial had given to its own.
fn killed(site: &Site) -> (PathBuf, PathBuf) {
    let place = theirs(site).join("place");
    fs::create_dir(&place).unwrap();
    give_to_stranger(&place);
    let contender = format!("dir:{}", place.display());
    let flags = ["--cache", "warm"];
    let mut command = site.compare_command(&[&contender], &flags, &[&first_waits(site)]);
    // By sudo, so that the directory is accepted.
    command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string());
    let running = site.start(command);
    wait_until("the first trial runs", || site.home().join("begun").exists());
    for process in site.processes() {
        signal(process, rustix::process::Signal::KILL);
    }
    running.reap();
    wait_until("everything was killed", || site.processes().is_empty());
    let made = fs::read_dir(&place).unwrap().next().expect("the trial made a directory").unwrap();
    let victim = secret(site).join(made.file_name());
    fs::create_dir_all(victim.join("precious")).unwrap();
    (place, victim)
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_below(&entry.path()))
        } else {
            files.push(entry.path())
        }
    }
    files
}

/// Finding 2: whatever it says, a stranger said it.
#[test]
fn a_ledger_that_a_stranger_owns_is_not_obeyed() {
    let Some(site) = ground() else { return };
    let (place, victim) = killed(&site);
    let place = place.display().to_string();
    let mut forged = 0;
    for path in [files_below(&own(&site)), files_below(&temporary(&site))].concat() {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.contains(&place) {
            fs::write(&path, text.replace(&place, &secret(&site).display().to_string())).unwrap();
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            forged += 1;
        }
    }
    assert!(forged > 0, "a study that was killed leaves a ledger that names the directory");
    let ran = site.run(&["clean"]);
    assert!(victim.join("precious").exists(), "{ran:#?}");
}

/// Finding 2: what a ledger of root's names is somebody else's by now.
#[test]
fn a_directory_that_became_a_link_keeps_what_the_link_leads_to() {
    let Some(site) = ground() else { return };
    let (place, victim) = killed(&site);
    let script = format!("mv {0} {0}.old; ln -s {1} {0}", place.display(), secret(&site).display());
    done(&mut stranger(&script));
    let ran = site.run(&["clean"]);
    assert!(victim.join("precious").exists(), "{ran:#?}");
}
