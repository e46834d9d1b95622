//! What cannot work is found before the device is filled: by a dry run, as somebody sees it who runs the program.

mod harness;

use harness::{Site, root};

/// Runs `compare` with a dry run, on a device that takes long to fill.
fn compare(site: &Site, words: &[&str]) -> harness::Ran {
    let fixed = ["compare", "--seed", "1", "--out", "result"];
    site.run(&[&fixed, words].concat())
}

#[test]
fn what_cannot_work_is_refused_before_the_device_is_filled() {
    if !root() {
        return;
    }
    let site = Site::new();
    std::fs::write(site.work().join("small.tar"), "").unwrap();
    let device = ["--device", "loop:3G"];
    let dry = "this was a dry run, nothing was filled or measured";
    let cases: &[(i32, &[&str], &[&str])] = &[
        // A relative path that leads nowhere in the mounted directory: the command failed.
        (1, &["ext4", "ext2", "--", "cat", "small.tar"], &["write \"$PWD/small.tar\"", dry]),
        // A mount option, with the kernel's own words.
        (
            2,
            &["ext4", "x: ext4 @ nonsense=1", "--", "true"],
            &["contender 'x': mount failed", "nonsense", dry],
        ),
        (2, &["ext4 -b 3", "--", "true"], &["contender 'ext4", "mkfs failed", "-b 3", dry]),
        // A budget that gives no interval, with one that does.
        (
            2,
            &["ext4", "ext2", "--budget", "8s", "--", "sleep 3"],
            &["--budget: 8s is too short", "; allow "],
        ),
    ];
    for (code, words, said) in cases {
        let ran = compare(&site, &[&device[..], words].concat()).expect(*code);
        let ran = ran.says(said);
        assert!(!ran.stderr.contains("filling"), "{}", ran.stderr);
        assert!(!site.work().join("result").exists(), "what is refused leaves no result");
    }
    // The part that a contender really gets, and the whole.
    let words = ["--device", "mem:128M", "--side-by-side", "ext4", "ext2", "--"];
    let ran = compare(&site, &[&words[..], &["head -c 80M /dev/zero >a"]].concat()).expect(1);
    ran.says(&["64 MiB of --device mem:128M", "--one-at-a-time, which gives it all 128M"]);
    site.expect_nothing_left();
}

#[test]
fn a_budget_that_is_long_enough_gives_an_interval() {
    if !root() {
        return;
    }
    let site = Site::new();
    let words = ["ext4", "ext2", "--device", "mem:256M", "--budget", "30s", "--", "sleep 1"];
    let ran = compare(&site, &words).expect(0);
    let blocks = site.json("comparisons.json")[0]["blocks"].as_u64().unwrap();
    assert!(blocks >= 3, "{blocks} rounds\n{}", ran.stderr);
    site.expect_nothing_left();
}
