//! The texts in quotes of a source file: what a user may read of it.

/// The texts in quotes of a source file before its tests, each with its line; `stand_in` in the place of
/// each placeholder.
pub fn literals(source: &str, stand_in: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap();
    let (mut found, mut line) = (Vec::new(), 1);
    let mut letters = source.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => line += 1,
            '/' if letters.peek() == Some(&'/') => {
                while letters.next_if(|letter| *letter != '\n').is_some() {}
            }
            // A quote in quotes, as '"', is no beginning of a text.
            '\'' => {
                let escaped = letters.next_if_eq(&'\\').is_some();
                if letters.next_if_eq(&'"').is_some() || escaped {
                    letters.next();
                }
            }
            '"' => {
                let (begin, mut text, mut depth) = (line, String::new(), 0);
                while let Some(letter) = letters.next_if(|letter| *letter != '"') {
                    match letter {
                        '\\' => match letters.next() {
                            Some('\n') => {
                                line += 1;
                                text.push(' ');
                            }
                            Some('n') => text.push('\n'),
                            _ => text.push(' '),
                        },
                        '\n' => {
                            line += 1;
                            text.push('\n');
                        }
                        '{' => {
                            if depth == 0 {
                                text.push_str(stand_in);
                            }
                            depth += 1;
                        }
                        '}' => depth -= 1,
                        _ if depth == 0 => text.push(letter),
                        _ => {}
                    }
                }
                letters.next();
                found.push((begin, text));
            }
            _ => {}
        }
    }
    found
}
