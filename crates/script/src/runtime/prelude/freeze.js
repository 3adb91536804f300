// Makes a context that one run after the other can share: everything that a script can reach is frozen, but for the global object
// itself, which is compared after every run.
//
// Reached are all objects that a global or one of `seeds` leads to by properties, accessors and prototypes. Setters go: what
// they set is no property, so freezing does not stop it. `__proto__` stays: it sets a property of what it is called on.
(function (seeds) {
"use strict";
const { freeze, is, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Object;
const { ownKeys } = Reflect;
const root = globalThis;

const waiting = [getPrototypeOf(root)], seen = new Set([root]), names = new Set();
const reach = (value) => {
  if ((typeof value === "object" && value !== null) || typeof value === "function") waiting[waiting.length] = value;
};
function visit(object) {
  if (seen.has(object)) return;
  seen.add(object);
  reach(getPrototypeOf(object));
  for (const key of ownKeys(object)) {
    const property = getOwnPropertyDescriptor(object, key);
    if ("value" in property) {
      reach(property.value);
      if (typeof key === "string") names.add(key);
      continue;
    }
    reach(property.get);
    reach(property.set);
    if (typeof key === "string") names.add(key);
    if (property.set !== undefined && key !== "__proto__") {
      defineProperty(object, key, { __proto__: null, get: property.get, set: undefined, configurable: false });
    }
  }
  freeze(object);
}

// Prototypes that no global leads to.
function* generator() {}
async function* asyncGenerator() {}
for (const hidden of [[].values(), ""[Symbol.iterator](), new Map().entries(), new Set().values(), "".matchAll(/a/g), generator, generator(),
  asyncGenerator, asyncGenerator(), async () => {}, [].values().map((value) => value)]) reach(hidden);
for (const key of ownKeys(root)) reach(root[key]);
for (let i = 0; i < seeds.length; i++) reach(seeds[i]);
while (waiting.length > 0) {
  const next = waiting[waiting.length - 1];
  waiting.length--;
  visit(next);
}

const globals = ownKeys(root), values = [];
for (let i = 0; i < globals.length; i++) values[i] = root[globals[i]];
// The one global that every run has of its own.
const own = globals.indexOf("__");
return {
  __proto__: null,
  // Whether the last run has left the globals as they were.
  isUntouched() {
    if (ownKeys(root).length !== globals.length) return false;
    for (let i = 0; i < globals.length; i++) {
      if (i !== own && !is(root[globals[i]], values[i])) return false;
    }
    return true;
  },
  frozenNames: () => [...names].join("\n"),
  globalNames: () => globals.filter((name) => typeof name === "string").join("\n"),
};
})
