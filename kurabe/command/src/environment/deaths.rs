//! Kills one of several nodes while the workload runs on all, and follows the others to their end.
//!
//! The emulator's process is the node: once it is gone nothing of the node writes any more, which is what a cluster
//! fences a node for. Only then are the others told.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest::GuestExit;
use lab::event::{Event, NodeBarrier, TrialCommand};
use lab::record::Outcome;
use lab::spec::{NodeDeath, TrialSpec};
use serde::{Deserialize, Serialize};
use trial::carry::{FSCK, SELF_TEST};
use trial::stop::StopFlag;
use vocabulary::check::{Check, DURABILITY};

use super::guest::{Boot, GRACE};
use super::images::GuestImages;
use super::nodes::{GuestNode, MEET_MAX, TrialFailure, begin_all, boot_all, hear, meet, specs_of};

/// What became of the nodes after one was killed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Death {
    /// The node that was killed.
    pub node: u32,
    /// When, after the run had begun on all, in ns.
    pub after_ns: u64,
    /// What the dead node had acknowledged.
    pub acknowledged_by_dead: usize,
    pub acknowledged: usize,
    /// What each of the others did.
    pub others: Vec<Other>,
    /// What was found at the end: the workload's check, the same in an empty directory, and fsck.
    pub checks: Vec<Check>,
    /// Why it does not decide, as far as the nodes say so.
    pub undecided: Option<String>,
    /// The end of the console of the node that says so.
    pub console: String,
}

/// A node that lives on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Other {
    pub node: u32,
    /// The longest time between two acknowledgements before the death, in ns.
    pub gap_before_ns: u64,
    /// The longest time between two acknowledgements of which the later one came after the death; absent where none came.
    pub gap_after_ns: Option<u64>,
}

/// How a death is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeathVerdict {
    /// All that was acknowledged is there, and the file system is sound.
    Held,
    Violated,
    /// Nothing follows.
    Inconclusive,
}

impl Death {
    fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name && check.tried > 0)
    }

    /// How it is judged, and why.
    pub fn verdict(&self) -> (DeathVerdict, String) {
        let found = |name| self.check(name).and_then(|check| check.first.clone());
        if let Some(first) = found(DURABILITY) {
            return (DeathVerdict::Violated, format!("the check: {first}"));
        }
        if let Some(first) = found(FSCK) {
            return (DeathVerdict::Violated, format!("fsck: {first}"));
        }
        let why = match (&self.undecided, found(SELF_TEST)) {
            (Some(why), _) => why.clone(),
            (None, _) if self.acknowledged_by_dead == 0 => {
                "the dead node had acknowledged nothing; kill it later (--kill-after)".into()
            }
            (None, None) => {
                "the check finds no loss in an empty directory either, so it sees none".into()
            }
            (None, Some(_)) if self.others.iter().any(|other| other.gap_after_ns.is_none()) => {
                "a node acknowledged nothing after the death; give the workload more to do".into()
            }
            (None, Some(_)) => {
                return (
                    DeathVerdict::Held,
                    "everything acknowledged is there, fsck finds nothing".into(),
                );
            }
        };
        (DeathVerdict::Inconclusive, why)
    }
}

