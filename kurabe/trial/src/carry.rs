//! Carries one trial out: the phases in their order, each timed and accounted for.
//!
//! Invariants: counters are read outside the timed regions; whatever fails, what was taken is
//! given back and a record is yielded; nothing that concerns giving back hears a stop or a bound
//! of the trial, which have bounds of their own.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use disks::Tracer;
use lab::event::{Event, NodeBarrier, TrialCommand};
use lab::record::{
    FileSystemSpace, IdleWait, LayerRecord, LockCounts, Outcome, Phase, PhaseRecord, Record,
    TracedRequests,
};
use lab::spec::{Cache, CommandLine, OutputTarget, TrialSpec};
use serde_json::Value;
use vocabulary::check::{Check, DURABILITY};
use vocabulary::workload::{WorkloadStage, WorkloadTarget, WorkloadTask};
use workloads::counters::{DeviceCounters, DeviceReading, machine_cpu_ns};
use workloads::programs;

use crate::aged;
use crate::command::{self, CommandBounds, CommandEnd, CommandResult};
use crate::control_group::ControlGroup;
use crate::crash::ACK_VARIABLE;
use crate::device::{AttachSite, Attached, DeviceNode, attach, is_kurabes_guest};
use crate::filesystem::{
    self, Access, FileSystem, Instance, InstanceContext, Leaving, asks_for_discard,
};
use crate::host_proc::HostProc;
use crate::kernel_log::KernelLog;
use crate::leftovers::{DIRECTORY_VARIABLE, NamespaceProcesses, end_those_of};
use crate::locks;
use crate::lower;
use crate::nodes;
use crate::scratch::Occupied;
use crate::stop::StopFlag;
use crate::tool::{StepFailure, Toolbox, failed};
use crate::upper;
use crate::user::User;
use crate::warm::{self, search_path};
use crate::watch::Watch;
use crate::workload::WorkloadChannel;

/// Bound on giving back everything after the trial itself has ended.
const TEARDOWN_MAX: Duration = Duration::from_secs(60);

/// A device is idle when it completed nothing during so many intervals in a row.
const QUIET_INTERVALS: u32 = 3;
const QUIET_INTERVAL: Duration = Duration::from_millis(50);

mod aged_files;
mod barriers;
mod commands;
mod outlive;
mod runs;

pub use outlive::{FSCK, SELF_TEST};

/// Carries the trial out and tells `emit` what it is doing. A trial that stands side by side with
/// others is told by `turns` when it is its turn.
pub fn carry_out(
    spec: &TrialSpec,
    scratch: Occupied,
    host: &HostProc,
    stop: &StopFlag,
    turns: &Receiver<TrialCommand>,
    emit: &mut dyn FnMut(&Event),
) -> Record {
    let started = Instant::now();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut trial = Trial {
        spec,
        scratch: Arc::new(scratch),
        host,
        stop,
        turns,
        emit,
        deadline: spec.timeout_ns.map(|limit| started + Duration::from_nanos(limit)),
        record: Record::begun(spec, unix.as_nanos() as u64),
        phase: Phase::Mkfs,
        counters: None,
        layers: Vec::new(),
        node: None,
        device_bytes: None,
        root: None,
        access: Access::Mounted,
        machine_cpu_before_ns: None,
        processes_before: None,
        user: None,
        group: None,
        watch: Watch::begin(Path::new("/")),
        part: None,
        counts_locks: false,
        prepared: Value::Null,
        tracer: None,
        dead: None,
    };
    let mut tools = Toolbox::new(trial.deadline, stop.clone());
    tools.see_host(host);
    trial.record.outcome = match trial.whole(&mut tools) {
        Ok(()) => Outcome::Completed,
        Err(failure) => trial.outcome_of(failure),
    };
    trial.record.processors = trial.watch.processors();
    trial.record.commands = tools.commands().to_vec();
    trial.record.notes.extend_from_slice(tools.notes());
    trial.record.elapsed_ns = started.elapsed().as_nanos() as u64;
    trial.record
}

