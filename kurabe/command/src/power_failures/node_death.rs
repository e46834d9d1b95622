//! `kurabe crash --kill-node`: what is left, and how long the others wait, when one of several nodes dies.
//!
//! No power is cut on a recorded disk here: one guest is killed, once for each death, and the others live on.

use std::fs::File;
use std::time::Duration;

use lab::contender::Contender;
use lab::event::Event;
use lab::spec::{NodeDeath, TrialSpec, WorkloadSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use report::text;
use serde::Serialize;
use trust::{CONTENTS_MODE, Directory};

use super::crash::{
    CrashRunner, CutPoints, contenders, line_of_check, path_of, shell, size, spec, time_of,
    workload, workload_of,
};
use crate::environment::deaths::{Death, DeathVerdict, kill};
use crate::exit::{self, Failure, SIGNAL_BASE, broken};
use crate::presentation::progress::{Progress, TerminalStyle};
use crate::request::default_directory;
use crate::request::flags::CrashArgs;
use crate::terminal;

/// The result's only file.
const FILE: &str = "deaths.json";
/// The layer whose first node serves the others.
const NFS: &str = "nfs";

#[derive(Serialize)]
struct Deaths {
    seed: u64,
    deaths: Vec<Kept>,
}

/// What became of one death.
#[derive(Serialize)]
struct Kept {
    contender: Contender,
    /// How it was decided; absent where no node could be killed.
    verdict: Option<DeathVerdict>,
    why: String,
    death: Option<Death>,
}

/// Kills a node of each contender, as often as is asked.
pub fn kill_node(args: &CrashArgs, asked: &str) -> Result<u8, Failure> {
    let refused = |problem: String| Failure::refused(problem);
    let mut contenders = contenders(&args.contenders, args.on.as_deref(), CutPoints::Nodes)?;
    for contender in &mut contenders {
        contender.environment.use_same_files();
        // Refused before any guest is built.
        victim(contender, asked).map_err(refused)?;
    }
    let check = line_of_check(&args.check)?;
    let load = WorkloadSpec::of_command(workload_of(&args.command)?);
    let setup = args.setup.as_ref().map(|line| shell(line));
    let after_ns = time_of("--kill-after", &args.kill_after)?;
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let size_bytes = size(&args.device)?;
    let death = NodeDeath {
        node: 0,
        check_directory: std::env::current_dir().map_err(Failure::broken)?,
        check_timeout_ns: time_of("--check-timeout", &args.check_timeout)?,
        timeout_ns: time_of("--timeout", &args.timeout)?,
    };
    let whole = TrialSpec {
        power_cuts: None,
        timeout_ns: None,
        ..spec(contenders[0].clone(), None, workload(load, setup, Some(check)), 0)
    };
    let laboratory = CrashRunner::open(&contenders)?;
    let path = args.out.clone().unwrap_or_else(|| default_directory("crash"));
    let directory = Directory::open_or_make(&path, 0o755).map_err(exit::refused("--out"))?;
    if directory.has(FILE) {
        return Err(refused(format!(
            "--out: {} holds a result already; name another place",
            path.display()
        )));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut result = Deaths { seed, deaths: Vec::new() };
    for contender in &contenders {
        let first = result.deaths.len();
        for _ in 0..args.deaths {
            if laboratory.stop.raised() {
                break;
            }
            let node = victim(contender, asked).map_err(refused)?;
            let node_death = Some(NodeDeath { node, ..death.clone() });
            let spec = TrialSpec { contender: contender.clone(), node_death, ..whole.clone() };
            // At another instant each time: from half of what was asked to one and a half.
            let after = Duration::from_nanos(random.random_range(after_ns / 2..=after_ns / 2 * 3));
            let kept = one(&laboratory, &spec, size_bytes, after)?;
            terminal::print(&text_of(&kept));
            result.deaths.push(kept);
            let text = serde_json::to_vec(&result).expect("a result has a JSON form");
            directory.replace(FILE, &text, CONTENTS_MODE).map_err(Failure::broken)?;
        }
        if args.deaths > 1 {
            terminal::print(&summary(contender, &result.deaths[first..]));
        }
    }
    terminal::note(&format!("kurabe: the result is {}", path.join(FILE).display()));
    match laboratory.stop.signal() {
        Some(number) => Ok(SIGNAL_BASE + number as u8),
        None => Ok(code_of(&result.deaths)),
    }
}

/// The node that is killed: the one that was asked for, else the last one.
fn victim(contender: &Contender, asked: &str) -> Result<u32, String> {
    let nodes = contender.environment.nodes();
    let node = match asked {
        "last" => nodes,
        text => text.parse().map_err(|_| {
            format!("--kill-node: '{text}' is no number of a node; write --kill-node=2")
        })?,
    };
    if !(1..=nodes).contains(&node) {
        return Err(format!("--kill-node: '{}' has nodes 1 to {nodes}", contender.label));
    }
    if node == 1 && contender.layers[0].name == NFS {
        return Err(format!(
            "--kill-node: node 1 of '{}' is the NFS server, which no other node takes over; kill another one, or try the server's file system with kurabe crash {}",
            contender.label,
            contender.file_system()
        ));
    }
    Ok(node)
}

fn one(
    laboratory: &CrashRunner,
    spec: &TrialSpec,
    size_bytes: u64,
    after: Duration,
) -> Result<Kept, Failure> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let disk = rustix::fs::memfd_create("kurabe-nodes", flags).map(File::from);
    let disk = disk.and_then(|disk| rustix::fs::ftruncate(&disk, size_bytes).map(|()| disk));
    let disk = disk.map_err(broken("the disk in memory"))?;
    let progress = Progress::new(TerminalStyle::of(None), false);
    let mut show = |event: &Event| {
        if let Event::Status { text } = event {
            progress.step(&format!("{}: {text}", spec.contender.label));
        }
    };
    let images = laboratory.images.as_ref().expect("nodes are guests");
    let death = kill(spec, path_of(&disk), after, images, &laboratory.stop, &mut show);
    progress.finish();
    let contender = spec.contender.clone();
    Ok(match death {
        Ok(death) => {
            let (verdict, why) = death.verdict();
            Kept { contender, verdict: Some(verdict), why, death: Some(death) }
        }
        Err(why) => Kept { contender, verdict: None, why, death: None },
    })
}

fn word(verdict: DeathVerdict) -> &'static str {
    match verdict {
        DeathVerdict::Held => "held",
        DeathVerdict::Violated => "violated",
        DeathVerdict::Inconclusive => "inconclusive",
    }
}

