//! Runs a trial on several guests at once: each carries out the same spec as a node of its own, and they wait for
//! each other where it says so. Their records become one.
//!
//! Invariants: all guests of a trial have one disk, which the runner has claimed, and one network, which is a
//! pair of sockets without a name or, of more than two, a thread that passes frames on; where one node fails,
//! all guests are ended, and the record names the node with the end of its console.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use guest::{Guest, GuestEnd, GuestExit, Link};
use lab::event::{Event, NodeBarrier, TrialCommand};
use lab::record::{GuestFacts, NodeRecord, Outcome, Phase, Record};
use lab::reported::Reported;
use lab::spec::{NodeSpec, TrialSpec};
use lab::workload::WorkloadReport;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use trial::device::{Left, PreparedDevice, in_guest};
use trial::stop::StopFlag;

use super::guest::{Boot, GRACE, host_load, place_of};
use super::images::GuestImages;
use super::lines::{self, Lines, StreamEvent};
use super::processes::{Heard, LOOK_INTERVAL};

/// How long nodes wait for one that makes, mounts or unmounts. o2cb takes up to a minute to decide that a node is
/// dead, and an emulated one is several times slower.
pub(super) const MEET_MAX: Duration = Duration::from_secs(240);

/// Acknowledgements of a node that are kept: a workload of a few minutes has far fewer, a hostile guest would have
/// any number.
const ACKNOWLEDGED_MAX: usize = 100_000;

/// One guest, and what was heard of it.
pub(super) struct GuestNode {
    pub(super) guest: Guest,
    pub(super) line_writer: Option<lines::LineWriter>,
    pub(super) heard: Heard,
    /// Where it waits for the others, and since when.
    pub(super) waits: Option<(NodeBarrier, Instant)>,
    /// When its run began.
    pub(super) began: Option<Instant>,
    /// It was killed, and so nobody waits for it.
    pub(super) is_dead: bool,
    /// What its workload acknowledged, where one of the nodes is killed, and when that was heard.
    pub(super) acknowledged: Vec<(Instant, String)>,
}

/// Why a trial did not come to its end.
pub(super) enum TrialFailure {
    /// A node, by its place, failed or is gone; with what is known besides its own words.
    Node(usize, String),
    TimedOut(u64),
    Stopped,
}

