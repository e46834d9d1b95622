//! Words, numbers and marks of a program's text, with their places.
//!
//! Must not know: which words mean what. Comments (`#` to the end of the line) and white space of
//! any script separate tokens and are dropped everywhere.

use std::ops::Range;

/// What stands at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// ASCII letters and underscores.
    Word,
    /// ASCII digits.
    Digits,
    /// A single other character.
    Mark(char),
    End,
}

/// A token and the bytes of the text that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub span: Range<usize>,
}

/// The tokens of a text; the last one is always [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    // A byte order mark is not white space to Unicode, but some editors put one in front.
    let start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut rest = text[start..].char_indices().peekable();
    while let Some((place, character)) = rest.next() {
        let place = start + place;
        let mut end = place + character.len_utf8();
        let mut take_while = |belongs: fn(char) -> bool| {
            while let Some((next, character)) = rest.next_if(|&(_, next)| belongs(next)) {
                end = start + next + character.len_utf8();
            }
        };
        let kind = match character {
            '#' => {
                take_while(|character| character != '\n');
                continue;
            }
            _ if character.is_whitespace() => continue,
            'A'..='Z' | 'a'..='z' | '_' => {
                take_while(|character| character.is_ascii_alphabetic() || character == '_');
                TokenKind::Word
            }
            '0'..='9' => {
                take_while(|character| character.is_ascii_digit());
                TokenKind::Digits
            }
            mark => TokenKind::Mark(mark),
        };
        tokens.push(Token { kind, span: place..end });
    }
    tokens.push(Token { kind: TokenKind::End, span: text.len()..text.len() });
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_words_and_marks_are_separated_without_spaces() {
        let text = "10.times{New(256K);};# 注釈 } \n\u{3000}<5%>";
        let shown: Vec<&str> = tokens(text).iter().map(|token| &text[token.span.clone()]).collect();
        assert_eq!(
            shown,
            [
                "10", ".", "times", "{", "New", "(", "256", "K", ")", ";", "}", ";", "<", "5", "%",
                ">", ""
            ]
        );
    }
}
