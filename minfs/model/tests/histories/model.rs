//! What a file may show after a power cut, from what was asked and what was answered.
//!
//! Everything has a time, a number that grows. A byte may be that of any write that had begun, but for
//! one that ended before another write to the same byte began of which a later answer said that it is
//! durable. What a mount has shown is durable.

/// Later than everything.
pub const NEVER: u64 = u64::MAX;

/// What an operation does to the bytes of a file.
#[derive(Clone, Debug)]
pub enum Bytes {
    None,
    Data { at: u64, bytes: Vec<u8> },
    Zeros { from: u64, to: u64 },
}

/// One operation on a file.
#[derive(Clone, Debug)]
pub struct Event {
    pub begun: u64,
    /// When it was acknowledged.
    pub ended: u64,
    /// When an answer said that it is durable.
    pub durable: u64,
    pub bytes: Bytes,
    /// The size after it; of a file that several threads write, the size that it needs.
    pub size: u64,
    /// An append under way: nobody knows yet where.
    pub is_anywhere: bool,
}

impl Event {
    fn value(&self, at: u64) -> Option<u8> {
        match &self.bytes {
            Bytes::None => None,
            Bytes::Data { at: start, bytes } => {
                bytes.get(at.checked_sub(*start)? as usize).copied()
            }
            Bytes::Zeros { from, to } => (*from..*to).contains(&at).then_some(0),
        }
    }

    fn is_durable(&self) -> bool {
        self.durable != NEVER
    }
}

/// One file.
#[derive(Clone, Debug, Default)]
pub struct FileModel {
    /// What the last mount showed.
    base: Vec<u8>,
    pub events: Vec<Event>,
    /// Several threads write it, and none makes it shorter.
    is_shared: bool,
}

impl FileModel {
    pub fn new(is_shared: bool) -> Self {
        Self { is_shared, ..Self::default() }
    }

    /// A mount has shown this.
    pub fn show(&mut self, content: Vec<u8>) {
        self.base = content;
        self.events.clear();
    }

    /// A sync that began at `begun` has succeeded at `now`.
    pub fn settle(&mut self, begun: u64, now: u64) {
        for event in self.events.iter_mut().filter(|event| event.ended < begun) {
            event.durable = event.durable.min(now);
        }
    }

    fn check_size(&self, found: u64) -> Result<(), String> {
        let base = self.base.len() as u64;
        if self.is_shared {
            let durable = self.events.iter().filter(|event| event.is_durable());
            let least = durable.map(|event| event.size).max().unwrap_or(0).max(base);
            let known = self.events.iter().filter(|event| !event.is_anywhere);
            let most = known.map(|event| event.size).max().unwrap_or(0).max(base);
            let anywhere = self.events.iter().filter(|event| event.is_anywhere);
            let most = most + anywhere.map(|event| event.size).sum::<u64>();
            return if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(format!("{found} bytes long, expected {least} to {most}"))
            };
        }
        let is_over =
            |ended: u64| self.events.iter().any(|other| other.is_durable() && other.begun > ended);
        let base = (!is_over(0)).then_some(base);
        let later = self.events.iter().filter(|event| !is_over(event.ended));
        let sizes: Vec<u64> = base.into_iter().chain(later.map(|event| event.size)).collect();
        if sizes.contains(&found) {
            Ok(())
        } else {
            Err(format!("{found} bytes long, expected one of {sizes:?}"))
        }
    }

    fn check_byte(&self, at: u64, found: u8) -> Result<(), String> {
        let covering: Vec<(&Event, u8)> =
            self.events.iter().filter_map(|event| Some((event, event.value(at)?))).collect();
        let is_over = |ended: u64| {
            covering.iter().any(|(other, _)| other.is_durable() && other.begun > ended)
        };
        let base = self.base.get(at as usize).copied().unwrap_or(0);
        let is_anywhere = |event: &&Event| event.is_anywhere && at >= self.base.len() as u64;
        let holds = |event: &Event| match &event.bytes {
            Bytes::Data { bytes, .. } => bytes.contains(&found),
            _ => false,
        };
        if base == found && !is_over(0)
            || covering.iter().any(|(event, value)| *value == found && !is_over(event.ended))
            || self.events.iter().filter(is_anywhere).any(holds)
        {
            return Ok(());
        }
        let last: Vec<_> = covering
            .iter()
            .rev()
            .take(3)
            .map(|(event, value)| (*value, event.begun, event.ended, event.durable))
            .collect();
        Err(format!(
            "byte {at} is {found:#x}; the mount before showed {base:#x}; the newest writes to it \
             (value, begun, ended, durable): {last:?}"
        ))
    }

    /// Whether a file may show this after a cut.
    pub fn admits(&self, found: &[u8]) -> Result<(), String> {
        self.check_size(found.len() as u64)?;
        // The newest write to each byte is always admitted, which spares nearly all of the work.
        let mut newest = self.base.clone();
        newest.resize(found.len(), 0);
        for event in self.events.iter().filter(|event| !event.is_anywhere) {
            match &event.bytes {
                Bytes::None => {}
                Bytes::Data { at, bytes } => {
                    let at = (*at as usize).min(newest.len());
                    let length = bytes.len().min(newest.len() - at);
                    newest[at..at + length].copy_from_slice(&bytes[..length]);
                }
                Bytes::Zeros { from, to } => {
                    let from = (*from).min(newest.len() as u64) as usize;
                    let to = (*to).min(newest.len() as u64) as usize;
                    newest[from..to].fill(0);
                }
            }
        }
        for (at, (byte, newest)) in found.iter().zip(&newest).enumerate() {
            if byte != newest {
                self.check_byte(at as u64, *byte)?;
            }
        }
        Ok(())
    }
}
