/**
 * What stored procedures, triggers and user-defined functions find on the server.
 *
 * Put `/// <reference path="quire.d.ts" />` at the top of a script for completion and checks in an editor; the line is a
 * comment, so the file can be stored as it is. Compile without a library for browsers: `"lib": ["es2023"]`, `"types": []`.
 *
 * A script is one function. A procedure receives the parameters of its call; a trigger receives none. Everything that one
 * run writes becomes visible together, or not at all: an exception that nobody catches undoes it. There are no modules, no
 * timers, no network and no way to make code from text. User-defined functions have `ErrorCodes` and the language alone.
 */

/** The context of this run. Not defined in user-defined functions. */
declare function getContext(): Context;

/** Short for the collection, with `request` and, where there is one, `response`. */
declare const __: ShortCollection;

/** Writes to the header `x-ms-documentdb-script-log-results` when the client asked for it; otherwise does nothing. */
declare const console: ScriptConsole;

/** Numbers that errors of operations carry. */
declare const ErrorCodes: {
    readonly BadRequest: 400;
    readonly Forbidden: 403;
    readonly NotFound: 404;
    readonly Conflict: 409;
    readonly PreconditionFailed: 412;
    readonly RequestEntityTooLarge: 413;
    readonly RetryWith: 449;
    readonly InternalServerError: 500;
};

interface Context {
    /** The container in whose logical partition the script runs. */
    getCollection(): Collection;
    getRequest(): ScriptRequest;
    /** The answer to the client. Absent in pre-triggers: there the method itself is missing. */
    getResponse(): ScriptResponse;
    /**
     * Ends the script and undoes what it did; the client receives the error. In ordinary code `throw` does the same; inside
     * of a promise, where an exception would be swallowed, this is the only way.
     */
    abort(error?: unknown): never;
}

interface ShortCollection extends Collection {
    request: ScriptRequest;
    response: ScriptResponse;
}

/** In procedures: the parameters. In triggers: the item that is written. */
interface ScriptRequest {
    /** Triggers: the item as an object, `""` for deletes. Procedures: the parameters as text. */
    getBody(): any;
    /** Pre-triggers only: the item to write instead. It is read when the script is done, so later changes to it count. */
    setBody(item: object | string): void;
    /** Pre-triggers only. */
    appendBody(value: unknown): void;
    /** Triggers only. */
    getOperationType(): "Create" | "Replace" | "Upsert" | "Delete";
    /** A property or a header of the client's request by its name. An unknown name throws a `TypeError`. */
    getValue(name: "Body" | "OperationType" | (string & {})): any;
    /** Pre-triggers only; `"Body"` is all that can be set. */
    setValue(name: "Body", value: unknown): void;
    /** Pre-triggers only. */
    appendValue(name: "Body", value: unknown): void;
}

/** What the client will receive: at most 4 MB. */
interface ScriptResponse {
    /** Procedures: `""` at first. Post-triggers: the item as it was stored. */
    getBody(): any;
    /** Kept by reference and turned into JSON when the script and all its callbacks are done. */
    setBody(value: unknown): void;
    /** Adds to a text, or with `+` to what is there. */
    appendBody(value: unknown): void;
    getValue(name: "Body" | "ResourceQuotaCurrentUsage" | "MaxResourceQuota" | (string & {})): any;
    setValue(name: "Body", value: unknown): void;
    appendValue(name: "Body", value: unknown): void;
    /** Post-triggers only: `documentSize=…;collectionSize=…;` */
    getResourceQuotaCurrentUsage(): string;
    /** Post-triggers only. */
    getMaxResourceQuota(): string;
    /** The same as `getResourceQuotaCurrentUsage`, which some samples call so. */
    getCurrentResourceQuotaUsage(): string;
}

/** An item as it is stored. */
interface Item {
    id: string;
    readonly _rid: string;
    /** A link to this item for `readDocument`, `replaceDocument` and `deleteDocument`. */
    readonly _self: string;
    readonly _etag: string;
    readonly _ts: number;
    [property: string]: any;
}

/** Why an operation failed. Thrown when it was started without a callback. */
interface OperationError extends Error {
    /** The status: 404 not found, 409 conflict, 412 etag differs, 413 too large, 449 try again. See {@link ErrorCodes}. */
    readonly number: number;
    /** JSON text: `{"Errors":["…"]}`; the same as `message`. */
    readonly body: string;
    readonly description: string;
}

/** `new Error(number, message)`: the number is what the client finds as sub-status. */
interface ErrorConstructor {
    new (number: number, message: string): Error & { number: number; description: string };
    (number: number, message: string): Error & { number: number; description: string };
}

