//! Which built-ins a script's text can use, so that its context has only those: creating the built-ins of a context
//! takes most of the time of a short run.
//!
//! A built-in is left out when the text does not contain its name and has no other way to reach it. Computed names
//! reach globals only through the global object, and that only through `this` or `globalThis`; with either, or with
//! an escape that may hide a name, all built-ins are there. So a script cannot detect it, except by `"con" +
//! "structor"` of an error.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) date: bool,
    pub(crate) regexp: bool,
    pub(crate) map_set: bool,
    pub(crate) typed_arrays: bool,
    pub(crate) proxy: bool,
    pub(crate) promise: bool,
    /// `more.js`
    pub(crate) more: bool,
    /// The global `__`.
    pub(crate) short: bool,
    /// Bits for `language.js`: 1 `Error`, 2 its kinds, 4 `ErrorCodes`, 8 what must be removed, 16 `bind`, 32 weak
    /// collections. Zero: not needed.
    pub(crate) language: u32,
}

/// Parts of all names that `more.js` adds.
const MORE: &[&str] = &[
    "Documents",
    "ttachment",
    "filter",
    "map",
    "pluck",
    "flatten",
    "unwind",
    "sortBy",
    "chain",
    "spatial",
    "console",
    "Definition",
    "Own",
    "Reflect",
];

impl Needs {
    pub(crate) const ALL: Needs = Needs {
        date: true,
        regexp: true,
        map_set: true,
        typed_arrays: true,
        proxy: true,
        promise: true,
        more: true,
        short: true,
        language: 63,
    };

    pub(crate) fn of(text: &str) -> Needs {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if has(&["this", "globalThis", "\\u", "\\x"]) {
            return Needs::ALL;
        }
        let typed_arrays = has(&["8Array", "16Array", "32Array", "64Array", "ClampedArray", "ArrayBuffer"])
            || has(&["DataView", "Atomics"]);
        let errors = has(&["Error", "constructor"]);
        let kinds =
            errors && has(&["TypeE", "RangeE", "ReferenceE", "SyntaxE", "EvalE", "URIE", "constructor"]);
        let absent = typed_arrays || has(&["queueMicrotask"]);
        let computes_names = may_compute_names(text);
        let binds = computes_names || has(&["bind", "Reflect", "Own"]);
        let weak = has(&["Weak"]);
        let bits = [(errors, 1), (kinds, 2), (has(&["ErrorCodes"]), 4), (absent, 8), (binds, 16), (weak, 32)];
        Needs {
            date: has(&["Date"]),
            regexp: has(&["RegExp", "match", "search"]) || may_have_pattern(text),
            map_set: has(&["Map", "Set", "Weak"]),
            typed_arrays,
            proxy: has(&["Proxy"]),
            promise: has(&["Promise", "async", "await", "Async", "import"]),
            more: computes_names || has(MORE),
            short: has(&["__"]),
            language: bits.iter().filter(|(needed, _)| *needed).map(|(_, bit)| bit).sum(),
        }
    }
}

/// Whether a member may be read by a name that is not in the text: a bracket with anything but a number. Array
/// literals of texts also count.
fn may_compute_names(text: &str) -> bool {
    let after = text.split('[').skip(1).map(|rest| rest.trim_start().bytes().next());
    after.flatten().any(|byte| !(byte.is_ascii_digit() || matches!(byte, b']' | b'{' | b'[' | b'-')))
}

/// Whether there is a slash that neither begins or ends a comment nor is inside of a string. Where strings cannot be
/// recognised by their quotes, any slash counts.
fn may_have_pattern(text: &str) -> bool {
    if text.contains('`') || text.contains("<!--") || text.contains("-->") {
        return text.contains('/');
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match (byte, bytes.get(at + 1)) {
            (b'/', Some(b'/')) => text[at..].find('\n').map_or(bytes.len(), |length| at + length),
            (b'/', Some(b'*')) => text[at + 2..].find("*/").map_or(bytes.len(), |length| at + length + 4),
            (b'/', _) => return true,
            (b'"' | b'\'', _) => after_string(bytes, at),
            _ => at + 1,
        };
    }
    false
}

fn after_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            // An unfinished string is a syntax error; the rest is not run.
            b'\n' => return at,
            byte if *byte == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for text in [
            "x.replace(/a/g, '')",
            "a / b",
            "`${/x/}`",
            "'a' /* b */ + /c/",
            "/'/.test(\"'\")",
            "<!-- it's\n/a/",
        ] {
            assert!(Needs::of(text).regexp, "{text}");
        }
        for text in
            ["", "f('/docs/')", "// a/b\nf()", "/* a / b */ f(\"it's /\")", "f('\\'/')", "f()//", "f()/*"]
        {
            assert!(!Needs::of(text).regexp, "{text}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(Needs::of("function () { return this }"), Needs::ALL);
        assert_eq!(Needs::of("globalThis['M' + 'ap']"), Needs::ALL);
        assert_eq!(Needs::of("new M\\u0061p()"), Needs::ALL);
        assert_eq!(Needs::of("throw new Error(1, 'x')").language, 1);
        assert_eq!(Needs::of("throw new TypeError(1, 'x')").language, 3);
        assert_eq!(Needs::of("ErrorCodes.Conflict").language, 5);
        let plain = Needs::of("function (a) { getContext().getResponse().setBody(a) }");
        assert!(!plain.map_set && !plain.promise && !plain.more && !plain.short && plain.language == 0);
        assert!(Needs::of("function () { return __.filter }").short && Needs::ALL.short);
    }
}
