//! The kernel in a bzImage, as QEMU boots it fastest: the ELF file that it holds compressed.
//!
//! The header is that of `Documentation/arch/x86/boot.rst`. What cannot be unpacked here is booted as
//! it is, which takes some seconds more where the processor is emulated.

use std::io::Write;
use std::process::Stdio;

use crate::program;

/// The programs that unpack what kernels are compressed with, by the first bytes.
const PACKERS: [(&[u8], &[&str]); 3] = [
    (b"\xfd7zXZ\0", &["xz", "-dc", "--single-stream"]),
    (b"\x28\xb5\x2f\xfd", &["zstd", "-dcq"]),
    (b"\x1f\x8b", &["gzip", "-dcq"]),
];

/// The release that a bzImage names in its header, unchecked; absent when it is no bzImage.
pub fn release(image: &[u8]) -> Option<String> {
    let at = usize::from(u16::from_le_bytes(field(image, 0x20e)?)) + 0x200;
    let text = image.get(at..)?.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    is_boot_image(image).then(|| text.split(' ').next().unwrap_or(text).to_string())
}

/// Whether it is a bzImage at all.
pub fn is_boot_image(image: &[u8]) -> bool {
    field(image, 0x202) == Some(*b"HdrS")
}

/// The ELF file in it; absent when it cannot be unpacked here.
pub fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    if !is_boot_image(image) {
        return None;
    }
    let number = |at| Some(u32::from_le_bytes(field(image, at)?) as usize);
    let [sectors] = field(image, 0x1f1)?;
    let begin = (usize::from(sectors) + 1) * 512 + number(0x248)?;
    let packed = image.get(begin..begin.checked_add(number(0x24c)?)?)?;
    let (_, words) = PACKERS.iter().find(|(magic, _)| packed.starts_with(magic))?;
    let mut command = program::command(words[0]).ok()?;
    let mut child = command
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    // The last four bytes are the size, which is none of the packer's.
    let packed = packed[..packed.len() - 4].to_vec();
    let feeder = std::thread::spawn(move || {
        let _ = input.write_all(&packed);
    });
    let output = child.wait_with_output().ok()?;
    let _ = feeder.join();
    // gzip misses the size, which is its own there, and complains when everything is unpacked.
    output.stdout.starts_with(b"\x7fELF").then_some(output.stdout)
}

fn field<const N: usize>(image: &[u8], at: usize) -> Option<[u8; N]> {
    image.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_kernel_is_none() {
        for image in [&b""[..], b"HdrS", &[0; 4096], &[0xff; 4096]] {
            assert_eq!((release(image), unpacked(image)), (None, None));
        }
        let mut hostile = vec![0xff; 4096];
        hostile[0x202..0x206].copy_from_slice(b"HdrS");
        assert_eq!((release(&hostile), unpacked(&hostile)), (None, None));
    }
}
