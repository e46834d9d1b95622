//! What docs/ci.md and action.yml give to a CI system, executed step by step as it would be.

mod harness;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Site, memory_directory, tool, two_contenders};

const PAGE: &str = include_str!("../../../docs/ci.md");
const ACTION: &str = include_str!("../../../action.yml");

/// The lines of a YAML list or block that follow a key, without their indentation.
fn below<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let mut lines = text.lines().skip_while(|line| line.trim() != key);
    let head = lines.next().unwrap_or_else(|| panic!("no {key} in:\n{text}"));
    let indent = |line: &str| line.len() - line.trim_start().len();
    let inside: Vec<&str> =
        lines.take_while(|line| line.trim().is_empty() || indent(line) > indent(head)).collect();
    let least = inside.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(line)).min();
    inside.iter().map(|line| line.get(least.unwrap_or(0)..).unwrap_or("")).collect()
}

/// bash, with kurabe first in its PATH, in the site's directory.
fn bash(site: &Site, script: &str, variables: &[(&str, &str)]) -> Output {
    let directory = Path::new(harness::KURABE).parent().unwrap().display();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
    Command::new("bash")
        .args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script])
        .current_dir(site.work())
        .env("PATH", path)
        .env("KURABE_HOME", site.own())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[track_caller]
fn ended(output: &Output, codes: &[i32]) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    assert!(codes.contains(&code), "{code}: {}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_steps_of_the_github_action_run() {
    if tool("bash").is_none() {
        return;
    }
    let site = Site::new();
    let place = memory_directory();
    let contenders = two_contenders(place.path());
    let contenders = contenders.map(|contender| format!("'{contender}'")).join(" ");
    let steps: Vec<&str> = ACTION.split("\n    - name: ").skip(1).collect();
    assert_eq!(steps.len(), 2);
    ended(&bash(&site, &below(steps[0], "run: |").join("\n"), &[]), &[0]);
    // The variables of the step are its inputs.
    for input in ["CONTENDERS: ${{ inputs.contenders }}", "OPTIONS: ${{ inputs.options }}"] {
        assert!(below(steps[1], "env:").contains(&input), "{input}");
    }
    let step = below(steps[1], "run: |").join("\n");
    let summary = site.work().join("summary");
    let summary = summary.to_str().unwrap();
    let run = |out: &str, gate: &str| {
        let options = format!("--runs 3 --gate '{gate}'");
        let variables = [
            ("CONTENDERS", contenders.as_str()),
            ("WORKLOAD", "echo one >x && cat x"),
            ("OPTIONS", options.as_str()),
            ("OUT", out),
            ("GITHUB_STEP_SUMMARY", summary),
        ];
        bash(&site, &step, &variables)
    };
    ended(&run("holds", "b <= 100000"), &[0]);
    assert!(site.work().join("holds/report.html").exists());
    ended(&run("fails", "b <= 0.00001"), &[3]);
    let answers = fs::read_to_string(summary).unwrap();
    assert!(answers.contains('|') && answers.contains("b"), "{answers}");
    site.expect_nothing_left();
}

#[test]
fn the_script_of_the_gitlab_job_runs() {
    if tool("bash").is_none() {
        return;
    }
    let site = Site::new();
    let work = site.work();
    fs::write(work.join("file"), "text").unwrap();
    ended(&bash(&site, "tar cf sources.tar file", &[]), &[0]);
    let job = PAGE.split("```yaml\n").find(|block| block.contains("artifacts:")).unwrap();
    let job = job.split("```").next().unwrap();
    let lines = below(job, "script:");
    assert_eq!(lines.len(), 3);
    for line in lines {
        let line = line.strip_prefix("- ").unwrap();
        let output = bash(&site, line, &[("CI_PROJECT_DIR", work.to_str().unwrap())]);
        // The gate asks about this machine's directories: any answer will do.
        let codes: &[i32] = if line.starts_with("kurabe") { &[0, 3, 4] } else { &[0] };
        ended(&output, codes);
    }
    assert!(work.join("kurabe-result/report.html").exists());
    site.expect_nothing_left();
}
