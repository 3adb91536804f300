// Partitions that are split while a client pages, follows a feed or sends bulks. An extension starts the splits.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { cosmos, endpoint, key, newContainer } from "./common.mjs";

// A request below /_quire/, signed with its path as link.
async function quire(method, path) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\n_quire\n${path}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
  const authorization = encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
  const url = `${endpoint.replace(/\/$/, "")}/${path}`;
  const response = await fetch(url, { method, headers: { authorization, "x-ms-date": date } });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function splitAll(container) {
  const path = `_quire/dbs/${container.database.id}/colls/${container.id}/partitions`;
  const { partitions } = await quire("GET", path);
  for (const { id, items } of partitions) {
    if (items > 1) await quire("POST", `${path}/${id}/split`);
  }
}

async function filled(t, count = 120) {
  const container = await newContainer(t);
  for (let n = 0; n < count; n++) await container.items.create({ id: String(n), pk: `k${n}`, n });
  return container;
}

const numbers = (count) => Array.from({ length: count }, (_, n) => n);
const sorted = (list) => [...list].sort((a, b) => a - b);

for (const query of ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n"]) test(`a query goes on over a split: ${query}`, async (t) => {
  const container = await filled(t);
  const iterator = container.items.query(query, { maxItemCount: 7 });
  const found = [];
  for (let page = 0; iterator.hasMoreResults(); page++) {
    const { resources } = await iterator.fetchNext();
    found.push(...(resources ?? []));
    if (page === 1 || page === 4) await splitAll(container);
  }
  assert.deepEqual(sorted(found), numbers(120));
});

test("a change feed goes on over a split", async (t) => {
  const container = await filled(t);
  const options = { maxItemCount: 11, changeFeedStartFrom: cosmos.ChangeFeedStartFrom.Beginning() };
  const told = [];
  let page = 0;
  for await (const { result, statusCode } of container.items.getChangeFeedIterator(options).getAsyncIterator()) {
    if (statusCode === cosmos.StatusCodes.NotModified) break;
    told.push(...result.map((item) => item.n));
    if (page++ === 2) await splitAll(container);
  }
  assert.deepEqual(sorted(told), numbers(120));
});

test("bulks go on over a split", async (t) => {
  const container = await filled(t);
  const upserts = numbers(120).map((n) => ({
    operationType: "Upsert",
    partitionKey: `k${n}`,
    resourceBody: { id: String(n), pk: `k${n}`, n: n + 1000 },
  }));
  await container.items.executeBulkOperations(upserts.slice(0, 60));
  await splitAll(container);
  const results = await container.items.executeBulkOperations(upserts);
  assert.ok(results.every(({ response }) => response?.statusCode === 200));
  const { resources } = await container.items.query("SELECT VALUE c.n FROM c").fetchAll();
  assert.deepEqual(sorted(resources), numbers(120).map((n) => n + 1000));
});
