//! Where a study is carried out: this machine, a guest for each trial, another machine over ssh, or several of them
//! as nodes, one file each.
//!
//! The session knows the trait alone. Invariants: [`Environment::examine`] touches nothing;
//! whatever ends it, what an environment took is given back, or named by [`Environment::end`].

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::Duration;

use lab::contender::Contender;
use lab::spec::{Device, TrialSpec};
use lab::study::Study;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trial::device::FillProgress;
use trial::stop::StopFlag;

use self::dry_run::DryRunReport;
use crate::exit::Failure;
use crate::runner::Executor;

mod aged;
pub mod deaths;
pub mod dry_run;
mod guest;
pub mod images;
mod left_out;
mod lines;
mod machines;
mod nodes;
mod preflight;
pub mod processes;
pub mod remote;
pub mod side_by_side;
mod ssh;
mod this_machine;

pub use aged::{remove_all as remove_aged, remove_unfinished as remove_unfinished_aged};
pub use guest::cut_power;
pub use left_out::{leave_out_missing, missing};
#[cfg(test)]
pub use preflight::ground_of;
pub use preflight::{capacity, check_open_files, device_request, needs_device, read_files};
pub use this_machine::begin_trials;

/// A place where studies are carried out. Runs trials once it is prepared.
pub trait Environment: Executor {
    /// Refuses commands of a study that was asked for earlier, if somebody else can have exchanged there what they
    /// name. Comes before [`Environment::examine`].
    fn believe_commands(&mut self, study: &Study) -> Result<(), Failure> {
        believe_commands(study)
    }

    /// Refuses what cannot be carried out there, and touches nothing. Guests that are missing are built.
    /// `destroy` is the real device that may be destroyed.
    fn examine(&mut self, study: &Study, destroy: Option<&str>) -> Result<Examined, Failure>;

    /// Makes what trials need, the device above all. Comes after [`Environment::examine`], once.
    fn prepare(&mut self, preparation: Preparation<'_>) -> Result<Ready, Failure>;

    /// Gives back everything that was taken.
    fn end(&mut self) -> Ended;
}

/// Opens the environment of a study: all of its contenders run in one.
pub fn of(study: &Study) -> Result<Box<dyn Environment>, Failure> {
    let words = |contender: &Contender| contender.environment.words();
    if let Some(other) =
        study.contenders.iter().find(|one| words(one) != words(&study.contenders[0]))
    {
        // No study says so; its plan may have been changed since.
        let label = &other.label;
        return Err(Failure::refused(format!(
            "contender '{label}' runs in another environment than the first"
        )));
    }
    match study.hosts() {
        [] => {}
        [host] => return Ok(Box::new(ssh::SshHost::connect(host, &study.output)?)),
        hosts => return Ok(Box::new(machines::Machines::connect(hosts, &study.output)?)),
    }
    Ok(if study.contenders.iter().any(|contender| contender.environment.guest().is_some()) {
        Box::<guest::Guests>::default()
    } else {
        Box::<this_machine::ThisMachine>::default()
    })
}

/// Refuses commands of a study that was asked for earlier, or on another machine, and that somebody else can have
/// exchanged since: they run with the rights of this process.
fn believe_commands(study: &Study) -> Result<(), Failure> {
    for (what, line) in study.commands() {
        trust::words::believe(&line.words(), None).map_err(|why| {
            Failure::refused(format!(
                "{what} is not run again: {why}; give the file to root, or add --trust USER"
            ))
        })?;
    }
    Ok(())
}

/// A study that can be carried out where it was examined.
#[derive(Serialize, Deserialize)]
pub struct Examined {
    /// What is left of it there.
    pub study: Study,
    /// The workloads under which its contenders take turns.
    pub side_by_side: BTreeSet<String>,
    /// What the user is told of it.
    pub notes: Vec<String>,
}

/// What an environment is prepared for.
pub struct Preparation<'a> {
    pub study: &'a Study,
    /// Ends it, and everything that follows.
    pub stop: &'a StopFlag,
    /// Hears how far the device is filled.
    pub filled: &'a mut dyn FnMut(FillProgress),
    /// Tells the user something.
    pub say: &'a dyn Fn(&str),
    /// The trial that comes first on a device.
    pub first: &'a dyn Fn(&Device) -> Option<TrialSpec>,
    /// Hears how long file systems were aged, before the device is filled: that is no part of the study's budget.
    pub aged: &'a dyn Fn(Duration),
    /// Hears what a dry run found, and may refuse what follows; no dry run is made where it is absent.
    pub tried: Option<&'a mut dyn FnMut(DryRunReport) -> Result<(), Failure>>,
}

/// What trials will find.
#[derive(Serialize, Deserialize)]
pub struct Ready {
    /// What they are told of the device, where one is needed.
    pub device: Option<Device>,
    /// Its size in bytes; 0 where there is none.
    pub size_bytes: u64,
    /// The facts of where they run.
    pub facts: Map<String, Value>,
    /// Time that ageing file systems took, which is no part of the study's budget.
    #[serde(default)]
    pub ageing_ns: u64,
}

#[derive(Default)]
pub struct Ended {
    /// What could not be given back, a line each.
    pub left: Vec<String>,
    /// Why nobody can say what is left, where that is so, and what the user can do.
    pub lost: Option<String>,
    /// Gives the device back while the result is already being shown.
    pub closing: Option<JoinHandle<()>>,
}
