//! Aged file systems in a trial: the one that is put on the device instead of a new one, and how its files lie afterwards.

use lab::spec::Aged;
use workloads::age;

use super::*;

impl Trial<'_> {
    /// Puts the aged file system on the device.
    pub(super) fn restore(
        &mut self,
        aged: &Aged,
        instance: &mut dyn Instance,
        tools: &mut Toolbox,
    ) -> Result<(), StepFailure> {
        self.record.layout_before.clone_from(&aged.layout);
        if let (Some(layout), false) = (&mut self.record.layout_before, self.spec.measure_layout) {
            // One record has the map; it is the same in all.
            layout.map.clear();
        }
        if aged.image.is_none() {
            return Ok(());
        }
        let node = self.node.clone().expect("what is made has a device");
        let device_bytes = self.device_bytes.unwrap_or(0);
        self.timed_with(Phase::Restore, |trial| {
            aged::restore(aged, &node, device_bytes, trial.host, trial.stop)?;
            instance.renew(tools)
        })
    }

    /// How the files lie that have come in the trial, next to those that had aged.
    pub(super) fn measure_layout(&mut self, directory: &Path, tools: &mut Toolbox) {
        let old = directory.join(age::DIRECTORY);
        let except = self.spec.aged.as_ref().map(|_| old.as_path());
        match age::layout::measure(directory, except, self.device_bytes.unwrap_or(0)) {
            Ok(layout) => self.record.layout_after = Some(layout),
            Err(error) => tools.note(format!("how the files lie cannot be seen: {error}")),
        }
    }
}
