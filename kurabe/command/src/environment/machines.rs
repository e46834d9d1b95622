//! Several other machines, each a node: a directory that all have mounted is the contender, and each carries the
//! trial out as a node of its own. They wait for each other where it says so, and their records become one.
//!
//! Knows what nodes have to be told, and nothing of how a machine is reached, which is `ssh`'s business. Invariants:
//! where one node fails or is gone the others are stopped and give back what they took, the first one last, since it
//! made what all work in; the record names the node that failed.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::event::{Event, NodeBarrier};
use lab::record::{Outcome, Phase, Record};
use lab::reported::Reported;
use lab::spec::{NodeSpec, OutputTarget, TrialSpec};
use lab::study::Study;
use serde_json::{Map, Value, json};
use trial::stop::StopFlag;

use super::nodes::{MEET_MAX, Part, cluster_name, together};
use super::processes::STOP_GRACE;
use super::remote::{RemoteReply, RemoteRequest};
use super::ssh::SshHost;
use super::{Ended, Environment, Examined, Preparation, Ready};
use crate::exit::Failure;
use crate::runner::{Executor, Schedule};

/// How long one machine is listened to before the next one.
const LISTEN: Duration = Duration::from_millis(1);
/// How long machines may take, past their own bound, to say what became of a trial that was stopped.
const END_MAX: Duration = Duration::from_secs(10);

/// Connections to several machines.
pub struct Machines {
    hosts: Vec<SshHost>,
    stop: StopFlag,
}

/// A node, and what was heard of it in a trial.
struct Member {
    phase: Phase,
    /// Where it waits for the others, and since when.
    waits: Option<(NodeBarrier, Instant)>,
    /// When its run began.
    began: Option<Instant>,
    record: Option<Reported>,
    /// Why nothing more comes of it.
    gone: Option<String>,
}

impl Member {
    fn new() -> Member {
        Member { phase: Phase::Mkfs, waits: None, began: None, record: None, gone: None }
    }

    fn is_over(&self) -> bool {
        self.record.is_some() || self.gone.is_some()
    }

    fn has_failed(&self) -> bool {
        self.gone.is_some() || self.record.as_ref().is_some_and(|record| !record.is_completed())
    }
}

impl Machines {
    /// Several machines, with kurabe running on each.
    pub fn connect(names: &[String], output: &OutputTarget) -> Result<Machines, Failure> {
        let hosts = names.iter().map(|name| SshHost::connect(name, output));
        Ok(Machines { hosts: hosts.collect::<Result<_, _>>()?, stop: StopFlag::default() })
    }

    /// The spec of each node.
    fn specs_of(&self, spec: &TrialSpec) -> Vec<TrialSpec> {
        let cluster = cluster_name();
        let addresses: Option<Vec<IpAddr>> = self.hosts.iter().map(|host| host.address).collect();
        let node = NodeSpec {
            number: 0,
            nodes: self.hosts.len() as u32,
            cluster,
            addresses: addresses.unwrap_or_default(),
            secret: format!("{:032x}", rand::random::<u128>()),
        };
        let of_node = |number| TrialSpec {
            node: Some(NodeSpec { number, ..node.clone() }),
            side_by_side: None,
            ..spec.clone()
        };
        (1..=node.nodes).map(of_node).collect()
    }

    /// The node at a place, in words.
    fn words(&self, place: usize) -> String {
        format!("node {} ({})", place + 1, self.hosts[place].name())
    }

    fn run_one(&mut self, spec: &TrialSpec, on_event: &mut dyn FnMut(&Event)) -> Record {
        let started = Instant::now();
        let unix =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let specs = self.specs_of(spec);
        for (host, spec) in self.hosts.iter_mut().zip(&specs) {
            host.expect();
            host.bound(std::slice::from_ref(spec));
            host.say(&RemoteRequest::CarryOut { specs: vec![spec.clone()], terms: None });
        }
        let was_stopped = self.stop.raised();
        let (members, broken) = self.converse(on_event);
        self.hosts.iter_mut().for_each(|host| host.bound(&[]));
        if !self.hosts.iter().all(SshHost::is_there) {
            // Without one of them no other trial can follow.
            self.stop.raise();
        }
        let mut record = match broken {
            None => {
                let part = |(place, Member { record, began, .. })| Part {
                    record,
                    began,
                    boot: None,
                    words: self.words(place),
                };
                let parts = members.into_iter().enumerate().map(part).collect();
                together(parts, &specs).unwrap_or_else(|message| {
                    let mut record = Record::begun(spec, unix);
                    record.outcome =
                        Outcome::Failed { phase: Phase::Run, message, output: String::new() };
                    record
                })
            }
            Some(place) => {
                let member = members.into_iter().nth(place).expect("it is one of the nodes");
                self.failed(place, member, &specs[place], was_stopped)
            }
        };
        record.elapsed_ns = started.elapsed().as_nanos() as u64;
        record.started_unix_ns = unix;
        record
    }