fn text_of(kept: &Kept) -> String {
    let label = &kept.contender.label;
    let (Some(death), Some(verdict)) = (&kept.death, kept.verdict) else {
        return format!("{label}: could not be checked: {}\n", kept.why);
    };
    let mut said = format!("{label}: {}: {}\n", word(verdict), kept.why);
    said.push_str(&format!(
        "  node {} was killed {} after the run had begun; it had acknowledged {}, all nodes {}\n",
        death.node,
        text::time(death.after_ns as f64),
        death.acknowledged_by_dead,
        death.acknowledged
    ));
    for other in &death.others {
        let before = text::time(other.gap_before_ns as f64);
        said.push_str(&match other.gap_after_ns {
            Some(after_ns) => format!(
                "  node {} acknowledged nothing for {} (before the death for {before} at most)\n",
                other.node,
                text::time(after_ns as f64)
            ),
            None => format!("  node {} acknowledged nothing any more\n", other.node),
        });
    }
    if verdict != DeathVerdict::Held && !death.console.is_empty() {
        said.push_str(&format!("  the end of its console:\n{}\n", death.console));
    }
    said
}

fn summary(contender: &Contender, deaths: &[Kept]) -> String {
    let count = |verdict| deaths.iter().filter(|one| one.verdict == verdict).count();
    let others = deaths.iter().filter_map(|one| one.death.as_ref()).flat_map(|one| &one.others);
    let mut waits: Vec<u64> = others.filter_map(|other| other.gap_after_ns).collect();
    waits.sort_unstable();
    let range = match (waits.first(), waits.get(waits.len() / 2), waits.last()) {
        (Some(least), Some(middle), Some(most)) => {
            let [least, middle, most] = [least, middle, most].map(|ns| text::time(*ns as f64));
            format!("; the others waited {least} to {most}, median {middle}")
        }
        _ => String::new(),
    };
    format!(
        "{}: {} deaths: {} held, {} violated, {} inconclusive, {} not checked{range}\n",
        contender.label,
        deaths.len(),
        count(Some(DeathVerdict::Held)),
        count(Some(DeathVerdict::Violated)),
        count(Some(DeathVerdict::Inconclusive)),
        count(None)
    )
}

fn code_of(deaths: &[Kept]) -> u8 {
    let has = |verdict| deaths.iter().any(|one| one.verdict == verdict);
    match () {
        () if has(Some(DeathVerdict::Violated)) => exit::GATE_FAILS,
        () if has(None) => exit::TRIAL_FAILED,
        () if has(Some(DeathVerdict::Inconclusive)) => exit::GATE_INCONCLUSIVE,
        () => exit::OK,
    }
}

#[cfg(test)]
mod tests {
    use trial::filesystem;

    use super::*;

    #[test]
    fn the_last_node_is_killed_unless_another_one_is_named() {
        let contender = |text: &str| Contender::parse(text, &filesystem::known()).unwrap();
        let gfs2 = contender("gfs2 on 3 debian");
        assert_eq!(victim(&gfs2, "last"), Ok(3));
        assert_eq!(victim(&gfs2, "1"), Ok(1));
        for text in ["0", "4", "x", ""] {
            assert!(victim(&gfs2, text).unwrap_err().starts_with("--kill-node: "), "{text}");
        }
        let nfs = contender("nfs over ext4 on 2 debian");
        assert_eq!(victim(&nfs, "last"), Ok(2));
        assert!(victim(&nfs, "1").unwrap_err().contains("is the NFS server"));
    }
}
