//! What keeps kurabe waiting or eats its memory: locks of strangers, FIFOs, files without an end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{Site, wait_until};
use crate::{Holder, bounded, done, ground, stranger, temporary};

/// Finding 9: whoever may open a file may lock it.
#[test]
fn locks_of_a_stranger_hold_nothing_up() {
    let Some(site) = ground() else { return };
    fs::set_permissions(temporary(&site), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(site.work().join("place")).unwrap();
    let flags = ["--runs", "2", "--cache", "warm"];
    let running =
        site.start(site.compare_command(&["dir:place"], &flags, &[&crate::first_waits(&site)]));
    wait_until("the first trial runs", || site.home().join("begun").exists());
    // One lock for every file and directory that the stranger can open, each in the background.
    let script = format!(
        "find {} -readable 2>/dev/null | while read -r name; do
            flock --shared \"$name\" sleep 60 & done; echo locked; wait",
        site.home().display()
    );
    let mut command = stranger(&script);
    command
        .process_group(0)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut holder = Holder(command.spawn().unwrap());
    let mut said = String::new();
    let output = holder.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said).unwrap();
    fs::write(site.home().join("go-on"), "").unwrap();
    let ran = bounded(running);
    ran.expect("kurabe ends while a stranger holds locks").expect(0);
}

/// The things that are no regular files: one that never says anything, and one that never ends.
const ODD: [&str; 2] = ["fifo", "zero"];

fn make_odd(kind: &str, path: &Path) {
    match kind {
        "fifo" => done(Command::new("mkfifo").arg(path)),
        _ => done(Command::new("mknod").arg(path).args(["c", "1", "5"])),
    };
}

/// Runs kurabe with the arguments of every case beside each other, and checks that all of them end
/// by themselves.
#[track_caller]
fn expect_all_end(site: &Site, cases: &[Vec<String>], code: Option<i32>) {
    let end = |case: &Vec<String>| {
        let words: Vec<&str> = case.iter().map(String::as_str).collect();
        (words.join(" "), bounded(site.start(site.kurabe(&words))))
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = cases.iter().map(|case| scope.spawn(move || end(case))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let stalled: Vec<&str> =
        ended.iter().filter(|(_, ran)| ran.is_none()).map(|(case, _)| case.as_str()).collect();
    assert!(stalled.is_empty(), "without end: {stalled:#?}");
    for (case, ran) in ended.iter().filter_map(|(case, ran)| Some((case, ran.as_ref()?))) {
        assert!(ran.code.is_some() && !ran.stderr.contains("panicked"), "{case}: {ran:#?}");
        assert!(code.is_none() || ran.code == code, "{case}: {ran:#?}");
    }
}

/// Finding 9: what a flag names is not read for ever.
#[test]
fn studies_jobs_and_programs_that_are_no_files_are_refused() {
    let Some(site) = ground() else { return };
    let mut cases = Vec::new();
    for kind in ODD {
        let path = site.work().join(kind);
        make_odd(kind, &path);
        let path = path.display().to_string();
        cases.push(vec!["run".to_string(), path.clone()]);
        for (flag, value) in [
            ("--fio", path.clone()),
            ("--objects", path.clone()),
            ("--tree", path.clone()),
            ("--dbench-replay", format!("1:{path}")),
        ] {
            let words = ["compare", "dir:.", flag, &value, "--out", "result"];
            cases.push(words.map(str::to_string).to_vec());
        }
    }
    expect_all_end(&site, &cases, Some(2));
}

/// Finding 9: nor is a file of a result.
#[test]
fn files_of_a_result_that_are_no_files_are_not_read() {
    let Some(site) = ground() else { return };
    fs::write(site.work().join("program"), "Ordered[20] { <50%> New(1K); <50%> Get; }\n").unwrap();
    fs::create_dir(site.work().join("place")).unwrap();
    // A path of its own, because a workload has the trial's directory for its working directory.
    let place = format!("dir:{}", site.work().join("place").display());
    let arguments = ["compare", &place, "--runs", "2", "--cache", "warm", "--out", "result"];
    let load = ["--objects", "program", "--store", "files"];
    site.run(&[&arguments[..], &load].concat()).expect(0);
    let histogram = fs::read_dir(site.work().join("result/histograms")).unwrap().next();
    let histogram = histogram.unwrap().unwrap().file_name().display().to_string();
    let histogram = format!("histograms/{histogram}");
    let mut cases = Vec::new();
    for name in ["plan.json", "facts.json", "records.jsonl", "study.toml", &histogram] {
        for kind in ODD {
            for action in ["report", "resume"] {
                let copy = format!("{action}-{}-{kind}", name.replace('/', "-"));
                let path = site.work().join(&copy);
                done(Command::new("cp").arg("-a").arg(site.work().join("result")).arg(&path));
                fs::remove_file(path.join(name)).unwrap();
                make_odd(kind, &path.join(name));
                let mut case = vec![action.to_string(), copy.clone()];
                if action == "report" {
                    case.extend(["--html".to_string(), format!("{copy}.html")]);
                }
                cases.push(case);
            }
        }
    }
    expect_all_end(&site, &cases, None);
}
