//! What the descriptions of the file systems promise, and which options they refuse.

use super::*;

#[test]
fn descriptors_are_complete_and_their_names_unique() {
    let mut names: Vec<&str> = all().iter().map(|one| one.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all().len());
    for file_system in all() {
        assert_eq!(by_name(file_system.name).unwrap().name, file_system.name);
        assert!(!file_system.summary.contains('\n') && !file_system.summary.is_empty());
        assert!(file_system.needs_device || file_system.tools.is_empty());
    }
    let kernels = |name| by_name(name).unwrap().kernel_name;
    assert_ne!(kernels("zfs"), kernels("zfs-fuse"), "zfs-fuse is another thing than ZFS");
}

#[test]
fn discards_are_asked_for_by_either_kind_of_option() {
    let asks = |text: &str| asks_for_discard(&Contender::parse(text, &known()).unwrap());
    assert!(asks("ext4 -E lazy_itable_init=0,discard"));
    assert!(asks("btrfs @ noatime,discard=async"));
    assert!(asks("xfs @ discard"));
    assert!(!asks("ext4 -E nodiscard @ nodiscard"));
    assert!(!asks("xfs"));
}

#[test]
fn versions_of_packages_are_read_from_the_list_of_dpkg() {
    let status = "Package: fio\nStatus: ok\nVersion: 3.33-3\n\nPackage: fio-data\nVersion: 1\n";
    assert_eq!(package_version(status, "fio").as_deref(), Some("fio 3.33-3"));
    assert_eq!(package_version(status, "fi"), None);
    assert_eq!(package_version("Package: x", "x"), None);
}

#[test]
fn the_kernel_is_asked_for_file_systems() {
    assert!(kernel_knows("proc"));
    assert!(!kernel_knows("no-such-file-system"));
}

fn parse(text: &str) -> Result<Contender, String> {
    Contender::parse(text, &known()).map_err(|error| error.to_string())
}

#[test]
fn what_names_another_device_or_file_is_refused() {
    for (text, word) in [
        ("ext4 -J device=/dev/sdb1", "device=/dev/sdb1"),
        ("ext4 -Jdevice=LABEL=x", "-Jdevice=LABEL=x"),
        ("ext4 -F -J size=8,device=UUID=1", "size=8,device=UUID=1"),
        ("ext4 /dev/sdb", "/dev/sdb"),
        ("ext4 -F disk.img", "disk.img"),
        ("ext4 -d .", "."),
        ("ext4 -qz undo", "undo"),
        ("xfs -l logdev=sdb1,size=64m", "logdev=sdb1,size=64m"),
        ("xfs -f -r rtdev=sdb", "rtdev=sdb"),
        ("xfs -d file,name=x", "file,name=x"),
        ("xfs -p proto", "proto"),
        ("btrfs -f second.img", "second.img"),
        ("btrfs -d raid1 /dev/sdb", "/dev/sdb"),
        ("btrfs --rootdir etc", "--rootdir"),
        ("btrfs --mixed second.img", "second.img"),
        ("btrfs -- second.img", "--"),
        ("f2fs -q -c second.img", "second.img"),
        ("jfs -qj journal.img", "journal.img"),
        ("jfs -J device=sdb", "device=sdb"),
        ("zfs-fuse -o cachefile=x", "cachefile=x"),
        ("minfs other.img", "other.img"),
        ("ext4 @ loop", "loop"),
        ("ext4 @ noatime,loop=/dev/loop7", "loop=/dev/loop7"),
        ("ext4 @ journal_path=/dev/sdb1", "journal_path=/dev/sdb1"),
        ("xfs @ logdev=/dev/sdb", "logdev=/dev/sdb"),
        ("btrfs @ device=/dev/sdb", "device=/dev/sdb"),
        ("ext4 @ bind", "bind"),
        ("ext4 @ X-mount.idmap=/proc/1/ns/user", "X-mount.idmap=/proc/1/ns/user"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(&format!("'{word}' can name something other")), "{error}");
    }
}

