//! Small words for numbers and lists, the same wherever they stand.

/// `1 block`, `5 blocks`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `458,344`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let places = digits.chars().enumerate();
    places.fold(String::new(), |mut text, (place, digit)| {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
        text
    })
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(words: &[String]) -> String {
    joined(words, "and")
}

/// `a`, `a or b`, `a, b or c`.
pub fn any_of(words: &[String]) -> String {
    joined(words, "or")
}

fn joined(words: &[String], last_by: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} {last_by} {last}", rest.join(", ")),
    }
}

/// A share in percent with two digits that count: `0.4 %`, `6.7 %`, `22 %`.
pub fn share_text(share: f64) -> String {
    let value = share * 100.0;
    let magnitude = if value > 0.0 { value.log10().floor() } else { 0.0 };
    let digits = (1.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
    } else {
        format!("{text} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_parted() {
        assert_eq!([0, 999, 10_000, 1_234_567].map(thousands), ["0", "999", "10,000", "1,234,567"]);
    }

    #[test]
    fn shares_keep_two_digits() {
        assert_eq!(
            [0.004, 0.0667, 0.2222, 1.0, 2.5, 0.00001].map(share_text),
            ["0.4 %", "6.7 %", "22 %", "100 %", "250 %", "0.001 %"]
        );
    }
}
