//! What a result says, as a list of blocks, and its renderers: text for a terminal and Markdown
//! here, HTML in [`crate::html`].
//!
//! Blocks hold text as it was found, which may be a stranger's. Invariant: only a renderer escapes,
//! and every renderer escapes everything.

use std::fmt::Write;

use trust::text;

use crate::chart::Chart;
use crate::heat::HeatMap;
use crate::table::{Screen, Table, Tone};
use crate::text::{distinct, grouped, list, prose};

/// One piece of a document.
#[derive(Debug, Clone)]
pub enum Block {
    Heading {
        /// 1 for the title, 2 for its parts and so on.
        level: u8,
        /// Identifier, unique in a page; none where it is empty.
        id: String,
        text: String,
    },
    /// The sentence that a reader came for.
    Answer(String),
    Text(String),
    Table {
        /// What it holds, for a reader who does not see it.
        caption: String,
        table: Table,
    },
    /// A chart, for the page alone: its numbers stand in tables.
    Chart(Chart),
    /// A table whose colours tell its values; a plain table where there is no page.
    Map(HeatMap),
    /// What may change the reader's decision.
    Warning(String),
    /// What changes no decision and must be known.
    Note(String),
    /// Lines as they were typed or printed.
    Code(String),
    /// What can be folded away in a page.
    Fold {
        /// What is below.
        summary: String,
        /// Whether it is unfolded at first.
        open: bool,
        blocks: Vec<Block>,
    },
}

impl Block {
    pub fn heading(level: u8, id: impl Into<String>, text: impl Into<String>) -> Block {
        Block::Heading { level, id: id.into(), text: text.into() }
    }

    pub fn table(caption: impl Into<String>, table: Table) -> Block {
        Block::Table { caption: caption.into(), table }
    }

    pub fn charts(charts: impl IntoIterator<Item = Chart>) -> Vec<Block> {
        charts.into_iter().map(Block::Chart).collect()
    }

    /// What is folded away until a reader asks for it.
    pub fn fold(summary: impl Into<String>, blocks: Vec<Block>) -> Block {
        Block::Fold { summary: summary.into(), open: false, blocks }
    }
}

/// The charts of a document, in order.
pub fn charts_of(blocks: &[Block]) -> Vec<&Chart> {
    fn of(block: &Block) -> Vec<&Chart> {
        match block {
            Block::Chart(chart) => vec![chart],
            Block::Fold { blocks, .. } => charts_of(blocks),
            _ => Vec::new(),
        }
    }
    blocks.iter().flat_map(of).collect()
}

/// Takes what several parts say alike out of them, and says it once, with the names of the parts where
/// it is not all.
pub fn said_once(parts: &mut [(String, Vec<Block>)]) -> Vec<Block> {
    let of = |(name, blocks): &(String, Vec<Block>)| {
        let mut said = Vec::new();
        paragraphs(blocks, &mut said);
        distinct(said).into_iter().map(|said| (said, name.clone())).collect::<Vec<_>>()
    };
    let mut shared = grouped(parts.iter().flat_map(of));
    shared.retain(|(_, names)| names.len() > 1);
    for (_, blocks) in &mut *parts {
        take_out(blocks, &|block| {
            shared.iter().any(|(said, _)| paragraph(block).as_ref() == Some(said))
        });
    }
    let all = parts.len();
    let one = |((kind, text), names): ((usize, String), Vec<String>)| {
        PARAGRAPHS[kind](if names.len() == all {
            text
        } else {
            format!("{}: {text}", list(&names))
        })
    };
    shared.into_iter().map(one).collect()
}

const PARAGRAPHS: [fn(String) -> Block; 3] = [Block::Text, Block::Warning, Block::Note];

/// The kind and the text of a paragraph.
fn paragraph(block: &Block) -> Option<(usize, String)> {
    match block {
        Block::Text(text) => Some((0, text.clone())),
        Block::Warning(text) => Some((1, text.clone())),
        Block::Note(text) => Some((2, text.clone())),
        _ => None,
    }
}

fn paragraphs(blocks: &[Block], said: &mut Vec<(usize, String)>) {
    for block in blocks {
        said.extend(paragraph(block));
        if let Block::Fold { blocks, .. } = block {
            paragraphs(blocks, said);
        }
    }
}

fn take_out(blocks: &mut Vec<Block>, is_out: &dyn Fn(&Block) -> bool) {
    blocks.retain(|block| !is_out(block));
    for block in blocks {
        if let Block::Fold { blocks, .. } = block {
            take_out(blocks, is_out);
        }
    }
}

/// The document as text for a terminal, without its charts.
pub fn terminal(blocks: &[Block], colour: bool) -> Screen {
    let mut out = Screen::new(colour);
    write_terminal(&mut out, blocks);
    out
}

/// Whether there is something of it where no charts are.
fn has_text(block: &Block) -> bool {
    match block {
        Block::Chart(_) => false,
        Block::Fold { blocks, .. } => blocks.iter().any(has_text),
        _ => true,
    }
}

