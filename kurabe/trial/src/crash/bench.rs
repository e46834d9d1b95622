//! Where one disk after the other stands: a server of its own, and the device that all its disks are.
//!
//! Benches are used side by side, each by a thread of its own. What they mount has the same path on each, in a mount
//! namespace of each thread's own, since a program may have written down where its data lay.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crash::{CrashState, FlushPolicy, Log};
use lab::spec::{CommandLine, OutputTarget};
use serde_json::Value;
use vocabulary::workload::{WorkloadStage, WorkloadTarget, WorkloadTask};

use super::judge::{Receiver, Spent, code_text};
use super::{ACK_VARIABLE, Setting, TEARDOWN_MAX};
use crate::aged::{self, AGED_VARIABLE};
use crate::command::{self, CommandBounds, CommandEnd};
use crate::device::served::{Pages, ServedDevice};
use crate::device::{Attached, DeviceNode, attach_served};
use crate::filesystem::{self, Access, FileSystem, Instance, InstanceContext};
use crate::lower;
use crate::tool::{StepFailure, Toolbox, failed};
use crate::upper;
use crate::workload::WorkloadChannel;

/// See above.
pub struct Bench<'a> {
    pub setting: Setting<'a>,
    /// Its own files.
    pub place: PathBuf,
    disks: Mutex<ServedDevice>,
    /// The device, once there is one.
    device: RefCell<Option<Attached>>,
    /// Where its time went.
    pub spent: Cell<Spent>,
}

/// What a program of the trial reads and writes.
#[derive(Default)]
pub struct Streams<'a> {
    /// Its standard output, where that is not thrown away.
    pub output: Option<&'a File>,
    /// The channel, with a workload of kurabe's own.
    pub channel: Option<&'a WorkloadChannel>,
}

pub fn served_failure(error: io::Error) -> StepFailure {
    StepFailure::of(format!("serving the disks: {error}"))
}

