//! A heat map as data and as a picture: rows and columns of costs, each printed in its
//! cell. It is drawn here and not by the script of the page, whose charting library is built without
//! heat maps, and since it can do without a script: every cell says what it is.
//!
//! Orange is above 1 and blue below, which differ for the colour-blind too. Only a cell that is decided is filled; one that is not has a dashed edge, and `?` or a bound.

use std::fmt::Write;

use crate::svg::{COLOURS, FONT, SvgDestination};
use crate::table::{Cell, Table, Tone};
use crate::text::escape;

#[derive(Debug, Clone)]
pub struct HeatMap {
    /// Identifier, unique in a page; also the name of the SVG file.
    pub id: String,
    pub title: String,
    /// What is to be seen: the text alternative.
    pub says: String,
    pub column_title: String,
    pub columns: Vec<String>,
    pub rows: Vec<String>,
    /// The cells by row and column; None where nothing was measured.
    pub cells: Vec<Vec<Option<HeatCell>>>,
    /// What a cost above 1 means, and one below.
    pub signs: (String, String),
    /// The numbers that are drawn.
    pub numbers: Table,
}

#[derive(Debug, Clone)]
pub struct HeatCell {
    /// The cost, which is coloured.
    pub cost: f64,
    /// The cost as it is printed; `?` or a bound where it is not decided.
    pub text: String,
    /// Whether the cost is known to differ from 1.
    pub decided: bool,
    /// Everything about it, in words.
    pub says: String,
}

const CELL_WIDTH: f64 = 60.0;
const CELL_HEIGHT: f64 = 28.0;
/// A cost of this, or of one over it, gets the full colour.
const FULL_COST: f64 = 2.0;
/// The share of the hue in the full colour: letters on it stay readable.
const FULL_SHARE: f64 = 0.62;
/// About the width of a letter of 12 px.
const LETTER_WIDTH: f64 = 6.6;
/// Widths of the marks under the map, and of the words beside them.
const SCALE_STEPS: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
const SCALE_WIDTH: f64 = 44.0;

impl HeatMap {
    /// Width in px at which its letters have their size.
    pub fn width(&self) -> f64 {
        let map = self.beside() + self.columns.len() as f64 * CELL_WIDTH + 14.0;
        map.max(self.scale_end() + 14.0)
    }

    fn beside(&self) -> f64 {
        let longest = self.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        14.0 + longest as f64 * LETTER_WIDTH + 12.0
    }

    fn scale_end(&self) -> f64 {
        let words = self.signs.0.chars().count() + self.signs.1.chars().count();
        14.0 + (words as f64 + 2.0) * LETTER_WIDTH + SCALE_STEPS.len() as f64 * SCALE_WIDTH
    }

    /// The map as a table, where nothing is drawn.
    pub fn table(&self) -> Table {
        let heads = std::iter::once(self.title.clone()).chain(self.columns.iter().cloned());
        let mut table = Table { heads: heads.collect(), rows: Vec::new() };
        for (name, cells) in self.rows.iter().zip(&self.cells) {
            let cells = cells.iter().map(|cell| match cell {
                None => "-".into(),
                Some(cell) if !cell.decided => Cell::toned(cell.text.clone(), Tone::Uncertain),
                Some(cell) if cell.cost > 1.0 => Cell::toned(cell.text.clone(), Tone::Bad),
                Some(cell) => Cell::toned(cell.text.clone(), Tone::Good),
            });
            table.rows.push(std::iter::once(Cell::from(name.as_str())).chain(cells).collect());
        }
        table
    }

