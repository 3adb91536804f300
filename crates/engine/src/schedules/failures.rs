//! What a schedule failed with: the first panic of a thread that explores. The explorer itself only says that there was one.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// `None`: this thread does not explore, and its panics are printed as ever.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of this thread are kept instead of printed.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match FIRST.with_borrow(Option::is_some) {
            true => record_failure_text(&panic.to_string()),
            false => print(panic),
        }));
    });
    FIRST.set(Some(String::new()));
}

fn record_failure_text(text: &str) {
    FIRST.with_borrow_mut(|first| {
        if first.as_ref().is_some_and(String::is_empty) {
            *first = Some(text.to_owned());
        }
    });
}

/// With the place in the source.
pub(super) fn first() -> String {
    FIRST.take().unwrap_or_default()
}
