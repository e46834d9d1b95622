//! What is suggested for an unknown name: the known name that was probably meant.
//!
//! Every message of kurabe that asks "did you mean" is written here.

/// The candidate that was most likely meant by `word`, if one is close enough to suggest.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let length = |text: &str| text.chars().count();
    candidates
        .iter()
        // Of several that are equally close, the last one is suggested: 'ext4' for 'ext5'.
        .rev()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), *candidate)
        })
        .filter(|(distance, candidate)| *distance <= 1 + length(candidate).max(length(&word)) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean 'ext4'?`, if one of the known names is close enough to suggest.
pub fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean '{near}'?"))
}

/// The message about an unknown name, with the name that was probably meant, or else every known
/// name. `what` is a noun and its verb, such as `workload is called`.
pub fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let advice = did_you_mean(name, known).unwrap_or_else(|| match known {
        [] => "there are none".to_string(),
        _ => format!("there are {}", known.join(", ")),
    });
    format!("no {what} '{name}'; {advice}")
}

/// The same where there are hundreds of names: a list of them helps nobody.
pub fn unknown_of_many(what: &str, name: &str, known: &[&str]) -> String {
    let advice = did_you_mean(name, known).map(|advice| format!("; {advice}"));
    format!("no {what} '{name}'{}", advice.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_name_is_suggested_and_a_distant_one_is_not() {
        let known = ["Get", "Delete", "DeleteRange", "OverWrite", "ext2", "ext4", "xfs"];
        for (word, near) in [
            ("Overwrite", Some("OverWrite")),
            ("Delet", Some("Delete")),
            ("get", Some("Get")),
            ("ext5", Some("ext4")),
            ("xsf", Some("xfs")),
            ("Fsync", None),
            ("hammer", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), near, "{word}");
        }
    }

    #[test]
    fn the_message_suggests_one_name_or_lists_them_all() {
        let message = |name, known: &[&str]| unknown("workload is called", name, known);
        assert_eq!(
            message("smal", &["small", "large"]),
            "no workload is called 'smal'; did you mean 'small'?"
        );
        assert_eq!(message("x", &["ab", "cd"]), "no workload is called 'x'; there are ab, cd");
        assert_eq!(message("x", &[]), "no workload is called 'x'; there are none");
        assert_eq!(
            unknown_of_many("word is", "smal", &["small"]),
            "no word is 'smal'; did you mean 'small'?"
        );
        assert_eq!(unknown_of_many("word is", "x", &["ab; there are c"]), "no word is 'x'");
    }
}
