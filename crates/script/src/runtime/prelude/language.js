// What the language itself has in addition, or lacks, evaluated before a script that names it. `needs` says what.
(function (needs) {
"use strict";
const { defineProperty, freeze, setPrototypeOf } = Object;
const { apply, construct } = Reflect;
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
// The engine's own `bind` faults where the memory ends, and the process with it.
if (needs & 16) {
  hide(Function.prototype, "bind", function bind(receiver) {
    if (typeof this !== "function") throw new TypeError("not a function");
    const target = this, given = arguments;
    const bound = function () {
      const all = [];
      for (let i = 1; i < given.length; i++) all[all.length] = given[i];
      for (let i = 0; i < arguments.length; i++) all[all.length] = arguments[i];
      if (new.target === undefined) return apply(target, receiver, all);
      return construct(target, all, new.target === bound ? target : new.target);
    };
    bound.prototype = target.prototype; // for instanceof
    const { name, length } = target, left = length - (given.length > 1 ? given.length - 1 : 0);
    defineProperty(bound, "name", { __proto__: null, value: "bound " + (typeof name === "string" ? name : ""), configurable: true });
    defineProperty(bound, "length", { __proto__: null, value: left > 0 ? left : 0, configurable: true });
    return bound;
  });
}
// A value that leads back to the symbol it is kept under is never freed, and the engine ends the process when it looks for it. Symbols
// were no keys of weak collections before ECMAScript 2023.
if (needs & 32) {
  const Refused = TypeError;
  const guard = (prototype, name) => {
    const native = prototype[name];
    const { [name]: guarded } = { [name](key) {
      if (typeof key === "symbol") throw new Refused("invalid value used as weak key");
      return apply(native, this, arguments);
    } };
    defineProperty(guarded, "length", { __proto__: null, value: native.length });
    hide(prototype, name, guarded);
  };
  guard(WeakSet.prototype, "add");
  for (const name of ["set", "getOrInsert", "getOrInsertComputed"]) guard(WeakMap.prototype, name);
}
if (needs & 8) {
  for (const name of ["Atomics", "SharedArrayBuffer", "queueMicrotask"]) delete root[name];
}
})
