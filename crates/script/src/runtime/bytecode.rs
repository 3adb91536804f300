//! Scripts compiled once and loaded into many contexts: the one module of this workspace with `unsafe` code.
//!
//! The engine's bytecode reader trusts its input. So bytecode is created by [`Bytecode::compile`], in this process,
//! and stays in its memory: there is no way to build a [`Bytecode`] from bytes, and none is stored or sent. See
//! `docs/adr/0013-bytecode-in-memory.md`.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

use rquickjs::{Ctx, Error, Value, qjs};

/// A compiled program, for any context of this process.
#[derive(Clone)]
pub(crate) struct Bytecode(Arc<[u8]>);

/// How much of the source errors can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceDetail {
    /// Positions, and the text for `toString` of functions.
    Source,
    Nothing,
}

impl Bytecode {
    /// Compiles a program for the global scope, in sloppy mode unless it says otherwise, without running it.
    pub(crate) fn compile(
        ctx: &Ctx<'_>,
        text: &str,
        name: &str,
        kept: SourceDetail,
    ) -> rquickjs::Result<Bytecode> {
        let length = text.len();
        let text = CString::new(text)?;
        let name = CString::new(name)?;
        let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
        // SAFETY: `ctx` is a live context whose runtime this thread holds for the lifetime of `ctx`. Both strings end
        // with a zero and outlive the call; `length` is that of the text without it. The engine checks its input.
        let compiled = unsafe {
            let compiled =
                qjs::JS_Eval(ctx.as_raw().as_ptr(), text.as_ptr(), length as _, name.as_ptr(), flags as i32);
            checked(ctx, compiled)?
        };
        write(ctx, &compiled, kept)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.len()
    }

    /// Runs the program in a context and returns the value of its last statement.
    pub(crate) fn evaluate<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        evaluate_program(ctx, self.load(ctx)?)
    }

    /// The program in a context, for [`evaluate_program`]: it can be evaluated there more than once.
    pub(crate) fn load<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        let flags = qjs::JS_READ_OBJ_BYTECODE as i32;
        // SAFETY: `ctx` as above. The bytes were written by this engine in this process (`Bytecode` has no other
        // constructor) and outlive the call, which copies what it keeps. What it returns is owned by us.
        unsafe {
            let raw = ctx.as_raw().as_ptr();
            checked(ctx, qjs::JS_ReadObject(raw, self.0.as_ptr(), self.0.len() as _, flags))
        }
    }
}

/// Runs a program that was loaded in this context: it makes all its functions and values anew. A value that is no program is
/// refused by the engine.
pub(crate) fn evaluate_program<'js>(ctx: &Ctx<'js>, program: Value<'js>) -> rquickjs::Result<Value<'js>> {
    // SAFETY: `ctx` as above; `program` belongs to its runtime. `JS_EvalFunction` takes over one reference, which is made
    // for it; what it returns is owned by us and given to `Value`.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        checked(ctx, qjs::JS_EvalFunction(raw, qjs::JS_DupValue(raw, program.as_raw())))
    }
}

impl fmt::Debug for Bytecode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Bytecode({} bytes)", self.0.len())
    }
}

fn write(ctx: &Ctx<'_>, compiled: &Value<'_>, kept: SourceDetail) -> rquickjs::Result<Bytecode> {
    let flags = match kept {
        SourceDetail::Source => qjs::JS_WRITE_OBJ_BYTECODE,
        SourceDetail::Nothing => {
            qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE | qjs::JS_WRITE_OBJ_STRIP_DEBUG
        }
    };
    let mut length: qjs::size_t = 0;
    // SAFETY: `ctx` as above; `compiled` belongs to its runtime. A result that is not null points to `length` bytes,
    // which are copied before they are freed with the allocator that made them.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        let bytes = qjs::JS_WriteObject(raw, &mut length, compiled.as_raw(), flags as i32);
        if bytes.is_null() {
            return Err(Error::Exception);
        }
        let copy = Arc::from(std::slice::from_raw_parts(bytes, length as usize));
        qjs::js_free(raw, bytes.cast());
        Ok(Bytecode(copy))
    }
}

/// SAFETY: `value` must be an owned value of the runtime of `ctx`.
unsafe fn checked<'js>(ctx: &Ctx<'js>, value: qjs::JSValue) -> rquickjs::Result<Value<'js>> {
    // SAFETY: by the contract of this function. An exception is a mark, not a value to be freed.
    unsafe {
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// The prototypes of all classes of the engine in a context: for a test that none is missing.
#[cfg(test)]
pub(crate) fn class_prototypes<'js>(ctx: &Ctx<'js>) -> Vec<Value<'js>> {
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: `ctx` as above. A class that is registered has a prototype, perhaps null, which is given to `Value`.
    let prototype = |class| unsafe {
        let runtime = qjs::JS_GetRuntime(raw);
        qjs::JS_IsRegisteredClass(runtime, class)
            .then(|| Value::from_raw(ctx.clone(), qjs::JS_GetClassProto(raw, class)))
    };
    (1..256).filter_map(prototype).filter(Value::is_object).collect()
}
