//! One table, laid out once and written as terminal text, Markdown or ([`crate::html`]) HTML.
//!
//! Invariant: what a [`Screen`] holds are its own colours and text that commands no terminal.

use std::fmt::{self, Write};
use std::ops::Deref;

use trust::text;

/// A cell with the colour that the terminal may give it.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub text: String,
    pub tone: Tone,
    /// The number behind the text, as it was computed, where there is one.
    pub value: Option<f64>,
}

/// What a colour says; colour never says anything that the text does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// Better than the baseline, or holding.
    Good,
    /// Worse than the baseline, or failing.
    Bad,
    /// Not decided, or doubtful.
    Uncertain,
    Strong,
    /// Of less weight.
    Faint,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Uncertain => "33",
            Tone::Strong => "1",
            Tone::Faint => "2",
        }
    }
}

/// Text for a terminal. Whatever is written into it may be a stranger's and is escaped; only the
/// colours that it puts around a text itself are not.
#[derive(Debug, Clone, Default)]
pub struct Screen {
    text: String,
    colour: bool,
}

impl Screen {
    /// An empty one, with colours or without.
    pub fn new(colour: bool) -> Screen {
        Screen { text: String::new(), colour }
    }

    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Writes a text in the colour of a tone.
    pub fn paint(&mut self, text: &str, tone: Tone) {
        let escaped = text::terminal(text);
        let _ = if self.colour && tone != Tone::Plain {
            write!(self.text, "\u{1b}[{}m{escaped}\u{1b}[0m", tone.code())
        } else {
            write!(self.text, "{escaped}")
        };
    }

    /// Adds what another one holds.
    pub fn append(&mut self, other: &Screen) {
        self.text.push_str(&other.text);
    }
}

impl Write for Screen {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(&text::terminal(text));
        Ok(())
    }
}

impl fmt::Display for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Deref for Screen {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        text.to_string().into()
    }
}

impl Cell {
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone, value: None }
    }

    /// A cell that shows a number.
    pub fn number(value: f64, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone: Tone::Plain, value: Some(value) }
    }

    /// A cell that shows a number where there is one.
    pub fn maybe(value: Option<f64>, words: impl FnOnce(f64) -> String) -> Cell {
        Cell::from(value.map_or_else(|| "-".to_string(), words)).valued(value)
    }

    /// A cell that shows a whole number.
    pub fn whole(value: u64) -> Cell {
        Cell::number(value as f64, value.to_string())
    }

    /// The cell with a number behind its text.
    pub fn valued(self, value: Option<f64>) -> Cell {
        Cell { value, ..self }
    }
}

/// Widest column of a terminal table that is aligned.
const ALIGNED_COLUMNS_MAX: usize = 200;

/// A table: the first column is left-aligned, the others right.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub heads: Vec<String>,
    /// Rows, each as long as `heads`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Table {
        Table { heads: heads.iter().map(|head| head.to_string()).collect(), rows: Vec::new() }
    }

    /// A table of names with their values in words, without heads.
    pub fn pairs(rows: Vec<(String, String)>) -> Table {
        let row = |(name, value): (String, String)| vec![name.into(), value.into()];
        Table { rows: rows.into_iter().map(row).collect(), ..Table::new(&["", ""]) }
    }

    /// Whether it is one of [`Table::pairs`].
    pub fn is_pairs(&self) -> bool {
        self.heads.iter().all(String::is_empty)
    }

    /// Takes columns away in which no row says anything.
    pub fn without_empty_columns(mut self) -> Table {
        for column in (0..self.heads.len()).rev() {
            let empty = |row: &Vec<Cell>| row[column].text.is_empty() || row[column].text == "-";
            if !self.rows.is_empty() && self.rows.iter().all(empty) {
                self.heads.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
        self
    }

    /// Text for a terminal, every line indented by two spaces. A table that is wider than the terminal is
    /// divided into several, each with the first column.
    pub fn terminal(&self, colour: bool) -> Screen {
        self.within(crate::text::table_columns(), colour)
    }

    fn within(&self, columns_max: usize, colour: bool) -> Screen {
        let heads = self.heads.iter().map(|head| Cell::toned(head.clone(), Tone::Strong)).collect();
        let mut rows: Vec<Vec<Cell>> = std::iter::once(heads).chain(self.rows.clone()).collect();
        for cell in rows.iter_mut().flatten() {
            cell.text = text::line(&cell.text).into_owned();
        }
        let width = |row: &Vec<Cell>, column: usize| row[column].text.chars().count();
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| rows.iter().map(|row| width(row, column)).max().unwrap_or(0))
            // One cell of a million letters must not make a million spaces of every other.
            .map(|widest| widest.min(ALIGNED_COLUMNS_MAX))
            .collect();
        let mut screen = Screen::new(colour);
        let shown = &rows[usize::from(self.is_pairs())..];
        for (number, part) in parts(&widths, columns_max).into_iter().enumerate() {
            if number > 0 {
                let _ = writeln!(screen);
            }
            write_rows(shown, &part, &widths, &mut screen);
        }
        screen
    }

    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = line(self.heads.iter().map(|head| text::markdown(head)).collect());
        let rule = |column| if column == 0 { ":---".into() } else { "---:".into() };
        out.push_str(&line((0..self.heads.len()).map(rule).collect()));
        for row in &self.rows {
            out.push_str(&line(row.iter().map(|cell| text::markdown(&cell.text)).collect()));
        }
        out
    }
}

