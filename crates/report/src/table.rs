//! One table, laid out once and written as terminal text, Markdown or ([`crate::html`]) HTML.

/// A cell with the colour that the terminal may give it.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its tone.
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
    Doubtful,
    /// A heading.
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
            Tone::Doubtful => "33",
            Tone::Strong => "1",
            Tone::Faint => "2",
        }
    }
}

/// Colours `text` when `colour` is wanted.
pub fn paint(text: &str, tone: Tone, colour: bool) -> String {
    if colour && tone != Tone::Plain {
        format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
    } else {
        text.to_string()
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
    /// A cell with a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone, value: None }
    }

    /// A cell that shows a number.
    pub fn number(value: f64, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone: Tone::Plain, value: Some(value) }
    }

    /// The cell with a number behind its text.
    pub fn valued(self, value: Option<f64>) -> Cell {
        Cell { value, ..self }
    }
}

/// A table: the first column is left-aligned, the others right.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Column heads.
    pub heads: Vec<String>,
    /// Rows, each as long as `heads`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these heads.
    pub fn new(heads: &[&str]) -> Table {
        Table { heads: heads.iter().map(|head| head.to_string()).collect(), rows: Vec::new() }
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

    /// Text for a terminal, every line indented by two spaces.
    pub fn terminal(&self, colour: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            cells.chain([self.heads[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let mut text = String::new();
        let heads: Vec<Cell> =
            self.heads.iter().map(|head| Cell::toned(head.clone(), Tone::Strong)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::from(" ");
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.text.chars().count());
                let painted = paint(&cell.text, cell.tone, colour);
                line.push_str(&match column {
                    0 => format!(" {painted}{padding}"),
                    _ => format!("  {padding}{painted}"),
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Markdown.
    pub fn markdown(&self) -> String {
        let escape = |text: &str| text.replace('|', "\\|");
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.heads.iter().map(|head| escape(head)).collect());
        let rule = |column| if column == 0 { ":---".into() } else { "---:".into() };
        text.push_str(&line((0..self.heads.len()).map(rule).collect()));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|cell| escape(&cell.text)).collect()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["contender", "time", "gone"]);
        table.rows.push(vec!["ext4".into(), Cell::toned("1.9 s", Tone::Good), "-".into()]);
        table.rows.push(vec!["µ|x".into(), "12.0 s".into(), "".into()]);
        table.without_empty_columns()
    }

    #[test]
    fn columns_align_whatever_the_colour() {
        assert_eq!(
            table().terminal(false),
            "  contender    time\n  ext4        1.9 s\n  µ|x        12.0 s\n"
        );
        let coloured = table().terminal(true);
        assert!(coloured.contains("\u{1b}[32m1.9 s\u{1b}[0m"), "{coloured:?}");
    }

    #[test]
    fn markdown_escapes_bars() {
        assert!(table().markdown().contains("| µ\\|x | 12.0 s |"));
    }
}
