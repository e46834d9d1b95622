//! This machine: trials are processes of it, on a device that it makes or claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use lab::device::DeviceName;
use lab::event::Event;
use lab::record::Record;
use lab::spec::{Device, TrialSpec};
use lab::study::Study;
use serde_json::{Map, Value, json};
use trial::device::{DeviceError, PreparedDevice, part_bytes};
use trial::facts::MachineFacts;
use trial::filesystem;
use trial::ledger::{self, Ledger};
use trial::lower;
use trial::stop::StopFlag;
use trial::upper;
use trust::Directory;

use super::aged::{self, AgedImages};
use super::dry_run::{DryRunReport, try_out};
use super::left_out;
use super::preflight::{PinnedDirectory, device_request, needs_device, preflight};
use super::processes::{NodeCommand, Processes};
use super::side_by_side;
use super::{Ended, Environment, Examined, Preparation, Ready};
use crate::exit::{Failure, refused};
use crate::runner::{Executor, Schedule};

#[derive(Default)]
pub struct ThisMachine {
    destroy: Option<String>,
    /// The directories of `dir:` contenders as they were examined.
    directories: Vec<PinnedDirectory>,
    /// The workloads whose contenders take turns, as it was examined.
    side_by_side: BTreeSet<String>,
    /// What the study is, for contenders that have to be aged.
    study: Option<Study>,
    aged: AgedImages,
    /// What a trial is told as one of several nodes.
    pub orders: Option<Receiver<NodeCommand>>,
    /// Once it is prepared.
    processes: Option<Processes>,
}

impl ThisMachine {
    /// Opens kurabe's own directory, cleaned, with a ledger in it.
    pub fn begin(&mut self, stop: &StopFlag, say: &dyn Fn(&str)) -> Result<&Directory, Failure> {
        let mut processes = begin_trials(stop, say)?;
        processes.directories = std::mem::take(&mut self.directories);
        processes.orders = self.orders.take();
        Ok(&self.processes.insert(processes).own)
    }

    /// Makes the device that the study asks for, where one is needed; `made` hears of it before it is
    /// filled.
    pub fn make_device(
        &mut self,
        preparation: Preparation<'_>,
        made: &mut dyn FnMut(&Device),
    ) -> Result<Ready, Failure> {
        let Preparation { study, stop, filled, .. } = preparation;
        let processes = self.processes.as_mut().expect("it was begun");
        if needs_device(study) {
            let request = device_request(study, self.destroy.as_deref())?;
            let prepared = request.prepare_telling(&processes.own, stop, filled, made);
            let prepared = prepared.map_err(|error| {
                let words = format!("--device {}: {error}", study.device);
                match error {
                    DeviceError::Refused(_) => Failure::refused(words),
                    _ => Failure::broken(words),
                }
            });
            processes.device = Some(prepared?);
        }
        let prepared = processes.device.as_deref();
        Ok(Ready {
            device: prepared.map(|prepared| prepared.device().clone()),
            size_bytes: prepared.map_or(0, |prepared| prepared.facts().size_bytes),
            facts: facts(study, prepared),
            ageing_ns: 0,
        })
    }

    /// Tries everything on an image that takes no space.
    fn try_out(&mut self, preparation: &Preparation<'_>) -> Result<DryRunReport, Failure> {
        let study = preparation.study;
        let request = device_request(study, self.destroy.as_deref())?;
        let processes = self.processes.as_mut().expect("it was begun");
        // The trial that comes first, on a device that is not there yet.
        let none = Device {
            layers: DeviceName::parse(&study.device).map(|name| name.layers).unwrap_or_default(),
            ..Device::default()
        };
        match ((preparation.first)(&none), request.size_bytes()) {
            (Some(first), Some(bytes)) => try_out(study, &first, bytes, processes),
            _ => Ok(DryRunReport::default()),
        }
    }

    /// Ages the file systems of the contenders that are to be aged, each for the parts of the device that it gets.
    fn age(&mut self, preparation: &Preparation<'_>) -> Result<(), Failure> {
        let study = preparation.study;
        let request = device_request(study, self.destroy.as_deref())?;
        self.study = Some(study.clone());
        let Some(whole_bytes) = request.size_bytes() else { return Ok(()) };
        let parts = study.contenders.len() as u32;
        let mut sizes: Vec<u64> = study
            .workloads
            .iter()
            .map(|workload| {
                if self.side_by_side.contains(&workload.name) {
                    part_bytes(whole_bytes, parts)
                } else {
                    whole_bytes
                }
            })
            .collect();
        // Where the power is cut, a contender has all of it.
        sizes.extend(study.durability.map(|_| whole_bytes));
        sizes.sort_unstable();
        sizes.dedup();
        let processes = self.processes.as_mut().expect("it was begun");
        for contender in &study.contenders {
            for size_bytes in &sizes {
                self.aged.ensure(study, contender, *size_bytes, processes, preparation.say)?;
            }
        }
        Ok(())
    }

    /// The spec of a trial with the aged file system of its contender; made now where it was not foreseen that
    /// the contender gets so much of the device.
    fn with_age(&mut self, spec: &TrialSpec) -> Result<TrialSpec, Failure> {
        let mut spec = spec.clone();
        if spec.contender.aged.is_none() {
            return Ok(spec);
        }
        let study = self.study.as_ref().expect("it was prepared");
        let processes = self.processes.as_mut().expect("it was prepared");
        let whole_bytes = processes.device.as_ref().map_or(0, |device| device.facts().size_bytes);
        let parts = spec.side_by_side.map_or(1, |together| together.contenders);
        let size_bytes = if parts > 1 { part_bytes(whole_bytes, parts) } else { whole_bytes };
        self.aged.ensure(study, &spec.contender, size_bytes, processes, &|_| {})?;
        spec.aged = self.aged.of(study, &spec.contender, size_bytes);
        Ok(spec)
    }

