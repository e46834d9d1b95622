//! The meaning of the statements, and that a stream keeps its promises for any program.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::arbitrary::programs;

fn program(text: &str) -> Program {
    match Program::parse("load.txt", text.as_bytes()) {
        Ok(parsed) => parsed.program,
        Err(error) => panic!("{error}"),
    }
}

/// The commands of a program; sections that last for a time are ended after `timed` commands.
fn commands_of(program: &Program, timed: usize) -> Vec<Command> {
    let mut stream = Stream::new(program);
    let mut commands = Vec::new();
    let mut until = usize::MAX;
    loop {
        match stream.next_step() {
            StreamStep::Command(command) => commands.push(command),
            StreamStep::Timed(_) => until = commands.len() + timed,
            StreamStep::End => return commands,
        }
        if commands.len() >= until {
            stream.end_timed_section();
            until = usize::MAX;
        }
    }
}

fn commands(text: &str) -> Vec<Command> {
    commands_of(&program(text), 0)
}

fn count(commands: &[Command], verb: Verb) -> usize {
    commands.iter().filter(|command| command.verb == verb).count()
}

/// What a store would hold, kept the plain way.
#[derive(Default)]
struct Model {
    /// Size, version and class of every live key.
    live: BTreeMap<u64, (u64, u32, u16)>,
    greatest_key: u64,
}

impl Model {
    /// Checks a command against what is live, and carries it out.
    fn apply(&mut self, command: &Command) {
        let content = (command.size, command.version, command.class);
        match command.verb {
            Verb::Put | Verb::Embed => {
                assert!(command.key > self.greatest_key, "a key was used again");
                assert_eq!(command.version, 0);
                self.greatest_key = command.key;
                self.live.insert(command.key, content);
            }
            Verb::OverWrite => {
                let (size, version, _) =
                    self.live.insert(command.key, content).expect("the object is live");
                assert_eq!((command.before, command.version), (size, version + 1));
            }
            Verb::Get => assert_eq!(self.live.get(&command.key), Some(&content)),
            Verb::Delete => assert_eq!(self.live.remove(&command.key), Some(content)),
            Verb::DeleteRange => {
                let keys: Vec<u64> =
                    self.live.range(command.key..command.end_key).map(|(key, _)| *key).collect();
                let bytes: u64 = keys.iter().map(|key| self.live[key].0).sum();
                assert_eq!((keys.len() as u64, bytes), (command.before, command.size));
                assert!(self.live.contains_key(&command.end_key), "a range ends before an object");
                self.live.retain(|key, _| keys.binary_search(key).is_err());
            }
            Verb::Sync => {}
        }
    }
}

#[test]
fn percentages_are_rounded_down_and_order_is_kept() {
    let all = commands("Ordered[99] { <50%> New(1K); <34%> Get; <1%> Delete; <17%> New(2K); }");
    let verbs: Vec<Verb> = all.iter().map(|command| command.verb).collect();
    let mut expected = vec![Verb::Put; 49];
    expected.extend([Verb::Get; 33]);
    expected.extend([Verb::Put; 16]);
    assert_eq!(verbs, expected);
}

#[test]
fn an_unordered_section_has_exactly_its_shares_in_random_order() {
    let text = "Command { New(1); } Unordered[1000] { <30%> New(1K); <45%> Get; <20%> { New(7); \
                Delete; }; <5%> OverWrite(3); }";
    let all = commands(text);
    assert_eq!(count(&all, Verb::Put), 1 + 300 + 200);
    assert_eq!(count(&all, Verb::Get), 450);
    assert_eq!(count(&all, Verb::Delete), 200);
    assert_eq!(count(&all, Verb::OverWrite), 50);
    // A statement in braces stays together.
    for (place, command) in all.iter().enumerate() {
        if command.verb == Verb::Put && command.size == 7 {
            assert_eq!(all[place + 1].verb, Verb::Delete);
        }
    }
    // The gets are spread: in every tenth of the section there are some 45 (standard deviation 5).
    let tenths = all[1..].chunks(110).map(|tenth| count(tenth, Verb::Get));
    for gets in tenths.take(10) {
        assert!((20..80).contains(&gets), "{gets}");
    }
    assert_ne!(all, commands(&format!("Seed: 1; {text}")));
    assert_eq!(all, commands(&format!("Seed: 0; {text}")));
}

