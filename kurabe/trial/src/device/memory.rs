//! `mem:SIZE`: memory of the host.

use std::fs::File;

use lab::device::MEMORY;
use lab::quantity::{about_text, size_text};
use rustix::fs::MemfdFlags;

use super::fill::FillOrder;
use super::held::{self, FilledFile, RESERVE_BYTES};
use super::{Base, DeviceError, DeviceKind, Making, PreparedDevice, Request};
use crate::memory_limit;

pub(super) static MEM: DeviceKind = DeviceKind {
    name: MEMORY,
    notation: "mem:4G (memory)",
    request: |base, _| match base {
        Base::Made { size_bytes, directory: None, .. } => Ok(Box::new(Memory(*size_bytes))),
        _ => Err("memory lies in no directory; leave '@' and what follows it out".into()),
    },
    ground: |prepared, site| held::ground(prepared, false, site),
};

/// So many bytes of it.
struct Memory(u64);

impl Request for Memory {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.0)
    }

    fn prepare(&self, making: &mut Making<'_>) -> Result<Box<dyn PreparedDevice>, DeviceError> {
        let size_bytes = self.0;
        let text = format!("mem:{}", size_text(size_bytes));
        let system = |what: &str| DeviceError::system(format!("{what} {text}"));
        let available_bytes =
            memory_limit::available_bytes().map_err(system("asking for the free memory for"))?;
        if size_bytes.saturating_add(RESERVE_BYTES) > available_bytes {
            return Err(DeviceError::Refused(format!(
                "{text} does not fit: {} of memory are available, of which {} stay free; give a smaller size, or use loop:SIZE, or name a directory on a quick disk by @DIR behind the size of a layer's short form",
                about_text(available_bytes),
                about_text(RESERVE_BYTES)
            )));
        }
        let memory = rustix::fs::memfd_create("kurabe", MemfdFlags::CLOEXEC)
            .map_err(|error| system("making the memory of")(error.into()))?;
        let file = File::from(memory);
        file.set_len(size_bytes).map_err(system("sizing the memory of"))?;
        FilledFile::fill(&MEM, file, size_bytes, None, FillOrder::Scattered, making)
            .map_err(system("filling the memory of"))
    }
}
