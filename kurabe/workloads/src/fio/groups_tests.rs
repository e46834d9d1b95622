//! Tests of what belongs together. Whole runs are in tests/tools/fio.rs and in kurabe/tests/fio.rs.

use std::path::Path;

use super::super::output::LatencyCounts;
use super::*;

fn groups_of(text: &str) -> Groups {
    Groups::of(&JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap())
}

/// So many operations of 4 KiB in so many ms, all of one latency.
fn side(total_ios: u64, runtime: u64, latency_ns: u64) -> Direction {
    let bins = [(latency_ns, total_ios)].into_iter().filter(|(_, count)| *count > 0).collect();
    Direction {
        total_ios,
        io_bytes: total_ios * 4096,
        runtime,
        iops: total_ios as f64 * 1e3 / runtime as f64,
        bw_bytes: total_ios as f64 * 4096e3 / runtime as f64,
        lat_ns: LatencyCounts {
            bins,
            max: latency_ns + 7,
            mean: latency_ns as f64,
            ..LatencyCounts::default()
        },
        ..Direction::default()
    }
}

fn ran(name: &str, groupid: u64, read: Direction, write: Direction) -> FioJob {
    FioJob { jobname: name.into(), groupid, read, write, ..FioJob::default() }
}

fn none() -> Direction {
    Direction::default()
}

/// The metrics by name with their values.
fn told(figures: &FioFigures) -> Vec<(&str, f64)> {
    figures.metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect()
}

fn kinds(figures: &FioFigures) -> Vec<(String, u64)> {
    let kinds = figures.recording.summary().kinds.into_iter();
    kinds.map(|kind| (kind.operation, kind.max_ns)).collect()
}

const STAGES: &str = "[global]\nsize=1m\n[seq]\nrw=read\nbs=1m\n[fill]\nstonewall\nrw=write\nbs=1m\n\
                      [rand]\nstonewall\nrw=randread\nbs=4k\nnumjobs=2\n";

#[test]
fn stages_that_ran_one_after_another_have_figures_of_their_own() {
    let groups = groups_of(STAGES);
    assert_eq!(groups.labels(), ["seq", "fill", "rand"]);
    let jobs = [
        ran("seq", 0, side(10, 1000, 900), none()),
        ran("fill", 1, none(), side(20, 1000, 800)),
        ran("rand", 2, side(300, 1000, 70), none()),
        ran("rand", 2, side(500, 2000, 60), none()),
    ];
    let figures = groups.figures(&jobs, None).unwrap();
    // Two threads of one section: their operations over the length of the longer.
    let names = ["seq: read operations", "fill: write operations", "rand: read operations"];
    let values = told(&figures);
    let of = |name: &str| values.iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(names.map(of), [10.0, 20.0, 400.0]);
    // Blocks of 1 MiB are compared by bytes, those of 4 KiB by operations.
    let order = ["seq: read bandwidth", "seq: read operations"];
    assert_eq!([values[0].0, values[1].0], order);
    let rand = values.iter().find(|(name, _)| name.starts_with("rand: ")).unwrap();
    assert_eq!(rand.0, "rand: read operations");
    let sums = values.iter().filter(|(name, _)| !name.contains(": "));
    assert_eq!(sums.count(), 0, "{values:?}");
    let expected = [("seq: read", 907), ("fill: write", 807), ("rand: read", 77)];
    assert_eq!(kinds(&figures), expected.map(|(name, max_ns)| (name.to_owned(), max_ns)));
    assert!(!figures.has_overall);
    assert!(
        figures.remarks[0].starts_with("Ranked by 'seq'; the 3 groups"),
        "{:?}",
        figures.remarks
    );
    let axes = &figures.metrics[0].axes;
    assert_eq!((axes[GROUP_AXIS].as_str(), axes[OPERATION_AXIS].as_str()), ("seq", "read"));
    // All names were known before.
    let known = groups.metrics();
    assert!(values.iter().all(|(name, _)| known.iter().any(|one| one == name)), "{known:?}");
}

#[test]
fn another_group_ranks_where_it_is_named_and_one_that_there_is_not_is_refused() {
    let groups = groups_of(STAGES);
    let jobs = [
        ran("seq", 0, side(10, 1000, 900), none()),
        ran("fill", 1, none(), side(20, 1000, 800)),
        ran("rand", 2, side(300, 1000, 70), none()),
    ];
    let first = |rank| told(&groups.figures(&jobs, Some(rank)).unwrap())[0].0.to_owned();
    assert_eq!(first("rand"), "rand: read operations");
    assert_eq!(first("fill: write bandwidth"), "fill: write bandwidth");
    assert_eq!(groups.check_rank("fill"), Ok(()));
    assert_eq!(groups.check_rank("fill: write bandwidth"), Ok(()));
    let refused = groups.check_rank("random").unwrap_err();
    assert!(refused.contains("'random'; it has seq, fill, rand"), "{refused}");
    let idle = [ran("seq", 0, side(10, 1000, 900), none())];
    let error = groups.figures(&idle, Some("rand")).unwrap_err();
    assert!(error.contains("no operation of 'rand'"), "{error}");
}

