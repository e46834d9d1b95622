//! Tests of the load-file parser.

use super::*;
use proptest::prelude::*;

const SAMPLE: &str = "\
# a comment
Mkdir \"\\clients\" NT_STATUS_OK
NTCreateX \"\\clients\\client1\\a b.doc\" 0x40 0x2 9938 NT_STATUS_OK
0.25 WriteX 9938 65534 1 1 NT_STATUS_OK

NTCreateX \"\\clients\\client1\\other\" 0x40 0x1 9939 NT_STATUS_OBJECT_NAME_NOT_FOUND
FIND_FIRST \"\\clients\\client1\\FILLER.*\" 260 1366 0 NT_STATUS_NO_SUCH_FILE
LockX 9938 4294967295 1 0x00000000
Close 9938 NT_STATUS_OK
";

#[test]
fn every_part_of_a_line_is_read() {
    let load = LoadFile::parse(SAMPLE.as_bytes()).unwrap();
    assert_eq!(load.operations.len(), 7);
    assert_eq!(load.paths[1], b"/clients/client1/a b.doc");
    assert_eq!(load.open_files_max, 1);
    assert_eq!(load.operations.iter().map(|operation| operation.bytes()).sum::<u64>(), 1);
    let write = load.operations[2];
    assert_eq!(write.line, 4);
    assert_eq!(write.due_ns, Some(250_000_000));
    assert_eq!(write.kind, OperationKind::WriteX);
    assert_eq!((write.slot, write.offset_bytes, write.size_bytes), (0, 65534, 1));
    assert!(!load.operations[3].succeeds);
    assert_eq!(load.operations[5].kind, OperationKind::LockX);
    assert_eq!((load.operations[5].offset_bytes, load.operations[5].size_bytes), (u32::MAX, 1));
    assert!(load.operations[5].succeeds);
}

/// First lines of the load files that dbench 5 brings.
#[test]
fn a_load_file_of_another_backend_is_named_with_it() {
    for (text, line, reason) in [
        (
            "0.000 TESTUNITREADY 0x00\nLOOP 100000\n",
            1,
            "`TESTUNITREADY` is an operation of dbench 5's iSCSI or SCSI",
        ),
        ("0.000 PROUT 0  0          0 0xdeadbeef 0x00\n", 1, "iSCSI or SCSI"),
        (
            "0.000 Deltree \"/clients/client1\" 0x00000000\n0.000 MKDIR3 \"/clients\" *\n",
            2,
            "NFS backend",
        ),
        ("UNLOCK4 \"/foo.dbench\" 0 0 0x00000000\nREPEAT 1\n", 1, "NFS backend"),
        ("RANDOMSTRING 1 \"/test[01]\"\nLOOP 5\nCREATE3 $1 *\n", 3, "NFS backend"),
        ("# a\nMKDIR \"/foo\" SUCCESS\n", 2, "SMB backend"),
        ("LOOP 1000\nREAD */0x1000%0x40000000 4096 0x00000000\nENDLOOP\n", 2, "block device"),
    ] {
        let (found, said) = fault(text);
        assert!(found == line && said.contains(reason), "{text:?}: {found}: {said}");
        assert!(said.contains("file backend"), "{said}");
    }
}

fn fault(text: &str) -> (usize, String) {
    let error = LoadFile::parse(text.as_bytes()).unwrap_err();
    (error.line, error.reason)
}

#[test]
fn faults_name_the_line_and_the_reason() {
    for (text, line, reason) in [
        ("", 1, "no operation"),
        ("# only\n", 1, "no operation"),
        ("Close 7 NT_STATUS_OK\n", 1, "handle 7 is not open"),
        ("Mkdir \"\\a\" NT_STATUS_OK\nMkdir \"\\a\" NT_ST", 2, "truncated"),
        ("Mkdir \"\\a\" NT_ST\n", 1, "ends with `NT_ST`"),
        ("Mkdir \"\\a NT_STATUS_OK\n", 1, "not closed"),
        ("Mkdir \"\\a\\..\\..\\b\" NT_STATUS_OK\n", 1, "leads out"),
        ("Mkdir a NT_STATUS_OK\n", 1, "begins with \\"),
        ("Mkdri \"\\a\" NT_STATUS_OK\n", 1, "did you mean 'Mkdir'?"),
        ("[global]\n", 1, "no operands and no status"),
        ("bs=4k rw=read NT_STATUS_OK\n", 1, "not appear to be a dbench"),
        ("SMBopen 1 2\n", 1, "dbench 1"),
        ("LOOP 5\n", 1, "dbench 5"),
        ("Flush 1 2 NT_STATUS_OK\n", 1, "takes 1 operand(s)"),
        ("1.5\n", 1, "time without"),
        ("\u{1f}\u{8b}\n", 1, "control character"),
        (
            "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\n",
            1,
            "1 open handle(s), the first of them 5 from line 1",
        ),
        (
            "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nWriteX 5 0 9999999999 1 NT_STATUS_OK\n",
            2,
            "number of 32 bits",
        ),
        (
            "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nReadX 5 0 10 11 NT_STATUS_OK\n",
            2,
            "11 bytes are returned of 10",
        ),
        (
            "NTCreateX \"\\a\" 0x40 0x2 5 NT_STATUS_OK\nReadX 5 +child 10 10 NT_STATUS_OK\n",
            2,
            "`+child`",
        ),
    ] {
        let (found_line, found_reason) = fault(text);
        assert_eq!(found_line, line, "{text}");
        assert!(
            found_reason.contains(reason),
            "{text:?}: {found_reason:?} does not say {reason:?}"
        );
    }
}

#[test]
fn slots_are_taken_again_as_dbench_takes_them() {
    let text = "\
NTCreateX \"\\a\" 0 1 1 NT_STATUS_OK
NTCreateX \"\\b\" 0 1 2 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX \"\\c\" 0 1 3 NT_STATUS_OK
Close 3 NT_STATUS_OK
Close 2 NT_STATUS_OK
";
    let load = LoadFile::parse(text.as_bytes()).unwrap();
    assert_eq!((load.operations[3].kind, load.operations[3].slot), (OperationKind::NTCreateX, 0));
}

/// The real file, where its package is installed: its line counts are facts of the format.
#[test]
fn the_packaged_load_file_is_read_whole() {
    let Ok(text) = std::fs::read("/usr/share/dbench/client.txt") else {
        eprintln!("the package dbench is not installed; nothing to read");
        return;
    };
    let load = LoadFile::parse(&text).unwrap();
    let lines = text.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(load.operations.len(), lines);
    for cut in [text.len() / 3, text.len() / 2, text.len() - 1] {
        assert!(LoadFile::parse(&text[..cut]).is_err(), "cut at byte {cut}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = LoadFile::parse(&bytes);
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(
        place in 0..SAMPLE.len(), byte in any::<u8>(), cut in 0..SAMPLE.len(),
    ) {
        let mut damaged = SAMPLE.as_bytes().to_owned();
        damaged[place] = byte;
        let _ = LoadFile::parse(&damaged);
        let _ = LoadFile::parse(&damaged[..cut]);
    }
}
