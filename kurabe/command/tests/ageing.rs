//! Contenders that were aged: what cannot be is refused, the same history gives the same files wherever it happens,
//! every run finds the file system as it was aged, and an image that was changed is made again.

mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use harness::{Ran, Site, root, tool};

#[track_caller]
fn refused(contenders: &[&str], flags: &[&str], says: &[&str]) {
    if !root() {
        return;
    }
    let site = Site::new();
    site.compare(contenders, flags, &["true"]).expect(2).says(says);
    site.expect_untouched(&[]);
}

#[test]
fn what_cannot_be_aged_is_refused_before_anything_is_touched() {
    refused(&["ext4 aged"], &[], &["'aged' is followed by one profile"]);
    refused(&["ext4 aged gti:5"], &[], &["did you mean 'git'"]);
    refused(&["ext4 aged git:5,depht=2"], &[], &["no key is called 'depht'", "write git:N"]);
    refused(&["ext4 aged git:200"], &["--device", "mem:64M"], &["need about", "64 MiB"]);
    refused(&["ext4 aged churn:fill=99%"], &[], &["at most 90 %"]);
    refused(&["minfs aged churn"], &[], &["minfs cannot be aged; these can: ext2, ext3, ext4"]);
    refused(&["ext4 aged own"], &[], &["give --age COMMAND"]);
    refused(&["ext4 aged /no/such/image"], &[], &["/no/such/image"]);
    let site = Site::new();
    let image = site.work().join("disk.img");
    fs::write(&image, b"QFI\xfb\0\0\0\x03").unwrap();
    let contender = format!("ext4 aged {}", image.display());
    refused(&[&contender], &[], &["is a qcow2 image", "qemu-img convert -O raw"]);
    refused(&["dir:/tmp aged churn"], &[], &["leave 'over', 'aged' and 'on' out"]);
}

/// Whoever owns a directory can put a link in the way of a file in it.
#[test]
fn kurabe_age_works_in_no_directory_that_another_user_can_change() {
    if !root() {
        return;
    }
    let site = Site::new();
    let (mine, theirs) = (site.work().join("mine"), site.work().join("theirs"));
    for directory in [&mine, &theirs] {
        fs::create_dir(directory).unwrap();
    }
    std::os::unix::fs::chown(&theirs, Some(65_534), None).unwrap();
    let theirs_text = theirs.display().to_string();
    for (place, flags) in [
        (&theirs, &["mail:boxes=2"][..]),
        (&mine, &["mail:boxes=2,copied", "--elsewhere", &theirs_text]),
    ] {
        let words = [&["age"], flags, &["--size", "64M"]].concat();
        let mut command = site.kurabe(&words);
        command.current_dir(place);
        site.finish(command).expect(2).says(&["belongs to user", "--trust"]);
    }
    for directory in [&mine, &theirs] {
        assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
    }
}

/// Names, sizes, places and contents of all files that aged.
const LOOK: &str = "cd \"${KURABE_AGED:-aged}\" && find . -type f -printf '%p %s %i\\n' | sort >>\"$0\" && \
                    find . -type f | sort | xargs cat | cksum >>\"$0\"";

