//! What an id may look like.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than '{length_max}' characters.")]
    Length { name: String, length_max: usize },
    #[error("The input name '{name}' is invalid. It cannot contain the characters '/', '\\', '?' or '#', or end with a space.")]
    Characters { name: String },
}

/// Databases, containers, scripts, users, permissions: 1..=255 characters, none of `/ \ # ?`, no trailing space.
pub fn check_name(_name: &str) -> Result<(), NameError> {
    todo!()
}

/// Items: 1..=1023 bytes, any characters.
pub fn check_item_id(_id: &str) -> Result<(), NameError> {
    todo!()
}
