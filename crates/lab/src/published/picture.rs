//! How a published table is drawn: as bars, where it was a bar graph or can be one, or as curves.
//!
//! Only what is drawn is said here, by the table's own rows and columns; how is the report's matter.

use serde::{Deserialize, Serialize};

use crate::contender::nearest;
use crate::study::{StudyError, error};

/// A picture as written in a study file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PictureText {
    /// What is drawn.
    pub draw: Draw,
    /// Of bars: whether each row or each column has a picture of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// Heads of the rows or columns that are drawn; all by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<String>,
    /// Of bars: head of the one that counts as 1, the published number and the measured one each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// A value that the publication names in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelText>,
}

/// A level as written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LevelText {
    /// Where, in the table's unit.
    pub at: f64,
    /// What it is.
    pub text: String,
}

/// What is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// A bar for each number, published ones beside measured ones.
    #[default]
    Bars,
    /// A curve over the columns for each row.
    Curves,
}

/// What has a picture of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Each {
    /// Each row.
    Row,
    /// Each column.
    Column,
}

/// A picture, validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// What is drawn.
    pub draw: Draw,
    /// Of bars: what has a picture of its own. Of curves: rows, each a curve.
    pub each: Each,
    /// Places of the rows or columns that are drawn.
    pub of: Vec<usize>,
    /// Of bars: place, along the other direction, of the one that counts as 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<usize>,
    /// A value that the publication names in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

/// A value that the publication names in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Where, in the table's unit.
    pub at: f64,
    /// What it is.
    pub text: String,
}

impl PictureText {
    /// Validates the picture of a table with these heads. `field` is its place in the study file.
    pub(super) fn resolve(
        &self,
        field: &str,
        rows: &[&str],
        columns: &[&str],
    ) -> Result<Picture, StudyError> {
        let each = match (self.draw, self.each) {
            (Draw::Bars, Some(each)) => each,
            (Draw::Bars, None) => {
                return Err(error(format!("{field}.each"), "is missing; say row or column"));
            }
            (Draw::Curves, None) if self.reference.is_none() => Each::Row,
            (Draw::Curves, _) => {
                return Err(error(field, "takes each and reference for bars only"));
            }
        };
        let (lines, across) = match each {
            Each::Row => (rows, columns),
            Each::Column => (columns, rows),
        };
        let of = match self.of.is_empty() {
            true => (0..lines.len()).collect(),
            false => {
                let place = |head: &String| place(&format!("{field}.of"), head, lines);
                self.of.iter().map(place).collect::<Result<_, _>>()?
            }
        };
        let reference = self.reference.as_ref();
        let reference =
            reference.map(|head| place(&format!("{field}.reference"), head, across)).transpose()?;
        if let Some(level) = self.level.as_ref().filter(|level| !level.at.is_finite()) {
            return Err(error(format!("{field}.level.at"), format!("{} is no place", level.at)));
        }
        let level = self.level.as_ref();
        let level = level.map(|level| Level { at: level.at, text: level.text.clone() });
        Ok(Picture { draw: self.draw, each, of, reference, level })
    }
}

fn place(field: &str, head: &str, heads: &[&str]) -> Result<usize, StudyError> {
    heads.iter().position(|known| *known == head).ok_or_else(|| {
        error(
            field,
            match nearest(head, heads) {
                Some(near) => format!("nothing has the head '{head}'; did you mean '{near}'?"),
                None => format!("nothing has the head '{head}'; there are {}", heads.join(", ")),
            },
        )
    })
}
