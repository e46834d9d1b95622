//! A trial that stands side by side with the others of its block: after everything that comes
//! before the run it waits for its turns, and carries one slice out in each.
//!
//! A slice is one complete run of the workload in a fresh directory, with a setup, a layout and a sync
//! of its own. Everything for the next slice is made ready at the end of a turn, and cold caches are
//! made by mounting anew, so that who waits has a clean file system that leaves the machine alone.
//! Where a run has parts, each is a slice with a sync of its own, and all else is once for a run.
//!
//! Invariants: only run and sync are in the cost; the bound on the trial does not run while it
//! waits; what a slice left running is ended before the next one.

use std::fs::{self, DirBuilder};
use std::sync::mpsc::RecvTimeoutError;

use lab::slice::{RunRecord, RunYield};
use vocabulary::report::WorkloadReport;

use super::*;
use crate::tool::says_full;

/// How often a trial that waits for its turn looks whether it is asked to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// How long the device may go on with what it was given before the turn is passed on.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(100);
const QUIET_LOOK: Duration = Duration::from_millis(1);

/// The directories of earlier slices are kept, since deleting them is work, until so much of the
/// space that was free at the beginning is used. What is left has room for a store half as large again
/// as what a slice keeps: its size is to be that of the first slice.
const KEPT_SHARE_MAX: f64 = 1.0 / 3.0;

/// A file system with less than this part of its space free is full.
const FREE_SHARE_MIN: u64 = 64;

