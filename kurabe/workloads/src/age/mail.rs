//! `mail`: mailboxes with a file for each message, which are delivered, filed and expunged, each made durable.

use std::collections::BTreeMap;

use super::distribution::VARMAIL;
use super::population::{FileEvent, Population};
use super::{AgeProfile, AgeingDirectory, History};

pub(super) static MAIL: AgeProfile = AgeProfile {
    name: "mail",
    notation: "mail[:fill=PERCENT][,times=N][,boxes=M][,copied]",
    summary: "messages delivered to M mailboxes with fsync and expunged (fill=50%, times=1, boxes=50)",
    read: |keys| {
        let (fill, times) = (keys.fill(0.5)?, keys.times(1.0)?);
        Ok(Box::new(Mail { fill, times, boxes: keys.number("boxes", 50, 1, 10_000)? }))
    },
};

struct Mail {
    fill: f64,
    times: f64,
    boxes: u64,
}

/// Bytes of a line of the log that a mailbox has of its messages.
const LINE_BYTES: u64 = 160;
/// Lines after which the log is written anew.
const LINES_MAX: u64 = 400;

impl History for Mail {
    fn check(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn live(&self, place: &mut AgeingDirectory<'_>) -> Result<(), String> {
        let (capacity, seed) = (place.capacity_bytes, place.seed);
        let mut population =
            Population::new(VARMAIL.shape(), capacity, self.fill, self.times, seed);
        let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
        for event in population.by_ref() {
            let (file, is_born) = match event {
                FileEvent::Born(file) => (file, true),
                FileEvent::Gone(file) => (file, false),
            };
            // The number of a message says its mailbox: some get far more than others.
            let mailbox = spread(file.number, self.boxes);
            let path = |directory: &str| format!("box{mailbox}/{directory}/m{}", file.number);
            if is_born {
                place.write(&path("tmp"), file.number, file.size_bytes)?;
                place.sync_file(&path("tmp"))?;
                place.rename(&path("tmp"), &path("cur"))?;
            } else {
                place.remove(&path("cur"))?;
            }
            let log = format!("box{mailbox}/log");
            let count = lines.entry(mailbox).or_default();
            *count += 1;
            if *count > LINES_MAX {
                *count = LINES_MAX / 2;
                place.write(&format!("{log}.new"), file.number, *count * LINE_BYTES)?;
                place.sync_file(&format!("{log}.new"))?;
                place.rename(&format!("{log}.new"), &log)?;
            } else {
                place.append(&log, file.number, LINE_BYTES)?;
            }
        }
        place.say(population.shares());
        Ok(())
    }
}

/// A mailbox for a message: half of all messages go to a tenth of the mailboxes.
fn spread(number: u64, boxes: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let busy = boxes.div_ceil(10);
    if mixed & 1 == 0 { (mixed >> 1) % busy } else { (mixed >> 1) % boxes }
}
