//! Tests of the job-file parser.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<JobFile, JobFileError> {
    JobFile::parse(text.as_bytes(), Path::new("jobs/job.fio"))
}

fn fault(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn sections_options_and_comments_are_read() {
    let job = parse(
        "; a comment\n  # another\n[global]\nioengine=libaio ; trailing\ndirect=1\n\n\
         [job one]\n\trw = randread\nthread\nfilename=\nbssplit=4k/50:8k/50\r\n",
    )
    .unwrap();
    assert_eq!(job.sections.len(), 2);
    assert!(job.sections[0].is_global());
    assert_eq!(job.sections[1].name, "job one");
    let options: Vec<String> = job.sections[1].options.iter().map(ToString::to_string).collect();
    assert_eq!(options, ["rw=randread", "thread", "filename=", "bssplit=4k/50:8k/50"]);
    assert_eq!(job.effective(0, "ioengine"), Some("libaio"));
    let place = &job.sections[1].options[0].place;
    assert_eq!((place.line, place.column), (8, 2));
    assert_eq!(job.sections[1].options[0].value_column, 7);
}

#[test]
fn a_job_inherits_from_the_globals_before_it_only() {
    let job = parse("[global]\nbs=4k\n[a]\n[global two]\nbs=8k\n[b]\n[c]\nbs=1m\n").unwrap();
    assert_eq!(job.effective(1, "bs"), Some("4k"));
    assert_eq!(job.effective(3, "bs"), Some("8k"));
    assert_eq!(job.effective(4, "bs"), Some("1m"));
    assert_eq!(job.jobs().count(), 3);
}

#[test]
fn variables_are_expanded_as_fio_expands_them() {
    let variables = variables([("DIR", Some("/mnt/x")), ("NL", Some("a\nb")), ("NOT_SET", None)]);
    for (text, expanded) in [
        ("filename=${DIR}/f${NOT_SET}:${DIR}/g", "filename=/mnt/x/f:/mnt/x/g"),
        ("size=${open", "size=${open"),
        ("name=${NL}", "name=a b"),
        // A variable can name the option itself.
        ("${DIR}=rm", "/mnt/x=rm"),
    ] {
        assert_eq!(expand(text, &begin(), &variables).unwrap(), expanded);
    }
    let job = JobFile::from_options("--description='${DIR}'", "a", &variables).unwrap();
    assert_eq!(job.effective(0, "description"), Some("/mnt/x"));
}

#[test]
fn a_variable_that_nobody_named_is_refused_with_its_place() {
    let error = parse("[a]\nrw=read\nsize=1m\n  description=x ${PATH}\n").unwrap_err().to_string();
    assert!(error.contains(":4:17: `${PATH}`"), "{error}");
    assert!(error.ends_with("--fio-variables PATH"), "{error}");
    let error = JobFile::from_options("rw=read size=${PATH}", "a", &Variables::new());
    assert_eq!(error.unwrap_err().place.column, 14);
}

fn variables<const N: usize>(named: [(&str, Option<&str>); N]) -> Variables {
    named.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))).into()
}

#[test]
fn what_fio_would_expand_a_second_time_is_refused_with_its_line() {
    for (option, column) in [
        // The value of the environment's variable is text with another variable in it.
        ("exec_prerun=${NESTED}", 13),
        ("size=8*$mb_memory", 6),
        ("numjobs = $ncpus", 11),
        ("bs=${open", 4),
        ("description=costs 5 $", 13),
        ("filename_format=$jobname.${HOME", 17),
        ("filename=$jobname", 10),
    ] {
        let nested = variables([("NESTED", Some("${IFS}"))]);
        let text = expand(option, &begin(), &nested).expect(option);
        let error = super::option(&text, begin()).expect_err(option);
        assert_eq!((error.place.line, error.place.column), (1, column), "{option}");
        assert!(error.reason.contains("fio would expand"), "{error}");
    }
    for (option, value) in [
        (
            "filename_format=f.$jobname.$jobnum.$filenum.$clientuid",
            "f.$jobname.$jobnum.$filenum.$clientuid",
        ),
        ("bs=${NOT_SET}", ""),
    ] {
        let read = super::option(
            &expand(option, &begin(), &variables([("NOT_SET", None)])).unwrap(),
            begin(),
        )
        .expect(option);
        assert_eq!(read.value.as_deref(), Some(value));
    }
    let error = parse("[a]\nrw=read\nsize=$mb_memory\n").unwrap_err().to_string();
    assert!(error.contains(":3:6: `size=$mb_memory` has a `$`"), "{error}");
    assert!(JobFile::from_options("rw=read size='2*$mb_memory'", "a", &Variables::new()).is_err());
}

fn begin() -> JobFileLocation {
    JobFileLocation { source: "job.fio".to_owned(), line: 1, column: 1 }
}

/// A job file that includes another, in a directory with these two.
fn including(files: [(&str, &str); 2], text: &str) -> Result<JobFile, JobFileError> {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    JobFile::parse(text.as_bytes(), &directory.path().join("j.fio"))
}

#[test]
fn includes_are_taken_in_where_they_stand() {
    let files = [("common.inc", "bs=8k\ninclude deep.inc\n"), ("deep.inc", "direct=1\n")];
    let job = including(files, "[j]\nrw=read\ninclude common.inc\nsize=1m\n").unwrap();
    let names: Vec<&str> = job.sections[0].options.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["rw", "bs", "direct", "size"]);
    assert!(job.sections[0].options[2].place.source.ends_with("/deep.inc"));
}

