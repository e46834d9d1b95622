//! Another machine: starts this kurabe there, by ssh(1), and has it carry the trials out.
//!
//! Knows how to get there and what to ask; what is done there is `remote`'s business. One connection
//! lasts as long as the study, and its end, however it comes, is all that the other side needs to stop
//! and give back. Invariants: every record begins by this machine's clock, and no other time of the
//! two is set side by side; what that machine says is foreign text.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::environment::check_host;
use lab::event::Event;
use lab::record::{Outcome, Phase, Record};
use lab::reported::Reported;
use lab::spec::{OutputTarget, TrialSpec};
use lab::study::Study;
use serde_json::json;
use trial::device::FillProgress;
use trial::stop::StopFlag;
use workloads::KINDS;

use super::lines::{self, Allowance, LineWriter, Lines, StreamEvent};
use super::processes::{LOOK_INTERVAL, STOP_GRACE};
use super::remote::{RemoteReply, RemoteRequest};
use super::{Ended, Environment, Examined, Preparation, Ready};
use crate::exit::{Failure, refused};
use crate::runner::{Executor, Schedule};
use crate::terminal::note;

/// Options of ssh(1), before the machine: it asks nothing, forwards nothing, shares no connection, and
/// notices within half a minute that a machine is gone.
const OPTIONS: [&str; 13] = [
    "-T",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=10",
    "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes",
    "-oForwardAgent=no",
    "-oGSSAPIDelegateCredentials=no",
    "-oForwardX11=no",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
    "-oControlPath=none",
];

/// Says by which address it was reached, becomes root there, and hands over to [`INSTALL`]. Neither holds a single quote or a backslash:
/// every login shell passes them on as they are.
const ENTER: &str = r#"
echo "kurabe: connection ${SSH_CONNECTION:-}"
if [ "$(id -u)" = 0 ]; then exec sh -c "$0" kurabe "$@"; fi
if sudo -n true 2>/dev/null; then exec sudo -n sh -c "$0" kurabe "$@"; fi
echo "kurabe: user $(id -un)"
"#;

/// Starts kurabe there. It gets the SHA-256 of the program, its size and the machine that it is for,
/// and is sent the program when it is not there as it should be.
const INSTALL: &str = r#"
set -eu
umask 077
own=${KURABE_HOME:-/var/lib/kurabe}
bin=$own/bin
program=$bin/kurabe-$1
new=$bin/kurabe-new.$$
is() { [ "$(sha256sum <"$1")" = "$2  -" ]; }
shut() { case "$(stat -c %u:%A "$1")" in 0:d????-??-?) ;; *) echo "kurabe: open $1"; exit ;; esac; }
if [ "$(uname -sm)" != "$3" ]; then echo "kurabe: machine $(uname -sm)"; exit; fi
mkdir -p "$own"
shut "$own"
above=$(cd "$own" && pwd -P)
while [ "$above" != / ]; do
    above=$(dirname "$above")
    case "$(stat -c %u:%A "$above")" in 0:d????-??-?|0:d????????[tT]) ;; *) echo "kurabe: open $above"; exit ;; esac
done
mkdir -p "$bin"
shut "$bin"
if ! [ -f "$program" ] || ! is "$program" "$1"; then
    rm -f "$bin"/kurabe-*
    echo "kurabe: send"
    head -c "$2" >"$new" || { rm -f "$new"; exit 1; }
    if ! is "$new" "$1"; then rm -f "$new"; echo "kurabe: damaged"; exit; fi
    chmod 700 "$new"
    mv "$new" "$program"
fi
echo "kurabe: start"
exec "$program" remote
"#;

/// How long that machine may take until kurabe runs there, and be silent from then on.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long it may be silent after it was asked to stop.
const STOPPING_SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the program may take to get there.
const COPY_MAX: Duration = Duration::from_secs(600);
/// How often that machine is told that this one is still there.
const LIVE_INTERVAL: Duration = Duration::from_secs(20);
/// How long a run may take there past its bound: what is still in memory has to get to its disk.
const RUN_GRACE: Duration = Duration::from_secs(600);
/// How long ssh may take to end once its connection did.
const END_GRACE: Duration = Duration::from_secs(5);
/// Most bytes of facts about a machine that are kept: dozens of times what one has.
const FACTS_BYTES_MAX: usize = 1 << 20;
/// Lines of ssh's complaint that are kept, and how much of each.
const COMPLAINT_LINES: usize = 4;
const COMPLAINT_BYTES: u64 = 400;