    /// The map as a picture.
    pub fn draw(&self, place: SvgDestination) -> String {
        let head = if place == SvgDestination::File { 32.0 } else { 4.0 };
        let top = head + 40.0;
        let bottom = top + self.rows.len() as f64 * CELL_HEIGHT;
        let (width, height) = (self.width(), bottom + 62.0);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"table\" aria-label=\"{0}\" {FONT} font-size=\"12\">\n<desc>{1}</desc>\n",
            escape(&self.title),
            escape(&self.says),
        );
        let (ink, faint) = (format!("fill:{}", place.ink()), format!("fill:{}", place.faint()));
        if place == SvgDestination::File {
            let _ = writeln!(
                out,
                "<rect width=\"{width:.0}\" height=\"{height:.0}\" style=\"fill:#fff\"/>"
            );
            let title =
                letters(14.0, 21.0, "font-weight=\"600\" font-size=\"14\"", &ink, &self.title);
            out.push_str(&title);
        }
        let middle = self.beside() + self.columns.len() as f64 * CELL_WIDTH / 2.0;
        let look = format!("{MIDDLE} aria-hidden=\"true\"");
        out.push_str(&letters(middle, head + 12.0, &look, &faint, &self.column_title));
        out.push_str("<g role=\"row\">\n");
        let look = format!("role=\"columnheader\" {MIDDLE}");
        for (column, name) in self.columns.iter().enumerate() {
            let x = self.beside() + (column as f64 + 0.5) * CELL_WIDTH - 1.0;
            out.push_str(&letters(x, top - 9.0, &look, &faint, name));
        }
        out.push_str("</g>\n");
        let look = "role=\"rowheader\" text-anchor=\"end\"";
        for (line, (name, cells)) in self.rows.iter().zip(&self.cells).enumerate() {
            let y = top + line as f64 * CELL_HEIGHT;
            out.push_str("<g role=\"row\">\n");
            out.push_str(&letters(self.beside() - 12.0, y + 18.0, look, &ink, name));
            for (column, cell) in cells.iter().enumerate() {
                let x = self.beside() + column as f64 * CELL_WIDTH;
                out.push_str(&self.cell(cell.as_ref(), place, x, y));
            }
            out.push_str("</g>\n");
        }
        self.scale(&mut out, place, bottom + 12.0);
        out.push_str("</svg>\n");
        out
    }

    fn cell(&self, cell: Option<&HeatCell>, place: SvgDestination, x: f64, y: f64) -> String {
        let Some(cell) = cell else { return "<g role=\"cell\" aria-label=\"-\"></g>\n".into() };
        let says = escape(&cell.says);
        let (style, colour) = if cell.decided {
            (format!("fill:{}", self.colour(cell.cost, place)), place.ink())
        } else {
            (undecided(place), place.faint())
        };
        let cell_box = cell_of(x + 0.5, y + 0.5, CELL_WIDTH - 3.0, CELL_HEIGHT - 3.0, &style);
        let (x, y) = (x + CELL_WIDTH / 2.0 - 1.0, y + 18.0);
        let words = letters(x, y, MIDDLE, &format!("fill:{colour}"), &cell.text);
        format!(
            "<g role=\"cell\" aria-label=\"{says}\"><title>{says}</title>{cell_box}{words}</g>\n"
        )
    }

    /// What the colours are, under the map.
    fn scale(&self, out: &mut String, place: SvgDestination, y: f64) {
        let (ink, faint) = (format!("fill:{}", place.ink()), format!("fill:{}", place.faint()));
        let below_width = self.signs.1.chars().count() as f64 * LETTER_WIDTH;
        let start = 14.0 + below_width + LETTER_WIDTH;
        let width = SCALE_WIDTH - 2.0;
        out.push_str("<g aria-hidden=\"true\">");
        out.push_str(&letters(14.0, y + 14.0, "", &faint, &self.signs.1));
        for (step, share) in SCALE_STEPS.iter().enumerate() {
            let x = start + step as f64 * SCALE_WIDTH;
            let cost = FULL_COST.powf(*share);
            let sign = match *share {
                share if share <= -1.0 => "≤ ",
                share if share >= 1.0 => "≥ ",
                _ => "",
            };
            let colour = format!("fill:{}", self.colour(cost, place));
            out.push_str(&cell_of(x, y, width, 20.0, &colour));
            let look = format!("{MIDDLE} font-size=\"11\"");
            let words = format!("{sign}{cost:.1}");
            out.push_str(&letters(x + SCALE_WIDTH / 2.0 - 1.0, y + 14.0, &look, &ink, &words));
        }
        let end = start + SCALE_STEPS.len() as f64 * SCALE_WIDTH;
        out.push_str(&letters(end + LETTER_WIDTH, y + 14.0, "", &faint, &self.signs.0));
        out.push_str(&cell_of(start, y + 26.0, width, 18.0, &undecided(place)));
        out.push_str(&letters(start + SCALE_WIDTH / 2.0 - 1.0, y + 39.0, MIDDLE, &faint, "?"));
        let says = "its interval does not decide";
        out.push_str(&letters(start + SCALE_WIDTH + LETTER_WIDTH, y + 39.0, "", &faint, says));
        out.push_str("</g>\n");
    }

    fn colour(&self, cost: f64, place: SvgDestination) -> String {
        let style = usize::from(cost > 1.0);
        let share = (cost.ln().abs() / FULL_COST.ln()).min(1.0) * FULL_SHARE;
        match place {
            SvgDestination::Page => {
                format!("color-mix(in srgb,var(--k{style}) {:.0}%,var(--wash))", share * 100.0)
            }
            SvgDestination::File => over_white(COLOURS[style], share),
        }
    }
}

