use super::*;

#[test]
fn every_bundled_profile_is_whole_and_has_its_sources() {
    for (profile, (name, _)) in bundled().zip(BUNDLED) {
        assert_eq!(profile.name, *name);
        for [parameter, _, _, source] in profile.listing() {
            assert!(source.len() > 3, "{name}: {parameter} has no source");
        }
        assert!(profile.disk(64 << 20).is_ok(), "{name}");
    }
}

#[test]
fn words_are_read_and_wrong_ones_named_with_their_range() {
    let read = |words| DiskProfile::read(DiskKind::Hard, words);
    assert_eq!(read("st1000dm003,position=0%").unwrap().slice.position, 0.0);
    let rates = read("st1000dm003,rates=200/150/100").unwrap().parameters.rates;
    assert_eq!(rates, [(0.0, 200.0), (0.5, 150.0), (1.0, 100.0)]);
    let profile = read("st1000dm003,position=50%,seed=7,rpm=5900").unwrap();
    assert_eq!((profile.slice.position, profile.seed), (0.5, 7));
    assert_eq!(profile.parameters.get("rpm"), 5900.0);
    assert_eq!(profile.sources["rpm"], "given on the command line");
    for (words, said) in [
        ("st1000", "there is no profile 'st1000'; there are st1000dm003, 7200rpm"),
        ("nvme", "'nvme' is written ssd:nvme"),
        ("7200rpm,rpm=3", "rpm=3 is not from 1000 to 30000"),
        ("7200rpm,rpm=fast", "rpm='fast' is not a number"),
        ("7200rpm,rpm=nan", "rpm=NaN is not from"),
        ("7200rpm,speed=3", "'speed' is no parameter of a hard-disk"),
        ("7200rpm,rates=200", "write MB/s at equal distances"),
        ("7200rpm,rates=200/0", "write MB/s at equal distances"),
        ("7200rpm,position=101%", "write 0% (outer edge) to 100%"),
        ("7200rpm,extent=x", "write a size"),
        ("7200rpm,seed=-1", "'-1' is not a seed"),
        ("7200rpm,rpm", "'rpm' is no WORD=VALUE"),
    ] {
        let problem = read(words).unwrap_err().to_string();
        assert!(problem.contains(said), "{words}: {problem}");
    }
    let problem = DiskProfile::read(DiskKind::Flash, "nvme,position=3%").unwrap_err().to_string();
    assert!(problem.contains("for hard disks"), "{problem}");
}

#[test]
fn a_slice_that_does_not_fit_is_refused_with_both_sizes() {
    let disk = |words: &str, length| {
        DiskProfile::read(DiskKind::Hard, words)
            .unwrap()
            .disk(length)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(disk("st1000dm003", 900 << 30), None);
    let problem = disk("st1000dm003", 1 << 40).unwrap();
    assert!(problem.contains("the device 1T"), "{problem}");
    let problem = disk("st1000dm003,extent=1G", 8 << 30).unwrap();
    assert!(problem.contains("the extent is 1G; it must be from the device's 8G"), "{problem}");
}

#[test]
fn a_spread_slice_reaches_from_end_to_end_and_its_parts_do_not_overlap() {
    let profile = DiskProfile::read(DiskKind::Hard, "st1000dm003,extent=100%").unwrap();
    let (length, capacity) = (8_u64 << 30, profile.parameters.capacity_bytes());
    let placed = profile.placed(length).unwrap();
    let at = |offset| placed.place(ModelRequest::read(offset, 4096)).offset;
    assert_eq!(at(0), 0);
    let last = at(length - 4096) + 4096;
    assert!(last <= capacity && last > capacity / 100 * 99, "{last}");
    assert!(at(CHUNK_BYTES) > at(CHUNK_BYTES - 4096));
    let whole = DiskProfile::read(DiskKind::Hard, "st1000dm003,position=100%").unwrap();
    let placed = whole.placed(length).unwrap();
    assert!(placed.place(ModelRequest::read(length - 4096, 4096)).end() <= capacity);
}

#[test]
fn a_file_that_is_no_profile_is_refused_with_the_place() {
    let text = include_str!("../../profiles/st1000dm003.toml");
    let said = |text: &str| DiskProfile::parse(text, "mine.toml").unwrap_err().to_string();
    assert!(DiskProfile::parse(text, "mine.toml").is_ok());
    let fast = text.replace("rpm = { value = 7200", "rpm = { value = 72000000");
    assert!(said(&fast).contains("mine.toml: 'rpm': rpm=72000000 is not from 1000"));
    assert!(
        said(&text.replace("seek_knee", "seek_nee")).contains("'seek_nee': it is no parameter")
    );
    assert!(said(&text.replace("kind = \"hard-disk\"", "kind = \"drum\"")).contains("kind 'drum'"));
    assert!(said(&text.replace("[[0.0,", "[[0.5,")).contains("'rates': write"));
    assert!(said("name = 3").contains("'name' is missing"));
    let line = text.lines().find(|line| line.starts_with("rpm")).unwrap();
    assert!(said(&text.replace(line, "")).contains("'rpm' is missing"));
    assert!(said(&text.replace(line, "rpm = 7200")).contains("write { value"));
}
