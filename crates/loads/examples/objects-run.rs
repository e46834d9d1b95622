//! Runs a program of the object language on a store, without the laboratory around it: for trying
//! a program or a store.
//!
//! ```text
//! cargo run --release -p kurabe-loads --example objects-run -- PROGRAM STORE PLACE [OPTION...]
//! ```
//!
//! PLACE is an empty directory, or a device or image file that is overwritten. Options: `verify`,
//! `sync` (every put), `buffered`, `block=4096`, `threads=N`, `scale=0.02`, `plan` (only print the
//! plan), `json` (print the report as JSON), `log=FILE` (write the histograms).

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use kurabe_loads::objects::{self, Options, Place, Plan, Program, Progress};

struct Wishes {
    options: Options,
    threads: Option<u32>,
    scale: f64,
    plan_only: bool,
    json: bool,
    log: Option<PathBuf>,
}

fn wishes(arguments: &[String]) -> Result<Wishes, String> {
    let mut wishes = Wishes {
        options: Options::default(),
        threads: None,
        scale: 1.0,
        plan_only: false,
        json: false,
        log: None,
    };
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let number = || value.parse::<u32>().map_err(|_| format!("`{argument}` needs a number"));
        match name {
            "verify" => wishes.options.verify = true,
            "sync" => wishes.options.store.sync_every_put = true,
            "buffered" => wishes.options.store.direct = false,
            "block" => wishes.options.store.block_size_bytes = number()?,
            "threads" => wishes.threads = Some(number()?.max(1)),
            "scale" => {
                let scale = value.parse().ok().filter(|scale: &f64| *scale > 0.0);
                wishes.scale = scale.ok_or_else(|| format!("`{argument}` needs a number"))?;
            }
            "plan" => wishes.plan_only = true,
            "json" => wishes.json = true,
            "log" => wishes.log = Some(value.into()),
            _ => return Err(format!("unknown option `{argument}`")),
        }
    }
    Ok(wishes)
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let [path, store, place, rest @ ..] = arguments else {
        return Err("usage: objects-run PROGRAM STORE PLACE [OPTION...]".to_owned());
    };
    let wishes = wishes(rest)?;
    let text = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let parsed = Program::parse(path, &text).map_err(|error| error.to_string())?;
    parsed.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let mut program = parsed.program.scaled(wishes.scale);
    program.settings.threads = wishes.threads.or(program.settings.threads);
    if wishes.plan_only {
        print!("{}", Plan::of(&program));
        return Ok(true);
    }
    let place = if PathBuf::from(place).is_dir() {
        Place::Directory(place.into())
    } else {
        Place::Device(place.into())
    };
    let mut tell = |progress: &Progress| {
        eprint!("\r{:?}: {}", progress.phase, progress.commands);
        let _ = std::io::stderr().flush();
        ControlFlow::Continue(())
    };
    let report = objects::run(&program, &wishes.options, &place, store, &mut tell)
        .map_err(|error| error.to_string())?;
    eprintln!();
    if wishes.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        println!("{json}");
    } else {
        println!("{}\n{:?}\n{:?}", report.fit, report.outcome, report.verification);
        print!("{}", report.table());
    }
    if let Some(path) = wishes.log {
        std::fs::write(&path, &report.histogram_log)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report.is_success())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