#[test]
fn faults_are_placed() {
    for (text, message) in [
        (
            "bs=4k\n",
            "jobs/job.fio:1:1: the option `bs` is above the first section; put [global] above it",
        ),
        ("[a\n", "jobs/job.fio:1:3: `]` is missing here"),
        ("[]\n", "jobs/job.fio:1:1: the section has no name"),
        ("[a]\n  =5\n", "jobs/job.fio:2:3: `=` without an option's name"),
        ("[a]\nb s=5\n", "jobs/job.fio:2:2: ` ` cannot be in an option's name"),
        ("[global]\nbs=1\n", "[global] is its only section"),
        ("", "[global] is its only section"),
        ("[a]\ninclude nothing.inc\n", "jobs/job.fio:2:1: cannot include nothing.inc"),
        ("include x\n[a]\n", "jobs/job.fio:1:1: `include` is above the first section"),
        ("[a]\nx\0=1\n", "jobs/job.fio:2:2: this is no text file"),
    ] {
        let found = fault(text);
        assert!(found.contains(message), "{text:?}: {found}");
    }
    let binary = JobFile::parse(b"[a]\nx=\xff\n", Path::new("j"));
    assert_eq!(binary.unwrap_err().place.column, 3);
}

#[test]
fn includes_can_neither_loop_nor_begin_sections() {
    let files = [("a.inc", "include a.inc\n"), ("b.inc", "[x]\n")];
    for (text, reason) in [
        ("[j]\ninclude a.inc\n", "nested deeper"),
        ("[j]\ninclude b.inc\n", "no section of its own"),
    ] {
        let error = including(files, text).unwrap_err();
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn options_on_one_line_are_one_job() {
    let text = "rw=randrw --bs=16k  'description=two words' thread";
    let job = JobFile::from_options(text, "line", &Variables::new()).unwrap();
    assert_eq!(job.effective(0, "bs"), Some("16k"));
    assert_eq!(job.effective(0, "description"), Some("two words"));
    assert_eq!(job.sections[0].options[1].place.column, 13);
    for (text, column) in [("a=1 'b", 5), ("", 1), ("a=1 =2", 5), ("a=1 b=2;c", 8), ("name=a#b", 7)]
    {
        assert_eq!(
            JobFile::from_options(text, "line", &Variables::new()).unwrap_err().place.column,
            column
        );
    }
}

/// The jobs of a line, each with its name and the options that hold for it.
fn jobs_of(text: &str, names: &[&str]) -> Vec<String> {
    let job = JobFile::from_options(text, "kurabe", &Variables::new()).unwrap();
    let options = |index: usize| {
        let given = names.iter().filter_map(|name| Some((name, job.effective(index, name)?)));
        given.map(|(name, value)| format!(" {name}={value}")).collect::<String>()
    };
    job.jobs().map(|(index, section)| format!("{}:{}", section.name, options(index))).collect()
}

#[test]
fn names_in_options_begin_jobs_as_on_the_command_line_of_fio() {
    let names = ["rw", "bs", "size", "direct"];
    let two = "--name=a --rw=read --bs=64k --size=8m --name=b --rw=randwrite --bs=4k --size=8m";
    let jobs = ["a: rw=read bs=64k size=8m", "b: rw=randwrite bs=4k size=8m"];
    assert_eq!(jobs_of(two, &names), jobs);
    // What stands before the first name holds for all, as does what follows `name=global`.
    let shared = "direct=1 bs=4k name=a rw=read name=global bs=8k name=b rw=write name=c bs=1m";
    let jobs = ["a: rw=read bs=4k direct=1", "b: rw=write bs=8k direct=1", "c: bs=1m direct=1"];
    assert_eq!(jobs_of(shared, &names), jobs);
    assert_eq!(jobs_of("rw=read bs=4k", &names), ["kurabe: rw=read bs=4k"]);
    for (text, column) in
        [("rw=read --name", 11), ("--name= --rw=read", 3), ("--name=global --bs=4k", 1)]
    {
        let error = JobFile::from_options(text, "line", &Variables::new()).unwrap_err();
        assert_eq!(error.place.column, column, "{text}: {error}");
    }
}

#[test]
fn a_command_line_of_fio_is_read_as_it_was_published() {
    let published = "sudo fio -filename=/dev/sdb1 -direct=1 -iodepth 1 -thread -rw=randread \\\n\
                     -bs 16k --output-format=json --output=x.json --group_reporting -name=mytest";
    let names = ["filename", "direct", "iodepth", "thread", "rw", "bs", "group_reporting"];
    let jobs = ["mytest: filename=/dev/sdb1 direct=1 iodepth=1 thread=1 rw=randread bs=16k \
                 group_reporting=1"];
    assert_eq!(jobs_of(published, &names), jobs);
    assert_eq!(left_out(published), ["output-format=json", "output=x.json"]);
    assert!(
        !JobFile::from_options(published, "line", &Variables::new())
            .unwrap()
            .to_string()
            .contains("json")
    );
}

#[test]
fn what_is_printed_reads_back() {
    let text = "[global]\nbs=4k\n\n[a]\nrw=read\nthread\n\n";
    let job = parse(text).unwrap();
    assert_eq!(job.to_string(), text);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = JobFile::parse(&bytes, Path::new("j"));
        let _ = JobFile::from_options(&String::from_utf8_lossy(&bytes), "j", &Variables::new());
    }

    #[test]
    fn no_text_of_its_letters_makes_it_panic(text in "[\\[\\]a-c=;#$\\{\\} \n/'\"\u{e9}-]{0,80}") {
        let _ = JobFile::parse(text.as_bytes(), Path::new("j"));
        let _ = JobFile::from_options(&text, "j", &Variables::new());
    }
}
