//! The volume of minfs that a store lies on, in the workload's own process: what is a mount, the making
//! of a file and an unmount elsewhere happens here, apart, so that each can be a phase of its own.

use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, FileDevice, FileDeviceOptions};
use minfs::{MountOptions, Volume};

/// Share of a fresh volume's free space that its one file takes; the rest is for its records.
const FILE_SHARE_PERCENT: u64 = 95;

/// The file's size is a multiple of this.
const FILE_UNIT_BYTES: u64 = 1 << 20;

/// Mounts the volume on a device: reads its slots.
pub fn mount(path: &Path) -> Result<Volume, String> {
    let opened = FileDevice::open(path, &FileDeviceOptions::default())
        .map_err(|error| format!("opening {}: {error}", path.display()))?;
    mount_on(Arc::new(opened))
}

fn mount_on(device: Arc<dyn BlockDevice>) -> Result<Volume, String> {
    Volume::mount(device, &MountOptions::default())
        .map_err(|error| format!("mounting minfs: {error}"))
}

/// Name of the store's one file.
const FILE_NAME: &[u8] = b"store";

/// The store's file on a volume on which it was made before.
pub fn file(volume: &Volume) -> Result<Arc<dyn BlockDevice>, String> {
    let file =
        volume.open(FILE_NAME).map_err(|error| format!("opening the store's file: {error}"))?;
    Ok(Arc::new(file))
}

/// Makes the store's one file, its space reserved and not written.
pub fn make_file(volume: &Volume) -> Result<Arc<dyn BlockDevice>, String> {
    let failed = |what: &str, error: minfs::Error| format!("{what} on minfs: {error}");
    let size = volume.space().free_bytes / 100 * FILE_SHARE_PERCENT;
    let size = size / FILE_UNIT_BYTES * FILE_UNIT_BYTES;
    let file =
        volume.create(FILE_NAME, 0o600).map_err(|error| failed("creating the file", error))?;
    file.preallocate(0, size, false, false)
        .map_err(|error| failed("reserving the file's space", error))?;
    Ok(Arc::new(file))
}

/// Unmounts, once nobody has the file open.
pub fn unmount(volume: Volume) -> Result<(), String> {
    volume.unmount().map_err(|error| format!("unmounting minfs: {error}"))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use crate::{
        Program, ProgramOutcome, ProgramPhase, Report, RunOptions, StoreLocation, StoreOptions, run,
    };
    use block::{CountingDevice, Counts, MemoryDevice};
    use minfs::{MkfsOptions, mkfs};

    use super::*;

    type Counting = CountingDevice<MemoryDevice>;

    const DEVICE_BYTES: u64 = 256 << 20;
    const RECORD_BYTES: u64 = 4096;
    const PUTS: u64 = 40;
    const PROGRAM: &str = "Command { 40.times { New(256K); }; 5.times { Get; }; }";

    fn device() -> Arc<Counting> {
        Arc::new(CountingDevice::new(MemoryDevice::new(DEVICE_BYTES, 512)))
    }

    /// What the device did until the first command, and from there to the end of the final sync.
    fn measured(
        device: &Counting,
        place: &StoreLocation,
        store: &str,
        sync_puts: bool,
    ) -> (Counts, Counts, Report) {
        let kind = store;
        let program = Program::parse("load.obj", PROGRAM.as_bytes()).unwrap().program;
        let store = StoreOptions {
            block_size_bytes: 4096,
            sync_every_put: sync_puts,
            ..StoreOptions::default()
        };
        let options = RunOptions { store, ..RunOptions::default() };
        let (mut making, mut load) = (None, None);
        let report = run(&program, &options, place, kind, &mut |phase| {
            match phase {
                ProgramPhase::Running if making.is_none() => making = Some(device.take_counts()),
                ProgramPhase::Sweeping => load = Some(device.take_counts()),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(report.outcome, ProgramOutcome::Completed);
        (making.unwrap(), load.unwrap(), report)
    }

    #[test]
    fn the_workload_on_minfs_is_the_workload_on_the_bare_device_and_one_record_a_sync() {
        for sync_puts in [false, true] {
            let bare = device();
            let place = StoreLocation::Open(Arc::clone(&bare) as Arc<dyn BlockDevice>);
            let (making_bare, of_bare, on_bare) = measured(&bare, &place, "cannyls", sync_puts);

            let below = device();
            mkfs(&*below, &MkfsOptions::default()).unwrap();
            below.take_counts();
            let volume = mount_on(Arc::clone(&below) as Arc<dyn BlockDevice>).unwrap();
            let mounting = below.take_counts();
            assert!(mounting.read_bytes > 0, "the slots are read by the mount: {mounting:?}");
            let place = StoreLocation::Open(make_file(&volume).unwrap());
            let (making, of_minfs, on_minfs) = measured(&below, &place, "cannyls", sync_puts);

            // The same store, made of the same bytes, and three records of its file: created,
            // reserved, grown.
            assert_eq!(on_bare.store_facts, on_minfs.store_facts);
            let journal_bytes: u64 = on_bare.store_facts["journal_bytes"].parse().unwrap();
            assert!(making_bare.written_bytes > journal_bytes, "{making_bare:?}");
            assert_eq!(making.written_bytes, making_bare.written_bytes + 3 * RECORD_BYTES);

            // The workload: what the store wrote and a record for each sync that finds the file grown;
            // no zeros, no slots, no flush more.
            assert_eq!(on_bare.store_written_bytes, Some(of_bare.written_bytes));
            assert_eq!(on_minfs.store_written_bytes, on_bare.store_written_bytes);
            let records = if sync_puts { PUTS } else { 1 };
            assert_eq!(of_minfs.written_bytes, of_bare.written_bytes + records * RECORD_BYTES);
            assert_eq!(of_minfs.read_bytes, of_bare.read_bytes);
            assert_eq!(of_minfs.flushes, of_bare.flushes);
            assert!(!sync_puts || of_bare.flushes >= PUTS, "{of_bare:?}");

            // The end writes no more than a record.
            drop(place);
            unmount(volume).unwrap();
            assert!(below.take_counts().written_bytes <= RECORD_BYTES);
        }
    }

    #[test]
    fn a_durable_put_of_lump_is_one_flush_on_minfs_as_on_the_bare_device() {
        let bare = device();
        let place = StoreLocation::Open(Arc::clone(&bare) as Arc<dyn BlockDevice>);
        let (_, of_bare, _) = measured(&bare, &place, "lump", true);

        let below = device();
        mkfs(&*below, &MkfsOptions::default()).unwrap();
        let volume = mount_on(Arc::clone(&below) as Arc<dyn BlockDevice>).unwrap();
        let place = StoreLocation::Open(make_file(&volume).unwrap());
        let (_, of_minfs, _) = measured(&below, &place, "lump", true);

        // No checkpoint within the puts of so small a program: its store's journal is long enough. One
        // more flush is the store's clean end.
        assert_eq!((of_bare.flushes, of_minfs.flushes), (PUTS + 1, PUTS + 1));
        assert_eq!(of_minfs.written_bytes, of_bare.written_bytes);
        assert_eq!(of_minfs.read_bytes, of_bare.read_bytes);
    }
}
