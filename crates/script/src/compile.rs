//! From a script's text to its entry function, and from the engine's errors to ours.
//!
//! The text is an expression that gives a function (`function () {…}`, `(a) => …`), or else a program whose first
//! declared function is the entry point.

use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Function, Object, Persistent, Value};

use crate::sandbox::{PRELUDE_NAME, Realm, State, Stop};
use crate::{Limits, Position, ScriptError};

const SCRIPT_NAME: &str = "script.js";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Expression,
    Program,
}

pub(crate) type Entry = Persistent<Function<'static>>;

/// Compiles in the form that is known to fit, or in the first that does.
pub(crate) fn compile(
    realm: &Realm,
    state: &State,
    text: &str,
    known: Option<Form>,
    limits: &Limits,
) -> Result<(Form, Entry), ScriptError> {
    if text.len() > limits.script_bytes {
        return Err(ScriptError::TooLong { length: text.len(), length_max: limits.script_bytes });
    }
    let mut failure = None;
    for form in [Form::Expression, Form::Program] {
        if known.is_some_and(|known| known != form) {
            continue;
        }
        match compile_as(realm, state, text, form, limits) {
            Ok(Some(entry)) => return Ok((form, entry)),
            Ok(None) => {}
            Err(error) => failure = Some(later(failure, error)),
        }
    }
    Err(failure.unwrap_or_else(|| ScriptError::Compile {
        message: "SyntaxError: the script has no function".to_owned(),
        position: None,
    }))
}

/// Of two attempts, the one that got further into the text says more.
fn later(first: Option<ScriptError>, second: ScriptError) -> ScriptError {
    match (first, second) {
        (Some(ScriptError::Compile { message, position }), ScriptError::Compile { position: other, .. })
            if position >= other =>
        {
            ScriptError::Compile { message, position }
        }
        (_, second) => second,
    }
}

fn compile_as(
    realm: &Realm,
    state: &State,
    text: &str,
    form: Form,
    limits: &Limits,
) -> Result<Option<Entry>, ScriptError> {
    if text.contains('\0') {
        let message = "SyntaxError: the text contains a zero character".to_owned();
        return Err(ScriptError::Compile { message, position: None });
    }
    let compiled = realm.turn(state, |ctx, api| {
        let entry = match form {
            Form::Expression => evaluate(ctx, format!("({}\n)", expression_of(text)))?.into_function(),
            Form::Program => evaluate_program(ctx, api, text)?,
        };
        Ok(entry.map(|entry| Persistent::save(ctx, entry)))
    });
    compiled.map_err(|stop| error_of(realm, state, stop, form, limits))
}

fn evaluate_program<'js>(
    ctx: &Ctx<'js>,
    api: &Object<'js>,
    text: &str,
) -> rquickjs::Result<Option<Function<'js>>> {
    let names: Function<'js> = api.get("globalNames")?;
    let before: Value<'js> = names.call(())?;
    let completion = evaluate(ctx, text.to_owned())?;
    let declared: Function<'js> = api.get("declaredSince")?;
    let declared: Value<'js> = declared.call((before,))?;
    Ok(declared.into_function().or_else(|| completion.into_function()))
}

fn evaluate<'js>(ctx: &Ctx<'js>, text: String) -> rquickjs::Result<Value<'js>> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(SCRIPT_NAME.to_owned());
    ctx.eval_with_options(text, options)
}

/// Without the semicolons and comments that may follow an expression.
fn expression_of(text: &str) -> &str {
    let mut rest = text;
    loop {
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
}

/// Whether two slashes begin a comment after the expression, and are not inside of it.
fn is_comment(line: &str, at: usize) -> bool {
    let before = line[..at].trim_end();
    (before.is_empty() || before.ends_with(';')) && !line[at..].contains('}')
}

/// What the prelude makes of something thrown.
pub(crate) struct Report {
    text: String,
    stack: String,
    number: Option<f64>,
}

impl Report {
    pub(crate) fn read(report: &Object<'_>) -> rquickjs::Result<Report> {
        let number: Value<'_> = report.get("number")?;
        Ok(Report { text: report.get("text")?, stack: report.get("stack")?, number: number.as_number() })
    }

    pub(crate) fn into_error(self, state: &State, form: Form, limits: &Limits) -> ScriptError {
        if self.text.ends_with("InternalError: out of memory") || state.out_of_memory.get() {
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

pub(crate) fn error_of(realm: &Realm, state: &State, stop: Stop, form: Form, limits: &Limits) -> ScriptError {
    let thrown = match stop {
        Stop::Failed(error) => return error,
        Stop::Null => return null_thrown(limits),
        Stop::Thrown(thrown) => thrown,
    };
    let report = realm.turn(state, |ctx, api| {
        let describe: Function<'_> = api.get("describe")?;
        let report: Object<'_> = describe.call((thrown.restore(ctx)?,))?;
        Report::read(&report)
    });
    match report {
        Ok(report) => report.into_error(state, form, limits),
        Err(Stop::Failed(error)) => error,
        // Even describing it threw: the stack or the memory is used up.
        Err(Stop::Thrown(_) | Stop::Null) => {
            let message = "an error that cannot be shown".to_owned();
            ScriptError::Thrown { number: None, stack: message.clone(), message }
        }
    }
}

/// The engine throws `null`, too, when it has no memory left for an error.
fn null_thrown(limits: &Limits) -> ScriptError {
    let message = format!("null (or the script needed more than {} bytes of memory)", limits.memory_bytes);
    ScriptError::Thrown { number: None, stack: message.clone(), message }
}

/// The stack without our own frames, each as `\n   at name (script.js:line:column)`.
fn script_frames(stack: &str, form: Form) -> String {
    let frames =
        stack.lines().filter(|line| !line.contains(PRELUDE_NAME) && line.trim_start().starts_with("at "));
    let text: String = frames.map(|frame| format!("\n   {}", shifted(frame.trim_start(), form))).collect();
    // With which the prelude called the entry function.
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
