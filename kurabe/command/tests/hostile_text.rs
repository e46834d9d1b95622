//! What strangers wrote and what was typed, shown on the two outputs: no control character but the
//! newline, nothing invisible and nothing that turns text around, whichever way it takes.

mod harness;

use std::fs;

use harness::{Ran, Site, memory_directory};
use serde_json::Value;

/// A command to the terminal, one of C1, text turned around, a backspace, a tab and a bell.
const HOSTILE: &str = "h\u{1b}[5m\u{9b}5m\u{202e}\u{2066}\u{200b}\u{8}\t\u{7}\r\u{85}\u{ad}";

/// Whether nothing but text is in it; `coloured`: and the colours that kurabe has.
#[track_caller]
fn is_text(shown: &str, coloured: bool) {
    let own = ["0", "1", "2", "31", "32", "33"].map(|code| format!("\u{1b}[{code}m"));
    let left = if coloured {
        own.iter().fold(shown.to_string(), |text, code| text.replace(code, ""))
    } else {
        shown.to_string()
    };
    let hidden =
        |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2066}\u{200b}\u{ad}".contains(c);
    assert!(!left.contains(hidden), "{left:?}");
}

#[track_caller]
fn clean(ran: Ran, code: i32) -> Ran {
    let ran = ran.expect(code);
    is_text(&ran.stdout, false);
    is_text(&ran.stderr, false);
    assert!(ran.stdout.contains("\\u{202e}") || ran.stderr.contains("\\u{202e}"), "{ran:#?}");
    ran
}

#[test]
fn what_is_refused_is_shown_without_its_commands() {
    let site = Site::new();
    let argument = |lead: &str| format!("{lead}{HOSTILE}");
    for arguments in [
        &[&*argument("")][..],
        &["compare", &argument("--")],
        &["compare", "ext4", "--style", HOSTILE, "--", "true"],
        &["compare", "ext4", "--runs", HOSTILE, "--", "true"],
        &["compare", HOSTILE, "--", "true"],
        &["compare", "ext4", "--device", &argument("/dev/"), "--", "true"],
        &["compare", "ext4", "--gate", HOSTILE, "--", "true"],
        &["compare", "ext4", "--baseline", HOSTILE, "--", "true"],
        &["compare", &argument("dir:/"), "--", "true"],
        &["compare", "ext4", "--export-csv", &argument("/no/such/"), "--", "true"],
        &["run", HOSTILE],
        &["studies", HOSTILE],
        &["report", HOSTILE],
        &["resume", HOSTILE],
        &["completions", HOSTILE],
    ] {
        clean(site.run(arguments), 2);
    }
    let study = format!("name = 'x'\n\"{}\" = 1\n# {HOSTILE}\n", "k\\u202e\\u001b");
    fs::write(site.work().join("study.toml"), study).unwrap();
    clean(site.run(&["run", "study.toml"]), 2);
    fs::write(site.work().join("study.toml"), format!("name = 1 # \u{202e}{HOSTILE}\n")).unwrap();
    clean(site.run(&["run", "study.toml"]), 2);
    site.expect_untouched(&["study.toml"]);
}

#[test]
fn a_hostile_study_and_its_report_command_no_terminal() {
    let (site, place) = (Site::new(), memory_directory());
    let contenders = ["a", "b"].map(|name| {
        let directory = place.path().join(name);
        fs::create_dir(&directory).unwrap();
        format!("{name}{HOSTILE}: dir:{}", directory.display())
    });
    let contenders = contenders.each_ref().map(String::as_str);
    let fails = format!("printf '{HOSTILE}' >&2; exit 1");
    let flags = ["--name", HOSTILE, "--command-name", HOSTILE, "--runs", "2"];
    clean(site.compare(&contenders, &[&flags[..], &["--out", "broken"]].concat(), &[&fails]), 1);
    let ran = site.compare(&contenders, &flags, &["sleep 0.01"]);
    clean(ran, 0);
    for print in ["--print-study", "--print-plan"] {
        clean(site.compare(&contenders, &[&flags[..], &[print]].concat(), &["true"]), 0);
    }
    make_hostile(&site);
    let directory = site.work().join("result");
    site.copy_result("copy");
    for style in ["auto", "basic", "nocolor", "none", "full", "color"] {
        let all = ["report", "result", "--style", style];
        let across = ["report", "result", "copy", "--style", style];
        for arguments in [&all[..], &across] {
            let ran = site.run(arguments).expect(0);
            is_text(&ran.stdout, ["full", "color"].contains(&style));
            is_text(&ran.stderr, false);
            assert!(ran.stdout.contains("\\u{202e}"), "{ran:#?}");
        }
    }
    let twice = site.run(&["report", "result", "./result", "--gate", "a <= 1"]).expect(2);
    assert!(twice.stderr.contains("./result: is named twice"), "{}", twice.stderr);
    fs::write(directory.join("plan.json"), format!("{{\"schema\":1,\"{HOSTILE}")).unwrap();
    is_text(&site.run(&["report", "result"]).expect(2).stderr, false);
}

/// Gives the records, the facts and the study of a result texts that no kurabe wrote.
fn make_hostile(site: &Site) {
    let directory = site.work().join("result");
    let path = directory.join("records.jsonl");
    let mut records = site.records();
    for record in &mut records {
        record["notes"] = serde_json::json!([HOSTILE]);
        record["commands"] = serde_json::json!([HOSTILE]);
        record["load"] = serde_json::json!({
            "metrics": [{"name": HOSTILE, "value": 1.0, "unit": "bytes-per-second"}],
            "findings": [HOSTILE], "note": HOSTILE, "proof": format!("{HOSTILE}{}", record["trial"]),
        });
    }
    let mut lines: Vec<String> = records.iter().map(Value::to_string).collect();
    lines.push(format!("{{\"schema\":1,\"outcome\":\"{}\"}}", HOSTILE.escape_unicode()));
    lines.push("{\"schema\":1,\"trial\":0,\"block\":0,\"workload\":\"\u{202e}\"".into());
    fs::write(path, lines.join("\n") + "\n").unwrap();
    let mut plan = site.json("plan.json");
    plan["study"]["why"] = HOSTILE.into();
    plan["study"]["left_out"] =
        serde_json::json!([{"what": HOSTILE, "name": HOSTILE, "missing": [HOSTILE]}]);
    fs::write(directory.join("plan.json"), plan.to_string()).unwrap();
    let mut facts = site.json("facts.json");
    facts["machine"]["kernel"] = HOSTILE.into();
    fs::write(directory.join("facts-1.json"), facts.to_string()).unwrap();
    facts["machine"]["kernel"] = format!("{HOSTILE}2").into();
    fs::write(directory.join("facts.json"), facts.to_string()).unwrap();
}

#[test]
fn the_line_that_is_redrawn_shows_no_command_of_strangers() {
    if std::process::Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: script(1), of the package bsdutils, is not installed");
        return;
    }
    let (site, place) = (Site::new(), memory_directory());
    let line = format!(
        "{} compare 'a{HOSTILE}: dir:{}' --command-name '{HOSTILE}' --runs 1 --out live --idle-wait 200ms -- 'sleep 0.3'",
        harness::KURABE,
        place.path().display()
    );
    let mut command = site.program("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color");
    let shown = site.finish(command).expect(0).stdout;
    assert!(shown.contains("round 1, 1/1") && shown.contains("\\u{202e}"), "{shown:?}");
    for command in ["\u{1b}[5m", "\u{9b}", "\u{202e}", "\u{2066}", "\u{7}"] {
        assert!(!shown.contains(command), "{shown:?}");
    }
}
