// Queries over all partitions that the client merges by a query plan: with one partition as with several.

import assert from "node:assert/strict";
import test from "node:test";

import { failure, newContainer, partitions } from "./common.mjs";

const COUNT = 24;
const numbers = Array.from({ length: COUNT }, (_, n) => n);
const kindOf = (n) => "abc"[n % 3];
const ascending = (a, b) => a - b;

const definition = {
  partitionKey: { paths: ["/pk"], version: 2 },
  indexingPolicy: {
    indexingMode: "consistent",
    includedPaths: [{ path: "/*" }],
    excludedPaths: [{ path: '/"_etag"/?' }],
    compositeIndexes: [
      [
        { path: "/rank", order: "ascending" },
        { path: "/n", order: "descending" },
      ],
    ],
  },
};

async function filled(t) {
  const container = await newContainer(t, definition);
  for (const n of numbers) {
    const item = { id: String(n).padStart(2, "0"), pk: `p${n % 8}`, n, rank: Math.floor(n / 6), kind: kindOf(n) };
    item.tags = [`t${n % 2}`, `t${(n % 5) + 2}`];
    if (n % 2) {
      item.score = n * 10;
    }
    await container.items.create(item);
  }
  const ask = async (query, options = {}, parameters = []) =>
    (await container.items.query({ query, parameters }, options).fetchAll()).resources;
  const pages = async (query, options) => {
    const iterator = container.items.query(query, options);
    const seen = [];
    while (iterator.hasMoreResults()) {
      seen.push((await iterator.fetchNext()).resources ?? []);
    }
    return seen;
  };
  return { container, ask, pages };
}

test("ORDER BY over all partitions, one key and two", async (t) => {
  const { ask } = await filled(t);
  for (const maxItemCount of [1, 5, undefined]) {
    const options = { maxItemCount };
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.n", options), numbers);
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.n DESC", options), numbers.toReversed());
    const expected = numbers.toSorted((a, b) => Math.floor(a / 6) - Math.floor(b / 6) || b - a);
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.rank ASC, c.n DESC", options), expected);
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.rank DESC, c.n ASC", options), expected.toReversed());
  }
});

test("two sort keys need their composite index", async (t) => {
  const { container } = await filled(t);
  const error = await failure(container.items.query("SELECT * FROM c ORDER BY c.rank, c.n").fetchAll());
  assert.equal(error.code, 400);
  assert.match(JSON.stringify(error.body ?? error.message), /composite index/);
});

test("tied rows come once each, page by page, in both directions", async (t) => {
  const { pages } = await filled(t);
  for (const direction of ["ASC", "DESC"]) {
    const seen = (await pages(`SELECT c.id, c.rank FROM c ORDER BY c.rank ${direction}`, { maxItemCount: 1 })).flat();
    assert.equal(seen.length, COUNT);
    assert.equal(new Set(seen.map((row) => row.id)).size, COUNT);
    const ranks = seen.map((row) => row.rank);
    assert.deepEqual(ranks, direction === "ASC" ? ranks.toSorted(ascending) : ranks.toSorted(ascending).toReversed());
    const six = await pages(`SELECT VALUE c.id FROM c WHERE c.rank = 1 ORDER BY c.rank ${direction}`, { maxItemCount: 1 });
    assert.deepEqual(six.flat().toSorted(), ["06", "07", "08", "09", "10", "11"]);
    assert.ok(six.every((page) => page.length <= 1));
  }
});

test("missing values come first inside a partition", async (t) => {
  const { container, ask } = await filled(t);
  await container.items.create({ id: "none", pk: "p1", n: 100 });
  const inside = { partitionKey: "p1", maxItemCount: 1 };
  assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.score", inside), [100, 1, 9, 17]);
  assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.score DESC", inside), [17, 9, 1, 100]);
});

test("the client does not merge mixed types", { skip: partitions === 1 }, async (t) => {
  const { container } = await filled(t);
  const error = await failure(container.items.query("SELECT * FROM c ORDER BY c.score").fetchAll());
  assert.match(error.message, /mixed types/);
});

