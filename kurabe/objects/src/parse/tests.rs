//! Programs that must be read, mistakes that must be shown, and texts of all sorts that must not
//! make the reader panic.

use proptest::prelude::*;

use crate::arbitrary::programs;
use crate::program::{
    Branch, Choice, EMBEDDED_BYTES_MAX, ObjectSize, Parsed, Percents, Popularity, Program,
    ProgramSection, ProgramSettings, Rate, SectionLength, Statement,
};

fn read(text: &str) -> Parsed {
    match Program::parse("load.txt", text.as_bytes()) {
        Ok(parsed) => parsed,
        Err(error) => panic!("{error}"),
    }
}

fn refusal(text: &str) -> String {
    Program::parse("load.txt", text.as_bytes())
        .map(|parsed| parsed.program)
        .expect_err("the text is no program")
        .to_string()
}

fn branch(percent: u32, body: &[Statement]) -> Branch {
    Branch { percent, body: body.to_vec() }
}

const GET: Statement = Statement::Get(Choice::Any);

fn new(size: u64) -> Statement {
    Statement::New(ObjectSize::Fixed(size))
}

fn range(from: u32, to: u32) -> Percents {
    Percents { from, to }
}

#[test]
fn every_construct_of_the_original_is_read() {
    let parsed = read(
        "
# a comment before the seed, of any script: 乱数のシード
Seed: 42;
Ordered[100] {
  <20%> New(1K);
  <10%> Get;
  <30%> Delete;
  <39%> Delete(10, 20);
  <1%> DeleteRange(99 , 100);
}
Unordered[200]{<50%>OverWrite(43);<50%>{ New(2M); Embed(7); Get(40,60); };}
Command { New(1G); 10.times { New(5K); Get; };
  2.times { 8.times { New(5M); }; Delete; }; # a comment within
}
Command {}
Ordered[7] { <100%> 3.times { }; }",
    );
    assert!(parsed.warnings.is_empty());
    let expected = Program {
        settings: ProgramSettings { seed: 42, ..ProgramSettings::default() },
        sections: vec![
            ProgramSection::Ordered {
                count: 100,
                branches: vec![
                    branch(20, &[new(1024)]),
                    branch(10, &[GET]),
                    branch(30, &[Statement::Delete(Choice::Any)]),
                    branch(39, &[Statement::Delete(Choice::Range(range(10, 20)))]),
                    branch(1, &[Statement::DeleteRange(range(99, 100))]),
                ],
            },
            ProgramSection::Unordered {
                extent: SectionLength::Count(200),
                branches: vec![
                    branch(50, &[Statement::OverWrite(ObjectSize::Fixed(43), Choice::Any)]),
                    branch(
                        50,
                        &[
                            new(2 << 20),
                            Statement::Embed(ObjectSize::Fixed(7)),
                            Statement::Get(Choice::Range(range(40, 60))),
                        ],
                    ),
                ],
            },
            ProgramSection::Command {
                body: vec![
                    new(1 << 30),
                    Statement::Times(10, vec![new(5 << 10), GET]),
                    Statement::Times(
                        2,
                        vec![
                            Statement::Times(8, vec![new(5 << 20)]),
                            Statement::Delete(Choice::Any),
                        ],
                    ),
                ],
            },
            ProgramSection::Command { body: vec![] },
            ProgramSection::Ordered {
                count: 7,
                branches: vec![branch(100, &[Statement::Times(3, vec![])])],
            },
        ],
    };
    assert_eq!(parsed.program, expected);
}

