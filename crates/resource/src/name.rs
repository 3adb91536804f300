//! Rules for ids.

const NAME_LENGTH_MAX: usize = 255;
const ITEM_ID_LENGTH_MAX_BYTES: usize = 1023;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than '{length_max}' characters."
    )]
    Length { name: String, length_max: usize },
    #[error(
        "The input name '{name}' is invalid. It cannot contain the characters '/', '\\', '?' or '#', or end with a space."
    )]
    Characters { name: String },
}

/// Databases, containers, scripts, users, permissions: 1..=255 characters, none of `/ \ # ?`, no trailing space.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let length = name.chars().take(NAME_LENGTH_MAX + 1).count();
    if !(1..=NAME_LENGTH_MAX).contains(&length) {
        return Err(NameError::Length { name: name.to_owned(), length_max: NAME_LENGTH_MAX });
    }
    if name.contains(['/', '\\', '?', '#']) || name.ends_with(' ') {
        return Err(NameError::Characters { name: name.to_owned() });
    }
    Ok(())
}

/// Items: 1..=1023 bytes, any characters.
pub fn check_item_id(id: &str) -> Result<(), NameError> {
    if !(1..=ITEM_ID_LENGTH_MAX_BYTES).contains(&id.len()) {
        // The service's text: less than, not at most.
        return Err(NameError::Length { name: id.to_owned(), length_max: ITEM_ID_LENGTH_MAX_BYTES + 1 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in
            ["a", "a b", " lead", "%20", "'\"+", "ünï-日", "tab\tinside", &"x".repeat(255), &"日".repeat(255)]
        {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", &"x".repeat(256)] {
            assert_eq!(check_name(bad), Err(NameError::Length { name: bad.to_owned(), length_max: 255 }));
        }
        for bad in ["a/b", "a\\b", "a?", "#a", "a "] {
            assert_eq!(check_name(bad), Err(NameError::Characters { name: bad.to_owned() }));
        }
    }

    #[test]
    fn item_ids() {
        for good in ["a", "a/b\\c?d#e ", "\r\n", &"x".repeat(1023), &"日".repeat(341)] {
            assert_eq!(check_item_id(good), Ok(()));
        }
        for bad in ["", &"x".repeat(1024), &"日".repeat(342)] {
            assert_eq!(check_item_id(bad), Err(NameError::Length { name: bad.to_owned(), length_max: 1024 }));
        }
    }
}