#[test]
fn a_file_system_is_aged_once_and_every_run_finds_it_as_it_was() {
    if !root() {
        return;
    }
    let site = Site::new();
    let seen = site.home().join("seen");
    let seen_text = seen.display().to_string();
    let look = ["sh", "-c", LOOK, &seen_text];
    let profile = "churn:fill=40%,times=1.5";
    let contender = format!("old: ext4 aged {profile}");
    let run = |extra: &[&str]| -> Ran {
        let flags = [&["--rounds", "3"], extra].concat();
        fs::remove_file(&seen).ok();
        site.compare(&[&contender], &flags, &look).expect(0)
    };
    run(&[]).says(&["ageing ext4 by churn", "are kept in"]);
    let first = fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = first.lines().collect();
    assert!(lines.len() > 300 && lines.len().is_multiple_of(3), "{}", lines.len());
    let rounds: Vec<&[&str]> = lines.chunks(lines.len() / 3).collect();
    assert!(rounds.iter().all(|round| *round == rounds[0]), "every run finds the same");
    let record = &site.records()[0];
    let phases: Vec<&str> = record["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["phase"].as_str().unwrap())
        .collect();
    assert_eq!(phases[..2], ["restore", "mount"], "{phases:?}");
    let before = &record["layout_before"];
    assert!(
        before["files"].as_u64().unwrap() > 50 && before["free"][0]["extents"].is_u64(),
        "{before:#}"
    );

    // The same history in a directory: the same names, sizes and contents.
    let here = site.work().join("here");
    fs::create_dir(&here).unwrap();
    let mut command = site.kurabe(&["age", profile, "--size", "64M"]);
    command.current_dir(&here);
    site.finish(command).expect(0);
    let mut command = site.program("sh");
    command.current_dir(&here).args(&look[1..]);
    fs::remove_file(&seen).unwrap();
    site.finish(command).expect(0);
    let without_places = |text: &str| -> Vec<String> {
        let line = |line: &str| line.rsplit_once(' ').map_or(line, |(head, _)| head).to_string();
        text.lines().map(line).collect()
    };
    let elsewhere = without_places(&fs::read_to_string(&seen).unwrap());
    assert_eq!(elsewhere, without_places(&first)[..elsewhere.len()]);

    // It is kept, until somebody changes it.
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let kept = run(&[]);
    assert!(!kept.stderr.contains("ageing ext4"), "{}", kept.stderr);
    assert_eq!(fs::read_to_string(&seen).unwrap(), first);
    let image = image_of(&site);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"changed", 1 << 20).unwrap();
    drop(file);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    run(&[]).says(&["is not what its checksum says; it is made again", "ageing ext4 by churn"]);
    site.run(&["clean", "--aged"]).expect(0);
    assert!(!site.own().join("aged").exists());
    site.expect_nothing_left();
}

fn image_of(site: &Site) -> PathBuf {
    let all = fs::read_dir(site.own().join("aged")).unwrap().flatten().map(|entry| entry.path());
    let images: Vec<PathBuf> =
        all.filter(|path| path.extension().is_some_and(|end| end == "img")).collect();
    assert_eq!(images.len(), 1, "{images:?}");
    images[0].clone()
}

/// The device is large enough, what age left of it is not.
#[test]
fn what_an_aged_file_system_has_no_room_for_is_told_before_a_database_is_made() {
    if !root() {
        return;
    }
    let mut loads = vec![(["--sqlite", "rows=300000"], "the database and its journal need")];
    if tool("mariadbd").is_some() {
        loads.push((["--sysbench", "1 rows=1000"], "the database and its log need"));
    }
    let site = Site::new();
    let age = "mkdir aged && head -c 90M /dev/urandom >aged/file";
    for (load, needer) in loads {
        let flags = ["--device", "mem:160M", "--runs", "1", "--idle-wait", "200ms", "--age", age];
        let words = ["compare", "ext4 aged own", "--no-dry-run", "--out", "result"];
        let ran = site.run(&[&words[..], &flags, &load].concat()).expect(1);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains(needer) && said.contains(" has "), "{said}");
        let record = site.records().remove(0);
        let phases = record["phases"].as_array().unwrap();
        assert!(phases.iter().all(|one| one["phase"] != "create"), "{record:#}");
        fs::remove_dir_all(site.work().join("result")).unwrap();
    }
    site.run(&["clean", "--aged"]).expect(0);
    site.expect_nothing_left();
}

#[test]
fn a_profile_that_fills_the_file_system_says_so_and_leaves_no_image() {
    if !root() {
        return;
    }
    let site = Site::new();
    let ran = site.compare(&["ext4 aged vm:fill=90%,times=6"], &[], &["true"]).expect(2);
    ran.says(&["the file system is full after", "were written; lower fill=, or take a larger"]);
    let kept = fs::read_dir(site.own().join("aged")).into_iter().flatten().flatten();
    let images: Vec<PathBuf> = kept.map(|entry| entry.path()).collect();
    let is_image = |path: &PathBuf| path.metadata().unwrap().len() > 1 << 20;
    assert!(!images.iter().any(is_image), "{images:?}");
    site.run(&["clean", "--aged"]).expect(0);
    site.expect_nothing_left();
}

