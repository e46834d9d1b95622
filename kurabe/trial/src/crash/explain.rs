//! What the failing states of a recording lost, and why they fail.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crash::{CrashState, FlushPolicy, SECTOR_BYTES};

use super::cause::{FailureCause, Files};
use super::{Case, Recorded, Trial};
use crate::device::layer::IGNORE_FLUSH;
use crate::filesystem::Access;
use crate::tool::StepFailure;

impl Recorded {
    /// Whether a block of a file was written as zeros before an instant, or nobody knows. `meant` are its bytes at
    /// the end of the workload, which prove that the block lies where the file system says.
    fn wrote_zeros(&self, file: &Path, at: u64, meant: &[u8], instant: crash::Instant) -> bool {
        let Some(sector) = self.places.sector_of(file, at) else { return true };
        let covers = |request: &&crash::RecordedRequest| {
            request.operation != crash::RequestKind::Flush
                && (request.sector..request.sector + request.sectors).contains(&sector)
        };
        let (mut newest, mut wrote_zeros) = (Vec::new(), false);
        for request in self.recording.log.requests.iter().filter(covers) {
            let left = (request.sector + request.sectors - sector) * SECTOR_BYTES;
            newest = vec![0; meant.len().min(left as usize)];
            if request.operation == crash::RequestKind::Write {
                let place = (request.data_sector + sector - request.sector) * SECTOR_BYTES;
                if self.recording.data.read_exact_at(&mut newest, place).is_err() {
                    return true;
                }
            }
            wrote_zeros |= request.arrived <= instant && newest.iter().all(|byte| *byte == 0);
        }
        wrote_zeros || newest.is_empty() || !meant.starts_with(&newest)
    }
}

impl Trial<'_, '_> {
    /// Says what the lost writes of the cases held, as the file system's own tools have it at the end of the workload,
    /// and why the cases fail.
    pub(super) fn explain(
        &mut self,
        recorded: &Recorded,
        cases: &mut [Case],
    ) -> Result<(), StepFailure> {
        if cases.is_empty() {
            return Ok(());
        }
        self.status("looking for the causes");
        let bench = &self.benches[0];
        let log = &recorded.recording.log;
        let ignores_flushes =
            self.setting.spec.contender.below().iter().any(|layer| layer.name == IGNORE_FLUSH);
        let whole = CrashState { instant: recorded.to, lost: Vec::new(), acknowledged: 0 };
        let begun = CrashState { instant: recorded.from, ..whole.clone() };
        let mut files_begun = None;
        for case in cases.iter_mut().filter(|case| case.finding.kind.is_checked()) {
            // Where the loss of a member is enough, the recording has no other cause.
            let is_of_writes = !case.lost.is_empty() || case.lost_member.is_none();
            let cause = FailureCause::of(log, recorded.from, &case.state, ignores_flushes);
            case.cause = cause.filter(|_| is_of_writes);
            let Some(left) = &recorded.left else { continue };
            if files_begun.is_none() {
                files_begun = self.files(&begun, None)?;
            }
            let Some(begun) = &files_begun else { continue };
            let Some(found) = self.files(&case.state, bench.lost_member(&case.state))? else {
                continue;
            };
            case.trace = found.trace(begun, left, |file, at, meant| {
                recorded.wrote_zeros(file, at, meant, case.state.instant)
            });
        }
        if cases.iter().all(|case| case.lost.is_empty()) {
            return Ok(());
        }
        // Mounted once, so that its journal is played back.
        bench.after_cut(&whole, None, FlushPolicy::Kept, |instance, tools| {
            instance.mount_untimed(tools)
        })?;
        let mut tools = bench.tools(None);
        let mut instance = bench.instance()?;
        for case in cases.iter_mut() {
            for (lost, named) in case.state.lost.iter().zip(&mut case.lost) {
                let request = &recorded.recording.log.requests[lost.request];
                let sector = request.sector + lost.first;
                let owner = instance.owner_of(sector * SECTOR_BYTES, &mut tools);
                named.what = recorded.places.name(sector, lost.sectors, owner);
            }
        }
        Ok(())
    }

    /// The files of a state; nothing where they are in no directory, or too many.
    fn files(&self, state: &CrashState, member: Option<u32>) -> Result<Option<Files>, StepFailure> {
        let bench = &self.benches[0];
        if bench.file_system()?.access != Access::Mounted {
            return Ok(None);
        }
        bench.after_cut(state, member, FlushPolicy::Kept, |instance, tools| {
            instance.mount_untimed(tools)?;
            Ok(Files::read(&instance.directory()))
        })
    }
}
