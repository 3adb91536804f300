//! From text to the syntax tree, and back.

pub mod ast; // the syntax tree, with spans
pub(crate) mod diagnostic; // the one table of error codes
pub(crate) mod lexer; // text to tokens
pub(crate) mod parser; // recursive descent, one function per grammar rule
pub(crate) mod print; // syntax back to text
