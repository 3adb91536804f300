// The server-side API, evaluated in every fresh context before the script's own text.
//
// It holds what it needs of the built-ins in constants and keeps its state in objects without a prototype, so nothing
// a script does to prototypes or globals changes what happens here. `native` is not reachable from a script.
(function (native) {
"use strict";
const bindCall = Function.prototype.bind.bind(Function.prototype.call);
const { parse, stringify } = JSON;
const { create, defineProperty, freeze, getOwnPropertyNames, setPrototypeOf } = Object;
const { construct, apply } = Reflect;
const isArray = Array.isArray;
const split = bindCall(String.prototype.split);
const startsWith = bindCall(String.prototype.startsWith);
const slice = bindCall(String.prototype.slice);
const toLowerCase = bindCall(String.prototype.toLowerCase);
const sort = bindCall(Array.prototype.sort);
const clean = bindCall(String.prototype.toWellFormed);
const codePointAt = bindCall(String.prototype.codePointAt);
const toText = String, toNumber = Number, { isInteger } = Number, { trunc } = Math;
const root = globalThis;

function hide(object, name, value) {
  defineProperty(object, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
}
// Appends without asking prototypes for setters.
function push(list, value) {
  defineProperty(list, list.length, { __proto__: null, value, writable: true, configurable: true, enumerable: true });
}

// ---- Error(number, message) ----
const NativeError = root.Error;
const { captureStackTrace } = NativeError;
function numbered(name) {
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
}
const ScriptError = numbered("Error");
hide(ScriptError, "captureStackTrace", captureStackTrace);
for (const name of ["TypeError", "RangeError", "ReferenceError", "SyntaxError", "EvalError", "URIError"]) {
  setPrototypeOf(numbered(name), ScriptError);
}
function fail(number, message) { return new ScriptError(number, message); }

// ---- what a script must not have ----
// Code is compiled once, before the script runs: compiling at the memory limit can end the process.
function refuse(name) {
  const Refused = function () { throw fail(400, name + " is not supported: code cannot be made from text."); };
  hide(Refused, "name", name);
  return Refused;
}
const kinds = [
  ["Function", Function.prototype],
  ["AsyncFunction", (async () => {}).constructor.prototype],
  ["GeneratorFunction", (function* () {}).constructor.prototype],
  ["AsyncGeneratorFunction", (async function* () {}).constructor.prototype],
];
for (const [name, prototype] of kinds) {
  const refused = refuse(name);
  defineProperty(refused, "prototype", { __proto__: null, value: prototype, writable: false });
  defineProperty(prototype, "constructor", { __proto__: null, value: refused, writable: false, configurable: false });
  if (name === "Function") hide(root, name, refused);
}
hide(root, "eval", refuse("eval"));
for (const name of ["Atomics", "SharedArrayBuffer", "WeakRef", "FinalizationRegistry", "performance", "navigator",
    "DOMException", "queueMicrotask"]) {
  delete root[name];
}

// ---- errors as text ----
// What was thrown may be anything: each step may throw in turn.
const TEXT_MAX = 4096;
function describe(thrown) {
  const report = { __proto__: null, text: "", stack: "", number: undefined };
  try {
    if (thrown !== null && typeof thrown === "object") {
      if (typeof thrown.number === "number") report.number = thrown.number;
      if (typeof thrown.stack === "string") report.stack = thrown.stack;
      if (thrown instanceof NativeError) {
        report.text = toText(thrown.name) + ": " + toText(thrown.message);
      } else {
        report.text = typeof thrown.message === "string" ? thrown.message : (stringify(thrown) ?? toText(thrown));
      }
    } else {
      report.text = toText(thrown);
    }
  } catch {
    report.text = report.text || "an object that cannot be shown";
  }
  report.text = clean(slice(report.text, 0, TEXT_MAX));
  report.stack = clean(slice(report.stack, 0, TEXT_MAX));
  return report;
}

// ---- UDFs get no more than this ----
hide(root, "ErrorCodes", freeze({ BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412,
  RequestEntityTooLarge: 413, RetryWith: 449, InternalServerError: 500 }));
const globalNames = () => getOwnPropertyNames(root);
// The first function that the program declared.
function declaredSince(before) {
  const known = create(null);
  for (let i = 0; i < before.length; i++) known[before[i]] = true;
  const names = globalNames();
  for (let i = 0; i < names.length; i++) {
    if (!known[names[i]] && typeof root[names[i]] === "function") return root[names[i]];
  }
}
const api = { __proto__: null, describe, globalNames, declaredSince };
if (!native) return api;

// ---- request and response ----
const KNOWN_ALIASES = { __proto__: null, ResourceQuotaCurrentUsage: "CurrentResourceQuotaUsage" };
function propertyMap(slots, names) {
  const map = {};
  let writable = false;
  function slot(name) {
    const found = slots[name];
    if (found === undefined) throw fail(400, "Cannot set new values: " + toText(name));
    if (!found.writable) throw fail(403, "Not a writable property: " + toText(name));
    return found;
  }
  function checked(name, value, max) {
    const text = typeof value === "string" ? value : typeof value === "object" ? stringify(value) : toText(value);
    if (text !== undefined && text.length > max) {
      throw fail(413, 'Resulting message would be too large because of "' + name + '". The maximum is ' + max +
        " characters.");
    }
    return value;
  }
  function getValue(name) {
    if (name === undefined) return undefined;
    const found = slots[name];
    if (found === undefined) throw new TypeErrorNow("Unknown property: " + toText(name));
    return found.value;
  }
  function setValue(name, value) {
    const found = slot(name);
    found.value = checked(name, value, found.max);
  }
  function appendValue(name, value) {
    const found = slot(name), old = found.value;
    const joined = old === null || old === undefined ? value
      : typeof old === "string" ? old + (typeof value === "object" ? stringify(value) : toText(value))
      : old + value;
    found.value = checked(name, joined, found.max);
  }
  for (let i = 0; i < names.length; i++) {
    const name = names[i], own = slots[name];
    hide(map, "get" + name, () => getValue(name));
    if (KNOWN_ALIASES[name]) hide(map, "get" + KNOWN_ALIASES[name], () => getValue(name));
    if (!own.writable) continue;
    writable = true;
    hide(map, "set" + name, (value) => setValue(name, value));
    hide(map, "append" + name, (value) => appendValue(name, value));
  }
  hide(map, "getValue", getValue);
  if (writable) {
    hide(map, "setValue", setValue);
    hide(map, "appendValue", appendValue);
  }
  return map;
}
const TypeErrorNow = root.TypeError;

let slotsOfRequest, slotsOfResponse, request, response, collection, selfLink, altLink, usage, quota, logging;
let aborted = null;
// Operations wait here, in the order in which they were started.
let first = null, last = null, waiting = 0;

function enqueue(operation) {
  if (aborted || !native.accepting(waiting)) return false;
  waiting++;
  operation.next = null;
  if (last) last.next = operation; else first = operation;
  last = operation;
  return true;
}

// ---- arguments of collection methods ----
function need(name, count, least) {
  if (count < least) {
    throw fail(400, 'The function "' + name + '" requires at least ' + least + " argument(s) but was called with " + count +
      " argument(s).");
  }
}
function tail(operation, name, options, callback) {
  if (typeof options === "function") {
    callback = options;
    options = undefined;
  }
  if (options !== undefined && options !== null && typeof options !== "object") {
    throw fail(400, 'The "options" parameter of the function "' + name + '" must be an object.');
  }
  if (callback !== undefined && callback !== null && typeof callback !== "function") {
    throw fail(400, 'The "callback" parameter of the function "' + name + '" must be a function.');
  }
  operation.callback = callback ?? null;
  return options ?? create(null);
}
function optionalText(name, value) {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw fail(400, 'The option "' + name + '" must be a string.');
  return clean(value);
}
function pageOf(operation, options) {
  const size = options.pageSize;
  if (size === undefined || size === null) operation.pageSize = 100;
  else if (size === -1) operation.pageSize = 1000;
  else if (isInteger(size) && size > 0) operation.pageSize = size > 1000 ? 1000 : size;
  else throw fail(400, 'The option "pageSize" must be a positive integer or -1.');
  operation.continuation = optionalText("continuation", options.continuation);
}
function indexActionOf(operation, options) {
  const action = optionalText("indexAction", options.indexAction);
  if (action !== undefined && action !== "default" && action !== "include" && action !== "exclude") {
    throw fail(400, 'The option "indexAction" must be "default", "include" or "exclude".');
  }
  operation.indexAction = action;
}
function segmentsOf(link, what, count) {
  const segments = typeof link === "string" ? split(link, "/") : [];
  const fits = segments.length === count || (segments.length === count + 1 && segments[count] === "");
  const shaped = fits && toLowerCase(segments[0]) === "dbs" && toLowerCase(segments[2]) === "colls" &&
    (count < 6 || toLowerCase(segments[4]) === "docs") && (count < 8 || toLowerCase(segments[6]) === "attachments");
  if (!shaped) throw fail(400, "Invalid " + what + ' link: "' + show(link) + '".');
  return segments;
}
function show(value) {
  return typeof value === "string" ? value : typeof value === "object" || typeof value === "function" ? typeof value : toText(value);
}
function outside(link) {
  return fail(400, "Function is not allowed to operate on resources outside current collection. " +
    'Make sure that the link provided, "' + link + '", belongs to the current collection.');
}
function checkCollectionLink(link) {
  segmentsOf(link, "collection", 4);
  if (link !== selfLink && link !== altLink) throw outside(link);
}
function itemOf(operation, link) {
  const segments = segmentsOf(link, "document", 6);
  if (startsWith(link, selfLink)) operation.rid = clean(segments[5]);
  else if (startsWith(link, altLink + "/")) operation.id = clean(segments[5]);
  else throw outside(link);
  if (segments[5] === "") throw fail(400, 'Invalid document link: "' + link + '".');
}
const BODY_MESSAGE = "The document body must be an object or a string representing a JSON-serialized object.";
function bodyText(body, options) {
  let object = body;
  if (typeof body === "string") {
    try {
      object = parse(body);
    } catch {
      throw fail(400, BODY_MESSAGE);
    }
  }
  if (object === null || typeof object !== "object") throw fail(400, BODY_MESSAGE);
  if (options.disableAutomaticIdGeneration === true || object.id || isArray(object)) {
    return typeof body === "string" ? clean(body) : stringify(object);
  }
  return stringify({ ...object, id: native.uuid() });
}

// ---- collection methods ----
function method(name, least, start) {
  hide(collection, name, function () {
    need(name, arguments.length, least);
    return start(name, arguments[0], arguments[1], arguments[2], arguments[3]);
  });
}
function operationOf(kind) { return { __proto__: null, kind }; }
function defineMethods() {
  hide(collection, "getSelfLink", () => selfLink);
  hide(collection, "getAltLink", () => altLink);
  method("readDocument", 1, (name, link, options, callback) => {
    const operation = operationOf("read");
    itemOf(operation, link);
    options = tail(operation, name, options, callback);
    operation.etag = optionalText("ifNoneMatch", options.ifNoneMatch);
    return enqueue(operation);
  });
  method("readDocuments", 1, (name, link, options, callback) => {
    const operation = operationOf("feed");
    checkCollectionLink(link);
    pageOf(operation, tail(operation, name, options, callback));
    return enqueue(operation);
  });
  method("queryDocuments", 2, (name, link, query, options, callback) => {
    const operation = operationOf("query");
    checkCollectionLink(link);
    queryOf(operation, query);
    pageOf(operation, tail(operation, name, options, callback));
    return enqueue(operation);
  });
  for (const [name, kind] of [["createDocument", "create"], ["upsertDocument", "upsert"]]) {
    method(name, 2, (name, link, body, options, callback) => {
      const operation = operationOf(kind);
      checkCollectionLink(link);
      options = tail(operation, name, options, callback);
      indexActionOf(operation, options);
      if (kind === "upsert") operation.etag = optionalText("etag", options.etag);
      operation.body = bodyText(body, options);
      return enqueue(operation);
    });
  }
  method("replaceDocument", 2, (name, link, body, options, callback) => {
    const operation = operationOf("replace");
    itemOf(operation, link);
    options = tail(operation, name, options, callback);
    indexActionOf(operation, options);
    operation.etag = optionalText("etag", options.etag);
    operation.body = typeof body === "string" ? clean(body) : stringify(body);
    if (operation.body === undefined) throw fail(400, BODY_MESSAGE);
    return enqueue(operation);
  });
  method("deleteDocument", 1, (name, link, options, callback) => {
    const operation = operationOf("delete");
    itemOf(operation, link);
    options = tail(operation, name, options, callback);
    operation.etag = optionalText("etag", options.etag);
    operation.partitionKey = optionalText("partitionKeyContent", options.partitionKeyContent);
    return enqueue(operation);
  });
  for (const [name, least] of [["readAttachment", 1], ["readAttachments", 1], ["queryAttachments", 2], ["createAttachment", 2],
      ["upsertAttachment", 2], ["replaceAttachment", 2], ["deleteAttachment", 1]]) {
    method(name, least, (name) => { throw fail(400, 'Attachments are not supported: "' + name + '".'); });
  }
  const spatial = {};
  for (const name of ["distance", "intersects", "within", "isValid", "isValidDetailed"]) {
    hide(spatial, name, () => {
      throw fail(400, '"spatial.' + name + '" is not supported: use the ST_ functions in queryDocuments.');
    });
  }
  hide(collection, "spatial", spatial);
}
function queryOf(operation, query) {
  if (typeof query === "string") {
    operation.text = clean(query);
    return;
  }
  if (query === null || typeof query !== "object" || typeof query.query !== "string" ||
      (query.parameters !== undefined && query.parameters !== null && !isArray(query.parameters))) {
    throw fail(400, 'The "filterQuery" parameter must be a string or an object with the properties "query" and "parameters".');
  }
  operation.text = clean(query.query);
  if (query.parameters) operation.parameters = stringify(query.parameters);
}

// ---- the JavaScript query API ----
// Each stage is {kind, run}, run being a function from a list to a list.
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
// name: how many arguments belong to the stage, and what makes it of them.
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
  const skip = given.length > 0 && (given[0] === collection || given[0] === root.__) ? 1 : 0;
  const args = [];
  for (let i = skip; i < given.length; i++) push(args, given[i]);
  args.chained = chained;
  return args;
}
const CHAIN_MESSAGE = (what) => 'When using "chain", ' + what + ' can only be provided on the call to the "value" function.';
class Query {
  #stages;
  constructor(stages, isAccepted) {
    this.#stages = stages;
    this.isAccepted = isAccepted;
  }
  static extend(query, name, given) {
    if (!query.isAccepted) return query;
    const args = argumentsOf(given, true), stage = STAGES[name](args);
    for (let i = stage.used; i < args.length; i++) {
      if (typeof args[i] === "function") throw fail(400, CHAIN_MESSAGE("the callback"));
      if (args[i] !== undefined) throw fail(400, CHAIN_MESSAGE("options"));
    }
    return new Query({ __proto__: null, before: query.#stages, stage }, true);
  }
  static run(query, name, options, callback) {
    if (!query.isAccepted) return query;
    return new Query(null, startQuery(query.#stages, name, options, callback));
  }
}
function startQuery(stages, name, options, callback) {
  const operation = operationOf("query");
  pageOf(operation, tail(operation, name, options, callback));
  if (!operation.callback && !response) {
    throw fail(400, "The callback function must be provided for scenarios, such as pre-trigger, when response object is not available.");
  }
  operation.text = "SELECT * FROM c";
  operation.stages = stages;
  operation.sorts = false;
  for (let at = stages; at; at = at.before) operation.sorts = operation.sorts || at.stage.sorts === true;
  if (operation.sorts) {
    // Order comes before pages: everything is read, and the continuation is a place in the sorted list.
    const from = operation.continuation ?? "sorted:0";
    const place = startsWith(from, "sorted:") ? toNumber(slice(from, 7)) : NaN;
    if (!isInteger(place) || place < 0) throw fail(400, "The continuation does not belong to this query.");
    operation.place = place;
    operation.take = operation.pageSize;
    operation.pageSize = 1000;
    operation.continuation = undefined;
    operation.gathered = [];
  }
  return enqueue(operation);
}
function runStages(stages, list) {
  if (!stages) return list;
  return stages.stage.run(runStages(stages.before, list));
}
function defineQueries() {
  for (const name of getOwnPropertyNames(STAGES)) {
    hide(collection, name, function () {
      const args = argumentsOf(arguments, false), stage = STAGES[name](args);
      const accepted = startQuery({ __proto__: null, before: null, stage }, name, args[stage.used], args[stage.used + 1]);
      return new Query(null, accepted);
    });
    hide(Query.prototype, name, function () { return Query.extend(this, name, arguments); });
  }
  hide(Query.prototype, "value", function (options, callback) { return Query.run(this, "value", options, callback); });
  hide(collection, "chain", () => new Query(null, !aborted && native.accepting(waiting)));
}

// ---- console ----
function log() {
  if (!logging) return;
  const count = arguments.length;
  if (count === 0) throw fail(400, "console.log requires at least one argument.");
  const format = arguments[0];
  if (count > 1 && typeof format !== "string") {
    throw fail(400, "First argument to console.log should be a string containing zero or more substitution strings.");
  }
  let text = "", next = 1;
  if (typeof format !== "string") text = plain(format);
  else for (let i = 0; i < format.length; i++) {
    const pair = format[i] === "%" ? format[i + 1] : undefined;
    if (pair === "%") { text += "%"; i++; }
    else if (pair === "s" && next < count) { text += plain(arguments[next++]); i++; }
    else text += format[i];
  }
  if (!native.log(clean(text))) {
    throw fail(413, 'Resulting message would be too large because of "x-ms-documentdb-script-log-results".');
  }
}
function plain(value) {
  return typeof value === "object" && value !== null ? (stringify(value) ?? toText(value)) : toText(value);
}

// ---- life of a run ----
function setUp(text, requestBody, responseBody) {
  const given = parse(text);
  ({ selfLink, altLink, usage, quota, logging } = given);
  slotsOfRequest = create(null);
  const names = ["Body"];
  slotsOfRequest.Body = { __proto__: null, value: initial(given, requestBody), writable: given.kind === "pre", max: given.bodyMax };
  if (given.operation) {
    slotsOfRequest.OperationType = { __proto__: null, value: given.operation, writable: false, max: 0 };
    push(names, "OperationType");
  }
  for (const [name, value] of given.headers) {
    if (slotsOfRequest[name]) continue;
    slotsOfRequest[name] = { __proto__: null, value, writable: false, max: 0 };
    push(names, name);
  }
  request = propertyMap(slotsOfRequest, names);
  collection = {};
  if (given.kind !== "pre") {
    slotsOfResponse = create(null);
    slotsOfResponse.Body = { __proto__: null, writable: true, max: given.bodyMax,
      value: given.kind === "procedure" || responseBody === undefined ? "" : parse(responseBody) };
    const responseNames = ["Body"];
    if (given.kind === "post") {
      slotsOfResponse.ResourceQuotaCurrentUsage = { __proto__: null, value: usage, writable: false, max: 0 };
      slotsOfResponse.MaxResourceQuota = { __proto__: null, value: quota, writable: false, max: 0 };
      push(responseNames, "ResourceQuotaCurrentUsage");
      push(responseNames, "MaxResourceQuota");
    }
    response = propertyMap(slotsOfResponse, responseNames);
  }
  defineMethods();
  defineQueries();
  const context = {};
  hide(context, "getCollection", () => collection);
  hide(context, "getRequest", () => request);
  if (response) hide(context, "getResponse", () => response);
  hide(context, "abort", (error) => {
    aborted ??= { __proto__: null, error };
    native.abort();
    throw error;
  });
  hide(root, "getContext", () => context);
  const short = create(collection);
  short.request = request;
  if (response) short.response = response;
  hide(root, "__", short);
  const output = {};
  for (const name of ["log", "info", "warn", "error", "debug"]) hide(output, name, log);
  hide(root, "console", output);
}
function initial(given, body) {
  if (given.kind === "procedure") return body;
  return body === undefined ? "" : parse(body);
}
// The arguments of a procedure by the rules of `Function.prototype.apply`; undefined when they cannot be.
function argumentsFrom(text, most) {
  if (text === "") return [];
  let given;
  try {
    given = parse(text);
  } catch {
    return undefined;
  }
  if (given === null) return [];
  if (typeof given !== "object") return undefined;
  if (isArray(given)) return given.length <= most ? given : undefined;
  const length = trunc(toNumber(given.length));
  if (!(length > 0)) return [];
  if (length > most) return undefined;
  const list = [];
  for (let i = 0; i < length; i++) push(list, given[i]);
  return list;
}
let list = [];
function setArguments(text, most) {
  list = argumentsFrom(text, most);
  return list !== undefined;
}
function call(entry) {
  apply(entry, undefined, list);
}
// The next operation for the host, or null.
function take() {
  const operation = first;
  if (operation) {
    waiting--;
    first = operation.next;
    if (!first) last = null;
  }
  return operation;
}
function responseOptions() {
  return { currentCollectionSizeInMB: usage, maxCollectionSizeInMB: quota };
}
function completeItem(operation, status, text) {
  const options = responseOptions();
  options.statusCode = status;
  if (operation.kind === "delete") return operation.callback && operation.callback(undefined, options);
  if (status === 304) options.notModified = true;
  if (operation.callback) operation.callback(undefined, text === undefined ? undefined : parse(text), options);
}
function completePage(operation, text, continuation) {
  let items = parse(text);
  if (operation.sorts) {
    for (let i = 0; i < items.length; i++) push(operation.gathered, items[i]);
    if (continuation) {
      operation.continuation = continuation;
      waiting++;
      operation.next = first;
      first = operation;
      last ??= operation;
      return;
    }
    const sorted = runStages(operation.stages, operation.gathered), end = operation.place + operation.take;
    items = [];
    for (let i = operation.place; i < end && i < sorted.length; i++) push(items, sorted[i]);
    continuation = end < sorted.length ? "sorted:" + end : undefined;
  } else if (operation.stages !== undefined) {
    items = runStages(operation.stages, items);
  }
  const options = responseOptions();
  if (continuation) options.continuation = continuation;
  if (operation.callback) operation.callback(undefined, items, options);
  else if (operation.stages !== undefined) response.appendBody(stringify(items));
}
function completeError(operation, status, text) {
  const message = stringify({ __proto__: null, Errors: [text] });
  const error = fail(status, message);
  hide(error, "body", message);
  if (!operation.callback) throw error;
  if (operation.kind === "delete") operation.callback(error, responseOptions());
  else operation.callback(error, undefined, responseOptions());
}
function bodyOf(slots) {
  const value = slots.Body.value;
  return value === undefined ? undefined : stringify(value);
}
api.setUp = setUp;
api.setArguments = setArguments;
api.call = call;
api.take = take;
api.completeItem = completeItem;
api.completePage = completePage;
api.completeError = completeError;
api.requestBody = () => bodyOf(slotsOfRequest);
api.responseBody = () => bodyOf(slotsOfResponse);
api.abortReason = () => describe(aborted.error);
return api;
})