fn write_terminal(out: &mut Screen, blocks: &[Block]) {
    let is_remark = |block: &Block| matches!(block, Block::Warning(_) | Block::Note(_));
    let is_answer = |block: &Block| matches!(block, Block::Answer(_));
    let mut before: Option<&Block> = None;
    for block in blocks.iter().filter(|block| has_text(block)) {
        let is_first = before.is_none() && out.is_empty();
        let after_heading = matches!(before, Some(Block::Heading { .. }));
        let in_a_list = is_remark(block) && before.is_some_and(is_remark)
            || is_answer(block) && before.is_some_and(is_answer);
        if !is_first && !after_heading && !in_a_list {
            let _ = writeln!(out);
        }
        match block {
            Block::Heading { level, text, .. } => {
                let lead = if *level > 2 { "  " } else { "" };
                strong(out, lead, text);
            }
            Block::Answer(text) => strong(out, "  ", text),
            Block::Text(text) => drop(write!(out, "{}", prose("  ", text))),
            Block::Table { table, .. } => out.append(&table.terminal(out.colour())),
            Block::Chart(_) => {}
            Block::Map(map) => out.append(&map.table().terminal(out.colour())),
            Block::Warning(text) => remark(out, "Warning:", Tone::Uncertain, text),
            Block::Note(text) => remark(out, "Note:", Tone::Faint, text),
            Block::Code(lines) => {
                for line in lines.lines() {
                    let _ = writeln!(out, "    {}", text::line(line));
                }
            }
            Block::Fold { summary, blocks, .. } => {
                strong(out, "  ", summary);
                write_terminal(out, blocks);
            }
        }
        before = Some(block);
    }
}

/// A paragraph in bold letters.
fn strong(out: &mut Screen, lead: &str, text: &str) {
    for line in prose(lead, text).lines() {
        let words = line.trim_start();
        let _ = write!(out, "{}", &line[..line.len() - words.len()]);
        out.paint(words, Tone::Strong);
        let _ = writeln!(out);
    }
}

fn remark(out: &mut Screen, word: &str, tone: Tone, text: &str) {
    let said = prose("  ", &format!("{word} {text}"));
    let _ = write!(out, "  ");
    out.paint(word, tone);
    let _ = write!(out, "{}", &said[2 + word.len()..]);
}

/// The document as Markdown, without its charts.
pub fn markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        let said = match block {
            Block::Heading { level, text, .. } => {
                format!("{} {}\n", "#".repeat(usize::from(*level)), text::markdown(text))
            }
            Block::Answer(text) => format!("**{}**\n", text::markdown(text)),
            Block::Text(said) | Block::Code(said) => format!("{}\n", text::markdown(said)),
            Block::Table { table, .. } => table.markdown(),
            Block::Chart(_) => continue,
            Block::Map(map) => map.table().markdown(),
            Block::Warning(text) => format!("- **Warning:** {}\n", text::markdown(text)),
            Block::Note(text) => format!("- Note: {}\n", text::markdown(text)),
            Block::Fold { summary, blocks, .. } => {
                let inner = markdown(blocks);
                if inner.is_empty() {
                    continue;
                } else {
                    format!("**{}**\n\n{inner}", text::markdown(summary))
                }
            }
        };
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&said);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<b>\u{1b}[2J| x\n# y `z` ://";

    fn every_block() -> Vec<Block> {
        let mut table = Table::new(&["name", HOSTILE]);
        table.rows.push(vec![HOSTILE.into(), HOSTILE.into()]);
        let text = || HOSTILE.to_string();
        let all = vec![
            Block::heading(2, "", HOSTILE),
            Block::Answer(text()),
            Block::Text(text()),
            Block::table(HOSTILE, table),
            Block::Warning(text()),
            Block::Note(text()),
            Block::Code(text()),
        ];
        vec![Block::heading(1, "", HOSTILE), Block::fold(HOSTILE, all)]
    }

    #[test]
    fn every_renderer_escapes_every_block() {
        let blocks = every_block();
        let screen = terminal(&blocks, false);
        assert!(!screen.contains('\u{1b}') && screen.contains("\\u{1b}[2J"), "{}", &*screen);
        let text = markdown(&blocks);
        assert!(!text.contains(['<', '\u{1b}']) && !text.contains("://"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("# y")), "{text}");
        let page = crate::html::render(&blocks).body;
        assert!(!page.contains("<b>\\u") && page.contains("&lt;b&gt;"), "{page}");
    }

    #[test]
    fn remarks_stand_together_and_other_blocks_apart() {
        let blocks = [
            Block::heading(2, "", "part"),
            Block::Answer("ext4 is first.".into()),
            Block::Warning("one".into()),
            Block::Note("two".into()),
            Block::Text("end".into()),
        ];
        assert_eq!(
            &*terminal(&blocks, false),
            "part\n  ext4 is first.\n\n  Warning: one\n  Note: two\n\n  end\n"
        );
        assert!(terminal(&blocks, true).contains("\u{1b}[1mext4 is first.\u{1b}[0m"));
        assert_eq!(
            markdown(&blocks),
            "## part\n\n**ext4 is first.**\n\n- **Warning:** one\n\n- Note: two\n\nend\n"
        );
    }

    #[test]
    fn a_fold_of_charts_alone_leaves_no_heading_in_markdown() {
        assert_eq!(markdown(&[Block::fold("More charts of this kind", Vec::new())]), "");
    }
}