    pub fn device(&self) -> Option<&dyn PreparedDevice> {
        self.processes.as_ref()?.device.as_deref()
    }
}

impl Environment for ThisMachine {
    fn examine(&mut self, study: &Study, destroy: Option<&str>) -> Result<Examined, Failure> {
        let mut study = study.clone();
        self.directories = preflight(&study, destroy)?;
        self.destroy = destroy.map(String::from);
        let request = device_request(&study, destroy)?;
        // They may be built, for minutes: after all that can be refused at once.
        left_out::leave_out_missing_in_guests(&mut study)?;
        let side_by_side = side_by_side::chosen(&study, &request)?;
        let mut notes = side_by_side::notes(&study, &request);
        notes.extend(side_by_side::small(&study, &request));
        let passed_over = trust::program::passed_over().into_iter();
        notes.extend(passed_over.map(|note| format!("note: {note}")));
        notes.extend(side_by_side::parts(&study, &side_by_side, &request));
        self.side_by_side.clone_from(&side_by_side);
        Ok(Examined { study, side_by_side, notes })
    }

    fn prepare(&mut self, mut preparation: Preparation<'_>) -> Result<Ready, Failure> {
        self.begin(preparation.stop, preparation.say)?;
        if let Some(tried) = preparation.tried.take()
            && needs_device(preparation.study)
        {
            tried(self.try_out(&preparation)?)?;
        }
        let begun = Instant::now();
        self.age(&preparation)?;
        let ageing = begun.elapsed();
        (preparation.aged)(ageing);
        let ageing_ns = ageing.as_nanos() as u64;
        let mut ready = self.make_device(preparation, &mut |_| {})?;
        if !self.aged.is_empty() {
            ready.ageing_ns = ageing_ns;
            ready.facts.insert("aged".into(), self.aged.facts());
        }
        Ok(ready)
    }

    fn end(&mut self) -> Ended {
        let Some(mut processes) = self.processes.take() else { return Ended::default() };
        let left = processes.give_back();
        let device = processes.device.take();
        // A large image takes its file system a second to give back.
        let closing = device.map(|device| std::thread::spawn(move || drop(device)));
        Ended { left, lost: None, closing }
    }
}

impl Executor for ThisMachine {
    fn run(
        &mut self,
        specs: &[TrialSpec],
        schedule: Option<&mut Schedule<'_>>,
        on_event: &mut dyn FnMut(&Event),
    ) -> Vec<Record> {
        let aged: Result<Vec<TrialSpec>, Failure> =
            specs.iter().map(|spec| self.with_age(spec)).collect();
        // Without its file system a trial says so itself.
        let aged = aged.unwrap_or_else(|failure| {
            on_event(&Event::Status { text: failure.message });
            specs.to_vec()
        });
        let processes = self.processes.as_mut().expect("it is prepared before it runs anything");
        processes.run(&aged, schedule, on_event)
    }
}

/// Opens kurabe's own directory, gives back what earlier runs left, and begins a ledger; trials then run
/// without a device. Where that fails nothing was taken.
pub fn begin_trials(stop: &StopFlag, say: &dyn Fn(&str)) -> Result<Processes, Failure> {
    let own = Directory::own().map_err(refused("kurabe's own directory"))?;
    match ledger::clean(&own) {
        Ok(report) => {
            for line in report.done {
                say(&format!("left by an earlier session: {line}"));
            }
            for line in report.left {
                say(&format!("left by an earlier session and still there: {line}"));
            }
        }
        Err(error) => say(&format!("looking for what earlier sessions left: {error}")),
    }
    match aged::remove_unfinished(&own) {
        Ok(0) => {}
        Ok(count) => say(&format!(
            "left by an earlier session: {count} unfinished aged file systems, removed"
        )),
        Err(error) => say(&format!("looking for what earlier sessions left: {}", error.message)),
    }
    let ledger = Ledger::start(&own).map_err(|error| {
        let place = own.path().display();
        Failure::refused(format!(
            "the ledger in {place} cannot be written: {error}; name another directory by KURABE_HOME"
        ))
    })?;
    Ok(Processes::new(Arc::new(own), Arc::new(ledger), stop.clone()))
}

/// What a result says of this machine when the study is carried out on it.
fn facts(study: &Study, prepared: Option<&dyn PreparedDevice>) -> Map<String, Value> {
    let facts = [
        ("machine", json!(MachineFacts::read())),
        ("device", json!(prepared.map(|prepared| prepared.facts()))),
        ("tools", tool_versions(study)),
        ("load", json!(study.user.as_ref().map(|user| json!({ "user": user })))),
    ];
    facts.map(|(name, facts)| (name.to_string(), facts)).into_iter().collect()
}

/// Versions of the tools that the contenders need, as they print them.
fn tool_versions(study: &Study) -> Value {
    let versions: Map<String, Value> = study
        .contenders
        .iter()
        .filter_map(|contender| filesystem::by_name(contender.file_system()))
        .flat_map(|file_system| file_system.tools)
        .chain(study.contenders.iter().flat_map(upper::tools))
        .chain(study.contenders.iter().flat_map(lower::tools))
        .filter_map(|tool| Some((tool.name.to_string(), Value::from(tool.installed_version()?))))
        .collect();
    Value::Object(versions)
}