/// Bytes of a text of the other machine that are shown.
const SHOWN_BYTES_MAX: usize = 400;
/// Texts of a list of the other machine that are shown.
const SHOWN_MAX: usize = 20;

/// A text of the other machine as it may be shown: one line, and not long.
fn foreign(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_BYTES_MAX);
    let more = if end < text.len() { " [shortened]" } else { "" };
    format!("{}{more}", trust::text::line(&text[..end]))
}

/// A list of texts of the other machine, each with its name.
fn foreign_list(name: &str, texts: Vec<String>) -> Vec<String> {
    let more = texts.len().saturating_sub(SHOWN_MAX);
    let shown = texts.iter().take(SHOWN_MAX).map(|text| format!("{name}: {}", foreign(text)));
    let more = (more > 0).then(|| format!("{name}: and {more} more"));
    shown.chain(more).collect()
}

/// The connection to another machine, on which kurabe runs.
pub struct SshHost {
    name: String,
    /// What ssh is told.
    to: String,
    /// By which address it was reached, where it says so.
    pub address: Option<IpAddr>,
    ssh: Child,
    /// Until there is nothing more to ask.
    /// Until kurabe runs there.
    input: Option<ChildStdin>,
    /// From then on.
    line_writer: Option<LineWriter>,
    lines: Lines,
    allowance: Allowance,
    complaint: Option<JoinHandle<String>>,
    last_said: Instant,
    last_heard: Instant,
    /// When the runs that go on there must have ended; absent where they have no bound.
    ends_by: Option<Instant>,
    /// How long one may take past its bound.
    run_grace: Duration,
    /// The stop of this side; raised when the connection is lost.
    stop: StopFlag,
    stop_asked: Option<Instant>,
    /// Why the connection is no more; empty where nobody said.
    lost: Option<String>,
}

impl SshHost {
    /// As ssh was told it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is still a connection.
    pub fn is_there(&self) -> bool {
        self.lost.is_none()
    }

    /// Another machine, with kurabe running there. Refuses what the workload is to write here.
    pub fn connect(name: &str, output: &OutputTarget) -> Result<SshHost, Failure> {
        // It may come from a file.
        check_host(name).map_err(Failure::refused)?;
        if !matches!(output, OutputTarget::Null | OutputTarget::Pipe) {
            return Err(Failure::refused(format!(
                "--output: a workload on {name} shows and writes nothing here; leave it out"
            )));
        }
        let mut host = SshHost::start(name)?;
        host.install()?;
        Ok(host)
    }