/// The columns of a table in parts of at most so many characters: the first column is in each of them.
fn parts(widths: &[usize], columns_max: usize) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for (column, width) in widths.iter().enumerate() {
        let part = parts.last_mut().expect("there is one from the beginning on");
        if part.len() > 1 && used + 2 + width > columns_max {
            used = 2 + widths[0];
            parts.push(vec![0]);
        }
        used += 2 + width;
        parts.last_mut().expect("one was just added, or there was one").push(column);
    }
    parts
}

fn write_rows(rows: &[Vec<Cell>], columns: &[usize], widths: &[usize], screen: &mut Screen) {
    for row in rows {
        let mut owed = 2;
        for (place, column) in columns.iter().enumerate() {
            let cell = &row[*column];
            let padding = widths[*column].saturating_sub(cell.text.chars().count());
            let (before, after) = if place == 0 { (0, padding) } else { (padding, 0) };
            // Spaces are written when something comes after them: no line ends with one.
            owed += before;
            if !cell.text.is_empty() {
                screen.text.push_str(&" ".repeat(owed));
                screen.paint(&cell.text, cell.tone);
                owed = 0;
            }
            owed += after + 2;
        }
        let _ = writeln!(screen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_too_wide_is_divided() {
        let mut table = Table::new(&["contender", "time", "written"]);
        table.rows.push(vec!["ext4".into(), "1.9 s".into(), "20 MiB".into()]);
        assert_eq!(
            &*table.within(24, false),
            "  contender   time\n  ext4       1.9 s\n\n  contender  written\n  ext4        20 MiB\n"
        );
        assert_eq!(table.within(26, false).lines().count(), 5);
        assert_eq!(table.within(27, false).lines().count(), 2);
        // A column that fits nowhere has a part of its own.
        assert_eq!(table.within(3, false).lines().count(), 5);
        assert_eq!(&*Table::default().within(3, false), "");
    }

    fn table() -> Table {
        let mut table = Table::new(&["contender", "time", "gone"]);
        table.rows.push(vec!["ext4".into(), Cell::toned("1.9 s", Tone::Good), "-".into()]);
        table.rows.push(vec!["µ|x".into(), "12.0 s".into(), "".into()]);
        table.without_empty_columns()
    }

    #[test]
    fn columns_align_whatever_the_colour() {
        assert_eq!(
            &*table().terminal(false),
            "  contender    time\n  ext4        1.9 s\n  µ|x        12.0 s\n"
        );
        let coloured = table().terminal(true);
        assert!(coloured.contains("\u{1b}[32m1.9 s\u{1b}[0m"), "{coloured:?}");
    }

    #[test]
    fn only_its_own_colours_command_the_terminal() {
        let mut hostile = Table::new(&["\u{1b}[2J"]);
        hostile.rows.push(vec![Cell::toned("a\n\u{9b}31m", Tone::Bad)]);
        let mut screen = Screen::new(true);
        let _ = writeln!(screen, "\u{1b}[32m\u{202e}");
        screen.append(&hostile.terminal(true));
        assert_eq!(
            &*screen,
            "\\u{1b}[32m\\u{202e}\n  \u{1b}[1m\\u{1b}[2J\u{1b}[0m\n  \u{1b}[31ma\\u{a}\\u{9b}31m\u{1b}[0m\n"
        );
    }

    #[test]
    fn markdown_escapes_bars() {
        assert!(table().markdown().contains("| µ&#124;x | 12.0 s |"));
    }
}
