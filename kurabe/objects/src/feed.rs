//! Hands the commands of a stream to the threads that carry them out: when each may begin, and
//! behind which others it has to wait.
//!
//! Every thread takes the next command of the one stream, so a program means the same for any
//! number of threads. A command waits for the earlier commands under way that it depends on: two
//! that name one key, unless both only read.
//!
//! Must not know: stores, histograms.
//!
//! Invariants: a command waits only for commands that were taken before it, so that nothing waits
//! for ever; commands that depend on each other are carried out in the order of the stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::program::Rate;
use super::random::Random;
use super::stream::{Command, Stream, StreamStep, Verb};

/// Why no more commands come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedStop {
    /// The program is at its end.
    End,
    /// Its limit in time was reached.
    TimeLimit,
    /// The caller wanted no more.
    Cancelled,
}

/// A command to carry out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub command: Command,
    /// When the command should begin, in an open loop.
    pub intended_ns: Option<u64>,
    /// Its place in the order of commands.
    ticket: u64,
}

/// A stream with its arrivals and limits in time.
pub(crate) struct Feed<'a> {
    stream: Stream,
    arrivals: Option<Arrivals>,
    deadline_ns: u64,
    section_end_ns: u64,
    stop: Option<FeedStop>,
    cancelled: &'a AtomicBool,
    taken: u64,
}

/// The intended starts of an open loop.
struct Arrivals {
    gap_ns: f64,
    poisson: Option<Random>,
    next_ns: f64,
}

impl Arrivals {
    fn new(rate: Rate, seed: u64) -> Arrivals {
        Arrivals {
            gap_ns: 1e9 / rate.per_second,
            // Another sequence than that of the stream, of the same seed.
            poisson: rate.poisson.then(|| Random::new(seed ^ 0x6172_7269_7661_6c73)),
            next_ns: 0.0,
        }
    }

    fn advance(&mut self) {
        self.next_ns += match &mut self.poisson {
            Some(random) => self.gap_ns * random.exponential(),
            None => self.gap_ns,
        };
    }
}

impl<'a> Feed<'a> {
    pub fn new(
        stream: Stream,
        rate: Option<Rate>,
        seed: u64,
        duration_ns: Option<u64>,
        cancelled: &'a AtomicBool,
    ) -> Feed<'a> {
        Feed {
            stream,
            arrivals: rate.map(|rate| Arrivals::new(rate, seed)),
            deadline_ns: duration_ns.unwrap_or(u64::MAX),
            section_end_ns: u64::MAX,
            stop: None,
            cancelled,
            taken: 0,
        }
    }

    /// The next command; `None` for ever after the last. `now_ns` is what the clock reads.
    pub fn take(&mut self, now_ns: u64) -> Option<Task> {
        // What has to begin later than now is judged by then.
        let begin_ns = match &self.arrivals {
            Some(arrivals) => now_ns.max(arrivals.next_ns as u64),
            None => now_ns,
        };
        if self.stop.is_none() {
            if begin_ns >= self.deadline_ns {
                self.end(FeedStop::TimeLimit);
            } else if self.cancelled.load(Ordering::Relaxed) {
                self.end(FeedStop::Cancelled);
            }
        }
        if begin_ns >= self.section_end_ns {
            self.section_end_ns = u64::MAX;
            self.stream.end_timed_section();
        }
        loop {
            match self.stream.next_step() {
                StreamStep::Command(command) => {
                    let intended_ns = self.arrivals.as_mut().map(|arrivals| {
                        let intended_ns = arrivals.next_ns as u64;
                        arrivals.advance();
                        intended_ns
                    });
                    let ticket = self.taken;
                    self.taken += 1;
                    return Some(Task { command, intended_ns, ticket });
                }
                StreamStep::Timed(length_ns) => {
                    self.section_end_ns = begin_ns.saturating_add(length_ns);
                }
                StreamStep::End => {
                    self.stop.get_or_insert(FeedStop::End);
                    return None;
                }
            }
        }
    }

    fn end(&mut self, stop: FeedStop) {
        self.stop = Some(stop);
        self.section_end_ns = u64::MAX;
        self.stream.stop();
        self.stream.end_timed_section();
    }

    /// Why no more commands come, once none do.
    pub fn stop(&self) -> Option<FeedStop> {
        self.stop
    }

    /// The stream, for what it remembers.
    pub fn into_stream(self) -> Stream {
        self.stream
    }
}

/// A feed that many threads take from.
pub(crate) struct SharedFeed<'a> {
    state: Mutex<State<'a>>,
    finished: Condvar,
}

struct State<'a> {
    feed: Feed<'a>,
    under_way: Vec<UnderWay>,
    /// Threads that wait for an earlier command.
    waiting: usize,
    /// A thread gave up: the others must not wait for it.
    abandoned: bool,
}

/// Keys that a command under way works on.
#[derive(Clone, Copy)]
struct UnderWay {
    ticket: u64,
    first_key: u64,
    end_key: u64,
    reads_only: bool,
}

impl UnderWay {
    fn of(task: &Task) -> UnderWay {
        UnderWay {
            ticket: task.ticket,
            first_key: task.command.key,
            end_key: task.command.end_key,
            reads_only: task.command.verb == Verb::Get,
        }
    }

    /// Whether `self` has to end before `later` begins.
    fn precedes(&self, later: &UnderWay) -> bool {
        self.ticket < later.ticket
            && self.first_key < later.end_key
            && later.first_key < self.end_key
            && !(self.reads_only && later.reads_only)
    }
}

