//! Whether runs of a script may share a context: whether its text could notice that the built-ins there are frozen.
//!
//! It could notice in three ways. It adds a property to a built-in or replaces one; it assigns to a property of its own object
//! that a prototype has under the same name, which JavaScript ignores when that one is frozen; it asks. A text that
//! could do any of it has a context of its own. The rules are about words and never about values, so they are wider than needed:
//! 1. no word of [`FORBIDDEN`] and [`FORBIDDEN_IN_STRINGS`]: what leads to prototypes, to the global object or to code made of text;
//! 2. a built-in is called, constructed or compared with, and goes nowhere else: so no variable holds one;
//! 3. no assignment to a property whose name a frozen object has, and none to a computed name.
//!
//! What a script gets hold of in spite of the rules, as by `"con" + "structor"` or a method of its own array, is frozen all the
//! same. So the rules are for scripts that are to work as ever, not against those that attack.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::shared_realm::FrozenNames;
use super::tokens::{Token, tokens};

const FORBIDDEN: &[&str] = &[
    "this",
    "globalThis",
    "super",
    "class",
    "with",
    "import",
    "eval",
    "Function",
    "Reflect",
    "Proxy",
    "Symbol",
    "assign",
    "caller",
    "callee",
    "defineProperty",
    "defineProperties",
    "setPrototypeOf",
    "getPrototypeOf",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "isFrozen",
    "isSealed",
    "isExtensible",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "prepareStackTrace",
    "stackTraceLimit",
    "captureStackTrace",
];
/// Names that lead to built-ins, also by `value["name"]`.
const FORBIDDEN_IN_STRINGS: &[&str] = &["prototype", "__proto__", "constructor"];
/// Globals that are no objects, and the one that every run has of its own.
const FREE_GLOBALS: &[&str] = &["undefined", "NaN", "Infinity", "__"];
/// Words of a pattern that is looked through.
const PATTERN_TOKENS_MAX: usize = 1000;
const ASSIGNMENTS: &[&str] = &[
    "=", "+=", "-=", "*=", "/=", "%=", "**=", "<<=", ">>=", ">>>=", "&=", "|=", "^=", "&&=", "||=", "??=",
    "++", "--",
];

/// Of one script.
#[derive(Debug)]
pub(crate) struct Shareable {
    text: String,
    decided: OnceLock<bool>,
    forbidden: AtomicBool,
}

impl Shareable {
    /// A program adds its declarations to the globals, so only the text of a function qualifies.
    pub(crate) fn new(text: &str, is_function: bool) -> Shareable {
        let text = if is_function { text.to_owned() } else { String::new() };
        Shareable { text, decided: OnceLock::new(), forbidden: AtomicBool::new(!is_function) }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.text.len()
    }

    /// Without looking at the text.
    pub(crate) fn may_be(&self) -> bool {
        !self.forbidden.load(Relaxed) && self.decided.get() != Some(&false)
    }

    pub(crate) fn is(&self, names: &FrozenNames, is_one_expression: impl FnOnce(&str) -> bool) -> bool {
        let decide = || is_shareable(&self.text, names) && is_one_expression(&self.text);
        self.may_be() && *self.decided.get_or_init(decide)
    }

    pub(crate) fn set_forbidden(&self) {
        self.forbidden.store(true, Relaxed);
    }
}

fn is_shareable(text: &str, names: &FrozenNames) -> bool {
    if FORBIDDEN_IN_STRINGS.iter().any(|word| text.contains(word)) {
        return false;
    }
    let Some(tokens) = tokens(text) else { return false };
    let text = Text { tokens: &tokens, names };
    (0..tokens.len()).all(|at| text.is_allowed(at))
}

struct Text<'a> {
    tokens: &'a [Token<'a>],
    names: &'a FrozenNames,
}

