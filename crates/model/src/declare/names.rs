//! Names of declarations that programs make up.

/// A text as a name of a declaration: lower case letters, digits and `-`, at most `length_max` of them.
pub fn declaration_name(text: &str, length_max: usize) -> String {
    let mut name = String::new();
    for letter in text.chars() {
        match letter {
            'A'..='Z' => {
                if !name.is_empty() && !name.ends_with('-') {
                    name.push('-');
                }
                name.push(letter.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' => name.push(letter),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let name = name.trim_matches('-');
    let start = if name.starts_with(|letter: char| letter.is_ascii_lowercase()) { "" } else { "x" };
    format!("{start}{name}").chars().take(length_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(declaration_name("bookWriters-writerId", 64), "book-writers-writer-id");
        assert_eq!(declaration_name("9 lives", 64), "x9-lives");
        assert_eq!(declaration_name("/a/*/B_c/", 64), "a-b-c");
        assert_eq!(declaration_name("abcdef", 3), "abc");
    }
}
