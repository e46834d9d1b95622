//! What becomes of a kernel of the user's.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A bzImage as far as its header goes.
fn boot_image(release: &str) -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x200_u16.to_le_bytes());
    image[0x400..0x400 + release.len()].copy_from_slice(release.as_bytes());
    image
}

#[test]
fn a_kernel_whose_release_is_a_path_is_refused_and_the_machines_modules_stay() {
    let home = tempfile::tempdir().unwrap();
    let installed = home.path().join("modules");
    fs::create_dir(&installed).unwrap();
    for name in ["modules.dep", "modules.order"] {
        fs::write(installed.join(name), name).unwrap();
    }
    let own = Directory::private(&home.path().join("own")).unwrap();
    let store = ImageStore::open(&own, Supplies::default()).unwrap();
    let absolute = installed.to_str().unwrap();
    let image = home.path().join("bzImage");
    for release in [absolute, &format!("../..{absolute}"), "..", "6.1/../.."] {
        fs::write(&image, boot_image(release)).unwrap();
        let work = store.work_directory().unwrap();
        let refused = store.kernel_of_file(&image, &work).unwrap_err().to_string();
        for name in ["modules.dep", "modules.order"] {
            assert_eq!(fs::read_to_string(installed.join(name)).unwrap(), name, "{release}");
        }
        assert!(refused.contains("bzImage") && refused.contains("is not the release"), "{refused}");
    }
}

/// A package is unpacked by processes that the end of the builder does not end.
#[test]
fn what_is_still_written_to_is_removed_once_the_writer_ends() {
    let home = tempfile::tempdir().unwrap();
    let own = Directory::private(&home.path().join("own")).unwrap();
    let left = home.path().join("own/guests/.work-0");
    fs::create_dir_all(&left).unwrap();
    fs::set_permissions(home.path().join("own/guests"), fs::Permissions::from_mode(0o700)).unwrap();
    // While these are removed others are made, which a removal that does not wait trips over.
    for number in 0..3000 {
        fs::write(left.join(number.to_string()), "").unwrap();
    }
    let until = Instant::now() + Duration::from_millis(500);
    let write = |writer: usize| {
        let mut files = 0..;
        while Instant::now() < until
            && fs::write(left.join(format!("{writer}-{}", files.next().unwrap())), "").is_ok()
        {
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || write(writer));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(ImageStore::remove_unfinished(&own).unwrap(), 1);
    });
    assert!(!left.exists());
}
