//! What the user sees while trials go on: one live line on a terminal, plain lines elsewhere.
//!
//! It draws on standard error, so that standard output holds the result alone.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::analysis::{Analysis, EffortForecast};
use lab::event::Event;
use lab::record::{Check, CheckVerdict, Outcome, Record, TIME_METRIC};
use lab::words::thousands;

use crate::request::flags::Style;
use crate::runner::{Observer, Position};
use crate::terminal::{note, one_line, rough};

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Whether one line is redrawn in place.
    pub live: bool,
    /// Whether plain lines say what happens, where there is no live line.
    pub lines: bool,
    /// Whether the result is coloured.
    pub colour: bool,
}

impl TerminalStyle {
    /// The look for a style on this terminal. `NO_COLOR` (no-color.org) switches colour off unless
    /// the style asks for it by name.
    pub fn of(style: Option<Style>) -> TerminalStyle {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let live_terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let colour_terminal = std::io::stdout().is_terminal();
        match style.unwrap_or(Style::Auto) {
            Style::Auto => TerminalStyle {
                live: live_terminal,
                lines: true,
                colour: colour_terminal && !no_colour,
            },
            Style::Basic => TerminalStyle { live: false, lines: true, colour: false },
            Style::Full => TerminalStyle { live: live_terminal, lines: true, colour: true },
            Style::Nocolor => TerminalStyle { live: live_terminal, lines: true, colour: false },
            Style::Color => TerminalStyle { live: false, lines: true, colour: true },
            Style::None => TerminalStyle { live: false, lines: false, colour: false },
        }
    }
}

pub struct Progress {
    look: TerminalStyle,
    bar: ProgressBar,
    contender: String,
    estimates: BTreeMap<(String, String), String>,
    several_workloads: bool,
    /// What is open and for how long, once a block tells.
    outlook: Option<String>,
    /// The block of which the plain lines have told how much is left.
    block: Option<(bool, u32)>,
    after_block: Box<dyn Fn() -> Result<(), String>>,
}

impl Progress {
    /// A progress line for a study.
    pub fn new(look: TerminalStyle, several_workloads: bool) -> Progress {
        let bar = ProgressBar::new(0);
        bar.set_draw_target(if look.live {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        let style = ProgressStyle::with_template("{spinner} {prefix} {wide_msg}")
            .expect("the template is sound");
        bar.set_style(style);
        Progress {
            look,
            bar,
            contender: String::new(),
            estimates: BTreeMap::new(),
            several_workloads,
            outlook: None,
            block: None,
            after_block: Box::new(|| Ok(())),
        }
    }

    /// Does this too after each block, and says what went wrong.
    pub fn after_each_block(&mut self, act: Box<dyn Fn() -> Result<(), String>>) {
        self.after_block = act;
    }

    /// Shows a step outside of trials, such as the filling of the device.
    pub fn step(&self, text: &str) {
        self.bar.set_prefix(String::new());
        self.bar.set_message(one_line(text));
        self.bar.tick();
    }

    /// Says a line that stays.
    pub fn say(&self, text: &str) {
        if self.look.live {
            self.bar.suspend(|| note(text));
        } else if self.look.lines {
            note(text);
        }
    }

    /// Takes the live line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn estimate_text(&self) -> String {
        let texts: Vec<String> =
            self.estimates.iter().map(|((_, label), text)| format!("{label} {text}")).collect();
        if texts.is_empty() { String::new() } else { format!("  [{}]", texts.join(", ")) }
    }
}

/// The figure that is compared, as the table calls it: `1.932 s`, `throughput 210 MiB/s`.
fn figure_of(record: &Record) -> String {
    match record.metrics().first() {
        Some(metric) if metric.name == TIME_METRIC => {
            report::text::figure(metric.value, metric.unit)
        }
        Some(metric) => {
            format!("{} {}", metric.name, report::text::figure(metric.value, metric.unit))
        }
        None => String::new(),
    }
}

/// `contents violated (3 of 10,000); the first: ...`; none where no check was.
fn violated(record: &Record) -> Option<String> {
    let check = record.checks.iter().find(|check| check.verdict() == CheckVerdict::Violated)?;
    let Check { name, tried, violated, first, .. } = check;
    let first = first.as_ref().map_or(String::new(), |first| format!("; the first: {first}"));
    let (violated, tried) = (thousands(*violated), thousands(*tried));
    Some(format!("{name} violated ({violated} of {tried}){first}"))
}

/// Where a study is when a round begins, and how long it may take:
/// `round 2 of 5 to 20, about 36s to 4m 12s left`.
fn outlook(position: &Position<'_>) -> String {
    let span = |least: String, most: String| {
        if least == most { least } else { format!("{least} to {most}") }
    };
    let (least, most) = position.rounds;
    let head = if position.spec.warmup {
        "warm-up round".into()
    } else {
        let rounds = span(least.to_string(), most.to_string());
        format!("round {} of {rounds}", position.spec.block + 1)
    };
    match (position.time_left(), position.budget_left) {
        (Some((least, most)), _) => {
            format!("{head}, about {} left", span(rough(least), rough(most)))
        }
        (None, Some(budget)) => format!("{head}, at most {} left", rough(budget)),
        (None, None) => format!("{head}; the time left is known after the first round"),
    }
}

impl Observer for Progress {
    fn trial_begins(&mut self, position: &Position<'_>) {
        let spec = position.spec;
        if !self.look.live && self.block != Some((spec.warmup, spec.block)) {
            self.block = Some((spec.warmup, spec.block));
            self.say(&outlook(position));
        }
        self.contender = spec.contender.label.clone();
        let kind = if spec.warmup { "warm-up round" } else { "round" };
        let mut prefix = format!(
            "{kind} {}, {}/{}",
            spec.block + 1,
            position.trials_done + 1,
            position.trials_expected.max(position.trials_done + 1)
        );
        match (position.time_left(), position.budget_left) {
            (Some((left, _)), _) => prefix.push_str(&format!(", about {} left", rough(left))),
            (None, Some(budget)) => {
                prefix.push_str(&format!(", at most {} left", rough(budget)));
            }
            (None, None) => {}
        }
        if let Some(outlook) = &self.outlook {
            prefix.push_str(&format!(", {outlook}"));
        }
        if self.several_workloads {
            prefix.push_str(&format!(", {}", spec.workload.name));
        }
        self.bar.set_prefix(one_line(&prefix));
        let message = format!("{}{}", self.contender, self.estimate_text());
        self.bar.set_message(one_line(&message));
        self.bar.enable_steady_tick(Duration::from_millis(120));
    }