test("GROUP BY and aggregates without VALUE", async (t) => {
  const { ask } = await filled(t);
  const groups = await ask("SELECT c.kind, COUNT(1) AS count, SUM(c.n) AS sum, AVG(c.n) AS average, MIN(c.n) AS low, MAX(c.n) AS high FROM c GROUP BY c.kind");
  groups.sort((a, b) => (a.kind < b.kind ? -1 : 1));
  assert.deepEqual(groups, [
    { kind: "a", count: 8, sum: 84, average: 10.5, low: 0, high: 21 },
    { kind: "b", count: 8, sum: 92, average: 11.5, low: 1, high: 22 },
    { kind: "c", count: 8, sum: 100, average: 12.5, low: 2, high: 23 },
  ]);
  assert.deepEqual(await ask("SELECT COUNT(1) AS n, MAX(c.n) AS high FROM c"), [{ n: COUNT, high: 23 }]);
  const sums = await ask("SELECT VALUE SUM(c.n) FROM c GROUP BY c.kind");
  assert.deepEqual(sums.toSorted(ascending), [84, 92, 100]);
  const two = await ask("SELECT c.kind, c.rank, COUNT(1) AS n FROM c GROUP BY c.kind, c.rank");
  assert.equal(two.length, 12);
  assert.ok(two.every((row) => row.n === 2));
});

test("VALUE aggregates over all partitions", async (t) => {
  const { ask } = await filled(t);
  for (const [aggregate, expected] of [
    ["COUNT(1)", 24],
    ["COUNT(c.score)", 12],
    ["SUM(c.n)", 276],
    ["AVG(c.n)", 11.5],
    ["MIN(c.n)", 0],
    ["MAX(c.n)", 23],
    ["MIN(c.kind)", "a"],
    ["COUNTIF(c.n > 20)", 3],
  ]) {
    assert.deepEqual(await ask(`SELECT VALUE ${aggregate} FROM c`), [expected], aggregate);
  }
  assert.deepEqual(await ask("SELECT VALUE COUNT(1) FROM c WHERE c.n > 1000"), [0]);
  const list = await ask("SELECT VALUE MAKELIST(c.n) FROM c");
  assert.deepEqual(list.flat(2).toSorted(ascending), numbers);
});

test("DISTINCT, TOP and OFFSET LIMIT", async (t) => {
  const { ask } = await filled(t);
  for (const maxItemCount of [1, undefined]) {
    const options = { maxItemCount };
    assert.deepEqual((await ask("SELECT DISTINCT VALUE c.kind FROM c", options)).toSorted(), ["a", "b", "c"]);
    // Not ranks: in a sorted DISTINCT the client leaves out what JavaScript takes for false, such as 0.
    assert.deepEqual(await ask("SELECT DISTINCT VALUE c.kind FROM c ORDER BY c.kind DESC", options), ["c", "b", "a"]);
    assert.deepEqual(await ask("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", options), [23, 22, 21]);
    assert.deepEqual(await ask("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 4", options), [5, 6, 7, 8]);
    assert.equal((await ask("SELECT TOP 7 * FROM c", options)).length, 7);
    assert.equal((await ask("SELECT * FROM c OFFSET 20 LIMIT 10", options)).length, 4);
  }
});

test("JOIN, EXISTS and parameters", async (t) => {
  const { ask } = await filled(t);
  const tagged = await ask("SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 't4' ORDER BY c.n");
  assert.deepEqual(tagged, [2, 7, 12, 17, 22]);
  const exists = "SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = @tag) ORDER BY c.n";
  assert.deepEqual(await ask(exists, {}, [{ name: "@tag", value: "t4" }]), tagged);
  const any = "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(@list, c.n) ORDER BY c.n";
  assert.deepEqual(await ask(any, {}, [{ name: "@list", value: [3, 5, 99] }]), [3, 5]);
});

test("filters on the partition key narrow the plan", async (t) => {
  const { ask } = await filled(t);
  assert.deepEqual(await ask("SELECT VALUE c.n FROM c WHERE c.pk = 'p3' ORDER BY c.n DESC"), [19, 11, 3]);
  assert.deepEqual(await ask("SELECT VALUE c.n FROM c WHERE c.pk IN ('p1', 'p6') ORDER BY c.n"), [1, 6, 9, 14, 17, 22]);
  assert.deepEqual(await ask("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'p1' AND c.pk = 'p2'"), [0]);
});

test("continuations stay below one KB and resume", async (t) => {
  const { container } = await filled(t);
  // The client asks for continuations of at most 1 KB with every query.
  const text = "SELECT VALUE c.n FROM c ORDER BY c.n DESC";
  const seen = [];
  let continuationToken;
  do {
    const options = { partitionKey: "p1", maxItemCount: 1, continuationToken };
    const page = await container.items.query(text, options).fetchNext();
    seen.push(...(page.resources ?? []));
    continuationToken = page.continuationToken;
    assert.ok((continuationToken ?? "").length <= 1024);
  } while (continuationToken);
  assert.deepEqual(seen, [17, 9, 1]);
});

