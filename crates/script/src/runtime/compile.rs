//! From a script's text to its entry function, and from the engine's errors to ours.
//!
//! The text is an expression that evaluates to a function (`function () {…}`, `(a) => …`), or else a program whose
//! first declared function is the entry point.

use std::sync::atomic::{AtomicU64, Ordering};

use rquickjs::{Coerced, Ctx, FromJs, Function, Persistent, Value};

use crate::runtime::bytecode::{Bytecode, SourceDetail};
use crate::runtime::needs::Needs;
use crate::runtime::realm::{Realm, TurnError};
use crate::runtime::sandbox::{PRELUDE_MARK, RunState, Sandbox};
use crate::runtime::shareable::Shareable;
use crate::runtime::shared_realm::FrozenNames;
use crate::{Limits, Position, ScriptError};

const SCRIPT_NAME: &str = "script.js";
/// Comments and semicolons after an expression that are left out, at most.
const TRAILING_PARTS_MAX: usize = 1000;
/// Longest reported message or stack of an error.
const TEXT_LENGTH_MAX: usize = 4096;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Expression,
    Program,
}

/// A version of a script, compiled for any context.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) form: Form,
    pub(crate) needs: Needs,
    /// No other has it.
    number: u64,
    code: Bytecode,
    /// Whether a context may keep it between runs. A template gives all its evaluations one list of texts: see
    /// [`super::shared_realm`].
    may_keep: bool,
    shareable: Shareable,
}

pub(crate) type Entry = Persistent<Function<'static>>;

impl Compiled {
    /// Compiles in the first form that the grammar accepts. Whether it gives a function is known when it runs.
    pub(crate) fn new(sandbox: &Sandbox, text: &str, limits: &Limits) -> Result<Compiled, ScriptError> {
        if text.len() > limits.script_bytes {
            return Err(ScriptError::TooLong { length: text.len(), length_max: limits.script_bytes });
        }
        if text.contains('\0') {
            let message = "SyntaxError: the text contains a zero character".to_owned();
            return Err(ScriptError::Compile { message, position: None });
        }
        match Compiled::in_form(sandbox, text, Form::Expression, limits) {
            Ok(compiled) => Ok(compiled),
            Err(first) => Compiled::as_program(sandbox, text, limits).map_err(|second| later(first, second)),
        }
    }

    /// Compiles as a program, when the expression was not a function.
    pub(crate) fn as_program(
        sandbox: &Sandbox,
        text: &str,
        limits: &Limits,
    ) -> Result<Compiled, ScriptError> {
        Compiled::in_form(sandbox, text, Form::Program, limits)
    }

    fn in_form(sandbox: &Sandbox, text: &str, form: Form, limits: &Limits) -> Result<Compiled, ScriptError> {
        let compiled = sandbox.with_compiler(|ctx| {
            let compiled = match form {
                Form::Expression => compile(ctx, &enclosed(text, '(', ')')),
                Form::Program => compile(ctx, text),
            };
            compiled.map_err(|error| match error {
                rquickjs::Error::Exception => {
                    Report::of(ctx, ctx.catch()).into_error(&sandbox.state, form, limits)
                }
                other => crate::runtime::sandbox::engine_failed(other),
            })
        });
        sandbox.state.check_time()?;
        let shareable = Shareable::new(text, form == Form::Expression);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let may_keep = !text.contains('`');
        Ok(Compiled { form, needs: Needs::of(text), number, code: compiled?, may_keep, shareable })
    }

    /// Whether its runs may share a context, as far as is known without the names of the built-ins.
    pub(crate) fn may_share(&self) -> bool {
        self.shareable.may_be()
    }

    pub(crate) fn is_shareable(&self, sandbox: &Sandbox, names: &FrozenNames) -> bool {
        self.shareable.is(names, |text| is_one_expression(sandbox, text))
    }

    /// A run has changed a global.
    pub(crate) fn set_not_shareable(&self) {
        self.shareable.set_forbidden();
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.code.size_bytes() + self.shareable.size_bytes()
    }

    /// The entry function in a new context; `None` if the text has none.
    pub(crate) fn entry(&self, realm: &Realm, state: &RunState) -> Result<Option<Entry>, TurnError> {
        realm.turn(state, |ctx| {
            let function = match self.form {
                Form::Expression => self.evaluate_expression(realm, ctx)?.into_function(),
                Form::Program => self.evaluate_program(ctx)?,
            };
            Ok(function.map(|function| Persistent::save(ctx, function)))
        })
    }