impl<'a> Bench<'a> {
    /// A bench for disks whose recorded bytes lie in `data`.
    pub fn new(setting: Setting<'a>, number: usize, data: &File) -> Result<Bench<'a>, StepFailure> {
        let place = setting.scratch.work().join(format!("bench-{number}"));
        let started = fs::create_dir(&place)
            .and_then(|()| ServedDevice::start(data.try_clone()?, &place))
            .map_err(served_failure)?;
        let (disks, device) = (Mutex::new(started), RefCell::default());
        Ok(Bench { setting, place, disks, device, spent: Cell::default() })
    }

    /// Gives its device back.
    pub fn clear(&self) -> Result<(), StepFailure> {
        let attached = self.device.take();
        attached.map_or(Ok(()), |one| one.detach().map(drop)).map_err(StepFailure::from)
    }

    /// Takes a recording that was made on another one, or kept.
    pub fn take(&self, log: &Log) -> Result<(), StepFailure> {
        self.disks().take(log.clone()).map_err(served_failure)
    }

    /// The command that carries out one part of kurabe's own workload, and the channel with it.
    pub fn channel(
        &self,
        stage: WorkloadStage,
        instance: &dyn Instance,
        acknowledgements: Option<PathBuf>,
        prepared: Value,
    ) -> Result<(CommandLine, WorkloadChannel), StepFailure> {
        let spec = self.setting.spec;
        let node = self.node();
        let target = match self.file_system()?.access {
            Access::RawDevice => WorkloadTarget::Device(node.path().into()),
            Access::Library => WorkloadTarget::Library(node.path().into()),
            Access::Mounted => WorkloadTarget::Directory(instance.directory()),
        };
        let place = self.workload_place();
        let made = std::fs::create_dir_all(&place);
        let task = WorkloadTask {
            target,
            device: Some(node.path().into()),
            device_bytes: Some(self.setting.cuts.size_bytes),
            stage,
            part: None,
            cold: false,
            sync_command: instance.sync_command(),
            cool_command: None,
            acknowledgements,
            order_seed: spec.order_seed,
            scratch: place,
            prepared,
        };
        let channel = made
            .and_then(|()| WorkloadChannel::begin(&spec.workload.load, &task))
            .map_err(failed("writing the workload's task"))?;
        Ok((WorkloadChannel::command(None)?, channel))
    }

    /// Where the workload's process has its own files.
    pub fn workload_place(&self) -> PathBuf {
        self.place.join("load")
    }

    /// The workload, while its acknowledgements are received.
    pub fn load(&self, instance: &dyn Instance, prepared: Value) -> Result<(), StepFailure> {
        let pipe = self.pipe();
        let failed =
            |error: io::Error| StepFailure::of(format!("the pipe for acknowledgements: {error}"));
        let receiver = Receiver::start(&pipe).map_err(failed)?;
        let load = &self.setting.spec.workload.load;
        let (command, channel) = match load.command() {
            Some(command) => (command, None),
            None => {
                let (command, channel) =
                    self.channel(WorkloadStage::Run, instance, Some(pipe), prepared)?;
                (command, Some(channel))
            }
        };
        let streams = match &channel {
            None => Streams { output: Some(receiver.pipe()), channel: None },
            channel => Streams { output: None, channel: channel.as_ref() },
        };
        let disks = &self.disks;
        let acknowledge =
            |text| disks.lock().expect("no thread panics while it asks").acknowledge(text);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receiver.receive(acknowledge));
            let ran = self.run("the workload", &command, &instance.directory(), streams);
            receiver.end();
            receiving.join().expect("receiving does not panic").map_err(failed)?;
            ran
        })
    }

    /// The pipe into which the workload acknowledges.
    fn pipe(&self) -> PathBuf {
        self.place.join("acknowledgements")
    }

    pub fn run(
        &self,
        name: &str,
        command: &CommandLine,
        directory: &Path,
        streams: Streams<'_>,
    ) -> Result<(), StepFailure> {
        let Setting { spec, stop, .. } = &self.setting;
        let pipe = self.pipe().display().to_string();
        let directory_text = directory.display().to_string();
        let mut environment = vec![
            ("KURABE_DIR", directory_text.as_str()),
            ("KURABE_CONTENDER", &spec.contender.label),
            (ACK_VARIABLE, pipe.as_str()),
        ];
        let aged = aged::directory_of(spec, directory);
        environment.extend(aged.as_deref().map(|aged| (AGED_VARIABLE, aged)));
        let limit = spec.timeout_ns.map(Duration::from_nanos);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let standard_output = streams.output;
        let bounds = CommandBounds { deadline, standard_output, ..CommandBounds::default() };
        let (output, channel) = (OutputTarget::Null, streams.channel);
        let ran = command::run(command, directory, &environment, bounds, &output, channel, stop)
            .map_err(|error| StepFailure::of(error.to_string()))?;
        match (&ran.end, ran.usage.exit_code) {
            (CommandEnd::Stopped, _) => Err(StepFailure::Stopped),
            (CommandEnd::TimedOut, _) => Err(StepFailure::of(format!(
                "{name} did not end within {} s; give it a bound of its own, or a longer --timeout",
                limit.unwrap_or_default().as_secs()
            ))),
            (CommandEnd::Exited, Some(0)) => Ok(()),
            (CommandEnd::Exited, code) => Err(StepFailure::explained(
                format!("{name} exited with {}", code_text(code)),
                &ran.said,
            )),
        }
    }

    pub fn file_system(&self) -> Result<&'static FileSystem, StepFailure> {
        let is_command = self.setting.spec.workload.load.command().is_some();
        let known = filesystem::of(&self.setting.spec.contender).map_err(StepFailure::of)?;
        let is_cut = known.why_not_cut().is_none();
        if is_cut && (known.access == Access::Mounted || !is_command) {
            Ok(known)
        } else {
            Err(StepFailure::of(format!("no recorder can be put under '{}'", known.name)))
        }
    }

    /// The contender's stack on its device.
    pub fn instance(&self) -> Result<Box<dyn Instance>, StepFailure> {
        self.instance_without(None)
    }

    /// The same, where a layer has lost the member of this number.
    fn instance_without(&self, lost: Option<u32>) -> Result<Box<dyn Instance>, StepFailure> {
        let file_system = self.file_system()?;
        let contender = &self.setting.spec.contender;
        lower::check(contender).map_err(StepFailure::of)?;
        upper::check(contender).map_err(StepFailure::of)?;
        let devices = self.device.borrow().as_ref().map(Attached::all).unwrap_or_default();
        lower::check_devices(contender, devices.len()).map_err(StepFailure::of)?;
        let below = lower::LowerStack::new(contender, devices, self.setting.scratch);
        Ok(if below.is_empty() {
            upper::begin(file_system, self.stage())
        } else {
            Box::new(lower::OnStack::new(file_system, contender, below.of_power_cuts(lost)))
        })
    }

    /// Makes the file system, or copies the aged one to the device: the recording has what was copied, too.
    pub fn make(
        &self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let Setting { spec, cuts, host, stop, .. } = &self.setting;
        let Some(aged) = aged::of(spec)? else { return instance.make(tools) };
        aged::restore(aged, &self.node(), cuts.size_bytes, host, stop)?;
        instance.renew(tools)
    }

    /// The number of the member that a state has lost, where one is to be.
    pub fn lost_member(&self, state: &CrashState) -> Option<u32> {
        let Setting { spec, cuts, .. } = &self.setting;
        let (_, members) = lower::can_lose(&spec.contender).filter(|_| cuts.lose_member)?;
        // Of the instant alone, so that it stays the same whatever else is lost.
        let mixed = (state.instant.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        members.clone().nth(mixed % members.len())
    }

    /// The same in words.
    pub fn lost_member_text(&self, state: &CrashState) -> Option<String> {
        let (layer, _) = lower::can_lose(&self.setting.spec.contender)?;
        Some(lower::member_text(&layer, self.lost_member(state)?))
    }

    pub fn tools(&self, deadline: Option<Instant>) -> Toolbox {
        let mut tools = Toolbox::new(deadline, self.setting.stop.clone());
        tools.see_host(self.setting.host);
        let devices = self.device.borrow().as_ref().map(Attached::all).unwrap_or_default();
        devices.iter().for_each(|(node, _)| tools.show(node));
        tools
    }

    pub fn node(&self) -> DeviceNode {
        self.device.borrow().as_ref().expect("something is served by now").node().clone()
    }

    /// Where the file system stands.
    pub fn stage(&self) -> InstanceContext {
        let device = self.device.borrow();
        let attached = device.as_ref().expect("something is served by now");
        let (node, size_bytes) = (Some(attached.node()), attached.size_bytes());
        InstanceContext::new(
            &self.setting.spec.contender,
            node,
            size_bytes,
            false,
            self.setting.scratch,
        )
    }

    pub fn disks(&self) -> MutexGuard<'_, ServedDevice> {
        self.disks.lock().expect("no thread panics while it asks")
    }

    /// Makes devices of what is served.
    pub fn attach(&self, pages: Pages) -> Result<(), StepFailure> {
        let open = |(number, bytes)| -> io::Result<(File, u64)> {
            Ok((self.disks().open(number, pages)?, bytes))
        };
        let disks = (0..).zip(self.setting.cuts.sizes_bytes()).map(open);
        let disks: Vec<(File, u64)> = disks.collect::<io::Result<_>>().map_err(served_failure)?;
        *self.device.borrow_mut() = Some(attach_served(&disks, self.setting.scratch)?);
        Ok(())
    }

    /// Does something with the file system, not yet mounted, that a power cut and the loss of a member leave, and
    /// gives everything back.
    pub fn after_cut<R>(
        &self,
        state: &CrashState,
        lost: Option<u32>,
        flushes: FlushPolicy,
        act: impl FnOnce(&mut dyn Instance, &mut Toolbox) -> Result<R, StepFailure>,
    ) -> Result<R, StepFailure> {
        self.cut(state, flushes)?;
        let mut tools = self.tools(None);
        let mut instance = self.instance_without(lost)?;
        let done = act(&mut *instance, &mut tools);
        tools.clean_up_within(TEARDOWN_MAX);
        let ended = instance.end(&mut tools);
        let done = done?;
        ended.map(|()| done)
    }

    /// Puts what a power cut leaves on the device.
    pub fn cut(&self, state: &CrashState, flushes: FlushPolicy) -> Result<(), StepFailure> {
        let is_attached = self.device.borrow().is_some();
        let change = || self.disks().cut(state, flushes);
        if is_attached {
            let device = self.device.borrow();
            let attached = device.as_ref().expect("it is attached");
            attached.change(change).map_err(StepFailure::from)
        } else {
            change().map_err(served_failure)?;
            self.attach(Pages::Kept)
        }
    }
}
