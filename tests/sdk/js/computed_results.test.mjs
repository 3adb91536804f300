// Searches, feeds, orders and bulk writes, over as many partitions as the server has, against results computed here.

import assert from "node:assert/strict";
import test from "node:test";

import { cosmos, newClient, newContainer } from "./common.mjs";

const { ChangeFeedStartFrom } = cosmos;

const WORDS = ["river", "stone", "cloud", "tiger", "ember", "lunar", "pixel", "north"];
const COUNT = 80;

// Numbers from 0 to 1, the same ones in every run.
function chance(seed) {
  return () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

// Texts of which some terms are rare, some repeated; some items have no text and no vector.
function corpus() {
  const next = chance(7);
  const below = (bound) => Math.floor(next() * bound);
  const words = (count) => Array.from({ length: count }, () => WORDS[Math.floor(WORDS.length * Math.sqrt(next()))]);
  return Array.from({ length: COUNT }, (_, n) => {
    const item = { id: `${n}`, pk: `k${n % 13}`, n, tied: n % 4 };
    if (n % 11 === 5) return item;
    const v = Array.from({ length: 4 }, () => 2 * next() - 1);
    return { ...item, text: words(1 + below(12)).join(" "), title: words(1 + below(3)).join(" "), v };
  });
}

const ITEMS = corpus();

async function searched(t) {
  const container = await newContainer(t, {
    partitionKey: { paths: ["/pk"], version: 2 },
    indexingPolicy: {
      includedPaths: [{ path: "/*" }],
      excludedPaths: [{ path: "/v/*" }],
      fullTextIndexes: [{ path: "/text" }, { path: "/title" }],
      vectorIndexes: [{ path: "/v", type: "flat" }],
    },
    fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }, { path: "/title", language: "en-US" }] },
    vectorEmbeddingPolicy: {
      vectorEmbeddings: [{ path: "/v", dataType: "float32", distanceFunction: "cosine", dimensions: 4 }],
    },
  });
  await write(container, ITEMS);
  // Statistics are of what is there: these are not any more.
  const gone = Array.from({ length: 10 }, (_, n) => ({ id: `gone${n}`, pk: `k${n}`, text: "river river stone" }));
  await write(container, gone);
  await Promise.all(gone.map((item) => container.item(item.id, item.pk).delete()));
  return container;
}

const write = (container, items) => Promise.all(items.map((item) => container.items.create(item)));

// Scores by id; nothing for an item without a text.
function bm25(items, path, terms) {
  const texts = items.filter((item) => path in item).map((item) => [item.id, item[path].split(" ")]);
  const average = texts.reduce((sum, [, words]) => sum + words.length, 0) / items.length;
  const score = (words, term) => {
    const hits = texts.filter(([, other]) => other.includes(term)).length;
    const rarity = Math.log(1 + (items.length - hits + 0.5) / (hits + 0.5));
    const count = words.filter((word) => word === term).length;
    return (rarity * count * 2.2) / (count + 1.2 * (0.25 + (0.75 * words.length) / average));
  };
  return new Map(texts.map(([id, words]) => [id, terms.reduce((sum, term) => sum + score(words, term), 0)]));
}

function cosine(vector) {
  const dot = (left, right) => left.reduce((sum, value, place) => sum + value * right[place], 0);
  const similarity = (other) => dot(vector, other) / Math.sqrt(dot(vector, vector) * dot(other, other));
  return new Map(ITEMS.filter((item) => item.v).map((item) => [item.id, similarity(item.v)]));
}

// The sum of weight / (60 + rank); equal scores share a rank, no score is the last.
function fused(components, weights) {
  const total = new Map(ITEMS.map((item) => [item.id, 0]));
  components.forEach((scores, nth) => {
    const rounded = (score) => score.toFixed(9);
    const distinct = [...new Set([...scores.values()].map(rounded))].sort((a, b) => b - a);
    for (const [id, sum] of total) {
      const place = scores.has(id) ? distinct.indexOf(rounded(scores.get(id))) : distinct.length;
      total.set(id, sum + weights[nth] / (61 + place));
    }
  });
  return total;
}

