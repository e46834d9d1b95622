//! Results whose every text a stranger wrote: no text becomes markup, a link, a formula or a command
//! to the terminal, whichever field it stands in. A harmless twin, of which every dangerous
//! character is a letter, tells how many elements there are to be.

mod harness;

use std::collections::BTreeSet;

use harness::hostile::{Files, files, matrix, rich, write};
use report::across::{self, Across};
use report::source::ResultSource;
use report::{answer, details, document, export, page};
use serde_json::Value;

/// One for each way out of a text.
const PAYLOADS: &[&str] = &[
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "--> ]]> <![CDATA[",
    "\"><img src=x onerror=alert(1)>",
    "' onload='alert(1)",
    "\" onmouseover=\"alert(1)",
    "</title></style></pre></table></svg><svg onload=alert(1)>",
    "</td></tr></details></section><iframe srcdoc=x>",
    "&lt;b&gt;&#60;i&#62;&amp;",
    "a\u{2028}b\u{2029}c",
    "\u{1b}[5m\u{9b}5m\u{202e}\u{2066}\u{200b}\u{7}\u{8}\u{0}",
    "a | b | c",
    "x\n\n# heading\n\n- item\n\n| a |\n| - |\n| b |\n",
    "![i](http://x/y.png) [l](javascript:x) <http://x>",
    "`code` **bold** _it_ ~~s~~ \\` \\| \\",
    "[a]: http://x\n[a]",
    "=HYPERLINK(\"http://x\",\"y\")",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1+1",
    "-1+1\t\r",
];

fn harmless(payload: &str) -> String {
    payload
        .chars()
        .map(|c| if c.is_alphanumeric() || " \n,:".contains(c) { c } else { 'x' })
        .collect()
}

/// The files with each of these texts, wherever it stands, between two payloads.
fn with(files: &Files, texts: &BTreeSet<String>, payload: &str) -> Files {
    let mut changed = files.clone();
    for (name, bytes) in changed.iter_mut().filter(|(name, _)| name.contains(".json")) {
        let mut lines = String::new();
        for line in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            let mut value = line.unwrap_or_else(|error| panic!("{name}: {error}"));
            change(&mut value, &mut |found| {
                if texts.contains(found) {
                    *found = format!("{payload}{found}{payload}");
                }
            });
            lines += &format!("{value}\n");
        }
        *bytes = lines.into_bytes();
    }
    changed
}

fn read(files: &Files) -> Option<ResultSource> {
    let home = tempfile::Builder::new().prefix("test-of-kurabe-report-").tempdir().unwrap();
    write(home.path(), files);
    ResultSource::read(home.path()).ok()
}

/// The texts that may be any: without the words, such as `completed`, that a result must have.
fn free_texts(files: &Files) -> BTreeSet<String> {
    let whole = read(files).unwrap().records.len();
    let is_free = |text: &String| {
        let changed = read(&with(files, &[text.clone()].into(), "x"));
        changed.is_some_and(|source| source.records.len() == whole)
    };
    texts(files).into_iter().filter(is_free).collect()
}

/// Does something with every text of a value.
fn change(value: &mut Value, act: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => act(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, act)),
        Value::Object(fields) => fields.iter_mut().for_each(|(_, item)| change(item, act)),
        _ => {}
    }
}

fn texts(files: &Files) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for bytes in files.iter().filter(|(name, _)| name.contains(".json")).map(|(_, bytes)| bytes) {
        for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
            change(&mut value.unwrap(), &mut |text| {
                let _ = found.insert(text.clone());
            });
        }
    }
    found
}

/// What remains of a page without its texts and values: elements with the names of their
/// attributes. Fails where a browser could read it in another way.
fn skeleton(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let words = &rest[..at];
        assert!(
            !words.contains(['\u{0}', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}']),
            "{words:?}"
        );
        let (mut tag, mut quoted, mut end) = (String::new(), false, None);
        for (place, character) in rest[at..].char_indices() {
            match character {
                '"' => quoted = !quoted,
                '>' if !quoted => {
                    end = Some(at + place + 1);
                    break;
                }
                _ if quoted => {
                    assert!(!"<>\u{1b}".contains(character), "{}", &rest[at..at + place])
                }
                '\'' | '`' => panic!("{}", &rest[at..at + place]),
                _ => tag.push(character),
            }
        }
        rest = &rest[end.unwrap_or_else(|| panic!("an element does not end: {tag}"))..];
        let is_script = tag.starts_with("<script");
        found.push(tag);
        if is_script {
            let (script, after) = rest.split_once("</script>").unwrap();
            // That of the charts is data; the others are the page's own, letter by letter.
            if script.starts_with('[') {
                assert!(!script.contains(['<', '\u{2028}', '\u{2029}']), "{script}")
            } else {
                found.push(format!("{} bytes", script.len()))
            }
            rest = after;
        }
    }
    found
}

