//! One study in shards: run one by one, gone on with, joined; what does not belong together is refused.

mod harness;

use std::fs;

use harness::{NOBODY, Random, Site, root, signal, two_contenders, wait_until};
use serde_json::{Value, json};

/// A study of two directories, of which the second has to write four times as much.
fn study(site: &Site, rounds: u32) {
    let [a, b] = two_contenders(site.home());
    let command = "head -c $(case $KURABE_CONTENDER in a) echo 4;; b) echo 16;; esac)M /dev/zero >f; rm f; sleep 0.05";
    let text = format!(
        "name = \"two\"\ncontenders = [\"{a}\", \"{b}\"]\nmin-runs = {rounds}\nmax-runs = {rounds}\nidle-wait = \"1ms\"\n\n[[workload]]\nname = \"write\"\ncommand = \"{command}\"\n"
    );
    fs::write(site.work().join("study.toml"), text).unwrap();
}

fn divided(site: &Site, shards: &str, flags: &[&str]) {
    study(site, 6);
    let words = [&["shard", "study.toml", "--shards", shards, "--out", "shards"], flags].concat();
    site.run(&words).expect(0);
}

fn read(site: &Site, path: &str) -> Value {
    serde_json::from_slice(&fs::read(site.work().join(path)).unwrap()).unwrap()
}

/// Lets a shard say that another machine ran it.
fn moved(site: &Site, shard: u32) {
    let path = format!("shards/{shard}/facts.json");
    let mut facts = read(site, &path);
    facts["machine"]["identity"] = json!(format!("machine {shard}"));
    fs::write(site.work().join(path), facts.to_string()).unwrap();
}

#[test]
fn shards_are_run_and_joined_and_a_killed_one_is_gone_on_with() {
    let site = Site::new();
    divided(&site, "3", &["--seed", "7"]);
    let plans: Vec<Value> =
        (1..=3).map(|shard| read(&site, &format!("shards/{shard}/plan.json"))).collect();
    assert_eq!(plans[0]["study"], plans[2]["study"]);
    assert_ne!(plans[0]["seed"], plans[1]["seed"]);
    for shard in ["1", "2"] {
        site.run(&["run", &format!("shards/{shard}")]).expect(0);
    }
    // The third is killed, and started again by the same command.
    let mut random = Random(3);
    let running = site.start(site.kurabe(&["run", "shards/3"]));
    let third = site.work().join("shards/3/records.jsonl");
    let lines = || fs::read_to_string(&third).unwrap_or_default().lines().count();
    wait_until("a run has ended", || lines() > 0);
    std::thread::sleep(std::time::Duration::from_millis(random.below(40)));
    signal(running.number(), rustix::process::Signal::KILL);
    running.finish();
    let merged = site.run(&["merge", "shards/1", "shards/2", "shards/3", "--out", "part"]);
    let merged = merged.expect(1);
    assert!(
        merged.stdout.contains("shard 3 is not complete; run it with 'kurabe run shards/3'"),
        "{}",
        merged.stdout
    );
    site.run(&["run", "shards/3"]).expect(0);
    site.run(&["run", "shards/3"]).expect(0).says(&["nothing is left to do"]);

    // All of them ran here, so this says nothing of other machines.
    let here = site.run(&["merge", "shards/1", "shards/2", "shards/3", "--out", "here"]).expect(0);
    assert!(here.stdout.contains("all shards ran on one machine"), "{}", here.stdout);
    (1..=3).for_each(|shard| moved(&site, shard));
    let words = ["merge", "shards/3", "shards/1", "shards/2", "--out", "merged"];
    let merged = site.run(&words).expect(0);
    assert!(merged.stdout.contains("two: 3 of 3 shards, on 3 machines, seed 7"));
    assert!(merged.stdout.contains("the next machine"), "{}", merged.stdout);
    let joined = read(&site, "merged/merged.json");
    let cost = &joined["comparisons"][0]["costs"][0];
    assert_eq!((&cost["contender"], &cost["baseline"]), (&json!("b"), &json!("a")));
    assert_eq!(cost["rounds"], json!([3, 3, 3]));
    let each: Vec<f64> =
        cost["each"].as_array().unwrap().iter().map(|cost| cost.as_f64().unwrap()).collect();
    // The same as each shard says of itself.
    for (shard, cost) in (1..=3).zip(&each) {
        let own = read(&site, &format!("shards/{shard}/comparisons.json"));
        assert_eq!(own[0]["ratio"].as_f64().unwrap(), *cost);
    }
    let mean = (each.iter().map(|cost| cost.ln()).sum::<f64>() / 3.0).exp();
    assert!((cost["pooled"]["cost"].as_f64().unwrap() - mean).abs() < 1e-9);

    // A merged result stands alone.
    fs::remove_dir_all(site.work().join("shards")).unwrap();
    let again = site.run(&["report", "merged", "--html", "page.html"]).expect(0);
    assert_eq!(again.stdout, merged.stdout);
    let page = |path: &str| fs::read_to_string(site.work().join(path)).unwrap();
    assert_eq!(page("page.html"), page("merged/report.html"));
    assert!(page("page.html").contains("<svg"));
    site.run(&["report", "merged/2"]).expect(0);
    site.run(&["report", "merged", "--gate", "b <= 2"]).expect(2).says(&["merged.json"]);
}