// Items without a score come last.
function all(items, scores) {
  return new Map(items.map((item) => [item.id, scores.get(item.id) ?? -1]));
}

const ids = async (container, query, options) => (await container.items.query(query, options).fetchAll()).resources.map((row) => row.id);

// Rows of equal scores may change places, so the scores are compared.
function check(found, scores, count, offset = 0, tolerance = 1e-9) {
  const best = [...scores.values()].sort((a, b) => b - a).slice(offset, offset + count);
  assert.equal(found.length, best.length);
  assert.equal(new Set(found).size, found.length);
  found.forEach((id, place) => {
    const score = scores.get(id);
    assert.ok(Math.abs(score - best[place]) <= tolerance, `place ${place} of ${found}: ${score} is not ${best[place]}`);
  });
}

test("full text is ranked by scores computed here", async (t) => {
  const container = await searched(t);
  for (const terms of [["river"], ["river", "stone"], ["ember"], ["cloud", "tiger", "north"]]) {
    const scores = all(ITEMS, bm25(ITEMS, "text", terms));
    const rank = `ORDER BY RANK FullTextScore(c.text, ${terms.map((term) => `'${term}'`).join(", ")})`;
    check(await ids(container, `SELECT TOP 7 c.id FROM c ${rank}`), scores, 7);
    check(await ids(container, `SELECT c.id FROM c ${rank} OFFSET 5 LIMIT 20`), scores, 20, 5);
  }
});

test("a filter leaves the statistics as they are", async (t) => {
  const container = await searched(t);
  const inside = ITEMS.filter((item) => item.tied === 2);
  const query = "SELECT TOP 6 c.id FROM c WHERE c.tied = 2 ORDER BY RANK FullTextScore(c.text, 'stone')";
  check(await ids(container, query), all(inside, bm25(ITEMS, "text", ["stone"])), 6);
});

test("statistics of one partition key", async (t) => {
  const container = await searched(t);
  const inside = ITEMS.filter((item) => item.pk === "k3");
  const query = "SELECT TOP 4 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'ember', 'river')";
  const found = await ids(container, query, { partitionKey: "k3" });
  check(found, all(inside, bm25(inside, "text", ["ember", "river"])), 4);
});

test("hybrid search fuses ranks computed here", async (t) => {
  const container = await searched(t);
  const target = [0.3, -0.2, 0.9, 0.1];
  const parts = [bm25(ITEMS, "text", ["river", "stone"]), cosine(target)];
  const rank = `FullTextScore(c.text, 'river', 'stone'), VectorDistance(c.v, ${JSON.stringify(target)})`;
  check(await ids(container, `SELECT TOP 9 c.id FROM c ORDER BY RANK RRF(${rank})`), fused(parts, [1, 1]), 9);
  check(await ids(container, `SELECT TOP 9 c.id FROM c ORDER BY RANK RRF(${rank}, [1, 4])`), fused(parts, [1, 4]), 9);
  const window = `SELECT c.id FROM c ORDER BY RANK RRF(${rank}) OFFSET 3 LIMIT 11`;
  check(await ids(container, window), fused(parts, [1, 1]), 11, 3);
});

test("hybrid search fuses two texts", async (t) => {
  const container = await searched(t);
  const parts = [bm25(ITEMS, "text", ["tiger"]), bm25(ITEMS, "title", ["lunar"])];
  const rank = "RRF(FullTextScore(c.text, 'tiger'), FullTextScore(c.title, 'lunar'))";
  check(await ids(container, `SELECT TOP 5 c.id FROM c ORDER BY RANK ${rank}`), fused(parts, [1, 1]), 5);
});

test("vector search finds the nearest computed here", async (t) => {
  const container = await searched(t);
  for (const target of [[1, 0, 0, 0], [-0.4, 0.4, 0.2, -0.7]]) {
    const query = `SELECT TOP 12 c.id FROM c ORDER BY VectorDistance(c.v, ${JSON.stringify(target)})`;
    // Vectors are kept as 32-bit numbers.
    check(await ids(container, query), cosine(target), 12, 0, 1e-5);
  }
});