/** The last argument of every callback. */
interface ResponseOptions {
    currentCollectionSizeInMB: string;
    maxCollectionSizeInMB: string;
}
interface ItemResponseOptions extends ResponseOptions {
    statusCode: number;
    /** `true` when a read found the etag of `ifNoneMatch`; the item is then `undefined`. */
    notModified?: true;
}
interface FeedResponseOptions extends ResponseOptions {
    /** Where the next page begins, in this run or in a later one; absent after the last page. */
    continuation?: string;
}

type ItemCallback = (error: OperationError | undefined, item: Item, options: ItemResponseOptions) => void;
type DeleteCallback = (error: OperationError | undefined, options: ItemResponseOptions) => void;
type FeedCallback<T> = (error: OperationError | undefined, results: T[], options: FeedResponseOptions) => void;

interface ReadOptions {
    /** An etag: the item is not sent when it still has it. */
    ifNoneMatch?: string;
}
interface FeedOptions {
    /** Results per page: 100 unless given, at most 1,000; -1 for the most. */
    pageSize?: number;
    /** From {@link FeedResponseOptions.continuation}. */
    continuation?: string;
}
interface QueryOptions extends FeedOptions {
    /** Accepted; filters on paths without an index always scan. */
    enableScan?: boolean;
    /** Accepted; order is always exact. */
    enableLowPrecisionOrderBy?: boolean;
}
interface WriteOptions {
    /** Whether queries find the item by its index. */
    indexAction?: "default" | "include" | "exclude";
}
interface CreateOptions extends WriteOptions {
    /** Unless `true`, an item without an id gets a random one; the object given is not changed. */
    disableAutomaticIdGeneration?: boolean;
}
interface ReplaceOptions extends WriteOptions {
    /** Fails with 412 unless the item has this etag. */
    etag?: string;
}
interface UpsertOptions extends CreateOptions, ReplaceOptions {}
interface DeleteOptions {
    /** Fails with 412 unless the item has this etag. */
    etag?: string;
    /** The partition key as JSON text; it must be that of the run. */
    partitionKeyContent?: string;
}

/** SQL as text, or with parameters. */
type SqlQuery = string | { query: string; parameters?: { name: string; value: unknown }[] };

/**
 * The container, seen from one logical partition.
 *
 * Every operation is queued and done after the function that started it has returned; callbacks run one at a time, in the
 * order of the calls. What it returns says whether it was queued: `false` asks the script to finish, because its time, its
 * throughput or its memory runs out; that operation is not done and its callback never runs, but all queued before are.
 * Without a callback a failed operation ends the script and undoes everything.
 */
interface Collection {
    /** `dbs/{rid}/colls/{rid}/` */
    getSelfLink(): string;
    /** `dbs/{id}/colls/{id}`; an item is `getAltLink() + "/docs/" + id`. */
    getAltLink(): string;
    /** The paths of the partition key, split at their slashes: `[["name", "first"]]`. */
    getPartitionKeyDefinition(): string[][];

    /** Sees what this run wrote. */
    readDocument(documentLink: string, options: ReadOptions, callback?: ItemCallback): boolean;
    readDocument(documentLink: string, callback?: ItemCallback): boolean;
    /** All items of the logical partition, page by page. Sees what this run wrote. */
    readDocuments(collectionLink: string, options: FeedOptions, callback?: FeedCallback<Item>): boolean;
    readDocuments(collectionLink: string, callback?: FeedCallback<Item>): boolean;
    /** Does not see what this run wrote. */
    queryDocuments<T = any>(collectionLink: string, query: SqlQuery, options: QueryOptions, callback?: FeedCallback<T>): boolean;
    queryDocuments<T = any>(collectionLink: string, query: SqlQuery, callback?: FeedCallback<T>): boolean;

    /** The partition key of the item must be that of the run. */
    createDocument(collectionLink: string, item: object | string, options: CreateOptions, callback?: ItemCallback): boolean;
    createDocument(collectionLink: string, item: object | string, callback?: ItemCallback): boolean;
    upsertDocument(collectionLink: string, item: object | string, options: UpsertOptions, callback?: ItemCallback): boolean;
    upsertDocument(collectionLink: string, item: object | string, callback?: ItemCallback): boolean;
    replaceDocument(documentLink: string, item: object | string, options: ReplaceOptions, callback?: ItemCallback): boolean;
    replaceDocument(documentLink: string, item: object | string, callback?: ItemCallback): boolean;
    /** The callback receives no item. */
    deleteDocument(documentLink: string, options: DeleteOptions, callback?: DeleteCallback): boolean;
    deleteDocument(documentLink: string, callback?: DeleteCallback): boolean;

