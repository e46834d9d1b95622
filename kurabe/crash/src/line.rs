//! A line of bytes as the workload wrote it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of a line, without its end. In JSON it is a text where it is UTF-8, and a list of numbers
/// elsewhere; it is shown with `\xNN` for a byte that is no UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(pub Vec<u8>);

impl From<&str> for Line {
    fn from(text: &str) -> Line {
        Line(text.into())
    }
}

impl From<&String> for Line {
    fn from(text: &String) -> Line {
        Line(text.as_bytes().into())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Line, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(Line(match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes(bytes) => bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        for (bytes, json, shown) in [
            (&b"a b"[..], "\"a b\"", "a b"),
            ("\u{e9}".as_bytes(), "\"\u{e9}\"", "\u{e9}"),
            (b"a\xffb", "[97,255,98]", "a\\xffb"),
            (b"", "\"\"", ""),
        ] {
            let line = Line(bytes.into());
            assert_eq!(serde_json::to_string(&line).unwrap(), json);
            assert_eq!(serde_json::from_str::<Line>(json).unwrap(), line);
            assert_eq!(line.to_string(), shown);
        }
    }
}
