import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import test from "node:test";

import { endpoint, failure, key, newDatabase } from "./common.mjs";

const MODEL = {
  version: 1,
  links: [
    { name: "book-authors", from: { container: "books", path: "/authors/*/id" }, to: { container: "authors" } },
    { name: "book-publisher", from: { container: "books", path: "/pub" }, to: { container: "publishers" } },
  ],
};

// A request below /_quire/, which the SDK does not know.
async function ownRequest(method, path, body) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\n_quire\n${path}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
  const answer = await fetch(`${endpoint.replace(/\/$/, "")}/${path}`, {
    method,
    headers: {
      authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
      "x-ms-date": date,
      "x-ms-version": "2020-07-15",
    },
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, await answer.clone().text());
  return answer.json();
}

async function newLibrary(t) {
  const database = await newDatabase(t);
  const container = async (id) => {
    const definition = { id, partitionKey: { paths: ["/id"], version: 2 } };
    return (await database.containers.create(definition)).container;
  };
  const [books, authors, publishers] = [
    await container("books"),
    await container("authors"),
    await container("publishers"),
  ];
  await ownRequest("PUT", `_quire/dbs/${database.id}/model`, MODEL);
  for (let n = 0; n < 7; n++) await authors.items.create({ id: `a${n}`, name: `Author ${n}`, nz: n % 2 === 0 });
  for (let n = 0; n < 3; n++) await publishers.items.create({ id: `p${n}`, name: `Publisher ${n}` });
  for (let n = 0; n < 40; n++) {
    // Some of them are not there.
    const references = [{ id: `a${n % 7}` }, { id: `a${n % 9}` }];
    await books.items.create({ id: `b${n}`, year: 1900 + (n % 13), pub: `p${n % 4}`, authors: references });
  }
  for (let tries = 0; ; tries++) {
    const status = await ownRequest("GET", `_quire/dbs/${database.id}/model/status`);
    if (status.declarations.every((declaration) => declaration.state === "active")) break;
    assert.ok(tries < 600, JSON.stringify(status));
    await new Promise((done) => setTimeout(done, 100));
  }
  return { books, authors, publishers };
}

const all = async (container, query, options = {}) =>
  (await container.items.query(query, { forceQueryPlan: true, ...options }).fetchAll()).resources;

async function read(container, id) {
  const { resource } = await container.item(id, id).read();
  return resource;
}

async function authorsOf(authors, book) {
  const found = await Promise.all(book.authors.map(({ id }) => read(authors, id)));
  return found.filter((author) => author !== undefined);
}

const byId = (items) => items.toSorted((left, right) => (left.id < right.id ? -1 : 1));

test("FOLLOW and REFERRERS give what a second round trip reads", async (t) => {
  const { books, authors, publishers } = await newLibrary(t);
  const own = byId((await books.items.readAll().fetchAll()).resources);
  for (const maxItemCount of [1, 7, 100]) {
    const followed = byId(await all(books, "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b", { maxItemCount }));
    assert.equal(followed.length, own.length);
    for (const [at, book] of own.entries()) assert.deepEqual(followed[at].a, await authorsOf(authors, book));
  }
  const published = byId(await all(books, "SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b"));
  for (const [at, book] of own.entries()) assert.deepEqual(published[at].p, await read(publishers, book.pub));
  for (const row of await all(authors, "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a")) {
    const expected = own.filter((book) => book.authors.some(({ id }) => id === row.id));
    assert.deepEqual(row.books, expected);
  }
});

test("joins, orders and groups over followed items are merged", async (t) => {
  const { books, authors } = await newLibrary(t);
  const own = (await books.items.readAll().fetchAll()).resources;
  const pairs = [];
  for (const book of own) for (const author of await authorsOf(authors, book)) pairs.push([book, author]);
  const expected = pairs.filter(([, author]) => author.nz).map(([book, author]) => `${book.id} ${author.name}`);
  for (const source of ["FOLLOW(b, 'book-authors')", "(SELECT VALUE FOLLOW(b, 'book-authors'))"]) {
    const query = `SELECT b.id, a.name FROM b JOIN a IN ${source} WHERE a.nz`;
    const found = (await all(books, query)).map((row) => `${row.id} ${row.name}`);
    assert.deepEqual(found.toSorted(), expected.toSorted());
  }
  const ordered = await all(books, "SELECT b.year, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year");
  assert.deepEqual(ordered.map((row) => row.year), own.map((book) => book.year).toSorted((a, b) => a - b));
  const grouped = await all(
    books,
    "SELECT a.name, COUNT(1) AS n FROM b JOIN a IN FOLLOW(b, 'book-authors') GROUP BY a.name",
  );
  for (const row of grouped) assert.equal(row.n, pairs.filter(([, author]) => author.name === row.name).length);
  assert.equal(grouped.reduce((sum, row) => sum + row.n, 0), pairs.length);
});

test("the header adds what follows to items", async (t) => {
  const { books, authors } = await newLibrary(t);
  const initialHeaders = { "x-quire-follow": "book-authors" };
  for (const query of ["SELECT * FROM b", "SELECT * FROM b ORDER BY b.year"]) {
    const rows = await all(books, query, { initialHeaders });
    assert.equal(rows.length, 40);
    for (const { _follow, ...row } of rows) {
      assert.deepEqual(row, await read(books, row.id));
      const expected = await Promise.all(row.authors.map(async ({ id }) => (await read(authors, id)) ?? null));
      assert.deepEqual(_follow, { "book-authors": expected });
    }
  }
  const { resource, headers } = await books.item("b8", "b8").read({ initialHeaders });
  assert.deepEqual(resource._follow["book-authors"].map((author) => author?.id), ["a1", undefined]);
  assert.equal(headers["x-quire-followed"], "1");
  const error = await failure(all(books, "SELECT b.id FROM b", { initialHeaders }));
  assert.match(error.message, /whole items/);
});
