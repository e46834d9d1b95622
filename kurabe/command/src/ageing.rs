//! `kurabe age`: ages the file system of the current directory, or says what that comes to.

use std::path::Path;

use lab::quantity::parse_size;
use loads::age;
use trial::stop::Stop;

use crate::exit::{self, Failure};
use crate::request::flags::AgeArgs;
use crate::terminal::{note, print};

/// `kurabe age`.
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
        Some(text) => {
            parse_size(text).map_err(|error| Failure::refused(format!("--size: {error}")))?
        }
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
    let elsewhere = args.elsewhere.clone().unwrap_or_else(std::env::temp_dir);
    let stop = Stop::on_signals().map_err(Failure::broken)?;
    let lived = age.live(here, &elsewhere, size_bytes, args.seed, stop.flag());
    let lived = lived.map_err(|problem| Failure { code: exit::TRIAL_FAILED, message: problem })?;
    print(&lived.to_string());
    if age.copied {
        note("the files were copied once, so this file system has not been through it");
    }
    Ok(exit::OK)
}
