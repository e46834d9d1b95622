//! The gallery: every result that is kept in `docs/gallery` still opens, has the picture that is shown of it, and a page
//! that is small. Needs tar; says so and does nothing otherwise.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const KURABE: &str = env!("CARGO_BIN_EXE_kurabe");
/// Bytes of a page of one workload (104 to 164 kB), and of one of several or of a fio matrix (241 to 460 kB).
const PAGE_BYTES_MAX: [u64; 2] = [190_000, 500_000];
/// What a result may add to the repository.
const RESULT_BYTES_MAX: u64 = 80_000;

fn gallery() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gallery")
}

/// The value of a key in a line `key = "value"`.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let start = format!("{key} = \"");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    lines.filter_map(|rest| rest.strip_suffix('"')).collect()
}

#[test]
fn every_result_of_the_gallery_opens_and_has_its_picture() {
    if Command::new("tar").arg("--version").output().is_err() {
        eprintln!("SKIPPED: tar is not installed");
        return;
    }
    let text = fs::read_to_string(gallery().join("questions.toml")).unwrap();
    let (names, pictures) = (values(&text, "name"), values(&text, "picture"));
    assert!(names.len() >= 11 && names.len() == pictures.len(), "{names:?} {pictures:?}");
    let shown = fs::read_to_string(gallery().join("../gallery.md")).unwrap();
    let mut kept = BTreeSet::new();
    for (name, picture) in names.iter().zip(pictures) {
        let archive = gallery().join(format!("{name}.tar.gz"));
        if !archive.is_file() {
            assert!(
                !shown.contains(&format!("gallery/{name}.")),
                "{name} is shown without a result"
            );
            continue;
        }
        kept.insert(format!("{name}.tar.gz"));
        kept.insert(format!("{name}.svg"));
        assert!(fs::metadata(&archive).unwrap().len() <= RESULT_BYTES_MAX, "{name}");
        assert!(shown.contains(&format!("(gallery/{name}.svg)")), "{name}: run scripts/gallery");
        let place = tempfile::tempdir().unwrap();
        let extracted =
            Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(place.path()).status();
        assert!(extracted.unwrap().success(), "{name}");
        let (page, drawn) = (place.path().join("page.html"), place.path().join("pictures"));
        for (flag, to) in [("--html", &page), ("--svg", &drawn)] {
            let mut report = Command::new(KURABE);
            report.arg("report").arg(place.path().join(name)).arg(flag).arg(to);
            let output = report.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {errors}");
        }
        let bytes = fs::metadata(&page).unwrap().len();
        let plan = fs::read(place.path().join(name).join("plan.json")).unwrap();
        let plan: Value = serde_json::from_slice(&plan).unwrap();
        let workloads = plan["study"]["workloads"].as_array().unwrap();
        let is_large = workloads.len() > 1 || workloads[0]["load"]["kind"] == "fio-matrix";
        let bytes_max = PAGE_BYTES_MAX[usize::from(is_large)];
        assert!(bytes <= bytes_max, "{name}: a page of {bytes} bytes");
        let ending = format!("{picture}.svg");
        let files = fs::read_dir(&drawn).unwrap();
        let found = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let found: Vec<String> = found.collect();
        assert!(found.iter().any(|file| file.ends_with(&ending)), "{name}: {found:?}");
    }
    assert!(kept.len() >= 6, "{kept:?}");
    let files = fs::read_dir(gallery()).unwrap();
    let mut files: BTreeSet<String> =
        files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.remove("questions.toml");
    assert_eq!(files, kept, "what no question asks for");
}
