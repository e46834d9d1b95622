//! A tree across a power cut. Each phase begins with all before it durable, so the line that announces a phase says
//! what was there: `before PHASE ARCHIVE TREE`, each a hash, or `-` for what the phase and those after it change.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use vocabulary::workload::Loss;

use super::hash::hash_tree;
use super::run::{OWN_DIRECTORY, TreePhase};
use measure::acknowledge::Acknowledger;

/// What is not looked at.
const NOTHING: &str = "-";

/// Announces a phase, once what it needs is there and durable.
pub fn announce(
    acknowledger: &Acknowledger,
    phase: TreePhase,
    directory: &Path,
) -> Result<(), String> {
    // The copy stays until the run tidies up after its last phase.
    let has_copy = !matches!(phase, TreePhase::Copy | TreePhase::DeleteAll);
    let has_tree = matches!(phase, TreePhase::Walk | TreePhase::Stat);
    let own = directory.join(OWN_DIRECTORY);
    let archive = if has_copy { hash_file(&own.join("archive"))? } else { NOTHING.into() };
    let tree = if has_tree { hash_below(&own.join("unpacked"))? } else { NOTHING.into() };
    acknowledger
        .announce(&format!("before {} {archive} {tree}", phase.name()))
        .map_err(|error| format!("acknowledging: {error}"))
}

/// Looks for what the last announcement said.
pub fn find_loss(directory: &Path, acknowledged: &str) -> Option<Loss> {
    let last = acknowledged.lines().last()?;
    let [_, phase, archive, tree] = last.split(' ').collect::<Vec<_>>()[..] else { return None };
    let own = directory.join(OWN_DIRECTORY);
    let parts = [
        ("the copied archive", own.join("archive"), archive, hash_file as fn(&Path) -> _),
        ("the unpacked tree", own.join("unpacked"), tree, hash_below),
    ];
    for (what, path, expected, hash) in parts {
        if expected == NOTHING {
            continue;
        }
        if !path.exists() {
            return Some(Loss::Lost(format!("{what} is missing before the phase {phase}")));
        }
        match hash(&path) {
            Ok(found) if found == expected => {}
            Ok(found) => {
                let words = format!("{what} has the hash {found} instead of {expected}");
                return Some(Loss::Corrupt(words));
            }
            Err(words) => return Some(Loss::Corrupt(words)),
        }
    }
    None
}

fn hash_file(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)))
}

fn hash_below(path: &Path) -> Result<String, String> {
    let hash = hash_tree(path, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    Ok(hash.xxh3_128)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_missing_or_changed_is_found() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join(OWN_DIRECTORY);
        fs::create_dir_all(own.join("unpacked")).unwrap();
        fs::write(own.join("archive"), "archive").unwrap();
        fs::write(own.join("unpacked/file"), "file").unwrap();
        let (archive, tree) =
            (hash_file(&own.join("archive")).unwrap(), hash_below(&own.join("unpacked")).unwrap());
        let found = |line: &str| find_loss(home.path(), line).map(|loss| loss.exit_code());
        let walk = format!("before walk {archive} {tree}\n");
        assert_eq!(found(""), None);
        assert_eq!(found(&walk), None);
        fs::write(own.join("unpacked/file"), "fila").unwrap();
        assert_eq!(found(&walk), Some(2));
        assert_eq!(found(&format!("{walk}before rewrite {archive} -\n")), None);
        fs::remove_file(own.join("archive")).unwrap();
        assert_eq!(found(&walk), Some(1));
    }
}
