//! What a sample is counted as: the group of the innermost function that has one.

use super::folded::Frame;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    SystemCalls,
    Allocator,
    Copies,
    Scripts,
    Storage,
    Sql,
    Engine,
    Http,
    Other,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Group::SystemCalls => "system calls",
            Group::Allocator => "allocator",
            Group::Copies => "copying and comparing memory",
            Group::Scripts => "scripts",
            Group::Storage => "storage",
            Group::Sql => "SQL",
            Group::Engine => "engine",
            Group::Http => "HTTP, signatures, runtime",
            Group::Other => "other",
        }
    }
}

/// What a function's name begins with, generic arguments and the like left out.
const PREFIXES: &[(&str, Group)] = &[
    ("mi_", Group::Allocator),
    ("_mi_", Group::Allocator),
    ("malloc", Group::Allocator),
    ("free", Group::Allocator),
    ("realloc", Group::Allocator),
    ("__rust_", Group::Allocator),
    ("__rustc::__r", Group::Allocator),
    ("alloc::raw_vec", Group::Allocator),
    ("__memcpy", Group::Copies),
    ("__memmove", Group::Copies),
    ("__memset", Group::Copies),
    ("__memcmp", Group::Copies),
    ("memcpy", Group::Copies),
    ("memmove", Group::Copies),
    ("JS_", Group::Scripts),
    ("js_", Group::Scripts),
    ("__JS", Group::Scripts),
    ("rquickjs", Group::Scripts),
    ("quire_script", Group::Scripts),
    ("quire_storage", Group::Storage),
    ("fjall", Group::Storage),
    ("lsm_tree", Group::Storage),
    ("quick_cache", Group::Storage),
    ("crossbeam", Group::Storage),
    ("quire_sql", Group::Sql),
    ("quire_engine", Group::Engine),
    ("quire_value", Group::Engine),
    ("quire_resource", Group::Engine),
    ("quire_model", Group::Engine),
    ("quire_profile", Group::Engine),
    ("quire_server", Group::Http),
    ("hyper", Group::Http),
    ("http", Group::Http),
    ("tokio", Group::Http),
    ("mio", Group::Http),
    ("ring", Group::Http),
    ("rustls", Group::Http),
    ("base64", Group::Http),
];

pub fn group_of(frames: &[Frame]) -> Group {
    if frames.first().is_some_and(|frame| frame.in_kernel) {
        return Group::SystemCalls;
    }
    frames.iter().find_map(|frame| group_of_function(&frame.function)).unwrap_or(Group::Other)
}

/// `<a::B as c::D>::e` counts as `a::B`.
fn group_of_function(function: &str) -> Option<Group> {
    let name = function.trim_start_matches(['<', '&', '*', '_']);
    let with_underscores = function.trim_start_matches(['<', '&', '*']);
    PREFIXES
        .iter()
        .find(|(prefix, _)| with_underscores.starts_with(prefix) || name.starts_with(prefix))
        .map(|(_, group)| *group)
}

/// The system call of a stack that ends in the kernel, or how else it got there.
pub fn system_call_of(frames: &[Frame]) -> String {
    let kernel = || frames.iter().filter(|frame| frame.in_kernel).map(|frame| frame.function.as_str());
    let call = kernel().find_map(|function| function.strip_prefix("__x64_sys_"));
    let fault = || kernel().find(|function| function.contains("page_fault")).map(|_| "page fault");
    call.or_else(fault).unwrap_or("interrupt or switch").to_owned()
}