const MIDDLE: &str = "text-anchor=\"middle\"";

fn letters(x: f64, y: f64, look: &str, style: &str, words: &str) -> String {
    let words = escape(words);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {look} style=\"{style}\">{words}</text>\n")
}

fn cell_of(x: f64, y: f64, width: f64, height: f64, style: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" style=\"{style}\"/>"
    )
}

/// The look of a cell that is not decided.
fn undecided(place: SvgDestination) -> String {
    format!("fill:none;stroke:{};stroke-dasharray:3 3", place.faint())
}

/// A colour `#rrggbb` thinned with white to this share.
fn over_white(colour: &str, share: f64) -> String {
    let part = |at: usize| u8::from_str_radix(&colour[at..at + 2], 16).expect("a known colour");
    let thin = |part: u8| (255.0 - (255.0 - f64::from(part)) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", thin(part(1)), thin(part(3)), thin(part(5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(values: &[(f64, bool)]) -> HeatMap {
        let cell = |&(cost, decided): &(f64, bool)| {
            let text = format!("{cost:.1}{}", if decided { "" } else { "?" });
            Some(HeatCell { cost, text, decided, says: format!("<{cost}>") })
        };
        HeatMap {
            id: "m".into(),
            title: "a & b".into(),
            says: "something".into(),
            column_title: "block size".into(),
            columns: values
                .iter()
                .map(|(value, _)| value.to_string())
                .chain(["x".into()])
                .collect(),
            rows: vec!["row".into()],
            cells: vec![values.iter().map(cell).chain([None]).collect()],
            signs: ("slower".into(), "faster".into()),
            numbers: Table::new(&["cost"]),
        }
    }

    #[test]
    fn colours_go_to_both_sides_and_no_further_than_the_full_one() {
        let map = map(&[]);
        let colour = |cost| map.colour(cost, SvgDestination::File);
        assert_eq!(colour(1.0), "#ffffff");
        assert_eq!(colour(2.0), colour(200.0));
        assert_ne!(colour(1.5), colour(2.0));
        assert_ne!(colour(0.5), colour(2.0));
        assert_eq!(over_white("#d55e00", 1.0), "#d55e00");
    }

    #[test]
    fn without_colours_it_is_a_table() {
        let drawn = map(&[(1.4, true), (0.9, false)]).table();
        assert_eq!(&*drawn.terminal(false), "  a & b  1.4   0.9  x\n  row    1.4  0.9?  -\n");
    }

    #[test]
    fn a_cell_has_its_number_its_words_and_no_colour_while_undecided() {
        let drawn = map(&[(1.4, true), (0.9, false)]).draw(SvgDestination::File);
        let cells: Vec<&str> = drawn.split("<g role=\"cell\"").skip(1).collect();
        assert_eq!(cells.len(), 3);
        assert!(
            cells[0].contains("&lt;1.4&gt;") && cells[0].contains(">1.4</text>"),
            "{}",
            cells[0]
        );
        assert!(cells[1].contains(">0.9?</text>"), "{}", cells[1]);
        assert!(cells[0].contains("fill:#") && cells[1].contains("fill:none"), "{drawn}");
        assert!(!drawn.contains("var(--"), "a file has no style sheet");
    }
}