/// The marks of Markdown that are none of the text, line by line.
fn marks(text: &str) -> Vec<String> {
    assert!(!text.contains(['<', '>', '\u{1b}', '\u{202e}', '\r', '\t']), "{text}");
    assert!(!text.contains("://") && !text.contains("www."), "{text}");
    let of = |line: &str| {
        let mut kept = String::new();
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => drop(letters.next()),
                '&' => drop(letters.find(|letter| *letter == ';')),
                '*' | '_' | '`' | '~' | '#' | '!' | '|' => kept.push(letter),
                // A bracket links only by what follows its end.
                ']' if letters.as_str().starts_with(['(', '[', ':']) => kept.push(letter),
                _ => {}
            }
        }
        kept
    };
    text.lines().map(of).collect()
}

/// Numbers of fields, record by record; fails where a field would be computed.
fn fields(text: &str) -> Vec<usize> {
    let (mut counts, mut count, mut quoted, mut field) = (Vec::new(), 1, false, String::new());
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' | '\n' if !quoted => {
                let computed = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
                assert!(!computed || field.parse::<f64>().is_ok(), "{field}");
                field.clear();
                count += 1;
                if letter == '\n' {
                    counts.push(std::mem::replace(&mut count, 1));
                }
            }
            _ => field.push(letter),
        }
    }
    counts
}

/// All that is made of a result, without its texts; None where the result is refused.
fn bones(files: &Files) -> Option<Vec<Vec<String>>> {
    let sources = [read(files)?, read(files)?];
    let across = Across::new(&sources);
    let source = &sources[0];
    let ResultSource { records, analysis, .. } = source;
    let mut bones = vec![skeleton(&page::page(source, &[]))];
    for (name, picture) in page::pictures(source, &[]) {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{name}");
        bones.push(skeleton(&picture));
    }
    let markdown = export::markdown(source);
    bones.push(marks(&markdown));
    let overhead = export::overhead_csv(analysis);
    for csv in [Some(export::csv(records)), export::latencies_csv(analysis), overhead] {
        let counts = fields(&csv.unwrap_or_default());
        bones.push(counts.iter().map(usize::to_string).collect());
    }
    for colour in [false, true] {
        let screens = [
            document::terminal(&answer::answer(source), colour),
            document::terminal(&details::details(source), colour),
            document::terminal(&across::document(&across), colour),
        ];
        for screen in screens {
            let own = ["0", "1", "2", "31", "32", "33"].map(|code| format!("\u{1b}[{code}m"));
            let left = own.iter().fold(screen.to_string(), |text, code| text.replace(code, ""));
            assert_eq!(trust::text::terminal(&left), left);
            assert!(colour || *left == *screen);
        }
    }
    bones.push(skeleton(&across::page(&across)));
    Some(bones)
}

#[track_caller]
fn same_bones(base: &Files, texts: &BTreeSet<String>, payload: &str) -> bool {
    let hostile = bones(&with(base, texts, payload));
    let twin = bones(&with(base, texts, &harmless(payload)));
    let said = |texts: &BTreeSet<String>| format!("{payload:?} in {texts:?}");
    assert_eq!(hostile.is_some(), twin.is_some(), "{}", said(texts));
    let (Some(hostile), Some(twin)) = (hostile, twin) else { return false };
    assert_eq!(hostile.len(), twin.len(), "{}", said(texts));
    for (hostile, twin) in hostile.iter().zip(&twin) {
        let differs = hostile.iter().zip(twin).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{}", said(texts));
        assert_eq!(hostile.len(), twin.len(), "{}", said(texts));
    }
    true
}

/// Three payloads in one, of which the first is one that matters where a text begins.
fn payloads() -> impl Iterator<Item = String> {
    let third = PAYLOADS.len().div_ceil(3);
    (0..third).map(move |place| {
        let from_end = PAYLOADS.iter().rev().skip(place).step_by(third);
        from_end.copied().collect()
    })
}

#[test]
fn no_payload_in_all_fields_at_once_becomes_more_than_text() {
    for (made, every) in [(rich(), 1), (matrix(), 3)] {
        let base = files(&made);
        let texts = free_texts(&base);
        assert!(texts.len() >= 20, "{texts:?}");
        for payload in payloads().step_by(every) {
            assert!(same_bones(&base, &texts, &payload), "{payload:?} is refused");
        }
    }
}

/// A word that a result must have stands in what is said of the damage once it is another.
#[test]
fn no_payload_in_a_word_of_ours_becomes_more_than_text() {
    let base = files(&rich());
    let free = free_texts(&base);
    let payload: String = [0, 3, 4, 10, 13, 16].map(|place| PAYLOADS[place]).concat();
    let all = texts(&base);
    let words = all.difference(&free);
    let read = words.filter(|word| same_bones(&base, &[word.to_string()].into(), &payload)).count();
    assert!(read >= 8, "only {read} of {} texts", all.len());
}
