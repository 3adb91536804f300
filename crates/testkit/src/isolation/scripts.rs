//! The scripts that run inside the server.

/// Goes through steps over lists; answers what each of them saw before it changed anything.
pub const APPEND: &str = include_str!("scripts/append.js");

/// Post-trigger: appends to one more list, and answers what it saw there.
pub const ALSO_AFTER: &str = include_str!("scripts/also_after.js");

pub(super) const PROCEDURES: &[(&str, &str)] = &[
    ("append", APPEND),
    ("transfer", include_str!("scripts/transfer.js")),
    ("audit", include_str!("scripts/audit.js")),
];

/// With their types.
pub(super) const TRIGGERS: &[(&str, &str, &str)] = &[
    ("also_before", "Pre", include_str!("scripts/also_before.js")),
    ("also_after", "Post", ALSO_AFTER),
    ("pay", "Post", include_str!("scripts/pay.js")),
];
