// The JavaScript query API (`filter`, `map`, `chain` and so on), evaluated when a script first calls it. By then the script
// may have changed any built-in, so all come from `core`, as they were before.
(function (core) {
"use strict";
const { fail, push, isArray, codePointAt, sort, slice, startsWith, toNumber, isInteger, start, isCollection } = core;

// Each stage is {used, run}: how many arguments belong to it, and a function from a list to a list.
const keep = (predicate) => (list) => {
  const kept = [];
  for (let i = 0; i < list.length; i++) if (predicate(list[i])) push(kept, list[i]);
  return kept;
};
const project = (transform) => (list) => {
  const mapped = [];
  for (let i = 0; i < list.length; i++) push(mapped, transform(list[i]));
  return mapped;
};
function spread(list, depth, out) {
  for (let i = 0; i < list.length; i++) {
    if (isArray(list[i]) && depth > 0) spread(list[i], depth - 1, out);
    else push(out, list[i]);
  }
  return out;
}
const join = (collectionOf, resultOf) => (list) => {
  const joined = [];
  for (let i = 0; i < list.length; i++) {
    const elements = collectionOf(list[i]);
    if (!isArray(elements)) continue;
    for (let k = 0; k < elements.length; k++) push(joined, resultOf(list[i], elements[k]));
  }
  return joined;
};
function rank(value) {
  switch (typeof value) {
    case "undefined": return 0;
    case "boolean": return 2;
    case "number": case "bigint": return 3;
    case "string": return 4;
    default: return value === null ? 1 : isArray(value) ? 5 : 6;
  }
}
// By code point, as queries order strings.
function compareText(left, right) {
  const length = left.length < right.length ? left.length : right.length;
  for (let i = 0; i < length; i++) {
    if (left[i] !== right[i]) return codePointAt(left, i) - codePointAt(right, i);
  }
  return left.length - right.length;
}
function compare(left, right) {
  const order = rank(left) - rank(right);
  if (order !== 0) return order;
  if (typeof left === "string") return compareText(left, right);
  return left < right ? -1 : left > right ? 1 : 0;
}
const ordered = (keyOf, sign) => (list) => {
  const keyed = [];
  for (let i = 0; i < list.length; i++) push(keyed, { __proto__: null, key: keyOf(list[i]), value: list[i], place: i });
  sort(keyed, (a, b) => sign * compare(a.key, b.key) || a.place - b.place);
  return project((entry) => entry.value)(keyed);
};
function functionNeeded(value) {
  if (typeof value !== "function") throw fail(400, "The predicate/transform function must be provided.");
  return value;
}
const STAGES = {
  __proto__: null,
  filter: (args) => ({ used: 1, run: keep(functionNeeded(args[0])) }),
  map: (args) => ({ used: 1, run: project(functionNeeded(args[0])) }),
  pluck: (args) => {
    const name = args[0];
    if (typeof name !== "string" || name === "") throw fail(400, "The property name must be a string and cannot be empty.");
    return { used: 1, run: project((item) => (item === null || item === undefined ? undefined : item[name])) };
  },
  flatten: (args) => {
    const given = typeof args[0] === "boolean";
    const depth = given && args[0] ? 1 : Infinity;
    return { used: given ? 1 : 0, run: (list) => spread(list, depth, []) };
  },
  unwind: (args) => {
    const select = functionNeeded(args[0]), result = args[1];
    if (select.length !== 1) throw fail(400, "The collection selector function must have exactly one parameter.");
    // A last function of other than two parameters is the callback.
    const followed = args.chained || typeof args[2] === "function" || typeof args[3] === "function";
    if (typeof result === "function" && (followed || result.length === 2)) {
      if (result.length < 2) throw fail(400, "The result selector function must have at least two parameters.");
      return { used: 2, run: join(select, result) };
    }
    return { used: 1, run: (list) => spread(project(select)(list), Infinity, []) };
  },
  sortBy: (args) => ({ used: 1, sorts: true, run: ordered(functionNeeded(args[0]), 1) }),
  sortByDescending: (args) => ({ used: 1, sorts: true, run: ordered(functionNeeded(args[0]), -1) }),
};
function argumentsOf(given, chained) {
  const skip = given.length > 0 && isCollection(given[0]) ? 1 : 0;
  const args = [];
  for (let i = skip; i < given.length; i++) push(args, given[i]);
  args.chained = chained;
  return args;
}
function startQuery(stages, name, options, callback) {
  const operation = { __proto__: null, kind: 2, text: "SELECT * FROM c", stages, sorts: false };
  for (let at = stages; at; at = at.before) operation.sorts = operation.sorts || at.stage.sorts === true;
  return start(operation, name, options, callback, operation.sorts ? pageSorted : undefined);
}
// Order comes before pages: everything is read, and the continuation is a place in the sorted list.
function pageSorted(operation) {
  const from = operation.continuation ?? "sorted:0";
  const place = startsWith(from, "sorted:") ? toNumber(slice(from, 7)) : NaN;
  if (!isInteger(place) || place < 0) throw fail(400, "The continuation does not belong to this query.");
  operation.place = place;
  operation.take = operation.pageSize;
  operation.pageSize = 1000;
  operation.continuation = undefined;
  operation.gathered = [];
}
function runStages(stages, list) {
  if (!stages) return list;
  return stages.stage.run(runStages(stages.before, list));
}
const CHAIN_MESSAGE = (what) => 'When using "chain", ' + what + ' can only be provided on the call to the "value" function.';
function extend(query, stages, name, given) {
  if (!query.isAccepted) return query;
  const args = argumentsOf(given, true), stage = STAGES[name](args);
  for (let i = stage.used; i < args.length; i++) {
    if (typeof args[i] === "function") throw fail(400, CHAIN_MESSAGE("the callback"));
    if (args[i] !== undefined) throw fail(400, CHAIN_MESSAGE("options"));
  }
  return new Query({ __proto__: null, before: stages, stage }, true);
}
// What a query has gathered is in a private field. No function of a script is given anything of ours that all runs have in common.
class Query {
  #stages;
  constructor(stages, isAccepted) {
    this.#stages = stages;
    this.isAccepted = isAccepted;
  }
  filter() { return extend(this, this.#stages, "filter", arguments); }
  map() { return extend(this, this.#stages, "map", arguments); }
  pluck() { return extend(this, this.#stages, "pluck", arguments); }
  flatten() { return extend(this, this.#stages, "flatten", arguments); }
  unwind() { return extend(this, this.#stages, "unwind", arguments); }
  sortBy() { return extend(this, this.#stages, "sortBy", arguments); }
  sortByDescending() { return extend(this, this.#stages, "sortByDescending", arguments); }
  value(options, callback) {
    if (!this.isAccepted) return this;
    return new Query(null, startQuery(this.#stages, "value", options, callback));
  }
}
return {
  __proto__: null,
  prototype: Query.prototype,
  runStages,
  chain: (accepted) => new Query(null, accepted),
  run: (name, given) => {
    const args = argumentsOf(given, false), stage = STAGES[name](args);
    const accepted = startQuery({ __proto__: null, before: null, stage }, name, args[stage.used], args[stage.used + 1]);
    return new Query(null, accepted);
  },
};
})