    /** Items for which the function gives something true. */
    filter(predicate: (item: Item) => unknown, options: FeedOptions, callback?: FeedCallback<Item>): QueryResponse;
    filter(predicate: (item: Item) => unknown, callback?: FeedCallback<Item>): QueryResponse;
    map<T>(transform: (item: Item) => T, options: FeedOptions, callback?: FeedCallback<T>): QueryResponse;
    map<T>(transform: (item: Item) => T, callback?: FeedCallback<T>): QueryResponse;
    /** One property of every item. */
    pluck<T = any>(propertyName: string, options: FeedOptions, callback?: FeedCallback<T>): QueryResponse;
    pluck<T = any>(propertyName: string, callback?: FeedCallback<T>): QueryResponse;
    /** Arrays by their elements: one level when `isShallow`, otherwise all. */
    flatten(isShallow: boolean, options: FeedOptions, callback?: FeedCallback<any>): QueryResponse;
    flatten(isShallow?: boolean, callback?: FeedCallback<any>): QueryResponse;
    flatten(callback: FeedCallback<any>): QueryResponse;
    /** Every item joined with the elements of an array in it. The first function must have one parameter, the second two. */
    unwind<E, T>(collection: (item: Item) => E[], result: (item: Item, element: E) => T, options: FeedOptions,
        callback?: FeedCallback<T>): QueryResponse;
    unwind<E, T>(collection: (item: Item) => E[], result: (item: Item, element: E) => T, callback?: FeedCallback<T>): QueryResponse;
    unwind<E>(collection: (item: Item) => E[], callback?: FeedCallback<E>): QueryResponse;
    sortBy(key: (item: Item) => unknown, options: FeedOptions, callback?: FeedCallback<Item>): QueryResponse;
    sortBy(key: (item: Item) => unknown, callback?: FeedCallback<Item>): QueryResponse;
    sortByDescending(key: (item: Item) => unknown, options: FeedOptions, callback?: FeedCallback<Item>): QueryResponse;
    sortByDescending(key: (item: Item) => unknown, callback?: FeedCallback<Item>): QueryResponse;
    /** Begins a chain of the above, which `value` runs. */
    chain(): Chain<Item>;

    readonly spatial: Spatial;

    /** @deprecated Attachments are not supported: each of these throws with 400. */
    readAttachment(attachmentLink: string, ...rest: unknown[]): never;
    /** @deprecated */
    readAttachments(documentLink: string, ...rest: unknown[]): never;
    /** @deprecated */
    queryAttachments(documentLink: string, query: SqlQuery, ...rest: unknown[]): never;
    /** @deprecated */
    createAttachment(documentLink: string, body: object, ...rest: unknown[]): never;
    /** @deprecated */
    upsertAttachment(documentLink: string, body: object, ...rest: unknown[]): never;
    /** @deprecated */
    replaceAttachment(attachmentLink: string, body: object, ...rest: unknown[]): never;
    /** @deprecated */
    deleteAttachment(attachmentLink: string, ...rest: unknown[]): never;
}

interface QueryResponse {
    readonly isAccepted: boolean;
}

/**
 * Calls of the query API one after another. Options and the callback are for `value` alone. Without a callback the results
 * are added to the response body as JSON text.
 */
interface Chain<T> {
    readonly isAccepted: boolean;
    filter(predicate: (value: T) => unknown): Chain<T>;
    map<R>(transform: (value: T) => R): Chain<R>;
    pluck<K extends keyof T>(propertyName: K): Chain<T[K]>;
    flatten(isShallow?: boolean): Chain<any>;
    unwind<E, R>(collection: (value: T) => E[], result: (value: T, element: E) => R): Chain<R>;
    unwind<E>(collection: (value: T) => E[]): Chain<E>;
    sortBy(key: (value: T) => unknown): Chain<T>;
    sortByDescending(key: (value: T) => unknown): Chain<T>;
    value(options: FeedOptions, callback?: FeedCallback<T>): QueryResponse;
    value(callback?: FeedCallback<T>): QueryResponse;
}

/** Functions over GeoJSON objects, as `ST_DISTANCE` and the others in SQL; what is no valid geometry gives `undefined`. */
interface Spatial {
    /** In metres, or in the unit of the coordinates where the container has plane geometry. */
    distance(one: object, other: object): number | undefined;
    intersects(one: object, other: object): boolean | undefined;
    within(inner: object, outer: object): boolean | undefined;
    isValid(geometry: object): boolean;
    isValidDetailed(geometry: object): { valid: boolean; reason?: string };
}

interface ScriptConsole {
    /** `%s` stands for the next value, `%%` for a percent sign. Adds no end of line. */
    log(format: unknown, ...values: unknown[]): void;
    info(format: unknown, ...values: unknown[]): void;
    warn(format: unknown, ...values: unknown[]): void;
    error(format: unknown, ...values: unknown[]): void;
    debug(format: unknown, ...values: unknown[]): void;
}