#[test]
fn sections_that_run_together_have_a_sum_where_it_means_something() {
    let figures_of = |text: &str| {
        let jobs =
            [ran("a", 0, side(100, 1000, 900), none()), ran("b", 0, side(300, 2000, 800), none())];
        groups_of(text).figures(&jobs, None).unwrap()
    };
    let alike = figures_of("[a]\nrw=read\nsize=1m\n[b]\nrw=randread\nsize=1m\n");
    assert_eq!(told(&alike)[0], ("read operations", 200.0));
    assert!(alike.remarks[0].contains("a, b together"), "{:?}", alike.remarks);
    // Operations of several sizes are no number of anything, bytes are.
    let sizes = figures_of("[a]\nrw=read\nbs=1m\nsize=1m\n[b]\nrw=read\nbs=4k\nsize=1m\n");
    let names: Vec<&str> = told(&sizes).into_iter().map(|(name, _)| name).collect();
    let parts =
        ["a: read bandwidth", "a: read operations", "b: read operations", "b: read bandwidth"];
    assert_eq!(names, [&["read bandwidth"][..], &parts].concat());
    assert_eq!(kinds(&sizes), [("a: read".to_owned(), 907), ("b: read".to_owned(), 807)]);
    // One of them waits for the other.
    let after = figures_of("[a]\nrw=read\nsize=1m\n[b]\nrw=read\nwait_for=a\nsize=1m\n");
    assert_eq!(told(&after)[0], ("a: read operations", 100.0));
}