    fn start(name: &str) -> Result<SshHost, Failure> {
        let mut ssh = trust::program::command("ssh").map_err(|not_found| {
            let how = trust::program::how_to_install(&["openssh-client"]);
            Failure::refused(format!("{not_found}; {how}"))
        })?;
        let path = own_program();
        let sum = guest::sha256(&[&path])?.remove(0);
        let size_bytes = path.metadata().map_err(Failure::refused)?.len();
        let machine = machine();
        // A URI is one with its scheme.
        let to = if name.starts_with("//") { format!("ssh:{name}") } else { name.into() };
        // In a group of its own: Ctrl-C is for this process, which then asks the other side to stop. It ends with
        // this process, however that ends.
        guest::die_with_parent(&mut ssh);
        let ssh = ssh
            .args(OPTIONS)
            .args(["--", &to])
            .arg(format!("exec sh -c '{ENTER}' '{INSTALL}' {sum} {size_bytes} '{machine}'"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(refused("ssh"))?;
        Ok(SshHost::of(name, to, ssh))
    }

    /// The machine at the other end of an ssh, whose streams are pipes.
    fn of(name: &str, to: String, mut ssh: Child) -> SshHost {
        let (sender, lines) = lines::channel();
        let output = ssh.stdout.take().expect("the output is a pipe");
        let allowance = lines::read(output, lines::FOREIGN, 0, &sender);
        let complaint = ssh.stderr.take().expect("the errors are a pipe");
        SshHost {
            name: name.into(),
            to,
            address: None,
            input: ssh.stdin.take(),
            line_writer: None,
            ssh,
            lines,
            allowance,
            complaint: Some(std::thread::spawn(|| last_lines(complaint))),
            last_said: Instant::now(),
            last_heard: Instant::now(),
            ends_by: None,
            run_grace: RUN_GRACE,
            stop: StopFlag::default(),
            stop_asked: None,
            lost: None,
        }
    }

    /// Brings kurabe there, if need be, and starts it.
    fn install(&mut self) -> Result<(), Failure> {
        let refused = |what: String| Err(Failure::refused(what));
        let name = self.name.clone();
        // However much a login says, kurabe has started by then.
        let mut until = Instant::now() + SILENCE_MAX;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok((_, StreamEvent::Line(line))) => line,
                Ok((_, StreamEvent::End(Some(why)))) => return refused(format!("{name}: {why}")),
                Err(RecvTimeoutError::Timeout) => {
                    let to = &self.to;
                    return refused(format!(
                        "kurabe did not start on {name} in time; try: ssh {to}"
                    ));
                }
                Ok((_, StreamEvent::End(None))) | Err(RecvTimeoutError::Disconnected) => {
                    return refused(self.why_not_there());
                }
            };
            // What else a login says is passed over.
            let Some(said) = line.strip_prefix("kurabe: ") else { continue };
            let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
            let rest = foreign(rest);
            match word {
                // The client's address and port, and then the server's.
                "connection" => {
                    let address = said.split(' ').nth(3).and_then(|text| text.parse().ok());
                    self.address = self.address.or(address);
                }
                "user" => {
                    return refused(format!(
                        "{name} lets in {rest}, who is not root and has no 'sudo -n'; write ssh:root@{}, or allow sudo without a password there",
                        name.rsplit('@').next().unwrap_or_default()
                    ));
                }
                "machine" => {
                    return refused(format!(
                        "{name} is a {rest} and this kurabe is for {}; run a kurabe that was built for {rest} there",
                        machine()
                    ));
                }
                "open" => {
                    let pasted = trust::words::pasted(&rest);
                    return refused(format!(
                        "{name}: {rest} is no directory that root alone can change; chown root and chmod 700 {pasted}"
                    ));
                }
                "damaged" => {
                    return refused(format!("{name}: kurabe came there damaged; try again"));
                }
                "send" => {
                    note(&format!("copying kurabe to {name}"));
                    let mut program = File::open(own_program()).map_err(Failure::refused)?;
                    let Some(mut input) = self.input.take() else {
                        return refused(format!("{name} asks for kurabe again and again"));
                    };
                    // One that takes nothing is waited for in another thread, which ends with its input.
                    let copying = std::thread::spawn(move || {
                        let copied = io::copy(&mut program, &mut input);
                        // Where there is no room the end of the connection says so.
                        let _ = copied.and_then(|_| input.flush());
                        input
                    });
                    until = Instant::now() + COPY_MAX;
                    while !copying.is_finished() && Instant::now() < until {
                        std::thread::sleep(LOOK_INTERVAL);
                    }
                    if !copying.is_finished() {
                        let _ = self.ssh.kill();
                        return refused(format!(
                            "{name} did not take the program within {} minutes",
                            COPY_MAX.as_secs() / 60
                        ));
                    }
                    self.input = copying.join().ok();
                    until = Instant::now() + SILENCE_MAX;
                }
                "start" => {
                    self.line_writer = self.input.take().map(LineWriter::new);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Hears replies until `take` has what was asked for.
    fn until<T>(&mut self, mut take: impl FnMut(RemoteReply) -> Option<T>) -> Result<T, Failure> {
        self.expect();
        loop {
            if let Some(reply) = self.hear(LOOK_INTERVAL)?
                && let Some(found) = take(reply)
            {
                return Ok(found);
            }
        }
    }

    /// Something new was asked, whose replies are waited for from now on.
    pub fn expect(&mut self) {
        self.allowance.renew();
        self.last_heard = Instant::now();
    }

    /// Runs begin, and have to end in time, whatever is said there meanwhile. With none, none goes on any more.
    pub fn bound(&mut self, specs: &[TrialSpec]) {
        // Where power is cut the bound is the workload's.
        let limit = |spec: &TrialSpec| spec.timeout_ns.filter(|_| spec.power_cuts.is_none());
        let bound = |spec| limit(spec).map(|ns| Duration::from_nanos(ns) + self.run_grace);
        let all = specs.iter().map(bound).sum::<Option<Duration>>();
        self.ends_by = all.filter(|_| !specs.is_empty()).map(|all| Instant::now() + all);
    }

    /// Leaves the machine to itself.
    fn give_up(&mut self, why: String) {
        self.line_writer = None;
        let _ = self.ssh.kill();
        self.lost = Some(why);
    }

    /// Hears one reply, if one comes in time.
    pub fn hear(&mut self, patience: Duration) -> Result<Option<RemoteReply>, Failure> {
        loop {
            if let Some(why) = &self.lost {
                let colon = if why.is_empty() { "" } else { ": " };
                let text = format!("the connection to {} was lost{colon}{why}", self.name);
                return Err(Failure::broken(text));
            }
            if self.ends_by.is_some_and(|until| Instant::now() >= until) {
                self.give_up("its runs did not end in time".into());
                continue;
            }
            if self.stop.raised() {
                self.ask_to_stop();
            }
            if self.last_said.elapsed() > LIVE_INTERVAL {
                self.say(&RemoteRequest::Live);
            }
            let line = match self.lines.recv_timeout(patience) {
                Ok((_, StreamEvent::Line(line))) => line,
                // It says every 20 s that it lives.
                Err(RecvTimeoutError::Timeout)
                    if self.last_heard.elapsed() > self.silence_max() =>
                {
                    let seconds = self.silence_max().as_secs();
                    self.give_up(format!("it said nothing for {seconds} s"));
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Ok((_, StreamEvent::End(Some(why)))) => {
                    self.line_writer = None;
                    self.lost = Some(why);
                    continue;
                }
                Ok((_, StreamEvent::End(None))) | Err(RecvTimeoutError::Disconnected) => {
                    self.lost = Some(self.why_ended());
                    continue;
                }
            };
            self.last_heard = Instant::now();
            match serde_json::from_str(&line) {
                Ok(RemoteReply::Live) => {}
                Ok(RemoteReply::Failed { is_refused, message }) => {
                    let lines: Vec<String> = message.lines().take(SHOWN_MAX).map(foreign).collect();
                    let message = format!("{}: {}", self.name, lines.join("\n  "));
                    return Err(if is_refused {
                        Failure::refused(message)
                    } else {
                        Failure::broken(message)
                    });
                }
                Ok(reply) => return Ok(Some(reply)),
                Err(error) => {
                    self.line_writer = None;
                    self.lost = Some(format!("something unexpected came ({error})"));
                }
            }
        }
    }

    /// How long it may be silent before the connection counts as lost; not long where the user waits for the end.
    fn silence_max(&self) -> Duration {
        if self.stop.raised() { STOPPING_SILENCE_MAX } else { SILENCE_MAX }
    }

    /// Says something to the other side. One that is gone hears nothing; the end of its output says so.
    pub fn say(&mut self, ask: &RemoteRequest) {
        self.last_said = Instant::now();
        if let Some(line_writer) = &self.line_writer {
            line_writer.say(serde_json::to_string(ask).expect("a request has a JSON form"));
        }
    }

    /// Asks the other side to stop, and leaves it to itself when it does not.
    fn ask_to_stop(&mut self) {
        match self.stop_asked {
            None => {
                self.say(&RemoteRequest::Stop);
                self.stop_asked = Some(Instant::now());
            }
            Some(asked) if asked.elapsed() > STOP_GRACE + END_GRACE => drop(self.ssh.kill()),
            Some(_) => {}
        }
    }

    /// Closes ssh's input, waits for its end and kills it when that does not come; how it ended.
    fn end_ssh(&mut self, grace: Duration) -> Option<ExitStatus> {
        (self.input, self.line_writer) = (None, None);
        let until = Instant::now() + grace;
        while matches!(self.ssh.try_wait(), Ok(None)) && Instant::now() < until {
            // What it still says is taken, so that it can end.
            if let Err(RecvTimeoutError::Disconnected) = self.lines.recv_timeout(LOOK_INTERVAL) {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        // It has ended, or answers no more.
        let _ = self.ssh.kill();
        self.ssh.wait().ok()
    }

    /// Waits for the end of ssh; its last words, if it had any, and how it ended.
    fn last_words(&mut self) -> (String, Option<ExitStatus>) {
        let status = self.end_ssh(END_GRACE);
        let complaint = self.complaint.take().and_then(|thread| thread.join().ok());
        (complaint.unwrap_or_default(), status)
    }

    /// Why there is no kurabe running.
    fn why_not_there(&mut self) -> String {
        let (name, to) = (self.name.clone(), self.to.clone());
        let (complaint, status) = self.last_words();
        // By this code ssh says that there was no connection.
        if status.and_then(|status| status.code()) != Some(255) {
            return format!("kurabe cannot be started on {name}: {complaint}");
        }
        let next = if complaint.contains("Host key verification failed") {
            format!("log in once by hand, and compare its key: ssh {to}")
        } else if !complaint.contains("Permission denied") {
            format!("try: ssh {to}")
        } else if std::env::var_os("SUDO_UID").is_some() {
            "these were root's keys; here kurabe needs no root, and without sudo ssh uses yours"
                .into()
        } else {
            format!("it has to let you in without a question; try: ssh -o BatchMode=yes {to}")
        };
        format!("{name} cannot be reached: {complaint}; {next}")
    }

    /// Why kurabe runs there no more.
    fn why_ended(&mut self) -> String {
        let (complaint, status) = self.last_words();
        let old_libc =
            "; its C library is older than the one here: build kurabe on the older machine";
        let hint = if complaint.contains("GLIBC_") { old_libc } else { "" };
        match status.and_then(|status| status.signal()) {
            Some(signal) => format!("ssh was killed by signal {signal}"),
            None => format!("{complaint}{hint}"),
        }
    }
}

impl Environment for SshHost {
    fn believe_commands(&mut self, study: &Study) -> Result<(), Failure> {
        // The commands run there. Its refusal comes with the next answer.
        self.say(&RemoteRequest::Believe { study: Box::new(study.clone()) });
        Ok(())
    }

    fn examine(&mut self, study: &Study, destroy: Option<&str>) -> Result<Examined, Failure> {
        let (study, destroy) = (Box::new(study.clone()), destroy.map(String::from));
        self.say(&RemoteRequest::Examine { study: study.clone(), destroy });
        let examined = self.until(|reply| match reply {
            RemoteReply::Examined { examined } => Some(*examined),
            _ => None,
        });
        let mut examined = examined.map_err(|failure| match &self.lost {
            // As long as it has said nothing it has touched nothing.
            Some(why) => Failure::refused(format!("kurabe does not start on {}: {why}", self.name)),
            None => failure,
        })?;
        // The study is kept here, and what is kept can be gone on with.
        if is_part(&examined.study, &study) {
            examined.study.parse_workloads(KINDS).map_err(Failure::refused)?;
            let notes = foreign_list(&self.name, examined.notes);
            Ok(Examined { notes, ..examined })
        } else {
            Err(Failure::refused(format!("{} answered with another study", self.name)))
        }
    }

    fn prepare(&mut self, preparation: Preparation<'_>) -> Result<Ready, Failure> {
        let Preparation { stop, filled, say, .. } = preparation;
        self.stop = stop.clone();
        self.say(&RemoteRequest::Prepare);
        let name = self.name.clone();
        let ready = self.until(|reply| {
            match reply {
                RemoteReply::Prepared { ready } => return Some(*ready),
                RemoteReply::Note { text } => say(&format!("{name}: {}", foreign(&text))),
                RemoteReply::Filled { done_bytes, total_bytes } => {
                    filled(FillProgress { done_bytes: done_bytes.min(total_bytes), total_bytes });
                }
                _ => {}
            }
            None
        });
        let mut ready = ready?;
        let facts_bytes = serde_json::to_string(&ready.facts).map_or(0, |facts| facts.len());
        if facts_bytes > FACTS_BYTES_MAX {
            return Err(Failure::refused(format!(
                "{name} sent {facts_bytes} bytes of facts about itself; at most {FACTS_BYTES_MAX} are taken"
            )));
        }
        ready.facts.insert("ssh".into(), json!({ "host": name }));
        Ok(ready)
    }

    fn end(&mut self) -> Ended {
        self.line_writer = None;
        let ended = self.until(|reply| match reply {
            RemoteReply::Ended { left } => Some(left),
            _ => None,
        });
        let name = &self.name;
        match ended {
            Ok(left) => {
                let left = foreign_list(name, left);
                Ended { left, ..Ended::default() }
            }
            Err(_) => {
                let lost = format!(
                    "{name}: kurabe gives back there by itself what it took, or the next study there does"
                );
                Ended { lost: Some(lost), ..Ended::default() }
            }
        }
    }
}

impl Executor for SshHost {
    fn run(
        &mut self,
        specs: &[TrialSpec],
        schedule: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let started = Instant::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let terms = schedule.map(|schedule| schedule.terms());
        self.say(&RemoteRequest::CarryOut { specs: specs.to_vec(), terms });
        self.bound(specs);
        let mut phase = Phase::Mkfs;
        let mut records = Vec::new();
        let heard = self.until(|reply| {
            match reply {
                RemoteReply::Said { event: Event::Record { record } } => records.push(record),
                RemoteReply::Said { event } => {
                    if let Event::Phase { phase: begun } = &event {
                        phase = *begun;
                    }
                    on_event(&event);
                }
                _ => {}
            }
            (records.len() == specs.len()).then_some(())
        });
        self.bound(&[]);
        let was_stopped = self.stop.raised();
        let failure = heard.err().map(|failure| {
            // Nothing can follow: the device went with the connection.
            self.stop.raise();
            failure.message
        });
        let mut records = records.into_iter();
        let record_of = |spec: &TrialSpec| {
            let none = || Err(failure.clone().unwrap_or_default());
            let said = records.next().map_or_else(none, |record: Reported| {
                record.of(spec).map_err(|other| format!("{}: {other}", self.name))
            });
            let mut record = said.unwrap_or_else(|message| {
                let mut record = Record::begun(spec, 0);
                record.elapsed_ns = started.elapsed().as_nanos() as u64;
                record.outcome = if was_stopped {
                    Outcome::Interrupted { phase }
                } else {
                    Outcome::Failed { phase, message, output: String::new() }
                };
                record
            });
            record.started_unix_ns = unix.as_nanos() as u64;
            record
        };
        specs.iter().map(record_of).collect()
    }
}

impl Drop for SshHost {
    /// The end of its input ends the other side, and that ends ssh.
    fn drop(&mut self) {
        self.end_ssh(if self.lost.is_none() { STOP_GRACE } else { END_GRACE });
    }
}

/// Whether a study is the one that was asked for, but for what a machine lacks.
fn is_part(study: &Study, asked: &Study) -> bool {
    let asked_baseline = &asked.contenders[asked.baseline];
    let mut asked = asked.clone();
    asked.contenders.retain(|one| study.contenders.contains(one));
    asked.workloads.retain(|one| study.workloads.contains(one));
    asked.left_out.clone_from(&study.left_out);
    // The baseline may be another one only where its contender is missing.
    let baseline = &asked_baseline.label;
    match asked.contenders.iter().position(|one| one.label == *baseline) {
        Some(place) => asked.baseline = place,
        None => asked.baseline = study.baseline,
    }
    asked == *study && study.baseline < study.contenders.len() && !study.workloads.is_empty()
}

/// This very program, also after another was installed in its place.
fn own_program() -> PathBuf {
    Path::new("/proc").join(std::process::id().to_string()).join("exe")
}

/// The kernel and the instruction set that this program is for.
fn machine() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.machine().to_string_lossy())
}

/// The last lines of what ssh, or a program over there, says beside its output.
fn last_lines(errors: ChildStderr) -> String {
    let mut last = VecDeque::new();
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while (&mut errors)
        .take(COMPLAINT_BYTES)
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        if last.len() == COMPLAINT_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).trim_end().to_string());
        line.clear();
    }
    Vec::from(last).join("; ").trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use lab::contender::Contender;
    use lab::spec::{CommandLine, WorkloadSpec};

    use super::*;
    use crate::power_failures::crash::{spec, workload};

    #[test]
    fn a_machine_that_only_says_that_it_lives_is_left_in_time() {
        let lives = r#"for i in $(seq 100); do echo '{"reply":"live"}'; sleep 0.05; done"#;
        let mut ssh = trust::program::command("sh").unwrap();
        ssh.args(["-c", lives]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let ssh = ssh.stderr(Stdio::piped()).spawn().unwrap();
        let mut host = SshHost::of("far", "far".into(), ssh);
        host.run_grace = Duration::ZERO;
        let load = WorkloadSpec::of_command(CommandLine::Words(Vec::new()));
        let known = trial::filesystem::known();
        let contender = Contender::parse("ext4", &known).unwrap();
        let spec = spec(contender, None, workload(load, None, None), 100_000_000);
        let records = host.run(&[spec.clone(), spec], None, &mut |_| {});
        assert_eq!(records.len(), 2);
        for record in records {
            let Outcome::Failed { message, .. } = record.outcome else { panic!("{record:?}") };
            assert!(message.contains("its runs did not end in time"), "{message}");
        }
        assert!(host.stop.raised() && !host.is_there());
    }
}
