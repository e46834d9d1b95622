//! The commands of a trial: the workload's own, those of the user around it, and how their end is judged.

use workloads::coherence::channel::SECRET_VARIABLE;

use super::*;
use crate::aged::AGED_VARIABLE;

impl Trial<'_> {
    /// Reads the workload's programs into the page cache: they are no part of what a cold run measures.
    pub(super) fn warm_programs(&mut self) -> Result<(), StepFailure> {
        let (words, further) = match self.spec.workload.load.command() {
            Some(command) => (command.words(), Vec::new()),
            None => {
                let needs = self.spec.workload.load.parsed().needs();
                (vec!["/proc/self/exe".into()], needs.programs)
            }
        };
        self.record.programs_bytes = match &self.user {
            None => Some(programs::warm(&words, &further, &search_path())),
            // By its own rights: it names the files, and what is in them names more.
            Some(user) => {
                let command = warm::command(user, words, &further)?;
                self.execute_quietly(&command)?.said.parse().ok()
            }
        };
        Ok(())
    }

    /// Runs a command of kurabe's own as the user, and reads what it prints.
    pub(super) fn execute_quietly(
        &self,
        command: &CommandLine,
    ) -> Result<CommandResult, StepFailure> {
        let (user, group) = (self.user.as_ref(), self.group.as_ref());
        let bounds =
            CommandBounds { user, group, deadline: self.deadline, ..CommandBounds::default() };
        let root = Path::new("/");
        command::run(command, root, &[], bounds, &OutputTarget::Pipe, None, self.stop)
            .map_err(|error| StepFailure::of(error.to_string()))
    }

    /// The user's `--setup`, and what the workload needs before it is measured.
    pub(super) fn lay_out(
        &mut self,
        instance: &dyn Instance,
        directory: &Path,
    ) -> Result<(), StepFailure> {
        if let Some(setup) = &self.spec.workload.setup {
            self.users_command(Phase::Setup, setup, directory)?;
        }
        if !self.spec.workload.load.parsed().description().has_setup {
            return Ok(());
        }
        let (command, channel) =
            self.workload_command(WorkloadStage::Setup, instance, directory)?;
        let name = format!("the layout of {}", self.spec.workload.load.kind);
        self.timed_with(Phase::Layout, |trial| {
            judge_own(&name, &trial.execute(&command, Some(&channel), directory)?)
        })?;
        let report = channel.report().map_err(StepFailure::of)?;
        self.prepared = report.prepared;
        report
            .excluded_phases
            .into_iter()
            .for_each(|excluded| self.record.exclude_from_layout(excluded));
        Ok(())
    }

    /// The measured run. The command's own time is the phase's: the counters are read before it
    /// is started and after it was reaped.
    pub(super) fn run(
        &mut self,
        instance: &dyn Instance,
        directory: &Path,
    ) -> Result<Option<WorkloadChannel>, StepFailure> {
        self.begin(Phase::Run);
        let (command, channel) = match self.spec.workload.load.command() {
            Some(command) => (command, None),
            None => {
                let (command, channel) =
                    self.workload_command(WorkloadStage::Run, instance, directory)?;
                (command, Some(channel))
            }
        };
        let before = self.read_counters();
        let ran = self.execute(&command, channel.as_ref(), directory)?;
        self.push(Phase::Run, ran.elapsed_ns, before);
        self.record.outlived = ran.outlived;
        self.record.command = Some(ran.usage.clone());
        match channel {
            Some(_) => judge_own(&self.spec.workload.load.kind, &ran)?,
            None => judge("the command", &ran, self.spec.workload.ignore_failure)?,
        }
        Ok(channel)
    }

    /// The command that carries out one part of a workload, and the channel with it.
    pub(super) fn workload_command(
        &self,
        stage: WorkloadStage,
        instance: &dyn Instance,
        directory: &Path,
    ) -> Result<(CommandLine, WorkloadChannel), StepFailure> {
        let target = match (self.access, &self.node) {
            (Access::RawDevice, Some(node)) => WorkloadTarget::Device(node.path().into()),
            (Access::Library, Some(node)) => WorkloadTarget::Library(node.path().into()),
            _ => WorkloadTarget::Directory(directory.to_path_buf()),
        };
        // Mounting it anew would undo what the setup did to the mount.
        let is_as_mounted = self.is_mounted_as_recorded(instance);
        let task = WorkloadTask {
            target,
            device: self.node.as_ref().map(|node| node.path().into()),
            device_bytes: self.device_bytes,
            stage,
            part: self.part,
            cold: self.spec.cache == Cache::Cold && rustix::process::geteuid().is_root(),
            sync_command: instance.sync_command(),
            cool_command: is_as_mounted.then(|| instance.cool_command()).flatten(),
            acknowledgements: None,
            order_seed: self.spec.order_seed,
            scratch: self.workload_place()?,
            prepared: self.prepared.clone(),
        };
        let channel = WorkloadChannel::begin(&self.spec.workload.load, &task)
            .map_err(failed("writing the workload's task"))?;
        Ok((WorkloadChannel::command(self.user.as_ref())?, channel))
    }

    /// Where the workload's process has its own files.
    pub(super) fn workload_place(&self) -> Result<PathBuf, StepFailure> {
        let place = self.scratch.work().join("load");
        match DirBuilder::new().mode(0o700).create(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(StepFailure::of(format!("making {}: {error}", place.display())));
            }
            Ok(()) => {
                if let Some(user) = &self.user {
                    user.receive(&place, &self.spec.scratch).map_err(StepFailure::of)?;
                }
            }
        }
        Ok(place)
    }

    /// A command before or after the measured one; it must succeed.
    pub(super) fn users_command(
        &mut self,
        phase: Phase,
        command: &CommandLine,
        directory: &Path,
    ) -> Result<(), StepFailure> {
        let name = format!("--{} '{command}'", phase.name());
        self.timed_with(phase, |trial| {
            judge(&name, &trial.execute(command, None, directory)?, false)
        })
    }

    pub(super) fn execute(
        &self,
        command: &CommandLine,
        channel: Option<&WorkloadChannel>,
        directory: &Path,
    ) -> Result<CommandResult, StepFailure> {
        let spec = self.spec;
        let directory_text = directory.display().to_string();
        let trial_text = spec.trial.to_string();
        let place;
        let mut environment = vec![
            (DIRECTORY_VARIABLE, directory_text.as_str()),
            ("KURABE_CONTENDER", &spec.contender.label),
            ("KURABE_TRIAL", &trial_text),
            // What is acknowledged counts where the power is cut.
            (ACK_VARIABLE, "/dev/null"),
        ];
        let node = spec.node.as_ref().map_or((1, 1), |node| (node.number, node.nodes));
        let (number, count) = (node.0.to_string(), node.1.to_string());
        environment.extend([("KURABE_NODE", number.as_str()), ("KURABE_NODES", count.as_str())]);
        let addresses;
        if let Some(node) = &spec.node {
            addresses = nodes::addresses(node);
            environment
                .extend([("KURABE_ADDRESSES", &*addresses), (SECRET_VARIABLE, &node.secret)]);
        }
        let aged = aged::directory_of(spec, self.root.as_deref().unwrap_or(directory));
        environment.extend(aged.as_deref().map(|aged| (AGED_VARIABLE, aged)));
        if channel.is_some() {
            // fio looks there for a file by whose name anybody could disturb it.
            place = self.workload_place()?.display().to_string();
            environment.push(("TMPDIR", &place));
        }
        let output: &OutputTarget = &spec.output;
        let (user, group) = (self.user.as_ref(), self.group.as_ref());
        let bounds =
            CommandBounds { user, group, deadline: self.deadline, ..CommandBounds::default() };
        command::run(command, directory, &environment, bounds, output, channel, self.stop)
            .map_err(|error| StepFailure::of(error.to_string()))
    }
}