impl Text<'_> {
    fn is_allowed(&self, at: usize) -> bool {
        match self.tokens[at] {
            Token::Name(name) if FORBIDDEN.contains(&name) => false,
            Token::Name(name) if self.is_member(at) => {
                !self.is_assigned(at) || !self.names.properties.contains(name)
            }
            Token::Name(name) if self.names.globals.contains(name) => self.is_only_used(at, name),
            Token::Punctuator("]" | ")") => !self.is_assigned(at),
            Token::Punctuator("}") => !self.is_assigned(at) || self.is_plain_pattern(at),
            Token::Punctuator("++" | "--") => !self.changes_member(at),
            _ => true,
        }
    }

    fn punctuator(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at)? {
            Token::Punctuator(text) => Some(text),
            _ => None,
        }
    }

    fn name(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at)? {
            Token::Name(name) => Some(name),
            _ => None,
        }
    }

    fn before(&self, at: usize) -> Option<usize> {
        at.checked_sub(1)
    }

    fn is_member(&self, at: usize) -> bool {
        self.before(at).and_then(|at| self.punctuator(at)).is_some_and(|text| matches!(text, "." | "?."))
    }

    /// Whether what ends here is assigned to, as far as the next word says. A loop assigns by `of` and `in`; inside of a
    /// pattern nothing says so, but the pattern as a whole is assigned to.
    fn is_assigned(&self, at: usize) -> bool {
        self.punctuator(at + 1).is_some_and(|text| ASSIGNMENTS.contains(&text))
            || self.name(at + 1).is_some_and(|name| matches!(name, "of" | "in"))
    }

    /// `++a.b`, `--(a.b)`, `++a().b`, `--[a][0].b`
    fn changes_member(&self, at: usize) -> bool {
        let is_end = |text: Option<&str>| matches!(text, Some("." | "?." | "[" | "("));
        match self.tokens.get(at + 1) {
            Some(Token::Name(name)) => *name == "new" || is_end(self.punctuator(at + 2)),
            Some(Token::Punctuator("(" | "[")) => true,
            _ => false,
        }
    }

    /// Whether the pattern that ends here has variables alone: no member is assigned to.
    fn is_plain_pattern(&self, end: usize) -> bool {
        let mut depth = 0;
        for at in (0..=end).rev().take(PATTERN_TOKENS_MAX) {
            match self.tokens[at] {
                Token::Punctuator("}") => depth += 1,
                Token::Punctuator("{") if depth == 1 => return true,
                Token::Punctuator("{") => depth -= 1,
                Token::Punctuator("." | "?." | "[" | "(") => return false,
                _ => {}
            }
        }
        false
    }

    /// Whether a name of a global is called, constructed, compared with, or no global at all.
    fn is_only_used(&self, at: usize, name: &str) -> bool {
        if FREE_GLOBALS.contains(&name) {
            return true;
        }
        let before = self.before(at);
        let (word, mark) = (before.and_then(|at| self.name(at)), before.and_then(|at| self.punctuator(at)));
        if matches!(word, Some("new" | "instanceof" | "typeof")) {
            return true;
        }
        match self.punctuator(at + 1) {
            Some("(") => true,
            Some(":") => matches!(mark, Some("{" | ",")),
            Some(".") => self.is_call_or_constant(at + 2),
            _ => false,
        }
    }

    /// `JSON.parse(`, `Math.PI`
    fn is_call_or_constant(&self, at: usize) -> bool {
        let Some(name) = self.name(at) else { return false };
        let is_constant =
            name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        self.punctuator(at + 1) == Some("(") || is_constant && !self.is_assigned(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> FrozenNames {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        FrozenNames {
            properties: set(&["toString", "name", "message", "map", "push", "length", "createDocument"]),
            globals: set(&[
                "Math",
                "JSON",
                "Date",
                "String",
                "Error",
                "getContext",
                "__",
                "undefined",
                "Object",
            ]),
        }
    }

    #[test]
    fn ordinary_scripts() {
        for text in [
            "function (a) { var c = getContext().getCollection(); c.createDocument(c.getSelfLink(), a) }",
            "(a) => { a.count++; a.total += Math.max(1, a.n); a.when = new Date().toISOString(); return JSON.stringify(a) }",
            "function () { for (var i = 0; i < list.length; ++i) { sum += list[i].n } }",
            "function ({ a, b = 1 } = {}) { const { c } = a; if (c instanceof Error) throw new Error('x ' + c) }",
            "x => `${x.name} of ${String(x.id)} ${Math.PI}`",
            "x => ({ Date: x, name: x.message, toString: 1 })",
            "function () { __.filter(x => x.a === undefined) }",
            "(x) => x.map(y => y / 2).length",
        ] {
            assert!(is_shareable(text, &names()), "{text}");
        }
    }

    #[test]
    fn scripts_that_could_notice() {
        for text in [
            "function () { return this }",
            "x => x.constructor('return 1')",
            "x => { x['constructor'].y = 1 }",
            "x => { x[k] = 1 }",
            "x => { x[k]++ }",
            "x => { ++x[k] }",
            "x => { --(x.name) }",
            "x => { ++f().name }",
            "x => { --[x][0].name }",
            "x => { ++new F().name }",
            "x => { (x.name) = 1 }",
            "x => { (x.name)++ }",
            "x => { for ((x.name) of y); }",
            "x => { x.toString = 1 }",
            "x => { x.message += 'a' }",
            "x => { x.name ??= 'a' }",
            "x => { ({ a: x.name } = y) }",
            "x => { [x.name] = y }",
            "x => { for (x.name of y); }",
            "x => { for (x[1] in y); }",
            "x => { String.format = 1 }",
            "x => { var s = String; s.format = 1 }",
            "x => { f(JSON) }",
            "x => { Math.PI = 3 }",
            "x => { Math = 3 }",
            "x => [1].map(String)",
            "x => { return Math.max }",
            "x => Object.assign(x, y)",
            "x => { const m = a ? Math : 1 }",
            "x => { if (x) /a/.test(x) }",
            "x => { of / this.a / 1 }",
            "x => { x.in / this.a / 1 }",
            "x => { var a\n/'/.a; this // '\n }",
            "x => { m\\u0061 }",
            "class A {}",
        ] {
            assert!(!is_shareable(text, &names()), "{text}");
        }
    }
}