#[test]
fn two_of_one_image_stand_side_by_side_and_the_cost_of_age_is_told() {
    if !root() || tool("git").is_none() {
        return;
    }
    let site = Site::new();
    let device = "mem:320M";
    let contenders = ["new: btrfs aged git:3,files=60,copied", "a: btrfs aged git:3,files=60"];
    let command = ["sh", "-c", "find \"$KURABE_AGED\" -type f | xargs cat >/dev/null"];
    let ran = site.compare(&contenders, &["--device", device, "--rounds", "3"], &command).expect(0);
    assert!(ran.stdout.contains("cost of age"), "{}", ran.stdout);
    let details = site.run(&["report", "result", "--verbose"]).expect(0).stdout;
    assert!(details.contains("that aged, before the run"), "{details}");
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let twice = ["a: btrfs aged git:3,files=60", "b: btrfs aged git:3,files=60"];
    let flags = ["--device", device, "--rounds", "2", "--side-by-side"];
    site.compare(&twice, &flags, &command).expect(0);
    site.run(&["clean", "--aged"]).expect(0);
    site.expect_nothing_left();
}

#[test]
fn the_users_own_command_and_image_age_too() {
    if !root() {
        return;
    }
    let site = Site::new();
    let flags = ["--age", "mkdir aged && echo old > aged/file"];
    // Nor does a device that was left there open.
    const LOOK: &str =
        "grep -q old \"$KURABE_AGED/file\" && findmnt -no OPTIONS -T . | grep -q nodev";
    site.compare(&["ext4 aged own"], &flags, &["sh", "-c", LOOK]).expect(0);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    // Below a layer it is as old, and the disks that a power failure leaves have the files that aged.
    site.compare(&["overlayfs over ext4 aged own"], &flags, &["test ! -e aged && echo new >file"])
        .expect(0);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    // What the ageing left where the layer makes its own directories is not followed.
    let link = ["--age", "mkdir aged && ln -s /var upper", "--out", "linked"];
    let ran = site.compare(&["overlayfs over ext4 aged own"], &link, &["true"]).expect(1);
    ran.says(&["has upper already, which the layer needs for itself"]);
    const LOAD: &str = "for i in 1 2 3; do cat \"$KURABE_AGED/file\" | dd of=log oflag=append conv=notrunc,fdatasync; \
                        echo $i; done 2>/dev/null";
    const CHECK: &str = "[ $(grep -c old $1/aged/file) = 1 ] && \
                         [ $(cat $1/log | wc -l) -ge $(cat $2 | wc -l) ]";
    let cut = [&flags[..], &["--durability=8", "--setup", ">log; sync", "--check", CHECK]].concat();
    let ran = site.compare(&["ext4 aged own"], &cut, &[LOAD]).expect(0);
    assert!(ran.stdout.contains("durability held (8 of 8)"), "{}", ran.stdout);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let flags = [&flags[..], &["--then", "echo mended >> aged/file"]].concat();
    let look = ["sh", "-c", "grep -q mended \"$KURABE_AGED/file\""];
    site.compare(&["ext4 aged own,then"], &flags, &look).expect(0);
    site.compare(&["ext4 aged own,then"], &flags[..2], &["true"]).expect(2).says(&["give --then"]);
    site.run(&["clean", "--aged"]).expect(0);
    fs::remove_dir_all(site.work().join("result")).unwrap();
    site.compare(&["ext4 aged own"], &flags[..2], &["true"]).expect(0);
    let image = image_of(&site);
    let path = image.display().to_string();
    fs::remove_dir_all(site.work().join("result")).unwrap();
    let contender = format!("ext4 aged {path}");
    site.compare(&[&contender], &[], &["grep", "-q", "old", "../mount/aged/file"]).expect(0);
    // Somebody else's image is not mounted by root.
    std::os::unix::fs::chown(&image, Some(harness::NOBODY), None).unwrap();
    let ran = site.compare(&[&contender], &["--out", "other"], &["true"]).expect(2);
    assert!(ran.stderr.contains("belongs to user"), "{}", ran.stderr);
    site.run(&["clean", "--aged"]).expect(0);
    site.expect_nothing_left();
}