    fn evaluate_expression<'js>(&self, realm: &Realm, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        match realm.programs.as_ref().filter(|_| self.may_keep) {
            Some(programs) => programs.evaluate(ctx, self.number, &self.code),
            None => self.code.evaluate(ctx),
        }
    }

    fn evaluate_program<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Option<Function<'js>>> {
        let globals = ctx.globals();
        let before = globals.own_keys::<String>(rquickjs::Filter::new().string()).count();
        let completion = self.code.evaluate(ctx)?;
        // Own names are in the order of their creation.
        for name in globals.own_keys::<String>(rquickjs::Filter::new().string()).skip(before) {
            if let Some(function) = globals.get::<_, Value<'js>>(name?)?.into_function() {
                return Ok(Some(function));
            }
        }
        Ok(completion.into_function())
    }
}

/// Of two compile errors, the one further into the text says more.
fn later(first: ScriptError, second: ScriptError) -> ScriptError {
    match (first, second) {
        (ScriptError::Compile { message, position }, ScriptError::Compile { position: other, .. })
            if position >= other =>
        {
            ScriptError::Compile { message, position }
        }
        (_, second) => second,
    }
}

fn compile(ctx: &Ctx<'_>, text: &str) -> rquickjs::Result<Bytecode> {
    Bytecode::compile(ctx, text, SCRIPT_NAME, SourceDetail::Source)
}

/// The expression in brackets.
fn enclosed(text: &str, open: char, close: char) -> String {
    format!("{open}{}\n{close}", expression_of(text))
}

/// Whether a text that compiled in parentheses does not close them itself, as `a); let b; (c` does. It cannot close
/// other brackets as well.
fn is_one_expression(sandbox: &Sandbox, text: &str) -> bool {
    sandbox.with_compiler(|ctx| {
        let compiled = compile(ctx, &enclosed(text, '[', ']'));
        if compiled.is_err() {
            drop(ctx.catch());
        }
        compiled.is_ok()
    })
}

/// Without trailing semicolons and comments.
fn expression_of(text: &str) -> &str {
    let mut rest = text;
    for _ in 0..TRAILING_PARTS_MAX {
        let trimmed = rest.trim_end_matches(|letter: char| letter == ';' || letter.is_whitespace());
        let line_start = trimmed.rfind('\n').map_or(0, |at| at + 1);
        let shorter = if trimmed.ends_with("*/") {
            trimmed.rfind("/*").map_or(trimmed, |at| &trimmed[..at])
        } else if let Some(at) =
            trimmed[line_start..].rfind("//").filter(|at| is_comment(&trimmed[line_start..], *at))
        {
            &trimmed[..line_start + at]
        } else {
            trimmed
        };
        if shorter.len() == rest.len() {
            return rest;
        }
        rest = shorter;
    }
    rest
}

/// Whether two slashes begin a comment after the expression, and are not inside of it.
fn is_comment(line: &str, at: usize) -> bool {
    let before = line[..at].trim_end();
    (before.is_empty() || before.ends_with(';')) && !line[at..].contains('}')
}

/// A description of a thrown value. It may be anything, and every access to it may throw.
pub(crate) struct Report {
    text: String,
    stack: String,
    number: Option<f64>,
}

