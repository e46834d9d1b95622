//! What this machine can do, and giving back what a killed kurabe left.

use trial::filesystem;
use trial::ledger;
use trust::Directory;

use crate::exit::{self, Failure};
use crate::terminal::{note, print};

/// `kurabe file-systems`.
pub fn file_systems() -> Result<u8, Failure> {
    let width = filesystem::names().iter().map(|name| name.len()).max().unwrap_or(0);
    for file_system in filesystem::all() {
        let missing = filesystem::missing(file_system);
        let state = if missing.is_empty() { "ready" } else { "missing" };
        print(&format!("{:width$}  {state:7}  {}\n", file_system.name, file_system.summary));
        for line in missing {
            print(&format!("{:width$}           {line}\n", ""));
        }
    }
    Ok(exit::OK)
}

/// `kurabe doctor`.
pub fn doctor() -> Result<u8, Failure> {
    print(&trial::doctor::examine().to_string());
    Ok(exit::OK)
}

/// `kurabe clean`.
pub fn clean(guests: bool) -> Result<u8, Failure> {
    let own = Directory::own().map_err(|refused| Failure::broken(refused.to_string()))?;
    if guests {
        let removed = guest::Store::remove_all(&own).map_err(Failure::broken)?;
        print(&format!("guests: {removed} removed\n"));
    }
    let report = ledger::clean(&own).map_err(|error| Failure::broken(error.to_string()))?;
    let forgotten = trial::control_group::remove_forgotten();
    for line in report.done.iter().chain(&forgotten) {
        print(&format!("{line}\n"));
    }
    for line in &report.left {
        note(&format!("kurabe: still there: {line}"));
    }
    let unfinished = guest::Store::remove_unfinished(&own).map_err(Failure::broken)?;
    if unfinished > 0 {
        print(&format!("guests: {unfinished} unfinished builds removed\n"));
    }
    if report.is_empty() && forgotten.is_empty() && unfinished == 0 {
        print("nothing was left behind\n");
    }
    if report.living > 0 {
        print(&format!("left alone: {} kurabe still running\n", report.living));
    }
    Ok(if report.left.is_empty() { exit::OK } else { exit::TRIAL_FAILED })
}
