//! `make install` and `make uninstall` of kurabe: what is put in place works from there, and is
//! gone afterwards. Needs make; a shell that is not installed is left out.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const KURABE: &str = env!("CARGO_BIN_EXE_kurabe");

/// Whether a program is installed; says that its part is left out when not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("left out: {program} is not installed");
    }
    found
}

/// The output of a command that must succeed and complain of nothing.
#[track_caller]
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && stderr.is_empty(), "{command:?}: {status}\n{stderr}");
    String::from_utf8(stdout).expect("it writes text")
}

/// Every file and link below a directory.
fn files_below(directory: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else {
                _ = files.insert(entry.path());
            }
        }
    }
    files
}

/// The lines that bash's completion offers for the last of these words.
fn bash_offers(completion: &Path, words: &[&str]) -> Vec<String> {
    let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                  _kurabe \"$1\" \"${!#}\" kurabe; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).arg(completion).args(words);
    said(&mut bash).lines().map(str::to_string).collect()
}

#[test]
fn what_is_installed_works_and_what_is_uninstalled_is_gone() {
    if !has("make") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    let installed = root.join("opt/kurabe");
    // Somebody else's files, which look like ours.
    for other in ["bin/kurabe.old", "share/man/man1/kurabeka.1", "share/man/man8/other.8"] {
        let path = installed.join(other);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "theirs").unwrap();
    }
    let before = files_below(&root);
    let make = |target: &str| {
        // Whatever umask root has, nobody else may write what a shell of root's sources.
        let mut make = Command::new("sh");
        make.args(["-c", "umask 0; exec make \"$@\"", "sh", "--silent"])
            .args(["--directory", concat!(env!("CARGO_MANIFEST_DIR"), "/../..")])
            .arg(target)
            .arg(format!("BINARIES={}", Path::new(KURABE).parent().unwrap().display()))
            .arg(format!("DESTDIR={}", root.display()))
            .arg("PREFIX=/opt/kurabe")
            // `make test` may be what runs this.
            .env_remove("MAKEFLAGS");
        said(&mut make)
    };
    make("install-kurabe");
    for path in files_below(&root).difference(&before) {
        let mode = fs::symlink_metadata(path).unwrap().permissions().mode();
        assert!(path.is_symlink() || mode & 0o022 == 0, "{}: {mode:o}", path.display());
    }

    let program = installed.join("bin/kurabe");
    assert_eq!(said(Command::new(&program).arg("--version")), said(Command::new(KURABE).arg("-V")));
    let pages = installed.join("share/man/man1");
    for page in ["kurabe.1", "kurabe-compare.1", "kurabe-run.1", "kurabe-report.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
    if has("man") {
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(pages.join("kurabe-compare.1"));
        let text = said(man.env("LC_ALL", "C").env("MANWIDTH", "200").env("MANPAGER", "cat"));
        // Lines are filled up with blanks.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("--budget") && text.contains("Time limit for the whole study"),
            "{text}"
        );
    }
    let share = installed.join("share");
    let bash = share.join("bash-completion/completions/kurabe");
    let zsh = share.join("zsh/site-functions/_kurabe");
    let fish = share.join("fish/vendor_completions.d/kurabe.fish");
    if has("bash") {
        said(Command::new("bash").arg("-n").arg(&bash));
        assert_eq!(bash_offers(&bash, &["kurabe", "comp"]), ["compare", "completions"]);
        assert_eq!(bash_offers(&bash, &["kurabe", "compare", "--budg"]), ["--budget"]);
        let all = bash_offers(&bash, &["kurabe", ""]);
        assert!(!all.contains(&"trial".to_string()), "hidden subcommands are offered: {all:?}");
    }
    assert!(fs::read_to_string(&zsh).unwrap().starts_with("#compdef kurabe"));
    if has("zsh") {
        said(Command::new("zsh").arg("-n").arg(&zsh));
    }
    assert!(fs::read_to_string(&fish).unwrap().contains("complete -c kurabe"));
    if has("fish") {
        said(Command::new("fish").arg("--no-execute").arg(&fish));
    }

    assert!(files_below(&root).len() > before.len() + 4);
    make("uninstall");
    assert_eq!(files_below(&root), before);
    // Where nothing is left, nothing is to be done.
    make("uninstall");
}

#[test]
fn the_program_alone_carries_minfs() {
    use std::os::unix::process::CommandExt;

    let place = tempfile::tempdir().unwrap();
    let alone = place.path().join("kurabe");
    fs::copy(KURABE, &alone).unwrap();
    let systems = said(Command::new(&alone).arg("file-systems").env("PATH", "/nowhere"));
    let minfs = systems.lines().find(|line| line.starts_with("minfs ")).unwrap();
    assert!(minfs.contains("ready"), "{minfs}");
    let image = place.path().join("image");
    let called = |words: &[&str]| {
        said(Command::new(&alone).arg0("minfs").args(words).arg(&image).env("PATH", "/nowhere"))
    };
    called(&["mkfs", "-q", "--size", "16M"]);
    assert!(called(&["stat"]).contains("16"), "it is a volume");
}
