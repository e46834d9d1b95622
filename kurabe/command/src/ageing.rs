//! `kurabe age`: ages the file system of the current directory, or says what that comes to.

use std::path::Path;
use std::sync::Arc;

use lab::quantity::parse_size;
use trial::ledger::Ledger;
use trial::scratch::Scratch;
use trial::stop::StopFlag;
use trust::Directory;
use workloads::age;

use crate::exit::{self, Failure, refused};
use crate::request::flags::AgeArgs;
use crate::terminal::{note, print};

/// A directory of kurabe's own for a history that is copied.
fn scratch() -> Result<Scratch, Failure> {
    let own = Arc::new(Directory::own().map_err(Failure::refused)?);
    let ledger = Arc::new(Ledger::start(&own).map_err(Failure::refused)?);
    Scratch::make(&own, &ledger).map_err(Failure::broken)
}

pub fn age(args: &AgeArgs) -> Result<u8, Failure> {
    let Some(profile) = &args.profile else {
        for (notation, summary) in age::profiles() {
            print(&format!("{notation}\n    {summary}\n"));
        }
        return Ok(exit::OK);
    };
    let age = age::Age::parse(profile).map_err(Failure::refused)?;
    let here = Path::new(".");
    let size_bytes = match &args.size {
        Some(text) => parse_size(text).map_err(refused("--size"))?,
        None => {
            let found = rustix::fs::statvfs(here).map_err(Failure::broken)?;
            found.f_blocks.saturating_mul(found.f_frsize)
        }
    };
    if args.print_plan {
        age.check(size_bytes).map_err(Failure::refused)?;
        let told = age.foretell(size_bytes, args.seed);
        print(if told.is_empty() {
            "what this profile comes to is known afterwards\n"
        } else {
            &told
        });
        return Ok(exit::OK);
    }
    // Nobody else may put a link in the way of a file, or a directory in the place of one.
    for place in std::iter::once(here).chain(args.elsewhere.as_deref()) {
        Directory::open(place).map_err(Failure::refused)?;
    }
    let stop = StopFlag::on_signals().map_err(Failure::broken)?;
    let scratch = (age.copied && args.elsewhere.is_none()).then(scratch).transpose()?;
    let elsewhere = scratch.as_ref().map(Scratch::path).or_else(|| args.elsewhere.clone());
    let elsewhere = elsewhere.unwrap_or_default();
    let lived = age.live(here, &elsewhere, size_bytes, args.seed, stop.flag());
    if let Some(scratch) = scratch {
        scratch.give_back().left.iter().for_each(|line| note(&format!("still there: {line}")));
    }
    let lived = lived.map_err(|problem| Failure { code: exit::TRIAL_FAILED, message: problem })?;
    print(&lived.to_string());
    if age.copied {
        note("the files were copied once, so this file system has not been through it");
    }
    Ok(exit::OK)
}
