//! Which stacks there can be, and what is said of the others.

use super::*;

fn checked(text: &str) -> Result<(), String> {
    let contender = Contender::parse(text, &crate::filesystem::known()).unwrap();
    check(&contender).and_then(|()| upper::check(&contender))
}

fn place(layer: &str) -> LowerLocation {
    let contender = format!("ext4 over {layer}");
    let contender = Contender::parse(&contender, &crate::filesystem::known()).unwrap();
    LowerLocation {
        node: DeviceNode::of_nothing("/nodes/vda"),
        devices: Vec::new(),
        size_bytes: 100 << 20,
        name: "kurabe0".into(),
        index: 0,
        layer: contender.below()[0].clone(),
        key: tempfile::tempfile().unwrap(),
        lost: None,
        directory: None,
        attached: RefCell::default(),
        scratch: Occupied::enter(tempfile::tempdir().unwrap().path()).unwrap().into(),
    }
}

#[test]
fn names_are_unique_among_all_layers_and_file_systems() {
    let mut names: Vec<&str> = all().iter().map(|lower| lower.name).collect();
    names.extend(upper::all().iter().map(|one| one.name));
    names.extend(crate::filesystem::all().iter().map(|one| one.name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for lower in all() {
        assert!(layer::read(lower.name).is_err(), "{}", lower.name);
        assert!(!lower.modules.is_empty(), "{}", lower.name);
    }
}

#[test]
fn a_file_system_on_too_few_bytes_is_named() {
    let small = |text: &str, device_bytes, top_bytes| {
        let contender = Contender::parse(text, &crate::filesystem::known()).unwrap();
        too_small(&contender, device_bytes, top_bytes)
    };
    assert_eq!(small("ext4", 1 << 30, 1 << 30), None);
    assert_eq!(small("btrfs", 2 << 30, 2 << 30), None);
    let said = "btrfs behaves differently on less than 2G, and has 1G";
    assert_eq!(small("btrfs", 4 << 30, 1 << 30).as_deref(), Some(said));
    assert_eq!(small("ext4 over loop over btrfs", 2 << 30, 1 << 30), None);
    assert_eq!(small("ext4 over loop over btrfs", 1 << 30, 1 << 20).as_deref(), Some(said));
}

#[test]
fn what_cannot_be_below_is_refused_with_the_rule() {
    for (text, said) in [
        ("luks over ext4", "write ext4 over luks, or ext4 over luks over loop over ext4"),
        ("loop over xfs", "write ext4 over loop over xfs"),
        (
            "ext4 over xfs",
            "'ext4' needs a device, and 'xfs' has files; write ext4 over loop over xfs",
        ),
        ("ext4 over luks over xfs", "write luks over loop over xfs"),
        ("ext4 over loop", "say on which, as in loop over xfs"),
        ("ext4 over loop over luks", "write loop over ext4 over luks"),
        ("ext4 over loop over delay:1ms", "write loop over ext4 over delay:1ms"),
        ("ext4 over loop over tmpfs", "'tmpfs' carries no image; these do: "),
        (
            "ext4 over loop over xfs -l logdev=/dev/sda",
            "'logdev=/dev/sda' can name something other",
        ),
        ("ext4 over loop:4 over xfs", "takes nothing after a colon"),
        ("raid5:3 over xfs", "write xfs over raid5:3"),
        ("ext4 over gocryptfs", "write gocryptfs over ext4"),
        ("ext4 over delay:1ms over luks", "write over luks over delay:1ms"),
        ("ext4 over lux", "did you mean 'luks'"),
        ("ext4 over luks:2", "takes nothing after a colon"),
        ("ext4 over luks @ noatime", "leave '@' out"),
        ("ext4 over luks --header=x", "'--header=x': luks takes cipher=,"),
        ("ext4 over luks --cipher", "'--cipher': luks takes"),
        ("ext4 over luks --cipher=/etc/x", "'--cipher=/etc/x': luks takes"),
        ("ext4 over luks aged git:9", "leave 'aged' or 'over luks' out"),
        ("ext4 over raid5:2", "raid5 has 3 to 64 members; write raid5:3"),
        ("ext4 over raid6", "raid6 has 4 to 64 members; write raid6:4"),
        ("ext4 over raid1:65", "raid1 has 2 to 64 members"),
        ("ext4 over raid1:2 chunk=1M", "'chunk=1M': raid1 takes bitmap=,"),
        (
            "ext4 over raid5:3 --consistency-policy=journal",
            "'--consistency-policy=journal': a journal needs a device of its own",
        ),
        ("cryfs over ext4", "'cryfs' is no layer of kurabe's: it stretches its password"),
    ] {
        let error = checked(text).expect_err(text);
        assert!(error.contains(said), "{text}: {error}");
    }
    for text in [
        "ext4 over luks over raid1:2 over delay:1ms",
        "raw over luks --cipher=aes-xts-plain64 --sector-size=4096",
        "xfs over raid5:3 chunk=1M --consistency-policy=ppl",
        "overlayfs over ext4 over lvm-thin over luks",
        "ext4 over luks over loop direct-io=on over xfs -m crc=1 @ noatime over raid1:2 over delay:1ms",
    ] {
        checked(text).expect(text);
    }
}

#[test]
fn a_machine_that_is_no_guest_refuses() {
    let known = crate::filesystem::known();
    let contender = |text| Contender::parse(text, &known).unwrap();
    let here = missing(&contender("ext4 over luks"));
    assert!(here[0].contains("--on debian"), "{here:?}");
    let there = missing(&contender("ext4 over luks on debian"));
    assert!(!there.iter().any(|line| line.contains("--on debian")), "{there:?}");
    assert!(missing(&contender("ext4 over delay:1ms")).is_empty());
    assert!(missing(&contender("ext4 over loop over ext4")).is_empty());
    assert!(!is_kurabes_guest());
}

#[test]
fn options_go_to_the_command_that_takes_them() {
    let place = place("luks --cipher=aes-xts-plain64 perf-no_read_workqueue");
    let of = |names: &[&str]| place.options(names).collect::<Vec<_>>();
    assert_eq!(of(&["cipher=", "hash="]), ["--cipher=aes-xts-plain64"]);
    assert_eq!(of(&["perf-no_read_workqueue"]), ["--perf-no_read_workqueue"]);
}

#[test]
fn members_are_equal_parts_at_whole_mebibytes() {
    let tables = members::tables(&place("raid5:3"));
    assert_eq!(
        tables,
        [
            "0 67584 linear /nodes/vda 0",
            "0 67584 linear /nodes/vda 67584",
            "0 67584 linear /nodes/vda 135168"
        ]
    );
}

#[test]
fn the_lowest_layer_gets_all_devices_or_parts_of_the_only_one() {
    let known = crate::filesystem::known();
    let contender = |text: &str| Contender::parse(text, &known).unwrap();
    let check = |text: &str, devices| check_devices(&contender(text), devices);
    for text in ["ext4", "ext4 over raid1:2", "ext4 over luks over bcache", "ext4 over luks"] {
        check(&format!("{text} on debian"), 2).expect(text);
        check(text, 1).expect(text);
        assert!(check(text, 2).unwrap_err().contains("--on debian"), "{text}");
    }
    let wrong = check("ext4 over raid1:2 over raid5:4 on debian", 3).unwrap_err();
    assert_eq!(wrong, "'raid5:4' needs 4 devices, or one to divide; --device names 3");
    assert!(check("ext4 over writecache on debian", 3).unwrap_err().contains("needs 2 devices"));
    assert!(check("ocfs2 on 2 debian", 2).unwrap_err().contains("in one guest each"));

    let devices =
        ["/nodes/vda", "/nodes/vdb"].map(DeviceNode::of_nothing).map(|node| (node, 50 << 20));
    let whole = LowerLocation { devices: devices.to_vec(), ..place("raid1:2") };
    assert_eq!(members::paths(&whole), ["/dev/vda", "/dev/vdb"]);
    assert_eq!(members::shares(&whole), [50 << 11; 2]);
    assert_eq!(members::remove(&whole), None);
    let of = |text| parts(&contender(text), 100 << 20);
    assert_eq!(of("ext4 over luks over raid5:3"), Some(vec![33 << 20; 3]));
    assert_eq!(of("ext4 over bcache"), Some(vec![84 << 20, 12 << 20]));
    assert_eq!((of("ext4"), of("ext4 over raid1:2 over luks")), (None, None));

    let scratch = place("luks").scratch;
    let stack = |text: &str, devices: &[(DeviceNode, u64)]| {
        LowerStack::new(&contender(text), devices.to_vec(), &scratch)
    };
    assert_eq!(stack("ext4 over raid1:2", &devices).unused(), None);
    let unused = stack("ext4 over raid1:2 over luks", &devices).unused();
    assert_eq!(unused.as_deref(), Some("it lies on the first of 2 devices alone"));
    let owner = |devices: &[(DeviceNode, u64)], mib: u64| {
        stack("ext4 over raid1:2", devices).place_of(mib << 20)
    };
    assert_eq!(owner(&devices, 50), "member 2 of raid1");
    assert_eq!(owner(&devices[..1], 24), "member 1 of raid1");
}

#[test]
fn the_lowest_layer_with_a_member_to_spare_loses_one() {
    let known = crate::filesystem::known();
    let losing = |text| can_lose(&Contender::parse(text, &known).unwrap());
    let of = |text| losing(text).map(|(layer, members)| (layer.name, members));
    assert_eq!(of("ext4 over raid1:2 over luks over raid5:3"), Some(("raid5".into(), 0..3)));
    assert_eq!(of("ext4 over raid1:2 over raid0:4"), Some(("raid1".into(), 0..2)));
    let (layer, members) = losing("ext4 over luks over bcache writeback").unwrap();
    assert_eq!(
        members.map(|one| member_text(&layer, one)).collect::<Vec<_>>(),
        ["the cache of bcache"]
    );
    for text in ["ext4", "ext4 over raid0:3", "xfs over lvm-stripe:2", "ext4 over luks"] {
        assert_eq!(of(text), None, "{text}");
    }
    let lost = LowerLocation { lost: Some(1), ..place("raid5:3") };
    assert_eq!(
        members::left(&lost),
        ["/dev/mapper/kurabe0-member0", "/dev/mapper/kurabe0-member2"]
    );
}

#[test]
fn a_plain_text_is_found_in_whichever_sector_it_lies() {
    let mut bytes = vec![7; 5000];
    assert_eq!(position_of(PLAIN_TEXT, &bytes), None);
    bytes.splice(4608..4608, *PLAIN_TEXT);
    assert_eq!(position_of(PLAIN_TEXT, &bytes), Some(4608));
}

#[test]
fn layers_leave_a_file_system_less_than_the_device_has() {
    let known = crate::filesystem::known();
    let left = |text: &str, devices| {
        let contender = Contender::parse(text, &known).unwrap();
        let all = room(&contender, devices, 960);
        all.into_iter().map(|(one, _, left)| (one.name, left)).collect::<Vec<_>>()
    };
    for (layer, mib) in [
        ("raid0:4", 960),
        ("raid1:2", 480),
        ("raid1:4", 240),
        ("raid5:4", 720),
        ("raid6:4", 480),
        ("raid10:4", 480),
        ("lvm", 960),
        ("lvm-thin", 864),
        ("bcache", 840),
        ("raid1:2 over raid5:4", 360),
    ] {
        assert_eq!(left(&format!("xfs over {layer}"), 1), [("xfs", mib)], "{layer}");
    }
    assert_eq!(left("xfs over writecache", 2), [("xfs", 960)]);
    assert_eq!(left("ext4 over luks", 1), [("ext4", 0)]);
    assert_eq!(left("ext4 over loop over xfs over raid1:2", 1), [("xfs", 480), ("ext4", 360)]);
}

#[test]
fn a_cache_that_holds_writes_back_is_noted() {
    let note = |text: &str| note_of_cache(&place(text).layer);
    for text in ["writecache", "bcache writeback", "bcache --writeback"] {
        assert!(note(text).unwrap().contains("are not counted"), "{text}");
    }
    for text in ["bcache", "bcache bucket=64k", "luks"] {
        assert_eq!(note(text), None, "{text}");
    }
}
