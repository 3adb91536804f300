// What the language itself has in addition, or lacks, evaluated before a script that names it. `needs` says what.
(function (needs) {
"use strict";
const { defineProperty, freeze, setPrototypeOf } = Object;
const { construct } = Reflect;
const root = globalThis;

function hide(object, name, value) {
  defineProperty(object, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
}

// ---- Error(number, message) ----
if (needs & 1) {
  const { captureStackTrace } = root.Error;
  const numbered = (name) => {
    const Native = root[name];
    const Wrapped = function (first, second) {
      const two = arguments.length >= 2 && typeof first === "number";
      const error = construct(Native, two ? [second] : arguments, new.target ?? Wrapped);
      if (two) {
        hide(error, "number", first);
        hide(error, "description", error.message);
      }
      captureStackTrace(error, Wrapped);
      return error;
    };
    hide(Wrapped, "name", name);
    hide(Wrapped, "length", 1);
    defineProperty(Wrapped, "prototype", { __proto__: null, value: Native.prototype, writable: false });
    hide(Native.prototype, "constructor", Wrapped);
    hide(root, name, Wrapped);
    return Wrapped;
  };
  const ScriptError = numbered("Error");
  hide(ScriptError, "captureStackTrace", captureStackTrace);
  if (needs & 2) {
    for (const name of ["TypeError", "RangeError", "ReferenceError", "SyntaxError", "EvalError", "URIError"]) {
      setPrototypeOf(numbered(name), ScriptError);
    }
  }
}
if (needs & 4) {
  hide(root, "ErrorCodes", freeze({ BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
    RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500 }));
}
if (needs & 8) {
  for (const name of ["Atomics", "SharedArrayBuffer", "queueMicrotask"]) delete root[name];
}
})
