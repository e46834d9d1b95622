//! The meetings of the nodes of a trial: what each waits for, and what one does after the other.

use super::*;

/// How often it is looked whether an unmount has come to where it waits for other nodes.
const LEAVING_INTERVAL: Duration = Duration::from_millis(5);

impl Trial<'_> {
    /// Waits for the other nodes, where there are several.
    pub(super) fn meet(&mut self, at: NodeBarrier, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.spec.node.is_none() {
            return Ok(());
        }
        (self.emit)(&Event::Meet { at });
        match self.wait_for_turn(tools)? {
            TrialCommand::Go => Ok(()),
            _ => Err(StepFailure::of("this node was sent a command of another step")),
        }
    }

    /// Whether this is a node in a guest, which ends with its trial.
    pub(super) fn is_node_of_guests(&self) -> bool {
        self.spec.node.is_some() && self.spec.contender.environment.guest().is_some()
    }

    /// Has the kernel count the locks of a node in a guest.
    pub(super) fn count_locks(&mut self, instance: &dyn Instance, tools: &mut Toolbox) {
        let calls = instance.lock_calls().filter(|_| self.is_node_of_guests());
        match calls.map(locks::begin).transpose() {
            Ok(begun) => self.counts_locks = begun.is_some(),
            Err(error) => tools.note(format!("locks are not counted: {error}")),
        }
    }

    pub(super) fn has_same_files(&self) -> bool {
        self.spec.contender.environment.same_files()
    }

    /// Lays out what the workload needs; of nodes with the same files one after the other, so that they do not
    /// write them at the same time.
    pub(super) fn lay_out_in_turn(
        &mut self,
        instance: &dyn Instance,
        directory: &Path,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let Some(node) = self.spec.node.clone().filter(|_| self.has_same_files()) else {
            return self.lay_out(instance, directory);
        };
        for number in 1..=node.nodes {
            if number == node.number {
                self.lay_out(instance, directory)?;
            }
            self.meet(NodeBarrier::LaidOut(number), tools)?;
        }
        Ok(())
    }

    /// Where the workload runs: of several nodes each has a directory of its own, unless all have the same files.
    pub(super) fn own_directory(&self, root: &Path) -> Result<PathBuf, StepFailure> {
        let Some(node) = self.spec.node.as_ref().filter(|_| !self.has_same_files()) else {
            return Ok(root.to_path_buf());
        };
        let directory = root.join(node.host_name());
        DirBuilder::new()
            .create(&directory)
            .map_err(failed(format_args!("making {}", directory.display())))?;
        Ok(directory)
    }

    /// Unmounts it; of several nodes one after the other, the first one last.
    pub(super) fn unmount(
        &mut self,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let (own, nodes) = self.spec.node.as_ref().map_or((1, 1), |node| (node.number, node.nodes));
        let dead = self.dead;
        for number in (1..=nodes).rev().filter(|number| dead != Some(*number)) {
            self.meet(NodeBarrier::Unmount(number), tools)?;
            match instance.leaving().filter(|_| number == own) {
                Some(leaving) => self.leave(instance, leaving, tools)?,
                None => {
                    if number == own {
                        self.timed(Phase::Unmount, || instance.unmount(tools))?;
                    }
                    self.meet(NodeBarrier::Gone(number), tools)?;
                }
            }
            if number > own {
                instance.left(number)?;
            }
        }
        Ok(())
    }

    /// Unmounts it on this node where the kernel waits within the unmount for the others to let it go.
    pub(super) fn leave(
        &mut self,
        instance: &mut dyn Instance,
        leaving: Leaving,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        let number = self.spec.node.as_ref().map_or(1, |node| node.number);
        self.timed_with(Phase::Unmount, |trial| {
            let (mut log, stop) = (KernelLog::from_now(), trial.stop.clone());
            let point = instance.directory().display().to_string();
            std::thread::scope(|scope| {
                let unmount = scope.spawn(|| {
                    let mut own = Toolbox::new(None, stop);
                    let unmounted = instance.unmount(&mut own);
                    (unmounted, own)
                });
                while !unmount.is_finished() && log.about(&[leaving.says]).is_empty() {
                    std::thread::sleep(LEAVING_INTERVAL);
                }
                let met = trial.meet(NodeBarrier::Gone(number), tools);
                let let_go = (leaving.let_go)();
                let (unmounted, own) = unmount.join().expect("an unmount does not panic");
                own.notes().iter().for_each(|note| tools.note(note.clone()));
                tools.log_command(&["umount", &point]);
                unmounted.and(met).and(let_go)
            })
        })
    }
}
