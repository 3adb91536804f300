//! What a run works on, in place: items that come in, values of expressions, rows that go out, and their form in
//! temporary files.

mod datum; // what expressions evaluate to
mod item; // what comes in
mod places; // places in a list, by keys
mod record; // values in temporary files
mod row; // what comes out

pub(crate) use self::datum::{Datum, Scalar, View, approximate_size};
pub use self::item::{Item, SystemProperties};
pub(crate) use self::places::Places;
pub(crate) use self::record::{Fields, not_a_record, put_double, put_number, put_value};
pub use self::row::Row;
pub(crate) use self::row::Shape;