test("long sort keys do not make long continuations", async (t) => {
  const { container } = await filled(t);
  for (let n = 0; n < 4; n += 1) {
    await container.items.create({ id: `long${n}`, pk: "long", text: "x".repeat(3000) + n });
  }
  const seen = [];
  let continuationToken;
  do {
    const options = { partitionKey: "long", maxItemCount: 1, continuationToken };
    const page = await container.items.query("SELECT VALUE c.id FROM c ORDER BY c.text DESC", options).fetchNext();
    seen.push(...(page.resources ?? []));
    continuationToken = page.continuationToken;
    assert.ok((continuationToken ?? "").length <= 1024);
  } while (continuationToken);
  assert.deepEqual(seen, ["long3", "long2", "long1", "long0"]);
});

test("query metrics and index metrics", async (t) => {
  const { container } = await filled(t);
  const options = { partitionKey: "p1", populateQueryMetrics: true, populateIndexMetrics: true };
  const page = await container.items.query("SELECT * FROM c WHERE c.n >= 9", options).fetchNext();
  assert.equal(page.resources.length, 2);
  const [metrics] = Object.values(page.queryMetrics);
  assert.equal(metrics.outputDocumentCount, 2);
  assert.ok(metrics.retrievedDocumentCount >= 2 && metrics.retrievedDocumentSize > 0);
  assert.ok(metrics.totalQueryExecutionTime.totalMilliseconds() >= 0);
  const index = JSON.stringify(page.indexMetrics ?? "");
  assert.match(index, /\/n\/\?/);
});

test("what the client merges is what the server gives for the whole query", async (t) => {
  const { ask } = await filled(t);
  const sorted = (rows) => rows.map((row) => JSON.stringify(row)).toSorted();
  const unmerged = "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.kind FROM c)";
  assert.deepEqual(await ask(unmerged, { initialHeaders: { "x-quire-whole": "true" } }), [3]);
  assert.equal((await failure(ask(unmerged))).code, 400);
  for (const query of [
    "SELECT * FROM c WHERE c.n % 2 = 1",
    "SELECT c.n AS x, c.kind FROM c ORDER BY c.n DESC",
    'SELECT VALUE {"number": c.n, "first": c.tags[0]} FROM c ORDER BY c["n"]',
    "SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.n",
    "SELECT DISTINCT TOP 2 VALUE c.kind FROM c ORDER BY c.kind",
    "SELECT DISTINCT c.kind, c.rank FROM c",
    "SELECT DISTINCT VALUE c.kind FROM c ORDER BY c.kind OFFSET 1 LIMIT 5",
    "SELECT VALUE c.n FROM c WHERE c.kind = 'a' ORDER BY c.n OFFSET 3 LIMIT 100",
    "SELECT TOP 0 * FROM c",
    "SELECT VALUE COUNT(c.missing) FROM c",
    "SELECT VALUE SUM(c.missing) FROM c",
    "SELECT VALUE SUM(c.score) FROM c",
    "SELECT VALUE AVG(c.score) FROM c WHERE c.rank = 2",
    "SELECT VALUE MAX(c.missing) FROM c",
    "SELECT VALUE MIN(c.score) FROM c WHERE c.pk = 'p1'",
    "SELECT COUNT(1) AS n, AVG(c.score) AS mean FROM c WHERE c.rank IN (1, 2)",
    "SELECT COUNT(1), MIN(c.n), MAX(c.n) FROM c",
    "SELECT c.kind, c.rank, AVG(c.n) AS mean, MAX(c.score) AS best FROM c GROUP BY c.kind, c.rank",
    "SELECT c.kind FROM c GROUP BY c.kind",
    "SELECT VALUE COUNT(1) FROM c GROUP BY c.rank",
    "SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t",
    "SELECT UPPER(c.kind) AS k, SUM(c.n) AS s FROM c GROUP BY UPPER(c.kind)",
    "SELECT c.score, COUNT(1) AS n FROM c WHERE c.n < 6 GROUP BY c.score",
    "SELECT VALUE COUNT(1) FROM c WHERE false",
    "SELECT c.id FROM c WHERE c.pk IN ('p1', 'p2') AND c.n > 3",
    "SELECT VALUE 1",
  ]) {
    const whole = await ask(query, { initialHeaders: { "x-quire-whole": "true" } });
    for (const maxItemCount of [1, undefined]) {
      const merged = await ask(query, { maxItemCount });
      if (/ORDER BY/.test(query)) {
        assert.deepEqual(merged, whole, query);
      } else {
        assert.deepEqual(sorted(merged), sorted(whole), query);
      }
    }
  }
});
