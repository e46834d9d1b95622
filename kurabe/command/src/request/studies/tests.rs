//! The bundled studies: that they read, fit, name what the workloads report, and keep to their time.

use publications::Statistic;

use super::*;
use crate::environment::leave_out_missing;
use lab::study::LeftOut;
use lab::study_file;
use trial::filesystem;

use std::time::Duration;

use lab::condition::GateOutcome;

/// Bound on the budget of a quick profile.
const QUICK_MAX: Duration = Duration::from_secs(300);
/// The same where every run has a boot of its own.
const QUICK_IN_GUESTS_MAX: Duration = Duration::from_secs(1200);

fn load(bundled: &Bundled) -> (StudyText, Study) {
    let path = PathBuf::from(format!("studies/{}.toml", bundled.name));
    study_file::load(&path, bundled.text, catalogue(&filesystem::known()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Both profiles of every bundled study.
fn profiles() -> Vec<(String, Study)> {
    BUNDLED
        .iter()
        .flat_map(|bundled| {
            let (text, full) = load(bundled);
            let quick =
                text.quickened(KINDS).unwrap().resolve(catalogue(&filesystem::known())).unwrap();
            [(bundled.name.to_string(), full), (format!("{}, quick", bundled.name), quick)]
        })
        .collect()
}

#[test]
fn every_study_reads_and_says_why() {
    for bundled in &BUNDLED {
        let (text, study) = load(bundled);
        assert_eq!(study.name, bundled.name);
        assert!(study.why.is_some() && study.leave_out_missing, "{}", bundled.name);
        assert!(study.workloads.iter().all(|load| load.why.is_some()), "{}", bundled.name);
        // One that asks a question of its own names no publication, and has nothing to show of it.
        let is_published = study.source.is_some();
        assert_eq!(!study.published.is_empty(), is_published, "{}", bundled.name);
        assert_eq!(!study.differs.is_empty(), is_published, "{}", bundled.name);
        assert_eq!(study.baseline, 0, "{}: the first contender is the baseline", bundled.name);
        let printed = study_file::print(&text);
        let again = study_file::parse(Path::new("printed"), &printed).unwrap();
        assert_eq!(again, text, "{}", bundled.name);
    }
}

#[test]
fn every_profile_fits_its_device_and_every_contender_runs_every_workload() {
    for (name, mut study) in profiles() {
        let request = trial::device::DeviceRequest::parse(&study.device, None).unwrap();
        let size_bytes = request.size_bytes().unwrap();
        let capacity = crate::environment::capacity(&study, &request);
        for load in &mut study.workloads {
            // The load file of dbench comes with its package.
            if load.load.parsed().needs().missing.is_empty() {
                load.load.read().unwrap();
                let checked = load.load.check(capacity.as_ref());
                checked.unwrap_or_else(|problem| panic!("{name}, {}: {problem}", load.name));
            }
            for contender in &study.contenders {
                let file_system = filesystem::by_name(contender.file_system()).unwrap();
                assert!(file_system.size_bytes_min <= size_bytes, "{name}, {}", contender.label);
                let ground = crate::environment::ground_of(file_system.access);
                let fits =
                    ground.is_none_or(|ground| load.load.of_kind().grounds.contains(&ground));
                assert!(fits, "{name}: {} under {}", contender.label, load.name);
            }
        }
    }
}

#[test]
fn every_counterpart_names_what_its_workload_reports() {
    for bundled in &BUNDLED {
        let (_, study) = load(bundled);
        check_publication(&study).unwrap_or_else(|error| panic!("{}: {error}", bundled.name));
    }
    let problem = |place: usize, pointer: &str, name: &str| {
        let (_, mut study) = load(&BUNDLED[place]);
        let list = if pointer.starts_with("/published") {
            &mut study.published
        } else {
            &mut study.claims
        };
        let mut all = serde_json::json!({ "published": list, "claim": list });
        *all.pointer_mut(pointer).unwrap() = name.into();
        *list = all[pointer.split('/').nth(1).unwrap()].as_array().unwrap().clone();
        check_publication(&study).unwrap_err()
    };
    let error = problem(0, "/published/1/here/metric", "commands & sync");
    assert_eq!(error.field, "published[1].rows[0].cells[0]");
    assert!(error.problem.contains("did you mean 'commands and sync'"), "{error}");
    let error = problem(0, "/published/4/rows/0/here/operation", "Put(262143)");
    assert!(error.problem.contains("did you mean 'Put(262144)'"), "{error}");
    let error = problem(1, "/claim/0/metric", "unpick");
    assert_eq!(error.field, "claim[0].metric");
    assert!(error.problem.contains("'unpack'"), "{error}");
    let error = problem(1, "/claim/0/condition", "btfs fastest");
    assert_eq!(error.field, "claim[0].condition");
    assert!(error.problem.contains("did you mean 'btrfs'"), "{error}");
}

/// The numbers of cells that have a number and a counterpart, by study: one that loses its
/// counterpart, or a table that is dropped, is seen here.
#[test]
fn every_published_number_is_there() {
    let counted = |name: &str| {
        let (_, study) = load(super::bundled(name).unwrap());
        let cells: Vec<_> = publications::read(&study)
            .unwrap()
            .tables
            .iter()
            .flat_map(|table| &table.rows)
            .flat_map(|row| &row.cells)
            .filter(|cell| !cell.text.is_empty())
            .cloned()
            .collect();
        (cells.len(), cells.iter().filter(|cell| !cell.here.is_empty()).count())
    };
    // 4 programs x (3 times + 3 ratios), 12 totals; summaries of 5 numbers, of 6, 6, 9 and 9 kinds.
    assert_eq!(counted("cannyls"), (24 + 12 + 5 * 30, 24 + 12 + 5 * 30));
    // 5 systems x 4 steps without one mkfs; of each step 9 numbers, of btrfs 3.
    assert_eq!(counted("operating-systems"), (19 + 15 * 9 + 4 * 3, 4));
    // 9 curves of VxFS over 9 sizes, without numbers; what the text says of ext4, VxFS and the cluster.
    assert_eq!(counted("flash-overhead"), (9 * 9 + 8 + 8, 0));
    // 5 file systems x (2 numbers of the run, 4 lines of progress x 3, 16 operations x 3 and a rate);
    // 16 averages of two once more.
    let all = 5 * (2 + 4 * 3 + 16 * 4) + 2 * 16;
    assert_eq!(counted("dbench"), (all, all));
    // A device and two file systems x 3 sizes, of which the quick profile leaves one out.
    assert_eq!(counted("durable-puts"), (9, 6));
}

#[test]
fn quick_profiles_keep_to_their_time() {
    for (name, study) in profiles().into_iter().filter(|(name, _)| name.ends_with("quick")) {
        let budget = Duration::from_nanos(study.budget_ns.expect(&name));
        let in_guests = study.contenders.iter().all(|one| one.environment.guest().is_some());
        let budget_max = if in_guests { QUICK_IN_GUESTS_MAX } else { QUICK_MAX };
        assert!(budget <= budget_max, "{name}");
        // Fewer than three blocks have no interval.
        assert!(study.blocks_min >= 3, "{name}");
        let counted_s: u64 = study
            .workloads
            .iter()
            .map(|workload| {
                let cell_ns = workload.load.option("cell_ns").and_then(|ns| ns.as_u64());
                match (workload.load.counted_seconds(), cell_ns) {
                    // Warm-up, and what starts and ends a run, come on top of that.
                    (Some(seconds), _) => seconds as u64 * 6 / 5 + 1,
                    (None, Some(cell_ns)) => {
                        let cells = names_of(workload.load.clone()).0.len() as u64;
                        cells * cell_ns / 1_000_000_000
                    }
                    (None, None) => 0,
                }
            })
            .sum();
        // What is hardly ever there.
        let rare = ["nilfs2", "zfs", "ufs"];
        let contenders = study.contenders.iter().filter(|c| !rare.contains(&&*c.label)).count();
        let planned_s = counted_s * contenders as u64 * u64::from(study.blocks_min);
        assert!(planned_s <= budget.as_secs(), "{name}: {planned_s} s of counted time alone");
    }
}

#[test]
fn every_cell_of_the_matrix_is_known_to_the_claims_by_its_name() {
    let (_, study) = load(super::bundled("flash-overhead").unwrap());
    let figures = names_of(study.workloads[0].load.clone()).0;
    // All cells together stand first.
    assert_eq!(figures.len(), 1 + 81);
    for name in &figures[1..] {
        // Results that were made before figures had axes have the names alone.
        let older = serde_json::json!({"name": name, "value": 1.0, "unit": "count"});
        let metric: lab::workload::Metric = serde_json::from_value(older).unwrap();
        assert_eq!(metric.axes.len(), 4, "{name}");
    }
}

#[test]
fn without_records_nothing_is_tested_and_each_study_has_conclusions_that_can_be() {
    for (name, study) in profiles() {
        let publication = publications::read(&study).unwrap();
        let tested = publication.claims.iter().filter(|claim| claim.condition.is_some()).count();
        let expected = match name.split(',').next() {
            Some("dbench") => 5,
            Some("operating-systems") => 6,
            Some("cluster") => 3,
            _ if study.source.is_some() => 2,
            _ => tested,
        };
        assert_eq!(tested, expected, "{name}");
        // What is not tested names the system that is missing.
        let missing = ["VxFS", "CFS", "HAMMER"];
        for claim in publication.claims.iter().filter(|claim| claim.condition.is_none()) {
            let note = claim.note.as_deref().unwrap_or_default();
            assert!(missing.iter().any(|system| note.contains(system)), "{name}: {claim:?}");
        }
        let plan = lab::plan::Plan::new(study, 1);
        let analysis = lab::judgement::analyse(&plan, &[], None);
        for judged in publication.judge(&plan, &[], &analysis) {
            assert_eq!(judged.outcome, GateOutcome::NotTested, "{name}: {judged:?}");
        }
    }
}

#[test]
fn the_percentiles_that_the_author_wished_for_are_in_the_tables() {
    let (_, dbench) = load(super::bundled("dbench").unwrap());
    let tables = publications::read(&dbench).unwrap().tables;
    let cells = tables[2].rows[0].cells.iter().flat_map(|cell| &cell.here);
    let statistics: Vec<Statistic> =
        cells.filter(|here| here.workload == "replay").map(|here| here.statistic).collect();
    for wished in [0.05, 0.5, 0.95] {
        assert!(statistics.contains(&Statistic::Percentile(wished)), "{statistics:?}");
    }
}

#[test]
fn what_is_missing_is_left_out_and_named() {
    let resolved = |text: &str| {
        study_file::load(Path::new("s"), text, catalogue(&filesystem::known())).unwrap().1
    };
    let text = "contenders = ['dir:/tmp', 'nilfs2']\nleave-out-missing = true\n\
                [[workload]]\nname = 'replay'\ndbench-replay = '4:/no/such/file'\n\
                [[workload]]\nname = 'program'\ncommand = ['/no/such/program']\n\
                [[workload]]\nname = 'there'\ncommand = 'true'\n";
    let mut study = resolved(text);
    leave_out_missing(&mut study).unwrap();
    let names: Vec<&str> = study.workloads.iter().map(|load| load.name.as_str()).collect();
    assert_eq!(names, ["there"]);
    let left: Vec<&LeftOut> = study.left_out.iter().filter(|l| l.what == "workload").collect();
    assert_eq!(left.len(), 2);
    assert!(left[0].missing[0].contains("apt install dbench"), "{left:?}");
    assert!(left[1].missing[0].contains("/no/such/program"), "{left:?}");
    // Without the key everything stays, and is refused later.
    let mut study = resolved(&text.replace("leave-out-missing = true", ""));
    leave_out_missing(&mut study).unwrap();
    assert_eq!((study.workloads.len(), study.left_out.len()), (3, 0));
    let mut study = resolved(&text.replace("'true'", "['/no/such/other']"));
    assert!(leave_out_missing(&mut study).unwrap_err().message.contains("/no/such/other"));
    if filesystem::missing(filesystem::by_name("nilfs2").unwrap()).is_empty() {
        eprintln!("SKIPPED: this machine has NILFS2, so there is no baseline to leave out");
        return;
    }
    let mut study = resolved(&text.replace("leave-out", "baseline = 'nilfs2'\nleave-out"));
    leave_out_missing(&mut study).unwrap();
    assert_eq!((study.contenders.len(), study.baseline), (1, 0));
    let missing = filesystem::missing(filesystem::by_name("nilfs2").unwrap());
    let said = [missing, vec!["ratios are to dir:/tmp instead".into()]].concat();
    assert_eq!(study.left_out[0].missing, said);
    assert!(study.left_out[0].in_guests);
    let gated = text.replace("leave-out", "gate = ['nilfs2 <= 2']\nleave-out");
    assert!(leave_out_missing(&mut resolved(&gated)).unwrap_err().message.contains("nilfs2"));
}

#[test]
fn studies_are_found_by_file_first() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("cannyls");
    assert!(open(Path::new("cannyls")).unwrap().bundled.is_some());
    assert!(open(&file).unwrap_err().message.contains("No such file"));
    std::fs::write(&file, "name = 'mine'").unwrap();
    let source = open(&file).unwrap();
    assert_eq!((source.bundled, &*source.text), (None, "name = 'mine'"));
    let message = |name: &str| open(Path::new(name)).err().unwrap().message;
    assert!(message("canyls").contains("did you mean 'cannyls'"), "{}", message("canyls"));
    assert!(message("no-such.toml").contains("study file no-such.toml"));
}

#[test]
fn a_quick_profile_says_what_of_every_bundled_study_runs() {
    let profile = StudyProfile { words: String::new(), quick: true, remedy: "--full runs it all" };
    for bundled in &BUNDLED {
        let (text, whole) = load(bundled);
        let quick =
            text.quickened(KINDS).unwrap().resolve(catalogue(&filesystem::known())).unwrap();
        let reduced = profile.reduces(&whole, &quick).unwrap();
        let shares = reduced.shares(&quick);
        let expected = match bundled.name {
            "cannyls" => "1.2 % of the program's counts",
            "durable-puts" => "5 of the 16 workloads, 4 % of the program's counts",
            "buffered-puts" => "2 of the 15 workloads, 10 % of the program's counts",
            "operating-systems" => {
                "tree: 0.5 % of the files (300 of 60000); fio randrw: 20 % of fio's size (20M of 100M); fio read: all of it"
            }
            "flash-overhead" => {
                "6.7 % of the time of a cell (0.2 s of 3 s), 11 % of the block sizes (1 of 9) and 1.6 % of the files' size (128M of 8G)"
            }
            "cluster" => "1 of the 2 workloads, 25 % of fio's size (8M of 32M)",
            "etcd" => "20 % of fio's size (4M of 20M)",
            "stacks" => {
                "3 of the 4 workloads, random: 12 % of fio's size (8M of 64M) and 4.9 % of fio's io_size (400K of 8M); tree: 5 % of the files (100 of 2000); commits: 2 % of the transactions (100 of 5000)"
            }
            "databases" => {
                "5 of the 6 workloads, sqlite wal: 1.5 % of the transactions (300 of 20000); postgresql and mariadb: 1.7 % of the counted time (2 s of 120 s) and other settings besides; redis and rocksdb: 0.83 % of the counted time (1 s of 120 s) and other settings besides"
            }
            _ => "0.5 % of the counted time (3 s of 600 s)",
        };
        assert_eq!(shares, expected, "{}", bundled.name);
    }
}
