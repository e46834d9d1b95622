//! fio: any of its job files, run by the installed fio within a directory or on a device.
//!
//! [`jobfile`] reads a job file with places, [`place`] puts it below its target, [`size`]
//! tells what it needs, [`understood`] asks fio whether it takes the job, [`layout`] writes the data before the run, [`run`] does it all in
//! order, [`output`] reads the result, `groups` says which figures belong together, `changes` what was changed in a job, [`verify`] makes a check of what the jobs compare, [`matrix`] is the flash study's set of jobs, `nodes` runs a job on several machines. Knows a
//! directory or a device; nothing of contenders. What is added to a job and what is refused:
//! docs/reference/fio.md.

mod changes;
mod groups;
pub mod jobfile;
pub mod layout;
pub mod matrix;
mod nodes;
pub mod output;
pub mod place;
pub mod run;
pub mod size;
mod understood;
mod verify;

pub use changes::{changes, replaced};
pub use groups::{FioFigures, Groups};
pub use jobfile::{JobFile, left_out};
pub use nodes::{NodesReport, fio_on, lay_out_on};
pub use output::{Direction, FioJob};
pub use place::FioTarget;
pub use run::{
    Fio, FioPreparation, FioReport, fio, lay_out, synced_at_end, syncs, trims_a_device, unsynced,
    verify_again,
};
pub use understood::{unasked, understood};
pub use verify::{several_write, unwritten, verifies_any, verifies_later};
