//! A command of the user's own. It is the one kind that the trial starts itself, and whose keys are
//! the study's: what comes before and after any workload is a command too.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vocabulary::capacity::{self, Capacity};
use vocabulary::command::CommandLine;
use vocabulary::kind::{Generator, KeyError, WorkloadKind, Written, options_without};
use vocabulary::report::{TIME_METRIC, WorkloadReport};
use vocabulary::workload::{COMMAND_KIND, WorkloadTask};

pub(super) const KIND: WorkloadKind = WorkloadKind::of::<Command>(COMMAND_KIND, &[], &[]);

#[derive(Serialize, Deserialize)]
struct Command {
    command: CommandLine,
}

impl Generator for Command {
    fn parse(_: &Written<'_>) -> Result<Command, KeyError> {
        Err(KeyError::new(COMMAND_KIND, "is read by the study"))
    }

    fn settings(&self) -> Value {
        options_without(self, &[])
    }

    fn check(&self, _: Option<&Capacity>) -> Result<(), String> {
        Ok(())
    }

    fn plan(&self, _: Option<&Capacity>) -> Result<String, String> {
        let lines = capacity::lines(&[("command", self.command.to_string())]);
        Ok(lines + "what it writes is not known in advance\n")
    }

    fn metrics(&self) -> Vec<String> {
        vec![TIME_METRIC.into()]
    }

    fn run(&self, _: &WorkloadTask, _: &AtomicBool) -> Result<WorkloadReport, String> {
        Err("a command is started without a task".into())
    }
}
