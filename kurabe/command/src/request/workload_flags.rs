//! The flags of workloads other than a command, made of the table of their kinds: a flag a key.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, Error, FromArgMatches};
use lab::words::grouped;
use serde_json::Value;
use vocabulary::kind::{Form, KeyRole, Keys, WorkloadKey, WorkloadKind, WorkloadKinds};
use vocabulary::words::list;
use workloads::KINDS;

/// The keys of a workload, from the command line.
#[derive(Debug, Default)]
pub struct WorkloadKeys(pub Keys);

/// Where the flags stand in the help.
const HEADING: &str = "Workloads other than a command";

/// A whole number, for clap; the error says what was expected.
pub fn whole<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let number = text.parse::<u64>().ok().and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| {
        let bits = 8 * size_of::<N>();
        format!("expected a whole number such as 5, from 0 to {}", u64::MAX >> (64 - bits))
    })
}

/// How many, and one at least, for clap.
pub fn some<N: TryFrom<u64> + PartialEq + Default>(text: &str) -> Result<N, String> {
    match whole::<N>(text)? {
        number if number == N::default() => Err("expected 1 or more".into()),
        number => Ok(number),
    }
}

/// A number with or without a fraction, for clap.
pub fn decimal(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "expected a number such as 5 or 0.5".into())
}

/// The flags of these kinds, added to a command.
pub fn augment(command: Command, kinds: WorkloadKinds) -> Command {
    let keys = || kinds.keys().into_iter().filter(|(key, _)| key.role != KeyRole::Program);
    let naming: Vec<&str> =
        keys().filter(|(key, _)| key.names_workload()).map(|(key, _)| key.name).collect();
    command
        .args(keys().map(|(key, takers)| argument(key, &takers)))
        .group(ArgGroup::new("load").args(naming))
}

fn argument(key: &'static WorkloadKey, takers: &[&'static WorkloadKind]) -> Arg {
    let argument = Arg::new(key.name)
        .long(key.name)
        .help_heading(HEADING)
        .help(help(key, takers).trim_end_matches('.').to_string());
    match key.form {
        Form::Switch => argument.action(ArgAction::SetTrue),
        Form::Text(value) => argument.value_name(value),
        Form::Options(value) => argument.value_name(value).allow_hyphen_values(true),
        Form::Whole(value) => argument
            .value_name(value)
            .allow_negative_numbers(true)
            .value_parser(ValueParser::new(whole::<u32>)),
        Form::Decimal(value) => argument
            .value_name(value)
            .allow_negative_numbers(true)
            .value_parser(ValueParser::new(decimal)),
        Form::List(value) => {
            argument.value_name(value).value_delimiter(',').action(ArgAction::Append)
        }
    }
}

/// What a key does; of an option, for each of its workloads.
fn help(key: &WorkloadKey, takers: &[&'static WorkloadKind]) -> String {
    if key.names_workload() {
        return key.help.into();
    }
    let alike = grouped(takers.iter().map(|kind| {
        let help = kind.key(key.name).expect("it takes the key").help;
        (help, format!("--{}", kind.name))
    }));
    let each = alike.iter().map(|(help, flags)| format!("Of {}: {help}", list(flags)));
    each.collect::<Vec<_>>().join(" ")
}

/// What was given of these kinds' flags.
pub fn given(matches: &ArgMatches, kinds: WorkloadKinds) -> Keys {
    let value = |key: &WorkloadKey| -> Option<Value> {
        if key.role == KeyRole::Program {
            return None;
        }
        Some(match key.form {
            Form::Switch => matches.get_flag(key.name).then_some(true)?.into(),
            Form::Text(_) | Form::Options(_) => matches.get_one::<String>(key.name)?.clone().into(),
            Form::Whole(_) => (*matches.get_one::<u32>(key.name)?).into(),
            Form::Decimal(_) => (*matches.get_one::<f64>(key.name)?).into(),
            Form::List(_) => matches.get_many::<String>(key.name)?.cloned().collect(),
        })
    };
    let keys = kinds.keys().into_iter().map(|(key, _)| key);
    keys.filter_map(|key| Some((key.name.to_string(), value(key)?))).collect()
}

/// The flags that name a workload, for a message to people who named none.
pub fn names(kinds: WorkloadKinds) -> String {
    let flags = kinds.naming().filter(|key| key.role == KeyRole::Load);
    flags.map(|key| format!("--{}", key.name)).collect::<Vec<_>>().join(", ")
}

impl Args for WorkloadKeys {
    fn augment_args(command: Command) -> Command {
        augment(command, KINDS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        augment(command, KINDS)
    }
}

impl FromArgMatches for WorkloadKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<WorkloadKeys, Error> {
        Ok(WorkloadKeys(given(matches, KINDS)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(given(matches, KINDS));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
