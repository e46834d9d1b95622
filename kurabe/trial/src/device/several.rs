//! Several devices of one study: prepared one after the other, claimed together.
//!
//! Invariant: what is done for one device of a study is done for each of them.

use lab::spec::Device;

use super::{Claimed, DeviceError, DeviceFacts, Left, PreparedDevice};

struct Several {
    devices: Vec<Box<dyn PreparedDevice>>,
    device: Device,
    facts: DeviceFacts,
}

/// Makes one of several. `request` is how they were asked for.
pub(super) fn together(
    request: String,
    devices: Vec<Box<dyn PreparedDevice>>,
) -> Box<dyn PreparedDevice> {
    let mut all: Vec<Device> = devices.iter().map(|one| one.device().clone()).collect();
    let others = all.split_off(1);
    let device = Device { others, ..all.remove(0) };
    let each: Vec<DeviceFacts> = devices.iter().map(|one| one.facts().clone()).collect();
    let facts = DeviceFacts {
        request,
        size_bytes: each.iter().map(|one| one.size_bytes).sum(),
        fill_ns: each.iter().map(|one| one.fill_ns).sum(),
        devices: each,
        ..DeviceFacts::default()
    };
    Box::new(Several { devices, device, facts })
}

impl PreparedDevice for Several {
    fn device(&self) -> &Device {
        &self.device
    }

    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn claim_again(&self) -> Result<Claimed, DeviceError> {
        let mut files = Vec::new();
        for device in &self.devices {
            files.extend(device.claim_again()?.0);
        }
        Ok(Claimed(files))
    }

    fn note_left(&self, left: Left<'_>) {
        self.devices.iter().for_each(|device| device.note_left(left));
    }

    fn part(&self, _: u32, _: u32) -> Result<Device, DeviceError> {
        let text = "several devices are used by one contender at a time";
        Err(DeviceError::Refused(text.into()))
    }
}