#[test]
fn what_does_not_belong_together_is_refused_by_name() {
    let site = Site::new();
    divided(&site, "2", &["--seed", "1"]);
    for shard in ["shards/1", "shards/2"] {
        site.run(&["run", shard]).expect(0);
    }
    let refused = |words: &[&str], says: &[&str]| {
        let words = [&["merge", "--out", "out"], words].concat();
        site.run(&words).expect(2).says(says);
        assert!(!site.work().join("out").exists());
    };
    refused(&["shards/1", "shards/1"], &["is shard 1, as shards/1 is"]);
    let words = ["shard", "study.toml", "--shards", "2", "--seed", "2", "--out", "others"];
    site.run(&words).expect(0);
    refused(&["shards/1", "others/2"], &["the seed is 2 here and 1 there"]);
    let words = ["shard", "study.toml", "--shards", "3", "--seed", "1", "--out", "thirds"];
    site.run(&words).expect(0);
    refused(&["shards/1", "thirds/2"], &["one of 3 shards here and of 2 there"]);
    let words = ["shard", "study.toml", "--shards", "2", "--seed", "1", "--cache", "warm"];
    site.run(&[&words[..], &["--out", "warm"]].concat()).expect(0);
    refused(&["shards/1", "warm/2"], &["they differ in cache"]);
    refused(&["others/1"], &["none of the shards has measured anything"]);
    refused(&["study.toml"], &["study.toml"]);
    let path = site.work().join("shards/2/facts.json");
    let mut facts = read(&site, "shards/2/facts.json");
    facts["machine"]["kurabe_version"] = json!("0.0.9");
    fs::write(path, facts.to_string()).unwrap();
    refused(&["shards/1", "shards/2"], &["was run by kurabe 0.0.9"]);

    // What a shard says names no place on this machine.
    for (field, value, says) in [
        ("name", json!("../out"), "'../out' cannot name a directory"),
        ("output", json!({ "file": "/tmp/out" }), "plan.json"),
    ] {
        let place = site.work().join("shards/1/plan.json");
        let text = fs::read_to_string(&place).unwrap();
        let mut plan: Value = serde_json::from_str(&text).unwrap();
        plan["study"][field] = value;
        fs::write(&place, plan.to_string()).unwrap();
        refused(&["shards/1"], &[says]);
        fs::write(&place, text).unwrap();
    }

    // A shard is run as it was divided, and a result is no shard.
    site.run(&["run", "shards/1", "--cache", "warm"]).expect(2).says(&["--cache: a shard is run"]);
    site.run(&["run", "shards/1", "--quick"]).expect(2).says(&["--quick: a shard is run"]);
    site.run(&["run", "study.toml", "--out", "whole"]).expect(0);
    site.run(&["run", "whole"]).expect(2).says(&["is a result and no shard"]);
    refused(&["shards/1", "whole"], &["is no shard"]);
    let shard = |words: &[&str], says: &[&str]| {
        let words = [&["shard", "study.toml", "--out", "none"], words].concat();
        site.run(&words).expect(2).says(says);
        assert!(!site.work().join("none").exists());
    };
    shard(&["--shards", "0"], &["--shards: is 0"]);
    shard(&["--shards", "2", "--runs", "9"], &["--runs: shards divide the rounds"]);
    shard(&["--shards", "2", "--print-plan"], &["'kurabe shard' runs nothing"]);
    site.run(&["shard", "study.toml", "--shards", "2", "--out", "shards"])
        .expect(2)
        .says(&["holds a shard already"]);
}

#[test]
fn a_shard_does_not_run_what_somebody_else_has_put_there_since() {
    if !root() {
        return;
    }
    let site = Site::new();
    study(&site, 3);
    let load = site.home().join("load.sh");
    fs::write(&load, "true\n").unwrap();
    let path = site.work().join("study.toml");
    let text = fs::read_to_string(&path).unwrap();
    let line = text_line(&text);
    let command = format!("command = \"sh '{}'\"", load.display());
    fs::write(&path, text.replace(&line, &command)).unwrap();
    site.run(&["shard", "study.toml", "--shards", "2", "--out", "shards"]).expect(0);
    std::os::unix::fs::chown(&load, Some(NOBODY), None).unwrap();
    site.run(&["run", "shards/1"]).expect(2).says(&["is not run again", "load.sh", "--trust"]);
    std::os::unix::fs::chown(&load, Some(0), None).unwrap();
    site.run(&["run", "shards/1"]).expect(0);
    std::os::unix::fs::chown(&load, Some(NOBODY), None).unwrap();
    site.run(&["resume", "shards/1", "--more", "1"]).expect(2).says(&["is not run again"]);

    // Whatever way the line names it.
    let place = site.home().join("a place");
    fs::create_dir(&place).unwrap();
    let file = place.join("load.sh");
    fs::write(&file, "true\n").unwrap();
    let (shown, home) = (place.display(), site.home().display());
    let lines = [
        format!("cd '{shown}' && sh load.sh"),
        format!("sh '{shown}/load.sh'"),
        format!("cd {home} && sh a\\\\ place/load.sh"),
        format!("ls '{shown}'"),
    ];
    for (number, line) in lines.iter().enumerate() {
        let own = text.replace(&text_line(&text), &format!("command = \"{line}\""));
        fs::write(&path, own).unwrap();
        let out = format!("again-{number}");
        site.run(&["shard", "study.toml", "--shards", "1", "--out", &out]).expect(0);
        for owned in [&place, &file] {
            std::os::unix::fs::chown(owned, Some(NOBODY), None).unwrap();
        }
        site.run(&["run", &format!("{out}/1")]).expect(2).says(&["is not run again"]);
        for owned in [&place, &file] {
            std::os::unix::fs::chown(owned, Some(0), None).unwrap();
        }
    }
}

/// The line with the command of a study.
fn text_line(text: &str) -> String {
    text.lines().find(|line| line.starts_with("command")).unwrap().to_string()
}