/// Carries one out. `disk` is the file that all nodes have as their disk.
///
/// Errors: the nodes did not come so far that one could be killed.
pub fn kill(
    spec: &TrialSpec,
    disk: PathBuf,
    after: Duration,
    images: &GuestImages,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Result<Death, String> {
    let death = spec.node_death.as_ref().expect("a node is to be killed");
    let specs = specs_of(spec);
    let boot = Boot::of_nodes(spec, disk);
    let with_console = |message: String, console: &str| match console {
        "" => message,
        console => format!("{message}\n{console}"),
    };
    let (mut members, _frame_switch) = boot_all(&boot, spec, images, stop, on_event)
        .map_err(|unbooted| with_console(unbooted.message, &unbooted.console))?;
    let mut killed = None;
    let broken = follow(&mut members, &specs, (death, after), &mut killed, stop, on_event).err();
    let said = broken.map(|broken| match broken {
        TrialFailure::Stopped => ("it was stopped".to_string(), None),
        TrialFailure::TimedOut(_) => unreachable!("the node is named that is late"),
        TrialFailure::Node(place, why) => {
            let heard = &members[place].heard;
            let record = heard.record.clone().and_then(|record| record.of(&specs[place]).ok());
            let own = match record.map(|record| record.outcome) {
                Some(Outcome::Failed { message, output, .. }) => with_console(message, &output),
                _ => heard.reason.clone(),
            };
            let words = [why.as_str(), own.trim_start_matches(": ")];
            let words: Vec<&str> = words.into_iter().filter(|words| !words.is_empty()).collect();
            (format!("node {}: {}", place + 1, words.join(": ")), Some(place))
        }
    });
    let checks = members.iter().filter_map(|member| member.heard.record.clone());
    let checks = checks.zip(&specs).filter_map(|(record, spec)| record.of(spec).ok());
    let checks: Vec<Check> = checks.flat_map(|record| record.checks).collect();
    let (mut undecided, mut console) = (None, String::new());
    let told: Vec<Vec<Instant>> = members
        .iter()
        .map(|member| member.acknowledged.iter().map(|(at, _)| *at).collect())
        .collect();
    let is_broken = said.is_some();
    let mut ends: Vec<GuestExit> =
        members.into_iter().map(|member| member.end(is_broken)).collect();
    if let Some((why, place)) = said {
        undecided = Some(match place {
            Some(place) => {
                console = std::mem::take(&mut ends[place].console);
                format!("{why}: {}", ends[place].end)
            }
            None => why,
        });
    }
    let Some((at, after_ns, had_ended)) = killed else {
        let why = undecided.unwrap_or_default();
        return Err(with_console(format!("before a node was killed: {why}"), &console));
    };
    if had_ended {
        undecided.get_or_insert_with(|| {
            "the workload had ended on the node that was killed; give it more to do, or kill it earlier (--kill-after)".into()
        });
    }
    let others = (1u32..).zip(&told).filter(|(node, _)| *node != death.node);
    Ok(Death {
        node: death.node,
        after_ns,
        acknowledged_by_dead: told[death.node as usize - 1].len(),
        acknowledged: told.iter().map(Vec::len).sum(),
        others: others.map(|(node, told)| Other::of(node, told, at)).collect(),
        checks,
        undecided,
        console,
    })
}

impl GuestNode {
    fn end(self, is_broken: bool) -> GuestExit {
        let GuestNode { mut guest, line_writer, is_dead, .. } = self;
        drop(line_writer);
        if is_broken {
            guest.kill();
        }
        guest.end(is_broken || is_dead)
    }
}

impl Other {
    fn of(node: u32, told: &[Instant], death: Instant) -> Other {
        let gaps = || told.windows(2).map(|two| (two[1], (two[1] - two[0]).as_nanos() as u64));
        let longest = |after: bool| {
            gaps().filter(|(later, _)| (*later > death) == after).map(|(_, gap_ns)| gap_ns).max()
        };
        Other { node, gap_before_ns: longest(false).unwrap_or(0), gap_after_ns: longest(true) }
    }
}

/// Follows all nodes to their end. `killed` says when one was killed, how long after the run had begun, and whether its
/// workload had ended by then.
fn follow(
    members: &mut [GuestNode],
    specs: &[TrialSpec],
    (death, after): (&NodeDeath, Duration),
    killed: &mut Option<(Instant, u64, bool)>,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), TrialFailure> {
    let lines = begin_all(members, specs);
    let mut until = None;
    let mut has_asked = false;
    loop {
        hear(members, &lines, on_event)?;
        if members.iter().all(|member| member.is_done() || member.is_dead) {
            return Ok(());
        }
        let began: Option<Vec<Instant>> = members.iter().map(|member| member.began).collect();
        if let Some(last) = began.and_then(|began| began.into_iter().max()) {
            until.get_or_insert(last + Duration::from_nanos(death.timeout_ns) + GRACE + MEET_MAX);
            if killed.is_none() && last.elapsed() >= after {
                let place = death.node as usize - 1;
                let had_ended = members[place].waits.is_some();
                *killed = Some((Instant::now(), last.elapsed().as_nanos() as u64, had_ended));
                (members[place].is_dead, members[place].waits) = (true, None);
                if !members[place].guest.cut_power() {
                    return Err(TrialFailure::Node(place, "it could not be killed".into()));
                }
                let words = format!("node {} was killed", death.node);
                on_event(&Event::Status { text: words });
                let died = serde_json::to_string(&TrialCommand::Died { node: death.node });
                let died = died.expect("a command has a JSON form");
                members
                    .iter_mut()
                    .filter(|one| !one.is_dead)
                    .for_each(|one| one.tell(died.clone()));
            }
        }
        let waits_at_end = |member: &GuestNode| {
            member.is_dead || member.waits.is_some_and(|(at, _)| at == NodeBarrier::End)
        };
        if has_asked || !members.iter().all(waits_at_end) {
            // Whoever has ended waits for the death, too.
            if !members.iter().any(|one| one.waits.is_some() && waits_at_end(one)) {
                meet(members)?;
            }
        } else if killed.is_some() {
            has_asked = true;
            let mut all: Vec<(Instant, String)> =
                members.iter().flat_map(|member| member.acknowledged.iter().cloned()).collect();
            all.sort_by_key(|(at, _)| *at);
            let acknowledged = all.into_iter().map(|(_, text)| text).collect();
            let mut ask = Some(TrialCommand::Ask { acknowledged });
            for member in members.iter_mut().filter(|member| !member.is_dead) {
                member.turn(&ask.take().unwrap_or(TrialCommand::Go));
            }
        }
        let silent = |member: &mut GuestNode| !member.is_dead && member.guest.is_silent();
        if let Some(silent) = members.iter_mut().position(silent) {
            members[silent].guest.kill_silent();
            return Err(TrialFailure::Node(silent, "it gave no sign of life".into()));
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let late = members.iter().position(|member| !member.is_done() && !member.is_dead);
            let late = late.expect("not all have ended");
            let phase = members[late].heard.phase.name();
            let words = format!("it came to no end within the time limit (phase {phase})");
            return Err(TrialFailure::Node(late, words));
        }
        if stop.raised() {
            return Err(TrialFailure::Stopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_the_longest_time_without_an_acknowledgement_around_the_death() {
        let zero = Instant::now();
        let at = |seconds: &[u64]| -> Vec<Instant> {
            seconds.iter().map(|seconds| zero + Duration::from_secs(*seconds)).collect()
        };
        let death = zero + Duration::from_secs(10);
        let other = Other::of(1, &at(&[1, 2, 9, 70, 71]), death);
        assert_eq!(
            (other.gap_before_ns, other.gap_after_ns),
            (7_000_000_000, Some(61_000_000_000))
        );
        assert_eq!(Other::of(1, &at(&[1, 2]), death).gap_after_ns, None);
    }

    #[test]
    fn a_death_is_held_only_where_the_check_can_find_a_loss() {
        let checks = |found: [bool; 3]| {
            let names = [DURABILITY, SELF_TEST, FSCK].into_iter().zip(found);
            names
                .map(|(name, found)| {
                    let mut check = Check::new(name);
                    check.count(found.then_some("found"));
                    check
                })
                .collect()
        };
        let others = vec![Other { node: 1, gap_before_ns: 1, gap_after_ns: Some(2) }];
        let of = |found| Death {
            node: 2,
            acknowledged_by_dead: 3,
            others: others.clone(),
            checks: checks(found),
            ..Death::default()
        };
        assert_eq!(of([false, true, false]).verdict().0, DeathVerdict::Held);
        assert_eq!(of([true, true, false]).verdict().0, DeathVerdict::Violated);
        assert_eq!(of([false, true, true]).verdict().0, DeathVerdict::Violated);
        assert_eq!(of([false, false, false]).verdict().0, DeathVerdict::Inconclusive);
        let silent = Death { acknowledged_by_dead: 0, ..of([false, true, false]) };
        assert_eq!(silent.verdict().0, DeathVerdict::Inconclusive);
        let hung = Death { undecided: Some("no end".into()), ..of([false, true, false]) };
        assert_eq!(hung.verdict(), (DeathVerdict::Inconclusive, "no end".into()));
    }
}
