// Makes a context that one run after the other can share: everything that a script can reach is frozen. The global object can
// get further properties, because scripts that forget `var` add some; after every run it is looked at.
//
// Reached are all objects that a global or one of `seeds` leads to by properties, accessors and prototypes. Setters go: what
// they set is no property, so freezing does not stop it. `__proto__` stays: it sets a property of what it is called on.
(function (seeds) {
"use strict";
const { freeze, isExtensible, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Object;
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

// Prototypes that no global leads to. A test compares them with the classes of the engine.
function* generator() {}
async function* asyncGenerator() {}
for (const hidden of [[].values(), ""[Symbol.iterator](), new Map().entries(), new Set().values(), "".matchAll(/a/g), generator, generator(),
  asyncGenerator, asyncGenerator(), async () => {}, [].values().map((value) => value), Iterator.from({ next() {} })]) reach(hidden);
for (const key of ownKeys(root)) reach(root[key]);
for (let i = 0; i < seeds.length; i++) reach(seeds[i]);
while (waiting.length > 0) {
  const next = waiting[waiting.length - 1];
  waiting.length--;
  visit(next);
}

// The one global that every run has of its own is `__`.
const globals = ownKeys(root), rootPrototype = getPrototypeOf(root);
for (const key of globals) {
  const isOwn = key === "__";
  defineProperty(root, key, isOwn ? { __proto__: null, configurable: false } : { __proto__: null, configurable: false, writable: false });
}
return [
  // Whether the last run has left the global object as it was, but for further properties: none of its first can go.
  () => isExtensible(root) && getPrototypeOf(root) === rootPrototype,
  () => [...names].join("\n"),
  () => globals.filter((name) => typeof name === "string").join("\n"),
];
})