#[test]
fn statements_that_need_an_object_are_skipped_while_there_is_none() {
    let text = "Command { Get; Delete; OverWrite(1); DeleteRange(0, 100); New(5); Get; Delete; \
                Get; Sync; }";
    let mut stream = Stream::new(&program(text));
    let mut verbs = Vec::new();
    while let StreamStep::Command(command) = stream.next_step() {
        verbs.push(command.verb);
    }
    assert_eq!(verbs, [Verb::Put, Verb::Get, Verb::Delete, Verb::Sync]);
    assert_eq!(stream.skipped(), 5);
}

/// How often each of the objects 1 to `count` was taken by `statement`.
fn taken(count: u64, statement: &str) -> BTreeMap<u64, u64> {
    let text =
        format!("Command {{ {count}.times {{ New(1); }}; 200000.times {{ {statement}; }}; }}");
    let mut taken = BTreeMap::new();
    for command in &commands(&text)[count as usize..] {
        *taken.entry(command.key).or_default() += 1;
    }
    taken
}

#[test]
fn ranges_take_the_originals_objects() {
    // 1 % of 250 is 2 and 5 % is 12, counted from 1.
    assert!(taken(250, "Get(1, 5)").into_keys().eq(2..=12));
    // Everything rounds to the oldest.
    assert!(taken(19, "Get(1, 5)").into_keys().eq(1..=1));
    assert!(taken(200, "Get(50, 50)").into_keys().eq(100..=100));
    assert!(taken(200, "Get(100, 100)").into_keys().eq(200..=200));
    // 0 and 1 both stand for the oldest object, which is therefore taken twice as often.
    let all = taken(9, "Get");
    assert!(all.keys().copied().eq(1..=9));
    for (key, times) in all {
        let expected = if key == 1 { 40_000 } else { 20_000 };
        assert!(times.abs_diff(expected) < 1_000, "key {key} was taken {times} times");
    }
    // Overwriting has no such favourite.
    for (key, times) in taken(8, "OverWrite(1)") {
        assert!(times.abs_diff(25_000) < 1_000, "key {key} was taken {times} times");
    }
}

#[test]
fn popularity_counts_from_its_end() {
    let oldest = taken(100, "Get(zipf(1.2))");
    let newest = taken(100, "Get(zipf(1.2, newest))");
    let scattered = taken(100, "Get(zipf(1.2, scattered))");
    assert!(oldest[&1] > oldest[&2] && oldest[&2] > oldest[&10]);
    for (key, times) in &oldest {
        assert_eq!(newest[&(101 - key)], *times);
    }
    let most = scattered.values().max().unwrap();
    assert!(*most >= oldest[&1] && scattered.len() > 20);
}

#[test]
fn a_range_is_deleted_without_its_end() {
    let all = commands("Command { 101.times { New(3); }; DeleteRange(99, 100); }");
    let range = all[101];
    assert_eq!((range.key, range.end_key, range.before, range.size), (100, 101, 1, 3));
    // 10 % and 50 % of the last place, 99, are 9 and 49.
    let all = commands("Command { 100.times { New(1); }; DeleteRange(10, 50); Get(0, 0); }");
    assert_eq!((all[100].key, all[100].end_key, all[100].before), (10, 50, 40));
    // A range of no object is still a command, as it is in the original.
    let all = commands("Command { New(1); DeleteRange(0, 100); }");
    assert_eq!((all[1].verb, all[1].before), (Verb::DeleteRange, 0));
}

#[test]
fn a_timed_section_goes_on_until_it_is_ended() {
    let program = program("Unordered[1s] { <75%> New(1); <25%> Get; } Command { New(2); }");
    let all = commands_of(&program, 10_000);
    assert_eq!(all.len(), 10_001);
    assert!(count(&all, Verb::Get).abs_diff(2_500) < 200);
    assert_eq!(all[10_000].size, 2);
}

