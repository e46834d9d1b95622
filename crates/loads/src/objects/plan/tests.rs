//! Plans of programs that are known, and bounds against counts for any program.

use proptest::prelude::*;

use super::*;
use crate::objects::arbitrary::programs;
use crate::objects::store;

fn program(text: &str) -> Program {
    match Program::parse("load.txt", text.as_bytes()) {
        Ok(parsed) => parsed.program,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_published_load_is_counted_exactly() {
    let plan = Plan::of(&program(
        "Command { 5000.times { New(1M); }; } Unordered[40000] { <50%> New(1M); <50%> Get; }",
    ));
    assert!(plan.exact);
    assert_eq!(plan.method, "calculated from the text");
    assert_eq!(plan.commands, Bound::exactly(45_000));
    assert_eq!(plan.bytes_written, Bound::exactly(25_000 << 20));
    assert_eq!(plan.bytes_read, Bound::exactly(20_000 << 20));
    assert_eq!(plan.peak_live_bytes, Bound::exactly(25_000 << 20));
    let shown = plan.to_string();
    assert!(shown.contains("(24.4 GiB)"), "{shown}");
}

#[test]
fn what_depends_on_deleting_is_counted_by_generating() {
    let text = "Ordered[100] { <50%> { New(1K); Get; New(2K); Delete; }; }";
    let plan = Plan::of(&program(text));
    assert!(plan.exact && plan.method.contains("generating"));
    assert_eq!(plan.commands, Bound::exactly(200));
    assert_eq!(plan.peak_live_objects, Bound::exactly(51));
    assert_eq!(plan.final_live_objects, Bound::exactly(50));
}

#[test]
fn long_programs_are_calculated_where_they_can_be_and_bounded_elsewhere() {
    let plan = Plan::of(&program("Command { 1000000000.times { Get; New(4K); }; }"));
    assert!(plan.exact, "{plan:?}");
    assert_eq!(plan.commands, Bound::exactly(1_999_999_999));
    assert_eq!(plan.peak_live_bytes, Bound::exactly(4_096_000_000_000));

    let plan = Plan::of(&program("Command { 1000000000.times { New(4K); Delete; Get; }; }"));
    assert!(!plan.exact);
    assert_eq!(plan.bytes_written, Bound::exactly(4_096_000_000_000));
    assert_eq!(plan.commands, Bound { low: 1_000_000_000, high: Some(3_000_000_000) });
    assert_eq!(plan.peak_live_objects, Bound { low: 0, high: Some(1_000_000_000) });
    assert!(plan.to_string().contains("1000000000 to 3000000000"));
}

#[test]
fn sections_of_a_time_are_bounded_by_the_rate_or_not_at_all() {
    let text = "Command { 10.times { New(1K); }; } Unordered[2s] { <50%> New(1K); <50%> Get; }";
    let plan = Plan::of(&program(text));
    assert_eq!(plan.bytes_written, Bound { low: 10 << 10, high: None });
    assert!(plan.demand(1).is_none());
    let plan = Plan::of(&program(&format!("Rate: 100; {text}")));
    assert_eq!(plan.bytes_written, Bound { low: 10 << 10, high: Some(212 << 10) });
    let plan = Plan::of(&program("Duration: 1s; Command { New(1K); }"));
    assert_eq!(plan.commands, Bound { low: 0, high: Some(1) });
}

#[test]
fn shares_below_one_are_pointed_out() {
    let plan = Plan::of(&program("Ordered[50] { <99%> New(1); <1%> DeleteRange(1, 2); }"));
    assert_eq!(plan.notes, ["<1%> DeleteRange(1, 2) never runs: 1 % of 50 is less than 1"]);
}

#[test]
fn whether_it_fits_takes_the_store_into_account() {
    let plan = Plan::of(&program("Command { 1000.times { New(10K); }; }"));
    let kind = store::kind("files").unwrap();
    let space = (kind.space)(&Default::default(), &plan.demand(1).unwrap());
    let fit = |available| plan.fit(Some(space), available);
    assert!(matches!(fit(10_239_999), Fit::TooLarge { needed_bytes: 10_240_000, .. }));
    assert!(matches!(fit(10_240_000), Fit::Tight { .. }));
    assert!(matches!(fit(20_000_000), Fit::Fits { .. }));
    assert!(matches!(plan.fit(None, 20_000_000), Fit::Unknown { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// What is counted lies within what is calculated, for every figure of any program.
    #[test]
    fn bounds_hold(program in programs()) {
        let mut program = program;
        program.settings.duration_ns = None;
        program.sections.retain(|section| {
            !matches!(section, Section::Unordered { extent: Extent::Time(_), .. })
        });
        let bounded = Bounds::of(&program).plan();
        let counted = counted(&program);
        let within = |name: &str, bound: Bound, number: Bound| {
            let number = number.high.unwrap();
            prop_assert!(
                bound.low <= number && bound.high.is_some_and(|high| number <= high),
                "{name}: {number} is not within {bound:?}"
            );
            Ok(())
        };
        within("commands", bounded.commands, counted.commands)?;
        within("written", bounded.bytes_written, counted.bytes_written)?;
        within("read", bounded.bytes_read, counted.bytes_read)?;
        within("objects", bounded.peak_live_objects, counted.peak_live_objects)?;
        within("bytes", bounded.peak_live_bytes, counted.peak_live_bytes)?;
        within("embedded", bounded.peak_embedded_bytes, counted.peak_embedded_bytes)?;
        within("objects left", bounded.final_live_objects, counted.final_live_objects)?;
        within("bytes left", bounded.final_live_bytes, counted.final_live_bytes)?;
        for Count { verb, commands } in &counted.counts {
            let bound = bounded.counts.iter().find(|count| count.verb == *verb).unwrap();
            within(verb, bound.commands, *commands)?;
        }
    }
}
