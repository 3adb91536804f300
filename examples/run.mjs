// Runs every example against a server: node examples/run.mjs [ENDPOINT]
//
// It works in a database of its own, `examples`, which it makes anew.

import { readFile } from "node:fs/promises";
import { CosmosClient } from "@azure/cosmos";

const endpoint = process.argv[2] ?? "http://localhost:8081/";
const key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

const client = new CosmosClient({ endpoint, key });
await client.database("examples").delete().catch((error) => {
  if (error.code !== 404) throw error;
});
const { database } = await client.databases.create({ id: "examples" });
const books = await createContainer("books", "/publisher");
const shop = await createContainer("shop", "/store");
await addABook();
await checkAuthors();
await keepMetadata();
await importAndDelete();
await placeOrders();

async function createContainer(id, path) {
  const { container } = await database.containers.create({ id, partitionKey: { paths: [path] } });
  return container;
}

function script(name) {
  return readFile(new URL(`${name}.js`, import.meta.url), "utf8");
}

async function createProcedure(container, name) {
  await container.scripts.storedProcedures.create({ id: name, body: await script(name) });
  return async (partitionKey, ...parameters) => {
    const { resource } = await container.scripts.storedProcedure(name).execute(partitionKey, parameters);
    return resource;
  };
}

async function createTrigger(container, name, triggerType, triggerOperation) {
  await container.scripts.triggers.create({ id: name, body: await script(name), triggerType, triggerOperation });
}

// What a call that must fail was told.
async function refusal(call) {
  try {
    await call;
  } catch (error) {
    return `${error.code}/${error.substatus}`;
  }
  throw new Error("the call should have been refused");
}

async function addABook() {
  const addBook = await createProcedure(books, "addBook");
  for (const id of ["ada", "grace"]) {
    await books.items.create({ id, publisher: "acme", type: "author", countOfBooks: 0 });
  }
  const added = await addBook("acme", { id: "loops", publisher: "acme", title: "On Loops", authors: ["ada", "grace"] });
  console.log("added", added.book.title, "by", added.authors.map((author) => author.id).join(" and "));
  const unknown = { id: "knots", publisher: "acme", title: "On Knots", authors: ["ada", "nobody"] };
  console.log("a book of an unknown author:", await refusal(addBook("acme", unknown)));
  console.log("books of ada:", (await books.item("ada", "acme").read()).resource.countOfBooks);
}

async function checkAuthors() {
  await createTrigger(books, "requireAuthors", "Pre", "All");
  const create = (book) => books.items.create(book, { preTriggerInclude: ["requireAuthors"] });
  await create({ id: "cats", publisher: "acme", type: "book", title: "On Cats", authors: ["grace"] });
  const unknown = { id: "dogs", publisher: "acme", type: "book", title: "On Dogs", authors: ["nobody"] };
  console.log("checked before it is created:", await refusal(create(unknown)));
}

async function keepMetadata() {
  await createTrigger(books, "countBooks", "Post", "Create");
  for (const [number, pages] of [120, 320].entries()) {
    const book = { id: `volume-${number}`, publisher: "acme", type: "book", title: `Volume ${number}`, pages };
    await books.items.create(book, { postTriggerInclude: ["countBooks"] });
  }
  const { resource: metadata } = await books.item("metadata", "acme").read();
  console.log("metadata:", metadata.books, "books,", metadata.pages, "pages, newest", metadata.newest);
}

async function importAndDelete() {
  const bulkImport = await createProcedure(books, "bulkImport");
  const bulkDelete = await createProcedure(books, "bulkDelete");
  const items = [];
  for (let year = 1800; year < 2000; year++) {
    items.push({ id: `old-${year}`, publisher: "reprints", type: "book", year });
  }
  for (let left = items; left.length > 0; ) {
    left = left.slice(await bulkImport("reprints", left));
  }
  let deleted = 0;
  for (let more = true; more; ) {
    const done = await bulkDelete("reprints", "SELECT * FROM c WHERE c.year < 1950");
    deleted += done.deleted;
    more = done.continuation;
  }
  const count = books.items.query("SELECT VALUE COUNT(1) FROM c", { partitionKey: "reprints" });
  const { resources } = await count.fetchAll();
  console.log("imported", items.length, "and deleted", deleted, "of them:", resources[0], "remain");
}

async function placeOrders() {
  const placeOrder = await createProcedure(shop, "placeOrder");
  await shop.items.create({ id: "tea", store: "oslo", type: "product", price: 4.5, stock: 10 });
  await shop.items.create({ id: "cup", store: "oslo", type: "product", price: 12, stock: 1 });
  const place = (id, lines) => placeOrder("oslo", { id, store: "oslo", lines });
  const tea = (quantity) => ({ product: "tea", quantity });
  const cup = { product: "cup", quantity: 1 };
  console.log("ordered for", (await place("order-1", [tea(2), cup])).total);
  console.log("more cups than there are:", await refusal(place("order-2", [tea(1), cup])));
  console.log("tea in stock:", (await shop.item("tea", "oslo").read()).resource.stock);
}
