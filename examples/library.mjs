// Authors, books and publishers, kept true by the model in library.json: node examples/library.mjs [ENDPOINT]
//
// It works in a database of its own, `library-example-js`, which it makes anew.

import { CosmosClient } from "@azure/cosmos";
import { readFile } from "node:fs/promises";

import { putModel } from "./model.mjs";

const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const DATABASE = "library-example-js";
const endpoint = process.argv[2] ?? "http://localhost:8081/";

const client = new CosmosClient({ endpoint, key: KEY });
await client.database(DATABASE).delete().catch((error) => {
  if (error.code !== 404) throw error;
});
const { database } = await client.databases.create({ id: DATABASE });
const [authors, publishers, books] = await Promise.all([
  create("authors", "/id"),
  create("publishers", "/region"),
  create("books", "/id"),
]);
const model = JSON.parse(await readFile(new URL("library.json", import.meta.url), "utf8"));
await putModel(endpoint, KEY, DATABASE, model);

await authors.items.create({ id: "ada", name: "Ada" });
await authors.items.create({ id: "grace", name: "Grace" });
await publishers.items.create({ id: "acme", region: "uk", name: "Acme" });
const publisher = { id: "acme", region: "uk" };
const both = [{ id: "ada" }, { id: "grace" }];
const created = await books.items.create({ id: "loops", title: "On Loops", pages: 300, authors: both, publisher });
const loops = created.resource;
console.log(`${loops.title} by ${names(loops)}, published by ${loops.publisher.name}`);
await books.items.create({ id: "knots", title: "On Knots", pages: 120, authors: [{ id: "ada" }], publisher });
const ada = await read(authors, "ada");
console.log(`Ada has ${ada.countOfBooks} books: ${ada.books.map((book) => book.title).join(", ")}`);
console.log(`Acme has printed ${(await read(publishers, "acme", "uk")).pages} pages`);

const unknown = { id: "x", title: "X", authors: [{ id: "nobody" }] };
console.log("a book of an unknown author:", await refusal(books.items.create(unknown)));
console.log("an author with books cannot go:", await refusal(authors.item("ada", "ada").delete()));

await authors.item("ada", "ada").patch([{ op: "set", path: "/name", value: "Ada King" }]);
console.log("after a change of name:", names(await read(books, "knots")));
await books.item("knots", "knots").delete();
console.log("after a book was deleted:", (await read(authors, "ada")).countOfBooks);
await publishers.item("acme", "uk").delete();
const isNamed = "id" in ((await read(books, "loops")).publisher ?? {});
console.log("after its publisher was deleted:", isNamed ? "still named" : "named no more");

const query = "SELECT b.title, FOLLOW(b, 'book-authors') AS authors FROM b";
const [row] = (await books.items.query(query).fetchAll()).resources;
const counts = row.authors.map((author) => `${author.name} ${author.countOfBooks}`).join(", ");
console.log(`${row.title} with its authors in one query: ${counts}`);

async function create(id, path) {
  return (await database.containers.create({ id, partitionKey: { paths: [path], version: 2 } })).container;
}

async function read(container, id, key = id) {
  return (await container.item(id, key).read()).resource;
}

function names(book) {
  return book.authors.map((author) => author.name).join(" and ");
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
