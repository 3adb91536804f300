import assert from "node:assert/strict";
import test from "node:test";

import { cosmos, newContainer } from "./common.mjs";

const { ChangeFeedStartFrom } = cosmos;

async function fill(container, first, last) {
  for (let n = first; n < last; n++) await container.items.upsert({ id: `${n}`, pk: `k${n % 7}`, n });
}

function names(first, last) {
  return Array.from({ length: last - first }, (_, n) => `${first + n}`).sort();
}

// Reads until every range has said once that nothing is new.
async function drain(iterator) {
  const items = [];
  for (let quiet = 0; iterator.hasMoreResults && quiet < 10; ) {
    const page = await iterator.readNext();
    quiet = page.statusCode === 304 ? quiet + 1 : 0;
    items.push(...(page.result ?? []));
  }
  return items;
}

const ids = (items) => items.map((item) => item.id).sort();

test("the change feed from the beginning, in small pages", async (t) => {
  const container = await newContainer(t);
  await fill(container, 0, 40);
  await container.items.upsert({ id: "3", pk: "k3", n: 33 });
  await container.item("4", "k4").delete();
  const options = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 5 };
  const items = await drain(container.items.getChangeFeedIterator(options));
  assert.deepEqual(ids(items), names(0, 40).filter((id) => id !== "4"));
  assert.equal(items.find((item) => item.id === "3").n, 33);
});

test("the change feed of a partition key, in order", async (t) => {
  const container = await newContainer(t);
  await fill(container, 0, 30);
  const options = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning("k2"), maxItemCount: 2 };
  const items = await drain(container.items.getChangeFeedIterator(options));
  assert.deepEqual(items.map((item) => item.n), [2, 9, 16, 23]);
});

test("the change feed from now on, and from a continuation", async (t) => {
  const container = await newContainer(t);
  await fill(container, 0, 5);
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  const first = await iterator.readNext();
  assert.equal(first.statusCode, 304);
  assert.deepEqual(await drain(iterator), []);
  await fill(container, 5, 12);
  assert.deepEqual(ids(await drain(iterator)), names(5, 12));
  const { continuationToken } = await iterator.readNext();
  await fill(container, 12, 15);
  const options = { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuationToken) };
  assert.deepEqual(ids(await drain(container.items.getChangeFeedIterator(options))), names(12, 15));
});

test("the change feed from a time", async (t) => {
  const container = await newContainer(t);
  await fill(container, 0, 5);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  // A date has seconds, and the changes of that second are not after it.
  const start = new Date(Date.now() - 1000);
  await fill(container, 5, 9);
  const options = { changeFeedStartFrom: ChangeFeedStartFrom.Time(start) };
  assert.deepEqual(ids(await drain(container.items.getChangeFeedIterator(options))), names(5, 9));
});

test("the change feed of each feed range", async (t) => {
  const container = await newContainer(t);
  await fill(container, 0, 50);
  const found = [];
  for (const range of await container.getFeedRanges()) {
    const options = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) };
    found.push(...await drain(container.items.getChangeFeedIterator(options)));
  }
  assert.deepEqual(ids(found), names(0, 50));
});

test("the change feed with all versions and deletes", async (t) => {
  const container = await newContainer(t, {
    partitionKey: { paths: ["/pk"], version: 2 },
    changeFeedPolicy: new cosmos.ChangeFeedPolicy(cosmos.ChangeFeedRetentionTimeSpan.fromMinutes(10)),
  });
  const changeFeedMode = cosmos.ChangeFeedMode.AllVersionsAndDeletes;
  const options = { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now("p") };
  const iterator = container.items.getChangeFeedIterator(options);
  assert.deepEqual(await drain(iterator), []);
  await container.items.create({ id: "a", pk: "p", n: 1 });
  await container.items.upsert({ id: "a", pk: "p", n: 2 });
  await container.item("a", "p").delete();
  const changes = await drain(iterator);
  assert.deepEqual(changes.map((change) => change.metadata.operationType), ["create", "replace", "delete"]);
  assert.deepEqual(changes.map((change) => change.current.n), [1, 2, undefined]);
  assert.equal(changes[2].metadata.id, "a");
});