#[test]
fn a_stopped_stream_leaves_the_objects_of_its_commands() {
    let program = program("Command { 1000.times { 3.times { New(1); }; Delete; }; }");
    for stop_after in [1, 31, 32, 33, 500] {
        let mut stream = Stream::new(&program);
        let mut model = Model::default();
        let mut yielded = 0;
        while let StreamStep::Command(command) = stream.next_step() {
            model.apply(&command);
            yielded += 1;
            if yielded == stop_after {
                stream.stop();
            }
        }
        assert_eq!(yielded, stop_after);
        assert!(stream.live().iter().map(|object| object.key).eq(model.live.into_keys()));
    }
}

#[test]
fn repetitions_without_effect_end_at_once() {
    let huge = "4000000000000000000";
    for text in [
        format!("Command {{ {huge}.times {{ }}; }}"),
        format!("Command {{ {huge}.times {{ Get; }}; }}"),
        format!("Unordered[{huge}] {{ <50%> {{ }}; <50%> Get; }}"),
        format!("Ordered[{huge}] {{ <100%> {{ 0.times {{ New(1); }}; Delete; }}; }}"),
        "Unordered[1s] { <100%> Get; } Unordered[1s] { <0%> New(1); } Unordered[1s] { }".to_owned(),
    ] {
        assert!(commands(&text).is_empty(), "{text}");
    }
}

#[test]
fn sizes_follow_their_distributions() {
    let text = "Command { 20000.times { New(uniform(10, 19)); New(lognormal(4K, 1, 64K)); \
                New(zipf(512, 4K, 1)); }; }";
    let all = commands(text);
    let sizes = |class: u16| -> Vec<u64> {
        let mut sizes: Vec<u64> = all
            .iter()
            .filter(|command| command.class == class)
            .map(|command| command.size)
            .collect();
        sizes.sort_unstable();
        sizes
    };
    let uniform = sizes(0);
    assert_eq!((uniform[0], uniform[19_999]), (10, 19));
    assert!(uniform.iter().filter(|size| **size == 14).count().abs_diff(2_000) < 200);
    let lognormal = sizes(1);
    assert!(lognormal[10_000].abs_diff(4096) < 200);
    // One standard deviation above the median is a factor of e.
    assert!(lognormal[16_827].abs_diff((4096.0 * std::f64::consts::E) as u64) < 600);
    assert_eq!(lognormal[19_999], 64 << 10);
    let zipf = sizes(2);
    assert!(zipf.iter().all(|size| size % 512 == 0));
    assert_eq!((zipf[0], zipf[19_999]), (512, 4096));
    // The harmonic number of 8 is 2.7179: this share has the least size.
    assert!(zipf.iter().filter(|size| **size == 512).count().abs_diff(7_359) < 300);
}

#[test]
fn a_stream_is_the_same_for_ever() {
    // Whoever changes this number changes the workload that every recorded result was measured with.
    let text = "Seed: 7; Ordered[2000] { <80%> New(500K); <20%> Get; } Unordered[4000] { <30%> \
                New(lognormal(64K, 1.5)); <10%> Get(80, 100); <10%> OverWrite(zipf(1K, 1M, 0.9), \
                zipf(0.99)); <15%> Delete(0, 20); <34%> Get(zipf(1.1, scattered)); <1%> \
                DeleteRange(3, 5); }";
    let digest = commands(text).iter().fold(0, |digest, command| {
        [command.verb as u64, command.key, command.size, command.end_key, command.before]
            .into_iter()
            .fold(digest, |digest, word| mix(digest ^ word))
    });
    assert_eq!(digest, 0x4a47_d010_fbd7_69ca, "{digest:#x}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_program_is_carried_out_as_a_plain_store_would(program in programs()) {
        let mut model = Model::default();
        let all = commands_of(&program, 50);
        for command in &all {
            model.apply(command);
        }
        prop_assert_eq!(&all, &commands_of(&program, 50));
        // The objects left live are the model's, sizes included.
        let mut stream = Stream::new(&program);
        let mut timed = false;
        loop {
            match stream.next_step() {
                StreamStep::Timed(_) => timed = true,
                StreamStep::End => break,
                StreamStep::Command(_) => {}
            }
            if timed {
                break;
            }
        }
        if !timed {
            let left: Vec<_> = stream
                .live()
                .iter()
                .map(|object| (object.key, (stream.size_of(object), object.version, object.class)))
                .collect();
            prop_assert_eq!(left, model.live.into_iter().collect::<Vec<_>>());
        }
    }
}