struct Trial<'a> {
    spec: &'a TrialSpec,
    scratch: Arc<Occupied>,
    host: &'a HostProc,
    stop: &'a StopFlag,
    turns: &'a Receiver<TrialCommand>,
    emit: &'a mut dyn FnMut(&Event),
    deadline: Option<Instant>,
    record: Record,
    phase: Phase,
    counters: Option<DeviceCounters>,
    /// Those of each block layer of the kernel, from the uppermost one.
    layers: Vec<(String, DeviceCounters)>,
    /// The device node, when there is one.
    node: Option<DeviceNode>,
    /// Size of the device in bytes.
    device_bytes: Option<u64>,
    /// Where it is mounted, once it is.
    root: Option<PathBuf>,
    /// How the workload gets at it.
    access: Access,
    machine_cpu_before_ns: Option<u64>,
    /// What ran in the trial's namespace before the first command of the user.
    processes_before: Option<NamespaceProcesses>,
    /// As whom the workload runs, where that is another than this process's user.
    user: Option<User>,
    /// What holds the workload's processes, where the machine has it.
    group: Option<ControlGroup>,
    watch: Watch,
    /// Which part of a run is next, where a run is carried out in parts.
    part: Option<u32>,
    /// What the workload's layout said that the run is to know.
    prepared: Value,
    /// What follows the requests of the device, while it is measured.
    tracer: Option<Tracer>,
    /// Whether the kernel counts the locks of this node.
    counts_locks: bool,
    /// The node among several that was killed.
    dead: Option<u32>,
}