    /// Hears all nodes until each has a record or is gone; which one was the first to fail.
    fn converse(&mut self, on_event: &mut dyn FnMut(&Event)) -> (Vec<Member>, Option<usize>) {
        let mut members: Vec<Member> = self.hosts.iter().map(|_| Member::new()).collect();
        let mut broken = None;
        // Which nodes were told to give up, and when.
        let mut abandoned: Vec<Option<Instant>> = vec![None; members.len()];
        while !members.iter().all(Member::is_over) {
            for (place, member) in members.iter_mut().enumerate() {
                self.hear(place, member, on_event);
                if member.has_failed() {
                    broken.get_or_insert(place);
                }
            }
            let Some(failed) = broken else {
                if let Err((missing, why)) = self.meet(&mut members) {
                    members[missing].gone = Some(why);
                    broken = Some(missing);
                    self.hosts[missing].say(&RemoteRequest::Abandon);
                }
                continue;
            };
            for place in (0..members.len()).rev() {
                let others_are_over = members[1..].iter().all(Member::is_over);
                let is_due = place > 0 || others_are_over;
                match abandoned[place] {
                    None if place != failed && is_due && !members[place].is_over() => {
                        self.hosts[place].say(&RemoteRequest::Abandon);
                        abandoned[place] = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > STOP_GRACE + END_MAX => {
                        members[place].gone.get_or_insert("it did not stop".into());
                    }
                    _ => {}
                }
            }
        }
        (members, broken)
    }

    /// Takes in what one machine says, if it says something.
    fn hear(&mut self, place: usize, member: &mut Member, on_event: &mut dyn FnMut(&Event)) {
        let event = match self.hosts[place].hear(LISTEN) {
            Ok(Some(RemoteReply::Said { event })) => event,
            Ok(_) => return,
            Err(failure) => {
                member.gone.get_or_insert(failure.message);
                return;
            }
        };
        match event {
            Event::Record { record } => member.record = Some(record),
            Event::Meet { at } => member.waits = Some((at, Instant::now())),
            event => {
                if let Event::Phase { phase } = &event {
                    member.phase = *phase;
                    if *phase == Phase::Run {
                        member.began = Some(Instant::now());
                    }
                }
                // All do the same: the first one is shown.
                if place == 0 {
                    on_event(&event);
                }
            }
        }
    }

    /// Lets all nodes go on when they have met; gives the one that did not come.
    fn meet(&mut self, members: &mut [Member]) -> Result<(), (usize, String)> {
        let Some((at, since)) = members.iter().find_map(|member| member.waits) else {
            return Ok(());
        };
        let is_there = |member: &Member| member.waits.is_some_and(|(other, _)| other == at);
        let Some(missing) = members.iter().position(|member| !is_there(member)) else {
            for (host, member) in self.hosts.iter_mut().zip(members) {
                member.waits = None;
                host.say(&RemoteRequest::Go);
            }
            return Ok(());
        };
        let is_elsewhere = members[missing].is_over() || members[missing].waits.is_some();
        if is_elsewhere || (!at.can_take_long() && since.elapsed() > MEET_MAX) {
            let phase = members[missing].phase.name();
            return Err((missing, format!("it did not come to {} (phase {phase})", at.words())));
        }
        Ok(())
    }

    /// The record of a trial in which the node at this place was the first to fail.
    fn failed(&self, place: usize, member: Member, spec: &TrialSpec, was_stopped: bool) -> Record {
        let Member { phase, record, gone, .. } = member;
        let told = record.map(|record| record.of(spec)).and_then(Result::ok);
        let mut record = told.unwrap_or_else(|| Record::begun(spec, 0));
        let words = self.words(place);
        record.outcome = match (record.outcome, gone) {
            (_, Some(_)) if was_stopped => Outcome::Interrupted { phase },
            (_, Some(why)) => {
                Outcome::Failed { phase, message: format!("{words}: {why}"), output: String::new() }
            }
            (Outcome::Failed { phase, message, output }, None) => {
                Outcome::Failed { phase, message: format!("{words}: {message}"), output }
            }
            (other, None) => other,
        };
        record
    }
}

impl Environment for Machines {
    fn believe_commands(&mut self, study: &Study) -> Result<(), Failure> {
        self.hosts.iter_mut().try_for_each(|host| host.believe_commands(study))
    }

    fn examine(&mut self, study: &Study, destroy: Option<&str>) -> Result<Examined, Failure> {
        let mut all: Option<Examined> = None;
        for host in &mut self.hosts {
            let examined = host.examine(study, destroy)?;
            let Some(first) = &mut all else {
                all = Some(examined);
                continue;
            };
            if examined.study != first.study {
                return Err(Failure::refused(format!(
                    "{} lacks other parts of the study than the first machine; leave them out of the study",
                    host.name()
                )));
            }
            first.notes.extend(examined.notes);
        }
        Ok(all.expect("there are several machines"))
    }

    fn prepare(&mut self, preparation: Preparation<'_>) -> Result<Ready, Failure> {
        let Preparation { study, stop, filled, say, first, aged, .. } = preparation;
        self.stop = stop.clone();
        let (mut facts, mut nodes) = (Map::new(), Vec::new());
        for host in &mut self.hosts {
            let filled = &mut *filled;
            let of_host = Preparation { study, stop, filled, say, first, aged, tried: None };
            let ready = host.prepare(of_host)?;
            nodes.push(Value::Object(ready.facts.clone()));
            if facts.is_empty() {
                facts = ready.facts;
            }
        }
        let names: Vec<&str> = self.hosts.iter().map(SshHost::name).collect();
        facts.insert("ssh".into(), json!({ "hosts": names }));
        facts.insert("nodes".into(), nodes.into());
        Ok(Ready { device: None, size_bytes: 0, facts, ageing_ns: 0 })
    }

    fn end(&mut self) -> Ended {
        let mut all = Ended::default();
        for host in &mut self.hosts {
            let Ended { left, lost, .. } = host.end();
            all.left.extend(left);
            let both = all.lost.take().into_iter().chain(lost);
            all.lost = both.reduce(|one, other| format!("{one}; {other}"));
        }
        all
    }
}

impl Executor for Machines {
    /// One after the other: directories that are there already take no turns.
    fn run(
        &mut self,
        specs: &[TrialSpec],
        _: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        specs.iter().map(|spec| self.run_one(spec, on_event)).collect()
    }
}
