// The rest of the server-side API: feeds, queries, attachments, console. Evaluated before a script that can name any of it.
(function (core) {
"use strict";
const { native, hide, push, fail, clean, need, tail, optionalText, enqueue, put, checkCollectionLink, responseOptions, slotsOfResponse,
  methods, runOf, queueOf } = core;
const { apply } = Reflect;
const bindCall = (method) => (receiver, ...given) => apply(method, receiver, given);
const { parse, stringify } = JSON;
const { isArray } = Array;
const { isInteger } = Number;
const { codePointAt, slice, startsWith } = String.prototype;
const { sort } = Array.prototype;
const toText = String, toNumber = Number;

// What `native` does.
const ACCEPTING = 0, LOG = 2, QUERIES = 4, SPATIAL = 6;

function pageOf(operation, options) {
  const size = options.pageSize;
  if (size === undefined || size === null) operation.pageSize = 100;
  else if (size === -1) operation.pageSize = 1000;
  else if (isInteger(size) && size > 0) operation.pageSize = size > 1000 ? 1000 : size;
  else throw fail(400, 'The option "pageSize" must be a positive integer or -1.');
  // The empty text is where a client without a continuation begins.
  operation.continuation = optionalText("continuation", options.continuation) || undefined;
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

function noAttachments(name, count, least) {
  need(name, count, least);
  throw fail(400, 'Attachments are not supported: "' + name + '".');
}
class Rest {
  getPartitionKeyDefinition() { return parse(runOf().partitionKey); }
  readDocuments(link, options, callback) {
    need("readDocuments", arguments.length, 1);
    const operation = { __proto__: null, kind: 1 };
    checkCollectionLink(link);
    pageOf(operation, tail(operation, "readDocuments", options, callback));
    return enqueue(operation);
  }
  queryDocuments(link, query, options, callback) {
    need("queryDocuments", arguments.length, 2);
    const operation = { __proto__: null, kind: 2 };
    checkCollectionLink(link);
    queryOf(operation, query);
    pageOf(operation, tail(operation, "queryDocuments", options, callback));
    return enqueue(operation);
  }
  readAttachment() { noAttachments("readAttachment", arguments.length, 1); }
  readAttachments() { noAttachments("readAttachments", arguments.length, 1); }
  queryAttachments() { noAttachments("queryAttachments", arguments.length, 2); }
  createAttachment() { noAttachments("createAttachment", arguments.length, 2); }
  upsertAttachment() { noAttachments("upsertAttachment", arguments.length, 2); }
  replaceAttachment() { noAttachments("replaceAttachment", arguments.length, 2); }
  deleteAttachment() { noAttachments("deleteAttachment", arguments.length, 1); }
  filter() { return queries().run("filter", arguments); }
  map() { return queries().run("map", arguments); }
  pluck() { return queries().run("pluck", arguments); }
  flatten() { return queries().run("flatten", arguments); }
  unwind() { return queries().run("unwind", arguments); }
  sortBy() { return queries().run("sortBy", arguments); }
  sortByDescending() { return queries().run("sortByDescending", arguments); }
  chain() {
    const queue = queueOf();
    return queries().chain(!queue.aborted && native(ACCEPTING, queue.waiting));
  }
}
for (const name of Object.getOwnPropertyNames(Rest.prototype)) {
  if (name !== "constructor") hide(methods, name, Rest.prototype[name]);
}

// ---- geometry ----
hide(methods, "spatial", { distance: spatialOf("distance", 2), intersects: spatialOf("intersects", 2), within: spatialOf("within", 2),
  isValid: spatialOf("isValid", 1), isValidDetailed: spatialOf("isValidDetailed", 1) });
function spatialOf(name, count) {
  return function () {
    need("spatial." + name, arguments.length, count);
    for (let i = 0; i < count; i++) {
      if (arguments[i] === null || typeof arguments[i] !== "object") {
        throw fail(400, 'The function "spatial.' + name + '" requires GeoJSON objects.');
      }
    }
    const text = native(SPATIAL, stringify([name, arguments[0], count > 1 ? arguments[1] : null]));
    if (text === null) throw fail(400, '"spatial.' + name + '" is not supported: use the ST_ functions in queryDocuments.');
    return text === undefined ? undefined : parse(text);
  };
}

let loaded = null;
function queries() {
  return loaded ??= native(QUERIES)({ __proto__: null, fail, push, hide, isArray, codePointAt: bindCall(codePointAt),
    sort: bindCall(sort), slice: bindCall(slice), startsWith: bindCall(startsWith), toNumber, isInteger,
    isCollection: (value) => typeof value === "object" && value !== null && (value === runOf().collection || value === runOf().short),
    start: (operation, name, options, callback, prepare) => {
      pageOf(operation, tail(operation, name, options, callback));
      if (!operation.callback && runOf().isPre) {
        throw fail(400, "The callback function must be provided for scenarios, such as pre-trigger, when response object is not available.");
      }
      if (prepare) prepare(operation);
      return enqueue(operation);
    } });
}

function page(operation, text, continuation) {
  let items = parse(text);
  if (operation.sorts) {
    for (let i = 0; i < items.length; i++) push(operation.gathered, items[i]);
    if (continuation) {
      operation.continuation = continuation;
      // Before all others: it has only begun. It was the last of its message, so none of them is with the host.
      const queue = queueOf();
      queue.waiting++;
      operation.next = queue.first;
      queue.first = queue.unsent = operation;
      queue.last ??= operation;
      return;
    }
    const sorted = queries().runStages(operation.stages, operation.gathered), end = operation.place + operation.take;
    items = [];
    for (let i = operation.place; i < end && i < sorted.length; i++) push(items, sorted[i]);
    continuation = end < sorted.length ? "sorted:" + end : undefined;
  } else if (operation.stages !== undefined) {
    items = queries().runStages(operation.stages, items);
  }
  const options = responseOptions();
  if (continuation) options.continuation = continuation;
  if (operation.callback) operation.callback(undefined, items, options);
  else if (operation.stages !== undefined) put(slotsOfResponse(runOf()), "Body", stringify(items), true);
}

// ---- console ----
function log() {
  if (!runOf().logging) return;
  const count = arguments.length;
  if (count === 0) throw fail(400, "console.log requires at least one argument.");
  const format = arguments[0];
  if (count > 1 && typeof format !== "string") {
    throw fail(400, "First argument to console.log should be a string containing zero or more substitution strings.");
  }
  let text = "", next = 1;
  if (typeof format !== "string") text = plain(format);
  else if (format.length > LOG_LENGTH_MAX) throw tooLong();
  else for (let i = 0; i < format.length; i++) {
    const pair = format[i] === "%" ? format[i + 1] : undefined;
    if (pair === "%") { text += "%"; i++; }
    else if (pair === "s" && next < count) { text += plain(arguments[next++]); i++; }
    else text += format[i];
  }
  if (!native(LOG, clean(text))) throw tooLong();
  slotsOfResponse(runOf());
  runOf().logSlot.value += text;
}
// No log is longer, so a format need not be looked through to know that it does not fit.
const LOG_LENGTH_MAX = 1 << 16;
function tooLong() {
  return fail(413, 'Resulting message would be too large because of "x-ms-documentdb-script-log-results".');
}
function plain(value) {
  return typeof value === "object" && value !== null ? (stringify(value) ?? toText(value)) : toText(value);
}

const console = { log, info: log, warn: log, error: log, debug: log };
hide(globalThis, "console", console);
return { __proto__: null, page, queryPrototype: () => queries().prototype };
})
