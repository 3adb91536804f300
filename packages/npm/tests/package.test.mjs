// The npm package in a folder that has nothing else: the helper, the command, and the SDK on top.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import https from "node:https";
import { createRequire } from "node:module";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { CosmosClient } from "@azure/cosmos";
import * as quire from "quire-db";

/** What the SDK does first. */
async function use(client) {
  const { database } = await client.databases.create({ id: "library" });
  const { container } = await database.containers.create({ id: "people", partitionKey: { paths: ["/city"] } });
  await container.items.create({ id: "ada", city: "London", name: "Ada" });
  assert.equal((await container.item("ada", "London").read()).resource.name, "Ada");
  const { resources } = await container.items.query("SELECT VALUE c.id FROM c WHERE c.city = 'London'").fetchAll();
  assert.deepEqual(resources, ["ada"]);
}

async function databases(server) {
  const { resources } = await new CosmosClient(server.connectionString).databases.readAll().fetchAll();
  return resources.map((database) => database.id);
}

async function isOpen(port) {
  const socket = net.connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function untilClosed(port) {
  for (let tries = 0; await isOpen(port); tries += 1) {
    assert.ok(tries < 6000, "the server goes on");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function scratch() {
  return mkdtempSync(path.join(os.tmpdir(), "quire-test-"));
}

test("the SDK works with the connection string", async () => {
  const q = await quire.start();
  await use(new CosmosClient(q.connectionString));
  await q.stop();
  await q.stop();
  assert.equal(await isOpen(q.port), false);
});

test("the SDK works over https with the certificate", async () => {
  const q = await quire.start({ https: true });
  const agent = new https.Agent({ ca: await q.certificate() });
  await use(new CosmosClient({ endpoint: q.endpoint, key: q.key, agent }));
  await q.stop();
});

test("two at once have nothing in common", async () => {
  const [first, second] = await Promise.all([quire.start(), quire.start()]);
  await new CosmosClient(first.connectionString).databases.create({ id: "only" });
  assert.deepEqual(await databases(first), ["only"]);
  assert.deepEqual(await databases(second), []);
  await Promise.all([first.stop(), second.stop()]);
});

test("a seed, partitions, and a directory that is kept", async () => {
  const seed = path.join(scratch(), "seed.json");
  const container = { id: "orders", partitionKey: { paths: ["/customer"] }, items: [{ id: "1", customer: "ada" }] };
  writeFileSync(seed, JSON.stringify({ databases: [{ id: "shop", containers: [container] }] }));
  const data = path.join(scratch(), "data");
  for (const options of [{ seed, partitions: 3, data }, { data }]) {
    const q = await quire.start(options);
    const orders = new CosmosClient(q.connectionString).database("shop").container("orders");
    assert.equal((await orders.readPartitionKeyRanges().fetchAll()).resources.length, 3);
    assert.deepEqual((await orders.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [1]);
    await q.stop();
  }
});

test("one that does not start says why", async () => {
  await assert.rejects(quire.start({ partitions: 0 }), /--partitions must lie between 1 and 1000/);
});

test("settings of the caller do not count", async () => {
  const data = path.join(scratch(), "data");
  Object.assign(process.env, { QUIRE_DATA: data, QUIRE_LISTEN: "192.0.2.1:8081", PORT: "no port" });
  const q = await quire.start();
  for (const name of ["QUIRE_DATA", "QUIRE_LISTEN", "PORT"]) {
    delete process.env[name];
  }
  assert.deepEqual(await databases(q), []);
  await q.stop();
  assert.equal(existsSync(data), false);
});

for (const signal of ["SIGKILL", "SIGTERM"]) {
  test(`a test process that is killed takes the server along: ${signal}`, async () => {
    const program = 'require("quire-db").start().then((q) => { console.log(q.port); setInterval(() => {}, 1e6); })';
    const child = spawn(process.execPath, ["--eval", program], { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(child.stdout, "data");
    assert.equal(await isOpen(Number(line)), true);
    child.kill(signal);
    await once(child, "exit");
    await untilClosed(Number(line));
  });
}

test("a process that forgets to stop it ends", async () => {
  const program = 'require("quire-db").start().then((q) => console.log(q.port))';
  await untilClosed(Number(execFileSync(process.execPath, ["--eval", program], { encoding: "utf8" })));
});

test("the program of the README", () => {
  const programs = [...readFileSync(process.env.QUIRE_README, "utf8").matchAll(/```js\n(.*?)```/gs)].map((found) => found[1]);
  const [program, ...others] = programs.filter((text) => text.includes("quire-db"));
  assert.equal(others.length, 0);
  writeFileSync("readme.mjs", program);
  assert.equal(execFileSync(process.execPath, ["readme.mjs"], { encoding: "utf8" }), "test\n");
});

test("the command is installed", async () => {
  const command = path.join("node_modules", ".bin", "quire");
  assert.match(execFileSync(command, ["--version"], { encoding: "utf8" }), /^quire /);
  assert.equal(createRequire(import.meta.url)("quire-db").binary(), quire.binary());
  const q = await quire.start();
  const program = execFileSync(command, ["connect", "javascript", "--endpoint", q.endpoint], { encoding: "utf8" });
  writeFileSync("first.mjs", program);
  assert.equal(execFileSync(process.execPath, ["first.mjs"], { encoding: "utf8" }), "Ada\n");
  await q.stop();
});
