import assert from "node:assert/strict";
import test from "node:test";

import { failure, name, newClient, newContainer, newDatabase, partitions } from "./common.mjs";

test("a database lives and dies", async (t) => {
  const client = newClient();
  const database = await newDatabase(t, client);
  assert.equal((await database.read()).resource.id, database.id);
  assert.equal((await failure(client.databases.create({ id: database.id }))).code, 409);
  await client.databases.createIfNotExists({ id: database.id });
  const { resources } = await client.databases.query({
    query: "SELECT * FROM root r WHERE r.id = @id",
    parameters: [{ name: "@id", value: database.id }],
  }).fetchAll();
  assert.deepEqual(resources.map((found) => found.id), [database.id]);
  assert.ok((await client.databases.readAll().fetchAll()).resources.some((found) => found.id === database.id));
  assert.equal((await failure(client.database("missing").read())).code, 404);
});

test("a container keeps what was defined and gets the service's defaults", async (t) => {
  const container = await newContainer(t, {
    partitionKey: { paths: ["/pk"] },
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
    computedProperties: [{ name: "cp_lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
  });
  const { resource } = await container.read();
  assert.deepEqual(resource.partitionKey, { paths: ["/pk"], kind: "Hash" });
  assert.deepEqual(resource.indexingPolicy.excludedPaths, [{ path: '/"_etag"/?' }]);
  assert.deepEqual(resource.uniqueKeyPolicy, { uniqueKeys: [{ paths: ["/email"] }] });
  assert.equal(resource.computedProperties[0].name, "cp_lower");
  assert.equal(resource.conflictResolutionPolicy.conflictResolutionPath, "/_ts");
});

test("a container's policy can be replaced, its keys cannot", async (t) => {
  const container = await newContainer(t);
  const { resource } = await container.read();
  const { resource: replaced } = await container.replace({ ...resource, defaultTtl: 5 });
  assert.equal(replaced.defaultTtl, 5);
  assert.equal((await failure(container.replace({ ...resource, partitionKey: { paths: ["/x"] } }))).code, 400);
  assert.equal((await failure(container.replace({ ...resource, indexingPolicy: { indexingMode: "wrong" } }))).code, 400);
});

test("bad definitions are refused", async (t) => {
  const database = await newDatabase(t);
  const refused = (definition) => failure(database.containers.create({ id: name("bad"), ...definition }));
  assert.equal((await refused({ partitionKey: { paths: ["pk"] } })).code, 400);
  assert.equal((await refused({ partitionKey: { paths: ["/a", "/b"], kind: "Hash" } })).code, 400);
  assert.equal((await refused({ partitionKey: { paths: ["/pk"] }, defaultTtl: 0 })).code, 400);
  assert.equal((await refused({ partitionKey: { paths: ["/pk"] }, computedProperties: [{ name: "x", query: "SELECT c.x FROM c" }] })).code, 400);
});

test("throughput is read and replaced", async (t) => {
  const database = await newDatabase(t);
  const { container } = await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] }, throughput: 400 });
  const { resource: offer } = await container.readOffer();
  assert.equal(offer.content.offerThroughput, 400);
  offer.content.offerThroughput = 600;
  const { resource: changed } = await newClient().offer(offer.id).replace(offer);
  assert.equal(changed.content.offerThroughput, 600);
  const { container: elastic } = await database.containers.create({ id: "a", partitionKey: { paths: ["/pk"] }, maxThroughput: 4000 });
  const { resource: autoscale } = await elastic.readOffer();
  assert.equal(autoscale.content.offerAutopilotSettings.maxThroughput, 4000);
});

test("partition key ranges tile the space", async (t) => {
  const container = await newContainer(t);
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.equal(resources.length, partitions);
  let at = "";
  for (const range of resources.sort((a, b) => (a.minInclusive < b.minInclusive ? -1 : 1))) {
    assert.equal(range.minInclusive, at);
    at = range.maxExclusive;
  }
  assert.equal(at, "FF");
});

test("users, permissions and their tokens", async (t) => {
  const container = await newContainer(t);
  await container.items.create({ id: "1", pk: "a" });
  const database = container.database;
  const { user } = await database.users.create({ id: "u" });
  const { resource: permission } = await user.permissions.create({
    id: "p",
    permissionMode: "Read",
    resource: `dbs/${database.id}/colls/${container.id}`,
  });
  const limited = newClient({ key: undefined, resourceTokens: { [`dbs/${database.id}/colls/${container.id}`]: permission._token } });
  const seen = limited.database(database.id).container(container.id);
  assert.equal((await seen.item("1", "a").read()).resource.id, "1");
  assert.equal((await failure(seen.items.create({ id: "2", pk: "a" }))).code, 403);
});

test("the conflicts feed is empty", async (t) => {
  const container = await newContainer(t);
  assert.deepEqual((await container.conflicts.readAll().fetchAll()).resources, []);
});