/// Carries a trial out on all of its nodes. `record` is that of one that has only begun.
pub fn run(
    mut record: Record,
    spec: &TrialSpec,
    images: &GuestImages,
    device: &dyn PreparedDevice,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Record {
    let started = Instant::now();
    let host_load = host_load();
    let specs = specs_of(spec);
    let failed =
        |message: String, output: String| Outcome::Failed { phase: Phase::Mkfs, message, output };
    // Held until the guests are gone.
    let claimed = match device.claim_again() {
        Ok(claimed) => claimed,
        Err(refused) => {
            record.outcome = failed(refused.to_string(), String::new());
            return record;
        }
    };
    let booted = Boot::of(spec, device.device())
        .map_err(BootFailure::from)
        .and_then(|boot| boot_all(&boot, spec, images, stop, on_event));
    let (mut members, frame_switch) = match booted {
        Ok(booted) => booted,
        Err(BootFailure { message, console }) => {
            record.elapsed_ns = started.elapsed().as_nanos() as u64;
            record.outcome = if stop.raised() {
                Outcome::Interrupted { phase: Phase::Mkfs }
            } else {
                failed(message, console)
            };
            drop(claimed);
            return record;
        }
    };
    let broken = converse(&mut members, &specs, stop, on_event);
    if broken.is_some() {
        members.iter_mut().for_each(|member| member.guest.kill());
    }
    let ends: Vec<(GuestExit, Heard, Option<Instant>)> = members
        .into_iter()
        .map(|member| {
            let GuestNode { guest, line_writer, heard, began, .. } = member;
            drop(line_writer);
            (guest.end(broken.is_some()), heard, began)
        })
        .collect();
    drop(frame_switch);
    let facts = |ended: &GuestExit| GuestFacts {
        kernel: images.image(place_of(spec)).lock().kernel.release.to_string(),
        image: images.image(place_of(spec)).lock().id.clone(),
        acceleration: images.machine.acceleration.to_string(),
        boot_ns: ended.boot.map(|boot| boot.as_nanos() as u64),
        host_load,
        end: ended.end.to_string(),
        console: if ended.end == GuestEnd::Completed {
            String::new()
        } else {
            ended.console.clone()
        },
    };
    let guest = facts(&ends[0].0);
    let phase = ends[0].1.phase;
    let consoles: Vec<String> = ends.iter().map(|(ended, ..)| ended.console.clone()).collect();
    record.outcome = match broken {
        None => match together(parts_of(ends), &specs) {
            Ok(whole) => {
                record = whole;
                Outcome::Completed
            }
            Err(message) => failed(message, String::new()),
        },
        Some(TrialFailure::Stopped) => Outcome::Interrupted { phase },
        Some(TrialFailure::TimedOut(limit_ns)) => Outcome::TimedOut { phase, limit_ns },
        Some(TrialFailure::Node(place, why)) => {
            let (told, outcome) = of_node(place, why, ends, &specs, &consoles[place]);
            record = told.unwrap_or(record);
            outcome
        }
    };
    record.elapsed_ns = started.elapsed().as_nanos() as u64;
    record.guest = Some(guest);
    if record.outcome != Outcome::Completed {
        device.note_left(Left::Everything);
    }
    drop(claimed);
    record
}

/// A name that no other trial has. o2cb takes letters and digits, 16 of them at most.
pub(super) fn cluster_name() -> String {
    format!("k{:012x}", rand::random::<u64>() >> 16)
}

/// The spec of each node.
pub(super) fn specs_of(spec: &TrialSpec) -> Vec<TrialSpec> {
    let nodes = spec.contender.environment.nodes();
    let cluster = cluster_name();
    let of_node = |number| TrialSpec {
        node: Some(NodeSpec { number, nodes, cluster: cluster.clone(), ..NodeSpec::default() }),
        device: Some(in_guest(guest::inside::DISK.as_ref(), &[])),
        scratch: guest::inside::SCRATCH.into(),
        ..spec.clone()
    };
    (1..=nodes).map(of_node).collect()
}

/// Why not all nodes are there.
pub(super) struct BootFailure {
    pub(super) message: String,
    pub(super) console: String,
}

impl From<String> for BootFailure {
    fn from(message: String) -> BootFailure {
        BootFailure { message, console: String::new() }
    }
}

/// Boots all nodes, once more where one of them gives up before it runs anything.
pub(super) fn boot_all(
    boot: &Boot,
    spec: &TrialSpec,
    images: &GuestImages,
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(Vec<GuestNode>, FrameSwitch), BootFailure> {
    let nodes = spec.contender.environment.nodes();
    let place = place_of(spec);
    for is_last in [false, true] {
        let again = if is_last { " once more" } else { "" };
        on_event(&Event::Status { text: format!("booting {nodes} nodes on {place}{again}") });
        let (links, frame_switch) =
            network(nodes).map_err(|error| format!("the network: {error}"))?;
        let mut guests = Vec::new();
        for link in links {
            guests.push(boot.begin(images, Some(link))?);
        }
        let stopped = || stop.raised();
        let unready = guests.iter_mut().position(|guest| !guest.wait_ready(&stopped));
        let Some(unready) = unready else {
            return Ok((guests.into_iter().map(GuestNode::new).collect(), frame_switch));
        };
        let has_given_up = guests[unready].has_given_up();
        if is_last || !has_given_up || stopped() {
            let ended = guests.swap_remove(unready).end(true);
            let message = format!("node {} did not boot: {}", unready + 1, ended.end);
            return Err(BootFailure { message, console: ended.console });
        }
    }
    unreachable!("the last attempt ends the loop")
}

impl GuestNode {
    fn new(guest: Guest) -> GuestNode {
        let heard = Heard::new();
        GuestNode {
            guest,
            line_writer: None,
            heard,
            waits: None,
            began: None,
            is_dead: false,
            acknowledged: Vec::new(),
        }
    }

    pub(super) fn turn(&mut self, turn: &TrialCommand) {
        self.waits = None;
        self.tell(serde_json::to_string(turn).expect("a command has a JSON form"));
    }

    pub(super) fn tell(&self, line: impl Into<String>) {
        if let Some(line_writer) = &self.line_writer {
            line_writer.say(line.into());
        }
    }

    fn acknowledge(&mut self, text: String) {
        if self.acknowledged.len() < ACKNOWLEDGED_MAX {
            self.acknowledged.push((Instant::now(), text));
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.heard.record.is_some()
    }
}

/// Gives every node its spec; what they say comes from then on.
pub(super) fn begin_all(members: &mut [GuestNode], specs: &[TrialSpec]) -> Lines {
    let (sender, lines) = lines::channel();
    for (number, (member, spec)) in members.iter_mut().zip(specs).enumerate() {
        let (input, output) = member.guest.take_pipes();
        member.line_writer = Some(lines::LineWriter::new(input));
        lines::read(output, lines::FOREIGN, number, &sender);
        member.tell(serde_json::to_string(spec).expect("a spec has a JSON form"));
    }
    lines
}

/// Hears all nodes until their records are there; gives why that did not come to be.
fn converse(
    members: &mut [GuestNode],
    specs: &[TrialSpec],
    stop: &StopFlag,
    on_event: &mut dyn FnMut(&Event),
) -> Option<TrialFailure> {
    let timeout_ns = specs[0].timeout_ns;
    let until = timeout_ns.map(|ns| Instant::now() + Duration::from_nanos(ns) + GRACE);
    let lines = begin_all(members, specs);
    loop {
        if let Err(broken) = hear(members, &lines, on_event) {
            return Some(broken);
        }
        if members.iter().all(GuestNode::is_done) {
            return None;
        }
        if let Err(broken) = meet(members) {
            return Some(broken);
        }
        if let Some(silent) = members.iter_mut().position(|member| member.guest.is_silent()) {
            members[silent].guest.kill_silent();
            return Some(TrialFailure::Node(silent, "it gave no sign of life".into()));
        }
        if let (Some(limit_ns), true) =
            (timeout_ns, until.is_some_and(|until| Instant::now() >= until))
        {
            return Some(TrialFailure::TimedOut(limit_ns));
        }
        if stop.raised() {
            return Some(TrialFailure::Stopped);
        }
    }
}

/// Takes in what one node says, if any says something.
pub(super) fn hear(
    members: &mut [GuestNode],
    lines: &Lines,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), TrialFailure> {
    let (number, said) = match lines.recv_timeout(LOOK_INTERVAL) {
        Ok(said) => said,
        Err(RecvTimeoutError::Timeout) => return Ok(()),
        Err(RecvTimeoutError::Disconnected) => {
            let gone = members.iter().position(|member| !member.is_done() && !member.is_dead);
            return gone.map_or(Ok(()), |gone| Err(TrialFailure::Node(gone, String::new())));
        }
    };
    let member = &mut members[number];
    if member.is_dead {
        return Ok(());
    }
    match said {
        StreamEvent::Line(line) => {
            match member.heard.hear(&line) {
                Some(Event::Meet { at }) => member.waits = Some((at, Instant::now())),
                Some(Event::Acknowledged { text }) => member.acknowledge(text),
                Some(event) => {
                    if matches!(event, Event::Phase { phase: Phase::Run }) {
                        member.began = Some(Instant::now());
                    }
                    // All do the same: the first one is shown.
                    if number == 0 {
                        on_event(&event);
                    }
                }
                None => {}
            }
            match &member.heard.record {
                Some(record) if !record.is_completed() => {
                    Err(TrialFailure::Node(number, String::new()))
                }
                _ => Ok(()),
            }
        }
        StreamEvent::End(why) => {
            if member.is_done() {
                return Ok(());
            }
            Err(TrialFailure::Node(number, why.unwrap_or_default()))
        }
    }
}

/// Lets all nodes go on when they have met; gives the one that did not come.
pub(super) fn meet(members: &mut [GuestNode]) -> Result<(), TrialFailure> {
    let Some((at, since)) = members.iter().find_map(|member| member.waits) else { return Ok(()) };
    let is_there =
        |member: &GuestNode| member.is_dead || member.waits.is_some_and(|(other, _)| other == at);
    let Some(missing) = members.iter().position(|member| !is_there(member)) else {
        members
            .iter_mut()
            .filter(|member| !member.is_dead)
            .for_each(|one| one.turn(&TrialCommand::Go));
        return Ok(());
    };
    if members[missing].is_done() || members[missing].waits.is_some() {
        let why = format!("it did not come to {}", at.words());
        return Err(TrialFailure::Node(missing, why));
    }
    if !at.can_take_long() && since.elapsed() > MEET_MAX {
        let (words, seconds) = (at.words(), MEET_MAX.as_secs());
        let phase = members[missing].heard.phase.name();
        return Err(TrialFailure::Node(
            missing,
            format!("it did not come to {words} within {seconds} s of the others (phase {phase})"),
        ));
    }
    Ok(())
}

fn parts_of(ends: Vec<(GuestExit, Heard, Option<Instant>)>) -> Vec<Part> {
    let part = |(number, (ended, heard, began)): (u32, (GuestExit, Heard, _))| Part {
        record: heard.record,
        began,
        boot: ended.boot,
        words: format!("node {number}"),
    };
    (1..).zip(ends).map(part).collect()
}

/// What came of one node that did not fail.
pub(super) struct Part {
    pub(super) record: Option<Reported>,
    /// When its run began.
    pub(super) began: Option<Instant>,
    /// How long its guest took to boot.
    pub(super) boot: Option<Duration>,
    /// What it is called in messages.
    pub(super) words: String,
}

/// One record of all nodes.
pub(super) fn together(parts: Vec<Part>, specs: &[TrialSpec]) -> Result<Record, String> {
    let first = parts.iter().filter_map(|part| part.began).min();
    let ns = |time: Duration| time.as_nanos() as u64;
    let mut records = Vec::new();
    for (number, (part, spec)) in (1u32..).zip(parts.into_iter().zip(specs)) {
        let record = part.record.ok_or("it sent no record".to_string());
        let record = record.and_then(|record| record.of(spec));
        let record = record.map_err(|problem| format!("{}: {problem}", part.words))?;
        let began = part.began.zip(first).map(|(began, first)| began.duration_since(first));
        let node = NodeRecord {
            node: number,
            began_ns: began.map_or(0, ns),
            boot_ns: part.boot.map(ns),
            ..NodeRecord::default()
        };
        records.push((record, node));
    }
    let loads: Option<Vec<&WorkloadReport>> =
        records.iter().map(|(record, _)| record.load.as_ref()).collect();
    let load = loads.map_or(Ok(None), |loads| workloads::kind::merged(&loads))?;
    Ok(Record::of_nodes(records, load))
}

/// What the node that failed tells, where it does, and the outcome of the trial.
fn of_node(
    place: usize,
    why: String,
    ends: Vec<(GuestExit, Heard, Option<Instant>)>,
    specs: &[TrialSpec],
    console: &str,
) -> (Option<Record>, Outcome) {
    let (ended, heard, _) = ends.into_iter().nth(place).expect("it is one of the nodes");
    let (number, console) = (place + 1, console.to_string());
    let why = match heard.record.map(|record| record.of(&specs[place])) {
        Some(Ok(record)) if why.is_empty() => {
            let outcome = match &record.outcome {
                Outcome::Failed { phase, message, output } => Outcome::Failed {
                    phase: *phase,
                    message: format!("node {number}: {message}"),
                    output: if output.is_empty() { console } else { output.clone() },
                },
                other => other.clone(),
            };
            return (Some(record), outcome);
        }
        Some(Err(problem)) => problem,
        _ if why.is_empty() => ended.end.to_string(),
        _ => why,
    };
    let message = format!("node {number}: {why}{}", heard.reason);
    (None, Outcome::Failed { phase: heard.phase, message, output: console })
}

/// What passes frames on among more than two guests, until it is dropped.
pub(super) struct FrameSwitch {
    ended: Arc<AtomicBool>,
}

impl Drop for FrameSwitch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A network of so many guests: each one's end of it. Two are connected without anybody between them.
fn network(nodes: u32) -> std::io::Result<(Vec<Link>, FrameSwitch)> {
    let ended = Arc::new(AtomicBool::new(false));
    let frame_switch = FrameSwitch { ended: ended.clone() };
    let (mut own, mut theirs): (Vec<UnixDatagram>, Vec<UnixDatagram>) = (Vec::new(), Vec::new());
    if nodes == 2 {
        let (one, other) = UnixDatagram::pair()?;
        theirs.extend([one, other]);
    } else {
        for _ in 0..nodes {
            let (one, other) = UnixDatagram::pair()?;
            // A guest that does not listen misses frames, as it would on a wire.
            one.set_nonblocking(true)?;
            own.push(one);
            theirs.push(other);
        }
        std::thread::spawn(move || pass_on(&own, &ended));
    }
    let link =
        |(number, socket): (u8, UnixDatagram)| Link { socket: OwnedFd::from(socket), number };
    Ok(((1u8..).zip(theirs).map(link).collect(), frame_switch))
}

/// Passes each frame on to all other guests.
fn pass_on(sockets: &[UnixDatagram], ended: &AtomicBool) {
    /// A frame with everything that virtio may leave to the receiver.
    const FRAME_BYTES_MAX: usize = 68 << 10;
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !ended.load(Ordering::Relaxed) {
        let mut ready: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        if poll(&mut ready, Some(&pause)).is_err() {
            continue;
        }
        let readable: Vec<bool> =
            ready.iter().map(|one| one.revents().contains(PollFlags::IN)).collect();
        let mut heard = false;
        for (from, _) in readable.iter().enumerate().filter(|(_, is_readable)| **is_readable) {
            let Ok(length) = sockets[from].recv(&mut frame) else { continue };
            heard = true;
            for (to, socket) in sockets.iter().enumerate() {
                if to != from {
                    let _ = socket.send(&frame[..length]);
                }
            }
        }
        if !heard {
            // The sockets of a guest that is gone are ready for ever.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(nodes: u32) -> (Vec<UnixDatagram>, FrameSwitch) {
        let (links, frame_switch) = network(nodes).unwrap();
        (links.into_iter().map(|link| UnixDatagram::from(link.socket)).collect(), frame_switch)
    }

    #[test]
    fn a_frame_reaches_every_other_guest_and_not_its_sender() {
        for nodes in [2, 3, 8] {
            let (ends, _frame_switch) = ends(nodes);
            ends[1].send(b"frame").unwrap();
            let mut heard = [0; 16];
            for (number, end) in ends.iter().enumerate() {
                if number == 1 {
                    end.set_nonblocking(true).unwrap();
                    assert!(end.recv(&mut heard).is_err(), "{nodes} nodes");
                } else {
                    assert_eq!(end.recv(&mut heard).unwrap(), 5, "{nodes} nodes, {number}");
                    assert_eq!(&heard[..5], b"frame");
                }
            }
        }
    }

    #[test]
    fn a_guest_that_is_gone_does_not_keep_the_others_from_hearing() {
        let (mut ends, _frame_switch) = ends(3);
        drop(ends.remove(0));
        ends[0].send(b"still here").unwrap();
        assert_eq!(ends[1].recv(&mut [0; 16]).unwrap(), 10);
    }
}
