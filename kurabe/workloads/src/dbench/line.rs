//! The words of one line of a load file: quotes, numbers, times, statuses.
//!
//! Knows no operation's meaning and no other line. Every fault is a reason without a place; the
//! caller knows the line.

use vocabulary::suggestion::did_you_mean;

/// Decimal, `0x` hexadecimal or, with a leading 0, octal: what C's `strtol` with base 0 reads.
pub(super) fn parse_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let parsed = if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        u64::from_str_radix(digits, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    // `parse` takes a leading `+`, which is dbench 5's sign for "relative to the line before".
    parsed.ok().filter(|_| !text.contains('+'))
}

/// A line's leading time, in seconds since the start of the pass. 0 means "at once".
pub(super) fn due_time(text: &[u8]) -> Result<Option<u64>, String> {
    let seconds = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok())
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .ok_or_else(|| format!("{} is not a time in seconds", excerpt(text)))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked above"
    )]
    let due_ns = (seconds * 1e9) as u64;
    Ok((due_ns > 0).then_some(due_ns))
}

/// Whether a status means success. dbench knows the name `NT_STATUS_OK` and a hexadecimal 0.
pub(super) fn succeeds(status: &[u8]) -> Result<bool, String> {
    let named = status.strip_prefix(b"NT_STATUS_".as_slice());
    if let Some(name) = named
        && !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
    {
        return Ok(name == b"OK");
    }
    if status.starts_with(b"0x")
        && let Some(code) = parse_number(status)
    {
        return Ok(code == 0);
    }
    Err(format!(
        "the line is to end with a status (NT_STATUS_... or 0x...), but ends with {}",
        excerpt(status)
    ))
}

pub(super) fn check_name(name: &[u8]) -> Result<(), String> {
    const DBENCH_5: [&[u8]; 7] =
        [b"LOOP", b"ENDLOOP", b"REPEAT", b"RANDOMSTRING", b"WRITEPATTERN", b"SETSP", b"WAITSP"];
    if DBENCH_5.contains(&name) {
        return Err(format!(
            "`{}` belongs to the load files of dbench 5; this replay reads those of dbench 4",
            excerpt_bare(name)
        ));
    }
    Ok(())
}

/// The backends of dbench 5 that are no file system (`nfsio.c`, `libiscsi.c`, `linux_scsi.c`, `smb.c`,
/// `blockio.c` of its source), and the operations of their load files.
const OTHER_BACKENDS: [(&str, &[&str]); 4] = [
    (
        "NFS",
        &[
            "ACCESS3",
            "COMMIT3",
            "CREATE3",
            "FSINFO3",
            "FSSTAT3",
            "GETATTR3",
            "LINK3",
            "LOCK4",
            "LOOKUP3",
            "MKDIR3",
            "PATHCONF3",
            "READ3",
            "READDIRPLUS3",
            "READLINK3",
            "REMOVE3",
            "RENAME3",
            "RMDIR3",
            "SETATTR3",
            "SYMLINK3",
            "TEST4",
            "UNLOCK4",
            "WRITE3",
        ],
    ),
    (
        "iSCSI or SCSI",
        &[
            "PROUT",
            "READ10",
            "READ16",
            "READ6",
            "READCAPACITY10",
            "SYNCHRONIZECACHE10",
            "TESTUNITREADY",
            "WRITE10",
            "WRITE16",
        ],
    ),
    ("SMB", &["CLOSE", "MKDIR", "OPEN", "READDIR", "RMDIR", "UNLINK"]),
    ("block device or SMB", &["FDATASYNC", "READ", "WRITE"]),
];

/// The first line, from 1, of a load file for another backend of dbench 5, and what it is.
pub(super) fn other_backend(text: &[u8]) -> Option<(usize, String)> {
    text.split(|byte| *byte == b'\n').enumerate().find_map(|(index, line)| {
        let tokens = tokens(line).ok()?;
        let is_time = |token: &&Vec<u8>| token.first().is_some_and(u8::is_ascii_digit);
        let name = std::str::from_utf8(tokens.iter().find(|token| !is_time(token))?).ok()?;
        let (backend, _) = OTHER_BACKENDS.iter().find(|(_, names)| names.contains(&name))?;
        let reason = format!(
            "`{name}` is an operation of dbench 5's {backend} backend, and this replay reads load files of \
             dbench's file backend, with operations such as NTCreateX; run dbench itself with this one"
        );
        Some((index + 1, reason))
    })
}

pub(super) fn unknown_operation(name: &[u8], known: &[&str]) -> String {
    let text = excerpt_bare(name);
    let advice = did_you_mean(&text, known)
        .unwrap_or_else(|| "this does not appear to be a dbench load file".into());
    format!("unknown operation `{text}`; {advice}")
}

/// Splits a line at blanks, which double quotes protect, and turns `\` into `/`.
pub(super) fn tokens(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut tokens = Vec::new();
    let mut token: Option<Vec<u8>> = None;
    let mut quoted = false;
    for byte in line {
        match byte {
            b'"' => {
                quoted = !quoted;
                token.get_or_insert_default();
            }
            b' ' | b'\t' if !quoted => tokens.extend(token.take()),
            b'\\' => token.get_or_insert_default().push(b'/'),
            byte => token.get_or_insert_default().push(*byte),
        }
    }
    if quoted {
        return Err("a quote is opened and not closed".to_owned());
    }
    tokens.extend(token.take());
    if tokens.first().is_some_and(Vec::is_empty) {
        return Err("the line begins with an empty word".to_owned());
    }
    Ok(tokens)
}

/// A piece of the input for a message: short, printable, in quotes.
pub(super) fn excerpt(text: &[u8]) -> String {
    format!("`{}`", excerpt_bare(text))
}

fn excerpt_bare(text: &[u8]) -> String {
    const LENGTH_MAX: usize = 40;
    let shown = &text[..text.len().min(LENGTH_MAX)];
    let mut printable: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if text.len() > LENGTH_MAX {
        printable.push_str("...");
    }
    printable
}
