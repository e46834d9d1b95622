//! A file system on block layers that are made with it, and opened with it after a power failure.

use std::path::PathBuf;

use lab::contender::Contender;

use super::LowerStack;
use crate::filesystem::{FileSystem, Instance, InstanceContext, Owner};
use crate::tool::{StepFailure, Toolbox};
use crate::upper;

/// See above. The file system begins once there is a device for it.
pub struct OnStack {
    file_system: &'static FileSystem,
    contender: Contender,
    stack: LowerStack,
    begun: Option<Box<dyn Instance>>,
}

impl OnStack {
    /// Touches nothing yet.
    pub fn new(
        file_system: &'static FileSystem,
        contender: &Contender,
        stack: LowerStack,
    ) -> OnStack {
        OnStack { file_system, contender: contender.clone(), stack, begun: None }
    }

    fn begin(&mut self) -> &mut dyn Instance {
        let (node, size_bytes) = self.stack.top().expect("layers lie on a device");
        let stage = InstanceContext::new(
            &self.contender,
            Some(node),
            size_bytes,
            false,
            &self.stack.scratch,
        );
        self.begun.insert(upper::begin(self.file_system, stage)).as_mut()
    }

    fn begun(&self) -> &dyn Instance {
        self.begun.as_deref().expect("it is made or mounted first")
    }

    fn begun_mut(&mut self) -> &mut dyn Instance {
        self.begun.as_deref_mut().expect("it is made or mounted first")
    }
}

impl Instance for OnStack {
    fn make(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        while !self.stack.is_whole() {
            self.stack.make_next(tools)?;
            self.stack.wait_synced(tools)?;
        }
        self.begin().make(tools)
    }

    fn geometry(&mut self, tools: &mut Toolbox) -> Result<String, StepFailure> {
        self.begun_mut().geometry(tools)
    }

    fn mount(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.begun_mut().mount(tools)
    }

    /// Opens the layers too where a power failure left them.
    fn mount_untimed(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        if self.begun.is_none() {
            self.stack.open_all(tools)?;
            self.begin();
        }
        self.begun_mut().mount_untimed(tools)
    }

    fn directory(&self) -> PathBuf {
        self.begun().directory()
    }

    fn sync(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        self.begun_mut().sync(tools)
    }

    fn sync_command(&self) -> Option<Vec<String>> {
        self.begun().sync_command()
    }

    fn repair(&mut self, tools: &mut Toolbox) -> Result<bool, StepFailure> {
        self.begun.as_mut().map_or(Ok(false), |begun| begun.repair(tools))
    }

    fn owner_of(&mut self, byte: u64, _: &mut Toolbox) -> Owner {
        Owner::Own(self.stack.place_of(byte))
    }

    fn end(&mut self, tools: &mut Toolbox) -> Result<(), StepFailure> {
        let ended = self.begun.take().map_or(Ok(()), |mut begun| begun.end(tools));
        ended.and(self.stack.end(tools))
    }
}