impl Trial<'_> {
    /// Attaches the device, carries the phases out on it, and gives everything back.
    fn whole(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let spec = self.spec;
        let file_system = filesystem::of(&spec.contender).map_err(StepFailure::of)?;
        lower::check(&spec.contender).map_err(StepFailure::of)?;
        upper::check(&spec.contender).map_err(StepFailure::of)?;
        aged::of(spec)?;
        let counts = file_system.counts_write_bytes && upper::count_write_bytes(&spec.contender);
        self.record.counts_write_bytes = Some(counts);
        self.user = match &spec.user {
            Some(name) => User::to_become(name).map_err(StepFailure::of)?,
            None => None,
        };
        let mut attached = self.attach()?;
        self.group = ControlGroup::begin(|| self.scratch.ledger());
        self.record.control_group = self.group.as_ref().map(ControlGroup::facts);
        // What serves a layer of kurabe's own works for the contender.
        let has_layers = spec.device.as_ref().is_some_and(|device| !device.layers.is_empty());
        if let Some(group) = self.group.as_ref().filter(|_| !has_layers) {
            self.watch.processes(group.path());
        }
        let devices = attached.as_ref().map(Attached::all).unwrap_or_default();
        devices.iter().for_each(|(node, _)| tools.show(node));
        lower::check_devices(&spec.contender, devices.len()).map_err(StepFailure::of)?;
        let devices_bytes = devices.iter().map(|(_, size_bytes)| size_bytes).sum();
        let mut below = lower::LowerStack::new(&spec.contender, devices, &self.scratch);
        below.unused().into_iter().for_each(|unused| tools.note(unused));
        let made = self.make_below(&mut below, tools);
        self.layers = below.counters();
        self.node = below.top().map(|(node, _)| node.clone());
        self.device_bytes = below.top().map(|(_, size_bytes)| size_bytes);
        let size_bytes = self.device_bytes.unwrap_or(0);
        self.record.caution = lower::too_small(&spec.contender, devices_bytes, size_bytes)
            .filter(|_| self.node.is_some())
            .map(|caution| format!("{caution}; give a larger --device"));
        self.access = file_system.access;
        let (node, discards) = (self.node.as_ref(), self.discards());
        let mut stage =
            InstanceContext::new(&spec.contender, node, size_bytes, discards, &self.scratch);
        stage.directory_identity = spec.directory_identity;
        stage.made_at_once |= spec.side_by_side.is_some();
        if let Some(user) = &self.user {
            let (user, group) = user.numbers();
            stage.mount_options.extend((file_system.owner_options)(user, group));
        }
        stage.member = spec.node.clone();
        let mut instance = upper::begin(file_system, stage);
        let mut carried = made
            .and_then(|()| self.phases(instance.as_mut(), file_system, attached.as_mut(), tools));
        if !below.is_empty() {
            let own = self.record.geometry.take().unwrap_or_default();
            self.record.geometry = Some(own + &below.describe(tools));
        }
        if self.is_node_of_guests() && carried.is_err() {
            // The guest ends with it. An unmount could wait for other nodes without end.
            std::mem::forget((instance, attached));
            return carried;
        }
        tools.clean_up_within(TEARDOWN_MAX);
        if let (Err(_), Some(before)) = (&carried, &self.processes_before) {
            note_ended(before.end_those_since(&instance.daemons()), tools);
        }
        if let Some(group) = self.group.take() {
            match group.end() {
                Ok(ended) => note_ended(ended, tools),
                Err(error) => tools.note(format!("the control group: {error}")),
            }
        }
        if spec.device.is_none() {
            // Such a trial has no namespace of its own, and may have no control group.
            note_ended(end_those_of(&instance.directory()), tools);
        }
        let ended = instance.end(tools);
        let ended = ended.and(below.end(tools));
        // What the workload was told then, such as an I/O error, follows from it.
        let server = attached.as_mut().and_then(|one| one.has_ended().ok().flatten());
        if let (Some(status), Err(failure @ StepFailure::Failed { .. })) = (server, &carried) {
            tools.note(format!("what followed: {failure}"));
            let message = format!("what serves the layers has ended ({status})");
            carried = Err(StepFailure::of(message));
        }
        let detached = match attached {
            Some(attached) => attached
                .detach()
                .map(|said| {
                    said.reached.into_iter().for_each(|said| tools.note(said));
                    said.disks
                })
                .map_err(|error| StepFailure::of(error.to_string())),
            None => Ok(Vec::new()),
        };
        let detached = detached.map(|disks| self.note_disks(disks, tools));
        // The first failure is the cause; what followed from it is a remark.
        for failure in [&ended, &detached].into_iter().filter_map(|step| step.as_ref().err()) {
            if carried.is_err() {
                tools.note(format!("giving back: {failure}"));
            }
        }
        let carried = carried.map_err(|failure| failure.with_size(self.device_bytes));
        carried.and(ended).and(detached)
    }

    /// Sets up the block layers of the kernel, and waits until their members are equal.
    fn make_below(
        &mut self,
        below: &mut lower::LowerStack,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let mut made = Ok(());
        while made.is_ok() && !below.is_whole() {
            made = self.timed(Phase::Layers, || below.make_next(tools));
            // Before anything is written to a layer above it.
            if made.is_ok() && below.is_syncing() {
                made = self.timed(Phase::Resync, || below.wait_synced(tools));
            }
        }
        self.record.phases = added_up(std::mem::take(&mut self.record.phases));
        made.and_then(|()| below.verify())
    }

    /// What the disks say that were modelled below the contender.
    fn note_disks(&mut self, disks: Vec<serde_json::Value>, tools: &mut Toolbox) {
        for disk in disks {
            match serde_json::from_value(disk) {
                Ok(disk) => self.record.disks.push(disk),
                Err(error) => tools.note(format!("what a modelled disk says: {error}")),
            }
        }
    }

    /// Whether discards may reach the device: the study or the contender's own options ask for
    /// them.
    fn discards(&self) -> bool {
        self.spec.discard || asks_for_discard(&self.spec.contender)
    }

    fn attach(&mut self) -> Result<Option<Attached>, StepFailure> {
        let spec = self.spec;
        let Some(device) = &spec.device else { return Ok(None) };
        let site = AttachSite { scratch: &self.scratch, host: self.host, stop: self.stop };
        let attached = attach(device, self.discards(), &site).map_err(|error| {
            if self.stop.raised() {
                StepFailure::Stopped
            } else {
                StepFailure::of(error.to_string())
            }
        })?;
        let devices = attached.all();
        self.count_by(DeviceCounters::of_nodes(devices.iter().map(|(node, _)| node.path())));
        if let Some(disk) = attached.disk_below() {
            self.watch.disk(disk);
        }
        self.record.notes.extend_from_slice(attached.notes());
        Ok(Some(attached))
    }

    fn count_by(&mut self, counters: io::Result<DeviceCounters>) {
        self.counters = counters.ok();
        self.record.flushes_uncounted =
            self.counters.as_ref().is_some_and(|counters| !counters.counts_flushes());
    }

    fn phases(
        &mut self,
        instance: &mut dyn Instance,
        file_system: &FileSystem,
        mut attached: Option<&mut Attached>,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let spec = self.spec;
        let has_files = self.access == Access::Mounted;
        let made_here = file_system.needs_device && self.access != Access::RawDevice;
        // Of several nodes the first one makes it for all.
        let is_first = spec.node.as_ref().is_none_or(|node| node.number == 1);
        if let Some(node) = &spec.node {
            if self.is_node_of_guests() {
                nodes::connect(node)?;
            }
            instance.join(tools)?;
            self.meet(NodeBarrier::Make, tools)?;
        }
        if let Some(attached) = &mut attached {
            attached.begin_making();
        }
        if made_here {
            self.make_and_mount(is_first, instance, attached.as_deref_mut(), tools)?;
        } else {
            self.phase = Phase::Mount;
            // A store of the workload's own, if it makes one.
            self.say_made(attached.as_deref_mut(), Some("lump"))?;
            if !is_first {
                self.meet(NodeBarrier::Mount, tools)?;
            }
            instance.mount(tools)?;
            if is_first {
                self.meet(NodeBarrier::Mount, tools)?;
            }
            self.record.geometry = instance.geometry(tools).ok();
        }
        self.processes_before = NamespaceProcesses::now();
        self.root = Some(instance.directory());
        let directory = self.own_directory(&instance.directory())?;
        self.meet(NodeBarrier::Setup, tools)?;
        if let Some(user) = &self.user {
            instance.let_pass(user).map_err(StepFailure::of)?;
            // Where it takes turns each slice has a directory of the user's, which it cannot exchange for
            // another, as the one above stays root's.
            if spec.side_by_side.is_none() {
                user.receive(&directory, &spec.scratch).map_err(StepFailure::of)?;
            }
        }
        if !file_system.needs_device {
            self.count_by(DeviceCounters::under_directory(&directory));
            self.record.device_shared = self.counters.is_some();
        }
        self.record.mounted_as = self.mounted_as(&directory).filter(|_| has_files);
        if spec.side_by_side.is_some() {
            self.begin_measuring(file_system, &mut attached, tools)?;
            self.take_turns(instance, tools)?;
            self.end_measuring(&mut attached)?;
        } else {
            self.lay_out_in_turn(instance, &directory, tools)?;
            self.timed_with(Phase::Settle, |trial| trial.settle(instance, tools))?;
            self.record.space_before = space(&directory).filter(|_| has_files);
            self.prepare(&directory)?;
            self.count_locks(instance, tools);
            self.meet(NodeBarrier::Run, tools)?;
            if let Some(death) = &spec.node_death {
                return self.outlive(death, instance, tools);
            }
            self.begin_measuring(file_system, &mut attached, tools)?;
            self.run_once(instance, tools, &directory)?;
            self.end_measuring(&mut attached)?;
            self.meet(NodeBarrier::End, tools)?;
            self.record.space_after = space(&directory).filter(|_| has_files);
            if let Some(cleanup) = &spec.workload.cleanup {
                self.users_command(Phase::Cleanup, cleanup, &directory)?;
            }
        }
        if spec.measure_layout && has_files {
            self.measure_layout(&directory, tools);
        }
        if made_here {
            if has_files {
                self.unmount(instance, tools)?;
            }
            if !is_first {
                // What it would wipe is still being checked.
                return self.meet(NodeBarrier::Leave, tools);
            }
            if let Some(layout) = &mut self.record.layout_after {
                layout.free = instance.free_extents(tools);
            }
            self.timed(Phase::Check, || instance.check(tools))?;
        }
        self.meet(NodeBarrier::Leave, tools)
    }

    /// Makes the file system, or puts the aged one on the device, and mounts it.
    fn make_and_mount(
        &mut self,
        is_first: bool,
        instance: &mut dyn Instance,
        attached: Option<&mut Attached>,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        match &self.spec.aged {
            None if !is_first => {}
            None => self.timed(Phase::Mkfs, || instance.make(tools))?,
            Some(aged) => self.restore(aged, instance, tools)?,
        }
        self.say_made(attached, None)?;
        if is_first {
            match instance.geometry(tools) {
                Ok(geometry) => self.record.geometry = Some(geometry),
                Err(failure) => tools.note(failure.to_string()),
            }
        }
        self.meet(NodeBarrier::Mount, tools)?;
        if self.access == Access::Mounted {
            self.timed(Phase::Mount, || instance.mount(tools))?;
        }
        Ok(())
    }

    /// Begins what modelled disks will say, and the trace.
    fn begin_measuring(
        &mut self,
        file_system: &FileSystem,
        attached: &mut Option<&mut Attached>,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        measure_disks(attached, true)?;
        let Some(trace) = &self.spec.trace else { return Ok(()) };
        match attached {
            None => tools.note("not traced: it has no device of its own"),
            Some(attached) if attached.all().len() > 1 => {
                tools.note("not traced: it has several devices");
            }
            Some(attached) => {
                let (node, size_bytes) = (attached.node(), attached.size_bytes());
                // On other layers of the kernel it lies elsewhere.
                let is_whole = self.node.as_ref() == Some(node);
                let journal = match File::open(node.path()) {
                    Ok(device) if is_whole && file_system.needs_device => {
                        (file_system.journal)(&device).unwrap_or_default()
                    }
                    _ => Vec::new(),
                };
                let keeps = trace.file.is_some();
                let tracer = Tracer::begin(node.path(), size_bytes, journal, keeps, || {
                    let _ = crate::sys::priority::go_first();
                });
                self.tracer =
                    Some(tracer.map_err(failed("the device's requests cannot be traced"))?);
            }
        }
        Ok(())
    }

    fn end_measuring(&mut self, attached: &mut Option<&mut Attached>) -> Result<(), StepFailure> {
        measure_disks(attached, false)?;
        let Some(tracer) = self.tracer.take() else { return Ok(()) };
        let file = self.spec.trace.as_ref().and_then(|trace| trace.file.as_ref());
        let file = file.map(|path| self.host.open_writable(path, false)).transpose();
        let file = file.map_err(failed("the trace's file"))?;
        let disks::Traced { requests, lost_events, kept, picture } =
            tracer.end(file).map_err(StepFailure::of)?;
        self.record.trace = Some(TracedRequests { requests, lost_events, kept, picture });
        Ok(())
    }

    /// Tells the runner what the trial makes on a real device: if the trial dies, nothing else there is
    /// taken for its own.
    fn say_made(
        &mut self,
        attached: Option<&mut Attached>,
        kind: Option<&str>,
    ) -> Result<(), StepFailure> {
        let Some(attached) = attached else { return Ok(()) };
        let marks = attached.note_made(kind)?;
        if !marks.is_empty() {
            (self.emit)(&Event::Made { marks });
        }
        Ok(())
    }

    fn prepare(&mut self, directory: &Path) -> Result<(), StepFailure> {
        match &self.spec.workload.prepare {
            Some(prepare) => self.users_command(Phase::Prepare, prepare, directory),
            None => Ok(()),
        }
    }

    /// What is measured: the run and its sync, right after [`Trial::prepare`].
    fn run_once(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
        directory: &Path,
    ) -> Result<(), StepFailure> {
        let daemon_before_ns = instance.daemon_cpu_ns();
        let (phases, before) = (self.record.phases.len(), self.watch.read());
        let layers_before = self.layer_readings();
        // Elsewhere they work for others too.
        let of_kernel_before = self.host.kernel_threads_cpu_ns().filter(|_| is_kurabes_guest());
        let locks_before = self.counts_locks.then(locks::read);
        let channel = self.run(instance, directory)?;
        self.timed(Phase::Sync, || instance.sync(tools))?;
        let since = |before: LockCounts| Ok(locks::read()?.since(before));
        match locks_before.map(|before| before.and_then(since)).transpose() {
            Ok(counted) => self.record.locks = counted,
            Err(error) => tools.note(format!("locks are not counted: {error}")),
        }
        let of_kernel = self.host.kernel_threads_cpu_ns().zip(of_kernel_before);
        self.record.kernel_threads_cpu_ns =
            of_kernel.map(|(after, before)| after.saturating_sub(before));
        let layers = layers_before.iter().zip(self.layer_readings());
        let layers = layers.filter_map(|((layer, before), (_, after))| {
            let device = after?.since(before.as_ref()?);
            Some(LayerRecord { layer: layer.clone(), device })
        });
        self.record.layers = layers.collect();
        let own = self.record.run_device_after(phases);
        let mut watched = self.watch.read().since(&before, own);
        self.record.daemon_cpu_ns = instance
            .daemon_cpu_ns()
            .zip(daemon_before_ns)
            .map(|(after, before)| after.saturating_sub(before));
        // A file system's daemon is no other process.
        watched.others_cpu_ns = watched.others_cpu_ns.map(|others_ns| {
            others_ns.saturating_sub(self.watch.of_one(self.record.daemon_cpu_ns.unwrap_or(0)))
        });
        self.record.watched = Some(watched);
        if let Some(channel) = channel {
            // Only now: reading it before the sync would give the device time that nobody bills.
            self.take_report(channel)?;
        }
        Ok(())
    }

    fn take_report(&mut self, channel: WorkloadChannel) -> Result<(), StepFailure> {
        let mut report = channel.report().map_err(failed("the workload's report"))?;
        for excluded in std::mem::take(&mut report.excluded_phases) {
            self.record.exclude(excluded);
        }
        Check::add_all(&mut self.record.checks, std::mem::take(&mut report.checks));
        self.record.load = Some(report);
        Ok(())
    }

    /// Makes the setup durable, mounts anew for a cold run, waits for the device, and drops the
    /// caches.
    fn settle(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        instance.sync(tools)?;
        let is_cold = self.spec.cache == Cache::Cold;
        let is_root = rustix::process::geteuid().is_root();
        // Of several nodes that would be forming the cluster again.
        let is_alone = self.spec.node.is_none();
        if is_cold && is_root && is_alone && self.access == Access::Mounted {
            // A setup that changed the mount (`mount -o remount`) is to find it as it left it.
            if self.is_mounted_as_recorded(instance) {
                instance.mount_anew(tools)?;
            } else {
                tools.note("not remounted before the run: the setup changed the mount");
            }
        }
        // Only now: a mount begins work in the background too.
        let wait = self.wait_until_idle(instance, tools)?;
        self.record.idle_wait = wait;
        if is_cold {
            if is_root {
                instance.cool(tools)?;
                self.warm_programs()?;
            } else {
                self.record.caches_kept = Some("that needs root".into());
            }
        }
        Ok(())
    }

    /// Waits until the device has been quiet for a while and no background work is known to be
    /// pending. Without counters there is nothing to look at.
    fn wait_until_idle(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<Option<IdleWait>, StepFailure> {
        let Some(counters) = self.counters.clone() else { return Ok(None) };
        // A shared device may never be quiet, and waiting for it would prove nothing.
        if self.record.device_shared {
            return Ok(None);
        }
        let started = Instant::now();
        let bound = Duration::from_nanos(self.spec.idle_wait_ns_max);
        let mut last = read(&counters)?;
        let (mut quiet, mut cause) = (0, None);
        let mut told = false;
        loop {
            tools.pause(QUIET_INTERVAL)?;
            let now = read(&counters)?;
            let work = instance.background_work(self.host);
            quiet = if now.quiet_since(&last) && work.is_none() { quiet + 1 } else { 0 };
            last = now;
            cause = work.or(cause);
            let waited = started.elapsed();
            let idle = quiet >= QUIET_INTERVALS;
            if idle || waited >= bound {
                return Ok(Some(IdleWait { waited_ns: waited.as_nanos() as u64, idle, cause }));
            }
            if let (Some(cause), false) = (&cause, told) {
                (self.emit)(&Event::Status { text: format!("settle: waiting for {cause}") });
                told = true;
            }
        }
    }

    /// The mount on which `directory` lies, in the form of a line of `/proc/self/mounts`, with the
    /// device under the name that the user knows.
    fn mounted_as(&self, directory: &Path) -> Option<String> {
        let mounts = trust::mounts::mounts().ok()?;
        let mount = trust::mounts::mount_of(&mounts, directory)?;
        let word = |path: &Path| path.display().to_string().replace(' ', "\\040");
        let mut options: Vec<&str> = Vec::new();
        // Some are of the mount and of the file system.
        for option in mount.options.split(',') {
            if !options.contains(&option) {
                options.push(option);
            }
        }
        let (source, point) = (word(&mount.source), word(&mount.point));
        let line = format!("{source} {point} {} {} 0 0", mount.file_system, options.join(","));
        Some(self.node.as_ref().map_or(line.clone(), |node| node.show_in(&line)))
    }

    /// Whether the mount is the one that the record shows; a setup can change it (`mount -o remount`).
    /// A contender that is not mounted always is.
    fn is_mounted_as_recorded(&self, instance: &dyn Instance) -> bool {
        self.access != Access::Mounted
            || self.mounted_as(&instance.directory()) == self.record.mounted_as
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        (self.emit)(&Event::Phase { phase });
    }

    fn timed<T>(
        &mut self,
        phase: Phase,
        step: impl FnOnce() -> Result<T, StepFailure>,
    ) -> Result<T, StepFailure> {
        self.timed_with(phase, |_| step())
    }

    fn timed_with<T>(
        &mut self,
        phase: Phase,
        step: impl FnOnce(&mut Self) -> Result<T, StepFailure>,
    ) -> Result<T, StepFailure> {
        self.begin(phase);
        let before = self.read_counters();
        let started = Instant::now();
        let result = step(self);
        let elapsed_ns = started.elapsed().as_nanos() as u64;
        self.push(phase, elapsed_ns, before);
        result
    }

    fn layer_readings(&self) -> Vec<(String, Option<DeviceReading>)> {
        let read =
            |(layer, counters): &(String, DeviceCounters)| (layer.clone(), counters.read().ok());
        self.layers.iter().map(read).collect()
    }

    fn read_counters(&mut self) -> Option<DeviceReading> {
        self.machine_cpu_before_ns = machine_cpu_ns();
        self.reading()
    }

    fn reading(&self) -> Option<DeviceReading> {
        self.counters.as_ref()?.read().ok()
    }

    fn push(&mut self, phase: Phase, elapsed_ns: u64, before: Option<DeviceReading>) {
        let after = self.reading();
        self.record.phases.push(PhaseRecord {
            phase,
            elapsed_ns,
            device: before.zip(after).map(|(before, after)| after.since(&before)),
            machine_cpu_ns: machine_cpu_ns()
                .zip(self.machine_cpu_before_ns)
                .map(|(after, before)| after.saturating_sub(before)),
        });
    }

    fn outcome_of(&self, failure: StepFailure) -> Outcome {
        match failure {
            StepFailure::Failed { message, output } => {
                Outcome::Failed { phase: self.phase, message, output }
            }
            StepFailure::TimedOut => Outcome::TimedOut {
                phase: self.phase,
                limit_ns: self.spec.timeout_ns.unwrap_or_default(),
            },
            StepFailure::Stopped => Outcome::Interrupted { phase: self.phase },
        }
    }
}