/// Whether the end of a process of kurabe's own lets the trial go on. It prints why it failed; its exit code means
/// nothing to a user.
pub(super) fn judge_own(name: &str, ran: &CommandResult) -> Result<(), StepFailure> {
    match (&ran.end, ran.usage.exit_code) {
        (CommandEnd::Exited, Some(code)) if code != 0 => {
            Err(StepFailure::explained(format!("{name} failed"), &ran.said))
        }
        _ => judge(name, ran, false),
    }
}

/// Whether a command's end lets the trial go on.
pub(super) fn judge(
    name: &str,
    ran: &CommandResult,
    ignore_failure: bool,
) -> Result<(), StepFailure> {
    match ran.end {
        CommandEnd::TimedOut => return Err(StepFailure::TimedOut),
        CommandEnd::Stopped => return Err(StepFailure::Stopped),
        CommandEnd::Exited => {}
    }
    let how = match (ran.usage.exit_code, ran.usage.signal) {
        (Some(0), _) => return Ok(()),
        (Some(_), _) if ignore_failure => return Ok(()),
        (Some(code), _) => format!("{name} exited with code {code}"),
        (None, signal) => format!("{name} was ended by signal {}", signal.unwrap_or_default()),
    };
    Err(StepFailure::explained(how, &ran.said))
}
