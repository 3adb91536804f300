//! The data of a run: items, values of expressions, rows, and their form in temporary files.

mod datum; // the value of an expression
mod item; // the input of a query
mod key_index; // positions in a list, by keys
mod linked; // items of other containers
mod record; // values in temporary files
mod row; // the output of a query

pub(crate) use self::datum::{Datum, Scalar, ValueRef, approximate_size};
pub use self::item::{Item, SystemProperties};
pub(crate) use self::key_index::KeyIndex;
pub(crate) use self::linked::LinkedArray;
pub use self::linked::LinkedItem;
pub(crate) use self::record::{Fields, invalid_record, put_double, put_number, put_value};
pub use self::row::Row;
pub(crate) use self::row::RowForm;