impl Report {
    pub(crate) fn of<'js>(ctx: &Ctx<'js>, thrown: Value<'js>) -> Report {
        let mut report = Report { text: String::new(), stack: String::new(), number: None };
        if report.read(ctx, &thrown).is_err() {
            drop(ctx.catch());
            if report.text.is_empty() {
                report.text = "an object that cannot be shown".to_owned();
            }
        }
        report
    }

    fn read<'js>(&mut self, ctx: &Ctx<'js>, thrown: &Value<'js>) -> rquickjs::Result<()> {
        let Some(object) = thrown.as_object().filter(|_| !thrown.is_function()) else {
            self.text = match thrown.as_symbol() {
                Some(symbol) => format!("Symbol({})", text_of(ctx, symbol.description()?)?),
                None => text_of(ctx, thrown.clone())?,
            };
            return Ok(());
        };
        self.number = object.get::<_, Value<'js>>("number")?.as_number();
        let stack: Value<'js> = object.get("stack")?;
        if stack.is_string() {
            self.stack = text_of(ctx, stack)?;
        }
        let message: Value<'js> = object.get("message")?;
        if thrown.is_error() {
            self.text = text_of(ctx, object.get("name")?)? + ": ";
            self.text += &text_of(ctx, message)?;
        } else if message.is_string() {
            self.text = text_of(ctx, message)?;
        } else {
            self.text = match ctx.json_stringify(thrown.clone())? {
                Some(json) => text_of(ctx, json.into_value())?,
                None => text_of(ctx, thrown.clone())?,
            };
        }
        Ok(())
    }

    pub(crate) fn into_error(self, state: &RunState, form: Form, limits: &Limits) -> ScriptError {
        if self.text.ends_with("InternalError: out of memory") || state.is_out_of_memory() {
            return ScriptError::OutOfMemory { limit_bytes: limits.memory_bytes };
        }
        let stack = script_frames(&self.stack, form);
        let at_text = format!("   at {SCRIPT_NAME}:");
        if self.text.starts_with("SyntaxError") && stack.trim_start_matches('\n').starts_with(&at_text) {
            let position = stack.trim_start().strip_prefix(&at_text[3..]).and_then(position_of);
            let place = position.map(|at| format!(" ({SCRIPT_NAME}:{}:{})", at.line, at.column));
            let message = self.text + &place.unwrap_or_default();
            return ScriptError::Compile { message, position };
        }
        ScriptError::Thrown {
            number: self.number.filter(|number| number.fract() == 0.0).map(|number| number as i64),
            stack: format!("{}{stack}", self.text),
            message: self.text,
        }
    }
}

/// A value as text of bounded length.
fn text_of<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<String> {
    let Coerced(text) = Coerced::<rquickjs::String<'js>>::from_js(ctx, value)?;
    let text = match text.to_string() {
        // In JSON they are written as escapes.
        Err(rquickjs::Error::Utf8(_)) => match ctx.json_stringify(text)? {
            Some(json) => json.to_string()?,
            None => String::new(),
        },
        text => text?,
    };
    Ok(text.chars().take(TEXT_LENGTH_MAX).collect())
}

pub(crate) fn error_of(
    realm: &Realm,
    state: &RunState,
    stop: TurnError,
    form: Form,
    limits: &Limits,
) -> ScriptError {
    let thrown = match stop {
        TurnError::Failed(error) => return error,
        TurnError::Null => return null_thrown(limits),
        TurnError::Thrown(thrown) => thrown,
    };
    match realm.turn(state, |ctx| Ok(Report::of(ctx, thrown.restore(ctx)?))) {
        Ok(report) => report.into_error(state, form, limits),
        Err(TurnError::Failed(error)) => error,
        // Even describing it threw: the stack or the memory is exhausted.
        Err(TurnError::Thrown(_) | TurnError::Null) => {
            let message = "an error that cannot be shown".to_owned();
            ScriptError::Thrown { number: None, stack: message.clone(), message }
        }
    }
}

/// The engine also throws `null` when it has no memory for an error.
fn null_thrown(limits: &Limits) -> ScriptError {
    let message = format!("null (or the script needed more than {} bytes of memory)", limits.memory_bytes);
    ScriptError::Thrown { number: None, stack: message.clone(), message }
}

/// The stack without our own frames, each as `\n   at name (script.js:line:column)`.
fn script_frames(stack: &str, form: Form) -> String {
    let frames =
        stack.lines().filter(|line| !line.contains(PRELUDE_MARK) && line.trim_start().starts_with("at "));
    let text: String = frames.map(|frame| format!("\n   {}", shifted(frame.trim_start(), form))).collect();
    // The frame with which the prelude called the entry function.
    text.strip_suffix("\n   at apply (native)").unwrap_or(&text).to_owned()
}

/// The parenthesis before an expression moved its first line by one column.
fn shifted(frame: &str, form: Form) -> String {
    let mark = format!("{SCRIPT_NAME}:1:");
    let Some(at) = frame.find(&mark).filter(|_| form == Form::Expression) else { return frame.to_owned() };
    let (head, tail) = frame.split_at(at + mark.len());
    let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
    let column: u32 = tail[..digits].parse().unwrap_or(2);
    format!("{head}{}{}", column.saturating_sub(1).max(1), &tail[digits..])
}

fn position_of(text: &str) -> Option<Position> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map_while(|part| part.parse().ok());
    Some(Position { line: numbers.next()?, column: numbers.next()? })
}