#[test]
fn every_extension_is_read() {
    let parsed = read(
        "Threads: 8; Rate: 1500.5 poisson; Duration: 1.5m;
         Unordered[250ms] {
           <40%> New(uniform(4K, 1M));
           <20%> New(lognormal(64K, 1.5, 4M));
           <10%> OverWrite(zipf(512, 64K, 1.1), zipf(0.99, newest));
           <10%> Get(zipf(0.5)); <10%> Delete(zipf(2, scattered));
           <10%> { OverWrite(1T, 0, 20); Sync; };
         }",
    );
    assert!(parsed.warnings.is_empty());
    let zipf = |exponent, order| Choice::Zipf { exponent, order };
    let program = parsed.program;
    assert_eq!(
        program.settings,
        ProgramSettings {
            seed: 0,
            threads: Some(8),
            rate: Some(Rate { per_second: 1500.5, poisson: true }),
            duration_ns: Some(90_000_000_000),
        }
    );
    let ProgramSection::Unordered { extent, branches } = &program.sections[0] else {
        panic!("an unordered section was written");
    };
    assert_eq!(*extent, SectionLength::Time(250_000_000));
    let bodies: Vec<&Statement> = branches.iter().flat_map(|branch| branch.body.iter()).collect();
    let median = ObjectSize::LogNormal { median: 64 << 10, sigma: 1.5, max: 4 << 20 };
    let small = ObjectSize::Zipf { unit: 512, max: 64 << 10, exponent: 1.1 };
    let expected = [
        Statement::New(ObjectSize::Uniform(4 << 10, 1 << 20)),
        Statement::New(median),
        Statement::OverWrite(small, zipf(0.99, Popularity::Newest)),
        Statement::Get(zipf(0.5, Popularity::Oldest)),
        Statement::Delete(zipf(2.0, Popularity::Scattered)),
        Statement::OverWrite(ObjectSize::Fixed(1 << 40), Choice::Range(range(0, 20))),
        Statement::Sync,
    ];
    assert_eq!(bodies, expected.iter().collect::<Vec<_>>());
}

