//! `kurabe report`. Reads result directories and writes what
//! the user wants of them; nothing of a result is changed.

use std::path::{Path, PathBuf};

use lab::condition;
use lab::judgement::judge_gates;
use lab::result::StoredResult;
use report::across::{Across, gates};
use report::document;
use report::source::ResultSource;
use trust::Directory;
use trust::file::write;

use crate::exit::{self, Failure, refused};
use crate::power_failures::crash;
use crate::presentation::page::{page, publication};
use crate::presentation::{Presentation, check_target};
use crate::request::flags::ReportArgs;
use crate::{shards, terminal};

pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    if let Some(path) = &args.html {
        check_target(path)?;
    }
    let presentation = Presentation::new(&args.present, None)?;
    let [directory] = args.directories.as_slice() else {
        return side_by_side(args, &presentation);
    };
    if directory.join(crash::RESULT_FILE).is_file() {
        return of_power_cuts(directory, args, &presentation);
    }
    if directory.join(shards::MERGED_FILE).is_file() {
        return of_shards(directory, args, &presentation);
    }
    let mut source = read(directory)?;
    judge(&mut source, &args.gate)?;
    presentation.exports.write(&source).map_err(Failure::broken)?;
    if let Some(path) = &args.html {
        write(path, page(&source).as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(directory) = &args.svg {
        write_pictures(directory, report::page::pictures(&source, &publication(&source)))?;
    }
    terminal::show(&presentation.screen(&source));
    Ok(if args.gate.is_empty() {
        exit::OK
    } else {
        exit::of_study(&source.records, &source.analysis, &source.analysis.gates)
    })
}

/// Who owns the results, and the directories above them: showing a result executes nothing of it, so those are
/// believed where nothing but the terminal is written.
pub fn owners(args: &ReportArgs) -> Vec<String> {
    let show = &args.present;
    let files = [&args.html, &args.svg, &show.export_json, &show.export_csv, &show.export_markdown];
    if files.into_iter().any(Option::is_some) {
        return Vec::new();
    }
    let paths = args.directories.iter().filter_map(|path| std::path::absolute(path).ok());
    let mut owners: Vec<String> = paths
        .flat_map(|path| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>())
        .filter_map(|path| Some(rustix::fs::stat(&path).ok()?.st_uid.to_string()))
        .collect();
    owners.sort();
    owners.dedup();
    owners
}

/// The report of a result of 'kurabe crash'. Its exit code is 0 whatever the verdicts are, as that of any
/// report without gates.
fn of_power_cuts(
    directory: &Path,
    args: &ReportArgs,
    presentation: &Presentation,
) -> Result<u8, Failure> {
    if presentation.exports.any() || !args.gate.is_empty() || args.svg.is_some() {
        return Err(Failure::refused(format!(
            "{}: is a result of 'kurabe crash', which has no figures; leave out the exports, --gate and --svg",
            directory.display()
        )));
    }
    let blocks = crash::document(directory)?;
    if let Some(path) = &args.html {
        let page = report::page::of_blocks("power failures", &blocks);
        write(path, page.as_bytes()).map_err(Failure::broken)?;
    }
    terminal::show(&document::terminal(&blocks, presentation.look.colour));
    Ok(exit::OK)
}

/// The report of a merged result.
fn of_shards(
    directory: &Path,
    args: &ReportArgs,
    presentation: &Presentation,
) -> Result<u8, Failure> {
    if presentation.exports.any() || !args.gate.is_empty() || args.svg.is_some() {
        return Err(Failure::refused(format!(
            "{}: is a merged result, whose costs are in its {}; leave out the exports, --gate and --svg, or name one of its shards",
            directory.display(),
            shards::MERGED_FILE
        )));
    }
    let (name, blocks) = shards::report(directory)?;
    if let Some(path) = &args.html {
        let page = report::page::of_blocks(&name, &report::machines::page(&name, &blocks));
        write(path, page.as_bytes()).map_err(Failure::broken)?;
    }
    terminal::show(&document::terminal(&blocks, presentation.look.colour));
    Ok(exit::OK)
}

/// Judges further gates of a result, with those of its study.
fn judge(source: &mut ResultSource, gates: &[String]) -> Result<(), Failure> {
    let study = &source.plan.study;
    let labels: Vec<&str> = study.contenders.iter().map(|one| one.label.as_str()).collect();
    let names: Vec<&str> = study.workloads.iter().map(|one| one.name.as_str()).collect();
    for gate in gates {
        let refused = |problem: String| Failure::refused(format!("--gate: {problem}"));
        let condition = condition::parse(gate).map_err(|error| refused(error.to_string()))?;
        condition.check(&labels, source.plan.baseline_label(), &names).map_err(refused)?;
    }
    let judged = judge_gates(gates, &source.plan, &source.records, &source.analysis);
    source.analysis.gates.extend(judged);
    Ok(())
}

/// Several results against the first.
fn side_by_side(args: &ReportArgs, presentation: &Presentation) -> Result<u8, Failure> {
    refuse_the_same_twice(&args.directories)?;
    let sources = args.directories.iter().map(|directory| read(directory));
    let sources = sources.collect::<Result<Vec<ResultSource>, Failure>>()?;
    let mut across = Across::new(&sources);
    if let Some(why) = across.nothing_in_common() {
        return Err(Failure::refused(why));
    }
    across.gates = gates::judge(&across, &args.gate).map_err(refused("--gate"))?;
    if let Some(path) = &args.html {
        write(path, report::across::page(&across).as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(path) = &args.present.export_json {
        let text = format!("{:#}\n", report::across::json(&across));
        write(path, text.as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(path) = &args.present.export_csv {
        write(path, report::across::csv(&across).as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(path) = &args.present.export_markdown {
        let text = document::markdown(&report::across::document(&across));
        write(path, text.as_bytes()).map_err(Failure::broken)?;
    }
    if let Some(directory) = &args.svg {
        write_pictures(directory, report::across::pictures(&across))?;
    }
    terminal::show(&document::terminal(
        &report::across::document(&across),
        presentation.look.colour,
    ));
    if args.gate.is_empty() {
        return Ok(exit::OK);
    }
    // The first result is what was, and is judged by nothing.
    let later = sources[1..].iter();
    let codes =
        later.map(|source| exit::of_study(&source.records, &source.analysis, &across.gates));
    let codes: Vec<u8> = codes.collect();
    let by_weight = [exit::TRIAL_FAILED, exit::GATE_FAILS, exit::GATE_INCONCLUSIVE];
    Ok(by_weight.into_iter().find(|code| codes.contains(code)).unwrap_or(exit::OK))
}

/// A result compared with itself would pass every gate.
fn refuse_the_same_twice(directories: &[PathBuf]) -> Result<(), Failure> {
    let places: Vec<_> = directories.iter().map(|one| one.canonicalize().ok()).collect();
    for (place, directory) in directories.iter().enumerate() {
        if places[place].is_some() && places[..place].contains(&places[place]) {
            return Err(Failure::refused(format!(
                "{}: is named twice; name two results",
                directory.display()
            )));
        }
    }
    Ok(())
}

/// Writes pictures into a directory, which is made where it is missing.
fn write_pictures(directory: &Path, pictures: Vec<(String, String)>) -> Result<(), Failure> {
    let directory =
        Directory::open_or_make(directory, 0o755).map_err(refused("directory for pictures"))?;
    for (name, picture) in pictures {
        directory.replace(name, picture.as_bytes(), 0o644).map_err(Failure::broken)?;
    }
    Ok(())
}

/// Reads a result and says what of it could not be read.
fn read(directory: &Path) -> Result<ResultSource, Failure> {
    if directory.join(crash::RESULT_FILE).is_file() {
        return Err(Failure::refused(format!(
            "{}: is a result of 'kurabe crash', which is reported alone; name no other",
            directory.display()
        )));
    }
    let source = ResultSource::of(StoredResult::read(directory).map_err(Failure::refused)?);
    for damage in &source.damage {
        terminal::note(&format!("kurabe: {damage}"));
    }
    Ok(source)
}