#[test]
fn a_group_that_is_reported_as_one_is_one_unless_block_sizes_differ() {
    let text = "[global]\ngroup_reporting\nsize=1m\nrw=read\n[a]\n[b]\n[c]\nstonewall\n";
    let groups = groups_of(text);
    assert_eq!(groups.labels(), ["a", "c"]);
    let job = |text: &str| JobFile::parse(text.as_bytes(), Path::new("job.fio")).unwrap();
    assert!(several_sizes(&job(text)).is_empty());
    let sizes =
        "[global]\ngroup_reporting\nsize=1m\nrw=read\n[a]\nbs=4k\n[b]\nbs=1m\n[c]\nstonewall\n";
    assert_eq!(several_sizes(&job(sizes)).into_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(groups_of(sizes).labels(), ["group 0", "a", "b", "c"]);
    // What fio counts as reads is a verification in one and a reading in the other.
    let reads = "[global]\ngroup_reporting\nsize=1m\n[a]\nrw=write\nverify=md5\n[b]\nrw=read\n";
    assert_eq!(several_sizes(&job(reads)).len(), 2);
}

#[test]
fn jobs_of_large_blocks_alone_are_ranked_by_their_bytes() {
    let first = |options: &str| {
        let text = format!("[a]\nrw=read\nsize=8m\n{options}\n");
        let groups = groups_of(&text);
        let jobs = [ran("a", 0, side(100, 1000, 900), none())];
        let figures = groups.figures(&jobs, None).unwrap();
        let (first, declared) = (told(&figures)[0].0.to_owned(), groups.metrics()[0].clone());
        assert_eq!(first, declared, "the plan names the figure that ranks: {options}");
        first
    };
    for large in ["bs=128k", "bs=1M", "blocksize=1MiB", "bs=1m,256k", "bs=131072"] {
        assert_eq!(first(large), "read bandwidth", "{large}");
    }
    for other in
        ["", "bs=4k", "bs=127k", "bs=1m,4k", "bsrange=128k-1m", "bs=1m\nbssplit=4k/50:1m/50"]
    {
        assert_eq!(first(other), "read operations", "{other}");
    }
}

#[test]
fn a_job_that_reads_and_writes_says_by_which_it_is_ranked() {
    let groups = groups_of("[a]\nrw=randrw\nsize=1m\n");
    let jobs = [ran("a", 0, side(700, 1000, 20), side(300, 1000, 900))];
    let said = "Ranked by read operations; --fio-rank 'write operations' ranks by the other.";
    assert_eq!(groups.figures(&jobs, None).unwrap().remarks, [said]);
    assert_eq!(groups.check_rank("write operations"), Ok(()));
}

#[test]
fn a_job_that_verifies_is_ranked_by_its_writes() {
    let groups = groups_of("[a]\nrw=randwrite\nverify=crc32c\nsize=1m\n");
    let jobs = [ran("a", 0, side(5000, 1, 20), side(256, 1000, 900))];
    let figures = groups.figures(&jobs, None).unwrap();
    let names: Vec<&str> = told(&figures).into_iter().map(|(name, _)| name).collect();
    let verified = ["verify operations", "verify bandwidth"];
    assert_eq!(names, [&["write operations", "write bandwidth"][..], &verified].concat());
    assert_eq!(kinds(&figures), [("verify".to_owned(), 27), ("write".to_owned(), 907)]);
    assert!(!figures.has_overall && figures.remarks.is_empty(), "{:?}", figures.remarks);
    let mixed = groups_of("[a]\nrw=randrw\nverify=crc32c\nsize=1m\n").figures(&jobs, None).unwrap();
    assert_eq!(told(&mixed)[2].0, "read and verify operations");
    // What only reads is there to read.
    let reads = groups_of("[a]\nrw=read\nverify=crc32c\nsize=1m\n");
    let jobs = [ran("a", 0, side(256, 1000, 900), none())];
    assert_eq!(told(&reads.figures(&jobs, None).unwrap())[0].0, "read operations");
}

#[test]
fn trims_and_operations_on_files_are_metrics() {
    let trim = FioJob { trim: side(100, 1000, 500), ..ran("a", 0, none(), none()) };
    let figures = groups_of("[a]\nrw=randtrim\nsize=1m\n").figures(&[trim], None).unwrap();
    assert_eq!(told(&figures)[0], ("trim operations", 100.0));
    let text =
        "[a]\nioengine=filecreate\nfilesize=4k\n[b]\nstonewall\nioengine=filedelete\nfilesize=4k\n";
    let jobs =
        [ran("a", 0, side(100, 1000, 500), none()), ran("b", 1, side(400, 1000, 500), none())];
    let figures = groups_of(text).figures(&jobs, None).unwrap();
    let expected = [("a: create operations", 100.0), ("b: delete operations", 400.0)];
    assert_eq!(told(&figures), expected);
}

#[test]
fn without_latencies_there_are_none() {
    let mut job = ran("a", 0, side(100, 1000, 500), none());
    job.read.lat_ns = LatencyCounts::default();
    let figures =
        groups_of("[a]\nrw=read\nsize=1m\ngtod_reduce=1\n").figures(&[job], None).unwrap();
    assert_eq!(told(&figures)[0], ("read operations", 100.0));
    assert!(kinds(&figures).is_empty());
}

#[test]
fn sections_of_one_name_are_told_apart_by_their_group() {
    let text = "[a]\nrw=read\nsize=1m\n[a]\nstonewall\nrw=write\nsize=1m\n";
    assert_eq!(groups_of(text).labels(), ["a (group 0)", "a (group 1)"]);
    let error = groups_of(text).figures(&[ran("x", 0, none(), none())], None).unwrap_err();
    assert!(error.contains("`x`"), "{error}");
}

#[test]
fn a_name_of_the_global_section_is_not_that_of_its_jobs() {
    let groups = groups_of("[global]\nname=all\nrw=read\nsize=1m\n[file1]\n");
    let jobs = [ran("file1", 0, side(100, 1000, 900), none())];
    assert_eq!(told(&groups.figures(&jobs, None).unwrap())[0], ("read operations", 100.0));
}

/// What an engineer of a database asks: how long the slowest syncs take.
#[test]
fn a_latency_ranks_where_it_is_named() {
    let log = "[log]\nrw=write\nbs=2300\nsize=22m\nfdatasync=1\n";
    let groups = groups_of(log);
    let mut job = ran("log", 0, none(), side(100, 1000, 900));
    job.sync = side(100, 1000, 500);
    let ranked = |rank: &str| {
        assert_eq!(groups.check_rank(rank), Ok(()));
        let metrics = groups.figures(std::slice::from_ref(&job), Some(rank)).unwrap().metrics;
        (metrics[0].name.clone(), metrics[0].value, metrics[0].unit, metrics.len())
    };
    assert_eq!(ranked("sync p99"), ("sync p99".into(), 500.0, Unit::Nanoseconds, 3));
    assert_eq!(ranked("sync max"), ("sync max".into(), 507.0, Unit::Nanoseconds, 3));
    assert_eq!(ranked("write average").1, 900.0);
    assert_eq!(ranked("write bandwidth").3, 2);
    let without = ran("log", 0, none(), side(100, 1000, 900));
    let error = groups.figures(&[without], Some("sync p99")).unwrap_err();
    assert!(error.contains("no operation of 'sync p99'"), "{error}");
    // Refusals name what this job has, and nothing else.
    let refused = groups.check_rank("sync p98").unwrap_err();
    assert!(
        refused.contains(
            "write bandwidth, write submission latency, and the latencies of write, sync"
        ),
        "{refused}"
    );
    assert!(!refused.contains("read") && !refused.contains("trim"), "{refused}");
    assert!(groups_of("[a]\nrw=randread\n").check_rank("sync p99").is_err());
    assert!(groups_of("[a]\nrw=randread\n").check_rank("write operations").is_err());
    // Of several sections, each has its own.
    let groups = groups_of(STAGES);
    let jobs = [
        ran("seq", 0, side(10, 1000, 900), none()),
        ran("fill", 1, none(), side(20, 1000, 800)),
        ran("rand", 2, side(300, 1000, 70), none()),
    ];
    let figures = groups.figures(&jobs, Some("rand: read p50")).unwrap();
    assert_eq!(told(&figures)[0], ("rand: read p50", 70.0));
    assert_eq!(figures.metrics[0].axes[GROUP_AXIS], "rand");
    assert_eq!(told(&figures)[1].0, "rand: read operations");
    assert!(figures.remarks[0].starts_with("Ranked by 'rand: read p50'"), "{:?}", figures.remarks);
}