    fn event(&mut self, event: &Event) {
        let doing = match event {
            Event::Phase { phase } => phase.name(),
            Event::Status { text } => text,
            Event::Ready
            | Event::Meet { .. }
            | Event::Acknowledged { .. }
            | Event::Made { .. }
            | Event::Slice { .. }
            | Event::Record { .. }
            | Event::Error { .. } => {
                return;
            }
        };
        let message = format!("{}: {doing}{}", self.contender, self.estimate_text());
        self.bar.set_message(one_line(&message));
    }

    fn note(&mut self, words: &str) {
        self.say(words);
    }

    fn trial_ended(&mut self, record: &Record) {
        let workload =
            if self.several_workloads { format!(" {}", record.workload) } else { String::new() };
        let warmup = if record.warmup { " (warm-up)" } else { "" };
        let head =
            format!("round {}{warmup}{workload}: {}", record.block + 1, record.contender.label);
        match &record.outcome {
            Outcome::Completed => {
                let violated = violated(record);
                if !self.look.live || violated.is_some() {
                    let said = [Some(figure_of(record)).filter(|text| !text.is_empty()), violated];
                    let said: Vec<String> = said.into_iter().flatten().collect();
                    self.say(&format!("{head} {}", said.join(", ")));
                }
            }
            Outcome::Failed { phase, message, output } => {
                let output = output
                    .lines()
                    .map(|line| format!("\n    {}", line.replace('\t', "    ")))
                    .collect::<String>();
                self.say(&format!("{head} failed in {}: {message}{output}", phase.name()));
            }
            Outcome::TimedOut { phase, limit_ns } => self.say(&format!(
                "{head} took longer than {} and was killed in {}",
                report::text::time(*limit_ns as f64),
                phase.name()
            )),
            Outcome::Interrupted { phase } => {
                self.say(&format!("{head} was interrupted in {}", phase.name()));
            }
        }
    }

    fn block_ended(&mut self, _records: &[Record], analysis: &Analysis) {
        self.estimates.clear();
        let open = analysis.forecast.filter(EffortForecast::is_open);
        self.outlook = open.map(|forecast| forecast.to_string());
        for workload in &analysis.workloads {
            for contender in &workload.contenders {
                if let Some(metric) = contender.metrics.first() {
                    self.estimates.insert(
                        (workload.workload.clone(), contender.label.clone()),
                        report::text::figure(metric.summary.median, metric.unit),
                    );
                }
            }
        }
        if let Err(error) = (self.after_block)() {
            self.say(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use lab::plan::Plan;
    use lab::study::{CommandText, StudyText, WorkloadText};

    use super::*;
    use lab::contender::Known;

    #[test]
    fn the_outlook_spans_the_least_and_the_greatest_number_of_blocks() {
        let text = StudyText {
            contenders: vec!["ext4".into(), "xfs".into()],
            workloads: vec![WorkloadText {
                command: Some(CommandText::Line("true".into())),
                ..Default::default()
            }],
            ..Default::default()
        };
        let plan = Plan::new(text.resolve(&Known::named(["ext4", "xfs"])).unwrap(), 1);
        let block = &plan.blocks[0];
        let spec = plan.spec(block, block.trials[0], None, "/nowhere".into());
        let told = |trials_done, trials_expected, trial_time: Option<u64>, budget: Option<u64>| {
            outlook(&Position {
                spec: &spec,
                trials_done,
                trials_expected,
                trials_max: 40,
                rounds: (trials_expected / 2, 20),
                budget_left: budget.map(Duration::from_secs),
                trial_time: trial_time.map(Duration::from_secs),
            })
        };
        for (expected, told) in [
            (
                "round 1 of 5 to 20; the time left is known after the first round",
                told(0, 10, None, None),
            ),
            ("round 1 of 5 to 20, at most 10m 00s left", told(0, 10, None, Some(600))),
            ("round 1 of 5 to 20, about 1m 20s to 6m 20s left", told(2, 10, Some(10), None)),
            ("round 1 of 5 to 20, about 1m 20s to 5m 00s left", told(2, 10, Some(10), Some(300))),
            ("round 1 of 5 to 20, about 1m 00s left", told(2, 10, Some(10), Some(60))),
            ("round 1 of 20, about 20s left", told(38, 40, Some(10), None)),
        ] {
            assert_eq!(told, expected);
        }
    }
}
