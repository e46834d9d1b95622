//! From a program to the instructions that the stream walks.
//!
//! What has no effect (no repetitions, empty bodies, branches that never run) leaves no
//! instruction, so that walking it takes no time either.

use super::{Code, Mix, MixBranch, Select};
use crate::program::{
    Branch, Choice, ObjectSize, ProgramSection, SectionLength, Statement, has, share,
};
use crate::random::Zipf;

#[derive(Default)]
pub(super) struct Compiler {
    pub code: Vec<Code>,
    pub mixes: Vec<Mix>,
    pub zipfs: Vec<Zipf>,
    pub classes: Vec<ObjectSize>,
}

impl Compiler {
    pub(super) fn section(&mut self, section: &ProgramSection) {
        match section {
            ProgramSection::Command { body } => self.body(body),
            ProgramSection::Ordered { count, branches } => {
                for branch in branches {
                    self.repeat(share(*count, branch.percent), &branch.body);
                }
            }
            ProgramSection::Unordered { extent, branches } => self.mix(*extent, branches),
        }
    }

    fn mix(&mut self, extent: SectionLength, branches: &[Branch]) {
        let place = self.mixes.len();
        self.mixes.push(Mix {
            branches: Vec::new(),
            length_ns: match extent {
                SectionLength::Count(_) => None,
                SectionLength::Time(length_ns) => Some(length_ns),
            },
            end: 0,
        });
        self.code.push(Code::EnterMix(place));
        let draw = self.code.len();
        self.code.push(Code::Mix(place));
        for branch in branches {
            let left = match extent {
                SectionLength::Count(count) => share(count, branch.percent),
                SectionLength::Time(_) => u64::from(branch.percent),
            };
            let start = self.code.len();
            self.body(&branch.body);
            // A branch without effect is not drawn: it would only delay the others.
            if left == 0 || self.code.len() == start {
                self.code.truncate(start);
                continue;
            }
            self.code.push(Code::Jump(draw));
            self.mixes[place].branches.push(MixBranch { left, start, wakes: wakes(&branch.body) });
        }
        self.mixes[place].end = self.code.len();
    }

    fn repeat(&mut self, count: u64, body: &[Statement]) {
        if count == 0 {
            return;
        }
        let start = self.code.len();
        let wakes = wakes(body);
        if count > 1 {
            self.code.push(Code::Repeat { count, end: 0, wakes });
        }
        let body_start = self.code.len();
        self.body(body);
        if self.code.len() == body_start {
            self.code.truncate(start);
            return;
        }
        if count > 1 {
            let end = self.code.len();
            self.code[start] = Code::Repeat { count, end, wakes };
            self.code.push(Code::Again { wakes });
        }
    }

    fn body(&mut self, body: &[Statement]) {
        for statement in body {
            let code = match statement {
                Statement::New(size) => Code::New(self.class(*size)),
                Statement::Embed(size) => Code::Embed(self.class(*size)),
                Statement::OverWrite(size, choice) => {
                    Code::OverWrite(self.class(*size), self.select(*choice, Select::Any))
                }
                Statement::Get(choice) => Code::Get(self.select(*choice, Select::Range(0, 100))),
                Statement::Delete(choice) => {
                    Code::Delete(self.select(*choice, Select::Range(0, 100)))
                }
                Statement::DeleteRange(percents) => Code::DeleteRange(percents.from, percents.to),
                Statement::Sync => Code::Sync,
                Statement::Times(count, body) => {
                    self.repeat(*count, body);
                    continue;
                }
            };
            self.code.push(code);
        }
    }

    fn class(&mut self, size: ObjectSize) -> u16 {
        let place = self.classes.iter().position(|known| *known == size).unwrap_or_else(|| {
            self.classes.push(size);
            self.classes.len() - 1
        });
        u16::try_from(place).expect("the parser refuses programs with more sizes")
    }

    /// `any` is what a statement without a range means: the original takes another rule for
    /// `OverWrite` than for `Get` and `Delete`.
    fn select(&mut self, choice: Choice, any: Select) -> Select {
        match choice {
            Choice::Any => any,
            Choice::Range(percents) => Select::Range(percents.from, percents.to),
            Choice::Zipf { exponent, order } => {
                self.zipfs.push(Zipf::new(exponent));
                Select::Zipf(self.zipfs.len() - 1, order)
            }
        }
    }
}

/// Whether statements yield a command when no object is live.
fn wakes(body: &[Statement]) -> bool {
    has(body, |statement| {
        matches!(statement, Statement::New(_) | Statement::Embed(_) | Statement::Sync)
    })
}