#[test]
fn options_of_the_file_system_itself_are_taken() {
    for text in [
        "ext4 -O ^has_journal -E lazy_itable_init=0,root_owner=0:0 @ noatime,data=writeback",
        "ext4 -L 'a/b' -b 4096 -M /mnt/data -J size=64 -m0 -FqN 1000",
        "xfs -f -m reflink=0,crc=1 -d agcount=4 -l size=64m,version=2 @ logbsize=256k",
        "btrfs -f -d single -m dup --nodesize=16k @ compress=zstd:3,subvol=/,space_cache=v2",
        "f2fs -q -f -O extra_attr,compression -s 2 @ compress_algorithm=lz4",
        "jfs -q -s 32 -L name",
        "nilfs2 -B 16 -f",
        "zfs-fuse -o ashift=12 -O compression=off",
        "minfs --files=100",
    ] {
        parse(text).expect(text);
    }
}

#[test]
fn a_contender_that_was_read_from_a_file_is_checked_where_it_is_made() {
    let mut contender = parse("ext4 -F").unwrap();
    assert_eq!(of(&contender).unwrap().name, "ext4");
    contender.layers[0].options = vec!["-d".into(), "etc".into()];
    let refused = of(&contender).err().unwrap();
    assert!(refused.contains("'etc' can name something other"), "{refused}");
    contender.layers[0] = lab::contender::Layer::named("ext5");
    assert_eq!(of(&contender).err().unwrap(), "this kurabe knows no file system 'ext5'");
}

/// A file system that no other file knows: its description, and its place in a table.
#[test]
fn a_file_system_is_added_by_its_description() {
    static RECIPE: Recipe =
        Recipe::of_packages("cardfs", |site| site.add("cardfs", None, &[]).map(drop));
    static CARDFS: FileSystem = FileSystem {
        tools: &[LayerTool::new("mkfs.cardfs", "cardfs-tools", "-V")],
        modules: &["cardfs", "cards"],
        recipe: Some(&RECIPE),
        mkfs_flags: "q",
        mkfs_paths: "j",
        size_bytes_min: 1 << 20,
        ..FileSystem::of_kernel(
            "cardfs",
            "one card for each file",
            kernel::KernelFileSystem {
                mkfs: &["mkfs.cardfs"],
                check: &["fsck.cardfs"],
                ..kernel::KernelFileSystem::PLAIN
            },
        )
    };
    let all = [all(), &[&CARDFS]].concat();
    let known: Vec<Known> = all.iter().map(|one| one.known()).collect();
    let parse = |text: &str| Contender::parse(text, &known).map_err(|error| error.to_string());
    assert_eq!(parse("cardfs -q -b 4096 @ noatime").unwrap().file_system(), "cardfs");
    for text in ["cardfs -qj x", "cardfs -q /dev/sdb", "cardfs @ loop"] {
        assert!(parse(text).unwrap_err().contains("can name something other"), "{text}");
    }
    let said = parse("cradfs").unwrap_err();
    assert!(said.ends_with("did you mean 'cardfs'?"), "{said}");
    let supplies = supplies_of(&all);
    assert!(["cardfs", "cards", "xfs"].iter().all(|one| supplies.modules.contains(one)));
    assert_eq!(supplies.recipes.last().unwrap().module, "cardfs");
    let missing = missing(&CARDFS).join("\n");
    assert!(missing.contains("cardfs-tools"), "{missing}");
    assert!(missing.contains("this machine's kernel has no 'cardfs'"), "{missing}");
    assert!(is_in_guests(&CARDFS) && CARDFS.takes_turns && CARDFS.why_not_cut().is_none());
}

/// Its module comes with the kernel's package, is built, or is this machine's alone.
#[test]
fn a_guest_can_have_every_file_system_that_is_on_a_device() {
    for one in all().iter().filter(|one| one.kernel_name.is_some() && one.needs_device) {
        let is_supplied = !one.modules.is_empty() || one.recipe.is_some();
        assert!(is_supplied || one.is_volatile, "{}", one.name);
    }
}