impl Trial<'_> {
    /// Takes turns until there are no more, and puts the mean of the slices into the record.
    pub(super) fn take_turns(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let mut carried = Vec::new();
        let result = self.turns_in(instance, tools, &mut carried);
        let reports: Vec<&WorkloadReport> =
            carried.iter().filter_map(|slice| slice.load.as_ref()).collect();
        let merged = workloads::kind::merged(&reports).map_err(StepFailure::of);
        match &result {
            Ok(()) => self.record.put_mean(&carried, merged?),
            Err(failure) => {
                self.record.part_full = self.is_full(&instance.directory(), failure);
            }
        }
        result
    }

    fn turns_in(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
        carried: &mut Vec<RunYield>,
    ) -> Result<(), StepFailure> {
        let mut place = self.place_of(instance, 0)?;
        self.lay_out(instance, &place)?;
        self.timed_with(Phase::Settle, |trial| {
            instance.sync(tools)?;
            trial.cool(instance, tools)?;
            trial.record.idle_wait = trial.wait_until_idle(instance, tools)?;
            Ok(())
        })?;
        if self.spec.cache == Cache::Cold {
            self.warm_programs()?;
        }
        let has_files = self.access == Access::Mounted;
        let root = instance.directory();
        self.record.space_before = space(&root).filter(|_| has_files);
        let phases = self.record.phases.len();
        let commands = tools.commands().len();
        let mut waiting_since = self.reading();
        (self.emit)(&Event::Ready);
        let load = self.spec.workload.load.parsed();
        let mut parts: Vec<RunYield> = Vec::new();
        while let TrialCommand::Slice { round, position, part, last } = self.wait_for_turn(tools)? {
            let begun = self.reading();
            self.part = (load.parts() > 1).then_some(part);
            if parts.is_empty() {
                self.prepare(&place)?;
            }
            self.run_once(instance, tools, &place)?;
            let is_whole = parts.len() + 1 == load.parts() as usize;
            if let Some(cleanup) = self.spec.workload.cleanup.as_ref().filter(|_| is_whole) {
                self.users_command(Phase::Cleanup, cleanup, &place)?;
            }
            if is_whole && carried.is_empty() {
                self.record.space_after = space(&root).filter(|_| has_files);
            }
            let slice = RunRecord {
                round,
                position,
                run_ns: self.record.phase_after(phases, Phase::Run),
                sync_ns: self.record.phase_after(phases, Phase::Sync),
                device: self.record.run_device_after(phases),
                idle_device: waiting_since.zip(begun).map(|(then, now)| now.since(&then)),
                metrics: self.record.load.as_ref().map_or_else(Vec::new, |l| l.metrics.clone()),
                watched: self.record.watched.take(),
            };
            self.record.slices.push(slice.clone());
            parts.push(RunYield {
                phases: self.record.phases.split_off(phases),
                command: self.record.command.take(),
                daemon_cpu_ns: self.record.daemon_cpu_ns.take(),
                load: self.record.load.take(),
            });
            if let Some(before) = &self.processes_before {
                note_ended(before.end_those_since(&instance.daemons()), tools);
            }
            if is_whole {
                let reports = parts.iter_mut().map(|part| part.load.take()).collect();
                let reports: Option<Vec<WorkloadReport>> = reports;
                let report = reports.map(|reports| load.whole(reports)).transpose();
                carried.push(RunYield::of_parts(&parts, report.map_err(StepFailure::of)?));
                parts.clear();
                if !last {
                    place = self.make_ready(instance, tools, carried.len())?;
                    self.record.phases.truncate(phases);
                    tools.keep_commands(commands);
                }
            }
            self.let_the_device_end();
            waiting_since = self.reading();
            (self.emit)(&Event::Slice { slice: Box::new(slice) });
        }
        // A trial that had no turn has measured nothing.
        if carried.is_empty() {
            Err(StepFailure::of("the others of its round ended before its first run"))
        } else {
            Ok(())
        }
    }

    /// Everything that comes before a run, but for the user's `--prepare`.
    fn make_ready(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
        number: usize,
    ) -> Result<PathBuf, StepFailure> {
        self.begin(Phase::Settle);
        let root = instance.directory();
        let free = |space: FileSystemSpace| space.free_bytes as f64;
        let (before, now) = (self.record.space_before.map(free), space(&root).map(free));
        if let (Some(before), Some(now)) = (before, now)
            && now < before * (1.0 - KEPT_SHARE_MAX)
        {
            remove_slices(&root, tools);
        }
        if self.access == Access::Library {
            // It has no directories, and the workload's file may be there already.
            instance.make(tools)?;
        }
        let place = self.place_of(instance, number)?;
        self.lay_out(instance, &place)?;
        instance.sync(tools)?;
        self.cool(instance, tools)?;
        Ok(place)
    }

    /// Whether a trial failed because its part of the device is full.
    ///
    /// The space that is left tells it, unless the workload's program removed its files before it ended, or
    /// there are none to be counted. Then only the program knew the error, and said it ([`says_full`]); a user's
    /// command in another language is not understood.
    fn is_full(&self, root: &Path, failure: &StepFailure) -> bool {
        let StepFailure::Failed { message, output } = failure else { return false };
        let is_left =
            |space: FileSystemSpace| space.free_bytes >= space.total_bytes / FREE_SHARE_MIN;
        let has_files = self.access == Access::Mounted;
        let of_store = [workloads::IS_FULL, workloads::DOES_NOT_FIT];
        let says =
            |text: &String| of_store.iter().any(|words| text.contains(words)) || says_full(text);
        [message, output].into_iter().any(says)
            || (has_files && space(root).is_some_and(|space| !is_left(space)))
    }

    /// The fresh directory of a slice; the trial's directory for a workload on the device itself.
    fn place_of(&self, instance: &dyn Instance, number: usize) -> Result<PathBuf, StepFailure> {
        let root = instance.directory();
        if self.access != Access::Mounted {
            return Ok(root);
        }
        let place = root.join(format!("{SLICE_PREFIX}{number}"));
        DirBuilder::new()
            .create(&place)
            .map_err(failed(format_args!("making the run's directory {}", place.display())))?;
        if let Some(user) = &self.user {
            user.receive(&place, &self.spec.scratch).map_err(StepFailure::of)?;
        }
        Ok(place)
    }

    fn cool(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        if self.spec.cache != Cache::Cold {
            return Ok(());
        }
        // A setup that changed the mount (`mount -o remount`) is to find it as it left it.
        if !self.is_mounted_as_recorded(instance) {
            let why = "not remounted before the run: the setup changed the mount";
            if self.record.caches_kept.is_none() {
                tools.note(why);
                self.record.caches_kept = Some("the setup changed the mount".into());
            }
            return Ok(());
        }
        instance.cool_alone(tools)
    }

    /// Waits for the next turn. The bound on the trial does not run meanwhile.
    pub(super) fn wait_for_turn(
        &mut self,
        tools: &mut Toolbox,
    ) -> Result<TrialCommand, StepFailure> {
        let began = Instant::now();
        let turn = loop {
            match self.turns.recv_timeout(STOP_INTERVAL) {
                Ok(turn) => break Ok(turn),
                Err(RecvTimeoutError::Timeout) if self.stop.raised() => {
                    break Err(StepFailure::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The runner is gone.
                Err(RecvTimeoutError::Disconnected) => break Err(StepFailure::Stopped),
            }
        };
        let waited = began.elapsed();
        self.deadline = self.deadline.map(|deadline| deadline + waited);
        tools.put_off(waited);
        turn
    }

    /// Lets the device end what it was given, so that the next one's turn does not pay for it.
    fn let_the_device_end(&self) {
        let Some(counters) = &self.counters else { return };
        let until = Instant::now() + QUIET_WAIT_MAX;
        while Instant::now() < until && counters.read().is_ok_and(|reading| reading.in_flight > 0) {
            std::thread::sleep(QUIET_LOOK);
        }
    }
}

/// Name of a slice's directory, without its number.
const SLICE_PREFIX: &str = "slice-";

/// Removes the directories of the slices so far.
fn remove_slices(root: &Path, tools: &mut Toolbox) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let is_slice = entry.file_name().to_string_lossy().starts_with(SLICE_PREFIX);
        if is_slice && let Err(error) = trust::tree::remove(&entry.path()) {
            tools.note(format!("removing {error}"));
        }
    }
}
