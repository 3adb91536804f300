// The server-side API, evaluated in every new context of a procedure or trigger before the script's own text.
//
// It holds what it needs of the built-ins in constants and keeps its state in objects without a prototype, so nothing
// a script does to prototypes or globals changes what happens here. `native` is not reachable from a script. Each
// built-in it holds takes time to make: what is not for every script is in other files.
//
// `begin` starts a run: what a script can change of the API is new in every run. In a context whose built-ins are frozen it is made
// when it is first asked for.
//
// Operations are numbered by kind, as `run.rs` reads them.
(function (native, withMore) {
"use strict";
const { parse, stringify } = JSON;
const { defineProperty } = Object;
const { apply } = Reflect;
const { isArray } = Array;
const { indexOf, slice, startsWith, split, toLowerCase, toWellFormed } = String.prototype;
const toText = String, toNumber = Number;
const NativeError = Error, NativeTypeError = TypeError;
const root = globalThis, NOTHING = [];

// What `native` does.
const ACCEPTING = 0, ABORT = 1, NEW_ID = 3, MORE = 5;
// Kinds of operations; `more.js` and `queries.js` have feeds (1) and queries (2).
const READ = 0, CREATE = 3, UPSERT = 4, REPLACE = 5, DELETE = 6;

function hide(object, name, value) {
  defineProperty(object, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
}
function clean(text) { return apply(toWellFormed, text, NOTHING); }
// Appends without asking prototypes for setters.
function push(list, value) {
  defineProperty(list, list.length, { __proto__: null, value, writable: true, configurable: true, enumerable: true });
}
function fail(number, message) {
  const error = new NativeError(message);
  hide(error, "number", number);
  hide(error, "description", message);
  return error;
}

// ---- request and response ----
function put(slots, name, value, appends) {
  const found = slots[name];
  if (found === undefined) throw fail(400, "Cannot set new values: " + toText(name));
  if (!found.writable) throw fail(403, "Not a writable property: " + toText(name));
  const old = found.value;
  if (appends && old !== null && old !== undefined) {
    value = typeof old === "string" ? old + (typeof value === "object" ? stringify(value) : toText(value)) : old + value;
  }
  const text = typeof value === "string" ? value : typeof value === "object" ? stringify(value) : toText(value);
  if (text !== undefined && text.length > bodyMax) {
    throw fail(413, 'Resulting message would be too large because of "' + name + '". The maximum is ' + bodyMax + " characters.");
  }
  found.value = value;
}
function message(slots, writable) {
  const map = {
    getBody() { return slots.Body.value; },
    getValue(name) {
      if (name === undefined) return undefined;
      const found = slots[name];
      if (found === undefined) throw new NativeTypeError("Unknown property: " + toText(name));
      return found.value;
    },
  };
  if (!writable) return map;
  map.setBody = (value) => put(slots, "Body", value, false);
  map.appendBody = (value) => put(slots, "Body", value, true);
  map.setValue = (name, value) => put(slots, name, value, false);
  map.appendValue = (name, value) => put(slots, name, value, true);
  return map;
}
function readable(map, slots, name, value) {
  if (slots[name]) return;
  slots[name] = { __proto__: null, value, writable: false };
  map["get" + name] = () => slots[name].value;
}

// What belongs to the run under way.
let run = null;
let selfLink, altLink, selfItems, altItems, bodyMax;

function collectionOf(run) { return run.collection ??= new Collection(); }
function requestOf(run) {
  if (run.request !== null) return run.request;
  const { isProcedure, isPre, operationType, headers, requestBody: body } = run;
  const slots = { __proto__: null, Body: { __proto__: null, writable: isPre,
    value: isProcedure ? body : body === undefined ? "" : parse(body) } };
  const request = message(slots, isPre);
  if (operationType !== undefined) readable(request, slots, "OperationType", operationType);
  for (let i = 0; i + 1 < headers.length; i += 2) readable(request, slots, headers[i], headers[i + 1]);
  run.slotsOfRequest = slots;
  return run.request = request;
}
function slotsOfResponse(run) {
  if (run.slotsOfResponse !== null) return run.slotsOfResponse;
  const { isProcedure, responseBody: body } = run;
  const slots = { __proto__: null, Body: { __proto__: null, writable: true,
    value: isProcedure || body === undefined ? "" : parse(body) } };
  // What the script has logged so far.
  run.logSlot = { __proto__: null, writable: false, value: "" };
  if (isProcedure) slots["x-ms-documentdb-script-log-results"] = run.logSlot;
  return run.slotsOfResponse = slots;
}
// A pre-trigger has none.
function responseOf(run) {
  if (run.isPre || run.response !== null) return run.response ?? undefined;
  const slots = slotsOfResponse(run), response = run.response = message(slots, true);
  if (!run.isProcedure) {
    readable(response, slots, "ResourceQuotaCurrentUsage", run.usage);
    readable(response, slots, "MaxResourceQuota", run.quota);
    response.getCurrentResourceQuotaUsage = response.getResourceQuotaCurrentUsage;
  }
  return response;
}

// ---- the queue ----
// Operations wait here, in the order in which they were started, until they are answered. The host takes several at once: those
// from `unsent` on are still ours.
let queue = null;

function enqueue(operation) {
  if (queue.aborted || !native(ACCEPTING, queue.waiting)) return false;
  queue.waiting++;
  operation.next = null;
  if (queue.last) queue.last.next = operation; else queue.first = operation;
  queue.last = operation;
  queue.unsent ??= operation;
  return true;
}
// The oldest operation has its answer.
function answered() {
  const operation = queue.first;
  queue.waiting--;
  queue.first = operation.next;
  if (!queue.first) queue.last = null;
  return operation;
}

// ---- arguments of collection methods ----
function need(name, count, least) {
  if (count < least) {
    throw fail(400, 'The function "' + name + '" requires at least ' + least + " argument(s) but was called with " + count +
      " argument(s).");
  }
}
const NO_OPTIONS = { __proto__: null };
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
  return options ?? NO_OPTIONS;
}
function optionalText(name, value) {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw fail(400, 'The option "' + name + '" must be a string.');
  return clean(value);
}
function indexActionOf(operation, options) {
  const action = optionalText("indexAction", options.indexAction);
  if (action !== undefined && action !== "default" && action !== "include" && action !== "exclude") {
    throw fail(400, 'The option "indexAction" must be "default", "include" or "exclude".');
  }
  operation.indexAction = action;
}
function segmentsOf(link, what, count) {
  const segments = typeof link === "string" ? apply(split, link, ["/"]) : NOTHING;
  if (segments.length === count || (segments.length === count + 1 && segments[count] === "")) {
    const names = count < 6 ? segments[0] + segments[2] : segments[0] + segments[2] + segments[4];
    const expected = count < 6 ? "dbscolls" : "dbscollsdocs";
    if (names === expected || apply(toLowerCase, names, NOTHING) === expected) return segments;
  }
  const shown = typeof link === "string" ? link
    : typeof link === "object" || typeof link === "function" ? typeof link : toText(link);
  throw fail(400, "Invalid " + what + ' link: "' + shown + '".');
}
function outside(link) {
  return fail(400, "Function is not allowed to operate on resources outside current collection. " +
    'Make sure that the link provided, "' + link + '", belongs to the current collection.');
}
function checkCollectionLink(link) {
  if (link === selfLink || link === altLink) return;
  segmentsOf(link, "collection", 4);
  throw outside(link);
}
// The id in a link of the usual form; undefined for others, which `itemOf` takes apart.
function nameAfter(link, start) {
  const name = apply(slice, link, [start.length]), at = apply(indexOf, name, ["/"]);
  if (name === "" || at === 0) return undefined;
  return at === -1 ? name : at === name.length - 1 ? apply(slice, name, [0, at]) : undefined;
}
function itemOf(operation, link) {
  if (typeof link === "string") {
    const isSelf = apply(startsWith, link, [selfItems]);
    const name = isSelf ? nameAfter(link, selfItems) : apply(startsWith, link, [altItems]) ? nameAfter(link, altItems) : undefined;
    if (name !== undefined) {
      if (isSelf) operation.rid = clean(name); else operation.id = clean(name);
      return;
    }
  }
  const segments = segmentsOf(link, "document", 6);
  if (apply(startsWith, link, [selfLink])) operation.rid = clean(segments[5]);
  else if (apply(startsWith, link, [altLink + "/"])) operation.id = clean(segments[5]);
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
  return stringify({ ...object, id: native(NEW_ID) });
}
// ---- collection methods ----
function write(name, kind, link, body, options, callback) {
  const operation = { __proto__: null, kind };
  checkCollectionLink(link);
  options = tail(operation, name, options, callback);
  indexActionOf(operation, options);
  if (kind === UPSERT) operation.etag = optionalText("etag", options.etag);
  operation.body = bodyText(body, options);
  return enqueue(operation);
}
class Collection {
  getSelfLink() { return selfLink; }
  getAltLink() { return altLink; }
  readDocument(link, options, callback) {
    need("readDocument", arguments.length, 1);
    const operation = { __proto__: null, kind: READ };
    itemOf(operation, link);
    options = tail(operation, "readDocument", options, callback);
    operation.etag = optionalText("ifNoneMatch", options.ifNoneMatch);
    return enqueue(operation);
  }
  createDocument(link, body, options, callback) {
    need("createDocument", arguments.length, 2);
    return write("createDocument", CREATE, link, body, options, callback);
  }
  upsertDocument(link, body, options, callback) {
    need("upsertDocument", arguments.length, 2);
    return write("upsertDocument", UPSERT, link, body, options, callback);
  }
  replaceDocument(link, body, options, callback) {
    need("replaceDocument", arguments.length, 2);
    const operation = { __proto__: null, kind: REPLACE };
    itemOf(operation, link);
    options = tail(operation, "replaceDocument", options, callback);
    indexActionOf(operation, options);
    operation.etag = optionalText("etag", options.etag);
    operation.body = typeof body === "string" ? clean(body) : stringify(body);
    if (operation.body === undefined) throw fail(400, BODY_MESSAGE);
    return enqueue(operation);
  }
  deleteDocument(link, options, callback) {
    need("deleteDocument", arguments.length, 1);
    const operation = { __proto__: null, kind: DELETE };
    itemOf(operation, link);
    options = tail(operation, "deleteDocument", options, callback);
    operation.etag = optionalText("etag", options.etag);
    operation.partitionKey = optionalText("partitionKeyContent", options.partitionKeyContent);
    return enqueue(operation);
  }
}

// ---- globals ----
function contextOf(run) {
  const context = {
    getCollection() { return collectionOf(run); },
    getRequest() { return requestOf(run); },
    abort(error) {
      queue.aborted ??= { __proto__: null, error };
      native(ABORT);
      throw error;
    },
  };
  if (!run.isPre) context.getResponse = () => responseOf(run);
  return context;
}
hide(root, "getContext", function getContext() { return run.context ??= contextOf(run); });
hide(root, "__", undefined);
const more = withMore ? native(MORE)({ __proto__: null, native, hide, push, fail, clean, need, tail, optionalText, enqueue, put,
  checkCollectionLink, responseOptions, slotsOfResponse, methods: Collection.prototype, runOf: () => run, queueOf: () => queue }) : undefined;

// ---- life of a run ----
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
  const length = toNumber(given.length);
  if (!(length >= 1)) return [];
  if (!(length < most + 1)) return undefined;
  const list = [];
  for (let i = 0; i < length - length % 1; i++) push(list, given[i]);
  return list;
}
function responseOptions() {
  return { currentCollectionSizeInMB: run.usage, maxCollectionSizeInMB: run.quota };
}
// In the order of `ApiFunction`: the host finds them by number.
return [
  function begin(kind, operationType, self, alt, usage, quota, partitionKey, logging, bodyLengthMax, headers, requestBody, responseBody,
      withAll) {
    const isProcedure = kind === "procedure", isPre = kind === "pre";
    run = { __proto__: null, usage, quota, partitionKey, logging, isProcedure, isPre, operationType, headers, requestBody, responseBody,
      request: null, response: null, slotsOfRequest: null, slotsOfResponse: null, logSlot: null, collection: null, short: null,
      context: null };
    queue = { __proto__: null, first: null, last: null, unsent: null, waiting: 0, aborted: null };
    selfLink = self;
    altLink = alt;
    selfItems = self + "docs/";
    altItems = alt + "/docs/";
    bodyMax = bodyLengthMax;
    // The body of a trigger's request is the client's: what is wrong with it is not the script's fault.
    if (!isProcedure || withAll) {
      requestOf(run);
      slotsOfResponse(run);
    }
    if (!withAll) return;
    const short = run.short = { __proto__: collectionOf(run) }, response = responseOf(run);
    short.request = run.request;
    if (response) short.response = response;
    run.context = contextOf(run);
    defineProperty(root, "__", { __proto__: null, value: short });
  },
  // What a run had is not kept for the next. It throws if `__` cannot be set again.
  function end() {
    // Its functions have the run.
    if (run) run.context = null;
    run = queue = null;
    defineProperty(root, "__", { __proto__: null, value: undefined, writable: true });
  },
  // Whether the parameters fit; a trigger has none.
  function call(entry, most) {
    const list = run.isProcedure ? argumentsFrom(run.requestBody, most) : NOTHING;
    if (list === undefined) return false;
    apply(entry, undefined, list);
    return true;
  },
  // The operations for the host, a list by `next`, or null.
  function take() {
    const first = queue.unsent;
    queue.unsent = null;
    return first;
  },
  // Those that the host has not taken.
  function leave(operation) { queue.unsent = operation; },
  function item(status, text) {
    const { callback, kind } = answered();
    if (!callback) return;
    const options = responseOptions();
    options.statusCode = status;
    if (kind === DELETE) return void callback(undefined, options);
    if (status === 304) options.notModified = true;
    callback(undefined, text === undefined ? undefined : parse(text), options);
  },
  function page(text, continuation) { more.page(answered(), text, continuation); },
  function error(status, text) {
    const { callback, kind } = answered(), body = stringify({ __proto__: null, Errors: [text] });
    const error = fail(status, body);
    hide(error, "body", body);
    if (!callback) throw error;
    if (kind === DELETE) callback(error, responseOptions());
    else callback(error, undefined, responseOptions());
  },
  function body() {
    const slots = run.isPre ? run.slotsOfRequest : run.slotsOfResponse;
    if (slots === null) return '""';
    const { value } = slots.Body;
    return value === undefined ? undefined : stringify(value);
  },
  () => queue.aborted.error,
  // Objects of ours that scripts can reach from those of a run.
  () => [Collection.prototype, more.queryPrototype()],
];
})
