//! `kurabe remote`: carries a study's trials out for the kurabe of another machine, which started it
//! over ssh. Requests come in, replies go out, as lines of JSON.
//!
//! Knows nothing of connections: whoever asks is at the other end of standard input. Invariants:
//! nothing is touched before the study was examined; when the input ends, or is silent for
//! [`SILENCE_MAX`], the trial is stopped and everything is given back.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lab::event::Event;
use lab::spec::TrialSpec;
use lab::study::Study;
use serde::{Deserialize, Serialize};
use trial::stop::StopFlag;
use workloads::KINDS;

use super::left_out::leave_out_missing;
use super::processes::{LOOK_INTERVAL, NodeCommand};
use super::this_machine::ThisMachine;
use super::{Environment, Examined, Preparation, Ready, believe_commands};
use crate::exit::{self, Failure};
use crate::runner::{Executor, Schedule, Terms};

/// How often whoever asks is told that this machine still works.
const LIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Who asks says something more often than this, or the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum RemoteRequest {
    /// Refuse commands of a study that was asked for earlier, if somebody else can have exchanged here what they
    /// name. Comes before the first request, where it is asked at all.
    Believe { study: Box<Study> },
    /// Say whether this can be carried out, and touch nothing. The first request.
    Examine {
        study: Box<Study>,
        /// What may be destroyed here.
        destroy: Option<String>,
    },
    /// Make the device of it. The second one.
    Prepare,
    /// Carry trials out: one record each.
    CarryOut {
        specs: Vec<TrialSpec>,
        /// How they take turns.
        terms: Option<Terms>,
    },
    /// All nodes have met, of which this machine is one.
    Go,
    /// Stop the trial: another node failed.
    Abandon,
    /// Nothing: who asks is still there.
    Live,
    /// Stop what goes on. The last one.
    Stop,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum RemoteReply {
    /// The study can be carried out.
    Examined { examined: Box<Examined> },
    /// What the user must know.
    Note { text: String },
    /// How far the device is filled.
    Filled {
        /// Bytes that are written.
        done_bytes: u64,
        total_bytes: u64,
    },
    /// The device is there.
    Prepared {
        /// What trials find.
        ready: Box<Ready>,
    },
    /// A trial said something; of each one its record is the last.
    Said { event: Event },
    /// It cannot go on; everything was given back.
    Failed {
        /// Whether nothing was touched.
        is_refused: bool,
        message: String,
    },
    /// This machine still works.
    Live,
    /// All is over, everything was given back but this.
    Ended {
        /// What is left, a line each.
        left: Vec<String>,
    },
}

/// `kurabe remote`.
pub fn main() -> Result<u8, Failure> {
    let stop = StopFlag::on_signals().map_err(Failure::broken)?;
    let (asks, orders) = listen(&stop);
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(LIVE_INTERVAL);
            say(&RemoteReply::Live);
        }
    });
    say(&match serve(&asks, orders, &stop) {
        Ok(left) => RemoteReply::Ended { left },
        Err(Failure { code, message }) => {
            RemoteReply::Failed { is_refused: code == exit::REFUSED, message }
        }
    });
    Ok(exit::OK)
}

/// What could not be given back.
fn serve(
    asks: &Receiver<RemoteRequest>,
    orders: Receiver<NodeCommand>,
    stop: &StopFlag,
) -> Result<Vec<String>, Failure> {
    let mut ask = asks.recv();
    if let Ok(RemoteRequest::Believe { study }) = ask {
        believe_commands(&study)?;
        ask = asks.recv();
    }
    let Ok(RemoteRequest::Examine { mut study, destroy }) = ask else { return Ok(Vec::new()) };
    study.parse_workloads(KINDS).map_err(Failure::refused)?;
    leave_out_missing(&mut study)?;
    let mut here = ThisMachine::default();
    here.orders = Some(orders);
    let examined = here.examine(&study, destroy.as_deref())?;
    let study = examined.study.clone();
    say(&RemoteReply::Examined { examined: Box::new(examined) });

    let Ok(RemoteRequest::Prepare) = asks.recv() else { return Ok(Vec::new()) };
    let mut filled = |fill: trial::device::FillProgress| {
        say(&RemoteReply::Filled { done_bytes: fill.done_bytes, total_bytes: fill.total_bytes });
    };
    let ready = here.prepare(Preparation {
        study: &study,
        stop,
        filled: &mut filled,
        say: &|text| say(&RemoteReply::Note { text: text.into() }),
        first: &|_| None,
        aged: &|_| (),
        tried: None,
    })?;
    say(&RemoteReply::Prepared { ready: Box::new(ready) });

    // Ends with whoever asks, and with a stop.
    while let Ok(RemoteRequest::CarryOut { specs, terms }) = asks.recv() {
        let begun = Instant::now();
        let clock = || begun.elapsed();
        let mut schedule = terms.map(|terms| Schedule::new(terms, &clock));
        let mut on_event = |event: &Event| say(&RemoteReply::Said { event: event.clone() });
        for record in here.run(&specs, schedule.as_mut(), &mut on_event) {
            say(&RemoteReply::Said { event: Event::Record { record: record.into() } });
        }
    }
    let ended = here.end();
    if let Some(closing) = ended.closing {
        closing.join().expect("giving a device back does not panic");
    }
    Ok(ended.left)
}

/// The requests as they come in, and what concerns the trial that goes on. There are no more, and the stop is raised, once who asks said so, is
/// gone or is silent.
fn listen(stop: &StopFlag) -> (Receiver<RemoteRequest>, Receiver<NodeCommand>) {
    let (heard, lines) = channel();
    std::thread::spawn(move || {
        let all = io::stdin().lines().map_while(Result::ok);
        all.map_while(|line| heard.send(line).ok()).for_each(drop);
    });
    let ((sender, asks), (tell, orders)) = (channel(), channel());
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut last = Instant::now();
        while !stop.raised() && last.elapsed() < SILENCE_MAX {
            let line = match lines.recv_timeout(LOOK_INTERVAL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            last = Instant::now();
            match serde_json::from_str(&line) {
                Ok(RemoteRequest::Live) => {}
                Ok(RemoteRequest::Go) => tell.send(NodeCommand::Go).unwrap_or(()),
                Ok(RemoteRequest::Abandon) => tell.send(NodeCommand::Abandon).unwrap_or(()),
                Ok(RemoteRequest::Stop) | Err(_) => break,
                Ok(ask) => sender.send(ask).unwrap_or(()),
            }
        }
        stop.raise();
    });
    (asks, orders)
}

/// Says something to whoever asks. One that is gone hears nothing; the end of its input says so.
fn say(reply: &RemoteReply) {
    let mut line = serde_json::to_vec(reply).expect("a reply has a JSON form");
    line.push(b'\n');
    let mut output = io::stdout().lock();
    let _ = output.write_all(&line).and_then(|()| output.flush());
}