#[test]
fn a_mistake_is_shown_with_its_place_and_what_was_expected() {
    let cases = [
        (
            "Command {\n  New(256K)\n  Get;\n}",
            "error: expected `;` after the statement, found `Get`\n --> load.txt:2:12\n  |\n\
             2 |   New(256K)\n  |            ^ expected `;`\n",
        ),
        (
            "Ordered[10] {\n  <100%> Gte;\n}",
            "error: expected a statement, found `Gte`\n --> load.txt:2:10\n  |\n\
             2 |   <100%> Gte;\n  |          ^^^ expected a statement\n  = help: did you mean \
             'Get'?\n",
        ),
        (
            "unorderd[10] {}",
            "error: expected a section: `Ordered[N]`, `Unordered[N]` or `Command`, found \
             `unorderd`\n --> load.txt:1:1\n  |\n1 | unorderd[10] {}\n  | ^^^^^^^^ expected a \
             section: `Ordered[N]`, `Unordered[N]` or `Command`\n  = help: did you mean \
             'Unordered'?\n",
        ),
        (
            "Command { 3.times { Get; }; ",
            "error: expected a statement or `}`, found the end of the text\n --> load.txt:1:29\n  \
             |\n1 | Command { 3.times { Get; }; \n  |                             ^ expected a \
             statement or `}`\n  = help: the `{` at line 1, column 9 is not closed\n",
        ),
        (
            "Command { New(12k); }",
            "error: expected a suffix of K, M, G or T, found `k`\n --> load.txt:1:17\n  |\n\
             1 | Command { New(12k); }\n  |                 ^ expected a suffix of K, M, G or T\n  \
             = help: did you mean 'K'?\n",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn mistakes_in_values_are_reported_together() {
    let shown = refusal(
        "Threads: 0;
         Command { Embed(64K); New(99999999999999999999); New(uniform(2K, 1K)); Get(0, 300); }",
    );
    for message in [
        "a run needs a thread",
        "the size is too large",
        "the least size is greater than the greatest",
        "a percentage is too large",
    ] {
        assert!(shown.contains(message), "{message:?} is not in:\n{shown}");
    }
    assert_eq!(shown.matches("error:").count(), 5, "{shown}");
}

#[test]
fn refused_texts_say_why() {
    let deep = format!("Command {{ {}Get; {} }}", "2.times {".repeat(101), "};".repeat(101));
    let endless = "Command { 9999999999.times { 9999999999.times { Get; }; }; }";
    for (text, message) in [
        ("", "expected a section"),
        ("# nothing\n", "found the end of the text"),
        ("Get;", "statements belong in the braces of a section"),
        ("Command { } Seed: 1;", "the setting `Seed` comes too late"),
        ("Seed: 1; Seed: 2; Command { }", "is there twice"),
        ("Threads: 1; Depth: 2; Command { }", "is there twice"),
        ("Ordered[5s] { <100%> Get; }", "cannot last for a time"),
        ("Ordered[5] { Get; }", "<100%> Get"),
        ("Unordered[5fortnights] { }", "a unit of time"),
        ("Command { 5.tims { }; }", "did you mean 'times'?"),
        ("Command { Get(1); }", "expected `,` between the percentages"),
        ("Command { Get(zipf(0)); }", "out of range"),
        ("Command { New(gaussian(1, 2)); }", "a distribution of sizes"),
        (deep.as_str(), "nested more than 100 deep"),
        (endless, "more than 2^62 times"),
    ] {
        let shown = refusal(text);
        assert!(shown.contains(message), "{message:?} is not in:\n{shown}");
    }
    let error = Program::parse("load.txt", b"Command {\n New(\xff").unwrap_err();
    assert_eq!((error.diagnostics[0].line, error.diagnostics[0].column), (2, 6));
}

#[test]
fn what_the_original_survives_only_by_luck_is_read_with_a_warning() {
    for (text, message) in [
        ("Command { Get(60, 40); }", "taken as 40, 60"),
        ("Command { Delete(0, 150); }", "taken as 100"),
        ("Ordered[10] { <150%> Get; }", "more than 100"),
        ("Ordered[10] { <50%> Get; }", "add up to 50 %"),
        ("Command { }; Command { Get; }", "kurabe reads on"),
    ] {
        let shown: String = read(text).warnings.iter().map(ToString::to_string).collect();
        assert!(shown.contains(message), "{message:?} is not in:\n{shown}");
    }
}

#[test]
fn scaling_keeps_the_product_of_nested_counts() {
    let program = read(
        "Duration: 100s;
         Ordered[10000] { <50%> New(1K); <50%> 4.times { Get; }; }
         Unordered[50s] { <100%> Get; }
         Command { New(1K); 3.times { 100000.times { Get; }; New(2K); }; }",
    )
    .program;
    let scaled = program.scaled(0.02);
    let expected = read(
        "Duration: 2s;
         Ordered[200] { <50%> New(1K); <50%> 4.times { Get; }; }
         Unordered[1s] { <100%> Get; }
         Command { New(1K); 1.times { 6000.times { Get; }; New(2K); }; }",
    )
    .program;
    assert_eq!(scaled, expected);
    assert_eq!(program.scaled(1.0), program);
    assert_eq!(read("Command { 5.times { Get; }; }").program.scaled(3.0).statements(), 15);
}

const REFERENCE: &str = include_str!("../../../../docs/reference/object-language.md");

/// The fenced blocks of a language in the reference.
fn blocks(language: &str) -> Vec<&'static str> {
    REFERENCE
        .split(&format!("```{language}\n"))
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect()
}

#[test]
fn the_reference_is_about_this_language() {
    let programs = blocks("objects");
    assert_eq!(programs.len(), 2);
    for text in programs {
        assert!(read(text).warnings.is_empty());
    }
    // The mistake it shows is shown like this.
    let shown = blocks("text").into_iter().find(|block| block.starts_with("error: ")).unwrap();
    assert_eq!(refusal("Ordered[10] {\n  <100%> Gte;\n}"), shown);
    // Every word of the grammar is in its grammar, and every word there is one of ours.
    let grammar = blocks("text").into_iter().find(|block| block.starts_with("program ")).unwrap();
    let quoted: Vec<&str> = grammar.split('"').skip(1).step_by(2).collect();
    let known: Vec<&str> = super::SETTINGS
        .into_iter()
        .chain(super::SECTIONS)
        .chain(super::STATEMENTS)
        .chain(super::SIZES)
        .chain(super::POPULARITIES.map(Popularity::word))
        .chain(crate::program::TIME_UNITS.map(|(unit, _)| unit))
        .chain(["times", "poisson", "K", "M", "G", "T"])
        .collect();
    for word in &known {
        assert!(quoted.contains(word), "{word} is not in the grammar of the reference");
    }
    for word in quoted.iter().filter(|word| word.starts_with(|letter: char| letter.is_alphabetic()))
    {
        assert!(known.contains(word), "{word} is in the reference and not in the language");
    }
    // Limits that are told in words.
    for limit in [
        format!("at most {EMBEDDED_BYTES_MAX} bytes"),
        format!("up to {} deep", super::NESTING_MAX),
        format!("at most {}", super::THREADS_MAX),
        format!("more than {}", measure::latency::INTERVALS_MAX),
        format!("{} million statements", crate::plan::PLANNED_COMMANDS_MAX / 1_000_000),
    ] {
        assert!(REFERENCE.contains(&limit), "the reference does not say: {limit}");
    }
}

/// A program's text with a few bytes removed, doubled, replaced or moved.
fn mutilated() -> impl Strategy<Value = Vec<u8>> {
    let cuts = prop::collection::vec((any::<u16>(), 0u8..5, any::<u8>()), 1..6);
    (programs(), cuts).prop_map(|(program, cuts)| {
        let mut text = program.to_string().into_bytes();
        for (place, act, byte) in cuts {
            let place = usize::from(place) % (text.len() + 1);
            let end = (place + usize::from(byte) % 9).min(text.len());
            match act {
                0 => drop(text.drain(place..end)),
                1 => text.insert(place, byte),
                2 => text.truncate(place),
                3 => {
                    let copy = text[place..end].to_vec();
                    text.splice(place..place, copy);
                }
                _ => text.insert(place, b"{}[]()<>;:,.%#\n 0Km"[usize::from(byte) % 19]),
            }
        }
        text
    })
}

/// Reads and, when that fails, checks and prints what is said.
fn read_or_explain(bytes: &[u8]) {
    match Program::parse("fuzz", bytes) {
        Ok(parsed) => {
            let again = Program::parse("fuzz", parsed.program.to_string().as_bytes());
            assert_eq!(again.unwrap().program, parsed.program);
            for warning in parsed.warnings {
                assert!(warning.to_string().starts_with("warning: "));
            }
        }
        Err(error) => {
            assert!(!error.diagnostics.is_empty());
            for diagnostic in error.diagnostics {
                assert!(diagnostic.span.start <= diagnostic.span.end);
                assert!(diagnostic.span.end <= bytes.len());
                assert!(diagnostic.to_string().contains('^'));
            }
        }
    }
}

#[test]
fn a_time_that_is_read_is_printed_so_that_it_is_read_again() {
    for time in ["1471658.1h", "14h", "9000000000s", "9000000000000000000ns", "1ns"] {
        let text = format!("Unordered[{time}] {{ <100%> Get; }}");
        let program = read(&text).program;
        assert_eq!(read(&program.to_string()).program, program, "{text}");
    }
    assert!(refusal("Unordered[9100000000s] { <100%> Get; }").contains("out of range"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_a_program_prints_is_that_program(program in programs()) {
        let text = program.to_string();
        let parsed = Program::parse("printed", text.as_bytes());
        prop_assert_eq!(parsed.map(|parsed| parsed.program), Ok(program));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_or_explain(&bytes);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}") {
        read_or_explain(text.as_bytes());
    }

    #[test]
    fn no_mutilated_program_makes_it_panic(bytes in mutilated()) {
        read_or_explain(&bytes);
    }
}