// A new client for every page, which knows the token and nothing else.
async function resumed(container, query, size) {
  const rows = [];
  let continuationToken;
  do {
    const again = newClient().database(container.database.id).container(container.id);
    const options = { maxItemCount: size, continuationToken, enableQueryControl: true };
    const page = await again.items.query(query, options).fetchNext();
    rows.push(...(page.resources ?? []));
    assert.ok(rows.length <= COUNT, `${query} repeats rows`);
    continuationToken = page.continuationToken;
  } while (continuationToken);
  return rows;
}

test("an order is resumed from its token after every page", async (t) => {
  const container = await newContainer(t);
  await write(container, ITEMS);
  for (const column of ["n", "tied"]) {
    for (const [direction, sign] of [["ASC", 1], ["DESC", -1]]) {
      const expected = ITEMS.map((item) => item[column]).sort((a, b) => sign * (a - b));
      for (const size of [7, 30]) {
        const rows = await resumed(container, `SELECT c.n, c.tied FROM c ORDER BY c.${column} ${direction}`, size);
        assert.deepEqual(rows.map((row) => row[column]), expected, `${column} ${direction} in pages of ${size}`);
        assert.equal(new Set(rows.map((row) => row.n)).size, COUNT);
      }
    }
  }
});

test("the change feed is pulled until it agrees", async (t) => {
  const container = await newContainer(t);
  const next = chance(11);
  const [model, seen] = [new Map(), new Map()];
  let start = ChangeFeedStartFrom.Beginning();
  for (let turn = 0; turn < 6; turn += 1) {
    for (let writes = 0; writes < 25; writes += 1) {
      const n = Math.floor(next() * 30);
      const [id, pk] = [`${n}`, `k${n % 6}`];
      if (next() < 0.2 && model.has(id)) {
        await container.item(id, pk).delete();
        model.delete(id);
        seen.delete(id);
      } else {
        model.set(id, Math.floor(next() * 1e6));
        await container.items.upsert({ id, pk, value: model.get(id) });
      }
    }
    const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: start, maxItemCount: 4 });
    let page;
    do {
      page = await iterator.readNext();
      for (const change of page.result ?? []) seen.set(change.id, change.value);
    } while (page.statusCode !== 304);
    start = ChangeFeedStartFrom.Continuation(page.continuationToken);
    // Everything is as it was last written; deletes are not part of this feed.
    assert.deepEqual([...seen].sort(), [...model].sort(), `turn ${turn}`);
  }
});

test("bulk writes are counted here", async (t) => {
  const container = await newContainer(t);
  const body = (n, value) => ({ id: `${n}`, pk: `k${n % 9}`, n: value });
  const numbers = Array.from({ length: 250 }, (_, n) => n);
  const run = async (operations) =>
    (await container.items.executeBulkOperations(operations)).map((result) => result.response?.statusCode ?? result.error.code);
  const created = await run(numbers.map((n) => ({ operationType: "Create", partitionKey: `k${n % 9}`, resourceBody: body(n, n) })));
  assert.deepEqual(created, numbers.map(() => 201));
  const changed = await run(
    numbers.map((n) => {
      const partitionKey = `k${n % 9}`;
      if (n % 3 === 0) return { operationType: "Delete", partitionKey, id: `${n}` };
      if (n % 3 === 1) return { operationType: "Upsert", partitionKey, resourceBody: body(n, -n) };
      return { operationType: "Create", partitionKey, resourceBody: body(n, 0) };
    }),
  );
  assert.deepEqual(changed, numbers.map((n) => [204, 200, 409][n % 3]));
  const { resources } = await container.items.readAll().fetchAll();
  const expected = numbers.filter((n) => n % 3 !== 0).map((n) => [`${n}`, n % 3 === 1 ? -n : n]);
  assert.deepEqual(resources.map((item) => [item.id, item.n]).sort(), expected.sort());
  const counted = await container.items.query("SELECT VALUE COUNT(1) FROM c WHERE c.n < 0").fetchAll();
  assert.deepEqual(counted.resources, [numbers.filter((n) => n % 3 === 1).length]);
});