impl<'a> SharedFeed<'a> {
    pub fn new(feed: Feed<'a>) -> SharedFeed<'a> {
        SharedFeed {
            state: Mutex::new(State { feed, under_way: Vec::new(), waiting: 0, abandoned: false }),
            finished: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the command that the thread had, if any, and takes the next.
    pub fn take(&self, done: Option<&Task>, now_ns: u64) -> Option<Task> {
        let mut state = self.state();
        if let Some(done) = done {
            state.under_way.retain(|other| other.ticket != done.ticket);
            if state.waiting > 0 {
                self.finished.notify_all();
            }
        }
        if state.abandoned {
            return None;
        }
        let task = state.feed.take(now_ns)?;
        state.under_way.push(UnderWay::of(&task));
        Some(task)
    }

    /// Waits until the command may begin. Says whether it still should.
    pub fn wait_for_earlier(&self, task: &Task) -> bool {
        let own = UnderWay::of(task);
        let mut state = self.state();
        state.waiting += 1;
        while !state.abandoned && state.under_way.iter().any(|other| other.precedes(&own)) {
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        !state.abandoned
    }

    /// Lets every thread end, because one cannot go on.
    pub fn abandon(&self) {
        self.state().abandoned = true;
        self.finished.notify_all();
    }

    pub fn into_feed(self) -> Feed<'a> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).feed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn feed(text: &str) -> Feed<'static> {
        let program = Program::parse("load.txt", text.as_bytes()).unwrap().program;
        let settings = &program.settings;
        Feed::new(Stream::new(&program), settings.rate, settings.seed, settings.duration_ns, &GO_ON)
    }

    #[test]
    fn limits_in_time_end_sections_and_runs() {
        let mut feed = feed(
            "Duration: 2s; Unordered[1s] { <100%> New(1); } Command { 9.times { New(2); }; \
             1000.times { New(3); }; }",
        );
        let mut sizes = Vec::new();
        let mut now_ns = 0;
        while let Some(task) = feed.take(now_ns) {
            sizes.push(task.command.size);
            now_ns += 100_000_000;
        }
        assert_eq!(sizes[..19], [vec![1; 10], vec![2; 9]].concat());
        // The twentieth begins at 1.9 s, the next would at the limit.
        assert_eq!(sizes[19..], [3]);
        assert_eq!(feed.stop(), Some(FeedStop::TimeLimit));
        assert_eq!(feed.into_stream().live().len(), sizes.len());
    }

    #[test]
    fn arrivals_keep_their_rate_whatever_the_clock_reads() {
        let starts = |text: &str| -> Vec<u64> {
            let mut feed = feed(text);
            std::iter::from_fn(|| feed.take(5_000_000_000))
                .map(|task| task.intended_ns.unwrap())
                .collect()
        };
        let even = starts("Rate: 1000; Command { 4.times { New(1); }; }");
        assert_eq!(even, [0, 1_000_000, 2_000_000, 3_000_000]);
        let random = starts("Rate: 1000 poisson; Command { 100000.times { New(1); }; }");
        let mean_ns = random.last().unwrap() / 99_999;
        assert!(mean_ns.abs_diff(1_000_000) < 15_000, "{mean_ns}");
        let short = random.windows(2).filter(|pair| pair[1] - pair[0] < 693_147).count();
        assert!(short.abs_diff(50_000) < 1_000, "{short} gaps are below the median");
    }

    #[test]
    fn a_limit_counts_from_the_intended_start() {
        let mut feed = feed("Rate: 10; Duration: 1s; Command { 100.times { New(1); }; }");
        // The clock stands still: the tenth begins at 0.9 s, the eleventh would at 1 s.
        let taken = std::iter::from_fn(|| feed.take(0)).count();
        assert_eq!(taken, 10);
        assert_eq!(feed.stop(), Some(FeedStop::TimeLimit));
    }

    #[test]
    fn commands_on_one_key_are_carried_out_in_order() {
        let shared = SharedFeed::new(feed(
            "Command { New(1); New(1); Get(100, 100); Get(0, 0); OverWrite(2, 0, 0); Get(0, 0); \
             DeleteRange(0, 100); }",
        ));
        let tasks: Vec<Task> = std::iter::from_fn(|| shared.take(None, 0)).collect();
        let blocked = |place: usize| -> Vec<usize> {
            let own = UnderWay::of(&tasks[place]);
            let state = shared.state();
            (0..tasks.len())
                .filter(|other| {
                    state.under_way.iter().any(|under_way| {
                        under_way.ticket == *other as u64 && under_way.precedes(&own)
                    })
                })
                .collect()
        };
        // Keys: 1, 2, 2, 1, 1, 1, and the range of key 1.
        assert!(blocked(1).is_empty());
        assert_eq!(blocked(2), [1]);
        assert_eq!(blocked(3), [0]);
        assert_eq!(blocked(4), [0, 3]);
        assert_eq!(blocked(5), [0, 4], "two reads need not wait for each other");
        assert_eq!(blocked(6), [0, 3, 4, 5]);
        // When all the earlier ones have ended, the last may begin.
        for task in &tasks[..6] {
            assert!(shared.take(Some(task), 0).is_none());
        }
        assert!(shared.wait_for_earlier(&tasks[6]));
        shared.abandon();
        assert!(!shared.wait_for_earlier(&tasks[6]));
    }
}