/// Each phase once, with what its parts cost together.
fn added_up(parts: Vec<PhaseRecord>) -> Vec<PhaseRecord> {
    let mut phases: Vec<PhaseRecord> = Vec::new();
    for part in parts {
        match phases.iter_mut().find(|one| one.phase == part.phase) {
            Some(one) => {
                one.elapsed_ns += part.elapsed_ns;
                one.device = one.device.zip(part.device).map(|(one, part)| one + part);
                let cpu_ns = one.machine_cpu_ns.zip(part.machine_cpu_ns);
                one.machine_cpu_ns = cpu_ns.map(|(one, part)| one + part);
            }
            None => phases.push(part),
        }
    }
    phases
}

fn note_ended(ended: Vec<String>, tools: &mut Toolbox) {
    if !ended.is_empty() {
        tools.note(format!("killed what the command had left running: {}", ended.join(", ")));
    }
}

fn read(counters: &DeviceCounters) -> Result<DeviceReading, StepFailure> {
    counters.read().map_err(|error: io::Error| {
        StepFailure::of(format!("the device's counters are gone: {error}"))
    })
}

fn space(directory: &Path) -> Option<FileSystemSpace> {
    let space = rustix::fs::statvfs(directory).ok()?;
    Some(FileSystemSpace {
        total_bytes: space.f_blocks * space.f_frsize,
        free_bytes: space.f_bfree * space.f_frsize,
        free_inodes: space.f_ffree,
    })
}

/// Begins, or ends, what modelled disks will say.
fn measure_disks(attached: &mut Option<&mut Attached>, begins: bool) -> Result<(), StepFailure> {
    let asked = attached.as_mut().map_or(Ok(()), |attached| attached.measure(begins));
    asked.map_err(|error| StepFailure::of(error.to_string()))
}
