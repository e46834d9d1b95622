//! Plans of programs that are known.

use super::*;
use crate::store;

fn program(text: &str) -> Program {
    match Program::parse("load.txt", text.as_bytes()) {
        Ok(parsed) => parsed.program,
        Err(error) => panic!("{error}"),
    }
}

fn figures(text: &str) -> PlanFigures {
    ProgramPlan::of(&program(text)).counted.unwrap()
}

#[test]
fn a_published_workload_is_counted_exactly() {
    let text =
        "Command { 5000.times { New(1M); }; } Unordered[40000] { <50%> New(1M); <50%> Get; }";
    let counted = figures(text);
    assert_eq!(counted.commands, 45_000);
    assert_eq!(counted.counts, [("New", 25_000), ("Get", 20_000)]);
    assert_eq!(counted.bytes_written, 25_000 << 20);
    assert_eq!(counted.bytes_read, 20_000 << 20);
    assert_eq!(counted.peak_live_bytes, 25_000 << 20);
    let shown = ProgramPlan::of(&program(text)).to_string();
    assert!(shown.contains("(24.4 GiB)"), "{shown}");
}

#[test]
fn what_depends_on_deleting_is_counted_too() {
    let counted = figures("Ordered[100] { <50%> { New(1K); Get; New(2K); Delete; }; }");
    assert_eq!(counted.commands, 200);
    assert_eq!((counted.peak_live_objects, counted.final_live_objects), (51, 50));
}

#[test]
fn what_is_too_long_to_count_says_so_and_is_begun() {
    let plan = ProgramPlan::of(&program("Command { 1000000000.times { New(4K); }; }"));
    assert_eq!((plan.counted.as_ref(), plan.demand(1)), (None, None));
    assert!(plan.to_string().contains("more than 20 million statements"), "{plan}");
    assert!(matches!(plan.fit(None, 1), CapacityFit::Unknown { .. }));
    assert_eq!(plan.largest_object_bytes, 4096);
}

#[test]
fn sections_of_a_time_leave_open_what_they_change() {
    let begin = "Command { 10.times { New(1K); }; }";
    let plan = ProgramPlan::of(&program(&format!("{begin} Unordered[2s] {{ <100%> Get; }}")));
    assert_eq!(plan.demand(1).unwrap().objects, 11);
    let shown = plan.to_string();
    assert!(shown.contains("10 or more") && shown.contains("10240  (10 KiB)"), "{shown}");
    let text = format!("{begin} Unordered[2s] {{ <50%> New(1K); <50%> Get; }}");
    let plan = ProgramPlan::of(&program(&text));
    assert_eq!(plan.demand(1), None);
    // What came before it is sure.
    assert!(matches!(
        plan.fit(None, 10_239),
        CapacityFit::TooLarge(CapacityNeed { needed_bytes: 10_240, .. })
    ));
    assert!(plan.to_string().contains("as the time allows"), "{plan}");
    let plan = ProgramPlan::of(&program(&format!("Duration: 1s; {begin}")));
    assert!(plan.to_string().contains("at most 10"), "{plan}");
    assert!(matches!(plan.fit(None, 10_239), CapacityFit::Unknown { .. }));
}

#[test]
fn shares_below_one_are_pointed_out() {
    let plan = ProgramPlan::of(&program("Ordered[50] { <99%> New(1); <1%> DeleteRange(1, 2); }"));
    assert_eq!(plan.notes, ["<1%> never runs: 1 % of 50 is less than 1"]);
}

#[test]
fn whether_it_fits_takes_the_store_into_account() {
    let plan = ProgramPlan::of(&program("Command { 1000.times { New(10K); }; }"));
    let kind = store::kind("files").unwrap();
    let space = (kind.space)(&Default::default(), &plan.demand(1).unwrap());
    let fit = |available| plan.fit(Some(space), available);
    assert!(matches!(
        fit(10_239_999),
        CapacityFit::TooLarge(CapacityNeed { needed_bytes: 10_240_000, .. })
    ));
    assert!(matches!(fit(10_240_000), CapacityFit::Tight(_)));
    assert!(matches!(fit(20_000_000), CapacityFit::Fits(_)));
    assert!(matches!(plan.fit(None, 20_000_000), CapacityFit::Unknown { .. }));
}
