//! Whether what a workload needs fits where it is to work, told before anything is touched.
//!
//! Only what is certain is refused: a file system keeps some of a device for itself, and the workload
//! looks at its free space again before it begins.

use crate::quantity::size_text;

/// The space that a workload has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub bytes: u64,
    /// What has them: `the device`.
    pub holder: String,
}

impl Capacity {
    fn words(&self) -> String {
        format!("{} has {}", self.holder, bytes_text(self.bytes))
    }
}

/// Refuses what is larger than its capacity: `needer` is the sentence's subject with its verb, `remedy`
/// the next step.
pub fn check(
    needer: &str,
    needed_bytes: u64,
    capacity: Option<&Capacity>,
    remedy: &str,
) -> Result<(), String> {
    match capacity {
        Some(capacity) if needed_bytes > capacity.bytes => Err(format!(
            "{needer} {}, and {}; {remedy}",
            bytes_text(needed_bytes),
            capacity.words()
        )),
        _ => Ok(()),
    }
}

/// The last line of a plan.
pub fn verdict(needed_bytes: u64, capacity: Option<&Capacity>) -> String {
    let needed = bytes_text(needed_bytes);
    match capacity {
        None => format!("it needs {needed}; how many there are is seen when it begins\n"),
        Some(capacity) if needed_bytes > capacity.bytes => {
            format!("does not fit: it needs {needed}, and {}\n", capacity.words())
        }
        Some(capacity) => format!("fits: it needs {needed}, and {}\n", capacity.words()),
    }
}

/// `67108864 bytes (64M)`, or the number alone where no round unit suits.
pub fn bytes_text(bytes: u64) -> String {
    let round = size_text(bytes);
    if round.len() < 6 && round != bytes.to_string() {
        return format!("{bytes} bytes ({round})");
    }
    match bytes {
        bytes if bytes >= 1 << 30 => {
            format!("{bytes} bytes ({:.2} GiB)", bytes as f64 / f64::from(1 << 30))
        }
        bytes if bytes >= 1 << 20 => {
            format!("{bytes} bytes ({:.1} MiB)", bytes as f64 / f64::from(1 << 20))
        }
        bytes => format!("{bytes} bytes"),
    }
}

/// The lines of a plan: what, then how much.
pub fn lines(entries: &[(&str, String)]) -> String {
    entries.iter().map(|(name, text)| format!("{name:<22}{text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sizes_stand_in_a_refusal() {
        let capacity = Capacity { bytes: 64 << 20, holder: "the device".into() };
        assert_eq!(check("the jobs need", 64 << 20, Some(&capacity), "-"), Ok(()));
        assert_eq!(check("the jobs need", u64::MAX, None, "-"), Ok(()));
        assert_eq!(
            check("the jobs need", (64 << 20) + 1, Some(&capacity), "give less").unwrap_err(),
            "the jobs need 67108865 bytes (64.0 MiB), and the device has 67108864 bytes (64M); give less"
        );
        assert!(
            verdict(1 << 30, Some(&capacity))
                .starts_with("does not fit: it needs 1073741824 bytes (1G)")
        );
        assert!(verdict(1000, Some(&capacity)).starts_with("fits: it needs 1000 bytes"));
    }
}
